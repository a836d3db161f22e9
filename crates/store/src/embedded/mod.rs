//! The embedded store: one append-only log in front of one engine, in one directory, for one process.
//!
//! # What is where
//!
//! ```text
//! DIR/VERSION                format of the directory; a newer one is refused, an older one marked as this
//! DIR/LOCK                   held while a process has the store open
//! DIR/log/{lsn}.log          segments of the log (`log.rs`): everything since the last checkpoint
//! DIR/engine/                keyspaces of the engine (`engine.rs`), sorted by key:
//!
//!   messages             conversation 0x00 last_seq  → a run of messages, each with how many count as unread up to it (`runs.rs`)
//!   conversations        conversation                → both members' `conversations` and `message_status` rows and
//!                                                      pending row side by side: one read loads them, one write saves them
//!   members              user 0x00 conversation      → (nothing) which conversations a user is in
//!   pending_deliveries   user 0x00 conversation      → first_undelivered_seq, to find a user's rows by
//!   users                user                        → profile, blocks
//!   devices              user 0x00 device            → where it is notified
//!   push_tokens          hash(provider, token)       → user 0x00 device: whose it is
//!   push_outbox          user 0x00 conversation      → the notification that is owed; all of it is in memory too
//!   mutes                user 0x00 conversation      → until when
//!   not_before           user 0x00                   → from when on tokens count
//!   cold_runs            conversation 0x00 last_seq  → the object that holds a run of messages, and how many count as
//!                                                      unread up to its end
//!   attachments          s3_ref                      → what was announced, and whether it is there
//!   attachment_claims    s3_ref 0x00 conversation    → (nothing) which conversations refer to it
//!   unclaimed_attachments  s3_ref                    → (nothing) what no message refers to, oldest first
//!   owned_attachments    user 0x00 s3_ref            → (nothing) what a user announced
//!   upload_usage         user                        → how many bytes of uploads the user is charged for
//!   sent_ids_{n}         hash(conversation, sender, client_msg_id) → seq, ts. One keyspace for each third of the
//!                                                      idempotency window, dropped whole when it is over (R9)
//!   meta                 "checkpoint"                → the last record that is in the engine, the last message_id
//! ```
//!
//! Every value and every log record begins with a version byte.
//!
//! # What happens to a write
//!
//! A caller reads what its write needs to know and hands it to the committer (`committer.rs`), a thread, which
//! decides (seq, duplicate or not, which row to write), appends one record a write to the log, fsyncs once for the
//! group, makes the new rows visible in memory (`hot.rs`) and answers. A second thread (`checkpoint.rs`) brings
//! memory to the engine when the log has grown by `checkpoint_bytes`, and the log lets go of its old segments.
//! Rows that belong to no conversation and to no user's own row, such as devices, go the same way in a file of their
//! own (`rows.rs`).
//! `inbox:{user}` is kept in memory for users who look at it, and rebuilt from `conversations`.

mod attachments;
mod backup;
mod bloom;
mod bytes;
mod checkpoint;
mod cold;
mod committer;
mod devices;
mod engine;
mod memtable;
mod mutes;
mod not_before;
mod push_outbox;
mod rows;
mod runs;
mod scan;
mod sent_ids;
mod state;
mod systems;
mod wal;

