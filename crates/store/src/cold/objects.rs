//! Writes and reads the objects of the cold tier. An object is written once and read back; reads
//! are by range, through a bounded cache.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bluetick_protocol::{ConversationId, Seq};
use quick_cache::{Weighter, sync::Cache};
use sha2::{Digest as _, Sha256};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::{
    ColdRun,
    format::{self, Damage, Index},
};
use crate::{Message, ObjectInfo, Objects, Result, StoreError};

/// The prefix of the cold tier's keys.
const UNDER: &str = "cold";
/// How often a run is looked up again that was rewritten during a read.
const TRIES: usize = 5;

#[derive(Debug, Clone, Copy)]
pub struct ColdConfig {
    /// The size of the block cache.
    pub cache_bytes: u64,
}

impl Default for ColdConfig {
    fn default() -> Self {
        ColdConfig { cache_bytes: 32 * 1024 * 1024 }
    }
}

/// An object's index, or one of its blocks by position.
type CacheKey = (Arc<str>, u32);
const INDEX: u32 = u32::MAX;

#[derive(Clone)]
enum Cached {
    Index(Arc<Index>),
    Block(Arc<[Arc<Message>]>),
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<CacheKey, Cached> for ByBytes {
    fn weight(&self, key: &CacheKey, value: &Cached) -> u64 {
        let value = match value {
            Cached::Index(index) => size_of::<Index>() + index.blocks.len() * size_of::<format::Block>(),
            Cached::Block(messages) => messages.iter().map(|m| m.weight()).sum(),
        };
        (key.0.len() + 64 + value) as u64
    }
}

impl std::fmt::Debug for ColdObjects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cold{:?}", self.objects)
    }
}

pub struct ColdObjects {
    objects: Objects,
    cache: Cache<CacheKey, Cached, ByBytes>,
    /// A random id of this process, and a counter: together they make object keys unique.
    salt: u64,
    written: AtomicU64,
}

impl ColdObjects {
    pub fn new(objects: Objects, config: ColdConfig) -> ColdObjects {
        let blocks = (config.cache_bytes / (64 * 1024)).max(16) as usize;
        ColdObjects {
            objects,
            cache: Cache::with_weighter(blocks, config.cache_bytes, ByBytes),
            salt: RandomState::new().hash_one(0),
            written: AtomicU64::new(0),
        }
    }

    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// The objects of a store that has runs; an error if no object store is configured.
    pub fn needed(objects: Option<&ColdObjects>) -> Result<&ColdObjects> {
        objects.ok_or_else(|| {
            StoreError::Unusable(
                "messages of this store are in cold objects, and no object store is set up; set [objects]"
                    .into(),
            )
        })
    }

    /// The messages that `wanted` selects from the run, by first and last seq, and the run itself.
    /// `None` if there is no run.
    pub async fn read_at<R, F>(
        objects: Option<&ColdObjects>,
        look_up: impl Fn() -> F + Send,
        wanted: impl Fn(&ColdRun) -> (Seq, Seq) + Send,
    ) -> Result<Option<(R, Vec<Arc<Message>>)>>
    where
        R: AsRef<ColdRun> + PartialEq + Send,
        F: Future<Output = Result<Option<R>>> + Send,
    {
        let (mut tried, mut failed) = (None, None);
        for _ in 0..TRIES {
            let Some(found) = look_up().await? else { return failed.map_or(Ok(None), Err) };
            if tried.as_ref() == Some(&found) {
                break;
            }
            let (from, up_to) = wanted(found.as_ref());
            match Self::needed(objects)?.read(found.as_ref(), from, up_to).await {
                Ok(messages) if messages.len() as u64 == up_to - from + 1 => {
                    return Ok(Some((found, messages)));
                }
                Ok(_) => {
                    failed = Some(damaged(found.as_ref(), &format!("it lacks some of {from} to {up_to}")))
                }
                // The object may have been replaced since the row was read: read the row again.
                Err(error) => failed = Some(error),
            }
            tried = Some(found);
        }
        let again = || StoreError::unavailable("a cold object that is rewritten again and again");
        Err(failed.unwrap_or_else(again))
    }

