//! The one writer. It gathers what callers ask for, writes the group to the log, waits for one fsync, makes the
//! changes visible, and answers: in this order, so that nobody sees or is told what could still be lost (R15).

mod batcher;
mod decide;

use std::{
    collections::hash_map,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, Sender},
    },
    time::{Duration, Instant},
};

use bluetick_protocol::{ConversationId, MessageId, Profile, Seq, Side, UserId};
use foldhash::{HashMap, HashMapExt};
use tokio::sync::{mpsc, oneshot};

pub(super) use self::batcher::LingerWaker;
use self::batcher::OpBatcher;
use super::{
    StoreCore,
    checkpoint::{CheckpointDone, CheckpointJob},
    engine::{EngineSnapshot, user_key},
    memtable::Published,
    rows::{RowChange, RowChanges, RowSpace, RowTransaction, RowTransactionFn, user_prefix},
    state::{Conv, Mark, MessageEntry, UserRow, WalRecord},
    wal::{AppendError, Group, Wal},
};
use crate::{Advanced, Message, NewMessage, Noted, OwedPush, Result, StoreError, failpoint};

/// Most records in a group: enough to share an fsync widely, few enough to answer soon.
const GROUP_MAX_OPS: usize = 2048;
const GROUP_MAX_BYTES: usize = 4 * 1024 * 1024;
/// A segment that could not be begun is tried again after this, or a little later.
const RETRY_CHECKPOINT: Duration = Duration::from_millis(500);
/// Most small rows in a record. More go into several, which one group makes durable together.
const RECORD_MAX_ROWS: usize = 1000;

/// Sends with everything that had to be read for them, so that the committer reads nothing.
pub(super) struct PreparedSends {
    pub sends: Vec<NewMessage>,
    /// Of each of them.
    pub read: Vec<ReadForSend>,
    /// The checkpoint count when the engine was asked for the hashes and did not have them.
    pub looked_up_at: u64,
}

pub(super) struct ReadForSend {
    /// Names (conversation, sender, client_msg_id) in the idempotency records.
    pub hash: u128,
    /// What the sender's client had seen, and the boundary that was there when it was looked up.
    pub seen: Option<(Seq, Mark)>,
}

#[derive(Debug, Clone)]
pub(super) enum SendOutcome {
    Stored {
        message: Arc<Message>,
        implied_read: Option<Advanced>,
    },
    /// The seq that it has, and the send, of which nothing was taken.
    Duplicate(Seq, Box<NewMessage>),
}

type ReplySender<T> = oneshot::Sender<Result<T>>;

pub(super) enum WriteOp {
    Sends(PreparedSends, ReplySender<Vec<SendOutcome>>),
    Advance {
        id: ConversationId,
        side: Side,
        delivered: Mark,
        read: Mark,
        reply: ReplySender<Advanced>,
    },
    Note {
        id: ConversationId,
        side: Side,
        seq: Seq,
        /// With the row a notification is owed, unless the member was notified of it.
        push_due: Option<u64>,
        reply: ReplySender<Noted>,
    },
    Settle {
        id: ConversationId,
        side: Side,
        expected: Seq,
        to: Option<Seq>,
        reply: ReplySender<bool>,
    },
    /// Puts the read mark's count right.
    Recount {
        id: ConversationId,
        side: Side,
        read: Mark,
        reply: ReplySender<()>,
    },
    Erase {
        id: ConversationId,
        side: Side,
        reply: ReplySender<()>,
    },
    Profile {
        user: UserId,
        profile: Profile,
        reply: ReplySender<()>,
    },
    Block {
        user: UserId,
        other: UserId,
        blocked: bool,
        reply: ReplySender<()>,
    },
    EraseUser {
        user: UserId,
        reply: ReplySender<()>,
    },
    /// Raises what a member's devices were notified of.
    Notified {
        id: ConversationId,
        side: Side,
        seq: Seq,
        reply: ReplySender<()>,
    },
    /// Something over small rows.
    Transaction(RowTransactionFn),
    /// Begin a checkpoint, and answer when it is done, with the engine as it is then.
    Checkpoint(ReplySender<EngineSnapshot>),
    /// Look whether there is something to do without being asked.
    Tick,
    Close(ReplySender<()>),
}

