//! Many seeds, on every core.

use std::{
    cell::Cell,
    ops::Range,
    panic,
    sync::{
        Arc, Once,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use parking_lot::Mutex;

use crate::{Breach, FaultCounts, RunOutcome, run};

/// Totals over all runs.
#[derive(Debug, Clone, Default)]
pub struct RunsReport {
    pub runs: u64,
    pub messages: u64,
    pub faults: FaultCounts,
    /// Runs in which devices had to reconnect, because notices were lost with an app server.
    pub excused: u64,
    /// Runs in which the promise was broken, lowest seed first.
    pub broken: Vec<RunOutcome>,
}

thread_local! {
    static SEED: Cell<u64> = const { Cell::new(0) };
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// Makes a panic inside a run print the seed, and counts it as a violation.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            eprintln!("seed {}:", SEED.get());
            PANICS.set(PANICS.get() + 1);
            before(info);
        }));
    });
}

fn run_watched(seed: u64, without: &[Breach]) -> RunOutcome {
    SEED.set(seed);
    let before = PANICS.get();
    let mut outcome = run(seed, without, false);
    if PANICS.get() > before {
        outcome.violations.push("something panicked".into());
    }
    outcome
}

/// Runs the seeds. `stop_at_first` stops at the first violation; `on_run` is called after every
/// run.
pub fn run_many(
    seeds: Range<u64>,
    without: &[Breach],
    stop_at_first: bool,
    on_run: impl Fn(&RunOutcome) + Sync,
) -> RunsReport {
    watch_panics();
    let threads = thread::available_parallelism().map_or(1, |n| n.get());
    let next = AtomicU64::new(seeds.start);
    let stop = AtomicBool::new(false);
    let report = Arc::new(Mutex::new(RunsReport::default()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let outcome = run_watched(seed, without);
                    on_run(&outcome);
                    let mut report = report.lock();
                    report.runs += 1;
                    report.messages += outcome.messages;
                    report.faults.add(&outcome.faults);
                    report.excused += u64::from(outcome.excused);
                    if !outcome.violations.is_empty() {
                        report.broken.push(outcome);
                        stop.store(stop_at_first, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut report = report.lock().clone();
    report.broken.sort_by_key(|outcome| outcome.seed);
    report
}
