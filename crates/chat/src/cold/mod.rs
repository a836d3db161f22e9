//! The cold tier's mover: takes what is old and settled out of `messages`, a run of a conversation at a time, into objects.
//!
//! Of each run: read what may go (`gather`), write the object and read it back, record it, drop the hot rows. A crash after
//! any of these leaves a message in both places at worst, and the next look at its conversation goes on from there. Which
//! conversations are looked at, and when, is `round.rs`; what an operator asks for is `ask.rs`.

mod ask;
mod round;

use std::{sync::Arc, time::Duration};

use bluetick_protocol::{ConversationId, Seq};
use bluetick_store::{Clock, ColdObjects, ColdRun, Message, Movable, PageLimit, Result, Store, failpoint};

pub use ask::{ColdPlace, ColdStep, ColdStepped, ColdSurvey, ColdVerified};
use round::Bounds;
pub use round::ColdProgress;

/// Beside the idempotency window nobody's clock may be ahead by more.
const CLOCKS_DIFFER_MS: u64 = 3_600_000;
/// Hot messages that are read at once.
const PAGE: usize = 250;
/// How often a conversation that others change is looked at anew.
const TRIES: usize = 3;
/// A run is no longer than takes so many seconds at the pace that is set.
const RUN_SECS: usize = 10;
/// Hot rows that are dropped at once.
const DROPPED: usize = 1_024;
/// Whoever writes an object records it within half of that.
const RECORDED_WITHIN_MS: u64 = 3_600_000;
/// An object whose run was written anew stays for so long: a backup of the rows may still name it.
const KEPT_FOR_MS: u64 = 7 * DAY_MS;
const DAY_MS: u64 = 24 * 3_600_000;

#[derive(Debug, Clone)]
pub struct MoverConfig {
    /// Messages older than this go cold. Never less than the idempotency window (R9).
    pub after: Duration,
    pub idempotency_window: Duration,
    /// How often it is looked for what is old.
    pub every: Duration,
    /// Messages that are moved in a second, at most.
    pub messages_per_second: u32,
    /// Messages in one object, at most, and their text.
    pub run_messages: usize,
    pub run_bytes: usize,
    /// A run with fewer messages is written anew together with what follows it.
    pub short_run: usize,
    /// So many that are old enough are moved at once; fewer only when they have been for a day, so that a conversation's last
    /// object is written anew once a day and not once an hour.
    pub batch: usize,
}

impl Default for MoverConfig {
    fn default() -> Self {
        MoverConfig {
            after: Duration::from_secs(30 * 24 * 3600),
            idempotency_window: Duration::from_secs(30 * 24 * 3600),
            every: Duration::from_secs(3600),
            messages_per_second: 2_000,
            run_messages: 8_192,
            run_bytes: 2 * 1024 * 1024,
            short_run: 1_024,
            batch: 256,
        }
    }
}

/// What became of a look at a conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ColdMoved {
    pub messages: u64,
    /// About what they took in memory's terms: their texts and what surrounds them.
    pub hot_bytes: u64,
    pub objects: u64,
    pub cold_bytes: u64,
}

impl ColdMoved {
    fn add(&mut self, other: ColdMoved) {
        self.messages += other.messages;
        self.hot_bytes += other.hot_bytes;
        self.objects += other.objects;
        self.cold_bytes += other.cold_bytes;
    }
}

pub struct Mover {
    store: Store,
    clock: Arc<dyn Clock>,
    config: MoverConfig,
    /// Who holds a shard, in leases.
    holder: String,
    progress: parking_lot::Mutex<ColdProgress>,
    stopping: tokio::sync::watch::Sender<bool>,
}

impl Mover {
    /// `holder` names this process among all that share the store.
    pub fn new(store: Store, clock: Arc<dyn Clock>, config: MoverConfig, holder: String) -> Mover {
        let stopping = tokio::sync::watch::Sender::new(false);
        Mover { store, clock, config, holder, progress: Default::default(), stopping }
    }

    fn objects(&self) -> Result<&ColdObjects> {
        self.store.cold.objects()
    }

    /// What is younger stays.
    fn cutoff(&self) -> u64 {
        let window = self.config.idempotency_window.as_millis() as u64 + CLOCKS_DIFFER_MS;
        let after = self.config.after.as_millis() as u64;
        self.clock.now_ms().saturating_sub(after.max(window))
    }

