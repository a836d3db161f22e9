//! What others see of a session: a place to put events for it. Taking one never waits.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    ops::RangeInclusive,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bluetick_protocol::{ConversationId, Presence, Seq, Ticks, Typing, UserId, WireError};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::delivery::{Delivery, Moment};
use crate::{Event, HandOver};

/// Typing is worth nothing later: beyond this it is dropped.
const TYPING_MAX: usize = 32;

/// A device that has acked knows what it said: being told so is not worth a write of its own to its socket.
const OWN_TICKS_WAIT: Duration = Duration::from_millis(200);

pub(crate) struct Handle {
    began: Instant,
    state: Mutex<State>,
}

/// Everything that waits for the session's loop. Receipts and presence are state, so a newer one replaces an older.
pub(super) struct State {
    /// Once false it stays so: hand-overs are refused, and their senders take the offline path (R5).
    pub open: bool,
    pub delivery: Delivery,
    pub ticks: TicksOf,
    /// What this session's own acks came to: they go out with the next frame, and alone after a while.
    pub own_ticks: TicksOf,
    pub own_ticks_at: Option<Instant>,
    pub typing: Vec<Typing>,
    pub presence: BTreeMap<UserId, Presence>,
    pub close: Option<WireError>,
    /// Something was left that the loop has not looked at.
    woken: bool,
    /// The loop is at work, and looks once more before it sleeps.
    awake: bool,
    waker: Option<Waker>,
}

type TicksOf = BTreeMap<(ConversationId, UserId), Ticks>;

/// Receipts only grow: of several the highest of each boundary stands for all (R10).
fn merge(kept: &mut TicksOf, ticks: Ticks) {
    match kept.entry((ticks.conversation_id.clone(), ticks.user_id.clone())) {
        Entry::Vacant(place) => {
            place.insert(ticks);
        }
        Entry::Occupied(mut kept) => {
            let kept = kept.get_mut();
            kept.last_delivered_seq = kept.last_delivered_seq.max(ticks.last_delivered_seq);
            kept.last_read_seq = kept.last_read_seq.max(ticks.last_read_seq);
        }
    }
}

impl State {
    /// Whether frames wait that are to go out at once.
    pub(super) fn has_frames(&self) -> bool {
        !self.ticks.is_empty() || !self.typing.is_empty() || !self.presence.is_empty()
    }

    /// The ticks of the session's own acks wait no longer.
    pub(super) fn release_own_ticks(&mut self) {
        self.own_ticks_at = None;
        for ticks in std::mem::take(&mut self.own_ticks).into_values() {
            merge(&mut self.ticks, ticks);
        }
    }

    /// The loop takes all of it now.
    pub(super) fn seen(&mut self) {
        self.woken = false;
    }
}

impl Handle {
    pub(super) fn new(delivery: Delivery) -> Handle {
        let state = State {
            open: true,
            delivery,
            ticks: BTreeMap::new(),
            own_ticks: BTreeMap::new(),
            own_ticks_at: None,
            typing: Vec::new(),
            presence: BTreeMap::new(),
            close: None,
            woken: false,
            awake: false,
            waker: None,
        };
        Handle { began: Instant::now(), state: Mutex::new(state) }
    }

    /// The moment that an instant is in the life of the session.
    pub(super) fn moment(&self, at: Instant) -> Moment {
        let tenths = at.saturating_duration_since(self.began).as_millis() / 100;
        tenths.try_into().unwrap_or(Moment::MAX)
    }

    /// The first instant of a moment.
    pub(super) fn instant(&self, moment: Moment) -> Instant {
        self.began + Duration::from_millis(u64::from(moment) * 100)
    }

    pub(crate) fn offer(&self, event: Event) -> HandOver {
        let mut state = self.state.lock();
        if !state.open {
            return HandOver::Refused;
        }
        match event {
            Event::Messages { messages, row_written, origin } => {
                state.delivery.now = self.moment(Instant::now());
                for message in messages.iter() {
                    state.delivery.hand_over(message, row_written, origin);
                }
            }
            Event::Wake { conversation_id } => state.delivery.wake(conversation_id),
            Event::Ticks(ticks) => merge(&mut state.ticks, ticks),
            Event::OwnTicks(ticks) => {
                state.own_ticks_at.get_or_insert_with(|| Instant::now() + OWN_TICKS_WAIT);
                merge(&mut state.own_ticks, ticks);
            }
            Event::Typing(typing) => {
                if state.typing.len() < TYPING_MAX && !state.typing.contains(&typing) {
                    state.typing.push(typing);
                }
            }
            Event::Presence(presence) => {
                state.presence.insert(presence.user_id.clone(), presence);
            }
            Event::Close(why) => {
                state.close.get_or_insert(why);
            }
        }
        state.woken = true;
        let waker = if state.awake { None } else { state.waker.take() };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        HandOver::Taken
    }

    /// What was acked in this session, if it is this user's.
    pub(crate) fn acked_by(&self, user: &UserId) -> Option<BTreeMap<ConversationId, RangeInclusive<Seq>>> {
        let state = self.state.lock();
        state.delivery.is_of(user).then(|| state.delivery.acked_so_far())
    }

    /// Works on the state; never across an await.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock())
    }

    /// The loop looks before it sleeps again: nobody needs to wake it.
    pub(super) fn stay_awake(&self) {
        self.state.lock().awake = true;
    }

    /// Ready when something was left since the last look.
    pub(super) fn poll_woken(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.woken) {
            return Poll::Ready(());
        }
        state.awake = false;
        if state.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use bluetick_protocol::SessionId;

    use super::*;

    #[tokio::test]
    async fn ticks_that_waited_never_go_back() {
        let user = UserId::new("bob").unwrap();
        let handle = Handle::new(Delivery::new(user.clone(), SessionId(1), 8));
        let ticks = |last_delivered_seq, last_read_seq| Ticks {
            conversation_id: ConversationId::new("alice~bob").unwrap(),
            user_id: user.clone(),
            last_delivered_seq,
            last_read_seq,
        };
        handle.offer(Event::OwnTicks(ticks(4, 0)));
        handle.offer(Event::Ticks(ticks(5, 5)));
        handle.offer(Event::OwnTicks(ticks(7, 5)));
        let told = handle.with(|state| {
            state.release_own_ticks();
            std::mem::take(&mut state.ticks).into_values().collect::<Vec<_>>()
        });
        assert_eq!(told, [ticks(7, 5)], "of several the highest stands for all");
    }
}
