//! The committer: the one thread that writes. For each group of operations it decides what each one
//! changes, appends the records to the write-ahead log with one fsync, publishes the changes to the
//! memtable, and answers the callers. In this order: nothing is visible or acknowledged that a
//! crash could still lose (R15).
//!
//! - `op.rs`: the operations and their answers.
//! - `batcher.rs`: when a group begins, and what is in it.
//! - `decide.rs`: what each operation changes.
//! - `recent_sends.rs`: duplicates that the engine does not know of yet.
//! - `checkpointing.rs`: when the memtable is flushed to the engine.

mod batcher;
mod checkpointing;
mod decide;
mod op;
mod recent_sends;

use std::{
    collections::hash_map,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, Sender},
    },
    time::{Duration, Instant},
};

use bluetick_protocol::{ConversationId, MessageId, Side, UserId};
use foldhash::{HashMap, HashMapExt};
use tokio::sync::mpsc;

pub(super) use self::{
    batcher::LingerWaker,
    op::{DuplicateSend, OnCommit, PreparedSends, ReadForSend, ReplySender, WriteOp},
    recent_sends::SentIdMap,
};
use self::{batcher::OpBatcher, checkpointing::CheckpointState, recent_sends::RecentSends};
use super::{
    StoreCore,
    checkpoint::{CheckpointDone, CheckpointJob},
    conversation::ConversationState,
    memtable::DirtyConversation,
    record::WalRecord,
    rows::{RowChange, RowChanges, RowTransaction},
    user_row::UserRow,
    wal::{AppendError, Group, Wal},
};
use crate::{Result, StoreError, failpoint};

/// Most operations in a group: enough to share an fsync widely, few enough to answer soon.
const GROUP_MAX_OPS: usize = 2048;
const GROUP_MAX_BYTES: usize = 4 * 1024 * 1024;

/// Handles that are looked up once, because every group records them.
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

/// A conversation as the group being filled leaves it.
pub(super) struct Overlay {
    pub dirty: DirtyConversation,
    /// False as long as operations have only read it.
    is_changed: bool,
}

pub(super) struct Committer {
    shared: Arc<StoreCore>,
    wal: Wal,
    jobs: Sender<CheckpointJob>,
    done: Receiver<CheckpointDone>,
    last_id: MessageId,
    /// The lsn of the next record.
    lsn: u64,
    // The group being filled: its bytes, the rows it changes, the callers that wait for it.
    group: Group,
    overlay: HashMap<ConversationId, Overlay>,
    users: HashMap<UserId, UserRow>,
    rows: RowChanges,
    waiting: Vec<OnCommit>,
    recent_sends: RecentSends,
    checkpoint: CheckpointState,
    /// Messages in the active memtable.
    messages: u64,
    closing: Option<ReplySender<()>>,
    metrics: CommitMetrics,
}

