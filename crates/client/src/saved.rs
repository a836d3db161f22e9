//! The state that a device stores across restarts.

use std::collections::BTreeMap;

use bluetick_protocol::{Boundaries, ClientMsgId, ConversationId, MessageId, Send, Seq, UserId};
use serde::{Deserialize, Serialize};

use crate::SeenSeqs;

/// The part of the client's state that survives a restart; store it as JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Saved {
    /// The user that the state belongs to.
    pub user: Option<UserId>,
    /// The message_id up to which the device holds everything.
    pub cursor: Option<MessageId>,
    /// Whether `conversations` has every conversation of the last `caught_up`.
    pub knows_all: bool,
    /// The unconfirmed messages, in order.
    pub outbox: Vec<Send>,
    /// When each of them was first sent, by the server's clock in milliseconds since 1970. Absent
    /// for those that were never sent.
    pub first_sent_at: BTreeMap<ClientMsgId, u64>,
    /// The state of each conversation.
    pub conversations: BTreeMap<ConversationId, SavedConversation>,
}

/// The stored state of one conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SavedConversation {
    /// The received seqs. Absent while the device knows the conversation only from ticks.
    pub seen: Option<SeenSeqs>,
    /// The newest message of the other member that the stream brought: the value of acks and of
    /// `seen_seq`.
    pub heard: Seq,
    /// How far the user has read. The server may not have confirmed it yet.
    pub read: Seq,
    /// The user's own boundaries as the server knows them.
    pub own: Boundaries,
    /// The other member's boundaries, which give the ticks.
    pub peer: Boundaries,
    /// The newest own message. Its tick is requested after a reconnect while it is not blue.
    pub last_own: Option<(Seq, MessageId)>,
}
