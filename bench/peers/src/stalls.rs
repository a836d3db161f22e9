//! How long a core stands still that has nothing else to do than to look at the clock: what interrupts, the kernel's threads and whatever
//! hosts the machine may take from a program. A message that comes at such a moment waits, and so do those behind it.

use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use serde::Serialize;

use crate::process::{LOAD_CORE, SERVER_CORE};

/// What is shorter belongs to every program's life: interrupts, the timer.
const STALL: Duration = Duration::from_micros(300);

#[derive(Debug, Serialize)]
pub struct Stalls {
    pub core: u32,
    pub stalls: u32,
    /// How much of each second is gone with them.
    pub ms_a_second: f64,
    pub longest_ms: f64,
}

/// Looks at the clock on both cores for so long, and does nothing else.
pub fn run(each: Duration) -> Result<Vec<Stalls>, String> {
    let watching = [SERVER_CORE, LOAD_CORE].map(|core| std::thread::spawn(move || watch(core, each)));
    watching.into_iter().map(|core| core.join().map_err(|_| "a thread panicked".to_owned())?).collect()
}

fn watch(core: u32, each: Duration) -> Result<Stalls, String> {
    let mut only = CpuSet::new();
    only.set(core as usize);
    sched_setaffinity(None, &only).map_err(|e| format!("core {core} cannot be had: {e}"))?;
    let begun = Instant::now();
    let (mut last, mut all) = (begun, Vec::new());
    while last - begun < each {
        let now = Instant::now();
        if now - last > STALL {
            all.push(now - last);
        }
        last = now;
    }
    Ok(summary(core, &all, last - begun))
}

fn summary(core: u32, all: &[Duration], watched: Duration) -> Stalls {
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    Stalls {
        core,
        stalls: all.len() as u32,
        ms_a_second: millis(all.iter().sum()) / watched.as_secs_f64(),
        longest_ms: millis(all.iter().max().copied().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_summed_by_the_second() {
        let found = summary(1, &[Duration::from_millis(3), Duration::from_millis(1)], Duration::from_secs(2));
        assert_eq!((found.stalls, found.ms_a_second, found.longest_ms), (2, 2.0, 3.0));
        let none = summary(0, &[], Duration::from_secs(2));
        assert_eq!((none.stalls, none.ms_a_second, none.longest_ms), (0, 0.0, 0.0));
    }
}
