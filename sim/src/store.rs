//! The systems that hold data, as one app server reaches them: every step by itself, over a network that fails.
//!
//! The tables are those of the store in memory. A send is committed in the steps of a backend without a transaction
//! over all systems: find a repetition, take a seq of the counter, put the message under it, note the read it implies,
//! score both inboxes, note the pending row. The process may crash between any two.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, MessageId, Seq, Side, UserId};
use bluetick_store::{
    ActiveConversation, Advanced, Clock, ColdConfig, ColdObjects, ColdTier, Committed, ConversationRow,
    Conversations, InboxPosition, Memory, Message, MessageStatus, Messages, NewMessage, Noted, Objects,
    OwedPush, PageLimit, PendingDeliveries, PendingRow, PushOutbox as _, Put, Result, SessionStore,
    StatusRow, Store, StoreError, Undelivered,
};
use futures_util::{FutureExt, future::join_all};
use parking_lot::Mutex;

use crate::{
    process::Process,
    setup::Setup,
    sim::{Sim, SkewedClock},
};

/// Seqs that one commit tries before it gives up.
const SEQS_TRIED_MAX: usize = 100;

/// What the store in memory keeps nowhere, because it derives it: when a conversation was last put into an inbox, and up
/// to which message its row was written.
#[derive(Default)]
pub struct Inboxes(Mutex<BTreeMap<(UserId, ConversationId), Place>>);

#[derive(Clone, Copy, Default)]
struct Place {
    ms: u64,
    seq: Seq,
}

impl Inboxes {
    fn score(&self, user: &UserId, id: &ConversationId, ms: u64, seq: Seq) {
        let mut places = self.0.lock();
        let place = places.entry((user.clone(), id.clone())).or_default();
        *place = Place { ms: ms.max(place.ms), seq: seq.max(place.seq) };
    }

    fn of(&self, user: &UserId, id: &ConversationId) -> Option<Place> {
        self.0.lock().get(&(user.clone(), id.clone())).copied()
    }
}

pub struct AppStore {
    pub sim: Arc<Sim>,
    pub process: Arc<Process>,
    pub memory: Arc<Memory>,
    pub inboxes: Arc<Inboxes>,
    pub clock: Arc<dyn Clock>,
    /// In the ids that this app server mints.
    pub node: u16,
    pub last_id: Mutex<MessageId>,
    /// Whether a repeated send puts its conversation into the inboxes anew: its first run may not have come so far. Where
    /// nothing fails it has, and the order stays.
    pub repeats_are_activity: bool,
}