    /// Moves what is old and settled of a conversation, as many runs as that makes. With `all`, also what is less than a
    /// batch.
    pub async fn move_conversation(&self, id: &ConversationId, all: bool) -> Result<ColdMoved> {
        Ok(self.move_until(id, all, &mut Bounds::default()).await?.0)
    }

    /// The same within bounds, which are looked at after each run. Returns also whether it came to the end.
    async fn move_until(
        &self,
        id: &ConversationId,
        all: bool,
        bounds: &mut Bounds,
    ) -> Result<(ColdMoved, bool)> {
        let mut moved = ColdMoved::default();
        let (mut in_vain, mut ended) = (0, false);
        self.drop_leftovers(id).await?;
        while in_vain < TRIES && !self.is_stopping() {
            let seen = self.store.cold.runs.movable(id).await?;
            let messages = match &seen {
                Some(seen) => self.gather(id, seen).await?,
                None => Vec::new(),
            };
            let (Some(seen), Some(first), Some(last)) = (seen, messages.first(), messages.last()) else {
                ended = true;
                break;
            };
            let waited = first.ts.saturating_add(DAY_MS) < self.cutoff();
            if !all && messages.len() < self.config.batch && !waited {
                ended = true;
                break;
            }
            tracing::debug!(conversation = %id, from = first.seq, to = last.seq, "moving messages");
            match self.move_run(&seen, &messages).await? {
                Some(run) => {
                    moved.add(run);
                    self.pace(run.messages).await;
                    if !self.is_within(bounds).await? {
                        break;
                    }
                }
                None => in_vain += 1,
            }
        }
        if moved.objects > 0 {
            self.sweep(id).await?;
        }
        // What is refused again and again is left for another time: whoever asked would ask for ever.
        Ok((moved, ended || in_vain == TRIES))
    }

    /// The messages that one run may take: consecutive, old, and with nobody waiting for them.
    async fn gather(&self, id: &ConversationId, seen: &Movable) -> Result<Vec<Arc<Message>>> {
        let (cutoff, mut bytes, mut closed) = (self.cutoff(), 0, None);
        let most = self.config.run_messages.min(self.config.messages_per_second as usize * RUN_SECS);
        let mut messages: Vec<Arc<Message>> = Vec::new();
        loop {
            let next = seen.from + messages.len() as Seq;
            // The first by itself: most often it is young, and so is all that follows.
            let page = if messages.is_empty() { 1 } else { PAGE };
            let room = most.max(1).saturating_sub(messages.len()).min(page);
            if next > seen.up_to || room == 0 || bytes >= self.config.run_bytes {
                return Ok(messages);
            }
            let page = self.store.cold.hot.read_from(id, next, PageLimit::messages(room)).await?;
            let Some(first) = page.first() else { return Ok(messages) };
            if first.seq > next && first.ts < cutoff {
                // Somebody else may have moved it. What nobody wrote for a month is closed, so that a late writer fails (R8).
                if closed == Some(next) || self.store.cold.run_at(id, next).await?.is_some() {
                    return Ok(messages);
                }
                for hole in next..first.seq {
                    self.store.messages.close_hole(id, hole).await?;
                }
                closed = Some(next);
                continue;
            }
            for (expected, message) in (next..=seen.up_to).zip(page) {
                // A void says nothing; one that closed a hole is as young as its closing.
                let old = message.void || message.ts < cutoff;
                if message.seq != expected || !old || !seen.is_settled(&message) {
                    return Ok(messages);
                }
                bytes += message.body.len();
                messages.push(message);
            }
        }
    }

    /// Packs, records and drops. Nothing if the conversation changed under it; then nothing was changed by it.
    async fn move_run(&self, seen: &Movable, messages: &[Arc<Message>]) -> Result<Option<ColdMoved>> {
        let began = self.clock.now_ms();
        let (cold, objects) = (&self.store.cold, self.objects()?);
        let short = |run: &&ColdRun| run.messages() < self.config.short_run as u64;
        let replaces = seen.last_run.as_ref().filter(short);
        let mut whole = match replaces {
            Some(old) => objects.read_whole(old).await?,
            None => Vec::new(),
        };
        whole.extend_from_slice(messages);
        let run = objects.write(&whole).await?;
        let in_time = self.clock.now_ms() < began + RECORDED_WITHIN_MS / 2;
        if !in_time || !self.record(&run, replaces, seen).await? {
            metrics::counter!("bluetick_cold_lost_races_total").increment(1);
            objects.delete(&run.object).await?;
            return Ok(None);
        }
        failpoint::hit("cold.recorded");
        for some in messages.chunks(DROPPED) {
            cold.runs.drop_hot(some).await?;
            failpoint::hit("cold.some_dropped");
        }
        failpoint::hit("cold.all_dropped");
        let moved = ColdMoved {
            messages: messages.len() as u64,
            hot_bytes: messages.iter().map(|m| m.stored_bytes()).sum(),
            objects: 1,
            cold_bytes: run.bytes - replaces.map_or(0, |old| old.bytes).min(run.bytes),
        };
        metrics::counter!("bluetick_cold_moved_messages_total").increment(moved.messages);
        metrics::counter!("bluetick_cold_written_objects_total").increment(1);
        metrics::counter!("bluetick_cold_written_bytes_total").increment(run.bytes);
        Ok(Some(moved))
    }

