//! Sends, and reads by position.

use std::{ops::RangeInclusive, sync::Arc};

use async_trait::async_trait;
use bluetick_protocol::{ClientMsgId, ConversationId, MessageId, Seq, Side};

use super::{
    Memory, MemoryTables,
    conversation::{SentRecord, page},
    rows::status_row,
};
use crate::{Advanced, Committed, Message, Messages, NewMessage, OwedPush, PageLimit, Result, StoreError};

/// The `client_msg_id` of a void that closed a hole.
const HOLE_CLIENT_MSG_ID: &str = "void";

#[async_trait]
impl Messages for Memory {
    async fn commit_sends(&self, sends: Vec<NewMessage>) -> Vec<Result<Committed>> {
        let now_ms = self.clock.now_ms();
        sends.into_iter().map(|new| self.write()?.commit(new, now_ms, self.idempotency_window_ms)).collect()
    }

    async fn read_from(
        &self,
        conversation: &ConversationId,
        from: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Arc<Message>>> {
        let state = self.read();
        let found = state.conversations.get(conversation);
        Ok(found.map(|c| page(c.hot(from..), limit)).unwrap_or_default())
    }

    async fn read_before(
        &self,
        conversation: &ConversationId,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Arc<Message>>> {
        let state = self.read();
        let found = state.conversations.get(conversation);
        let backwards = found.map(|c| page(c.hot(..before).rev(), limit));
        let mut messages = backwards.unwrap_or_default();
        messages.reverse();
        Ok(messages)
    }

    async fn last_seq(&self, conversation: &ConversationId) -> Result<Seq> {
        Ok(self.read().last_seq(conversation))
    }

    async fn close_hole(&self, conversation: &ConversationId, seq: Seq) -> Result<()> {
        let void = ClientMsgId::new(HOLE_CLIENT_MSG_ID).map_err(|e| StoreError::Corrupt(e.to_string()))?;
        let now_ms = self.clock.now_ms();
        self.write()?.close_hole(conversation, seq, void, now_ms);
        Ok(())
    }

    async fn find(&self, message_id: MessageId) -> Result<Option<Arc<Message>>> {
        let state = self.read();
        let mut all = state.conversations.values().flat_map(|c| c.messages.values());
        Ok(all.find(|m| m.message_id == message_id).cloned())
    }
}

impl MemoryTables {
    fn commit(&mut self, new: NewMessage, now_ms: u64, window_ms: u64) -> Result<Committed> {
        if let Some(original) = self.original(&new, now_ms, window_ms) {
            new.check_repeats(&original)?;
            let acked = self.boundaries(&original.receiver(), &new.conversation_id).last_delivered_seq;
            if acked < original.seq {
                self.note_if_undelivered(&new, &original);
            }
            return Ok(Committed { message: original, duplicate: true, implied_read: None });
        }
        // Before the message is inserted: a reply implies a read of what came before it, never of
        // itself.
        let implied_read = self.imply_read(&new, now_ms);
        let message = self.append(&new, now_ms);
        self.note_if_undelivered(&new, &message);
        Ok(Committed { message, duplicate: false, implied_read })
    }

    pub(super) fn original(&self, new: &NewMessage, now_ms: u64, window_ms: u64) -> Option<Arc<Message>> {
        let conversation = self.conversations.get(&new.conversation_id)?;
        conversation.original(new.from, &new.client_msg_id, now_ms, window_ms).cloned()
    }

    /// A retry runs this too: the first attempt may have failed before its delivery steps (R9).
    fn note_if_undelivered(&mut self, new: &NewMessage, stored: &Message) {
        if new.undelivered && !stored.withheld {
            self.note(&stored.receiver(), &stored.conversation_id, stored.seq);
            let notified = self.notified_of(&stored.receiver(), &stored.conversation_id);
            if let Some(due_at) = new.push_due.filter(|_| notified < stored.seq) {
                self.owe(OwedPush::of_message(stored, due_at));
            }
        }
    }

    /// A reply implies read up to what the sender's client had seen, or else what was delivered to
    /// them (R10).
    fn imply_read(&mut self, new: &NewMessage, now_ms: u64) -> Option<Advanced> {
        let next = self.last_seq(&new.conversation_id) + 1;
        self.imply_read_before(new, next, now_ms)
    }

    /// The same for a reply that may be stored already: it never covers itself.
    pub(super) fn imply_read_before(
        &mut self,
        new: &NewMessage,
        reply: Seq,
        now_ms: u64,
    ) -> Option<Advanced> {
        let sender = new.conversation_id.member(new.from);
        let before = self.boundaries(&sender, &new.conversation_id);
        let seen = new.seen_seq.unwrap_or(before.last_delivered_seq).min(reply.saturating_sub(1));
        let (after, moved) = self.raise(&sender, &new.conversation_id, 0, seen);
        if moved {
            let passed = before.last_delivered_seq + 1..=after.last_delivered_seq;
            self.close_holes(&new.conversation_id, passed, now_ms);
        }
        moved.then(|| Advanced {
            row: status_row(&sender, &new.conversation_id, &after),
            read_before: before.last_read_seq,
            moved,
        })
    }

    fn append(&mut self, new: &NewMessage, now_ms: u64) -> Arc<Message> {
        let message_id = self.mint(now_ms);
        let conversation = self.conversation_mut(&new.conversation_id);
        let seq = conversation.next_seq();
        let message = Arc::new(new.clone().into_message(seq, message_id, now_ms));
        conversation.messages.insert(seq, message.clone());
        let record = SentRecord { seq, at_ms: now_ms };
        conversation.sent.insert((new.from.index(), new.client_msg_id.clone()), record);
        message
    }

    /// Closes the holes below a boundary: nothing may appear below an acked seq (R8).
    pub(super) fn close_holes(&mut self, id: &ConversationId, passed: RangeInclusive<Seq>, now_ms: u64) {
        let Some(conversation) = self.conversations.get(id) else { return };
        let holes: Vec<Seq> = passed.filter(|seq| !conversation.messages.contains_key(seq)).collect();
        for seq in holes {
            if let Ok(void) = ClientMsgId::new(HOLE_CLIENT_MSG_ID) {
                self.close_hole(id, seq, void, now_ms);
            }
        }
    }

    /// Only a seq that was handed out can be a hole.
    fn close_hole(&mut self, id: &ConversationId, seq: Seq, client_msg_id: ClientMsgId, now_ms: u64) {
        let Some(conversation) = self.conversations.get(id) else {
            return;
        };
        let handed_out = 1..=conversation.counter.max(conversation.last_seq());
        if !handed_out.contains(&seq) || conversation.messages.contains_key(&seq) {
            return;
        }
        let void = Message {
            conversation_id: id.clone(),
            seq,
            message_id: self.mint(now_ms),
            client_msg_id,
            from: Side::Low,
            body: String::new(),
            ts: now_ms,
            attachment: None,
            meta: None,
            withheld: false,
            void: true,
        };
        let conversation = self.conversation_mut(id);
        conversation.messages.insert(seq, Arc::new(void));
        conversation.closed_holes.insert(seq);
    }
}
