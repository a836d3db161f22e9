//! Operator requests to the cold tier. Each runs in steps that any app server can take, so that the
//! caller can show progress and nothing is lost when a process ends.

use std::time::Duration;

use bluetick_protocol::ConversationId;
use bluetick_store::{COLD_SHARDS, ColdCandidate, ColdRun, EnlistPlace, Result};
use serde::{Deserialize, Serialize};

use super::{Bounds, ColdMoved, ColdProgress, Mover};
use crate::{AppResult, wire};

/// About how long a step takes.
const STEP: Duration = Duration::from_millis(500);
/// Candidates and runs per read.
const PAGE: usize = 50;
const SURVEYED: usize = 1_000;

/// The position of a round that runs in steps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColdPlace {
    pub shard: u16,
    /// The last candidate visited there.
    pub after: Option<(ConversationId, Option<u64>)>,
    /// When the round began: candidates due later are skipped.
    pub now: u64,
    /// The position of enlisting older conversations, if that comes first.
    #[serde(default)]
    pub enlist: Option<EnlistPlace>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColdStep {
    /// Where to continue; `None` starts at the beginning.
    pub place: Option<ColdPlace>,
    /// At the beginning: also enlist conversations that are older than the cold tier.
    #[serde(default)]
    pub enlist: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColdStepped {
    /// Where to continue; `None` at the end.
    pub place: Option<ColdPlace>,
    pub looked_at: u64,
    pub moved: ColdMoved,
    /// Another process holds the shard: ask again later.
    pub busy: bool,
    /// How many conversations were enlisted.
    pub enlisted: u64,
    pub last_error: Option<String>,
}

/// Totals over the runs of the cold tier.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColdSurvey {
    pub after: Option<ColdRun>,
    pub conversations: u64,
    pub runs: u64,
    pub messages: u64,
    pub bytes: u64,
    pub oldest_ts: Option<u64>,
    pub newest_ts: Option<u64>,
    /// Where the objects are stored.
    pub place: String,
    /// The background progress of the process that answers.
    pub progress: ColdProgress,
    pub whole: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColdVerified {
    pub after: Option<ColdRun>,
    pub objects: u64,
    pub messages: u64,
    pub bytes: u64,
    /// Damaged objects or runs, and what is wrong with them.
    pub damaged: Vec<(String, String)>,
    /// Orphaned objects that were deleted.
    pub swept: u64,
    pub whole: bool,
}

impl Mover {
    /// Moves messages for the time of one step, from a position on.
    pub async fn step(&self, asked: ColdStep) -> AppResult<ColdStepped> {
        self.take_step(asked).await.map_err(wire)
    }

    async fn take_step(&self, asked: ColdStep) -> Result<ColdStepped> {
        let mut done = ColdStepped::default();
        self.objects()?;
        let mut place = match asked.place {
            Some(place) => place,
            None => {
                // Messages that are not flushed would be left for the next time.
                self.store.maintenance.checkpoint().await?;
                let enlist = asked.enlist.then_some(EnlistPlace::default());
                ColdPlace { now: self.clock.now_ms(), enlist, ..ColdPlace::default() }
            }
        };
        let ends = tokio::time::Instant::now() + STEP;
        let in_time = || tokio::time::Instant::now() < ends && !self.is_stopping();
        while in_time()
            && let Some(from) = place.enlist.take()
        {
            let (enlisted, next) = self.store.cold.runs.enlist(place.now, from).await?;
            done.enlisted += enlisted;
            place.enlist = next;
        }
        // Differs from the background's holder name: the two must not work on one shard.
        let holder = format!("{} by hand", self.holder);
        while place.enlist.is_none() && place.shard < COLD_SHARDS && in_time() {
            let Some(held) = self.hold(place.shard, &holder).await? else {
                done.busy = true;
                break;
            };
            let mut bounds = Bounds { held: Some(held), ends: Some(ends) };
            let after = place.after.clone();
            let after = after.map(|(conversation_id, due_at)| ColdCandidate { conversation_id, due_at });
            let runs = &self.store.cold.runs;
            let page = runs.candidates(place.shard, after.as_ref(), place.now, PAGE).await?;
            if page.is_empty() {
                self.let_go(bounds).await?;
                place = ColdPlace { shard: place.shard + 1, after: None, ..place };
                continue;
            }
            for candidate in page {
                if !self.is_within(&mut bounds).await? {
                    break;
                }
                let looked = self.look_at(&candidate, true, &mut bounds).await;
                done.moved.add(looked.moved);
                done.last_error = looked.error.or(done.last_error);
                if !looked.ended {
                    break;
                }
                done.looked_at += 1;
                place.after = Some((candidate.conversation_id, candidate.due_at));
            }
            self.let_go(bounds).await?;
        }
        let ended = place.enlist.is_none() && place.shard >= COLD_SHARDS;
        done.place = (!ended).then_some(place);
        Ok(done)
    }

    /// Adds up runs, from where an earlier answer ended.
    pub async fn survey(&self, asked: ColdSurvey) -> AppResult<ColdSurvey> {
        let mut sums = asked;
        let page = self.store.cold.runs.all_runs(sums.after.as_ref(), SURVEYED).await.map_err(wire)?;
        for run in &page {
            let before = sums.after.as_ref().map(|run| &run.conversation_id);
            sums.conversations += u64::from(before != Some(&run.conversation_id));
            sums.runs += 1;
            sums.messages += run.messages();
            sums.bytes += run.bytes;
            sums.oldest_ts = Some(sums.oldest_ts.map_or(run.first_ts, |ts| ts.min(run.first_ts)));
            sums.newest_ts = Some(sums.newest_ts.map_or(run.last_ts, |ts| ts.max(run.last_ts)));
            sums.after = Some(run.clone());
        }
        sums.whole = page.is_empty();
        sums.place = self.objects().map(|objects| objects.objects().place().to_owned()).unwrap_or_default();
        sums.progress = self.progress();
        Ok(sums)
    }

    /// Reads complete objects for the time of one step, from where an earlier answer ended.
    pub async fn verify(&self, after: Option<ColdRun>) -> AppResult<ColdVerified> {
        self.verify_some(after).await.map_err(wire)
    }

    async fn verify_some(&self, after: Option<ColdRun>) -> Result<ColdVerified> {
        let mut done = ColdVerified { after, ..ColdVerified::default() };
        let ends = tokio::time::Instant::now() + STEP;
        let page = self.store.cold.runs.all_runs(done.after.as_ref(), PAGE).await?;
        done.whole = page.is_empty();
        for run in page {
            if tokio::time::Instant::now() >= ends && done.objects > 0 {
                break;
            }
            let before = done.after.as_ref().filter(|before| before.conversation_id == run.conversation_id);
            if before.is_none() {
                done.swept += self.sweep(&run.conversation_id).await?;
            }
            let begins = before.map_or(1, |before| before.last_seq + 1);
            // The run may have been merged with the one before it since.
            if run.first_seq > begins && self.store.cold.run_at(&run.conversation_id, begins).await?.is_none()
            {
                let why = format!("messages {begins} to {} are in no run", run.first_seq - 1);
                done.damaged.push((run.conversation_id.to_string(), why));
            }
            match self.objects()?.read_whole(&run).await {
                Ok(messages) => done.messages += messages.len() as u64,
                Err(bluetick_store::StoreError::Damaged { object, why }) => {
                    // It may have been rewritten since.
                    let now = self.store.cold.run_at(&run.conversation_id, run.last_seq).await?;
                    if now.as_ref() == Some(&run) {
                        done.damaged.push((object, why));
                    }
                }
                Err(error) => return Err(error),
            }
            done.objects += 1;
            done.bytes += run.bytes;
            done.after = Some(run);
        }
        Ok(done)
    }
}