/// The store in memory answers at once.
fn now<T>(call: impl Future<Output = T>) -> T {
    match call.now_or_never() {
        Some(answer) => answer,
        None => unreachable!("the store in memory does not wait"),
    }
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
            pending: store.clone(),
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
        self.sim.step(&self.process, what, move || op(&memory)).await
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
            && !(duplicate && self.status(&receiver, &id).await?.last_delivered_seq >= message.seq)
        {
            self.note_undelivered(&receiver, &id, message.seq).await?;
            if let Some(due_at) = new.push_due
                && self.notified(&receiver, &id).await?.1 < message.seq
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
            // Minted right before the write, and anew for each: an id must not be old when it becomes visible (R6).
            let (put, message_id, ts) = (new.clone(), self.mint(), self.clock.now_ms());
            let sim = self.sim.clone();
            let put = self.step(
                || format!("put {} as {id} {seq}", new.client_msg_id),
                move |m| {
                    let put = m.put_message(&put, seq, message_id, ts)?;
                    if let Put::Stored(message) = &put {
                        sim.history.lock().stored(message, sim.now_ms());
                    }
                    Ok(put)
                },
            );
            match put.await? {
                Put::Stored(message) => return Ok((message, false)),
                Put::Duplicate(original) => return Ok((original, true)),
                Put::SeqTaken => {
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

    /// Puts the conversation into both inboxes, with the time of now: a late run of the delivery counts as activity.
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
        // One after another within a conversation, the conversations side by side.
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
        let of = id.clone();
        let read = move |m: &Memory| now(m.read_from(&of, from, limit)).map(Seqs);
        Ok(self.step(|| format!("read {id} from {from}"), read).await?.0)
    }

    async fn read_before(
        &self,
        id: &ConversationId,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Arc<Message>>> {
        let of = id.clone();
        let read = move |m: &Memory| now(m.read_before(&of, before, limit)).map(Seqs);
        Ok(self.step(|| format!("read {id} before {before}"), read).await?.0)
    }

    async fn last_seq(&self, id: &ConversationId) -> Result<Seq> {
        let of = id.clone();
        self.step(|| format!("last seq of {id}"), move |m| now(m.last_seq(&of))).await
    }

    async fn close_hole(&self, id: &ConversationId, seq: Seq) -> Result<()> {
        let of = id.clone();
        self.step(|| format!("close the hole {id} {seq}"), move |m| now(m.close_hole(&of, seq))).await
    }

    async fn find(&self, message_id: MessageId) -> Result<Option<Arc<Message>>> {
        self.memory.find(message_id).await
    }
}

/// Messages, which the trace shows as their seqs.
struct Seqs(Vec<Arc<Message>>);

impl Debug for Seqs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seq = |m: &Arc<Message>| if m.void { format!("{} void", m.seq) } else { m.seq.to_string() };
        f.debug_list().entries(self.0.iter().map(seq)).finish()
    }
}

#[async_trait]
impl PendingDeliveries for AppStore {
    async fn note_undelivered(&self, receiver: &UserId, id: &ConversationId, seq: Seq) -> Result<Noted> {
        let (user, of) = (receiver.clone(), id.clone());
        let notices = self.sim.notices.clone();
        let note = move |m: &Memory| {
            let noted = now(m.note_undelivered(&user, &of, seq))?;
            if noted.written {
                notices.row_written(&user, &of);
            }
            Ok(noted)
        };
        self.step(|| format!("note {id} {seq} undelivered for {receiver}"), note).await
    }

    async fn pending_of(&self, receiver: &UserId) -> Result<Vec<PendingRow>> {
        let user = receiver.clone();
        self.step(|| format!("rows of {receiver}"), move |m| now(m.pending_of(&user))).await
    }

    async fn pending_row(&self, receiver: &UserId, id: &ConversationId) -> Result<Option<Seq>> {
        let (user, of) = (receiver.clone(), id.clone());
        self.step(|| format!("row {id} of {receiver}"), move |m| now(m.pending_row(&user, &of))).await
    }

    async fn settle(
        &self,
        receiver: &UserId,
        id: &ConversationId,
        expected: Seq,
        to: Option<Seq>,
    ) -> Result<bool> {
        let (user, of) = (receiver.clone(), id.clone());
        let notices = self.sim.notices.clone();
        let settle = move |m: &Memory| {
            let settled = now(m.settle(&user, &of, expected, to))?;
            match to {
                _ if !settled => {}
                Some(to) if to == expected => {}
                Some(_) => notices.row_written(&user, &of),
                None => notices.row_removed(&user, &of),
            }
            Ok(settled)
        };
        self.step(|| format!("row {id} of {receiver}: {expected} becomes {to:?}"), settle).await
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
        let (of, in_) = (user.clone(), id.clone());
        let advance = move |m: &Memory| now(m.advance(&of, &in_, delivered, read));
        self.step(|| format!("{user} is at {delivered}/{read} in {id}"), advance).await
    }

    async fn status(&self, user: &UserId, id: &ConversationId) -> Result<StatusRow> {
        let (of, in_) = (user.clone(), id.clone());
        self.step(|| format!("status of {user} in {id}"), move |m| now(m.status(&of, &in_))).await
    }

    /// Told in half of the conversations only: there are backends that cannot.
    async fn has_acked_all(&self, user: &UserId, id: &ConversationId) -> Result<bool> {
        if id.as_str().bytes().fold(0, |odd, byte| odd ^ (byte & 1)) == 0 {
            return Ok(false);
        }
        let (of, in_) = (user.clone(), id.clone());
        self.step(|| format!("has {user} acked all in {id}"), move |m| now(m.has_acked_all(&of, &in_))).await
    }

    async fn notified(&self, user: &UserId, id: &ConversationId) -> Result<(StatusRow, Seq)> {
        let (of, in_) = (user.clone(), id.clone());
        self.step(|| format!("what {user} was notified of in {id}"), move |m| now(m.notified(&of, &in_)))
            .await
    }

    async fn raise_notified(&self, user: &UserId, id: &ConversationId, seq: Seq) -> Result<()> {
        let (of, in_) = (user.clone(), id.clone());
        self.step(
            || format!("{user} was notified of {seq} in {id}"),
            move |m| now(m.raise_notified(&of, &in_, seq)),
        )
        .await
    }

    async fn statuses_of(&self, user: &UserId) -> Result<Vec<StatusRow>> {
        self.memory.statuses_of(user).await
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

    /// By the inboxes' scores: a message that is stored and whose conversation is not scored yet is not active.
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

    /// By the rows: a message that is stored and not yet in its row is not seen.
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

/// The store of one app server on which nothing fails, for the conformance suite.
pub fn stepwise(clock: Arc<dyn Clock>) -> Store {
    let memory = Arc::new(Memory::new(clock.clone()));
    let sim = Sim::new(Setup::without_faults(), false);
    let sessions = Store::from_memory(memory.clone(), clock.clone()).sessions;
    let process = Process::new("app".into(), 0.0);
    let store = AppStore {
        sim,
        process,
        memory,
        inboxes: Arc::default(),
        clock,
        node: 1,
        last_id: Mutex::default(),
        repeats_are_activity: false,
    };
    store.into_store(sessions)
}

impl AppStore {
    pub fn of_app(
        sim: &Arc<Sim>,
        process: &Arc<Process>,
        memory: &Arc<Memory>,
        inboxes: &Arc<Inboxes>,
        clock: Arc<SkewedClock>,
        node: u16,
    ) -> AppStore {
        AppStore {
            sim: sim.clone(),
            process: process.clone(),
            memory: memory.clone(),
            inboxes: inboxes.clone(),
            clock,
            node,
            last_id: Mutex::default(),
            repeats_are_activity: true,
        }
    }
}
