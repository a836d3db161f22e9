//! The loop of the notification service: one task that owns the decisions in progress and the
//! polling of the outbox. Everything it loses is still in the outbox.

use std::{
    collections::{BTreeMap, VecDeque},
    future::pending,
    sync::atomic::Ordering,
    time::Duration,
};

use bluetick_protocol::{ConversationId, UserId};
use bluetick_store::OwedPush;
use futures_util::{
    StreamExt as _,
    future::{BoxFuture, join_all},
    stream::FuturesUnordered,
};
use rand::RngExt as _;
use tokio::time::{Instant, sleep_until};

use super::{
    Push,
    decide::Decided,
    queue::{Job, key},
};
use crate::{AppResult, slot::ready};

/// Most decisions in progress, per request that a route may have in flight.
const DECISIONS_PER_REQUEST: usize = 8;
/// Most decisions of one conversation that wait; beyond that a later one replaces an earlier.
const LANE_MAX: usize = 16;
/// The poll interval while every route is closed.
const CLOSED_LOOK_EVERY: Duration = Duration::from_secs(10);
/// Most rows that are released concurrently when the service stops.
const GIVEN_BACK_AT_ONCE: usize = 64;

type ConversationQueues = BTreeMap<(UserId, ConversationId), VecDeque<(OwedPush, bool)>>;

enum FinishedPush {
    Decided(OwedPush, AppResult<Decided>),
    /// A clear, because the user has read further.
    Read(Option<OwedPush>),
    PutOff,
}

/// Work in progress, one item per conversation at a time, so that the phone shows the latest.
struct Work<'a> {
    push: &'a Push,
    under_way: FuturesUnordered<BoxFuture<'a, FinishedPush>>,
    lanes: ConversationQueues,
    max: usize,
    sweeping: Option<BoxFuture<'a, Vec<OwedPush>>>,
    sweep_at: Instant,
}

impl Push {
    /// Decides what is due, until it is told to [`stop`](Self::stop).
    pub async fn run(&self) {
        let mut work = Work {
            push: self,
            under_way: FuturesUnordered::new(),
            lanes: ConversationQueues::new(),
            max: self.config.concurrency * DECISIONS_PER_REQUEST,
            sweeping: None,
            // Immediately, because what a crash left behind is due.
            sweep_at: Instant::now(),
        };
        loop {
            let stopping = self.stopping.load(Ordering::Acquire);
            if stopping {
                // Released now, not after the last request: that may take longer than the shutdown
                // allows.
                self.give_back().await;
                if work.under_way.is_empty() && work.sweeping.is_none() {
                    return;
                }
            }
            let now = Instant::now();
            while !stopping
                && work.has_room()
                && let Some(job) = self.queue.lock().take_due(now)
            {
                work.start(job);
            }
            if !stopping && work.has_room() && work.sweeping.is_none() && work.sweep_at <= now {
                work.begin_sweep(now);
            }
            let next_at = self.queue.lock().next_at();
            let takes_on = work.has_room() && !stopping;
            let looks = takes_on && work.sweeping.is_none();
            tokio::select! {
                biased;
                Some(done) = work.under_way.next() => work.done(done),
                claimed = ready(&mut work.sweeping) => work.take_claimed(claimed),
                () = at(next_at), if takes_on => {}
                () = sleep_until(work.sweep_at), if looks => {}
                () = self.sooner.notified() => {}
            }
        }
    }

    /// Ends the service: work in progress is finished, nothing new is started, and
    /// [`run`](Self::run) returns.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.sooner.notify_one();
    }

    /// Releases the claims on waiting rows, so that others need not wait for them to expire.
    async fn give_back(&self) {
        let now = self.clock.now_ms();
        let jobs = self.queue.lock().take_all();
        for jobs in jobs.chunks(GIVEN_BACK_AT_ONCE) {
            let each = jobs.iter().map(|job| async move {
                match job {
                    Job::Decide { owed, .. } => {
                        let due = OwedPush { due_at: now, ..owed.clone() };
                        if let Err(e) = self.store.push_outbox.postpone(owed, &due).await {
                            tracing::warn!(error = %e, "push claim not released; the notification is sent when the claim expires");
                        }
                    }
                    Job::Read(read) => drop(self.clear_if_notified(read.clone()).await),
                }
            });
            join_all(each).await;
        }
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => pending().await,
    }
}

impl<'a> Work<'a> {
    fn has_room(&self) -> bool {
        self.under_way.len() < self.max
    }

