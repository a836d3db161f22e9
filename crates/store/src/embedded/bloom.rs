//! A blocked Bloom filter over digests, in memory. A lookup reads one cache line per layer, where
//! the engine would search each of its sorted runs. The filter only grows: by layers, each four
//! times as large as the one before, up to a limit.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;

/// A cache line of the processor. All bits of a key are in one.
#[repr(align(64))]
#[derive(Default)]
struct CacheLine([AtomicU64; 8]);

/// Bits of memory per key, and bits that each key sets. Together they give about one false positive
/// in a hundred.
const BITS_PER_KEY: usize = 12;
const BITS_SET: u32 = 7;
const LINE_BITS: usize = 512;
const FIRST_LAYER_KEYS: usize = 96 * 1024;
/// A lookup checks every layer, so layers are few, and a new one has room for three times what
/// there was.
const GROWTH: usize = 4;
/// This many layers hold 33 million keys in 50 MB. A filter that outgrows them frees its memory and
/// answers "maybe" to everything.
const LAYERS_MAX: usize = 5;

#[derive(Default)]
pub(super) struct BloomFilter {
    layers: RwLock<Vec<BloomLayer>>,
    overflowed: AtomicBool,
}

struct BloomLayer {
    lines: Box<[CacheLine]>,
    keys: AtomicUsize,
    keys_max: usize,
}

impl BloomLayer {
    fn new(keys_max: usize) -> BloomLayer {
        let lines = (keys_max * BITS_PER_KEY).div_ceil(LINE_BITS);
        BloomLayer {
            lines: (0..lines).map(|_| CacheLine::default()).collect(),
            keys: AtomicUsize::new(0),
            keys_max,
        }
    }

    /// The upper half of a key selects its cache line, the lower half its bits there.
    fn line(&self, key: u128) -> &CacheLine {
        let upper = key >> 64;
        &self.lines[((upper * self.lines.len() as u128) >> 64) as usize]
    }

    fn contains(&self, key: u128) -> bool {
        let line = self.line(key);
        bits(key).all(|(word, bit)| line.0[word].load(Ordering::Relaxed) & bit != 0)
    }
}

fn bits(key: u128) -> impl Iterator<Item = (usize, u64)> {
    (0..BITS_SET).map(move |n| {
        let place = (key >> (9 * n)) as usize % LINE_BITS;
        (place / 64, 1 << (place % 64))
    })
}

impl BloomFilter {
    /// Adds a key. It must be a digest: the filter uses its bits as random ones.
    pub(super) fn insert(&self, key: u128) {
        while !self.overflowed.load(Ordering::Acquire) {
            let full = {
                let layers = self.layers.read();
                match layers.last() {
                    Some(layer) if layer.keys.fetch_add(1, Ordering::Relaxed) < layer.keys_max => {
                        let line = layer.line(key);
                        bits(key).for_each(|(word, bit)| {
                            line.0[word].fetch_or(bit, Ordering::Relaxed);
                        });
                        return;
                    }
                    _ => layers.len(),
                }
            };
            if full == LAYERS_MAX {
                self.overflowed.store(true, Ordering::Release);
                self.layers.write().clear();
                return;
            }
            // Allocated before the lock is taken: it takes a while.
            let layer = BloomLayer::new(FIRST_LAYER_KEYS * GROWTH.pow(full as u32));
            let mut layers = self.layers.write();
            if layers.len() == full {
                layers.push(layer);
            }
        }
    }

    /// The indices of the keys that may be in the filter; all others are not. Keys are checked
    /// together, so that their cache misses overlap.
    pub(super) fn may_contain(&self, keys: &[u128]) -> Vec<usize> {
        // Read under the lock: a filter that overflows sets the flag before it frees its layers.
        let layers = self.layers.read();
        let overflowed = self.overflowed.load(Ordering::Acquire);
        let may = |key: &u128| overflowed || layers.iter().any(|layer| layer.contains(*key));
        (0..keys.len()).filter(|&place| may(&keys[place])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xxhash_rust::xxh3::xxh3_128;

    fn key(n: u64) -> u128 {
        xxh3_128(&n.to_le_bytes())
    }

    fn may_contain(filter: &BloomFilter, n: u64) -> bool {
        filter.may_contain(&[key(n)]) == [0]
    }

    #[test]
    fn what_is_in_it_is_found_and_hardly_anything_else() {
        let filter = BloomFilter::default();
        assert!(!may_contain(&filter, 1));
        let many = 300_000;
        (0..many).for_each(|n| filter.insert(key(n)));
        assert!((0..many).all(|n| may_contain(&filter, n)));
        let mistaken = (many..2 * many).filter(|&n| may_contain(&filter, n)).count();
        assert!(mistaken < many as usize / 20, "{mistaken}");
        assert!(filter.layers.read().len() > 1, "it has grown");
        let some = [key(many), key(7), key(many + 1), key(0)];
        let alone: Vec<usize> = (0..4).filter(|&n| filter.may_contain(&some[n..n + 1]) == [0]).collect();
        assert!(alone.contains(&1) && alone.contains(&3));
        assert_eq!(filter.may_contain(&some), alone, "together as each alone");
    }

    #[test]
    fn one_that_has_overflowed_denies_nothing() {
        let filter = BloomFilter::default();
        filter.insert(key(1));
        filter.layers.write().extend((1..LAYERS_MAX).map(|_| BloomLayer::new(1)));
        (2..4).for_each(|n| filter.insert(key(n)));
        assert!(filter.layers.read().is_empty());
        assert!((1..9).all(|n| may_contain(&filter, n)));
    }

    #[test]
    fn two_threads_add_to_it() {
        let filter = BloomFilter::default();
        let half = 3 * FIRST_LAYER_KEYS as u64;
        std::thread::scope(|scope| {
            for from in [0, half] {
                let filter = &filter;
                scope.spawn(move || (from..from + half).for_each(|n| filter.insert(key(n))));
            }
        });
        assert!((0..2 * half).all(|n| may_contain(&filter, n)));
    }
}