impl WriteOp {
    /// Hardly anybody waits for it: it may stay for a moment, until there is something else to make durable.
    pub(super) fn is_deferrable(&self) -> bool {
        matches!(
            self,
            WriteOp::Advance { .. } | WriteOp::Settle { .. } | WriteOp::Notified { .. } | WriteOp::Tick
        )
    }

    fn message_count(&self) -> usize {
        match self {
            WriteOp::Sends(prepared, _) => prepared.sends.len(),
            _ => 0,
        }
    }
}

/// Looked up once: they are raised with every group.
struct CommitMetrics {
    queue: metrics::Gauge,
    fsync_seconds: metrics::Histogram,
    group_answers: metrics::Histogram,
    log_bytes: metrics::Gauge,
}

impl CommitMetrics {
    fn new() -> CommitMetrics {
        CommitMetrics {
            queue: metrics::gauge!("bluetick_commit_queue"),
            fsync_seconds: metrics::histogram!("bluetick_fsync_seconds"),
            group_answers: metrics::histogram!("bluetick_group_answers"),
            log_bytes: metrics::gauge!("bluetick_log_bytes"),
        }
    }
}

/// The seq and the time of each send, under its hash.
pub(super) type SentIdMap = HashMap<u128, (Seq, u64)>;

/// An answer that waits for the group's fsync.
pub(super) type OnCommit = Box<dyn FnOnce(Result<()>) + Send>;

pub(super) struct Overlay {
    pub published: Published,
    changed: bool,
}

pub(super) struct Committer {
    shared: Arc<StoreCore>,
    wal: Wal,
    jobs: Sender<CheckpointJob>,
    done: Receiver<CheckpointDone>,
    last_id: MessageId,
    group: Group,
    lsn: u64,
    overlay: HashMap<ConversationId, Overlay>,
    users: HashMap<UserId, UserRow>,
    rows: RowChanges,
    waiting: Vec<OnCommit>,
    /// Idempotency records that the engine does not have yet.
    ids: SentIdMap,
    /// Those of the last two checkpoints, the one under way included: for callers that asked the engine before it had them.
    older_ids: [Arc<SentIdMap>; 2],
    /// Those of this group, to be taken back if it fails.
    ids_in_group: Vec<u128>,
    active_bytes: u64,
    messages: u64,
    frozen: bool,
    quiet_ticks: u32,
    /// Who waits for the next checkpoint, and who for the one under way.
    checkpoint_waiters: [Vec<ReplySender<EngineSnapshot>>; 2],
    checkpoint_wanted: bool,
    /// No new segment could be begun; not tried again before.
    checkpoint_after: Option<Instant>,
    closing: Option<ReplySender<()>>,
    metrics: CommitMetrics,
}

/// The kernel may have dropped the pages: neither a retry nor going on can be trusted.
fn end_of_the_log(e: &std::io::Error) -> ! {
    tracing::error!(error = %e, "the log could not be made durable; ending the process");
    std::process::abort();
}

impl Committer {
    pub(super) fn new(
        shared: Arc<StoreCore>,
        wal: Wal,
        last_id: MessageId,
        jobs: Sender<CheckpointJob>,
        done: Receiver<CheckpointDone>,
    ) -> Self {
        let lsn = wal.next_lsn();
        Committer {
            shared,
            wal,
            jobs,
            done,
            last_id,
            group: Group::default(),
            lsn,
            overlay: HashMap::new(),
            users: HashMap::new(),
            rows: RowChanges::default(),
            waiting: Vec::new(),
            ids: SentIdMap::default(),
            older_ids: Default::default(),
            ids_in_group: Vec::new(),
            active_bytes: 0,
            messages: 0,
            frozen: false,
            quiet_ticks: 0,
            checkpoint_waiters: Default::default(),
            checkpoint_wanted: false,
            checkpoint_after: None,
            closing: None,
            metrics: CommitMetrics::new(),
        }
    }

