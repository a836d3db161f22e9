//! What others see of a session: a place to put events for it. Taking one never waits.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    ops::RangeInclusive,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bluetick_protocol::{ConversationId, Presence, Seq, ServerFrame, Ticks, Typing, UserId, WireError};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::delivery::{Delivery, Moment};
use crate::{HandOver, SessionEvent, presence::TYPING_EVERY};

/// Typing is worth nothing later: beyond this it is dropped.
const TYPING_MAX: usize = 32;
/// Conversations of which it is remembered when typing was last told.
const TYPING_TOLD_MAX: usize = 256;

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
    /// When typing was last told, by conversation: a peer whose requests come by many ways still types once a second.
    typing_told: BTreeMap<ConversationId, Instant>,
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

    /// Takes at most so many of the frames that wait, receipts first.
    pub(super) fn take_frames(&mut self, most: usize) -> Vec<ServerFrame> {
        let mut frames = Vec::new();
        while frames.len() < most
            && let Some((_, ticks)) = self.ticks.pop_first()
        {
            frames.push(ServerFrame::Ticks(ticks));
        }
        let typing = self.typing.len().min(most - frames.len());
        frames.extend(self.typing.drain(..typing).map(ServerFrame::Typing));
        while frames.len() < most
            && let Some((_, presence)) = self.presence.pop_first()
        {
            frames.push(ServerFrame::Presence(presence));
        }
        frames
    }

    /// Whether typing in a conversation is told now. One member of it is this session's user, so the other types.
    fn tells_typing(&mut self, id: &ConversationId) -> bool {
        let now = Instant::now();
        let recent = |told: &Instant| now.saturating_duration_since(*told) < TYPING_EVERY;
        if self.typing_told.get(id).is_some_and(recent) {
            return false;
        }
        if self.typing_told.len() >= TYPING_TOLD_MAX {
            self.typing_told.retain(|_, told| recent(told));
        }
        let room = self.typing_told.len() < TYPING_TOLD_MAX;
        if room {
            self.typing_told.insert(id.clone(), now);
        }
        room
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
            typing_told: BTreeMap::new(),
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

    /// Offers an event for a user's session. The entry that led here may have been written by anybody who can write to
    /// the session store: a session of somebody else's is refused, or it would be given this user's messages.
    pub(crate) fn offer_to(&self, user: &UserId, event: SessionEvent) -> HandOver {
        let state = self.state.lock();
        match state.delivery.is_of(user) {
            true => self.put(state, event),
            false => HandOver::Refused,
        }
    }

    pub(crate) fn offer(&self, event: SessionEvent) -> HandOver {
        self.put(self.state.lock(), event)
    }

    fn put(&self, mut state: MutexGuard<'_, State>, event: SessionEvent) -> HandOver {
        if !state.open {
            return HandOver::Refused;
        }
        match event {
            SessionEvent::Messages { messages, row_written, origin } => {
                state.delivery.now = self.moment(Instant::now());
                for message in messages.iter() {
                    state.delivery.hand_over(message, row_written, origin);
                }
            }
            SessionEvent::Wake { conversation_id } => state.delivery.wake(conversation_id),
            SessionEvent::Ticks(ticks) => merge(&mut state.ticks, ticks),
            SessionEvent::OwnTicks(ticks) => {
                state.own_ticks_at.get_or_insert_with(|| Instant::now() + OWN_TICKS_WAIT);
                merge(&mut state.own_ticks, ticks);
            }
            SessionEvent::Typing(typing) => {
                if state.typing.len() < TYPING_MAX && state.tells_typing(&typing.conversation_id) {
                    state.typing.push(typing);
                }
            }
            SessionEvent::Presence(presence) => {
                state.presence.insert(presence.user_id.clone(), presence);
            }
            SessionEvent::Close(why) => {
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

    #[tokio::test(start_paused = true)]
    async fn typing_reaches_a_session_once_a_second_whoever_hands_it_over() {
        let handle = Handle::new(Delivery::new(UserId::new("bob").unwrap(), SessionId(1), 8));
        let typing = |peer: &str| Typing {
            conversation_id: ConversationId::new(&format!("{peer}~bob")).unwrap(),
            user_id: UserId::new(peer).unwrap(),
        };
        let told = || handle.with(|state| std::mem::take(&mut state.typing).len());
        let mut all = 0;
        for _ in 0..100 {
            handle.offer(SessionEvent::Typing(typing("alice")));
            all += told();
        }
        assert_eq!(all, 1);
        handle.offer(SessionEvent::Typing(typing("adam")));
        assert_eq!(told(), 1, "another conversation");
        tokio::time::advance(TYPING_EVERY).await;
        handle.offer(SessionEvent::Typing(typing("alice")));
        assert_eq!(told(), 1, "a second later");
        for n in 0..2 * TYPING_TOLD_MAX {
            handle.offer(SessionEvent::Typing(typing(&format!("a{n}"))));
            told();
        }
        assert!(handle.with(|state| state.typing_told.len()) <= TYPING_TOLD_MAX);
    }

    #[tokio::test]
    async fn a_session_takes_nothing_that_is_for_somebody_else() {
        let (bob, mallory) = (UserId::new("bob").unwrap(), UserId::new("mallory").unwrap());
        let handle = Handle::new(Delivery::new(mallory.clone(), SessionId(1), 8));
        let wake = || SessionEvent::Wake { conversation_id: ConversationId::new("alice~bob").unwrap() };
        assert_eq!(handle.offer_to(&bob, wake()), HandOver::Refused);
        assert_eq!(handle.offer_to(&mallory, wake()), HandOver::Taken);
    }

    #[tokio::test]
    async fn no_more_frames_are_taken_than_there_is_room_for() {
        let handle = Handle::new(Delivery::new(UserId::new("bob").unwrap(), SessionId(1), 8));
        for n in 0..100 {
            let peer = UserId::new(&format!("a{n}")).unwrap();
            let conversation_id = ConversationId::new(&format!("{peer}~bob")).unwrap();
            let (last_delivered_seq, last_read_seq) = (1, 0);
            let ticks = Ticks { conversation_id, user_id: peer.clone(), last_delivered_seq, last_read_seq };
            handle.offer(SessionEvent::Ticks(ticks));
            handle.offer(SessionEvent::Presence(Presence { user_id: peer, online: true, last_seen: None }));
        }
        let taken = || handle.with(|state| state.take_frames(64).len());
        assert_eq!([taken(), taken(), taken(), taken(), taken()], [64, 64, 64, 8, 0]);
    }

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
        handle.offer(SessionEvent::OwnTicks(ticks(4, 0)));
        handle.offer(SessionEvent::Ticks(ticks(5, 5)));
        handle.offer(SessionEvent::OwnTicks(ticks(7, 5)));
        let told = handle.with(|state| {
            state.release_own_ticks();
            std::mem::take(&mut state.ticks).into_values().collect::<Vec<_>>()
        });
        assert_eq!(told, [ticks(7, 5)], "of several the highest stands for all");
    }
}
