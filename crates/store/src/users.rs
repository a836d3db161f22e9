//! A user's profile, blocks, mutes, and the time before which their tokens are revoked.

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, Mute, Profile, UserId};

use crate::Result;

#[async_trait]
pub trait Users: Send + Sync {
    /// The profile; empty where none was set.
    async fn profile(&self, user: &UserId) -> Result<Profile>;

    /// Sets the profile, and its copies in the inboxes of peers whom the user does not block.
    async fn put_profile(&self, user: &UserId, profile: Profile) -> Result<()>;

    /// Whether `user` blocks `other`.
    async fn blocks(&self, user: &UserId, other: &UserId) -> Result<bool>;

    /// Blocks or unblocks; idempotent. A block freezes the copy of the profile in the other user's
    /// inbox; an unblock updates it.
    async fn set_block(&self, user: &UserId, other: &UserId, blocked: bool) -> Result<()>;

    /// Whom a user blocks, in order.
    async fn blocked_by(&self, user: &UserId) -> Result<Vec<UserId>>;

    /// Mutes a conversation for a user, until a time or for ever. A repeated call sets the new
    /// time.
    async fn mute(&self, user: &UserId, mute: Mute) -> Result<()>;

    async fn unmute(&self, user: &UserId, conversation: &ConversationId) -> Result<()>;

    /// The mute of one conversation, expired or not.
    async fn muted(&self, user: &UserId, conversation: &ConversationId) -> Result<Option<Mute>>;

    /// A user's mutes, in order of conversation.
    async fn mutes_of(&self, user: &UserId) -> Result<Vec<Mute>>;

    /// The earliest time of issue of a valid token, in seconds since 1970. `None` if nothing was
    /// revoked. Strongly consistent: it sees every raise that returned before it began.
    async fn not_before(&self, user: &UserId) -> Result<Option<u64>>;

    /// Raises `not_before`; a value that is not greater changes nothing. It outlives the erasure of
    /// the user, or an erased user's old token would work again.
    async fn raise_not_before(&self, user: &UserId, secs: u64) -> Result<()>;
}
