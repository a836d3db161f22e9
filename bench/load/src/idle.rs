//! Connections that do nothing but stay: what each of them costs the server in memory.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bluetick_client::{RawConnection, RawError};
use bluetick_protocol::ServerFrame;
use tokio::{sync::watch, task::JoinSet};

use super::{
    connect::{Server, user},
    process::{MemoryWatch, Process},
    report::IdleReport,
};
use crate::progress::Progress;

const PORTION: u32 = 500;
/// What a connection leaves behind of its beginning is gone after this long.
const SETTLE: Duration = Duration::from_secs(3);
/// Longer than any heartbeat, whose pings are answered meanwhile.
const QUIET: Duration = Duration::from_secs(3600);

pub async fn run(
    server: &Arc<Server>,
    connections: u32,
    rest: Duration,
    process: Option<Process>,
) -> Result<IdleReport, String> {
    let memory = MemoryWatch::start(process);
    let before = process.and_then(|p| p.rss());
    let cpu = process.and_then(|p| p.cpu());
    let begun = Instant::now();
    let progress = Progress::start("connected", connections.into());
    let (leave, leaving) = watch::channel(false);
    let lost = Arc::new(AtomicU64::new(0));
    let mut staying = JoinSet::new();
    // In portions, each of which stays while the next comes: a quiet connection must answer pings all along.
    for first in (0..connections).step_by(PORTION as usize) {
        let users = (first..connections.min(first + PORTION)).map(user);
        for connection in server.join_all(users, || progress.step(1)).await? {
            staying.spawn(stay(connection, leaving.clone(), lost.clone()));
        }
    }
    let seconds_to_open = begun.elapsed().as_secs_f64();
    let cpu = process.and_then(|p| p.cpu()).zip(cpu).map(|(now, before)| now.saturating_sub(before));
    drop(progress);
    tokio::time::sleep(SETTLE).await;
    let open = process.and_then(|p| p.rss());
    let lost = lost.load(Ordering::Relaxed);

    leave.send_replace(true);
    while staying.join_next().await.is_some() {}
    let mut violations = Vec::new();
    if lost > 0 {
        violations.push(format!("{lost} of {connections} idle connections did not last"));
    }
    Ok(IdleReport {
        connections,
        seconds_to_open,
        rss_bytes_per_connection: open
            .zip(before)
            .map(|(open, before)| open.saturating_sub(before) / u64::from(connections)),
        server_cpu_micros_per_login: cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / f64::from(connections)),
        memory: memory.stop(rest).await,
        violations,
    })
}

async fn stay(mut connection: RawConnection, mut leaving: watch::Receiver<bool>, lost: Arc<AtomicU64>) {
    loop {
        tokio::select! {
            _ = leaving.changed() => return connection.close().await,
            frame = connection.next_frame(QUIET) => match frame {
                Ok(ServerFrame::Bye(_)) | Err(RawError::Closed { .. } | RawError::Socket(_)) => {
                    lost.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                _ => {}
            }
        }
    }
}
