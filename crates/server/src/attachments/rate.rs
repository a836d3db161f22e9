//! The least rate at which an upload must arrive, over a sliding window.

use std::time::Duration;

/// A window is judged by parts of its length.
const PARTS: usize = 10;

/// Counts the bytes of the current window. Its clock runs only while the server waits for the
/// client: a slow disk is not the client's fault.
pub struct MinimumRate {
    /// What a whole window must bring; 0 if nothing is asked for.
    window_bytes: u64,
    part: Duration,
    waited: Duration,
    /// Bytes of the last parts, in a ring; the part that is running is at `running % PARTS`.
    parts: [u64; PARTS],
    running: usize,
}

impl MinimumRate {
    pub fn new(bytes_per_second: u64, window: Duration) -> MinimumRate {
        MinimumRate {
            window_bytes: bytes_per_second.saturating_mul(window.as_secs()),
            part: (window / PARTS as u32).max(Duration::from_millis(1)),
            waited: Duration::ZERO,
            parts: [0; PARTS],
            running: 0,
        }
    }

    /// How long to wait for bytes before the rate is judged again.
    pub fn judge_every(&self) -> Duration {
        self.part
    }

    /// After waiting this long, so many bytes came. Returns whether the rate is kept.
    #[must_use]
    pub fn keeps_up(&mut self, waited: Duration, bytes: u64) -> bool {
        self.parts[self.running % PARTS] += bytes;
        self.waited += waited;
        let mut kept = true;
        while self.waited >= self.part {
            self.waited -= self.part;
            self.running += 1;
            if self.running >= PARTS {
                kept &= self.parts.iter().sum::<u64>() >= self.window_bytes;
            }
            self.parts[self.running % PARTS] = 0;
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn rate() -> MinimumRate {
        MinimumRate::new(1000, Duration::from_secs(10))
    }

    #[test]
    fn a_steady_upload_passes_and_a_slow_one_ends_with_the_first_window() {
        let mut rate_kept = rate();
        assert!((0..100).all(|_| rate_kept.keeps_up(SECOND, 1001)));
        let mut slow = rate();
        let ended = (1..100).find(|_| !slow.keeps_up(SECOND, 900));
        assert_eq!(ended, Some(10));
    }

    #[test]
    fn what_came_long_ago_does_not_count() {
        let mut rate = rate();
        assert!(rate.keeps_up(SECOND, 1_000_000));
        let ended = (1..100).find(|_| !rate.keeps_up(SECOND, 1));
        assert!(matches!(ended, Some(10 | 11)), "{ended:?}");
    }

    #[test]
    fn a_pause_shorter_than_the_window_is_made_up_for() {
        let mut rate = rate();
        assert!((0..20).all(|_| rate.keeps_up(SECOND, 5000)));
        assert!((0..7).all(|_| rate.keeps_up(SECOND, 0)));
        assert!((0..20).all(|_| rate.keeps_up(SECOND, 5000)));
    }

    #[test]
    fn no_rate_asks_for_nothing() {
        let mut none = MinimumRate::new(0, Duration::from_secs(1));
        assert!((0..100).all(|_| none.keeps_up(SECOND, 0)));
    }
}