    /// Takes in one record of the log after a restart.
    pub(super) fn replay(&mut self, lsn: u64, record: WalRecord, bytes: usize) -> Result<()> {
        self.lsn = lsn;
        match &record {
            WalRecord::Profile { user, .. }
            | WalRecord::Block { user, .. }
            | WalRecord::EraseUser { user } => {
                let user = user.clone();
                self.user(&user)?.apply(&record);
            }
            WalRecord::Send { entry, .. } => {
                let message = entry.message.clone();
                self.last_id = self.last_id.max(message.message_id);
                let hash = self.shared.hash(&message.conversation_id, message.from, &message.client_msg_id);
                self.ids.insert(hash, (message.seq, message.ts));
                self.change(&message.conversation_id, &record, true)?;
            }
            WalRecord::Receipt { id, .. }
            | WalRecord::Pending { id, .. }
            | WalRecord::Erase { id, .. }
            | WalRecord::Notified { id, .. } => {
                self.change(&id.clone(), &record, true)?;
            }
            WalRecord::Rows(changes) => {
                for change in changes {
                    change.check()?;
                    self.rows.set(change.clone());
                }
            }
        }
        self.active_bytes += bytes as u64;
        if self.overlay.len() + self.rows.len() > GROUP_MAX_OPS {
            self.publish();
        }
        Ok(())
    }

    /// The log has been replayed: makes all of it visible, before anybody reads.
    pub(super) fn replayed(&mut self) {
        self.lsn = self.wal.next_lsn();
        self.publish();
    }

    /// Runs until it is closed or every caller is gone.
    pub(super) fn run(mut self, ops: mpsc::Receiver<WriteOp>) {
        let shared = self.shared.clone();
        let mut ops = OpBatcher::new(ops, &shared.bell);
        let mut batch = Vec::with_capacity(GROUP_MAX_OPS);
        while ops.fill(&mut batch) {
            self.metrics.queue.set(ops.len() as f64);
            for op in batch.drain(..) {
                self.take(op);
                if self.group.len_bytes() > GROUP_MAX_BYTES {
                    self.commit();
                }
            }
            self.commit();
            self.collect_checkpoint(Duration::ZERO);
            self.maybe_checkpoint();
            // The log ahead of the engine bounds memory and the time of a restart: beyond twice the limit, wait.
            while self.frozen
                && self.is_far_ahead()
                && !self.shared.checkpoint_failing.load(Ordering::Acquire)
            {
                metrics::counter!("bluetick_checkpoint_stalls_total").increment(1);
                self.collect_checkpoint(Duration::from_millis(100));
            }
            if let Some(reply) = self.closing.take() {
                ops.close();
                self.close(reply);
                return;
            }
        }
    }

    fn is_far_ahead(&self) -> bool {
        self.active_bytes > 2 * self.shared.config.checkpoint_bytes
    }

