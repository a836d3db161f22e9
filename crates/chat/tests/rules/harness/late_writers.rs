//! Writers that are late (R8): such a writer takes its seq from the counter and writes under it
//! only when the test lets it, and only if the seq still holds nothing. Its messages lie over those
//! of the store in memory, which itself never has a hole.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, MessageId, Seq};
use bluetick_store::{
    Clock, Committed, Memory, Message, Messages, NewMessage, PageLimit, Result, Store,
    testing::faults::StoreMethod,
};
use parking_lot::Mutex;

use super::steps::{PlannedFaults, When};

/// The node in the ids of late messages, so that they differ from those of the store in memory.
const LATE_NODE: u16 = 7;

pub struct LateWriters {
    store: Store,
    memory: Arc<Memory>,
    clock: Arc<dyn Clock>,
    steps: Arc<PlannedFaults>,
    client_msg_ids: Mutex<BTreeSet<String>>,
    written: Mutex<BTreeMap<(ConversationId, Seq), Arc<Message>>>,
}

impl LateWriters {
    pub fn new(
        store: Store,
        memory: Arc<Memory>,
        clock: Arc<dyn Clock>,
        steps: Arc<PlannedFaults>,
    ) -> LateWriters {
        let (client_msg_ids, written) = Default::default();
        LateWriters { store, memory, clock, steps, client_msg_ids, written }
    }

    /// The commit of this message takes its seq and stops at [`StoreMethod::SeqTaken`] before it
    /// writes.
    pub fn write_late(&self, client_msg_id: &str) {
        self.client_msg_ids.lock().insert(client_msg_id.to_owned());
    }

    /// Writes under the condition that the seq holds nothing; if it does, takes a new one.
    async fn commit_late(&self, new: NewMessage) -> Result<Committed> {
        let id = new.conversation_id.clone();
        let seq = self.memory.leak_seq(&id);
        self.steps.reach(StoreMethod::SeqTaken, When::After, new.client_msg_id.as_str()).await?;
        let there = self.store.messages.read_from(&id, seq, PageLimit::messages(1)).await?;
        if there.first().is_some_and(|m| m.seq == seq) {
            return self.store.messages.commit_sends(vec![new]).await.remove(0);
        }
        let undelivered = new.undelivered;
        let ts = self.clock.now_ms();
        let message_id = MessageId::mint(MessageId::default(), ts, LATE_NODE);
        let message = Arc::new(new.into_message(seq, message_id, ts));
        self.written.lock().insert((id.clone(), seq), message.clone());
        if undelivered {
            self.store.pending.note_undelivered(&message.receiver(), &id, seq).await?;
        }
        Ok(Committed { message, duplicate: false, implied_read: None })
    }

    fn with_late(
        &self,
        id: &ConversationId,
        mut messages: Vec<Arc<Message>>,
        from: Seq,
    ) -> Vec<Arc<Message>> {
        let written = self.written.lock();
        messages.extend(written.range((id.clone(), from)..=(id.clone(), Seq::MAX)).map(|(_, m)| m.clone()));
        messages.sort_by_key(|m| m.seq);
        messages
    }
}

#[async_trait]
impl Messages for LateWriters {
    async fn commit_sends(&self, mut sends: Vec<NewMessage>) -> Vec<Result<Committed>> {
        let is_late =
            sends.first().is_some_and(|s| self.client_msg_ids.lock().remove(s.client_msg_id.as_str()));
        match is_late {
            true => vec![self.commit_late(sends.remove(0)).await],
            false => self.store.messages.commit_sends(sends).await,
        }
    }

    async fn read_from(&self, id: &ConversationId, from: Seq, limit: PageLimit) -> Result<Vec<Arc<Message>>> {
        Ok(self.with_late(id, self.store.messages.read_from(id, from, limit).await?, from))
    }

    async fn read_before(
        &self,
        id: &ConversationId,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Arc<Message>>> {
        self.store.messages.read_before(id, before, limit).await
    }

    async fn last_seq(&self, id: &ConversationId) -> Result<Seq> {
        let last = self.store.messages.last_seq(id).await?;
        Ok(self.with_late(id, Vec::new(), last).last().map_or(last, |m| m.seq))
    }

    async fn close_hole(&self, id: &ConversationId, seq: Seq) -> Result<()> {
        let is_filled = self.written.lock().contains_key(&(id.clone(), seq));
        match is_filled {
            true => Ok(()),
            false => self.store.messages.close_hole(id, seq).await,
        }
    }

    async fn find(&self, message_id: MessageId) -> Result<Option<Arc<Message>>> {
        self.store.messages.find(message_id).await
    }
}
