//! The server's process as the kernel sees it: time and memory, from `/proc`. On systems without it there is none.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::report::Memory;

/// The unit of times in `/proc/PID/stat`: a hundredth of a second on every Linux.
const TICK: Duration = Duration::from_millis(10);
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy)]
pub struct Process {
    pid: u32,
}

impl Process {
    /// The process, if it can be looked at.
    pub fn look(pid: u32) -> Option<Process> {
        let process = Process { pid };
        process.rss().and(process.cpu()).map(|_| process)
    }

    pub fn myself() -> Option<Process> {
        Process::look(std::process::id())
    }

    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.pid)).ok()
    }

    /// User and system time so far.
    pub fn cpu(&self) -> Option<Duration> {
        let stat = self.read("stat")?;
        // The name, in parentheses, may hold anything; the fields are counted from behind it.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        let ticks: u32 = fields.next()?.parse::<u32>().ok()?.checked_add(fields.next()?.parse().ok()?)?;
        Some(TICK * ticks)
    }

    /// Bytes of memory it has now.
    pub fn rss(&self) -> Option<u64> {
        let status = self.read("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    }
}

/// Looks at a process's memory from time to time, from `start` to `stop`.
pub struct MemoryWatch {
    process: Option<Process>,
    before: Option<u64>,
    peak: Arc<AtomicU64>,
    looking: Option<tokio::task::JoinHandle<()>>,
}

impl MemoryWatch {
    pub fn start(process: Option<Process>) -> MemoryWatch {
        let peak = Arc::new(AtomicU64::new(0));
        let looking = process.map(|process| {
            let peak = peak.clone();
            tokio::spawn(async move {
                let mut every = tokio::time::interval(SAMPLE_EVERY);
                while let Some(rss) = process.rss() {
                    peak.fetch_max(rss, Ordering::Relaxed);
                    every.tick().await;
                }
            })
        });
        MemoryWatch { process, before: process.and_then(|p| p.rss()), peak, looking }
    }

    /// To be called when the load is gone. A server that falls quiet brings its memory to disk after some seconds, and
    /// its allocator gives it back then: with a rest, that is seen.
    pub async fn stop(self, rest: Duration) -> Option<Memory> {
        self.process?;
        tokio::time::sleep(rest).await;
        if let Some(looking) = self.looking {
            looking.abort();
        }
        Some(Memory {
            before_bytes: self.before?,
            peak_bytes: self.peak.load(Ordering::Relaxed),
            after_bytes: self.process?.rss()?,
        })
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_sees_itself() {
        let myself = Process::myself().unwrap();
        assert!(myself.rss().unwrap() > 100_000);
        assert!(Process::look(u32::MAX).is_none());
    }
}
