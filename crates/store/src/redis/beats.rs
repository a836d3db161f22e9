//! The heartbeats of sessions come one by one and go to Redis together: a gateway with a hundred thousand sessions makes
//! a few round trips a second of them, not thousands.

use std::time::Duration;

use bluetick_protocol::{SessionId, UserId};
use tokio::sync::{mpsc, oneshot};

use super::sessions::Entries;
use crate::{Result, StoreError};

/// How long the first of a batch waits for others.
const GATHER: Duration = Duration::from_millis(20);
const BATCH_MAX: usize = 512;
const WAITING_MAX: usize = 4_096;

struct Beat {
    session: (UserId, SessionId),
    ttl: Duration,
    answer: oneshot::Sender<Result<bool>>,
}

#[derive(Clone)]
pub(super) struct Beats(mpsc::Sender<Beat>);

impl Beats {
    pub fn start(entries: Entries) -> Beats {
        let (sender, beats) = mpsc::channel(WAITING_MAX);
        tokio::spawn(run(entries, beats));
        Beats(sender)
    }

    /// Whether the entry was there, as of the batch that this one went with.
    pub async fn refresh(&self, session: (UserId, SessionId), ttl: Duration) -> Result<bool> {
        let gone = || StoreError::unavailable("Redis (heartbeats are not sent)");
        let (answer, answered) = oneshot::channel();
        self.0.send(Beat { session, ttl, answer }).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

async fn run(entries: Entries, mut beats: mpsc::Receiver<Beat>) {
    let mut batch = Vec::new();
    while beats.recv_many(&mut batch, BATCH_MAX).await > 0 {
        if batch.len() < BATCH_MAX {
            tokio::time::sleep(GATHER).await;
            while batch.len() < BATCH_MAX
                && let Ok(beat) = beats.try_recv()
            {
                batch.push(beat);
            }
        }
        metrics::histogram!("bluetick_heartbeat_batch").record(batch.len() as f64);
        let sent = std::mem::take(&mut batch);
        let entries = entries.clone();
        // The next batch does not wait for the answer to this one.
        tokio::spawn(async move { settle(&entries, sent).await });
    }
}

async fn settle(entries: &Entries, batch: Vec<Beat>) {
    // All sessions of a gateway have one TTL; the longest would do for any.
    let ttl = batch.iter().map(|beat| beat.ttl).max().unwrap_or_default();
    let sessions: Vec<_> = batch.iter().map(|beat| beat.session.clone()).collect();
    match entries.refresh(&sessions, ttl).await {
        Ok(there) => {
            for (beat, there) in batch.into_iter().zip(there) {
                let _ = beat.answer.send(Ok(there));
            }
        }
        Err(error) => {
            for beat in batch {
                let _ = beat.answer.send(Err(error.clone()));
            }
        }
    }
}