    /// Writes consecutive messages of one conversation into an object and reads it back. Keys are
    /// unique to a writer, so an orphaned object may be deleted once it is old.
    pub async fn write(&self, messages: &[Arc<Message>]) -> Result<ColdRun> {
        let (Some(first), Some(last)) = (messages.first(), messages.last()) else {
            return Err(StoreError::Unsupported("a cold object without messages".into()));
        };
        let consecutive = (first.seq..)
            .zip(messages)
            .all(|(seq, m)| m.seq == seq && m.conversation_id == first.conversation_id);
        if !consecutive {
            return Err(StoreError::Corrupt(format!(
                "messages of {} to be packed lack one",
                first.conversation_id
            )));
        }
        let to_pack = messages.to_vec();
        let (object, index_bytes) = blocking(move || format::pack(&to_pack)).await?.map_err(|e| {
            StoreError::Corrupt(format!("messages of {} cannot be packed: {e}", first.conversation_id))
        })?;
        let run = ColdRun {
            conversation_id: first.conversation_id.clone(),
            first_seq: first.seq,
            last_seq: last.seq,
            object: format!(
                "{}/{:012}-{:012}-{:032x}",
                place_of(&first.conversation_id),
                first.seq,
                last.seq,
                xxh3_128_with_seed(
                    &object,
                    self.salt.wrapping_add(self.written.fetch_add(1, Ordering::Relaxed))
                )
            ),
            bytes: object.len() as u64,
            index_bytes,
            first_ts: first.ts,
            last_ts: last.ts,
            least_id: messages.iter().map(|m| m.message_id).min().unwrap_or(first.message_id),
            greatest_id: messages.iter().map(|m| m.message_id).max().unwrap_or(last.message_id),
        };
        if !self.objects.put_new(&run.object, object.into()).await? {
            return Err(damaged(&run, "it is there already, and nobody wrote it"));
        }
        crate::failpoint::hit("cold.object_written");
        let read_back = self.read_whole(&run).await?;
        if read_back != messages {
            return Err(damaged(&run, "it does not hold what was written"));
        }
        crate::failpoint::hit("cold.object_verified");
        Ok(run)
    }

    /// The messages of a run between two seqs, both included, as far as the run has them.
    pub async fn read(&self, run: &ColdRun, from: Seq, up_to: Seq) -> Result<Vec<Arc<Message>>> {
        let object: Arc<str> = run.object.as_str().into();
        let index = self.index(run, &object).await?;
        let mut messages = Vec::new();
        for (place, block) in index.blocks.iter().enumerate() {
            if block.last_seq() < from || block.first_seq > up_to {
                continue;
            }
            let key = (object.clone(), place as u32);
            let read = async {
                let bytes = self.bytes(run, block.at, block.bytes).await?;
                let (index, block) = (index.clone(), block.clone());
                let messages = blocking(move || format::read_block(&index, &block, &bytes)).await?;
                let messages = messages.map_err(|Damage(why)| damaged(run, &why))?;
                Ok::<_, StoreError>(Cached::Block(messages.into()))
            };
            if let Cached::Block(block) = self.cache.get_or_insert_async(&key, read).await? {
                messages.extend(block.iter().filter(|m| (from..=up_to).contains(&m.seq)).cloned());
            }
        }
        Ok(messages)
    }

    /// All messages of a run's object, read past the cache and checked.
    pub async fn read_whole(&self, run: &ColdRun) -> Result<Vec<Arc<Message>>> {
        let bytes = self.bytes(run, 0, run.bytes).await?;
        let unpacked = blocking(move || format::unpack(&bytes)).await?;
        let (index, messages) = unpacked.map_err(|Damage(why)| damaged(run, &why))?;
        check_index(run, &index)?;
        Ok(messages)
    }

