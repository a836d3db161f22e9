//! Idempotency records (R9): one keyspace for each third of the window, dropped whole when its time
//! is over.
//!
//! Nearly every send asks for an id that does not exist, so each keyspace has a Bloom filter in
//! memory. It is rebuilt in the background after a start; until it is complete, lookups go to the
//! engine.

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bluetick_protocol::Seq;
use fjall::{
    Database, Keyspace, KeyspaceCreateOptions,
    compaction::Leveled,
    config::{BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry},
};
use parking_lot::RwLock;

use super::{
    bloom::BloomFilter,
    bytes::{ByteReader, put_u64},
    engine::{EngineChange, broken, ingest_into},
};
use crate::{Result, StoreError};

const PREFIX: &str = "sent_ids_";
/// Sorted runs in level 0 before a compaction.
const COMPACTION_RUNS: u8 = 24;
/// Ids added to a filter between two checks whether the store is still open.
const FILTER_BATCH: usize = 50_000;

pub(super) struct SentIds {
    db: Database,
    buckets: RwLock<BTreeMap<u64, Arc<SentIdBucket>>>,
    bucket_ms: u64,
    window_ms: u64,
}

/// One of the looked-up ids that has a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KnownId {
    pub index: usize,
    pub seq: Seq,
    ts: u64,
}

struct SentIdBucket {
    space: Keyspace,
    filter: BloomFilter,
    /// The filter has every id of the keyspace. Until then it denies nothing.
    filter_is_complete: AtomicBool,
}

impl SentIdBucket {
    /// The indices of the hashes that may be in this keyspace.
    fn may_have(&self, hashes: &[u128]) -> Vec<usize> {
        match self.filter_is_complete.load(Ordering::Acquire) {
            true => self.filter.may_contain(hashes),
            false => (0..hashes.len()).collect(),
        }
    }
}

impl SentIds {
    pub(super) fn open(db: Database, window_ms: u64) -> Result<SentIds> {
        let mut buckets = BTreeMap::new();
        for name in db.list_keyspace_names() {
            if let Some(bucket) = number_of(&name) {
                let space = db.keyspace(&name, options).map_err(broken)?;
                let filter_is_complete = AtomicBool::new(false);
                buckets.insert(
                    bucket,
                    Arc::new(SentIdBucket { space, filter: BloomFilter::default(), filter_is_complete }),
                );
            }
        }
        let bucket_ms = (window_ms / 3).max(1);
        Ok(SentIds { db, buckets: RwLock::new(buckets), bucket_ms, window_ms })
    }

    /// The seq that an id got within the window, and when.
    pub(super) fn record(&self, hash: u128, now_ms: u64) -> Result<Option<(Seq, u64)>> {
        Ok(self.records(&[hash], now_ms)?.pop().map(|known| (known.seq, known.ts)))
    }

    /// The same for several hashes: an item for each that has a record.
    pub(super) fn records(&self, hashes: &[u128], now_ms: u64) -> Result<Vec<KnownId>> {
        let oldest = now_ms.saturating_sub(self.window_ms);
        let mut known = Vec::new();
        for bucket in self.buckets.read().range(oldest / self.bucket_ms..).map(|(_, bucket)| bucket) {
            for place in bucket.may_have(hashes) {
                if let Some(bytes) = bucket.space.get(hashes[place].to_be_bytes()).map_err(broken)? {
                    let r = &mut ByteReader(&bytes);
                    let (seq, ts) = (r.u64()?, r.u64()?);
                    if ts >= oldest {
                        known.push(KnownId { index: place, seq, ts });
                    }
                }
            }
        }
        Ok(known)
    }

    /// Writes records, each to the keyspace of its time, and drops the keyspaces that are past the
    /// window.
    pub(super) fn ingest(&self, ids: impl Iterator<Item = (u128, Seq, u64)>, now_ms: u64) -> Result<()> {
        let mut by_bucket: BTreeMap<u64, Vec<(u128, Seq, u64)>> = BTreeMap::new();
        for id in ids {
            by_bucket.entry(id.2 / self.bucket_ms).or_default().push(id);
        }
        for (bucket, mut ids) in by_bucket {
            ids.sort_unstable_by_key(|&(hash, ..)| hash);
            let bucket = self.bucket(bucket)?;
            // Before the engine has them: an id that the filter denies must not be there.
            ids.iter().for_each(|&(hash, ..)| bucket.filter.insert(hash));
            let mut ingestion = bucket.space.start_ingestion().map_err(broken)?;
            let mut value = Vec::with_capacity(20);
            for (hash, seq, ts) in ids {
                put_u64(&mut value, seq);
                put_u64(&mut value, ts);
                ingestion.write(hash.to_be_bytes(), value.as_slice()).map_err(broken)?;
                value.clear();
            }
            ingestion.finish().map_err(broken)?;
        }
        let oldest = now_ms.saturating_sub(self.window_ms) / self.bucket_ms;
        let expired: Vec<u64> = self.buckets.read().range(..oldest).map(|(n, _)| *n).collect();
        for bucket in expired {
            let bucket = self.buckets.write().remove(&bucket);
            if let Some(bucket) = bucket {
                self.db.delete_keyspace(bucket.space.clone()).map_err(broken)?;
            }
        }
        Ok(())
    }