/// After a failed fsync the kernel may have dropped the pages: a retry that succeeds proves
/// nothing.
fn halt_on_unknown_wal_state(e: &std::io::Error) -> ! {
    tracing::error!(error = %e, "the log could not be made durable; ending the process, check the disk");
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
        Committer {
            lsn: wal.next_lsn(),
            shared,
            wal,
            jobs,
            done,
            last_id,
            group: Group::default(),
            overlay: HashMap::new(),
            users: HashMap::new(),
            rows: RowChanges::default(),
            waiting: Vec::new(),
            recent_sends: RecentSends::default(),
            checkpoint: CheckpointState::default(),
            messages: 0,
            closing: None,
            metrics: CommitMetrics::new(),
        }
    }

    /// Applies one record of the log after a restart.
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
                self.recent_sends.replay(hash, message.seq, message.ts);
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
        self.checkpoint.active_bytes += bytes as u64;
        if self.overlay.len() + self.rows.len() > GROUP_MAX_OPS {
            self.publish();
        }
        Ok(())
    }

    /// Ends the replay: publishes the rest of it, before anybody reads.
    pub(super) fn replayed(&mut self) {
        self.lsn = self.wal.next_lsn();
        self.publish();
    }

    /// Runs until it is closed or every caller is gone.
    pub(super) fn run(mut self, ops: mpsc::Receiver<WriteOp>) {
        let shared = self.shared.clone();
        let mut ops = OpBatcher::new(ops, &shared.linger_waker);
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
            self.wait_for_checkpoint();
            if let Some(reply) = self.closing.take() {
                ops.close();
                self.close(reply);
                return;
            }
        }
    }

    /// Adds an operation to the group.
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
                self.checkpoint.waiters.push(reply);
                self.checkpoint.is_requested = true;
            }
            WriteOp::Tick => self.checkpoint.quiet_ticks += 1,
            WriteOp::Close(reply) => self.closing = Some(reply),
        }
    }

    /// Sends the answer when the group is durable, or the error that refused the group.
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

    /// A conversation as the group leaves it so far.
    fn conv(&mut self, id: &ConversationId) -> Result<&mut Overlay> {
        let place = match self.overlay.entry(id.clone()) {
            hash_map::Entry::Occupied(found) => return Ok(found.into_mut()),
            hash_map::Entry::Vacant(place) => place,
        };
        let stored = self.shared.conv(id)?;
        let conv = stored.unwrap_or_else(|| Arc::new(ConversationState::new(id.clone())));
        Ok(place.insert(Overlay { dirty: DirtyConversation::unchanged(conv), is_changed: false }))
    }

    /// Adds a record to the group and to the rows that will be visible once it is durable.
    fn write(&mut self, id: &ConversationId, record: WalRecord) -> Result<()> {
        self.group.push(|out| record.encode(out));
        self.change(id, &record, false)?;
        self.lsn += 1;
        Ok(())
    }

    fn change(&mut self, id: &ConversationId, record: &WalRecord, is_replay: bool) -> Result<()> {
        let lsn = self.lsn;
        let overlay = self.conv(id)?;
        overlay.is_changed = true;
        let dirty = &mut overlay.dirty;
        // Copies once for each group: the memtable still shows readers the state before it.
        let conv = Arc::make_mut(&mut dirty.conv);
        let listed = [conv.lists(Side::Low), conv.lists(Side::High)];
        // A checkpoint that a crash cut short leaves rows in the engine that already have this
        // record.
        if !is_replay || conv.lsn < lsn {
            conv.apply(record, lsn);
        }
        let now_listed = [conv.lists(Side::Low), conv.lists(Side::High)];
        dirty.members_touched |= listed != now_listed || is_replay;
        match record {
            WalRecord::Send { entry, pending, .. } => {
                dirty.entries.push(entry.clone());
                dirty.pending_touched |= pending.is_some() || is_replay;
            }
            WalRecord::Pending { .. } => dirty.pending_touched = true,
            WalRecord::Erase { .. } => {
                dirty.pending_touched = true;
                dirty.members_touched = true;
                dirty.erased = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// Commits the group: one write, one fsync; then the changes are published and the callers
    /// answered.
    fn commit(&mut self) {
        if !self.group.is_empty()
            && let Err(refused) = self.make_durable()
        {
            self.fail(refused);
            return;
        }
        self.publish();
        failpoint::hit("commit.published");
        for answer in self.waiting.drain(..) {
            answer(Ok(()));
        }
    }

    fn make_durable(&mut self) -> Result<()> {
        self.checkpoint.quiet_ticks = 0;
        let bytes = self.group.len_bytes() as u64;
        let begun = Instant::now();
        // Receipts, rows and erasures still pass on a full disk: a device that drains must be able
        // to ack, and they need little space.
        if self.recent_sends.group_has_sends()
            && let Some(why) = self.refusal()
        {
            return Err(StoreError::Full(why));
        }
        match self.wal.append(&mut self.group) {
            Ok(()) => {}
            Err(AppendError::Refused(e)) => {
                return Err(StoreError::Full(format!("the log could not be written: {e}")));
            }
            Err(AppendError::Unknown(e)) => halt_on_unknown_wal_state(&e),
        }
        self.metrics.fsync_seconds.record(begun.elapsed().as_secs_f64());
        self.metrics.group_answers.record(self.waiting.len() as f64);
        self.checkpoint.active_bytes += bytes;
        self.shared.log_bytes.store(self.wal.total_bytes(), Ordering::Relaxed);
        self.metrics.log_bytes.set(self.wal.total_bytes() as f64);
        Ok(())
    }

    /// Why sends are refused now, if they are.
    fn refusal(&self) -> Option<String> {
        match self.is_stuck() {
            true => Some("the engine cannot be written and memory is full".into()),
            false => self.shared.refusing(),
        }
    }

    /// Takes the group back and tells its callers why.
    fn fail(&mut self, error: StoreError) {
        self.recent_sends.group_failed();
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
            if overlay.is_changed {
                self.messages += overlay.dirty.entries.len() as u64;
                self.shared.memtable.publish(overlay.dirty);
            }
        }
        for (user, row) in self.users.drain() {
            self.shared.memtable.publish_user(&user, row);
        }
        // After the messages: whoever finds a notification owed must find the message it is about.
        if !self.rows.is_empty() {
            let changes: Vec<RowChange> = self.rows.take().collect();
            self.shared.push_outbox.publish(changes.iter());
            self.shared.rows.publish(changes.into_iter());
        }
        self.recent_sends.group_committed();
        self.shared.unflushed.store(self.messages, Ordering::Relaxed);
    }
}
