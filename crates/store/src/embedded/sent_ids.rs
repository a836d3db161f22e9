//! Idempotency records (R9): a keyspace for each third of their window, dropped whole when it is over. Nearly every send asks for an
//! id that is not there, so each keyspace has a filter in memory, which is made anew after a start, in the background; until
//! then the engine is asked.

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
/// Runs that are merged together.
const RUNS_MAX: u8 = 24;
/// SentIdMap that are learned between two looks whether to go on.
const LEARN_AT_ONCE: usize = 50_000;

pub(super) struct SentIds {
    db: Database,
    buckets: RwLock<BTreeMap<u64, Arc<SentIdBucket>>>,
    bucket_ms: u64,
    window_ms: u64,
}

/// One of several ids that were asked for, which has a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KnownId {
    pub place: usize,
    pub seq: Seq,
    ts: u64,
}

struct SentIdBucket {
    space: Keyspace,
    filter: BloomFilter,
    /// The filter has everything that the keyspace has.
    learned: AtomicBool,
}

impl SentIdBucket {
    /// The places of those that may be there.
    fn may_have(&self, hashes: &[u128]) -> Vec<usize> {
        match self.learned.load(Ordering::Acquire) {
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
                let learned = AtomicBool::new(false);
                buckets.insert(
                    bucket,
                    Arc::new(SentIdBucket { space, filter: BloomFilter::default(), learned }),
                );
            }
        }
        let bucket_ms = (window_ms / 3).max(1);
        Ok(SentIds { db, buckets: RwLock::new(buckets), bucket_ms, window_ms })
    }

    /// The seq that an id got within the window, and the time from which the window counts.
    pub(super) fn record(&self, hash: u128, now_ms: u64) -> Result<Option<(Seq, u64)>> {
        Ok(self.records(&[hash], now_ms)?.pop().map(|known| (known.seq, known.ts)))
    }

    /// The same of several: of those that have one.
    pub(super) fn records(&self, hashes: &[u128], now_ms: u64) -> Result<Vec<KnownId>> {
        let oldest = now_ms.saturating_sub(self.window_ms);
        let mut known = Vec::new();
        for bucket in self.buckets.read().range(oldest / self.bucket_ms..).map(|(_, bucket)| bucket) {
            for place in bucket.may_have(hashes) {
                if let Some(bytes) = bucket.space.get(hashes[place].to_be_bytes()).map_err(broken)? {
                    let r = &mut ByteReader(&bytes);
                    let (seq, ts) = (r.u64()?, r.u64()?);
                    if ts >= oldest {
                        known.push(KnownId { place, seq, ts });
                    }
                }
            }
        }
        Ok(known)
    }

    /// Writes records of different ids, each in the keyspace of its time, and drops the keyspaces that are out of the window whole.
    pub(super) fn ingest(&self, ids: impl Iterator<Item = (u128, Seq, u64)>, now_ms: u64) -> Result<()> {
        let mut by_bucket: BTreeMap<u64, Vec<(u128, Seq, u64)>> = BTreeMap::new();
        for id in ids {
            by_bucket.entry(id.2 / self.bucket_ms).or_default().push(id);
        }
        for (bucket, mut ids) in by_bucket {
            ids.sort_unstable_by_key(|&(hash, ..)| hash);
            let bucket = self.bucket(bucket)?;
            // Before the engine shows them: what the filter denies must not be there.
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

    /// Makes the filters of what was there at the start, for as long as it may go on.
    pub(super) fn learn(&self, go_on: impl Fn() -> bool) -> Result<()> {
        let buckets: Vec<Arc<SentIdBucket>> = self.buckets.read().values().cloned().collect();
        for bucket in buckets.iter().filter(|bucket| !bucket.learned.load(Ordering::Acquire)) {
            let mut from = Bound::Unbounded;
            // A part at a time: nobody else's rows are kept for as long as all of it takes.
            loop {
                if !go_on() {
                    return Ok(());
                }
                let mut last = None;
                for item in bucket.space.range::<[u8; 16], _>((from, Bound::Unbounded)).take(LEARN_AT_ONCE) {
                    let key = item.key().map_err(broken)?;
                    let hash: [u8; 16] = (*key)
                        .try_into()
                        .map_err(|_| StoreError::Corrupt("a key in sent_ids is no hash".into()))?;
                    bucket.filter.insert(u128::from_be_bytes(hash));
                    last = Some(hash);
                }
                match last {
                    Some(hash) => from = Bound::Excluded(hash),
                    None => break,
                }
            }
            bucket.learned.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// The keyspaces, by name.
    pub(super) fn spaces(&self) -> Vec<(String, Keyspace)> {
        let buckets = self.buckets.read();
        buckets.iter().map(|(n, bucket)| (format!("{PREFIX}{n}"), bucket.space.clone())).collect()
    }

    /// Fills a keyspace of a new engine with sorted rows, for a restore. The engine is opened anew after it.
    pub(super) fn fill(&self, name: &str, changes: Vec<EngineChange>) -> Result<()> {
        let number =
            number_of(name).ok_or_else(|| StoreError::Corrupt(format!("no keyspace is called {name:?}")))?;
        let bucket = self.bucket(number)?;
        bucket.learned.store(false, Ordering::Release);
        ingest_into(&bucket.space, changes)
    }

    fn bucket(&self, number: u64) -> Result<Arc<SentIdBucket>> {
        if let Some(bucket) = self.buckets.read().get(&number) {
            return Ok(bucket.clone());
        }
        let space = self.db.keyspace(&format!("{PREFIX}{number}"), options).map_err(broken)?;
        // Nothing is in it yet, unless it could not be deleted and the clock fell back.
        let learned = AtomicBool::new(space.is_empty().map_err(broken)?);
        let bucket = Arc::new(SentIdBucket { space, filter: BloomFilter::default(), learned });
        self.buckets.write().insert(number, bucket.clone());
        Ok(bucket)
    }
}

fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

fn options() -> KeyspaceCreateOptions {
    // For what the filter in memory is mistaken about, and until there is one.
    let bloom = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(12.0));
    // Hashes lie anywhere, so that to merge a few runs is to write all of them anew; and hardly anybody reads them.
    let strategy = Leveled::default().with_l0_threshold(RUNS_MAX);
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

    fn is_learned(ids: &SentIds) -> bool {
        ids.buckets.read().values().all(|bucket| bucket.learned.load(Ordering::Acquire))
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
        assert!(is_learned(&ids));
        check(&ids);
        drop(ids);

        let ids = open(dir.path());
        assert!(!is_learned(&ids));
        check(&ids);
        // What comes while it is made is in it too.
        ids.ingest([(hash(2_000), 7, 3_400)].into_iter(), 3_500).unwrap();
        ids.learn(|| false).unwrap();
        assert!(!is_learned(&ids), "it was told to stop");
        ids.learn(|| true).unwrap();
        assert!(is_learned(&ids));
        check(&ids);
        assert_eq!(ids.record(hash(2_000), 3_500).unwrap(), Some((7, 3_400)));
        // What is older than the window is not known, and goes.
        assert_eq!(ids.record(records[0].0, 4_500).unwrap(), None);
        ids.ingest(std::iter::empty(), 5_100).unwrap();
        assert!(
            ids.spaces().iter().all(|(name, _)| name.as_str() >= "sent_ids_2"),
            "{:?}",
            ids.spaces().len()
        );
    }
}
