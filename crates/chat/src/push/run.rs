//! The loop of the notification service. One task: what is under way is in it, and it ends by being dropped. Whatever is
//! lost then is still owed.

use std::{
    collections::{BTreeMap, VecDeque},
    future::pending,
    time::Duration,
};

use bluetick_protocol::{ConversationId, UserId};
use bluetick_store::OwedPush;
use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use rand::RngExt as _;
use tokio::time::{Instant, sleep_until};

use super::{Push, decide::Decided, queue::key};
use crate::Answer;

/// Decisions under way at once, for each request that a route may have under way.
const DECISIONS_PER_REQUEST: usize = 8;
/// Of one conversation so many wait for their turn; beyond that a later one replaces an earlier.
const LANE_MAX: usize = 16;

type Lanes = BTreeMap<(UserId, ConversationId), VecDeque<OwedPush>>;

/// What is under way. Of a conversation one at a time, so that the phone shows the last.
struct Work<'a> {
    push: &'a Push,
    deciding: FuturesUnordered<BoxFuture<'a, (OwedPush, Answer<Decided>)>>,
    lanes: Lanes,
    max: usize,
}

impl Push {
    /// Decides what is due, for ever.
    pub async fn run(&self) {
        let mut work = Work {
            push: self,
            deciding: FuturesUnordered::new(),
            lanes: Lanes::new(),
            max: self.config.concurrency * DECISIONS_PER_REQUEST,
        };
        // At once: what a crash left behind is due.
        let mut sweep_at = Instant::now();
        loop {
            let now = Instant::now();
            while work.has_room()
                && let Some(owed) = self.queue.lock().take_due(now)
            {
                work.add(owed);
            }
            if work.has_room() && sweep_at <= now {
                sweep_at = now + work.sweep().await;
            }
            let next_at = self.queue.lock().next_at();
            let (has_room, is_idle) = (work.has_room(), work.deciding.is_empty());
            tokio::select! {
                biased;
                Some((owed, decided)) = work.deciding.next(), if !is_idle => work.done(owed, decided),
                () = at(next_at), if has_room => {}
                () = sleep_until(sweep_at), if has_room => {}
                () = self.sooner.notified() => {}
            }
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
        self.deciding.len() < self.max
    }

    /// Begins a decision, or puts it behind the one of its conversation that is under way.
    fn add(&mut self, owed: OwedPush) {
        match self.lanes.get_mut(&key(&owed)) {
            Some(lane) => {
                if lane.back().is_some_and(|last| !owed.replaces(last)) {
                    return;
                }
                if lane.len() >= LANE_MAX {
                    lane.clear();
                }
                lane.push_back(owed);
            }
            None => {
                self.lanes.insert(key(&owed), VecDeque::new());
                self.begin(owed);
            }
        }
    }

    fn begin(&mut self, owed: OwedPush) {
        let push = self.push;
        self.deciding.push(Box::pin(async move {
            let decided = push.decide(&owed).await;
            (owed, decided)
        }));
    }

    fn done(&mut self, owed: OwedPush, decided: Answer<Decided>) {
        let key = key(&owed);
        // What could not be sent now is owed, together with all that waits behind it: the outbox has the last of them.
        let goes_on = match decided {
            Ok(Decided::Paid(_)) => true,
            Ok(Decided::Wait(wait)) => {
                self.push.queue.lock().add(owed, wait);
                true
            }
            Ok(Decided::Later) => false,
            Err(e) => {
                tracing::warn!(error = %e, "a notification could not be decided; it stays owed");
                false
            }
        };
        let next = self.lanes.get_mut(&key).filter(|_| goes_on).and_then(VecDeque::pop_front);
        match next {
            Some(next) => self.begin(next),
            None => {
                self.lanes.remove(&key);
            }
        }
    }

    /// Claims what is due and nobody sees to. Returns after how long to look again.
    async fn sweep(&mut self) -> Duration {
        let (push, config) = (self.push, &self.push.config);
        if let Some(closed) = push.routes.all_closed_for() {
            // Nothing would get through; and each try would cost a write.
            return closed;
        }
        let now = push.clock.now_ms();
        let room = self.max - self.deciding.len();
        let claimed =
            push.store.push_outbox.claim(now, now + config.claim_for.as_millis() as u64, room).await;
        match claimed {
            Ok(claimed) => {
                let full = claimed.len() >= room;
                if !claimed.is_empty() {
                    metrics::counter!("bluetick_push_claimed_total").increment(claimed.len() as u64);
                }
                for owed in claimed {
                    self.add(owed);
                }
                if full {
                    return Duration::ZERO;
                }
            }
            Err(e) => tracing::warn!(error = %e, "the push outbox cannot be looked through; trying again"),
        }
        // Spread, so that app servers do not all look at the same time.
        config.sweep_every.mul_f64(push.rng.lock().random_range(0.5..1.0))
    }
}
