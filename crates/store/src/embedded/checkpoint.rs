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

/// Runs until the committer is gone. A failed checkpoint (on a full disk, say) is retried: the log
/// has everything.
pub(super) fn run(
    shared: Arc<StoreCore>,
    jobs: Receiver<CheckpointJob>,
    done: Sender<CheckpointDone>,
    ops: mpsc::WeakSender<WriteOp>,
) {
    loop {
        match jobs.recv_timeout(Duration::from_secs(1)) {
            Ok(job) => {
                let begun = Instant::now();
                while let Err(e) = write(&shared, &job) {
                    shared.checkpoint_failing.store(true, Ordering::Release);
                    tracing::error!(error = %e, "a checkpoint failed; trying again");
                    metrics::counter!("bluetick_checkpoint_errors_total").increment(1);
                    if ops.upgrade().is_none() {
                        return;
                    }
                    std::thread::sleep(Duration::from_secs(1));
                }
                // A store that is closing does not need a working engine.
                if ops.upgrade().is_some() {
                    end_if_the_engine_gave_up(&shared);
                }
                shared.checkpoint_failing.store(false, Ordering::Release);
                shared.checkpointed_lsn.store(job.lsn, Ordering::Release);
                shared.memtable.drop_frozen();
                shared.rows.drop_frozen();
                metrics::histogram!("bluetick_checkpoint_seconds").record(begun.elapsed().as_secs_f64());
                tracing::debug!(lsn = job.lsn, took = ?begun.elapsed(), "checkpoint");
                let removed = wal::remove_before(&shared.config.dir.join(WAL_DIR), job.lsn + 1);
                if let Err(e) = &removed {
                    tracing::warn!(error = %e, "an old log segment could not be removed; trying again after the next checkpoint");
                }
                drop(job);
                if done.send(CheckpointDone { segments_removed: removed.is_ok() }).is_err() {
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

/// Ends the process if the engine has stopped its background work: a restart reopens it, and the
/// log has everything. Only right after a successful checkpoint and with free space: on a full
/// disk, a store that can be read is worth more than a working engine.
fn end_if_the_engine_gave_up(shared: &StoreCore) {
    if shared.engine.has_given_up() && shared.refusing().is_none() {
        tracing::error!(
            "the engine gave up its own work after an error; ending the process, the log has everything"
        );
        std::process::abort();
    }
}

fn write(shared: &StoreCore, job: &CheckpointJob) -> Result<()> {
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
    let pending = convs.iter().filter(|d| d.pending_touched);
    engine.ingest(
        Space::PendingDeliveries,
        per_member(pending, |d, side| {
            d.conv.member(side).pending.map(|seq| {
                let mut value = vec![FORMAT];
                put_u64(&mut value, seq);
                value
            })
        }),
    )?;
    failpoint::hit("checkpoint.pending_written");
    let members = convs.iter().filter(|d| d.members_touched);
    engine.ingest(Space::Members, per_member(members, |d, side| d.conv.lists(side).then(|| vec![FORMAT])))?;
    failpoint::hit("checkpoint.members_written");
    let mut users: Vec<EngineChange> = Vec::new();
    for (user, dirty) in job.frozen.users.iter().flat_map(|shard| shard.iter()) {
        if let Some(row) = &dirty.row {
            let mut value = Vec::new();
            row.encode(&mut value);
            users.push((user.as_str().as_bytes().to_vec(), Some(value)));
        }
    }
    users.sort_unstable();
    engine.ingest(Space::Users, users)?;
    failpoint::hit("checkpoint.users_written");
    for space in RowSpace::ALL {
        engine.ingest(space.space(), job.rows.run(space))?;
        failpoint::hit("checkpoint.small_rows_written");
    }
    let rows = convs.iter().map(|dirty| {
        let mut value = Vec::new();
        dirty.conv.encode(&mut value);
        (dirty.conv.id.as_str().as_bytes().to_vec(), Some(value))
    });
    engine.ingest(Space::Conversations, rows.collect())?;
    failpoint::hit("checkpoint.conversations_written");
    engine.put_meta(CheckpointMeta {
        lsn: job.lsn,
        last_message_id: job.last_message_id,
        seed: shared.seed,
    })?;
    failpoint::hit("checkpoint.marked");
    Ok(())
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
    let fate = |entry: &MessageEntry| match dirty.conv.has_erased(&entry.message) {
        true => RewriteAction::BecomesVoid,
        false => RewriteAction::Stays,
    };
    let mut next = Some(0);
    while let Some(from) = next {
        // A message removed between the read and the write would come back.
        let _nothing_is_dropped = shared.cold.rewriting.lock();
        let (voids, rest) = shared.engine.rewritten(&dirty.conv.id, 0..Seq::MAX, from, fate)?;
        shared.engine.ingest(Space::Messages, voids)?;
        next = rest;
    }
    Ok(())
}
