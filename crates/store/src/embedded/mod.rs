//! The embedded store: a write-ahead log in front of an LSM engine, in one directory, for one
//! process.
//!
//! Every write goes to the log and to the memtable; a checkpoint flushes the memtable to the engine
//! in the background. The engine's own journal is not used: the log is the journal
//! (`docs/decisions/0001-own-log.md` and `0002-engine-by-ingestion.md` say why).
//!
//! # Files
//!
//! ```text
//! DIR/VERSION          format of the directory; a newer one is refused, an older one is marked as this
//! DIR/LOCK             locked while a process has the store open
//! DIR/log/{lsn}.log    segments of the write-ahead log: every record since the last checkpoint
//! DIR/engine/          the engine (fjall), with the keyspaces below
//! ```
//!
//! # Keyspaces
//!
//! Keys are sorted bytes; `·` is a zero byte, which no id contains. Every value and every log
//! record begins with a version byte.
//!
//! | keyspace | key | value | lifetime |
//! | --- | --- | --- | --- |
//! | `messages` | conversation · last seq (8 bytes, big endian) | a run of consecutive messages, each with both members' unread counters (`runs.rs`) | until moved to the cold tier; erased messages become voids |
//! | `conversations` | conversation | both members' `conversations`, `message_status` and pending rows: one read loads them, one write saves them (`conversation.rs`) | for ever |
//! | `members` | user · conversation | empty: the conversations a user is in | until the member is erased |
//! | `pending_deliveries` | user · conversation | first undelivered seq, an index over `conversations` | until all is acked |
//! | `users` | user | profile and blocks (`user_row.rs`) | until the user is erased |
//! | `devices` | user · device | push registration | until it is unregistered |
//! | `push_tokens` | hash(provider, token) | user · device: the owner of the token | as its device |
//! | `push_outbox` | user · conversation | the notification that is owed; all rows are in memory too | until it is sent |
//! | `mutes` | user · conversation | when the mute ends, if it does | until it is removed |
//! | `not_before` | user · | the time before which the user's tokens are revoked | for ever |
//! | `cold_runs` | conversation · last seq | the object that holds a run of cold messages, and the unread counters at its end | for ever |
//! | `attachments` | s3_ref | what was announced, and the state of the upload | until it is collected |
//! | `attachment_claims` | s3_ref · conversation | empty: a conversation refers to the attachment | as the attachment |
//! | `unclaimed_attachments` | s3_ref | empty: no message refers to it yet; oldest first | until it is claimed or collected |
//! | `owned_attachments` | user · s3_ref | empty: the user announced it | as the attachment |
//! | `upload_usage` | user | bytes of uploads that the user is charged for | while there are any |
//! | `sent_ids_{n}` | hash(conversation, sender, client_msg_id) | seq and time of the send (R9) | one keyspace for each third of the idempotency window, dropped whole when it is over |
//! | `meta` | "checkpoint" | the last lsn and message id that the engine has; the seed of all hashes | one row |
//!
//! The inbox order (`inbox:{user}`) is not stored: it is kept in memory for users who read it and
//! rebuilt from `conversations`.
//!
//! # Where to read, in the order of a send
//!
//! | file | holds |
//! | --- | --- |
//! | `send.rs` | the caller's side: duplicate lookup, implied read, answer. Its comment lists the forms of a message |
//! | `sent_ids.rs`, `bloom.rs` | idempotency records in the engine, and the Bloom filter in front of them |
//! | `committer.rs`, `committer/` | the writing thread: batching, decisions, group commit |
//! | `entry.rs`, `record.rs`, `bytes.rs` | the stored message, the log records and their encoding |
//! | `conversation.rs`, `user_row.rs` | the state of a conversation and of a user, and how a record changes it |
//! | `wal.rs`, `wal/` | the write-ahead log: segments, groups, replay |
//! | `memtable.rs`, `memtable/` | what is durable and not yet in the engine; reads; the inbox order |
//! | `checkpoint.rs` | the flushing thread: the frozen memtable goes to the engine, then old segments go |
//! | `engine.rs`, `runs.rs` | the keyspaces, and runs of messages in them |
//! | `rows.rs` | small rows (devices, mutes, …) and transactions over them |
//! | `messages.rs`, `receipts.rs`, `conversations.rs`, `users.rs`, `devices.rs`, `mutes.rs`, `not_before.rs`, `push_outbox.rs`, `attachments.rs`, `cold.rs`, `maintenance.rs` | the store's traits, one file for each system |
//! | `backup.rs`, `scan.rs`, `data_dir.rs`, `store_core.rs` | backup and restore; export; the directory; shared state |

