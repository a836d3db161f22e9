//! The store of one app server: every step is a call over a network that fails (`policy.rs`).
//!
//! The tables are those of the store in memory. A send is committed in the steps of a backend
//! without a transaction over all systems: look for a duplicate, take a seq, put the message under
//! it, store the read that it implies, score both inboxes, write the pending row. The process may
//! crash between any two.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, MessageId, Seq, Side, UserId};
use bluetick_store::{
    ActiveConversation, Advanced, Clock, ColdConfig, ColdObjects, ColdTier, Committed, ConversationRow,
    Conversations, InboxPosition, Memory, MemorySessions, Message, MessageStatus, Messages, NewMessage,
    Objects, OwedPush, PageLimit, PendingDeliveries as _, PushOutbox as _, Result, SessionStore, StatusRow,
    Store, StoreError, TablePut, Undelivered, testing::faults::Faulty,
};
use futures_util::future::join_all;
use parking_lot::Mutex;

use crate::{
    policy::{SeededFaults, now},
    process::Process,
    setup::Setup,
    sim::Sim,
};

/// Seqs that one commit tries before it fails.
const SEQS_TRIED_MAX: usize = 100;

/// What the store in memory derives and a real backend stores: when a conversation was last scored
/// in an inbox, and up to which message its row was written.
#[derive(Default)]
pub struct Inboxes(Mutex<BTreeMap<(UserId, ConversationId), InboxPlace>>);

#[derive(Clone, Copy, Default)]
struct InboxPlace {
    ms: u64,
    seq: Seq,
}

impl Inboxes {
    fn score(&self, user: &UserId, id: &ConversationId, ms: u64, seq: Seq) {
        let mut places = self.0.lock();
        let place = places.entry((user.clone(), id.clone())).or_default();
        *place = InboxPlace { ms: ms.max(place.ms), seq: seq.max(place.seq) };
    }

    fn of(&self, user: &UserId, id: &ConversationId) -> Option<InboxPlace> {
        self.0.lock().get(&(user.clone(), id.clone())).copied()
    }
}

pub struct AppStore {
    faults: SeededFaults,
    /// The tables, for a call that is one step.
    tables: Arc<Faulty<Memory, SeededFaults>>,
    memory: Arc<Memory>,
    inboxes: Arc<Inboxes>,
    clock: Arc<dyn Clock>,
    /// In the ids that this app server mints.
    node: u16,
    last_id: Mutex<MessageId>,
    /// Whether a repeated send scores the inboxes again, because its first run may have failed
    /// before it did. Where nothing fails, the order must stay.
    repeats_are_activity: bool,
}

impl AppStore {
    pub fn into_store(self, sessions: Arc<dyn SessionStore>) -> Store {
        let memory = self.memory.clone();
        let store = Arc::new(self);
        let objects = Arc::new(ColdObjects::new(Objects::memory(), ColdConfig::default()));
        let cold = Arc::new(ColdTier::new(store.clone(), memory.clone(), Some(objects)));
        Store {
            messages: cold.clone(),
            cold,
            attachments: memory.clone(),
            pending: store.tables.clone(),
            status: store.clone(),
            conversations: store,
            users: memory.clone(),
            devices: memory.clone(),
            push_outbox: memory.clone(),
            sessions,
            maintenance: memory,
        }
    }

