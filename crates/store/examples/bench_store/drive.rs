//! A closed loop: so many tasks, each doing one thing after the other, until the count or the time
//! is over.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::meter::{ThreadTime, cpu_time, thread_times};

#[derive(Debug, Clone, Copy)]
pub struct DriveLimit {
    pub messages: u64,
    pub time: Duration,
}

#[derive(Debug)]
pub struct DriveResult {
    pub messages: u64,
    pub wall: Duration,
    pub cpu: Duration,
    /// What each thread did of it, by name.
    threads: BTreeMap<String, ThreadTime>,
    /// How long each took to be durable, sorted, in microseconds.
    latencies: Vec<u32>,
}

impl DriveResult {
    pub const HEADER: &str =
        "                   writers   messages   durable/s  of raw   cpu µs    p50 ms    p99 ms  worst ms";

    pub fn per_second(&self) -> f64 {
        self.messages as f64 / self.wall.as_secs_f64()
    }

    pub fn cpu_micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.messages.max(1) as f64
    }

    fn millis_at(&self, share: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let at = (last as f64 * share).round() as usize;
        self.latencies.get(at).map_or(0.0, |&micros| f64::from(micros) / 1000.0)
    }

    /// Where the time went, as a line: each thread's microseconds for one message, and beside it
    /// how long it had to wait for a core, which only a busy machine makes it do.
    pub fn print_threads(&self) {
        let per_message = |spent: Duration| spent.as_secs_f64() * 1e6 / self.messages.max(1) as f64;
        let busy = self.threads.iter().filter(|(_, time)| per_message(time.ran) >= 0.05);
        let parts: Vec<String> = busy
            .map(|(name, time)| {
                format!("{name} {:.2} (+{:.2})", per_message(time.ran), per_message(time.waited))
            })
            .collect();
        println!("{:19}cpu µs a message by thread (+ waited for a core): {}", "", parts.join(", "));
    }

    pub fn print(&self, what: &str, writers: usize, limit: Option<&DriveResult>) {
        let of_raw = limit.map(|raw| format!("{:.2}", self.per_second() / raw.per_second()));
        println!(
            "{what:<18} {writers:>7} {:>10} {:>11.0} {:>7} {:>8.2} {:>9.2} {:>9.2} {:>9.1}",
            self.messages,
            self.per_second(),
            of_raw.unwrap_or_default(),
            self.cpu_micros(),
            self.millis_at(0.5),
            self.millis_at(0.99),
            self.millis_at(1.0),
        );
    }
}

/// Runs `step(0)`, `step(1)`, … each once, `writers` at a time.
pub async fn drive<F, Fut>(writers: usize, bound: DriveLimit, step: F) -> Result<DriveResult, String>
where
    F: Fn(u64) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), String>> + Send,
{
    let (step, next) = (Arc::new(step), Arc::new(AtomicU64::new(0)));
    let threads_before = thread_times();
    let (begun, cpu_before) = (Instant::now(), cpu_time());
    let deadline = begun + bound.time;
    let tasks: Vec<_> = (0..writers)
        .map(|_| {
            let (step, next) = (step.clone(), next.clone());
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                let mut now = Instant::now();
                while now < deadline {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= bound.messages {
                        break;
                    }
                    step(n).await?;
                    let done = Instant::now();
                    latencies.push((done - now).as_micros().min(u128::from(u32::MAX)) as u32);
                    now = done;
                }
                Ok::<_, String>(latencies)
            })
        })
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.append(&mut task.await.map_err(|e| e.to_string())??);
    }
    let (wall, cpu) = (begun.elapsed(), cpu_time().saturating_sub(cpu_before));
    let mut threads = thread_times();
    for (name, time) in &mut threads {
        let before = threads_before.get(name).copied().unwrap_or_default();
        time.ran = time.ran.saturating_sub(before.ran);
        time.waited = time.waited.saturating_sub(before.waited);
    }
    latencies.sort_unstable();
    let messages = latencies.len() as u64;
    Ok(DriveResult { messages, wall, cpu, threads, latencies })
}