mod attachments;
mod backup;
mod bloom;
mod bytes;
mod checkpoint;
mod cold;
mod committer;
mod conversation;
mod conversations;
mod data_dir;
mod devices;
mod engine;
mod entry;
mod maintenance;
mod memtable;
mod messages;
mod mutes;
mod not_before;
mod push_outbox;
mod receipts;
mod record;
mod rows;
mod runs;
mod scan;
mod send;
mod sent_ids;
mod store_core;
mod user_row;
mod users;
mod wal;

use std::{
    path::PathBuf,
    sync::{Arc, mpsc as sync_mpsc},
};

use bluetick_protocol::limits;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

pub use backup::restore;
pub use scan::{EmbeddedSource, SourceIdentity, Walk};

use self::{
    checkpoint::{CheckpointDone, CheckpointJob},
    committer::{Committer, WriteOp},
    data_dir::{claim, fresh_seed},
    engine::{CheckpointMeta, Engine},
    record::WalRecord,
    store_core::StoreCore,
    wal::{WAL_DIR, Wal},
};
use crate::{Clock, ColdObjects, Result, StoreError, failpoint};

/// By how much background threads lower their priority.
const NICE: i32 = 4;
/// Operations that wait for the committer. Beyond it callers wait to hand theirs over.
const QUEUE_OPS: usize = 8192;

#[derive(Debug, Clone)]
pub struct EmbeddedConfig {
    pub dir: PathBuf,
    /// How long a `client_msg_id` is remembered (R9).
    pub idempotency_window_ms: u64,
    /// Sends are refused when less space than this is free (R15).
    pub free_space_floor_bytes: u64,
    /// The log grows by this much between checkpoints.
    pub checkpoint_bytes: u64,
    /// The engine's block cache; about as much again goes to cached rows.
    pub cache_bytes: u64,
    /// The node part of minted message ids.
    pub node: u16,
    /// Where cold messages are, if the cold tier is on.
    pub objects: Option<Arc<ColdObjects>>,
}

impl EmbeddedConfig {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        EmbeddedConfig {
            dir: dir.into(),
            idempotency_window_ms: 30 * 24 * 3600 * 1000,
            free_space_floor_bytes: 256 * 1024 * 1024,
            checkpoint_bytes: 64 * 1024 * 1024,
            cache_bytes: 64 * 1024 * 1024,
            node: 0,
            objects: None,
        }
    }
}

pub(crate) struct Embedded {
    shared: Arc<StoreCore>,
    ops: mpsc::Sender<WriteOp>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

impl Embedded {
    pub(crate) fn open(config: EmbeddedConfig, clock: Arc<dyn Clock>) -> Result<Embedded> {
        let lock = claim(&config.dir)?;
        let engine = open_engine(&config)?;
        let mut meta = engine.meta()?;
        if meta.seed == 0 {
            failpoint::hit("first_start.engine_made");
            meta.seed = fresh_seed()?;
            engine.put_meta(meta)?;
            failpoint::hit("first_start.seed_drawn");
        }
        let shared = Arc::new(StoreCore::new(config, clock, engine, meta, lock)?);
        let (jobs, jobs_in) = sync_mpsc::channel();
        let (done, done_in) = sync_mpsc::channel();
        let committer = recover(&shared, meta, jobs, done_in)?;
        shared.push_outbox.make_due(shared.clock.now_ms());
        let (ops, ops_in) = mpsc::channel(QUEUE_OPS);
        let threads = vec![
            spawn("bluetick-commit", move || committer.run(ops_in))?,
            spawn_filter_builder(shared.clone(), ops.downgrade())?,
            spawn_checkpoints(shared.clone(), jobs_in, done, ops.downgrade())?,
        ];
        Ok(Embedded { shared, ops, threads: Mutex::new(threads) })
    }

    /// Hands an operation to the committer and waits until it is durable.
    async fn ask<T>(&self, op: impl FnOnce(oneshot::Sender<Result<T>>) -> WriteOp) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let closed = || StoreError::unavailable("the store, which is closing,");
        let op = op(reply);
        let is_deferrable = op.is_deferrable();
        self.ops.send(op).await.map_err(|_| closed())?;
        if !is_deferrable {
            self.shared.linger_waker.wake();
        }
        answer.await.map_err(|_| closed())?
    }

