//! What a device remembers across restarts.

use std::collections::BTreeMap;

use bluetick_protocol::{Boundaries, ClientMsgId, ConversationId, MessageId, Send, Seq, UserId};
use serde::{Deserialize, Serialize};

use crate::Seen;

/// The part of the client's state that outlives the process; store it as JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Saved {
    /// Whose state this is; it is of no use to another user.
    pub user: Option<UserId>,
    /// The message_id up to which the device holds everything.
    pub cursor: Option<MessageId>,
    /// Every conversation that the user had when the device last caught up is among those below.
    pub knows_all: bool,
    /// What the server has not confirmed yet, in order.
    pub outbox: Vec<Send>,
    /// When each of them was first sent, by the server's clock in milliseconds since 1970. Absent
    /// for those that were never sent.
    pub first_sent_at: BTreeMap<ClientMsgId, u64>,
    /// What is known of each conversation.
    pub conversations: BTreeMap<ConversationId, SavedConversation>,
}

/// What is remembered of one conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SavedConversation {
    /// Absent while the device knows of the conversation only from ticks.
    pub seen: Option<Seen>,
    /// The newest message of the other member's that the stream brought: what is acked, and what a reply has seen.
    pub heard: Seq,
    /// How far the user has read; the server may not know yet.
    pub read: Seq,
    /// The user's own boundaries as the server knows them.
    pub own: Boundaries,
    /// The other member's boundaries: these make the ticks.
    pub peer: Boundaries,
    /// The newest message of the user's own: while it is not blue, its tick is worth asking for.
    pub last_own: Option<(Seq, MessageId)>,
}
