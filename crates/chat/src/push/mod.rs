//! The notification service: who is told of a message that no live session took, when, and how often (R14).
//!
//! A message that takes the offline path owes a row in `push_outbox`, durable with its pending row. Whoever owed it waits
//! a moment, in which an ack cancels it, and makes the decision: `decide.rs`. What cannot be sent then stays owed, and any
//! app server claims it when it is due again; so does what a crash left behind. Memory holds only what is under way: the
//! rows are the queue.
//!
//! - `notifier.rs`: the seam to those who carry notifications
//! - `queue.rs`: what waits for its moment
//! - `routes.rs`: which ways are open, and how much goes through them at once
//! - `decide.rs`: one decision: to whom, and what it shows
//! - `carry.rs`: what was decided goes out, and the answers are obeyed
//! - `run.rs`: the loop that starts decisions and claims what is due

mod carry;
mod decide;
mod notifier;
mod queue;
mod routes;
mod run;

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use bluetick_protocol::{ConversationId, DeviceId, PushContent, PushProvider, Seq, UserId, WireError};
use bluetick_store::{Clock, OwedPush, Store};
use parking_lot::Mutex;
use rand::{SeedableRng, rngs::StdRng};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

pub use notifier::{About, Notification, NotificationKind, Notifier, Pushed};
pub use routes::RouteHealth;

pub(crate) use self::queue::ReadOn;
use self::{
    queue::{Job, Queue},
    routes::Routes,
};
use crate::{AppResult, DeliveryObserver, wire};

#[derive(Debug, Clone)]
pub struct PushConfig {
    /// The most that any notification shows.
    pub content: PushContent,
    /// What is shown where the preview may not be.
    pub text: String,
    /// How long a notification waits for an ack that makes it needless.
    pub delay: Duration,
    /// A live session that has not acked for so long does not count as one.
    pub unacked: Duration,
    /// Nothing older is worth notifying of.
    pub max_age: Duration,
    /// Requests under way at once on one route.
    pub concurrency: usize,
    /// Decisions that wait in memory; beyond it they wait in the outbox.
    pub queue_max: usize,
    /// How long whoever took a notification on has for it before anybody else may.
    pub claim_for: Duration,
    /// How often the outbox is looked through for what is due.
    pub sweep_every: Duration,
}

impl Default for PushConfig {
    fn default() -> Self {
        PushConfig {
            content: PushContent::Preview,
            text: "New message".into(),
            delay: Duration::from_secs(1),
            unacked: Duration::from_secs(20),
            max_age: Duration::from_secs(24 * 3600),
            concurrency: 64,
            queue_max: 10_000,
            claim_for: Duration::from_secs(60),
            sweep_every: Duration::from_secs(1),
        }
    }
}

/// What a device's provider answered to an operator's test.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PushTested {
    pub device: DeviceId,
    pub provider: PushProvider,
    pub accepted: bool,
    pub answer: String,
}

pub struct Push {
    store: Store,
    notifier: Arc<dyn Notifier>,
    clock: Arc<dyn Clock>,
    observer: Arc<DeliveryObserver>,
    config: PushConfig,
    queue: Mutex<Queue>,
    /// Something was put into the queue that is due before the rest.
    sooner: Notify,
    stopping: AtomicBool,
    /// Providers took these, and it could not be written down yet: nobody is to be notified again for that.
    unrecorded: Mutex<BTreeMap<(UserId, ConversationId), Seq>>,
    routes: Routes,
    rng: Mutex<StdRng>,
}

impl Push {
    pub fn new(
        store: Store,
        notifier: Arc<dyn Notifier>,
        clock: Arc<dyn Clock>,
        observer: Arc<DeliveryObserver>,
        config: PushConfig,
        seed: u64,
    ) -> Push {
        Push {
            queue: Mutex::new(Queue::new(config.queue_max)),
            sooner: Notify::new(),
            stopping: AtomicBool::new(false),
            unrecorded: Mutex::default(),
            routes: Routes::new(config.concurrency),
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
            store,
            notifier,
            clock,
            observer,
            config,
        }
    }

    /// From when on others may claim what is owed now: late enough for this process to see to it, or soon, if it has too
    /// much to see to already.
    pub(crate) fn due_at(&self) -> u64 {
        let delay = self.config.delay;
        let own = match self.queue.lock().is_full() {
            true => delay,
            false => delay + self.config.claim_for,
        };
        self.clock.now_ms() + own.as_millis() as u64
    }

    /// Takes on the decision of something that is owed. It waits its moment; what finds no room here is claimed later.
    pub(crate) fn decide_soon(&self, owed: OwedPush) {
        self.enqueue(Job::Decide { owed, sure: false });
    }

    /// A user has read on. Whether there is something to clear is looked at later: nobody waits for it.
    pub(crate) fn read_on(&self, read: ReadOn) {
        self.enqueue(Job::Read(read));
    }

    fn enqueue(&self, job: Job) {
        if self.queue.lock().add(job, self.config.delay) {
            self.sooner.notify_one();
        }
    }

    /// No session took a message, or one did and has not acked it: the user's devices are to be notified. Nothing is owed of
    /// what they were notified of before. `overdue`: what sessions are live has not acked in its time.
    pub(crate) async fn owe(
        &self,
        user: &UserId,
        id: &ConversationId,
        last_seq: Seq,
        overdue: bool,
    ) -> AppResult<()> {
        let (status, notified) = self.store.status.notified(user, id).await.map_err(wire)?;
        if last_seq <= notified.max(status.last_delivered_seq) {
            return Ok(());
        }
        let owed = OwedPush::new(user.clone(), id.clone(), last_seq, self.due_at());
        self.store.push_outbox.owe(owed.clone()).await.map_err(wire)?;
        self.enqueue(Job::Decide { owed, sure: overdue });
        Ok(())
    }

    /// Owes the devices that were notified of something that is read now that it be cleared.
    async fn clear_if_notified(&self, read: ReadOn) -> Option<OwedPush> {
        let ReadOn { user, conversation_id: id, before, read, session } = read;
        let owed = async {
            let (_, notified) = self.store.status.notified(&user, &id).await.map_err(wire)?;
            // Of what is partly read the phone still shows the rest.
            if notified <= before || read < notified {
                return Ok(None);
            }
            let due = OwedPush::new(user.clone(), id.clone(), read, self.due_at());
            let mut owed = OwedPush { clear: true, ..due };
            let live = self.store.sessions.lookup(&user).await.unwrap_or_default();
            let reader = live.into_iter().find(|live| Some(live.session_id) == session);
            if let Some(reader) = reader {
                let devices = self.store.devices.devices_of(&user).await.map_err(wire)?;
                let others = devices.into_iter().map(|row| row.device);
                owed.devices = others.filter(|device| *device != reader.device).collect();
                if owed.devices.is_empty() {
                    return Ok(None);
                }
            }
            self.store.push_outbox.owe(owed.clone()).await.map_err(wire)?;
            Ok(Some(owed))
        };
        owed.await.unwrap_or_else(|e: WireError| {
            tracing::warn!(error = %e, "a notification that was read elsewhere stays on the devices");
            None
        })
    }

    /// The ways to the providers that were used, and what is wrong with them.
    pub fn routes(&self) -> Vec<RouteHealth> {
        self.routes.health()
    }
}
