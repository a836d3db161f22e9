//! The delay before the next connection attempt.

use std::time::Duration;

use rand::{RngExt, rngs::StdRng};

const BASE: Duration = Duration::from_millis(200);
const CAP: Duration = Duration::from_secs(30);
/// The shortest delay, for a server that keeps failing.
const FLOOR: Duration = Duration::from_millis(50);

/// Exponential backoff with full jitter, so that clients that lost their connections together do not
/// reconnect together.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// The delay before the next attempt, no shorter than the server asked for.
    pub(crate) fn next(&mut self, at_least: Duration, rng: &mut StdRng) -> Duration {
        let limit = BASE.saturating_mul(1 << self.failures.min(16)).min(CAP);
        self.failures = self.failures.saturating_add(1);
        let drawn = Duration::from_millis(rng.random_range(0..=limit.as_millis() as u64)).max(FLOOR);
        drawn.max(at_least)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn waits_grow_to_the_cap_and_no_further() {
        let mut rng = StdRng::seed_from_u64(7);
        let mut backoff = Backoff::default();
        assert!(backoff.next(Duration::ZERO, &mut rng) <= BASE);
        let later: Vec<Duration> = (0..200).map(|_| backoff.next(Duration::ZERO, &mut rng)).collect();
        assert!(later.iter().all(|wait| (FLOOR..=CAP).contains(wait)));
        assert!(later.iter().any(|wait| *wait > CAP / 2), "the cap is reached");
        backoff.succeeded();
        assert!(backoff.next(Duration::ZERO, &mut rng) <= BASE);
    }

    #[test]
    fn the_servers_hint_is_respected() {
        let mut rng = StdRng::seed_from_u64(7);
        let hint = Duration::from_secs(3);
        assert!(Backoff::default().next(hint, &mut rng) >= hint);
    }
}
