//! `pending_deliveries`: PK receiver_id, SK conversation_id; first_undelivered_seq. One row per
//! pending conversation, never one per message.

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, Seq, UserId};
use serde::{Deserialize, Serialize};

use crate::Result;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingRow {
    pub receiver_id: UserId,
    pub conversation_id: ConversationId,
    pub first_undelivered_seq: Seq,
}

/// The result of [`PendingDeliveries::note_undelivered`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noted {
    /// The row's value now.
    pub first_undelivered_seq: Seq,
    /// Whether this call wrote it.
    pub written: bool,
}

#[async_trait]
pub trait PendingDeliveries: Send + Sync {
    /// Ensures that the row exists and holds at most this seq: one conditional write (R3).
    async fn note_undelivered(
        &self,
        receiver: &UserId,
        conversation: &ConversationId,
        seq: Seq,
    ) -> Result<Noted>;

    /// All rows of a receiver, in order of conversation.
    async fn pending_of(&self, receiver: &UserId) -> Result<Vec<PendingRow>>;

    /// One row's value.
    async fn pending_row(&self, receiver: &UserId, conversation: &ConversationId) -> Result<Option<Seq>>;

    /// Moves the row to `to`, or removes it for `None`, only if it still holds `expected` (R4, R5).
    /// Returns whether it did.
    async fn settle(
        &self,
        receiver: &UserId,
        conversation: &ConversationId,
        expected: Seq,
        to: Option<Seq>,
    ) -> Result<bool>;
}