    /// All messages of an orphaned object.
    pub async fn read_unnamed(&self, object: &ObjectInfo) -> Result<Vec<Arc<Message>>> {
        let damaged = |why: &str| StoreError::Damaged { object: object.key.clone(), why: why.to_owned() };
        let bytes = self.objects.read(&object.key, 0..object.bytes).await?;
        let bytes = bytes.ok_or_else(|| damaged("it is missing"))?;
        let unpacked = blocking(move || format::unpack(&bytes)).await?;
        unpacked.map(|(_, messages)| messages).map_err(|Damage(why)| damaged(&why))
    }

    /// Deletes an orphaned object.
    pub async fn delete(&self, object: &str) -> Result<()> {
        let key: Arc<str> = object.into();
        if let Some(Cached::Index(index)) = self.cache.get(&(key.clone(), INDEX)) {
            for place in 0..index.blocks.len() as u32 {
                self.cache.remove(&(key.clone(), place));
            }
            self.cache.remove(&(key.clone(), INDEX));
        }
        self.objects.delete(object).await
    }

    /// Every object of a conversation, orphaned ones included.
    pub async fn list(&self, conversation: &ConversationId) -> Result<Vec<ObjectInfo>> {
        self.objects.list(&place_of(conversation)).await
    }

    /// Whether two objects of a conversation begin with the same seq, by their keys.
    pub fn begin_alike(a: &str, b: &str) -> bool {
        let first_seq =
            |key: &str| key.rsplit('/').next().and_then(|name| name.split('-').next()).map(str::to_owned);
        first_seq(a) == first_seq(b)
    }

    async fn index(&self, run: &ColdRun, object: &Arc<str>) -> Result<Arc<Index>> {
        let key = (object.clone(), INDEX);
        let read = async {
            let at = run.bytes.saturating_sub(run.index_bytes);
            let end = self.bytes(run, at, run.index_bytes).await?;
            let index = format::read_index(&end, run.bytes).map_err(|Damage(why)| damaged(run, &why))?;
            check_index(run, &index)?;
            Ok::<_, StoreError>(Cached::Index(Arc::new(index)))
        };
        match self.cache.get_or_insert_async(&key, read).await? {
            Cached::Index(index) => Ok(index),
            Cached::Block(_) => Err(damaged(run, "its index was taken for a block")),
        }
    }

    async fn bytes(&self, run: &ColdRun, at: u64, length: u64) -> Result<bytes::Bytes> {
        metrics::counter!("bluetick_cold_reads_total").increment(1);
        metrics::counter!("bluetick_cold_read_bytes_total").increment(length);
        let bytes = self.objects.read(&run.object, at..at + length).await?;
        let bytes = bytes.ok_or_else(|| damaged(run, "it is missing"))?;
        match bytes.len() as u64 == length {
            true => Ok(bytes),
            false => Err(damaged(run, "it is shorter than it should be")),
        }
    }
}

impl AsRef<ColdRun> for ColdRun {
    fn as_ref(&self) -> &ColdRun {
        self
    }
}

/// The folder of a conversation's objects: a hash, which spreads the keys and names nobody. It is
/// collision-resistant, so an object in it that no run of the conversation names is orphaned.
fn place_of(conversation: &ConversationId) -> String {
    let hash = Sha256::digest(conversation.as_str().as_bytes());
    let name: String = hash[..20].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{UNDER}/{name}")
}

fn check_index(run: &ColdRun, index: &Index) -> Result<()> {
    let last = index.blocks.last().map_or(0, |block| block.last_seq());
    match (&index.conversation, index.first_seq, last) == (&run.conversation_id, run.first_seq, run.last_seq)
    {
        true => Ok(()),
        false => Err(damaged(run, "it holds other messages than it should")),
    }
}

fn damaged(run: &ColdRun, why: &str) -> StoreError {
    StoreError::Damaged {
        object: run.object.clone(),
        why: format!("messages {} to {} of {}: {why}", run.first_seq, run.last_seq, run.conversation_id),
    }
}

/// Runs CPU-heavy work, such as compression, off the async threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| StoreError::Corrupt(format!("the task that packs or unpacks a cold object failed: {e}")))
}
