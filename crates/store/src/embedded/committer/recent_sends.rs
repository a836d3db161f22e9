//! Idempotency records (R9) that a caller's lookup in the engine cannot have seen.

use std::sync::Arc;

use bluetick_protocol::Seq;
use foldhash::{HashMap, HashMapExt};

/// The seq and the time of each send, by its hash.
pub(in crate::embedded) type SentIdMap = HashMap<u128, (Seq, u64)>;

#[derive(Default)]
pub(super) struct RecentSends {
    /// Since the last checkpoint began.
    active: SentIdMap,
    /// Of the last two checkpoints, newest first. The first is being written while a checkpoint
    /// runs.
    flushed: [Arc<SentIdMap>; 2],
    /// Of the group being filled, to be taken back if it fails.
    in_group: Vec<u128>,
}

impl RecentSends {
    /// Remembers a send of the group being filled.
    pub(super) fn insert(&mut self, hash: u128, seq: Seq, now: u64) {
        self.in_group.push(hash);
        self.active.insert(hash, (seq, now));
    }

    /// Remembers a send that the log already holds.
    pub(super) fn replay(&mut self, hash: u128, seq: Seq, ts: u64) {
        self.active.insert(hash, (seq, ts));
    }

    pub(super) fn group_has_sends(&self) -> bool {
        !self.in_group.is_empty()
    }

    pub(super) fn group_committed(&mut self) {
        self.in_group.clear();
    }

    pub(super) fn group_failed(&mut self) {
        for hash in self.in_group.drain(..) {
            self.active.remove(&hash);
        }
    }

    /// Begins a checkpoint: what is active is to be written to the engine.
    pub(super) fn freeze(&mut self) -> Arc<SentIdMap> {
        // About as many will follow; a table that grows step by step is copied at each step.
        let next = SentIdMap::with_capacity(self.active.len());
        let frozen = Arc::new(std::mem::replace(&mut self.active, next));
        self.flushed = [frozen.clone(), std::mem::take(&mut self.flushed[0])];
        frozen
    }

    /// The seq of a send no older than `oldest`. `engine_is_current`: no checkpoint has finished
    /// since the caller asked the engine, so its answer covers everything but the maps not yet
    /// written.
    pub(super) fn find(
        &self,
        hash: u128,
        oldest: u64,
        is_checkpointing: bool,
        engine_is_current: bool,
    ) -> Option<Seq> {
        let [last, before] = &self.flushed;
        let maps = [
            Some(&self.active),
            (is_checkpointing || !engine_is_current).then_some(&**last),
            (is_checkpointing && !engine_is_current).then_some(&**before),
        ];
        let mut found = maps.into_iter().flatten().filter_map(|ids| ids.get(&hash));
        found.find(|(_, ts)| *ts >= oldest).map(|(seq, _)| *seq)
    }
}
