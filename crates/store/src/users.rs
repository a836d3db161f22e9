//! What is kept of a user: the profile, whom they block, and what they muted.

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, Mute, Profile, UserId};

use crate::Result;

#[async_trait]
pub trait Users: Send + Sync {
    /// The profile; empty where none was set.
    async fn profile(&self, user: &UserId) -> Result<Profile>;

    /// Sets it, and the copies in other people's inboxes with it.
    async fn put_profile(&self, user: &UserId, profile: Profile) -> Result<()>;

    /// Whether `user` blocks `other`.
    async fn blocks(&self, user: &UserId, other: &UserId) -> Result<bool>;

    /// Blocks or unblocks; doing it twice is harmless.
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
}
