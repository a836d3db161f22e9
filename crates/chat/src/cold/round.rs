//! Which conversations are visited, and when. A lease gives a shard one worker at a time. If a
//! lease expires under its worker and two work on one shard, only one of them records a run.

use bluetick_store::{COLD_SHARDS, ColdCandidate, Result};
use serde::{Deserialize, Serialize};

use super::{ColdMoved, DAY_MS, Mover};

/// The duration of a shard's lease. It is renewed after a third of it.
const LEASE_MS: u64 = 60_000;
/// Candidates per read.
const PAGE: usize = 100;

/// The progress of this process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColdProgress {
    /// When the current or last round began, in ms since 1970.
    pub began_at: Option<u64>,
    /// When the last complete round ended.
    pub ended_at: Option<u64>,
    /// The current shard, of [`COLD_SHARDS`].
    pub shard: Option<u16>,
    /// Since the process started.
    pub looked_at: u64,
    pub moved: ColdMoved,
    pub last_error: Option<String>,
}

/// A lease on a shard, as far as this process knows.
pub(super) struct ShardLease {
    shard: u16,
    holder: String,
    asked_at: u64,
}

/// How long conversations are worked on.
#[derive(Default)]
pub(super) struct Bounds {
    /// While the shard is held.
    pub held: Option<ShardLease>,
    pub ends: Option<tokio::time::Instant>,
}

/// The result of visiting a candidate.
pub(super) struct Looked {
    pub moved: ColdMoved,
    /// Whether everything that could be moved was.
    pub ended: bool,
    pub error: Option<String>,
}

impl Mover {
    /// Makes rounds until it is told to [`stop`](Self::stop).
    pub async fn run(&self) {
        let mut stopping = self.stopping.subscribe();
        loop {
            self.round().await;
            let stopped = stopping.wait_for(|stopping| *stopping);
            if tokio::time::timeout(self.config.every, stopped).await.is_ok() {
                return;
            }
        }
    }

    pub fn progress(&self) -> ColdProgress {
        self.progress.lock().clone()
    }

    /// One round over every shard that no other process holds.
    pub async fn round(&self) {
        {
            let mut progress = self.progress.lock();
            progress.began_at = Some(self.clock.now_ms());
            progress.last_error = None;
        }
        // Only flushed messages are moved, and a quiet server would keep them in memory for months.
        if let Err(error) = self.store.maintenance.checkpoint().await {
            tracing::warn!(%error, "checkpoint before the cold round failed; unflushed messages stay hot");
        }
        for shard in 0..COLD_SHARDS {
            if self.is_stopping() {
                break;
            }
            if let Err(error) = self.work_on(shard).await {
                tracing::warn!(shard, %error, "cold shard skipped; it is visited again next round");
                metrics::counter!("bluetick_cold_errors_total").increment(1);
                self.progress.lock().last_error = Some(error.to_string());
            }
        }
        let mut progress = self.progress.lock();
        progress.shard = None;
        if !self.is_stopping() {
            progress.ended_at = Some(self.clock.now_ms());
        }
    }

    async fn work_on(&self, shard: u16) -> Result<()> {
        let Some(held) = self.hold(shard, &self.holder).await? else { return Ok(()) };
        let mut bounds = Bounds { held: Some(held), ends: None };
        self.progress.lock().shard = Some(shard);
        let now = self.clock.now_ms();
        let mut after: Option<ColdCandidate> = None;
        loop {
            let page = self.store.cold.runs.candidates(shard, after.as_ref(), now, PAGE).await?;
            let Some(last) = page.last().cloned() else { break };
            after = Some(last);
            for candidate in &page {
                if !self.is_within(&mut bounds).await? {
                    return Ok(());
                }
                self.look_at(candidate, false, &mut bounds).await;
            }
        }
        self.let_go(bounds).await
    }