    /// Runs a read that may touch the disk off the async threads.
    async fn blocking<T: Send + 'static>(
        &self,
        read: impl FnOnce(&StoreCore) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || read(&shared))
            .await
            .unwrap_or_else(|e| Err(StoreError::Corrupt(format!("a read of the store failed: {e}"))))
    }

    async fn shut(&self) -> Result<()> {
        let closed = self.ask(WriteOp::Close).await;
        let threads = std::mem::take(&mut *self.threads.lock());
        let joined = tokio::task::spawn_blocking(move || threads.into_iter().all(|t| t.join().is_ok())).await;
        match closed {
            Ok(()) if joined.unwrap_or(false) => Ok(()),
            // It was closed before.
            Ok(()) | Err(StoreError::Unavailable { .. }) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

/// Replays the log over the engine's rows.
fn recover(
    shared: &Arc<StoreCore>,
    meta: CheckpointMeta,
    jobs: sync_mpsc::Sender<CheckpointJob>,
    done: sync_mpsc::Receiver<CheckpointDone>,
) -> Result<Committer> {
    let mut records = Vec::new();
    let wal = Wal::open(
        &shared.config.dir.join(WAL_DIR),
        segment_bytes(&shared.config),
        meta.seed as u32,
        meta.lsn + 1,
        |lsn, bytes| {
            if lsn > meta.lsn {
                records.push((lsn, WalRecord::decode(bytes)?, bytes.len()));
            }
            Ok(())
        },
    )?;
    if let Some(&(first, ..)) = records.first()
        && first > meta.lsn + 1
    {
        return Err(StoreError::Corrupt(format!(
            "the log begins at record {first}, but the engine ends at {}; restore from a backup",
            meta.lsn
        )));
    }
    let replayed = records.len();
    let mut committer = Committer::new(shared.clone(), wal, meta.last_message_id, jobs, done);
    for (lsn, record, bytes) in records {
        committer.replay(lsn, record, bytes)?;
    }
    committer.replayed();
    if replayed > 0 {
        tracing::info!(records = replayed, "replayed the log");
    }
    Ok(committer)
}

fn segment_bytes(config: &EmbeddedConfig) -> u64 {
    config.checkpoint_bytes.max(4 * limits::BODY_HARD_MAX_BYTES as u64)
}

/// Builds the Bloom filters of the idempotency records that the engine holds. Until it is done,
/// sends ask the engine.
fn spawn_filter_builder(
    shared: Arc<StoreCore>,
    ops: mpsc::WeakSender<WriteOp>,
) -> Result<std::thread::JoinHandle<()>> {
    spawn("bluetick-bloom", move || {
        lower_priority();
        let is_open = || ops.upgrade().is_some_and(|ops| !ops.is_closed());
        if let Err(e) = shared.engine.sent_ids.build_filters(is_open) {
            tracing::warn!(error = %e, "no bloom filter for idempotency records; every send asks the engine");
        }
    })
}

fn spawn_checkpoints(
    shared: Arc<StoreCore>,
    jobs: sync_mpsc::Receiver<CheckpointJob>,
    done: sync_mpsc::Sender<CheckpointDone>,
    ops: mpsc::WeakSender<WriteOp>,
) -> Result<std::thread::JoinHandle<()>> {
    spawn("bluetick-checkpoint", move || {
        lower_priority();
        checkpoint::run(shared, jobs, done, ops);
    })
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(work)
        .map_err(|e| StoreError::Unusable(format!("cannot start a thread: {e}")))
}

/// Opens the engine in a thread of low priority, which the engine's own threads inherit.
fn open_engine(config: &EmbeddedConfig) -> Result<Engine> {
    let open = || {
        lower_priority();
        Engine::open(&config.dir.join("engine"), config.cache_bytes, config.idempotency_window_ms)
    };
    let opened = std::thread::scope(|scope| scope.spawn(open).join());
    opened.unwrap_or_else(|_| Err(StoreError::Unusable("the engine could not be opened".into())))
}

/// Leaves the processor to sends and receipts: they wait for a group, and a time slice of
/// background work is longer than that. Only a little: the background holds locks that they need,
/// and must not fall far behind.
fn lower_priority() {
    // On Linux, no process id means the calling thread.
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpriority_process, setpriority_process};
        let lowered = getpriority_process(None).and_then(|now| setpriority_process(None, now + NICE));
        if let Err(e) = lowered {
            tracing::debug!(error = %e, "a background thread keeps its priority");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::engine::Space;

    #[test]
    fn the_module_comment_lists_every_keyspace() {
        let comment: Vec<&str> =
            include_str!("mod.rs").lines().take_while(|line| line.starts_with("//!")).collect();
        for name in Space::ALL.map(Space::name).into_iter().chain(["sent_ids_{n}"]) {
            let row = format!("//! | `{name}` |");
            assert_eq!(comment.iter().filter(|line| line.starts_with(&row)).count(), 1, "{name}");
        }
    }
}
