//! The clock, injected so that tests and the simulator control time.

#[cfg(feature = "testing")]
use std::sync::atomic::{AtomicU64, Ordering};

pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since 1970.
    fn now_ms(&self) -> u64;
}

#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map(|d| d.as_millis() as u64).unwrap_or_default()
    }
}

/// A clock that only moves when told to.
#[cfg(feature = "testing")]
#[derive(Debug)]
pub struct ManualClock(AtomicU64);

#[cfg(feature = "testing")]
impl ManualClock {
    pub fn new(ms: u64) -> Self {
        ManualClock(AtomicU64::new(ms))
    }

    pub fn advance(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }

    pub fn set(&self, ms: u64) {
        self.0.store(ms, Ordering::SeqCst);
    }
}

#[cfg(feature = "testing")]
impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