use std::{
    fs::{self, File},
    io::{Read, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Instant,
};

use bluetick_protocol::{ClientMsgId, ConversationId, Side, limits};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use xxhash_rust::xxh3::xxh3_128_with_seed;

pub use backup::restore;
pub use scan::{EmbeddedSource, SourceIdentity, Walk};

use self::{
    cold::ColdState,
    committer::{Committer, LingerWaker, WriteOp},
    engine::Engine,
    memtable::Memtable,
    push_outbox::PushOutboxIndex,
    rows::SmallRows,
    state::WalRecord,
    wal::{WAL_DIR, Wal},
};
use crate::{Clock, ColdObjects, Result, StoreError, failpoint};

/// What this version writes into `VERSION`, and the newest it reads.
const DIRECTORY_VERSION: u32 = 5;
/// What names a send: two users with a mark between them, a zero, the side, and the client's id.
const NAME_MAX_BYTES: usize = 2 * limits::USER_ID_MAX_BYTES + 1 + 2 + limits::ID_MAX_BYTES;
/// How far threads in the background give way to others.
const NICE: i32 = 4;
/// Writes that wait for the committer; beyond it callers wait to hand theirs over.
const QUEUE_OPS: usize = 8192;

#[derive(Debug, Clone)]
pub struct EmbeddedConfig {
    pub dir: PathBuf,
    /// How long a `client_msg_id` is remembered (R9).
    pub idempotency_window_ms: u64,
    /// Less free space than this, and sends are refused (R15).
    pub free_space_floor_bytes: u64,
    /// The log may grow by so much before a checkpoint.
    pub checkpoint_bytes: u64,
    /// Memory for the engine's blocks; about as much again goes to rows.
    pub cache_bytes: u64,
    /// The node part of minted message ids.
    pub node: u16,
    /// Where cold messages are, if messages are moved.
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

/// What the committer, the checkpoint and the readers share.
struct StoreCore {
    config: EmbeddedConfig,
    clock: Arc<dyn Clock>,
    engine: Engine,
    memtable: Memtable,
    rows: SmallRows,
    push_outbox: PushOutboxIndex,
    cold: ColdState,
    seed: u64,
    /// How many checkpoints have ended.
    checkpoints: AtomicU64,
    checkpointed_lsn: AtomicU64,
    bell: LingerWaker,
    checkpoint_failing: AtomicBool,
    log_bytes: AtomicU64,
    unflushed: AtomicU64,
    space: Mutex<SpaceCheck>,
    /// Held until the last thread is done with the directory; the operating system lets go of it if the process dies.
    _lock: File,
}

struct SpaceCheck {
    at: Instant,
    free: Option<u64>,
}

impl StoreCore {
    /// Names a send in the idempotency records.
    fn hash(&self, id: &ConversationId, from: Side, client_msg_id: &ClientMsgId) -> u128 {
        let mut name = [0; NAME_MAX_BYTES];
        let (id, client_msg_id) = (id.as_str().as_bytes(), client_msg_id.as_str().as_bytes());
        let (between, end) = (id.len(), id.len() + 2 + client_msg_id.len());
        name[..between].copy_from_slice(id);
        name[between + 1] = from as u8;
        name[between + 2..end].copy_from_slice(client_msg_id);
        xxh3_128_with_seed(&name[..end], self.seed)
    }

    /// Why sends are refused now, if they are. Asks the file system at most every half second.
    fn refusing(&self) -> Option<String> {
        let floor = self.config.free_space_floor_bytes;
        let free = self.free_bytes()?;
        (free < floor).then(|| format!("only {free} bytes are free, and the floor is {floor}"))
    }

    fn free_bytes(&self) -> Option<u64> {
        let mut space = self.space.lock();
        if space.at.elapsed().as_millis() >= 500 {
            space.free = free_space(&self.config.dir);
            space.at = Instant::now();
            metrics::gauge!("bluetick_free_bytes").set(space.free.unwrap_or_default() as f64);
        }
        space.free
    }
}

fn free_space(dir: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    Some(stat.f_bavail * stat.f_frsize)
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
        let rows = (config.cache_bytes / 512) as usize;
        let space = SpaceCheck { at: Instant::now(), free: free_space(&config.dir) };
        let push_outbox = PushOutboxIndex::load(&engine)?;
        let shared = Arc::new(StoreCore {
            clock,
            engine,
            memtable: Memtable::new(rows),
            rows: SmallRows::default(),
            push_outbox,
            cold: ColdState::default(),
            seed: meta.seed,
            checkpoints: AtomicU64::new(0),
            checkpointed_lsn: AtomicU64::new(meta.lsn),
            bell: LingerWaker::default(),
            checkpoint_failing: AtomicBool::new(false),
            log_bytes: AtomicU64::new(0),
            unflushed: AtomicU64::new(0),
            space: Mutex::new(space),
            _lock: lock,
            config,
        });
        let (jobs, jobs_in) = std::sync::mpsc::channel();
        let (done, done_in) = std::sync::mpsc::channel();
        let committer = recover(&shared, meta, jobs, done_in)?;
        shared.push_outbox.make_due(shared.clock.now_ms());
        let (ops, ops_in) = mpsc::channel(QUEUE_OPS);
        let weak = ops.downgrade();
        let (learn_shared, learn_while) = (shared.clone(), ops.downgrade());
        let checkpoint_shared = shared.clone();
        let threads = vec![
            spawn("bluetick-commit", move || committer.run(ops_in))?,
            spawn("bluetick-learn", move || {
                give_way();
                let go_on = || learn_while.upgrade().is_some_and(|ops| !ops.is_closed());
                if let Err(e) = learn_shared.engine.sent_ids.learn(go_on) {
                    tracing::warn!(error = %e, "sends ask the engine for their ids: the filter could not be made");
                }
            })?,
            spawn("bluetick-checkpoint", move || {
                give_way();
                checkpoint::run(checkpoint_shared, jobs_in, done, weak);
            })?,
        ];
        Ok(Embedded { shared, ops, threads: Mutex::new(threads) })
    }

    /// Hands a write to the committer and waits until it is durable.
    async fn ask<T>(&self, op: impl FnOnce(oneshot::Sender<Result<T>>) -> WriteOp) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let closed = || StoreError::unavailable("the store, which is closing,");
        let op = op(reply);
        let is_deferrable = op.is_deferrable();
        self.ops.send(op).await.map_err(|_| closed())?;
        if !is_deferrable {
            self.shared.bell.ring();
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
            // Closed before: nothing is left to do.
            Ok(()) | Err(StoreError::Unavailable { .. }) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

/// Replays the log over the engine's rows.
fn recover(
    shared: &Arc<StoreCore>,
    meta: engine::CheckpointMeta,
    jobs: std::sync::mpsc::Sender<checkpoint::CheckpointJob>,
    done: std::sync::mpsc::Receiver<checkpoint::CheckpointDone>,
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

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(work)
        .map_err(|e| StoreError::Unusable(format!("no thread could be started: {e}")))
}

/// The engine's own threads are begun by one that gives way, and so do they.
fn open_engine(config: &EmbeddedConfig) -> Result<Engine> {
    let open = || {
        give_way();
        Engine::open(&config.dir.join("engine"), config.cache_bytes, config.idempotency_window_ms)
    };
    let opened = std::thread::scope(|scope| scope.spawn(open).join());
    opened.unwrap_or_else(|_| Err(StoreError::Unusable("the engine could not be opened".into())))
}

/// What goes on behind the log leaves the processor to sends and receipts, if not by much: they wait for a group, and a whole turn
/// of the processor is longer than that. But it holds locks that they need, and must not fall far behind.
fn give_way() {
    // Without a number it is the calling thread that is meant, on Linux.
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpriority_process, setpriority_process};
        let lowered = getpriority_process(None).and_then(|now| setpriority_process(None, now + NICE));
        if let Err(e) = lowered {
            tracing::debug!(error = %e, "a background thread keeps its priority");
        }
    }
}

/// A seed from the operating system, never zero.
fn fresh_seed() -> Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|e| StoreError::Unusable(format!("cannot read random bytes: {e}")))?;
    Ok(u64::from_le_bytes(bytes) | 1)
}

