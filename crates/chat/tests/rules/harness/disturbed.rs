//! The store in memory behind the [`Steps`]: every call that the rules depend on passes them.
//!
//! It also gives a message a late writer (R8): one that took its seq from the counter and writes it only when the
//! test lets it, under the condition that the seq holds nothing. What such a writer wrote lies over the messages
//! of the store in memory, which itself never has a hole.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, MessageId, Seq, SessionId, UserId};
use bluetick_store::{
    Advanced, Clock, Committed, Memory, Message, MessageStatus, Messages, NewMessage, Noted, PageLimit,
    PendingDeliveries, PendingRow, Result, SessionEntry, SessionStore, StatusRow, Store,
};
use parking_lot::Mutex;

use super::steps::{Step, Steps, When};

/// The node in the ids of late messages, so that they differ from those of the store in memory.
const LATE_NODE: u16 = 7;

pub struct Disturbed {
    inner: Store,
    memory: Arc<Memory>,
    clock: Arc<dyn Clock>,
    steps: Arc<Steps>,
    late_writers: Mutex<BTreeSet<String>>,
    late: Mutex<BTreeMap<(ConversationId, Seq), Arc<Message>>>,
}

impl Disturbed {
    pub fn new(memory: Arc<Memory>, clock: Arc<dyn Clock>, steps: Arc<Steps>) -> Disturbed {
        Disturbed {
            inner: Store::from_memory(memory.clone(), clock.clone()),
            memory,
            clock,
            steps,
            late_writers: Mutex::default(),
            late: Mutex::default(),
        }
    }

    /// A store whose calls pass the steps.
    pub fn store(self: &Arc<Self>) -> Store {
        Store {
            messages: self.clone(),
            pending: self.clone(),
            status: self.clone(),
            sessions: self.clone(),
            ..self.inner.clone()
        }
    }

    /// The commit of this message takes its seq and stops at [`Step::SeqTaken`] before it writes.
    pub fn write_late(&self, client_msg_id: &str) {
        self.late_writers.lock().insert(client_msg_id.to_owned());
    }

    async fn step<T>(&self, step: Step, of: &str, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.steps.reach(step, When::Before, of).await?;
        let answer = call.await;
        self.steps.reach(step, When::After, of).await?;
        answer
    }

    /// Writes under the condition that the seq holds nothing; if it does, takes a new one.
    async fn commit_late(&self, new: NewMessage) -> Result<Committed> {
        let id = new.conversation_id.clone();
        let seq = self.memory.leak_seq(&id);
        self.steps.reach(Step::SeqTaken, When::After, new.client_msg_id.as_str()).await?;
        let there = self.inner.messages.read_from(&id, seq, PageLimit::messages(1)).await?;
        if there.first().is_some_and(|m| m.seq == seq) {
            return self.inner.messages.commit_sends(vec![new]).await.remove(0);
        }
        let ts = self.clock.now_ms();
        let message = Arc::new(Message {
            conversation_id: id.clone(),
            seq,
            message_id: MessageId::mint(MessageId::default(), ts, LATE_NODE),
            client_msg_id: new.client_msg_id,
            from: new.from,
            body: new.body,
            ts,
            attachment: None,
            meta: None,
            withheld: false,
            void: false,
        });
        self.late.lock().insert((id.clone(), seq), message.clone());
        if new.undelivered {
            self.inner.pending.note_undelivered(&message.receiver(), &id, seq).await?;
        }
        Ok(Committed { message, duplicate: false, implied_read: None })
    }

    fn with_late(
        &self,
        id: &ConversationId,
        mut messages: Vec<Arc<Message>>,
        from: Seq,
    ) -> Vec<Arc<Message>> {
        let late = self.late.lock();
        messages.extend(late.range((id.clone(), from)..=(id.clone(), Seq::MAX)).map(|(_, m)| m.clone()));
        messages.sort_by_key(|m| m.seq);
        messages
    }
}

#[async_trait]
impl Messages for Disturbed {
    async fn commit_sends(&self, sends: Vec<NewMessage>) -> Vec<Result<Committed>> {
        let count = sends.len();
        let first = sends.first().map(|s| s.client_msg_id.to_string()).unwrap_or_default();
        let late = self.late_writers.lock().remove(&first);
        let committed = self.step(Step::CommitSends, &first, async {
            Ok(match late {
                true => vec![self.commit_late(sends.into_iter().next().unwrap()).await],
                false => self.inner.messages.commit_sends(sends).await,
            })
        });
        committed.await.unwrap_or_else(|e| (0..count).map(|_| Err(e.clone())).collect())
    }

    async fn read_from(&self, id: &ConversationId, from: Seq, limit: PageLimit) -> Result<Vec<Arc<Message>>> {
        let read = self.inner.messages.read_from(id, from, limit);
        let found = self.step(Step::ReadFrom, id.as_str(), read).await?;
        Ok(self.with_late(id, found, from))
    }

