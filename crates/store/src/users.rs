//! What is kept of a user: the profile, whom they block, what they muted, and from when on their tokens count.

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, Mute, Profile, UserId};

use crate::Result;

#[async_trait]
pub trait Users: Send + Sync {
    /// The profile; empty where none was set.
    async fn profile(&self, user: &UserId) -> Result<Profile>;

    /// Sets it, and with it the copies in the inboxes of those whom the user does not block.
    async fn put_profile(&self, user: &UserId, profile: Profile) -> Result<()>;

    /// Whether `user` blocks `other`.
    async fn blocks(&self, user: &UserId, other: &UserId) -> Result<bool>;

    /// Blocks or unblocks; doing it twice is harmless. A block freezes the copy of the profile that the other has in
    /// their inbox, as it is at that moment; an unblock brings the copy up to date.
    async fn set_block(&self, user: &UserId, other: &UserId, blocked: bool) -> Result<()>;

    /// Whom a user blocks, in order.
    async fn blocked_by(&self, user: &UserId) -> Result<Vec<UserId>>;

    /// Mutes a conversation for a user, until a time or for ever; muting it again sets the new time.
    async fn mute(&self, user: &UserId, mute: Mute) -> Result<()>;

    async fn unmute(&self, user: &UserId, conversation: &ConversationId) -> Result<()>;

    /// The mute of one conversation, whether or not its time is over.
    async fn muted(&self, user: &UserId, conversation: &ConversationId) -> Result<Option<Mute>>;

    /// What a user muted, in order of conversation.
    async fn mutes_of(&self, user: &UserId) -> Result<Vec<Mute>>;

    /// The earliest time of issue, in seconds since 1970, of a token that counts. `None` where nothing was revoked.
    /// The read is consistent: it sees every raise that was answered before it began.
    async fn not_before(&self, user: &UserId) -> Result<Option<u64>>;

    /// Raises `not_before`; a value that is not greater changes nothing. It outlives the erasure of the user, or an
    /// erased user's old token would work again.
    async fn raise_not_before(&self, user: &UserId, secs: u64) -> Result<()>;
}
