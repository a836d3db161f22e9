//! Which conversations are looked at, and when. A shard has one worker at a time, by a lease; should two work on one all the
//! same, because a lease ended under the first, only one of them records a run.

use bluetick_store::{COLD_SHARDS, ColdCandidate, Result};
use serde::{Deserialize, Serialize};

use super::{ColdMoved, DAY_MS, Mover};

/// A shard is held for so long, and held on to when a third of it is over.
const LEASE_MS: u64 = 60_000;
/// Candidates that are asked for at once.
const PAGE: usize = 100;

/// How far this process has come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColdProgress {
    /// When the round that is under way began, or the last one did, in ms since 1970.
    pub began_at: Option<u64>,
    /// When the last whole round ended.
    pub ended_at: Option<u64>,
    /// The shard that is being worked on, of [`COLD_SHARDS`].
    pub shard: Option<u16>,
    /// Since the process began.
    pub looked_at: u64,
    pub moved: ColdMoved,
    pub last_error: Option<String>,
}

/// A lease on a shard, as this process knows it.
pub(super) struct Held {
    shard: u16,
    holder: String,
    asked_at: u64,
}

/// For how long conversations are worked on.
#[derive(Default)]
pub(super) struct Bounds {
    /// While the shard is held.
    pub held: Option<Held>,
    pub ends: Option<tokio::time::Instant>,
}

/// What became of a look at a candidate.
pub(super) struct Looked {
    pub moved: ColdMoved,
    /// Whether all that could be moved was.
    pub ended: bool,
    pub error: Option<String>,
}

impl Mover {
    /// Looks for what is old again and again, until it is told to [`stop`](Self::stop).
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

    /// One look at every shard that nobody else has.
    pub async fn round(&self) {
        {
            let mut progress = self.progress.lock();
            progress.began_at = Some(self.clock.now_ms());
            progress.last_error = None;
        }
        // What is only in memory is not moved, and a quiet server would keep it there for months.
        if let Err(error) = self.store.maintenance.checkpoint().await {
            tracing::warn!(%error, "no checkpoint before old messages are moved");
        }
        for shard in 0..COLD_SHARDS {
            if self.is_stopping() {
                break;
            }
            if let Err(error) = self.work_on(shard).await {
                tracing::warn!(shard, %error, "old messages of a shard stay where they are for now");
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

    /// Takes a shard, if nobody has it.
    pub(super) async fn hold(&self, shard: u16, holder: &str) -> Result<Option<Held>> {
        let asked_at = self.clock.now_ms();
        let has = self.store.cold.runs.lease(shard, holder, asked_at, asked_at + LEASE_MS).await?;
        Ok(has.then(|| Held { shard, holder: holder.to_owned(), asked_at }))
    }

    /// Whether to go on: the shard is still held, if one must be, and there is time.
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

    /// Leaves a shard to whoever wants it next.
    pub(super) async fn let_go(&self, bounds: Bounds) -> Result<()> {
        let Some(held) = bounds.held else { return Ok(()) };
        let now = self.clock.now_ms();
        self.store.cold.runs.lease(held.shard, &held.holder, now, now).await.map(drop)
    }

    /// Moves what is to be moved of a candidate, within bounds. What goes wrong with one conversation stops
    /// no other.
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
                tracing::warn!(conversation = %id, %error, "old messages stay where they are for now");
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

    /// Says when a candidate is to be looked at again.
    async fn settle(&self, candidate: &ColdCandidate) -> Result<()> {
        let runs = &self.store.cold.runs;
        if let Some(next) = self.next_look(candidate).await? {
            return runs.looked_at(candidate, Some(next)).await;
        }
        self.sweep(&candidate.conversation_id).await?;
        // Nothing is left. Whoever writes from now on has it looked at; whoever wrote just before is seen by another look.
        runs.looked_at(candidate, None).await?;
        let unlisted = ColdCandidate { due_at: None, ..candidate.clone() };
        match self.next_look(&unlisted).await? {
            Some(next) => runs.looked_at(&unlisted, Some(next)).await,
            None => Ok(()),
        }
    }

    /// When something of a conversation will be old enough; nothing if all of it is cold but the highest seq.
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
