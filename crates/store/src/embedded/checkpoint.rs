//! The checkpoint: flushes the frozen memtable to the engine in the background, so that old log
//! segments can be removed. Each keyspace gets one sorted run. `meta` is written last: after a
//! crash before it the same records are replayed over these rows, which changes nothing.

use std::{
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    time::{Duration, Instant},
};

use bluetick_protocol::{MessageId, Seq, Side};
use tokio::sync::mpsc;

use super::{
    StoreCore,
    bytes::{FORMAT, put_u64},
    committer::{SentIdMap, WriteOp},
    engine::{CheckpointMeta, EngineChange, Space, user_key},
    entry::MessageEntry,
    memtable::{DirtyConversation, FrozenMemtable},
    rows::{RowChanges, RowSpace},
    runs::RewriteAction,
    wal::{self, WAL_DIR},
};
use crate::{Result, failpoint};

pub(super) struct CheckpointJob {
    pub frozen: FrozenMemtable,
    pub rows: Arc<RowChanges>,
    pub sent_ids: Arc<SentIdMap>,
    /// Every record up to this one is in `frozen` or already in the engine.
    pub lsn: u64,
    pub last_message_id: MessageId,
}

pub(super) struct CheckpointDone {
    /// All segments that the engine has replaced are removed.
    pub segments_removed: bool,
}

