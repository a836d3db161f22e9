//! The commit of a send in single steps, like a backend whose systems share no transaction: a
//! counter that hands out seqs, and a table that accepts a message only under a free seq. The
//! simulator injects faults between the steps.

use std::sync::Arc;

use bluetick_protocol::{ConversationId, MessageId, Seq};

use super::{Memory, conversation::SentRecord};
use crate::{Advanced, Message, NewMessage, Result};

/// The outcome of [`Memory::put_message`].
#[derive(Debug, Clone)]
pub enum TablePut {
    Stored(Arc<Message>),
    /// The seq holds something else: the counter had fallen back, or a reader closed the hole (R8).
    SeqTaken,
    /// The same `client_msg_id` is stored already (R9).
    Duplicate(Arc<Message>),
}

impl Memory {
    /// The message that a send repeats, if it repeats one.
    pub fn original_of(&self, new: &NewMessage) -> Option<Arc<Message>> {
        self.read().original(new, self.clock.now_ms(), self.idempotency_window_ms)
    }

    /// The counter's next seq, whatever the messages hold.
    pub fn take_seq(&self, conversation: &ConversationId) -> Seq {
        let mut state = self.state.lock();
        let counter = &mut state.conversation_mut(conversation).counter;
        *counter += 1;
        *counter
    }

    /// Raises the counter to at least this.
    pub fn raise_counter(&self, conversation: &ConversationId, to: Seq) {
        let mut state = self.state.lock();
        let counter = &mut state.conversation_mut(conversation).counter;
        *counter = to.max(*counter);
    }

    /// Puts a message and its idempotency record, if neither its seq nor its `client_msg_id` is
    /// taken.
    pub fn put_message(
        &self,
        new: &NewMessage,
        seq: Seq,
        message_id: MessageId,
        ts: u64,
    ) -> Result<TablePut> {
        let mut state = self.write()?;
        if let Some(original) = state.original(new, ts, self.idempotency_window_ms) {
            return Ok(TablePut::Duplicate(original));
        }
        let conversation = state.conversation_mut(&new.conversation_id);
        if conversation.messages.contains_key(&seq) {
            return Ok(TablePut::SeqTaken);
        }
        let message = Arc::new(new.clone().into_message(seq, message_id, ts));
        conversation.messages.insert(seq, message.clone());
        let record = SentRecord { seq, at_ms: ts };
        conversation.sent.insert((new.from.index(), new.client_msg_id.clone()), record);
        Ok(TablePut::Stored(message))
    }

    /// The read that a reply implies (R10), if it moves a boundary. It never covers the reply
    /// itself.
    pub fn imply_read_before(&self, new: &NewMessage, reply: Seq) -> Option<Advanced> {
        self.state.lock().imply_read_before(new, reply, self.clock.now_ms())
    }
}
