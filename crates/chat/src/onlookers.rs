//! Those who watch the server work: the admin interface's stream of steps, and the tour, which may ask for slow motion.
//! Where nobody watches it costs one look at a number.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bluetick_protocol::{ConversationId, DeviceId, Seq, Side, UserId};
use bluetick_store::Clock;
use parking_lot::RwLock;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::{
    Trace,
    trace::{Glimpse, Step},
};

/// Steps that may wait for an onlooker; who falls further behind is shown out.
const WAITING_MAX: usize = 1_024;
/// The slowest motion: less than what a session waits for at its end.
pub const PACE_MAX: Duration = Duration::from_millis(1_500);

/// A step, as an onlooker sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Seen {
    pub at: u64,
    pub step: Step,
    pub conversation_id: Option<ConversationId>,
    pub seq: Option<Seq>,
    pub user: UserId,
    pub device: Option<DeviceId>,
    /// How many sessions a lookup found.
    pub count: Option<usize>,
}

#[derive(Debug, Default)]
pub struct Onlookers {
    watching: AtomicUsize,
    seats: RwLock<Seats>,
}

#[derive(Debug, Default)]
struct Seats {
    last: u64,
    taken: Vec<Seat>,
    /// The server is going down: nobody sits down any more.
    closed: bool,
}

#[derive(Debug)]
struct Seat {
    number: u64,
    users: BTreeSet<UserId>,
    pace: Duration,
    to: mpsc::Sender<Seen>,
}

impl Seat {
    fn names(&self, user: &str) -> bool {
        self.users.iter().any(|named| named.as_str() == user)
    }

    /// Who watches one user sees all of their conversations; who watches several, those among them.
    fn sees(&self, glimpse: &Glimpse<'_>) -> bool {
        let Some((id, _)) = glimpse.message else { return self.names(glimpse.user.as_str()) };
        let sides = [Side::Low, Side::High].map(|side| self.names(id.member_str(side)));
        if self.users.len() == 1 { sides.contains(&true) } else { !sides.contains(&false) }
    }
}

/// A place to watch from; given up when dropped, and with it the slow motion it asked for.
pub struct Onlooking {
    trace: Arc<Trace>,
    number: u64,
    steps: mpsc::Receiver<Seen>,
}

impl Onlooking {
    /// None: too much happened at once for this onlooker, or the server is going down.
    pub async fn next(&mut self) -> Option<Seen> {
        self.steps.recv().await
    }
}

impl Drop for Onlooking {
    fn drop(&mut self) {
        self.trace.onlookers.leave(|number| number == self.number);
    }
}

impl Onlookers {
    /// None where as many as `most` watch already, or the server is going down.
    pub fn watch(
        trace: &Arc<Trace>,
        users: BTreeSet<UserId>,
        pace: Duration,
        most: usize,
    ) -> Option<Onlooking> {
        let (to, steps) = mpsc::channel(WAITING_MAX);
        let onlookers = &trace.onlookers;
        let mut seats = onlookers.seats.write();
        if seats.taken.len() >= most || seats.closed {
            return None;
        }
        seats.last += 1;
        let number = seats.last;
        seats.taken.push(Seat { number, users, pace: pace.min(PACE_MAX), to });
        onlookers.watching.store(seats.taken.len(), Ordering::Relaxed);
        drop(seats);
        Some(Onlooking { trace: trace.clone(), number, steps })
    }

    /// Shows everybody out, and ends the slow motion.
    pub fn close(&self) {
        self.seats.write().closed = true;
        self.leave(|_| true);
    }

    fn leave(&self, who: impl Fn(u64) -> bool) {
        let mut seats = self.seats.write();
        seats.taken.retain(|seat| !who(seat.number));
        self.watching.store(seats.taken.len(), Ordering::Relaxed);
    }

    pub(crate) fn is_anybody(&self) -> bool {
        self.watching.load(Ordering::Relaxed) > 0
    }

    /// How slow a user's steps are.
    pub(crate) fn pace_of(&self, user: &UserId) -> Duration {
        if !self.is_anybody() {
            return Duration::ZERO;
        }
        let seats = self.seats.read();
        let paces = seats.taken.iter().filter(|seat| seat.names(user.as_str())).map(|seat| seat.pace);
        paces.max().unwrap_or_default()
    }