    async fn read_before(
        &self,
        id: &ConversationId,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Arc<Message>>> {
        self.inner.messages.read_before(id, before, limit).await
    }

    async fn last_seq(&self, id: &ConversationId) -> Result<Seq> {
        let last = self.step(Step::LastSeq, id.as_str(), self.inner.messages.last_seq(id)).await?;
        Ok(self.with_late(id, Vec::new(), last).last().map_or(last, |m| m.seq))
    }

    async fn close_hole(&self, id: &ConversationId, seq: Seq) -> Result<()> {
        let filled = self.late.lock().contains_key(&(id.clone(), seq));
        match filled {
            true => Ok(()),
            false => self.inner.messages.close_hole(id, seq).await,
        }
    }

    async fn find(&self, message_id: MessageId) -> Result<Option<Arc<Message>>> {
        self.inner.messages.find(message_id).await
    }
}

#[async_trait]
impl PendingDeliveries for Disturbed {
    async fn note_undelivered(&self, receiver: &UserId, id: &ConversationId, seq: Seq) -> Result<Noted> {
        self.step(Step::Note, receiver.as_str(), self.inner.pending.note_undelivered(receiver, id, seq)).await
    }

    async fn pending_of(&self, receiver: &UserId) -> Result<Vec<PendingRow>> {
        self.step(Step::PendingOf, receiver.as_str(), self.inner.pending.pending_of(receiver)).await
    }

    async fn pending_row(&self, receiver: &UserId, id: &ConversationId) -> Result<Option<Seq>> {
        self.step(Step::PendingRow, receiver.as_str(), self.inner.pending.pending_row(receiver, id)).await
    }

    async fn settle(
        &self,
        receiver: &UserId,
        id: &ConversationId,
        expected: Seq,
        to: Option<Seq>,
    ) -> Result<bool> {
        let settle = self.inner.pending.settle(receiver, id, expected, to);
        self.step(Step::Settle, receiver.as_str(), settle).await
    }
}

#[async_trait]
impl MessageStatus for Disturbed {
    async fn advance(
        &self,
        user: &UserId,
        id: &ConversationId,
        delivered: Seq,
        read: Seq,
    ) -> Result<Advanced> {
        self.step(Step::Advance, user.as_str(), self.inner.status.advance(user, id, delivered, read)).await
    }

    async fn status(&self, user: &UserId, id: &ConversationId) -> Result<StatusRow> {
        self.inner.status.status(user, id).await
    }

    async fn has_acked_all(&self, user: &UserId, id: &ConversationId) -> Result<bool> {
        self.inner.status.has_acked_all(user, id).await
    }

    async fn notified(&self, user: &UserId, id: &ConversationId) -> Result<(StatusRow, Seq)> {
        self.inner.status.notified(user, id).await
    }

    async fn raise_notified(&self, user: &UserId, id: &ConversationId, seq: Seq) -> Result<()> {
        self.step(Step::RaiseNotified, user.as_str(), self.inner.status.raise_notified(user, id, seq)).await
    }

    async fn statuses_of(&self, user: &UserId) -> Result<Vec<StatusRow>> {
        self.inner.status.statuses_of(user).await
    }
}

#[async_trait]
impl SessionStore for Disturbed {
    async fn register(&self, entry: &SessionEntry, ttl: Duration, max: usize) -> Result<Vec<SessionEntry>> {
        self.step(Step::Register, entry.user_id.as_str(), self.inner.sessions.register(entry, ttl, max)).await
    }

    async fn refresh(&self, sessions: &[(UserId, SessionId)], ttl: Duration) -> Result<Vec<bool>> {
        let first = sessions.first().map_or("", |(user, _)| user.as_str());
        self.step(Step::Refresh, first, self.inner.sessions.refresh(sessions, ttl)).await
    }

    async fn unregister(&self, user: &UserId, session: SessionId) -> Result<bool> {
        self.step(Step::Unregister, user.as_str(), self.inner.sessions.unregister(user, session)).await
    }

    async fn lookup(&self, user: &UserId) -> Result<Vec<SessionEntry>> {
        self.step(Step::Lookup, user.as_str(), self.inner.sessions.lookup(user)).await
    }

    async fn last_seen(&self, user: &UserId) -> Result<Option<u64>> {
        self.inner.sessions.last_seen(user).await
    }

    async fn set_last_seen(&self, user: &UserId, ms: u64) -> Result<()> {
        self.inner.sessions.set_last_seen(user, ms).await
    }

    async fn watch(&self, watcher: &SessionEntry, users: &[UserId], ttl: Duration) -> Result<()> {
        self.inner.sessions.watch(watcher, users, ttl).await
    }

    async fn watchers(&self, user: &UserId) -> Result<Vec<SessionEntry>> {
        self.inner.sessions.watchers(user).await
    }

    async fn flush(&self) -> Result<()> {
        self.inner.sessions.flush().await
    }
}