    async fn step<T: Send + Debug + 'static>(
        &self,
        what: impl FnOnce() -> String,
        op: impl FnOnce(&Memory) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let memory = self.memory.clone();
        self.faults.sim.step(&self.faults.process, what, move || op(&memory)).await
    }

    fn mint(&self) -> MessageId {
        let mut last = self.last_id.lock();
        *last = MessageId::mint(*last, self.clock.now_ms(), self.node);
        *last
    }

    async fn commit_lane(&self, lane: Vec<(usize, NewMessage)>) -> Vec<(usize, Result<Committed>)> {
        let mut committed = Vec::with_capacity(lane.len());
        for (place, new) in lane {
            committed.push((place, self.commit(new).await));
        }
        committed
    }

    async fn commit(&self, new: NewMessage) -> Result<Committed> {
        let id = new.conversation_id.clone();
        let looked_for = new.clone();
        let original = self.step(
            || format!("look for {} in {id}", new.client_msg_id),
            move |m| Ok(m.original_of(&looked_for)),
        );
        let (message, duplicate) = match original.await? {
            Some(original) => (original, true),
            None => self.put(&new).await?,
        };
        if duplicate {
            new.check_repeats(&message)?;
        }
        let mut implied_read = None;
        if !duplicate {
            let reply = new.clone();
            let seq = message.seq;
            let implied = move |m: &Memory| Ok(m.imply_read_before(&reply, seq));
            implied_read = self.step(|| format!("imply a read of {id} before {seq}"), implied).await?;
        }
        if !duplicate || self.repeats_are_activity {
            self.score(&message).await?;
        }
        let receiver = message.receiver();
        if new.undelivered
            && !message.withheld
            && !(duplicate && self.tables.status(&receiver, &id).await?.last_delivered_seq >= message.seq)
        {
            self.tables.note_undelivered(&receiver, &id, message.seq).await?;
            if let Some(due_at) = new.push_due
                && self.tables.notified(&receiver, &id).await?.1 < message.seq
            {
                let owed = OwedPush::of_message(&message, due_at);
                self.step(|| format!("{receiver} is owed a notification of {id}"), |m| now(m.owe(owed)))
                    .await?;
            }
        }
        Ok(Committed { message, duplicate, implied_read })
    }

    /// Puts the message under the next seq that is free (R8).
    async fn put(&self, new: &NewMessage) -> Result<(Arc<Message>, bool)> {
        let id = &new.conversation_id;
        for _ in 0..SEQS_TRIED_MAX {
            let of = id.clone();
            let seq = self.step(|| format!("take a seq of {id}"), move |m| Ok(m.take_seq(&of))).await?;
            // Minted right before each write: an id must not be old when it becomes visible (R6).
            let (put, message_id, ts) = (new.clone(), self.mint(), self.clock.now_ms());
            let sim = self.faults.sim.clone();
            let put = self.step(
                || format!("put {} as {id} {seq}", new.client_msg_id),
                move |m| {
                    let put = m.put_message(&put, seq, message_id, ts)?;
                    if let TablePut::Stored(message) = &put {
                        sim.history.lock().stored(message, sim.now_ms());
                    }
                    Ok(put)
                },
            );
            match put.await? {
                TablePut::Stored(message) => return Ok((message, false)),
                TablePut::Duplicate(original) => return Ok((original, true)),
                TablePut::SeqTaken => {
                    let of = id.clone();
                    let raise = move |m: &Memory| {
                        let last = now(m.last_seq(&of))?;
                        m.raise_counter(&of, last);
                        Ok(last)
                    };
                    self.step(|| format!("raise the counter of {id}"), raise).await?;
                }
            }
        }
        Err(StoreError::unavailable("a free seq"))
    }

    /// Scores the conversation in both inboxes with the current time: a late run of the delivery
    /// counts as activity (R6).
    async fn score(&self, message: &Message) -> Result<()> {
        for side in Side::BOTH {
            if message.withheld && side != message.from {
                continue;
            }
            let (user, id) = (message.conversation_id.member(side), message.conversation_id.clone());
            let (inboxes, ms, seq) = (self.inboxes.clone(), self.clock.now_ms(), message.seq);
            let what = || format!("score {id} in the inbox of {user}");
            let (user, id) = (user.clone(), id.clone());
            let score = move |_: &Memory| {
                inboxes.score(&user, &id, ms, seq);
                Ok(())
            };
            self.step(what, score).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Messages for AppStore {
    async fn commit_sends(&self, sends: Vec<NewMessage>) -> Vec<Result<Committed>> {
        // In order within a conversation, conversations concurrently.
        let mut lanes: BTreeMap<ConversationId, Vec<(usize, NewMessage)>> = BTreeMap::new();
        for (place, new) in sends.into_iter().enumerate() {
            lanes.entry(new.conversation_id.clone()).or_default().push((place, new));
        }
        let commit = lanes.into_values().map(|lane| self.commit_lane(lane));
        let mut committed: Vec<_> = join_all(commit).await.into_iter().flatten().collect();
        committed.sort_by_key(|(place, _)| *place);
        committed.into_iter().map(|(_, committed)| committed).collect()
    }

    async fn read_from(&self, id: &ConversationId, from: Seq, limit: PageLimit) -> Result<Vec<Arc<Message>>> {
        self.tables.read_from(id, from, limit).await
    }

    async fn read_before(
        &self,
        id: &ConversationId,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Arc<Message>>> {
        self.tables.read_before(id, before, limit).await
    }

    async fn last_seq(&self, id: &ConversationId) -> Result<Seq> {
        self.tables.last_seq(id).await
    }

    async fn close_hole(&self, id: &ConversationId, seq: Seq) -> Result<()> {
        self.tables.close_hole(id, seq).await
    }

    async fn find(&self, message_id: MessageId) -> Result<Option<Arc<Message>>> {
        self.memory.find(message_id).await
    }
}

#[async_trait]
impl MessageStatus for AppStore {
    async fn advance(
        &self,
        user: &UserId,
        id: &ConversationId,
        delivered: Seq,
        read: Seq,
    ) -> Result<Advanced> {
        self.tables.advance(user, id, delivered, read).await
    }

    async fn status(&self, user: &UserId, id: &ConversationId) -> Result<StatusRow> {
        self.tables.status(user, id).await
    }

    /// Answers in half of the conversations only, because some backends cannot answer.
    async fn has_acked_all(&self, user: &UserId, id: &ConversationId) -> Result<bool> {
        match id.as_str().bytes().fold(0, |odd, byte| odd ^ (byte & 1)) {
            0 => Ok(false),
            _ => self.tables.has_acked_all(user, id).await,
        }
    }

    async fn notified(&self, user: &UserId, id: &ConversationId) -> Result<(StatusRow, Seq)> {
        self.tables.notified(user, id).await
    }

    async fn raise_notified(&self, user: &UserId, id: &ConversationId, seq: Seq) -> Result<()> {
        self.tables.raise_notified(user, id, seq).await
    }

    async fn statuses_of(&self, user: &UserId) -> Result<Vec<StatusRow>> {
        self.tables.statuses_of(user).await
    }
}

#[async_trait]
impl Conversations for AppStore {
    async fn conversation(&self, user: &UserId, id: &ConversationId) -> Result<Option<ConversationRow>> {
        self.memory.conversation(user, id).await
    }

    async fn conversations_of(&self, user: &UserId) -> Result<Vec<ConversationRow>> {
        self.memory.conversations_of(user).await
    }

    async fn inbox(
        &self,
        user: &UserId,
        after: Option<&InboxPosition>,
        limit: usize,
    ) -> Result<(Vec<ConversationRow>, bool)> {
        self.memory.inbox(user, after, limit).await
    }

    /// By the inboxes' scores: a stored message whose conversation is not scored yet is not active.
    async fn active_since(
        &self,
        user: &UserId,
        since_ms: u64,
        limit: usize,
    ) -> Result<Vec<ActiveConversation>> {
        let (of, inboxes) = (user.clone(), self.inboxes.clone());
        let active = move |m: &Memory| {
            let mut all = now(m.active_since(&of, 0, usize::MAX))?;
            let score = |c: &ActiveConversation| inboxes.of(&of, &c.conversation_id).map(|place| place.ms);
            all.retain(|c| score(c).is_some_and(|ms| ms >= since_ms));
            all.sort_by_key(|c| std::cmp::Reverse(score(c)));
            all.truncate(limit);
            Ok(all)
        };
        self.step(|| format!("conversations of {user} since {since_ms}"), active).await
    }

    /// By the rows: a stored message that is not in its row yet is not found.
    async fn undelivered(
        &self,
        user: &UserId,
        after: Option<&ConversationId>,
        limit: usize,
    ) -> Result<Undelivered> {
        let (of, after, inboxes) = (user.clone(), after.cloned(), self.inboxes.clone());
        let undelivered = move |m: &Memory| {
            let mut page = now(m.undelivered(&of, after.as_ref(), limit))?;
            page.conversations.retain(|id| {
                let Some((place, side)) = inboxes.of(&of, id).zip(id.side_of(&of)) else { return false };
                let acked = now(m.status(&of, id)).map_or(0, |status| status.last_delivered_seq);
                let all = PageLimit { messages: usize::MAX, bytes: usize::MAX };
                let behind = now(m.read_from(id, acked + 1, all)).unwrap_or_default();
                behind.iter().any(|message| {
                    message.seq <= place.seq && message.from != side && message.visible_to(side)
                })
            });
            Ok(page)
        };
        self.step(|| format!("what no device of {user} has acked"), undelivered).await
    }

    async fn total_unread(&self, user: &UserId) -> Result<u64> {
        self.memory.total_unread(user).await
    }

    async fn recount(&self, user: &UserId, id: &ConversationId) -> Result<(u64, u64)> {
        self.memory.recount(user, id).await
    }
}

impl AppStore {
    pub fn of_app(
        faults: SeededFaults,
        inboxes: &Arc<Inboxes>,
        clock: Arc<dyn Clock>,
        node: u16,
    ) -> AppStore {
        let memory = faults.memory.clone();
        AppStore {
            tables: Arc::new(Faulty::new(memory.clone(), Arc::new(faults.clone()))),
            faults,
            memory,
            inboxes: inboxes.clone(),
            clock,
            node,
            last_id: Mutex::default(),
            repeats_are_activity: true,
        }
    }
}

/// The store of one app server on which nothing fails, for the conformance suite.
pub fn stepwise(clock: Arc<dyn Clock>) -> Store {
    let sessions = Arc::new(MemorySessions::new(clock.clone()));
    let faults = SeededFaults {
        sim: Sim::new(Setup::without_faults(), false),
        process: Process::new("app".into(), 0.0),
        memory: Arc::new(Memory::new(clock.clone())),
        sessions: sessions.clone(),
        reliable: false,
    };
    let store = AppStore::of_app(faults, &Arc::default(), clock, 1);
    AppStore { repeats_are_activity: false, ..store }.into_store(sessions)
}
