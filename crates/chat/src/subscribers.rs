//! Live subscribers to the steps of delivery: the event streams of the admin interface and of the tour.
//!
//! Publishing never waits. A subscriber that does not keep up is dropped, and without subscribers a step costs one
//! relaxed load.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bluetick_protocol::{ConversationId, DeviceId, Seq, Side, UserId};
use parking_lot::RwLock;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::{observer::Observed, trace::TraceStep};

/// Events that may wait for a subscriber. One that falls further behind is dropped.
const QUEUE_CAPACITY: usize = 1_024;

/// A step, as a subscriber receives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepEvent {
    pub at: u64,
    pub step: TraceStep,
    pub conversation_id: Option<ConversationId>,
    pub seq: Option<Seq>,
    pub user: UserId,
    pub device: Option<DeviceId>,
    /// How many sessions a lookup found.
    pub count: Option<usize>,
}

#[derive(Debug, Default)]
pub(crate) struct Subscribers {
    count: AtomicUsize,
    list: RwLock<SubscriberList>,
}

#[derive(Debug, Default)]
struct SubscriberList {
    last_id: u64,
    subscribers: Vec<Subscriber>,
    /// The server is shutting down: nobody may subscribe any more.
    is_closed: bool,
}

#[derive(Debug)]
struct Subscriber {
    id: u64,
    users: BTreeSet<UserId>,
    queue: mpsc::Sender<StepEvent>,
}

impl Subscriber {
    fn names(&self, user: &str) -> bool {
        self.users.iter().any(|named| named.as_str() == user)
    }

    /// A subscriber to one user gets all of their conversations; a subscriber to several, those among them.
    fn wants(&self, observed: &Observed<'_>) -> bool {
        let Some((id, _)) = observed.message else { return self.names(observed.user.as_str()) };
        let sides = [Side::Low, Side::High].map(|side| self.names(id.member_str(side)));
        if self.users.len() == 1 { sides.contains(&true) } else { !sides.contains(&false) }
    }
}

/// A subscription. Dropping it unsubscribes.
pub struct Subscription {
    subscribers: Arc<Subscribers>,
    id: u64,
    events: mpsc::Receiver<StepEvent>,
}

impl Subscription {
    /// The next event. `None`: this subscriber fell behind and was dropped, or the server is shutting down.
    pub async fn next(&mut self) -> Option<StepEvent> {
        self.events.recv().await
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.subscribers.remove(|id| id == self.id);
    }
}

impl Subscribers {
    /// `None` if there are `max` subscribers already, or the server is shutting down.
    pub fn subscribe(self: &Arc<Self>, users: BTreeSet<UserId>, max: usize) -> Option<Subscription> {
        let mut list = self.list.write();
        if list.subscribers.len() >= max || list.is_closed {
            return None;
        }
        let (queue, events) = mpsc::channel(QUEUE_CAPACITY);
        list.last_id += 1;
        let id = list.last_id;
        list.subscribers.push(Subscriber { id, users, queue });
        self.count.store(list.subscribers.len(), Ordering::Relaxed);
        drop(list);
        Some(Subscription { subscribers: self.clone(), id, events })
    }

    /// Ends every subscription, and refuses new ones.
    pub fn close(&self) {
        self.list.write().is_closed = true;
        self.remove(|_| true);
    }

    fn remove(&self, matches: impl Fn(u64) -> bool) {
        let mut list = self.list.write();
        list.subscribers.retain(|subscriber| !matches(subscriber.id));
        self.count.store(list.subscribers.len(), Ordering::Relaxed);
    }

    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Hands the event to those who want it. It is built only for them.
    pub fn publish(&self, observed: &Observed<'_>, now_ms: impl Fn() -> u64) {
        if self.is_empty() {
            return;
        }
        let mut behind = Vec::new();
        let list = self.list.read();
        for subscriber in list.subscribers.iter().filter(|subscriber| subscriber.wants(observed)) {
            if subscriber.queue.try_send(observed.event(now_ms())).is_err() {
                behind.push(subscriber.id);
            }
        }
        drop(list);
        if !behind.is_empty() {
            self.remove(|id| behind.contains(&id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 4;

    fn user(name: &str) -> UserId {
        UserId::new(name).unwrap()
    }

    fn subscribe(subscribers: &Arc<Subscribers>, names: &[&str]) -> Subscription {
        subscribers.subscribe(names.iter().map(|name| user(name)).collect(), MAX).unwrap()
    }

    fn stored(subscribers: &Subscribers, from: &str, to: &str, seq: Seq) {
        let (from, to) = (user(from), user(to));
        let id = ConversationId::between(&from, &to).unwrap();
        subscribers.publish(&Observed::new(TraceStep::Stored, &from).message(&id, seq), || 0);
    }

    fn registered(subscribers: &Subscribers, name: &str) {
        subscribers.publish(&Observed::new(TraceStep::Registered, &user(name)), || 0);
    }

    #[tokio::test]
    async fn a_subscriber_gets_the_users_it_asked_for_and_nobody_else() {
        let all = Arc::new(Subscribers::default());
        let (mut pair, mut one) = (subscribe(&all, &["alice", "bob"]), subscribe(&all, &["alice"]));
        stored(&all, "alice", "carol", 1);
        stored(&all, "alice", "bob", 2);
        stored(&all, "dave", "carol", 3);
        registered(&all, "bob");
        registered(&all, "carol");
        assert_eq!(pair.next().await.unwrap().seq, Some(2));
        assert_eq!(pair.next().await.unwrap().user, user("bob"));
        assert_eq!(one.next().await.unwrap().seq, Some(1));
        assert_eq!(one.next().await.unwrap().seq, Some(2));
        assert!(pair.events.try_recv().is_err() && one.events.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_subscriber_that_falls_behind_is_dropped() {
        let all = Arc::new(Subscribers::default());
        let mut slow = subscribe(&all, &["alice", "bob"]);
        for seq in 1..=QUEUE_CAPACITY as Seq {
            stored(&all, "alice", "bob", seq);
        }
        assert!(!all.is_empty());
        stored(&all, "alice", "bob", 1);
        assert!(all.is_empty());
        let mut received = 0;
        while slow.next().await.is_some() {
            received += 1;
        }
        assert_eq!(received, QUEUE_CAPACITY);
    }

    #[tokio::test]
    async fn subscriptions_are_limited_and_end_with_the_server() {
        let all = Arc::new(Subscribers::default());
        let mut subscriptions: Vec<_> = (0..MAX).map(|_| subscribe(&all, &["alice"])).collect();
        assert!(all.subscribe(BTreeSet::new(), MAX).is_none());
        drop(all.subscribe(BTreeSet::new(), MAX + 1).unwrap());
        assert!(all.subscribe(BTreeSet::new(), MAX + 1).is_some(), "a dropped one has made room");
        all.close();
        assert!(subscriptions[0].next().await.is_none());
        drop(subscriptions);
        assert!(all.subscribe(BTreeSet::new(), MAX).is_none());
    }
}
