//! When messages are to be sent: each as soon as there is room for it, or each at a moment of its own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::sync::Notify;

const SECOND_MICROS: u64 = 1_000_000;
/// Moments that are nearer than this are met together.
const NAP: Duration = Duration::from_micros(50);

/// Moments for the messages of all pairs, spread evenly: the first of every pair, then the second of every pair, …
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Messages a second, of all pairs together.
    pub rate: u32,
    pub pairs: u32,
}

impl Schedule {
    /// When a pair's message is to be sent, in microseconds from the beginning.
    pub fn moment(&self, pair: u32, n: u32) -> u64 {
        self.moment_of(u64::from(n) * u64::from(self.pairs) + u64::from(pair))
    }

    fn moment_of(&self, nth: u64) -> u64 {
        nth * SECOND_MICROS / u64::from(self.rate)
    }

    /// How many of all messages are to be sent up to this moment.
    fn due_of_all(&self, micros: u64) -> u64 {
        ((micros + 1) * u64::from(self.rate) - 1) / SECOND_MICROS + 1
    }

    /// How many of a pair's messages are to be sent up to this moment.
    pub fn due(&self, pair: u32, micros: u64) -> u32 {
        let pairs = u64::from(self.pairs);
        let count = (self.due_of_all(micros) + pairs - 1 - u64::from(pair)) / pairs;
        count.min(u64::from(u32::MAX)) as u32
    }
}

/// A thread that wakes each pair's sender when the moment of a message has come. The runtime's timers are too coarse
/// for this: they would be seen in the latencies.
pub struct Pacer {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Pacer {
    pub fn start(schedule: Schedule, epoch: Instant, last: Duration, wake: Vec<Arc<Notify>>) -> Pacer {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || pace(schedule, epoch, last, &wake, &stopped));
        Pacer { stop, thread: Some(thread) }
    }
}

fn pace(schedule: Schedule, epoch: Instant, last: Duration, wake: &[Arc<Notify>], stop: &AtomicBool) {
    let mut next = 0;
    while epoch.elapsed() < last && !stop.load(Ordering::Relaxed) {
        let due = schedule.due_of_all(epoch.elapsed().as_micros() as u64);
        // Who is behind by more than a round is awake already.
        next = next.max(due.saturating_sub(wake.len() as u64));
        while next < due {
            wake[(next % wake.len() as u64) as usize].notify_one();
            next += 1;
        }
        let moment = epoch + Duration::from_micros(schedule.moment_of(next));
        let wait = moment.saturating_duration_since(Instant::now());
        thread::sleep(wait.clamp(NAP, Duration::from_millis(100)));
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It looks several times a second, and a thread that panicked has aborted the process.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_spread_evenly_over_pairs_and_time() {
        let schedule = Schedule { rate: 1000, pairs: 4 };
        assert_eq!([0, 1, 2, 3].map(|pair| schedule.moment(pair, 0)), [0, 1000, 2000, 3000]);
        assert_eq!(schedule.moment(0, 1), 4000);
        assert_eq!(schedule.moment(3, 249), 999_000, "a thousand in a second");
        let odd = Schedule { rate: 3, pairs: 1 };
        assert_eq!([0, 1, 2, 3].map(|n| odd.moment(0, n)), [0, 333_333, 666_666, 1_000_000]);
    }

    #[test]
    fn what_is_due_is_what_has_had_its_moment() {
        for schedule in [
            Schedule { rate: 7, pairs: 3 },
            Schedule { rate: 1000, pairs: 4 },
            Schedule { rate: 333_333, pairs: 10 },
            Schedule { rate: 10_000_000, pairs: 50_000 },
        ] {
            for pair in [0, 1, schedule.pairs - 1] {
                for n in 0..50 {
                    let moment = schedule.moment(pair, n);
                    assert!(schedule.due(pair, moment) > n, "{schedule:?} {pair} {n}");
                    if schedule.rate <= 1_000_000 && moment > 0 {
                        assert_eq!(schedule.due(pair, moment - 1), n, "{schedule:?} {pair} {n}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_server_that_stalls_does_not_move_the_moments() {
        let schedule = Schedule { rate: 100, pairs: 2 };
        // A sender that heard nothing for a second finds all of it due, and each counts from its own moment.
        assert_eq!(schedule.due(0, 1_000_000) - schedule.due(0, 0), 50);
        assert_eq!(schedule.moment(0, 25), 500_000);
    }

    #[test]
    fn the_pacer_wakes_those_whose_moment_has_come() {
        let schedule = Schedule { rate: 1000, pairs: 2 };
        let wake = vec![Arc::new(Notify::new()), Arc::new(Notify::new())];
        drop(Pacer::start(
            schedule,
            Instant::now() - Duration::from_secs(1),
            Duration::from_secs(3600),
            wake.clone(),
        ));
        // It may have been stopped before it began; with time it wakes both.
        let pacer = Pacer::start(schedule, Instant::now(), Duration::from_secs(3600), wake.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async { tokio::join!(wake[0].notified(), wake[1].notified()) });
        drop(pacer);
    }
}
