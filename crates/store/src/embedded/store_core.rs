//! The state that the committer, the checkpoint thread and readers share.

use std::{
    fs::File,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Instant,
};

use bluetick_protocol::{ClientMsgId, ConversationId, Side, limits};
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::{
    EmbeddedConfig,
    cold::ColdState,
    committer::LingerWaker,
    conversation::ConversationState,
    data_dir::free_space,
    engine::{CheckpointMeta, Engine},
    memtable::Memtable,
    push_outbox::PushOutboxIndex,
    rows::SmallRows,
};
use crate::{Clock, Result};

/// The longest name of a send: conversation id, zero byte, side, `client_msg_id`.
const NAME_MAX_BYTES: usize = 2 * limits::USER_ID_MAX_BYTES + 1 + 2 + limits::ID_MAX_BYTES;

/// Everything but the write side, which belongs to the committer alone.
pub(super) struct StoreCore {
    pub config: EmbeddedConfig,
    pub clock: Arc<dyn Clock>,
    pub engine: Engine,
    pub memtable: Memtable,
    pub rows: SmallRows,
    pub push_outbox: PushOutboxIndex,
    pub cold: ColdState,
    /// The seed of the hashes in `sent_ids` and `push_tokens`.
    pub seed: u64,
    /// Checkpoints that have finished since the start.
    pub checkpoints: AtomicU64,
    /// Every record up to this one is in the engine.
    pub checkpointed_lsn: AtomicU64,
    pub linger_waker: LingerWaker,
    /// The last attempt to write a checkpoint failed.
    pub checkpoint_failing: AtomicBool,
    pub log_bytes: AtomicU64,
    /// Messages that only the log and the memtable hold.
    pub unflushed: AtomicU64,
    space: Mutex<SpaceCheck>,
    /// Held until the last thread is done with the directory. The operating system releases it if
    /// the process dies.
    _lock: File,
}

struct SpaceCheck {
    at: Instant,
    free: Option<u64>,
}

impl StoreCore {
    pub(super) fn new(
        config: EmbeddedConfig,
        clock: Arc<dyn Clock>,
        engine: Engine,
        meta: CheckpointMeta,
        lock: File,
    ) -> Result<StoreCore> {
        let cached_rows = (config.cache_bytes / 512) as usize;
        let space = SpaceCheck { at: Instant::now(), free: free_space(&config.dir) };
        Ok(StoreCore {
            push_outbox: PushOutboxIndex::load(&engine)?,
            clock,
            engine,
            memtable: Memtable::new(cached_rows),
            rows: SmallRows::default(),
            cold: ColdState::default(),
            seed: meta.seed,
            checkpoints: AtomicU64::new(0),
            checkpointed_lsn: AtomicU64::new(meta.lsn),
            linger_waker: LingerWaker::default(),
            checkpoint_failing: AtomicBool::new(false),
            log_bytes: AtomicU64::new(0),
            unflushed: AtomicU64::new(0),
            space: Mutex::new(space),
            _lock: lock,
            config,
        })
    }

    /// The name of a send in the idempotency records.
    pub(super) fn hash(&self, id: &ConversationId, from: Side, client_msg_id: &ClientMsgId) -> u128 {
        let mut name = [0; NAME_MAX_BYTES];
        let (id, client_msg_id) = (id.as_str().as_bytes(), client_msg_id.as_str().as_bytes());
        let (between, end) = (id.len(), id.len() + 2 + client_msg_id.len());
        name[..between].copy_from_slice(id);
        name[between + 1] = from as u8;
        name[between + 2..end].copy_from_slice(client_msg_id);
        xxh3_128_with_seed(&name[..end], self.seed)
    }

    /// A conversation's state as it is durable now.
    pub(super) fn conv(&self, id: &ConversationId) -> Result<Option<Arc<ConversationState>>> {
        self.memtable.conv(&self.engine, id)
    }

    /// Why sends are refused now, if they are. Asks the file system at most twice a second.
    pub(super) fn refusing(&self) -> Option<String> {
        let floor = self.config.free_space_floor_bytes;
        let free = self.free_bytes()?;
        (free < floor).then(|| format!("only {free} bytes are free, and the floor is {floor}"))
    }

    pub(super) fn free_bytes(&self) -> Option<u64> {
        let mut space = self.space.lock();
        if space.at.elapsed().as_millis() >= 500 {
            space.free = free_space(&self.config.dir);
            space.at = Instant::now();
            metrics::gauge!("bluetick_free_bytes").set(space.free.unwrap_or_default() as f64);
        }
        space.free
    }
}
