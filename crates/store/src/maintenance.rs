//! What an operator does with a store: health, backup, erasure.

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, UserId};
use serde::Serialize;

use crate::Result;

/// Where a backup's bytes go, in order; an error ends the backup.
pub type BackupSink<'a> = &'a mut (dyn FnMut(Vec<u8>) -> std::io::Result<()> + Send);

/// The state of a store, for `/readyz`, `doctor` and metrics.
#[derive(Debug, Clone, Default, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = StoreHealth))]
pub struct Health {
    pub backend: &'static str,
    /// Why it cannot take sends now; `None` when it can.
    pub refusing: Option<String>,
    /// What works less well than it should while sends are taken; `None` when nothing does.
    pub degraded: Option<String>,
    pub free_bytes: Option<u64>,
    pub log_bytes: u64,
    pub unflushed_messages: u64,
}

#[async_trait]
pub trait Maintenance: Send + Sync {
    async fn health(&self) -> Health;

    /// Writes a consistent copy of everything, while serving.
    async fn backup(&self, sink: BackupSink<'_>) -> Result<u64>;

    /// Erases one member from a conversation: the bodies they wrote become void, their rows go, and what the other
    /// member's rows show of them goes too. Returns how many messages became void.
    async fn erase_member(&self, user: &UserId, conversation: &ConversationId) -> Result<u64>;

    /// Erases what is kept of a user outside conversations.
    async fn erase_user(&self, user: &UserId) -> Result<()>;

    /// Every conversation a user has a row or a message in, withheld ones included.
    async fn memberships(&self, user: &UserId) -> Result<Vec<ConversationId>>;

    /// Brings memory and log into the engine and waits for it; a no-op where there is none.
    async fn checkpoint(&self) -> Result<()>;

    /// Makes everything durable and stops taking writes.
    async fn close(&self) -> Result<()>;
}
