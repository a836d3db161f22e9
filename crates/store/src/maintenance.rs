//! Operations on a whole store: health, backup, erasure.

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, UserId};
use serde::Serialize;

use crate::Result;

/// Receives a backup's bytes in order; an error ends the backup.
pub type BackupSink<'a> = &'a mut (dyn FnMut(Vec<u8>) -> std::io::Result<()> + Send);

/// The state of a store, for `/readyz`, `doctor` and metrics.
#[derive(Debug, Clone, Default, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = StoreHealth))]
pub struct Health {
    pub backend: &'static str,
    /// Why it cannot take sends now; `None` when it can.
    pub refusing: Option<String>,
    /// What is degraded while sends are still taken; `None` if nothing is.
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

    /// Erases one member from a conversation: their messages become void, their rows are deleted,
    /// and the other member's rows no longer show them. Returns how many messages became void.
    async fn erase_member(&self, user: &UserId, conversation: &ConversationId) -> Result<u64>;

    /// Erases a user's data outside conversations.
    async fn erase_user(&self, user: &UserId) -> Result<()>;

    /// Every conversation a user has a row or a message in, withheld ones included.
    async fn memberships(&self, user: &UserId) -> Result<Vec<ConversationId>>;

    /// Writes a checkpoint and waits for it; a no-op in a backend without a log.
    async fn checkpoint(&self) -> Result<()>;

    /// Makes everything durable and stops taking writes.
    async fn close(&self) -> Result<()>;
}
