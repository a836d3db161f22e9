//! What is kept of a user: the profile, and whom they block.

use async_trait::async_trait;
use bluetick_protocol::{Profile, UserId};

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
}