    /// Brings everything into the engine, if it can be done, so that the next start replays nothing.
    fn close(&mut self, reply: ReplySender<()>) {
        let deadline = Instant::now() + Duration::from_secs(10);
        self.checkpoint_wanted = self.active_bytes > 0;
        while (self.frozen || self.checkpoint_wanted) && Instant::now() < deadline {
            self.maybe_checkpoint();
            match self.frozen {
                true => self.collect_checkpoint(Duration::from_millis(50)),
                false => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        let _ = reply.send(Ok(()));
    }

    fn take(&mut self, op: WriteOp) {
        match op {
            WriteOp::Sends(prepared, reply) => self.take_sends(prepared, reply),
            WriteOp::Advance { id, side, delivered, read, reply } => {
                let done = self.advance(&id, side, delivered, read);
                self.answer(done, reply);
            }
            WriteOp::Note { id, side, seq, push_due, reply } => {
                let done = self.note(&id, side, seq, push_due);
                self.answer(done, reply);
            }
            WriteOp::Settle { id, side, expected, to, reply } => {
                let done = self.settle(&id, side, expected, to);
                self.answer(done, reply);
            }
            WriteOp::Recount { id, side, read, reply } => {
                let done = self.recount(&id, side, read);
                self.answer(done, reply);
            }
            WriteOp::Erase { id, side, reply } => {
                let done = self.erase(&id, side);
                self.answer(done, reply);
            }
            WriteOp::Profile { user, profile, reply } => {
                let done = self.change_user(WalRecord::Profile { user: user.clone(), profile }, &user);
                self.answer(done, reply);
            }
            WriteOp::Block { user, other, blocked, reply } => {
                let done = self.change_user(WalRecord::Block { user: user.clone(), other, blocked }, &user);
                self.answer(done, reply);
            }
            WriteOp::EraseUser { user, reply } => {
                let done = self.erase_user(&user);
                self.answer(done, reply);
            }
            WriteOp::Notified { id, side, seq, reply } => {
                let done = self.raise_notified(&id, side, seq);
                self.answer(done, reply);
            }
            WriteOp::Transaction(transaction) => {
                let mut tx = RowTransaction::new(&self.shared, &self.rows, &self.overlay);
                let answer = transaction(&mut tx);
                let changes = tx.into_changes();
                self.write_rows(changes);
                self.waiting.push(answer);
            }
            WriteOp::Checkpoint(reply) => {
                self.checkpoint_waiters[0].push(reply);
                self.checkpoint_wanted = true;
            }
            WriteOp::Tick => self.quiet_ticks += 1,
            WriteOp::Close(reply) => self.closing = Some(reply),
        }
    }

    /// Sends the answer when the group is durable, or the error that befell it.
    fn answer<T: Send + 'static>(&mut self, done: Result<T>, reply: ReplySender<T>) {
        self.waiting.push(Box::new(move |outcome| {
            let _ = reply.send(outcome.and(done));
        }));
    }

    fn user(&mut self, user: &UserId) -> Result<&mut UserRow> {
        if !self.users.contains_key(user) {
            let row = self.shared.memtable.user(&self.shared.engine, user)?;
            self.users.insert(user.clone(), UserRow::clone(&row));
        }
        self.users.get_mut(user).ok_or_else(|| StoreError::Corrupt("a user row vanished".into()))
    }

    /// The conversation as this group leaves it so far.
    fn conv(&mut self, id: &ConversationId) -> Result<&mut Overlay> {
        let place = match self.overlay.entry(id.clone()) {
            hash_map::Entry::Occupied(found) => return Ok(found.into_mut()),
            hash_map::Entry::Vacant(place) => place,
        };
        let stored = self.shared.memtable.conv(&self.shared.engine, id)?;
        let conv = stored.map_or_else(|| Conv::new(id.clone()), |conv| Conv::clone(&conv));
        let published = Published {
            conv,
            entries: Vec::new(),
            pending_touched: false,
            members_touched: false,
            erased: false,
        };
        Ok(place.insert(Overlay { published, changed: false }))
    }

    /// Adds a record to the group and to the rows that will be visible once it is durable.
    fn write(&mut self, id: &ConversationId, record: WalRecord) -> Result<()> {
        self.group.push(|out| record.encode(out));
        self.change(id, &record, false)?;
        self.lsn += 1;
        Ok(())
    }

    fn change(&mut self, id: &ConversationId, record: &WalRecord, replayed: bool) -> Result<()> {
        let lsn = self.lsn;
        let overlay = self.conv(id)?;
        overlay.changed = true;
        let published = &mut overlay.published;
        let listed = [published.conv.lists(Side::Low), published.conv.lists(Side::High)];
        // A crash between a checkpoint's writes leaves rows in the engine that already have this record.
        if !replayed || published.conv.lsn < lsn {
            published.conv.apply(record, lsn);
        }
        let now_listed = [published.conv.lists(Side::Low), published.conv.lists(Side::High)];
        published.members_touched |= listed != now_listed || replayed;
        match record {
            WalRecord::Send { entry, pending, .. } => {
                published.entries.push(entry.clone());
                published.pending_touched |= pending.is_some() || replayed;
            }
            WalRecord::Pending { .. } => published.pending_touched = true,
            WalRecord::Erase { .. } => {
                published.pending_touched = true;
                published.members_touched = true;
                published.erased = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// One write, one fsync; then the changes are visible and the answers go out.
    fn commit(&mut self) {
        if !self.group.is_empty() {
            self.quiet_ticks = 0;
            let bytes = self.group.len_bytes() as u64;
            let begun = Instant::now();
            // Receipts, rows and erasures still pass: a device that drains must be able to ack, and they need little.
            if !self.ids_in_group.is_empty()
                && let Some(why) = self.refusal()
            {
                self.fail(StoreError::Full(why));
                return;
            }
            match self.wal.append(&mut self.group) {
                Ok(()) => {}
                Err(AppendError::Refused(e)) => {
                    self.fail(StoreError::Full(format!("the log could not be written: {e}")));
                    return;
                }
                Err(AppendError::Unknown(e)) => end_of_the_log(&e),
            }
            self.metrics.fsync_seconds.record(begun.elapsed().as_secs_f64());
            self.metrics.group_answers.record(self.waiting.len() as f64);
            self.active_bytes += bytes;
            self.shared.log_bytes.store(self.wal.total_bytes(), Ordering::Relaxed);
            self.metrics.log_bytes.set(self.wal.total_bytes() as f64);
        }
        self.publish();
        failpoint::hit("commit.published");
        for answer in self.waiting.drain(..) {
            answer(Ok(()));
        }
    }

    fn refusal(&self) -> Option<String> {
        let failing =
            self.checkpoint_after.is_some() || self.shared.checkpoint_failing.load(Ordering::Acquire);
        let stuck = self.is_far_ahead() && failing;
        match stuck {
            true => Some("the engine cannot be written and memory is full".into()),
            false => self.shared.refusing(),
        }
    }

    fn fail(&mut self, error: StoreError) {
        for hash in self.ids_in_group.drain(..) {
            self.ids.remove(&hash);
        }
        self.overlay.clear();
        self.users.clear();
        self.rows.clear();
        self.group = Group::default();
        self.lsn = self.wal.next_lsn();
        for answer in self.waiting.drain(..) {
            answer(Err(error.clone()));
        }
    }

    fn publish(&mut self) {
        for (_, overlay) in self.overlay.drain() {
            if overlay.changed {
                self.messages += overlay.published.entries.len() as u64;
                self.shared.memtable.publish(overlay.published);
            }
        }
        for (user, row) in self.users.drain() {
            self.shared.memtable.publish_user(&user, row);
        }
        // After the messages: whoever finds something owed finds what it speaks of.
        if !self.rows.is_empty() {
            let changes: Vec<RowChange> = self.rows.take().collect();
            self.shared.push_outbox.publish(changes.iter());
            self.shared.rows.publish(changes.into_iter());
        }
        self.ids_in_group.clear();
        self.shared.unflushed.store(self.messages, Ordering::Relaxed);
    }

    fn maybe_checkpoint(&mut self) {
        let config = &self.shared.config;
        let full = self.active_bytes >= config.checkpoint_bytes;
        // A quiet server gives its memory back, and starts fast after a crash.
        let quiet = self.quiet_ticks >= 3 && self.active_bytes >= config.checkpoint_bytes / 16;
        if self.frozen || !(full || quiet || self.checkpoint_wanted) {
            return;
        }
        if self.checkpoint_after.is_some_and(|at| Instant::now() < at) {
            return;
        }
        self.quiet_ticks = 0;
        match self.wal.rotate() {
            Ok(()) => self.checkpoint_after = None,
            Err(AppendError::Refused(e)) => {
                tracing::error!(error = %e, "no new log segment could be begun; the checkpoint waits");
                self.checkpoint_after = Some(Instant::now() + RETRY_CHECKPOINT);
                return;
            }
            Err(AppendError::Unknown(e)) => end_of_the_log(&e),
        }
        self.checkpoint_wanted = false;
        self.frozen = true;
        self.active_bytes = 0;
        self.messages = 0;
        // About as many come again: a table that grows is copied each time.
        let room = SentIdMap::with_capacity(self.ids.len());
        let frozen_ids = Arc::new(std::mem::replace(&mut self.ids, room));
        self.older_ids = [frozen_ids.clone(), std::mem::take(&mut self.older_ids[0])];
        self.checkpoint_waiters[1] = std::mem::take(&mut self.checkpoint_waiters[0]);
        let job = CheckpointJob {
            frozen: self.shared.memtable.freeze(),
            rows: self.shared.rows.freeze(),
            sent_ids: frozen_ids,
            lsn: self.wal.next_lsn() - 1,
            last_message_id: self.last_id,
        };
        if self.jobs.send(job).is_err() {
            tracing::error!("the checkpoint thread is gone; ending the process, the log has everything");
            std::process::abort();
        }
    }

    /// Takes note that the checkpoint under way is done, waiting at most so long for it.
    fn collect_checkpoint(&mut self, wait: Duration) {
        if !self.frozen {
            return;
        }
        let Ok(CheckpointDone { segments_removed }) = self.done.recv_timeout(wait) else { return };
        self.frozen = false;
        self.shared.checkpoints.fetch_add(1, Ordering::Release);
        if segments_removed {
            self.wal.forget_before(self.shared.checkpointed_lsn.load(Ordering::Acquire) + 1);
        }
        self.shared.log_bytes.store(self.wal.total_bytes(), Ordering::Relaxed);
        // Taken here, before the next checkpoint can begin: a snapshot must not hold half of one.
        for waiter in self.checkpoint_waiters[1].drain(..) {
            let _ = waiter.send(Ok(self.shared.snapshot()));
        }
    }
}
