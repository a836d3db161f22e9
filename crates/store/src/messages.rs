//! `messages`: PK conversation_id, SK seq. The commit point of a send, and reads by position.

use std::sync::Arc;

use async_trait::async_trait;
use bluetick_protocol::{
    ClientMsgId, ConversationId, Json, MESSAGE_FRAME_BYTES, MessageFrame, MessageId, Seq, Side, UserId,
    json_text_bytes, limits,
};
use serde::{Deserialize, Serialize};

use crate::{Advanced, Result, StoreError, preview_of};

/// A stored message. It never changes, except that an erasure makes it void.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub conversation_id: ConversationId,
    pub seq: Seq,
    pub message_id: MessageId,
    pub client_msg_id: ClientMsgId,
    pub from: Side,
    pub body: String,
    pub ts: u64,
    pub attachment: Option<Json>,
    pub meta: Option<Json>,
    /// Stored while the receiver blocked the sender: the receiver never sees it.
    pub withheld: bool,
    /// A position without content: a closed hole, or an erased message.
    pub void: bool,
}

impl Message {
    pub fn sender(&self) -> UserId {
        self.conversation_id.member(self.from)
    }

    pub fn receiver(&self) -> UserId {
        self.conversation_id.member(self.from.other())
    }

    pub fn is_from(&self, user: &UserId) -> bool {
        self.conversation_id.member_str(self.from) == user.as_str()
    }

    /// Whether a member may see it: nobody sees a void, and the receiver sees no withheld message.
    pub fn visible_to(&self, side: Side) -> bool {
        !self.void && (!self.withheld || self.from == side)
    }

    /// The void at this message's position.
    pub fn voided(&self) -> Message {
        Message { body: String::new(), attachment: None, meta: None, void: true, ..self.clone() }
    }

    pub fn to_frame(&self) -> MessageFrame {
        MessageFrame {
            conversation_id: self.conversation_id.clone(),
            seq: self.seq,
            message_id: self.message_id,
            client_msg_id: self.client_msg_id.clone(),
            sender: self.sender(),
            receiver: self.receiver(),
            body: self.body.clone(),
            ts: self.ts,
            attachment: self.attachment.clone(),
            meta: self.meta.clone(),
        }
    }

    /// The preview that an inbox and a notification show.
    pub fn preview(&self) -> String {
        preview_of(&self.body, self.attachment.as_ref())
    }

    /// The bytes of its content: its texts and its numbers.
    pub fn stored_bytes(&self) -> u64 {
        let json = |j: &Option<Json>| j.as_ref().map_or(0, |j| j.as_str().len());
        let texts = self.conversation_id.as_str().len() + self.client_msg_id.as_str().len() + self.body.len();
        (texts + json(&self.attachment) + json(&self.meta) + 3 * size_of::<u64>()) as u64
    }

    /// The bytes that a client wrote, which count against a page of the store.
    #[inline]
    pub fn content_bytes(&self) -> usize {
        if self.attachment.is_none() && self.meta.is_none() {
            return self.body.len();
        }
        let json = |j: &Option<Json>| j.as_ref().map_or(0, |j| j.as_str().len());
        self.body.len() + json(&self.attachment) + json(&self.meta)
    }

    /// An upper estimate of its frame's bytes on the wire.
    #[inline]
    pub fn encoded_bytes(&self) -> usize {
        self.encoded_bytes_with(json_text_bytes(&self.body))
    }

    /// The same without scanning a short body: assumes that every byte is escaped.
    #[inline]
    pub fn encoded_bytes_at_most(&self) -> usize {
        const SHORT_BYTES: usize = 512;
        match self.body.len() {
            short @ ..=SHORT_BYTES => self.encoded_bytes_with(6 * short),
            _ => self.encoded_bytes(),
        }
    }

    #[inline]
    fn encoded_bytes_with(&self, body: usize) -> usize {
        // A frame names the members twice: as sender and receiver, and in the conversation id.
        let ids = 2 * self.conversation_id.as_str().len() + 6 * self.client_msg_id.as_str().len();
        MESSAGE_FRAME_BYTES + ids + body + self.content_bytes() - self.body.len()
    }

    /// An estimate of its size in memory, for bounds.
    pub fn weight(&self) -> usize {
        let json = |j: &Option<Json>| j.as_ref().map_or(0, |j| j.as_str().len());
        std::mem::size_of::<Message>() + 48 + self.body.len() + json(&self.attachment) + json(&self.meta)
    }
}

