//! Raw group fsync: the limit for what a store could reach that makes each record durable before it answers. Writers
//! hand records to one committer, which appends all that wait to a plain file and makes them durable together.

use std::{
    fs::File,
    io::Write as _,
    path::Path,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::{
    process::Tree,
    results::{Latency, LatencySummary},
};

const RECORD_BYTES: usize = 300;
const GROUP_MAX: usize = 2048;
pub const WRITERS: [u32; 3] = [1, 64, 1024];

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GroupFsync {
    pub writers: u32,
    pub records: u64,
    pub records_per_second: f64,
    pub records_per_group: f64,
    /// Of the whole process, the writers included.
    pub cpu_micros_per_record: f64,
    /// Write and fdatasync of one group.
    pub group: LatencySummary,
}

/// Measures each number of writers for so long, in a file of `dir`.
pub fn run(dir: &Path, each: Duration) -> Result<Vec<GroupFsync>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|e| e.to_string())?;
    WRITERS.iter().map(|&writers| runtime.block_on(measure(dir, writers, each))).collect()
}

struct Record {
    bytes: [u8; RECORD_BYTES],
    durable: oneshot::Sender<()>,
}

async fn measure(dir: &Path, writers: u32, each: Duration) -> Result<GroupFsync, String> {
    let file = tempfile::tempfile_in(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let (queue, waiting) = mpsc::channel(GROUP_MAX);
    let committer = std::thread::spawn(move || commit(file, waiting));
    let tree = Tree { root: std::process::id() };
    let (cpu_before, begun) = (tree.cpu_micros(), Instant::now());
    let writing: Vec<_> = (0..writers).map(|_| tokio::spawn(write(queue.clone(), begun + each))).collect();
    drop(queue);
    let mut records = 0;
    for writer in writing {
        records += writer.await.map_err(|e| e.to_string())?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let cpu = tree.cpu_micros().saturating_sub(cpu_before);
    let (groups, latency) = match committer.join() {
        Ok(done) => done.map_err(|e| format!("{}: {e}", dir.display()))?,
        Err(_) => return Err("the committer panicked".into()),
    };
    Ok(GroupFsync {
        writers,
        records,
        records_per_second: records as f64 / seconds,
        records_per_group: records as f64 / groups.max(1) as f64,
        cpu_micros_per_record: cpu as f64 / records.max(1) as f64,
        group: latency.summary(),
    })
}

/// One writer: a record at a time, the next when the last is durable.
async fn write(queue: mpsc::Sender<Record>, until: Instant) -> u64 {
    let mut written = 0;
    while Instant::now() < until {
        let (durable, done) = oneshot::channel();
        let record = Record { bytes: [b'x'; RECORD_BYTES], durable };
        if queue.send(record).await.is_err() || done.await.is_err() {
            break;
        }
        written += 1;
    }
    written
}

/// The committer: how many groups there were, and how long each took.
fn commit(mut file: File, mut waiting: mpsc::Receiver<Record>) -> std::io::Result<(u64, Latency)> {
    let (mut groups, mut latency) = (0, Latency::default());
    let mut bytes = Vec::with_capacity(GROUP_MAX * RECORD_BYTES);
    let mut answers = Vec::with_capacity(GROUP_MAX);
    while let Some(first) = waiting.blocking_recv() {
        let mut next = Some(first);
        while let Some(record) = next {
            bytes.extend_from_slice(&record.bytes);
            answers.push(record.durable);
            next = if answers.len() < GROUP_MAX { waiting.try_recv().ok() } else { None };
        }
        let begun = Instant::now();
        file.write_all(&bytes)?;
        file.sync_data()?;
        latency.record(begun.elapsed().as_micros() as u64);
        groups += 1;
        bytes.clear();
        for durable in answers.drain(..) {
            // A writer waits for its answer as long as there is one.
            let _ = durable.send(());
        }
    }
    Ok((groups, latency))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_writers_share_a_group() {
        let dir = tempfile::tempdir().unwrap();
        let found = run(dir.path(), Duration::from_millis(50)).unwrap();
        assert_eq!(found.iter().map(|f| f.writers).collect::<Vec<_>>(), WRITERS);
        assert!(found.iter().all(|f| f.records > 0), "{found:?}");
        assert!(found[2].records_per_group > 2.0, "{found:?}");
    }
}