    async fn record(&self, run: &ColdRun, replaces: Option<&ColdRun>, seen: &Movable) -> Result<bool> {
        if self.store.cold.runs.record(run, replaces, seen).await? {
            return Ok(true);
        }
        // The answer to an earlier try may have got lost, not the record.
        Ok(self.store.cold.run_at(&run.conversation_id, run.last_seq).await?.as_ref() == Some(run))
    }

    /// Drops hot rows that a run holds already: what was cut off between the record and the last drop. The object is read
    /// before anything is dropped by its word. A row that is not the one in the run is not the mover's to judge, and stays.
    async fn drop_leftovers(&self, id: &ConversationId) -> Result<()> {
        loop {
            let found = self.store.cold.runs.leftovers(id, DROPPED).await?;
            let mut copies = Vec::with_capacity(found.len());
            let mut left = found.as_slice();
            while let Some(first) = left.first() {
                let Some(run) = self.store.cold.run_at(id, first.seq).await? else { break };
                let (of_run, after) = left.split_at(left.partition_point(|m| m.seq <= run.last_seq));
                let cold = self.objects()?.read_whole(&run).await?;
                let copy_of =
                    |hot: &Message| cold.get(usize::try_from(hot.seq.checked_sub(run.first_seq)?).ok()?);
                let is_copy =
                    |hot: &&Arc<Message>| copy_of(hot).is_some_and(|cold| cold.message_id == hot.message_id);
                copies.extend(of_run.iter().filter(is_copy).cloned());
                left = after;
            }
            if copies.is_empty() {
                return Ok(());
            }
            tracing::info!(conversation = %id, messages = copies.len(), "dropping what a move left behind");
            self.store.cold.runs.drop_hot(&copies).await?;
        }
    }

    /// Deletes objects of a conversation that no run names and that no backup of some days ago may need. Returns how many.
    pub(crate) async fn sweep(&self, id: &ConversationId) -> Result<u64> {
        let listed = self.objects()?.list(id).await?;
        let now = self.clock.now_ms();
        let since = |at: u64| now.saturating_sub(at);
        if listed.iter().all(|object| since(object.written_at) < RECORDED_WITHIN_MS) {
            return Ok(0);
        }
        // The list first, the runs afterwards: what was recorded in between is named.
        let runs = self.store.cold.runs.runs_from(id, 0, usize::MAX >> 1).await?;
        let named: std::collections::BTreeSet<&str> = runs.iter().map(|run| run.object.as_str()).collect();
        let mut swept = 0;
        for object in listed.iter().filter(|object| !named.contains(object.key.as_str())) {
            // It was needed until another was written that begins with the same seq.
            let later = listed.iter().filter(|other| {
                other.written_at > object.written_at && ColdObjects::begin_alike(&other.key, &object.key)
            });
            let needed_until = later.map(|other| other.written_at).min().unwrap_or(object.written_at);
            if since(needed_until) > KEPT_FOR_MS {
                tracing::info!(object = object.key, "deleting an object that no run names");
                self.objects()?.objects().delete(&object.key).await?;
                failpoint::hit("cold.swept");
                swept += 1;
            }
        }
        Ok(swept)
    }

    /// Waits for as long as so many messages are to take, or until it is to stop.
    async fn pace(&self, messages: u64) {
        let wait =
            Duration::from_secs_f64(messages as f64 / f64::from(self.config.messages_per_second.max(1)));
        let mut stopping = self.stopping.subscribe();
        let _ = tokio::time::timeout(wait, stopping.wait_for(|stopping| *stopping)).await;
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Ends the run that is being written, and begins no other; [`run`](Self::run) returns.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }
}
