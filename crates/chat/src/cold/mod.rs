//! The mover of the cold tier: moves old, settled messages from `messages` into objects, one run of
//! a conversation at a time.
//!
//! For each run: read the messages that may move (`gather`), write the object and read it back,
//! record the run, delete the hot rows. A crash after any step at worst leaves a message in both
//! places, and the next visit of the conversation continues from there. `round.rs` decides which
//! conversations are visited and when; `ask.rs` serves the operator.

mod ask;
mod round;

use std::{sync::Arc, time::Duration};

use bluetick_protocol::{ConversationId, Seq};
use bluetick_store::{Clock, ColdObjects, ColdRun, Message, Movable, PageLimit, Result, Store, failpoint};

pub use ask::{ColdPlace, ColdStep, ColdStepped, ColdSurvey, ColdVerified};
use round::Bounds;
pub use round::ColdProgress;

/// The most that a clock may be ahead, on top of the idempotency window.
const CLOCKS_DIFFER_MS: u64 = 3_600_000;
/// Hot messages per read.
const PAGE: usize = 250;
/// Retries for a conversation that others change at the same time.
const TRIES: usize = 3;
/// A run takes at most this many seconds at the configured pace.
const RUN_SECS: usize = 10;
/// Hot rows per delete.
const DROPPED: usize = 1_024;
/// An object is recorded within half of this time after it is written.
const RECORDED_WITHIN_MS: u64 = 3_600_000;
/// A replaced object is kept this long, because a backup of the rows may still name it.
const KEPT_FOR_MS: u64 = 7 * DAY_MS;
const DAY_MS: u64 = 24 * 3_600_000;

#[derive(Debug, Clone)]
pub struct MoverConfig {
    /// Messages older than this become cold. Never less than the idempotency window
    /// ([`R9`](crate::rules::Rule::R9)).
    pub after: Duration,
    pub idempotency_window: Duration,
    /// The interval between rounds.
    pub every: Duration,
    /// Most messages moved per second.
    pub messages_per_second: u32,
    /// Most messages in one object, and most bytes of their texts.
    pub run_messages: usize,
    pub run_bytes: usize,
    /// A run with fewer messages is rewritten together with what follows it.
    pub short_run: usize,
    /// This many old messages are moved at once; fewer only after a day, so that the last object of
    /// a conversation is rewritten once a day and not once an hour.
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

/// The result of visiting a conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ColdMoved {
    pub messages: u64,
    /// About the bytes that they took in the hot store.
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
    /// The holder name in shard leases.
    holder: String,
    progress: parking_lot::Mutex<ColdProgress>,
    stopping: tokio::sync::watch::Sender<bool>,
}

impl Mover {
    /// `holder` identifies this process among all that share the store.
    pub fn new(store: Store, clock: Arc<dyn Clock>, config: MoverConfig, holder: String) -> Mover {
        let stopping = tokio::sync::watch::Sender::new(false);
        Mover { store, clock, config, holder, progress: Default::default(), stopping }
    }

    fn objects(&self) -> Result<&ColdObjects> {
        self.store.cold.objects()
    }

    /// Younger messages stay hot.
    fn cutoff(&self) -> u64 {
        let window = self.config.idempotency_window.as_millis() as u64 + CLOCKS_DIFFER_MS;
        let after = self.config.after.as_millis() as u64;
        self.clock.now_ms().saturating_sub(after.max(window))
    }

    /// Moves the old, settled messages of a conversation, in as many runs as needed. With `all`,
    /// also less than a batch.
    pub async fn move_conversation(&self, id: &ConversationId, all: bool) -> Result<ColdMoved> {
        Ok(self.move_until(id, all, &mut Bounds::default()).await?.0)
    }

