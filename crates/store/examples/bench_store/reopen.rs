//! How large the store is on disk, and how fast it comes back: after a clean end, and after the
//! process died.

use std::{path::Path, process::Command, sync::Arc, time::Duration};

use bluetick_store::Store;

use crate::{
    CONVERSATIONS,
    drive::{DriveLimit, drive},
    meter::disk_bytes,
    workload::Workload,
};

/// What the dying process stores: about two checkpoints' worth of log, as much as there ever is to
/// replay.
const LAST_WORDS: u64 = 240_000;
/// Where its sends begin: beyond all that were measured.
const LAST_WORDS_FROM: u64 = 1 << 40;

pub async fn print(store: Store, dir: &Path, stored: u64) -> Result<(), String> {
    store.maintenance.checkpoint().await.map_err(|e| e.to_string())?;
    store.maintenance.close().await.map_err(|e| e.to_string())?;
    drop(store);
    let bytes = disk_bytes(dir)?;
    println!("\n{stored} messages stored: {} bytes on disk each", bytes / stored.max(1));
    println!("open after a clean end: {:.2} s", timed_open(dir).await?.as_secs_f64());
    die_in(dir).await?;
    let log = disk_bytes(&dir.join("log"))?;
    let took = timed_open(dir).await?.as_secs_f64();
    println!("open after the process died, with {} MiB of log: {took:.2} s", log >> 20);
    Ok(())
}

async fn timed_open(dir: &Path) -> Result<Duration, String> {
    let begun = std::time::Instant::now();
    let store = crate::open(dir)?;
    let took = begun.elapsed();
    store.maintenance.close().await.map_err(|e| e.to_string())?;
    Ok(took)
}

async fn die_in(dir: &Path) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let status = Command::new(program).arg("--crash-in").arg(dir).status().map_err(|e| e.to_string())?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("the process that was to die in its work ended with {status}")),
    }
}

/// Stores messages and is gone: nothing is closed, flushed or let go of.
pub async fn write_and_die(dir: &Path) -> Result<(), String> {
    let (store, workload) = (crate::open(dir)?, Arc::new(Workload::new(CONVERSATIONS)));
    let bound = DriveLimit { messages: LAST_WORDS, time: Duration::from_secs(60) };
    drive(256, bound, move |n| {
        let (store, workload) = (store.clone(), workload.clone());
        async move { workload.send(&store, LAST_WORDS_FROM + n).await.map(drop) }
    })
    .await?;
    std::process::exit(0)
}
