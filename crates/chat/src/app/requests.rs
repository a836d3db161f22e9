//! What the operations of an app server take and return. Owned and serialisable, so that they can be passed in one
//! process or between two.

use std::sync::Arc;

use bluetick_protocol::{ConversationId, Head, MessageId, Send as SendFrame, Seq, SessionId, UserId, limits};
use bluetick_store::Message;
use serde::{Deserialize, Serialize};

/// Sends of one user, in the order they were written.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SendRequest {
    pub user: UserId,
    /// The session they came through, which is told `sent` and needs no copy.
    pub session: Option<SessionId>,
    pub sends: Vec<SendFrame>,
}

/// What a session that has just registered must deliver (R1, R6).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlanRequest {
    pub user: UserId,
    /// What the device said it holds; nothing for a new one.
    pub cursor: Option<MessageId>,
    /// Whether this is a session's first plan: it also wants the heads of conversations, for its `caught_up`.
    pub heads: bool,
    /// The rest of a plan whose `more` named this conversation: what no device has acked behind it, and nothing else.
    #[serde(default)]
    pub undelivered_after: Option<ConversationId>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    pub lanes: Vec<PlanLane>,
    /// The heads of the user's newest conversations, for the client to see what it lacks.
    pub heads: Vec<Head>,
    /// What a device may call its cursor once everything planned has reached it.
    pub cursor: MessageId,
    /// From where on conversations without a pending row are read.
    pub since: MessageId,
    /// Why the cursor could not be served, if it could not.
    pub reset: Option<String>,
    /// There are more conversations with messages that no device has acked: they come in a further plan, behind this
    /// conversation, once these lanes are drained.
    #[serde(default)]
    pub more: Option<ConversationId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanLane {
    pub conversation_id: ConversationId,
    /// Whether messages newer than `since` must be looked for, whatever the row says.
    pub resume: bool,
    /// The pending row, if there is one: drained in full from there. A lane with neither begins at the first message
    /// that no device has acked.
    pub row: Option<Seq>,
    pub last_seq: Seq,
}

/// Where a read of a conversation begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadFrom {
    Seq(Seq),
    /// At the first message newer than `since`, or at `at_most` if that comes before it.
    Since {
        since: MessageId,
        at_most: Seq,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RangeRequest {
    pub user: UserId,
    pub conversation_id: ConversationId,
    pub from: ReadFrom,
    pub max_messages: usize,
    /// Most bytes of bodies, beyond the first message.
    #[serde(default = "page_max_bytes")]
    pub max_bytes: usize,
}

/// What a process of an earlier version asks for.
fn page_max_bytes() -> usize {
    limits::PAGE_MAX_BYTES
}

/// Consecutive messages of a conversation, without holes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MessageRange {
    pub first_seq: Seq,
    /// Only what this user may see; the seqs between are void or withheld.
    pub messages: Vec<Arc<Message>>,
    /// The seq after the last one covered.
    pub next_seq: Seq,
    pub last_seq: Seq,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReceiptRequest {
    pub user: UserId,
    pub session: Option<SessionId>,
    pub conversation_id: ConversationId,
    pub seq: Seq,
    /// It was asked before, and nobody knows what came of it: what was stored then may not have been told.
    #[serde(default)]
    pub again: bool,
}

impl ReceiptRequest {
    pub(super) fn repeated(&self) -> ReceiptRequest {
        ReceiptRequest { again: true, ..self.clone() }
    }
}

/// All that was drained for a row is acked: remove it (R4).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SettleRequest {
    pub user: UserId,
    pub conversation_id: ConversationId,
    /// The row's value as it was read.
    pub row: Seq,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// The row that is there now, if it was not the expected one.
    pub row: Option<Seq>,
    /// Read after the row was removed: what lies beyond the acked is still to be delivered.
    pub last_seq: Seq,
}

/// What a closing session had taken and not seen acked (R5).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DebtsRequest {
    pub user: UserId,
    pub debts: Vec<Debt>,
    /// The session goes on: its device has not acked in time, and counts as gone (R14).
    #[serde(default)]
    pub overdue: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Debt {
    pub conversation_id: ConversationId,
    /// A seq, unless the session ended before it was found where its reading begins.
    pub first_unacked: ReadFrom,
    pub row: Option<Seq>,
}
