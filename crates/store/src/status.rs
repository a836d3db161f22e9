//! `message_status`: PK user_id, SK conversation_id; last_delivered_seq and last_read_seq, from
//! which every tick follows, and last_notified_seq.

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
    /// Raises the boundaries to at least these, clamped to the last seq; read implies delivered
    /// (R10). A read leaves `unread_count` at exactly the messages after it (R11). A backend with
    /// holes closes those before the boundary, so that nothing appears below it later (R8). Durable
    /// when it returns.
    async fn advance(
        &self,
        user: &UserId,
        conversation: &ConversationId,
        delivered: Seq,
        read: Seq,
    ) -> Result<Advanced>;

    /// The boundaries; zeros where there is no row yet.
    async fn status(&self, user: &UserId, conversation: &ConversationId) -> Result<StatusRow>;

    /// The boundaries of several, in the given order; in one round trip where the backend can.
    async fn statuses(&self, rows: &[(UserId, ConversationId)]) -> Result<Vec<StatusRow>> {
        let mut statuses = Vec::with_capacity(rows.len());
        for (user, conversation) in rows {
            statuses.push(self.status(user, conversation).await?);
        }
        Ok(statuses)
    }

    /// Whether the other side has written nothing after `last_delivered_seq` that this user may
    /// see, and nothing can appear there except after the last seq. A backend that would have to
    /// read messages to know returns false.
    async fn has_acked_all(&self, _user: &UserId, _conversation: &ConversationId) -> Result<bool> {
        Ok(false)
    }

    /// The boundaries and `last_notified_seq`, read atomically (R14).
    async fn notified(&self, user: &UserId, conversation: &ConversationId) -> Result<(StatusRow, Seq)>;

    /// Raises `last_notified_seq`. Creates no row that [`statuses_of`](Self::statuses_of) lists.
    async fn raise_notified(&self, user: &UserId, conversation: &ConversationId, seq: Seq) -> Result<()>;

    /// All rows of a user that hold a receipt, in order of conversation.
    async fn statuses_of(&self, user: &UserId) -> Result<Vec<StatusRow>>;
}