    /// Returns how long the one with the least hurry wants to look.
    pub(crate) fn tell(&self, clock: &dyn Clock, glimpse: Glimpse<'_>) -> Duration {
        if !self.is_anybody() {
            return Duration::ZERO;
        }
        let (mut slowest, mut late) = (Duration::ZERO, Vec::new());
        let seats = self.seats.read();
        for seat in seats.taken.iter().filter(|seat| seat.sees(&glimpse)) {
            slowest = slowest.max(seat.pace);
            if seat.to.try_send(seen(clock, &glimpse)).is_err() {
                late.push(seat.number);
            }
        }
        drop(seats);
        if !late.is_empty() {
            self.leave(|number| late.contains(&number));
        }
        slowest
    }
}

fn seen(clock: &dyn Clock, glimpse: &Glimpse<'_>) -> Seen {
    Seen {
        at: clock.now_ms(),
        step: glimpse.step,
        conversation_id: glimpse.message.map(|(id, _)| id.clone()),
        seq: glimpse.message.and_then(|(_, seq)| seq),
        user: glimpse.user.clone(),
        device: glimpse.device.cloned(),
        count: glimpse.count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bluetick_store::SystemClock;

    const MOST: usize = 4;

    fn user(name: &str) -> UserId {
        UserId::new(name).unwrap()
    }

    fn watch(trace: &Arc<Trace>, names: &[&str], pace_ms: u64) -> Onlooking {
        let users = names.iter().map(|name| user(name)).collect();
        Onlookers::watch(trace, users, Duration::from_millis(pace_ms), MOST).unwrap()
    }

    fn stored(trace: &Trace, from: &str, to: &str, seq: Seq) -> Duration {
        let (from, to) = (user(from), user(to));
        let id = ConversationId::between(&from, &to).unwrap();
        trace.tell(&SystemClock, Glimpse::new(Step::Stored, &from).message(&id, seq))
    }

    #[tokio::test]
    async fn an_onlooker_sees_the_users_they_asked_for_and_nobody_else() {
        let trace = Arc::new(Trace::default());
        let (mut pair, mut one) = (watch(&trace, &["alice", "bob"], 0), watch(&trace, &["alice"], 0));
        stored(&trace, "alice", "carol", 1);
        stored(&trace, "alice", "bob", 2);
        stored(&trace, "dave", "carol", 3);
        trace.tell(&SystemClock, Glimpse::new(Step::Registered, &user("bob")));
        trace.tell(&SystemClock, Glimpse::new(Step::Registered, &user("carol")));
        assert_eq!(pair.next().await.unwrap().seq, Some(2));
        assert_eq!(pair.next().await.unwrap().user, user("bob"));
        assert_eq!(one.next().await.unwrap().seq, Some(1));
        assert_eq!(one.next().await.unwrap().seq, Some(2));
        assert!(pair.steps.try_recv().is_err() && one.steps.try_recv().is_err());
    }

    #[tokio::test]
    async fn slow_motion_is_for_what_is_watched_and_ends_with_the_onlooker() {
        let trace = Arc::new(Trace::default());
        let (slow, _fast) = (watch(&trace, &["alice", "bob"], 700), watch(&trace, &["alice", "bob"], 0));
        assert_eq!(stored(&trace, "alice", "bob", 1), Duration::from_millis(700));
        let paces = ["alice", "carol"].map(|name| trace.onlookers.pace_of(&user(name)));
        assert_eq!(paces, [Duration::from_millis(700), Duration::ZERO]);
        assert_eq!(stored(&trace, "alice", "carol", 1), Duration::ZERO);
        drop(slow);
        assert_eq!(stored(&trace, "alice", "bob", 2), Duration::ZERO);
    }

    #[tokio::test]
    async fn who_falls_behind_is_shown_out_and_seats_are_limited() {
        let trace = Arc::new(Trace::default());
        let mut late = watch(&trace, &["alice", "bob"], 60_000);
        for seq in 0..=WAITING_MAX as u64 {
            assert_eq!(stored(&trace, "alice", "bob", seq + 1), PACE_MAX);
        }
        assert_eq!(stored(&trace, "alice", "bob", 1), Duration::ZERO, "they are not waited for any more");
        let mut seen = 0;
        while late.next().await.is_some() {
            seen += 1;
        }
        assert_eq!(seen, WAITING_MAX);
        let mut seats: Vec<_> = (0..MOST).map(|_| watch(&trace, &["alice"], 0)).collect();
        assert!(Onlookers::watch(&trace, BTreeSet::new(), Duration::ZERO, MOST).is_none());
        assert!(Onlookers::watch(&trace, BTreeSet::new(), Duration::ZERO, MOST + 1).is_some());
        trace.onlookers.close();
        assert!(seats[0].next().await.is_none(), "everybody is shown out");
        drop(seats);
        assert!(Onlookers::watch(&trace, BTreeSet::new(), Duration::ZERO, MOST).is_none());
    }
}