    /// Fills the filters with the ids that were there at the start, as long as `is_open` says so.
    pub(super) fn build_filters(&self, is_open: impl Fn() -> bool) -> Result<()> {
        let buckets: Vec<Arc<SentIdBucket>> = self.buckets.read().values().cloned().collect();
        for bucket in buckets.iter().filter(|bucket| !bucket.filter_is_complete.load(Ordering::Acquire)) {
            let mut from = Bound::Unbounded;
            // A part at a time: a long scan would keep the engine from freeing old versions of
            // rows.
            loop {
                if !is_open() {
                    return Ok(());
                }
                let mut last = None;
                for item in bucket.space.range::<[u8; 16], _>((from, Bound::Unbounded)).take(FILTER_BATCH) {
                    let key = item.key().map_err(broken)?;
                    let hash: [u8; 16] = (*key)
                        .try_into()
                        .map_err(|_| StoreError::Corrupt("a key in sent_ids is not a hash".into()))?;
                    bucket.filter.insert(u128::from_be_bytes(hash));
                    last = Some(hash);
                }
                match last {
                    Some(hash) => from = Bound::Excluded(hash),
                    None => break,
                }
            }
            bucket.filter_is_complete.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// The keyspaces with their names.
    pub(super) fn spaces(&self) -> Vec<(String, Keyspace)> {
        let buckets = self.buckets.read();
        buckets.iter().map(|(n, bucket)| (format!("{PREFIX}{n}"), bucket.space.clone())).collect()
    }

    /// Fills a keyspace of a new engine with sorted rows, for a restore. The engine must be
    /// reopened afterwards.
    pub(super) fn fill(&self, name: &str, changes: Vec<EngineChange>) -> Result<()> {
        let number =
            number_of(name).ok_or_else(|| StoreError::Corrupt(format!("there is no keyspace {name:?}")))?;
        let bucket = self.bucket(number)?;
        bucket.filter_is_complete.store(false, Ordering::Release);
        ingest_into(&bucket.space, changes)
    }

    fn bucket(&self, number: u64) -> Result<Arc<SentIdBucket>> {
        if let Some(bucket) = self.buckets.read().get(&number) {
            return Ok(bucket.clone());
        }
        let space = self.db.keyspace(&format!("{PREFIX}{number}"), options).map_err(broken)?;
        // A new keyspace is empty, unless it could not be deleted earlier and the clock went back.
        let filter_is_complete = AtomicBool::new(space.is_empty().map_err(broken)?);
        let bucket = Arc::new(SentIdBucket { space, filter: BloomFilter::default(), filter_is_complete });
        self.buckets.write().insert(number, bucket.clone());
        Ok(bucket)
    }
}

fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

fn options() -> KeyspaceCreateOptions {
    // The engine's own Bloom filter serves the false positives of ours, and lookups until ours is
    // complete.
    let bloom = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(12.0));
    // Hashes are spread evenly, so every compaction rewrites the whole keyspace, and hardly any
    // read gains from it: compact rarely.
    let strategy = Leveled::default().with_l0_threshold(COMPACTION_RUNS);
    KeyspaceCreateOptions::default()
        .filter_policy(FilterPolicy::all(bloom))
        .compaction_strategy(Arc::new(strategy))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 3_000;

    fn open(dir: &std::path::Path) -> SentIds {
        SentIds::open(Database::builder(dir).open().unwrap(), WINDOW).unwrap()
    }

    fn is_filter_is_complete(ids: &SentIds) -> bool {
        ids.buckets.read().values().all(|bucket| bucket.filter_is_complete.load(Ordering::Acquire))
    }

    #[test]
    fn ids_are_found_before_and_after_their_filter_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let hash = |n: u128| n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let records: Vec<_> = (0..500u64).map(|n| (hash(n.into()), n + 1, 1_000 + n * 4)).collect();
        let check = |ids: &SentIds| {
            for &(hash, seq, ts) in &records {
                assert_eq!(ids.record(hash, 3_500).unwrap(), Some((seq, ts)));
            }
            assert_eq!(ids.record(hash(1_000), 3_500).unwrap(), None);
        };
        let ids = open(dir.path());
        ids.ingest(records.iter().copied(), 3_500).unwrap();
        assert!(is_filter_is_complete(&ids));
        check(&ids);
        drop(ids);

        let ids = open(dir.path());
        assert!(!is_filter_is_complete(&ids));
        check(&ids);
        // An id that is written meanwhile is in the filter too.
        ids.ingest([(hash(2_000), 7, 3_400)].into_iter(), 3_500).unwrap();
        ids.build_filters(|| false).unwrap();
        assert!(!is_filter_is_complete(&ids), "it was told to stop");
        ids.build_filters(|| true).unwrap();
        assert!(is_filter_is_complete(&ids));
        check(&ids);
        assert_eq!(ids.record(hash(2_000), 3_500).unwrap(), Some((7, 3_400)));
        // An id older than the window is unknown, and its keyspace is dropped.
        assert_eq!(ids.record(records[0].0, 4_500).unwrap(), None);
        ids.ingest(std::iter::empty(), 5_100).unwrap();
        assert!(
            ids.spaces().iter().all(|(name, _)| name.as_str() >= "sent_ids_2"),
            "{:?}",
            ids.spaces().len()
        );
    }
}
