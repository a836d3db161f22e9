//! What the operations of an app server take and return. Owned and serialisable, so that they can be passed in one
//! process or between two.

use std::sync::Arc;

use bluetick_protocol::{ConversationId, Head, MessageId, Send as SendFrame, Seq, SessionId, UserId, limits};
use bluetick_store::Message;
use serde::{Deserialize, Serialize};

/// Messages that one user sends, in order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SendRequest {
    pub user: UserId,
    /// The session that sends them. It gets `sent` and needs no copy.
    pub session: Option<SessionId>,
    pub sends: Vec<SendFrame>,
}

/// Asks what a session that has just registered must deliver (R1, R6).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlanRequest {
    pub user: UserId,
    /// The device's cursor; `None` for a new device.
    pub cursor: Option<MessageId>,
    /// Whether to include the heads of conversations: for `caught_up`, so in a session's first plan.
    pub heads: bool,
    /// Continues the plan whose `more` named this conversation: only the undelivered conversations after it.
    #[serde(default)]
    pub undelivered_after: Option<ConversationId>,
}

/// The conversations that a session must read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    pub lanes: Vec<PlanLane>,
    /// The heads of the user's newest conversations, so that the client sees what it lacks.
    pub heads: Vec<Head>,
    /// The device's cursor once everything planned has reached it.
    pub cursor: MessageId,
    /// Where reading begins in conversations without a pending row.
    pub since: MessageId,
    /// Why the cursor could not be served.
    pub reset: Option<String>,
    /// Set if there are more conversations with undelivered messages: once these lanes are drained, a further plan lists
    /// those after this conversation.
    #[serde(default)]
    pub more: Option<ConversationId>,
}

/// A conversation to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanLane {
    pub conversation_id: ConversationId,
    /// Whether to read messages newer than `since`, whatever the row says.
    pub resume: bool,
    /// The pending row: the conversation is drained in full from there. A lane with neither `resume` nor a row begins
    /// at the first message that no device has acked.
    pub row: Option<Seq>,
    pub last_seq: Seq,
}

/// Where a read of a conversation begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadFrom {
    Seq(Seq),
    /// At the first message newer than `since`, or at `at_most` if that is earlier.
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
    /// The most bytes of bodies. The first message is returned in any case.
    #[serde(default = "page_max_bytes")]
    pub max_bytes: usize,
}

/// The limit for processes of an earlier version, which do not send one.
fn page_max_bytes() -> usize {
    limits::PAGE_MAX_BYTES
}

/// Consecutive messages of a conversation, without holes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MessageRange {
    pub first_seq: Seq,
    /// The messages that this user may see; the seqs in between are void or withheld.
    pub messages: Vec<Arc<Message>>,
    /// The seq after the last one covered.
    pub next_seq: Seq,
    pub last_seq: Seq,
}

/// Delivered, or read, up to a seq.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReceiptRequest {
    pub user: UserId,
    pub session: Option<SessionId>,
    pub conversation_id: ConversationId,
    pub seq: Seq,
    /// Repeated after an unknown outcome: the first attempt may have stored the receipt without sending its ticks.
    #[serde(default)]
    pub again: bool,
}

impl ReceiptRequest {
    pub(super) fn repeated(&self) -> ReceiptRequest {
        ReceiptRequest { again: true, ..self.clone() }
    }
}

/// Removes a pending row after everything drained for it is acked (R4).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SettleRequest {
    pub user: UserId,
    pub conversation_id: ConversationId,
    /// The value of the row when it was read.
    pub row: Seq,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// The current row, if it was not the expected one.
    pub row: Option<Seq>,
    /// Read after the removal: messages beyond the acked ones are still to be delivered.
    pub last_seq: Seq,
}

/// What a closing session had accepted and was not acked (R5).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DebtsRequest {
    pub user: UserId,
    pub debts: Vec<Debt>,
    /// The session goes on, but its device has not acked in time and counts as offline (R14).
    #[serde(default)]
    pub overdue: bool,
}

/// The unacked messages of a session in one conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Debt {
    pub conversation_id: ConversationId,
    /// A seq, unless the session ended before it knew where its reading begins.
    pub first_unacked: ReadFrom,
    pub row: Option<Seq>,
}