    fn start(&mut self, job: Job) {
        match job {
            Job::Decide { owed, sure } => self.add(owed, sure),
            Job::Read(read) => {
                let push = self.push;
                self.under_way
                    .push(Box::pin(async move { FinishedPush::Read(push.clear_if_notified(read).await) }));
            }
        }
    }

    /// Starts a decision, or queues it after the one of its conversation that is in progress.
    fn add(&mut self, owed: OwedPush, sure: bool) {
        match self.lanes.get_mut(&key(&owed)) {
            Some(lane) => {
                if let Some((last, last_sure)) = lane.back_mut()
                    && !owed.replaces(last)
                {
                    *last_sure |= sure && !last.replaces(&owed);
                    return;
                }
                if lane.len() >= LANE_MAX {
                    lane.clear();
                }
                lane.push_back((owed, sure));
            }
            None => {
                self.lanes.insert(key(&owed), VecDeque::new());
                self.begin(owed, sure);
            }
        }
    }

    fn begin(&mut self, owed: OwedPush, sure: bool) {
        let push = self.push;
        self.under_way.push(Box::pin(async move {
            let decided = push.decide(&owed, sure).await;
            FinishedPush::Decided(owed, decided)
        }));
    }

    fn done(&mut self, done: FinishedPush) {
        let (owed, decided) = match done {
            FinishedPush::Decided(owed, decided) => (owed, decided),
            FinishedPush::Read(Some(clear)) => return self.add(clear, true),
            FinishedPush::Read(None) | FinishedPush::PutOff => return,
        };
        let key = key(&owed);
        let goes_on = match decided {
            Ok(Decided::Paid(_)) => true,
            Ok(Decided::Wait(wait)) => {
                self.push.queue.lock().add(Job::Decide { owed: owed.clone(), sure: false }, wait);
                true
            }
            Ok(Decided::Later) => false,
            Err(e) => {
                tracing::warn!(error = %e, "push decision failed; the notification stays in the outbox");
                self.put_off(owed.clone());
                false
            }
        };
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        if self.push.stopping.load(Ordering::Acquire) {
            // It is released with the rest of the queue.
            if let Some((last, sure)) = lane.pop_back() {
                self.push.enqueue(Job::Decide { owed: last, sure });
            }
            self.lanes.remove(&key);
        } else if !goes_on {
            // Later decisions of the conversation wait with it. The outbox holds the last of them,
            // due soon.
            let last = lane.pop_back().map(|(last, _)| last).filter(|last| last.replaces(&owed));
            self.lanes.remove(&key);
            if let Some(last) = last {
                self.put_off(last);
            }
        } else if let Some((next, sure)) = lane.pop_front() {
            self.begin(next, sure);
        } else {
            self.lanes.remove(&key);
        }
    }

    fn put_off(&mut self, owed: OwedPush) {
        let push = self.push;
        self.under_way.push(Box::pin(async move {
            push.put_off(&owed).await;
            FinishedPush::PutOff
        }));
    }

    /// Starts to poll the outbox for due rows that nobody has claimed.
    fn begin_sweep(&mut self, now: Instant) {
        let (push, config) = (self.push, &self.push.config);
        // Jittered, so that app servers do not all poll at the same time.
        self.sweep_at = now + config.sweep_every.mul_f64(push.rng.lock().random_range(0.5..1.0));
        if let Some(closed) = push.routes.all_closed_for() {
            // Nothing could be sent, and each attempt would cost a write.
            self.sweep_at = now + closed.min(CLOSED_LOOK_EVERY);
            return;
        }
        let room = self.max - self.under_way.len();
        let now_ms = push.clock.now_ms();
        let until = now_ms + config.claim_for.as_millis() as u64;
        self.sweeping = Some(Box::pin(async move {
            push.store.push_outbox.claim(now_ms, until, room).await.unwrap_or_else(|e| {
                tracing::warn!(error = %e, "push outbox poll failed; retrying");
                Vec::new()
            })
        }));
    }

    fn take_claimed(&mut self, claimed: Vec<OwedPush>) {
        if claimed.is_empty() {
            return;
        }
        metrics::counter!("bluetick_push_claimed_total").increment(claimed.len() as u64);
        // A full page may be followed by more.
        self.sweep_at = Instant::now();
        let stopping = self.push.stopping.load(Ordering::Acquire);
        for owed in claimed {
            match stopping {
                true => self.push.enqueue(Job::Decide { owed, sure: false }),
                false => self.add(owed, false),
            }
        }
    }
}
