//! The notification service: which devices are notified of a message that no live session accepted,
//! and when ([`R14`](crate::rules::Rule::R14)).
//!
//! A message that takes the offline path adds a row to `push_outbox`, durable with its pending row.
//! The app server that wrote it waits a moment, in which an ack cancels the notification, and makes
//! the decision (`decide.rs`). A notification that cannot be sent stays in the outbox, and any app
//! server claims it when it is due again; the same holds after a crash. Memory holds only work in
//! progress: the rows are the queue.
//!
//! - `notifier.rs`: the interface to the push providers
//! - `queue.rs`: decisions that are not due yet
//! - `routes.rs`: circuit breaker and in-flight limit of each route to a provider
//! - `decide.rs`: one decision: which devices, and what they show
//! - `carry.rs`: sends what was decided and acts on the providers' answers
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
    /// The most that a notification may show.
    pub content: PushContent,
    /// The text where the preview may not be shown.
    pub text: String,
    /// How long a notification waits for an ack that makes it unnecessary.
    pub delay: Duration,
    /// A live session that has not acked for this long does not count.
    pub unacked: Duration,
    /// Older messages are not notified.
    pub max_age: Duration,
    /// In-flight limit of one route.
    pub concurrency: usize,
    /// Most decisions that wait in memory; beyond that they wait in the outbox.
    pub queue_max: usize,
    /// How long a claim on a notification lasts.
    pub claim_for: Duration,
    /// The poll interval of the outbox.
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

/// The provider's answer to an operator's test.
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
    /// Signals that the new head of the queue is due earlier.
    sooner: Notify,
    stopping: AtomicBool,
    /// Notifications that providers accepted and that could not be recorded yet. They must not be
    /// sent again.
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

    /// When others may claim a notification that is owed now: late enough for this process to send
    /// it, or soon if its queue is full.
    pub(crate) fn due_at(&self) -> u64 {
        let delay = self.config.delay;
        let own = match self.queue.lock().is_full() {
            true => delay,
            false => delay + self.config.claim_for,
        };
        self.clock.now_ms() + own.as_millis() as u64
    }

    /// Queues the decision about an owed notification. Without room in the queue it is claimed from
    /// the outbox later.
    pub(crate) fn decide_soon(&self, owed: OwedPush) {
        self.enqueue(Job::Decide { owed, sure: false });
    }

    /// A user has read further. Whether a notification must be cleared is decided in the
    /// background.
    pub(crate) fn read_on(&self, read: ReadOn) {
        self.enqueue(Job::Read(read));
    }

    fn enqueue(&self, job: Job) {
        if self.queue.lock().add(job, self.config.delay) {
            self.sooner.notify_one();
        }
    }

    /// Owes the user's devices a notification, because no session accepted a message or none has
    /// acked it. Nothing is owed if they were notified of it before. `overdue`: the live sessions
    /// have not acked in time.
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

    /// Owes a clear to the devices that show a notification of a message that is now read.
    async fn clear_if_notified(&self, read: ReadOn) -> Option<OwedPush> {
        let ReadOn { user, conversation_id: id, before, read, session } = read;
        let owed = async {
            let (_, notified) = self.store.status.notified(&user, &id).await.map_err(wire)?;
            // If only some of it is read, the phone keeps showing the rest.
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
            tracing::warn!(error = %e, "clear of a notification not queued; it stays on the devices");
            None
        })
    }

    /// The health of the routes that were used.
    pub fn routes(&self) -> Vec<RouteHealth> {
        self.routes.health()
    }
}