    /// Acquires a shard, if no other process holds it.
    pub(super) async fn hold(&self, shard: u16, holder: &str) -> Result<Option<ShardLease>> {
        let asked_at = self.clock.now_ms();
        let has = self.store.cold.runs.lease(shard, holder, asked_at, asked_at + LEASE_MS).await?;
        Ok(has.then(|| ShardLease { shard, holder: holder.to_owned(), asked_at }))
    }

    /// Whether to continue: the shard is still held, if it must be, and there is time.
    pub(super) async fn is_within(&self, bounds: &mut Bounds) -> Result<bool> {
        if self.is_stopping() || bounds.ends.is_some_and(|ends| tokio::time::Instant::now() >= ends) {
            return Ok(false);
        }
        let Some(held) = &mut bounds.held else { return Ok(true) };
        if self.clock.now_ms() < held.asked_at + LEASE_MS / 3 {
            return Ok(true);
        }
        match self.hold(held.shard, &held.holder).await? {
            Some(longer) => {
                *held = longer;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Releases a shard.
    pub(super) async fn let_go(&self, bounds: Bounds) -> Result<()> {
        let Some(held) = bounds.held else { return Ok(()) };
        let now = self.clock.now_ms();
        self.store.cold.runs.lease(held.shard, &held.holder, now, now).await.map(drop)
    }

    /// Moves the old messages of a candidate, within bounds. A failure in one conversation stops no
    /// other.
    pub(super) async fn look_at(&self, candidate: &ColdCandidate, all: bool, bounds: &mut Bounds) -> Looked {
        let id = &candidate.conversation_id;
        let looked = async {
            let (moved, ended) = self.move_until(id, all, bounds).await?;
            if ended && !self.is_stopping() {
                self.settle(candidate).await?;
            }
            Ok::<_, bluetick_store::StoreError>((moved, ended))
        };
        let looked = match looked.await {
            Ok((moved, ended)) => Looked { moved, ended, error: None },
            Err(error) => {
                tracing::warn!(conversation = %id, %error, "conversation not moved to the cold tier; it is visited again later");
                metrics::counter!("bluetick_cold_errors_total").increment(1);
                Looked { moved: ColdMoved::default(), ended: true, error: Some(format!("{id}: {error}")) }
            }
        };
        let mut progress = self.progress.lock();
        progress.looked_at += 1;
        progress.moved.add(looked.moved);
        if looked.error.is_some() {
            progress.last_error = looked.error.clone();
        }
        looked
    }

    /// Records when a candidate is due again.
    async fn settle(&self, candidate: &ColdCandidate) -> Result<()> {
        let runs = &self.store.cold.runs;
        if let Some(next) = self.next_look(candidate).await? {
            return runs.looked_at(candidate, Some(next)).await;
        }
        self.sweep(&candidate.conversation_id).await?;
        // Nothing is left. A later write enlists it again; a write just before this is seen by the
        // next check.
        runs.looked_at(candidate, None).await?;
        let unlisted = ColdCandidate { due_at: None, ..candidate.clone() };
        match self.next_look(&unlisted).await? {
            Some(next) => runs.looked_at(&unlisted, Some(next)).await,
            None => Ok(()),
        }
    }

    /// When a message of the conversation will be old enough; `None` if all but the highest seq is
    /// cold.
    async fn next_look(&self, candidate: &ColdCandidate) -> Result<Option<u64>> {
        let cold = &self.store.cold;
        let Some(seen) = cold.runs.movable(&candidate.conversation_id).await? else { return Ok(None) };
        let limit = bluetick_store::PageLimit::messages(2);
        let hot = cold.hot.read_from(&candidate.conversation_id, seen.from, limit).await?;
        let now = self.clock.now_ms();
        Ok(match hot.as_slice() {
            [oldest, _] => {
                let age = now.saturating_sub(self.cutoff());
                Some((oldest.ts + age + DAY_MS).max(now + DAY_MS))
            }
            _ => None,
        })
    }
}
