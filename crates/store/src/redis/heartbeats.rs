//! Batches the heartbeats of sessions, so that a gateway with a hundred thousand sessions makes a
//! few round trips a second instead of thousands.

use std::time::Duration;

use bluetick_protocol::{SessionId, UserId};
use tokio::sync::{mpsc, oneshot};

use super::sessions::SessionTable;
use crate::{Result, StoreError};

/// The linger: how long the first heartbeat of a batch waits for others.
const LINGER: Duration = Duration::from_millis(20);
const BATCH_MAX: usize = 512;
const QUEUE_MAX: usize = 4_096;

struct Heartbeat {
    session: (UserId, SessionId),
    ttl: Duration,
    answer: oneshot::Sender<Result<bool>>,
}

#[derive(Clone)]
pub(super) struct Heartbeats(mpsc::Sender<Heartbeat>);

impl Heartbeats {
    pub fn start(table: SessionTable) -> Heartbeats {
        let (sender, queue) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(run(table, queue));
        Heartbeats(sender)
    }

    /// Whether the entry was there when its batch was sent.
    pub async fn refresh(&self, session: (UserId, SessionId), ttl: Duration) -> Result<bool> {
        let stopped = || StoreError::unavailable("Redis (the task that sends heartbeats has stopped)");
        let (answer, answered) = oneshot::channel();
        self.0.send(Heartbeat { session, ttl, answer }).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }
}

async fn run(table: SessionTable, mut queue: mpsc::Receiver<Heartbeat>) {
    let mut batch = Vec::new();
    while queue.recv_many(&mut batch, BATCH_MAX).await > 0 {
        if batch.len() < BATCH_MAX {
            tokio::time::sleep(LINGER).await;
            while batch.len() < BATCH_MAX
                && let Ok(heartbeat) = queue.try_recv()
            {
                batch.push(heartbeat);
            }
        }
        metrics::histogram!("bluetick_heartbeat_batch").record(batch.len() as f64);
        let sent = std::mem::take(&mut batch);
        let table = table.clone();
        // The next batch does not wait for the answer to this one.
        tokio::spawn(async move { refresh_batch(&table, sent).await });
    }
}

async fn refresh_batch(table: &SessionTable, batch: Vec<Heartbeat>) {
    // All sessions of a gateway have the same TTL.
    let ttl = batch.iter().map(|heartbeat| heartbeat.ttl).max().unwrap_or_default();
    let sessions: Vec<_> = batch.iter().map(|heartbeat| heartbeat.session.clone()).collect();
    match table.refresh(&sessions, ttl).await {
        Ok(found) => {
            for (heartbeat, found) in batch.into_iter().zip(found) {
                let _ = heartbeat.answer.send(Ok(found));
            }
        }
        Err(error) => {
            for heartbeat in batch {
                let _ = heartbeat.answer.send(Err(error.clone()));
            }
        }
    }
}