/// A message that is to be committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    pub conversation_id: ConversationId,
    pub from: Side,
    pub client_msg_id: ClientMsgId,
    pub body: String,
    pub attachment: Option<Json>,
    pub meta: Option<Json>,
    /// The receiver blocks the sender: it is stored, and nothing of it reaches the receiver.
    pub withheld: bool,
    /// What the sender's client had seen: the read this reply implies (R10).
    pub seen_seq: Option<Seq>,
    /// The first lookup missed: write the receiver's pending row with the message (R2, R3).
    pub undelivered: bool,
    /// Write a push outbox row with the pending row (R14). Before this time the committing node
    /// sends the push itself; afterwards any node may claim it.
    pub push_due: Option<u64>,
}

impl NewMessage {
    /// Checks that a send with a known `client_msg_id` has the content of the original (R9). An
    /// erased original has none to compare.
    pub fn check_repeats(&self, original: &Message) -> Result<()> {
        let same = |own: &Option<Json>, stored: &Option<Json>| match (own, stored) {
            (Some(own), Some(stored)) => own.same_value(stored),
            (own, stored) => own.is_none() && stored.is_none(),
        };
        let other = if original.void {
            return Ok(());
        } else if self.body != original.body {
            "body"
        } else if !same(&self.attachment, &original.attachment) {
            "attachment"
        } else if !same(&self.meta, &original.meta) {
            "meta"
        } else {
            return Ok(());
        };
        Err(StoreError::ClientMsgIdConflict(format!(
            "client_msg_id {:?} names message {} of {}, which has another {other}; give a new message a new id",
            self.client_msg_id, original.seq, original.conversation_id
        )))
    }

    /// The message as it is stored.
    pub fn into_message(self, seq: Seq, message_id: MessageId, ts: u64) -> Message {
        Message {
            conversation_id: self.conversation_id,
            seq,
            message_id,
            client_msg_id: self.client_msg_id,
            from: self.from,
            body: self.body,
            ts,
            attachment: self.attachment,
            meta: self.meta,
            withheld: self.withheld,
            void: false,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Committed {
    /// The stored message; for a duplicate, the original.
    pub message: Arc<Message>,
    pub duplicate: bool,
    /// The sender's boundaries, if the read that this reply implies moved them.
    pub implied_read: Option<Advanced>,
}

/// How much one read may return: at least one message, if there is one.
#[derive(Debug, Clone, Copy)]
pub struct PageLimit {
    pub messages: usize,
    pub bytes: usize,
}

impl PageLimit {
    pub fn messages(messages: usize) -> Self {
        PageLimit { messages, bytes: limits::PAGE_MAX_BYTES }
    }
}

impl From<usize> for PageLimit {
    fn from(messages: usize) -> Self {
        PageLimit::messages(messages)
    }
}

#[async_trait]
pub trait Messages: Send + Sync {
    /// Commits sends in order. Returns when they are durable; nobody sees them before (R15).
    ///
    /// One send spans systems: the message under the next seq, its idempotency record (R9), both
    /// members' `conversations` rows and inbox places, the read that a reply implies (R10), and the
    /// pending row if the first lookup missed (R3). A `client_msg_id` seen within the idempotency
    /// window stores nothing and returns the original, or fails if its content differs
    /// ([`NewMessage::check_repeats`]). Each send succeeds or fails by itself.
    async fn commit_sends(&self, sends: Vec<NewMessage>) -> Vec<Result<Committed>>;

    /// Messages from a seq upwards, in order, voids and withheld included. A missing seq between
    /// two is a hole.
    async fn read_from(
        &self,
        conversation: &ConversationId,
        from: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Arc<Message>>>;

    /// The messages just before a seq, in order.
    async fn read_before(
        &self,
        conversation: &ConversationId,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Arc<Message>>>;

    /// The highest seq in use; 0 for a conversation without messages.
    async fn last_seq(&self, conversation: &ConversationId) -> Result<Seq>;

    /// Writes a void at a seq that holds nothing, so that a late writer fails and takes a new one
    /// (R8).
    async fn close_hole(&self, conversation: &ConversationId, seq: Seq) -> Result<()>;

    /// Finds a message by its id.
    async fn find(&self, message_id: MessageId) -> Result<Option<Arc<Message>>>;
}