/// Runs until the committer is gone. Once a second it sends a tick, so that the committer notices a
/// quiet store and a finished checkpoint.
pub(super) fn run(
    shared: Arc<StoreCore>,
    jobs: Receiver<CheckpointJob>,
    done: Sender<CheckpointDone>,
    ops: mpsc::WeakSender<WriteOp>,
) {
    loop {
        match jobs.recv_timeout(Duration::from_secs(1)) {
            Ok(job) => {
                let Some(finished) = checkpoint(&shared, job, &ops) else { return };
                if done.send(finished).is_err() {
                    return;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        match ops.upgrade() {
            Some(ops) => drop(ops.try_send(WriteOp::Tick)),
            None => return,
        }
    }
}

/// Flushes one frozen memtable, drops it and removes the log segments that it replaces. A flush
/// that fails (on a full disk, say) is retried until the store closes: the log has everything.
fn checkpoint(
    shared: &StoreCore,
    job: CheckpointJob,
    ops: &mpsc::WeakSender<WriteOp>,
) -> Option<CheckpointDone> {
    let begun = Instant::now();
    while let Err(e) = flush(shared, &job) {
        shared.checkpoint_failing.store(true, Ordering::Release);
        tracing::error!(error = %e, "checkpoint failed; retrying in a second, the log has everything");
        metrics::counter!("bluetick_checkpoint_errors_total").increment(1);
        ops.upgrade()?;
        std::thread::sleep(Duration::from_secs(1));
    }
    // A store that is closing does not need a working engine.
    if ops.upgrade().is_some() {
        end_if_the_engine_gave_up(shared);
    }
    shared.checkpoint_failing.store(false, Ordering::Release);
    shared.checkpointed_lsn.store(job.lsn, Ordering::Release);
    shared.memtable.drop_frozen();
    shared.rows.drop_frozen();
    metrics::histogram!("bluetick_checkpoint_seconds").record(begun.elapsed().as_secs_f64());
    tracing::debug!(lsn = job.lsn, took = ?begun.elapsed(), "checkpoint");
    let removed = wal::remove_before(&shared.config.dir.join(WAL_DIR), job.lsn + 1);
    if let Err(e) = &removed {
        tracing::warn!(error = %e, "cannot remove an old log segment; retrying after the next checkpoint");
    }
    Some(CheckpointDone { segments_removed: removed.is_ok() })
}

/// Ends the process if the engine has stopped its background work: a restart reopens it, and the
/// log has everything. Only right after a successful checkpoint and with free space: on a full
/// disk, a store that can be read is worth more than a working engine.
fn end_if_the_engine_gave_up(shared: &StoreCore) {
    if shared.engine.has_given_up() && shared.refusing().is_none() {
        tracing::error!(
            "the engine stopped its background work after an error; ending the process, a restart replays the log"
        );
        std::process::abort();
    }
}

/// Writes each keyspace as one sorted run, and `meta` last.
fn flush(shared: &StoreCore, job: &CheckpointJob) -> Result<()> {
    let engine = &shared.engine;
    let mut convs: Vec<&DirtyConversation> =
        job.frozen.convs.iter().flat_map(|shard| shard.values()).collect();
    convs.sort_unstable_by(|a, b| a.conv.id.cmp(&b.conv.id));

    failpoint::hit("checkpoint.begun");
    for dirty in convs.iter().filter(|d| d.erased) {
        void_erased(shared, dirty)?;
        failpoint::hit("checkpoint.erased_voided");
    }
    let entries = convs.iter().flat_map(|dirty| dirty.entries.iter().map(move |entry| (*dirty, entry)));
    engine.ingest_messages(entries.map(|(dirty, entry)| (entry, dirty.conv.has_erased(&entry.message))))?;
    failpoint::hit("checkpoint.messages_written");
    let sent_ids = job.sent_ids.iter().map(|(hash, (seq, ts))| (*hash, *seq, *ts));
    engine.sent_ids.ingest(sent_ids, shared.clock.now_ms())?;
    failpoint::hit("checkpoint.sent_ids_written");
    engine.ingest(Space::PendingDeliveries, pending_rows(&convs))?;
    failpoint::hit("checkpoint.pending_written");
    engine.ingest(Space::Members, member_rows(&convs))?;
    failpoint::hit("checkpoint.members_written");
    engine.ingest(Space::Users, user_rows(&job.frozen))?;
    failpoint::hit("checkpoint.users_written");
    for space in RowSpace::ALL {
        engine.ingest(space.space(), job.rows.run(space))?;
        failpoint::hit("checkpoint.small_rows_written");
    }
    engine.ingest(Space::Conversations, conversation_rows(&convs))?;
    failpoint::hit("checkpoint.conversations_written");
    engine.put_meta(CheckpointMeta {
        lsn: job.lsn,
        last_message_id: job.last_message_id,
        seed: shared.seed,
    })?;
    failpoint::hit("checkpoint.marked");
    Ok(())
}

fn pending_rows(convs: &[&DirtyConversation]) -> Vec<EngineChange> {
    per_member(convs.iter().filter(|d| d.pending_touched), |d, side| {
        d.conv.member(side).pending.map(|seq| {
            let mut value = vec![FORMAT];
            put_u64(&mut value, seq);
            value
        })
    })
}

fn member_rows(convs: &[&DirtyConversation]) -> Vec<EngineChange> {
    let touched = convs.iter().filter(|d| d.members_touched);
    per_member(touched, |d, side| d.conv.lists(side).then(|| vec![FORMAT]))
}

fn user_rows(frozen: &FrozenMemtable) -> Vec<EngineChange> {
    let mut users: Vec<EngineChange> = Vec::new();
    for (user, dirty) in frozen.users.iter().flat_map(|shard| shard.iter()) {
        if let Some(row) = &dirty.row {
            let mut value = Vec::new();
            row.encode(&mut value);
            users.push((user.as_str().as_bytes().to_vec(), Some(value)));
        }
    }
    users.sort_unstable();
    users
}

fn conversation_rows(convs: &[&DirtyConversation]) -> Vec<EngineChange> {
    let rows = convs.iter().map(|dirty| {
        let mut value = Vec::new();
        dirty.conv.encode(&mut value);
        (dirty.conv.id.as_str().as_bytes().to_vec(), Some(value))
    });
    rows.collect()
}

/// A row for each member of each conversation, sorted by user.
fn per_member<'a>(
    convs: impl Iterator<Item = &'a &'a DirtyConversation>,
    value: impl Fn(&DirtyConversation, Side) -> Option<Vec<u8>>,
) -> Vec<EngineChange> {
    let mut changes = Vec::new();
    for dirty in convs {
        for side in Side::BOTH {
            let key = user_key(dirty.conv.id.member_str(side), &dirty.conv.id);
            changes.push((key, value(dirty, side)));
        }
    }
    changes.sort_unstable();
    changes
}

/// Voids the messages that an erased member wrote before this checkpoint.
fn void_erased(shared: &StoreCore, dirty: &DirtyConversation) -> Result<()> {
    let action = |entry: &MessageEntry| match dirty.conv.has_erased(&entry.message) {
        true => RewriteAction::Void,
        false => RewriteAction::Keep,
    };
    let mut next = Some(0);
    while let Some(from) = next {
        // A message removed between the read and the write would come back.
        let _nothing_is_dropped = shared.cold.rewriting.lock();
        let (voids, rest) = shared.engine.rewritten(&dirty.conv.id, 0..Seq::MAX, from, action)?;
        shared.engine.ingest(Space::Messages, voids)?;
        next = rest;
    }
    Ok(())
}
