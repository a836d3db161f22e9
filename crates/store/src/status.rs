//! `message_status`: PK user_id, SK conversation_id; last_delivered_seq, last_read_seq. Two integers make every tick; a
//! third says how far the user's devices were notified.

use async_trait::async_trait;
use bluetick_protocol::{Boundaries, ConversationId, Seq, UserId};
use serde::{Deserialize, Serialize};

use crate::Result;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusRow {
    pub user_id: UserId,
    pub conversation_id: ConversationId,
    pub last_delivered_seq: Seq,
    pub last_read_seq: Seq,
}

impl StatusRow {
    pub fn boundaries(&self) -> Boundaries {
        Boundaries { last_delivered_seq: self.last_delivered_seq, last_read_seq: self.last_read_seq }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advanced {
    pub row: StatusRow,
    /// The read boundary before this call.
    pub read_before: Seq,
    /// Whether this call moved a boundary.
    pub moved: bool,
}

#[async_trait]
pub trait MessageStatus: Send + Sync {
    /// Raises the boundaries to at least these, clamped to the last seq; read implies delivered (R10). A read
    /// leaves `unread_count` at exactly the messages after it (R11). Nothing appears behind a boundary any more: where
    /// a backend has holes, those before it are closed (R8). Durable when it returns.
    async fn advance(
        &self,
        user: &UserId,
        conversation: &ConversationId,
        delivered: Seq,
        read: Seq,
    ) -> Result<Advanced>;

    /// The boundaries; zeros where there is no row yet.
    async fn status(&self, user: &UserId, conversation: &ConversationId) -> Result<StatusRow>;

    /// The boundaries of several, in the order asked for: where a backend can, in one round trip.
    async fn statuses(&self, rows: &[(UserId, ConversationId)]) -> Result<Vec<StatusRow>> {
        let mut statuses = Vec::with_capacity(rows.len());
        for (user, conversation) in rows {
            statuses.push(self.status(user, conversation).await?);
        }
        Ok(statuses)
    }

    /// Whether the other side has written nothing behind `last_delivered_seq` that this user may see, and nothing can
    /// appear there any more but behind the last seq. A backend that would have to read messages for that says no.
    async fn has_acked_all(&self, _user: &UserId, _conversation: &ConversationId) -> Result<bool> {
        Ok(false)
    }

    /// The boundaries, and in one step with them up to where the user's devices were notified (R14).
    async fn notified(&self, user: &UserId, conversation: &ConversationId) -> Result<(StatusRow, Seq)>;

    /// Raises what the devices were notified of. Makes no row that [`statuses_of`](Self::statuses_of) lists.
    async fn raise_notified(&self, user: &UserId, conversation: &ConversationId, seq: Seq) -> Result<()>;

    /// All rows of a user with a receipt in them, in order of conversation.
    async fn statuses_of(&self, user: &UserId) -> Result<Vec<StatusRow>>;
}