    /// The same within bounds, which are checked after each run. Also returns whether it reached
    /// the end.
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
        // A conversation that keeps changing is left for the next round.
        Ok((moved, ended || in_vain == TRIES))
    }

    /// The messages that one run may take: consecutive, old, and delivered.
    async fn gather(&self, id: &ConversationId, seen: &Movable) -> Result<Vec<Arc<Message>>> {
        let (cutoff, mut bytes, mut closed) = (self.cutoff(), 0, None);
        let most = self.config.run_messages.min(self.config.messages_per_second as usize * RUN_SECS);
        let mut messages: Vec<Arc<Message>> = Vec::new();
        loop {
            let next = seen.from + messages.len() as Seq;
            // Reads the first alone: it is usually young, and so is everything after it.
            let page = if messages.is_empty() { 1 } else { PAGE };
            let room = most.max(1).saturating_sub(messages.len()).min(page);
            if next > seen.up_to || room == 0 || bytes >= self.config.run_bytes {
                return Ok(messages);
            }
            let page = self.store.cold.hot.read_from(id, next, PageLimit::messages(room)).await?;
            let Some(first) = page.first() else { return Ok(messages) };
            if first.seq > next && first.ts < cutoff {
                // Another process may have moved it. A hole of a month ago is closed, so that a
                // late writer fails (R8).
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
                // The time of a void means nothing: one that closed a hole is as young as the
                // closing.
                let old = message.void || message.ts < cutoff;
                if message.seq != expected || !old || !seen.is_settled(&message) {
                    return Ok(messages);
                }
                bytes += message.body.len();
                messages.push(message);
            }
        }
    }

    /// Writes, records and deletes. `None` if the conversation changed meanwhile; then nothing was
    /// done.
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
        // An earlier attempt may have recorded it and lost only the answer.
        Ok(self.store.cold.run_at(&run.conversation_id, run.last_seq).await?.as_ref() == Some(run))
    }

    /// Deletes hot rows that a run already holds, left by a crash between the record and the last
    /// delete. The object is read first. A row that differs from the one in the run stays.
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
            tracing::info!(conversation = %id, messages = copies.len(), "deleting hot rows that an interrupted move left behind");
            self.store.cold.runs.drop_hot(&copies).await?;
        }
    }

    /// Deletes orphaned objects of a conversation that no recent backup may need. Returns how many.
    pub(crate) async fn sweep(&self, id: &ConversationId) -> Result<u64> {
        let listed = self.objects()?.list(id).await?;
        let now = self.clock.now_ms();
        let since = |at: u64| now.saturating_sub(at);
        if listed.iter().all(|object| since(object.written_at) < RECORDED_WITHIN_MS) {
            return Ok(0);
        }
        // Lists the objects before the runs, so that an object recorded in between is not orphaned.
        let runs = self.store.cold.runs.runs_from(id, 0, usize::MAX >> 1).await?;
        let named: std::collections::BTreeSet<&str> = runs.iter().map(|run| run.object.as_str()).collect();
        let mut swept = 0;
        for object in listed.iter().filter(|object| !named.contains(object.key.as_str())) {
            // It was in use until another object with the same first seq was written.
            let later = listed.iter().filter(|other| {
                other.written_at > object.written_at && ColdObjects::begin_alike(&other.key, &object.key)
            });
            let needed_until = later.map(|other| other.written_at).min().unwrap_or(object.written_at);
            if since(needed_until) > KEPT_FOR_MS {
                tracing::info!(object = object.key, "deleting an orphaned object");
                self.objects()?.objects().delete(&object.key).await?;
                failpoint::hit("cold.swept");
                swept += 1;
            }
        }
        Ok(swept)
    }

    /// Waits as long as this many messages take at the configured pace, or until it must stop.
    async fn pace(&self, messages: u64) {
        let wait =
            Duration::from_secs_f64(messages as f64 / f64::from(self.config.messages_per_second.max(1)));
        let mut stopping = self.stopping.subscribe();
        let _ = tokio::time::timeout(wait, stopping.wait_for(|stopping| *stopping)).await;
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Finishes the current run and starts no other; [`run`](Self::run) returns.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }
}