/// Makes the directory if there is none, checks its version and locks it. Changes nothing in one that it refuses.
fn claim(dir: &Path) -> Result<File> {
    let fail = |what: &str, e: std::io::Error| {
        StoreError::Unusable(format!("cannot {what} the data directory {}: {e}", dir.display()))
    };
    fs::create_dir_all(dir).map_err(|e| fail("create", e))?;
    read_version(dir)?;
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(dir.join("LOCK"))
        .map_err(|e| fail("lock", e))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            return Err(StoreError::Unusable(format!(
                "the data directory {} is in use by another process; stop that one, or choose another with --data",
                dir.display()
            )));
        }
        Err(fs::TryLockError::Error(e)) => return Err(fail("lock", e)),
    }
    // An older directory is marked before anything is written that an older version would not read.
    if read_version(dir)? != Some(DIRECTORY_VERSION) {
        write_version(dir).map_err(|e| fail("write to", e))?;
        failpoint::hit("first_start.version_written");
    }
    Ok(lock)
}

/// The format of a directory, if it has one and it can be read.
fn read_version(dir: &Path) -> Result<Option<u32>> {
    let path = dir.join("VERSION");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => {
            return Err(StoreError::Unusable(format!("cannot read {}: {e}", path.display())));
        }
    };
    match text.trim().parse::<u32>() {
        Ok(version) if version <= DIRECTORY_VERSION => Ok(Some(version)),
        Ok(version) => Err(StoreError::Unusable(format!(
            "the data directory {} has format {version}, and this version of bluetick reads up to {DIRECTORY_VERSION}; \
             use a newer bluetick",
            dir.display()
        ))),
        Err(_) => Err(StoreError::Unusable(format!("{} holds no version: {text:?}", path.display()))),
    }
}

/// Written aside and renamed: a crash leaves no version or a whole one, never a file that says nothing.
fn write_version(dir: &Path) -> std::io::Result<()> {
    let aside = dir.join("VERSION.new");
    let mut file = File::create(&aside)?;
    failpoint::hit("first_start.version_begun");
    writeln!(file, "{DIRECTORY_VERSION}")?;
    file.sync_all()?;
    fs::rename(&aside, dir.join("VERSION"))?;
    File::open(dir)?.sync_all()
}
