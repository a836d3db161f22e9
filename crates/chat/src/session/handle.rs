//! What others see of a session: a mailbox for its events. Putting one in never waits.

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
/// Conversations for which the time of the last typing frame is remembered.
const TYPING_TOLD_MAX: usize = 256;

/// A device knows what it acked: the ticks of its own acks are not worth a write to its socket of
/// their own.
const OWN_TICKS_DELAY: Duration = Duration::from_millis(200);

pub(crate) struct Handle {
    began: Instant,
    mailbox: Mutex<Mailbox>,
}

/// Everything that waits for the session's loop. Receipts and presence are state, so a newer one
/// replaces an older one.
pub(super) struct Mailbox {
    pub delivery: Delivery,
    ticks: TicksOf,
    /// The ticks of this session's own acks. They go out with the next frame, or alone after a
    /// delay.
    own_ticks: TicksOf,
    own_ticks_at: Option<Instant>,
    typing: Vec<Typing>,
    /// When a typing frame last went out, by conversation. The peer's requests may come through
    /// several gateways, and still make at most one frame a second.
    typing_told: BTreeMap<ConversationId, Instant>,
    presence: BTreeMap<UserId, Presence>,
    close: Option<WireError>,
    /// Something was put in since the loop last looked.
    is_woken: bool,
    /// The loop is running, and looks into the mailbox before it sleeps.
    is_awake: bool,
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

impl Mailbox {
    /// Whether frames wait that need not be delayed.
    pub(super) fn has_frames(&self) -> bool {
        !self.ticks.is_empty() || !self.typing.is_empty() || !self.presence.is_empty()
    }

    /// Takes up to `most` frames, receipts first. The ticks of own acks come along if
    /// `with_own_ticks`, or if they have waited long enough.
    pub(super) fn take_frames(
        &mut self,
        most: usize,
        with_own_ticks: bool,
        now: Instant,
    ) -> Vec<ServerFrame> {
        let mut frames = Vec::new();
        if most == 0 {
            return frames;
        }
        if with_own_ticks || self.has_frames() || self.own_ticks_at.is_some_and(|at| at <= now) {
            self.release_own_ticks();
        }
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

    /// Whether a typing frame for a conversation goes out now.
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

    /// When the ticks of own acks go out, if nothing else does before.
    pub(super) fn own_ticks_at(&self) -> Option<Instant> {
        self.own_ticks_at
    }

    fn release_own_ticks(&mut self) {
        self.own_ticks_at = None;
        for ticks in std::mem::take(&mut self.own_ticks).into_values() {
            merge(&mut self.ticks, ticks);
        }
    }

    /// The loop takes everything now. Returns why the session must close, if somebody asked for it.
    pub(super) fn begin_turn(&mut self) -> Option<WireError> {
        self.is_woken = false;
        self.close.take()
    }
}

impl Handle {
    pub(super) fn new(delivery: Delivery) -> Handle {
        let mailbox = Mailbox {
            delivery,
            ticks: BTreeMap::new(),
            own_ticks: BTreeMap::new(),
            own_ticks_at: None,
            typing: Vec::new(),
            typing_told: BTreeMap::new(),
            presence: BTreeMap::new(),
            close: None,
            is_woken: false,
            is_awake: false,
            waker: None,
        };
        Handle { began: Instant::now(), mailbox: Mutex::new(mailbox) }
    }

    /// An instant in the session's own time.
    pub(super) fn moment(&self, at: Instant) -> Moment {
        let tenths = at.saturating_duration_since(self.began).as_millis() / 100;
        tenths.try_into().unwrap_or(Moment::MAX)
    }

    /// The first instant of a moment.
    pub(super) fn instant(&self, moment: Moment) -> Instant {
        self.began + Duration::from_millis(u64::from(moment) * 100)
    }

    /// Offers an event for a user's session. Anybody who can write to the session store may have
    /// written the entry that led here. So the session of another user refuses the event, or it
    /// would get this user's messages.
    pub(crate) fn offer_to(&self, user: &UserId, event: SessionEvent) -> HandOver {
        let mailbox = self.mailbox.lock();
        match mailbox.delivery.is_of(user) {
            true => self.put(mailbox, event),
            false => HandOver::Refused,
        }
    }

    pub(crate) fn offer(&self, event: SessionEvent) -> HandOver {
        self.put(self.mailbox.lock(), event)
    }

    fn put(&self, mut mailbox: MutexGuard<'_, Mailbox>, event: SessionEvent) -> HandOver {
        if mailbox.delivery.is_closing() {
            return HandOver::Refused;
        }
        match event {
            SessionEvent::Messages { messages, row_written, origin } => {
                mailbox.delivery.now = self.moment(Instant::now());
                for message in messages.iter() {
                    mailbox.delivery.hand_over(message, row_written, origin);
                }
            }
            SessionEvent::Wake { conversation_id } => mailbox.delivery.wake(conversation_id),
            SessionEvent::Ticks(ticks) => merge(&mut mailbox.ticks, ticks),
            SessionEvent::OwnTicks(ticks) => {
                mailbox.own_ticks_at.get_or_insert_with(|| Instant::now() + OWN_TICKS_DELAY);
                merge(&mut mailbox.own_ticks, ticks);
            }
            SessionEvent::Typing(typing) => {
                if mailbox.typing.len() < TYPING_MAX && mailbox.tells_typing(&typing.conversation_id) {
                    mailbox.typing.push(typing);
                }
            }
            SessionEvent::Presence(presence) => {
                mailbox.presence.insert(presence.user_id.clone(), presence);
            }
            SessionEvent::Close(why) => {
                mailbox.close.get_or_insert(why);
            }
        }
        mailbox.is_woken = true;
        let waker = if mailbox.is_awake { None } else { mailbox.waker.take() };
        drop(mailbox);
        if let Some(waker) = waker {
            waker.wake();
        }
        HandOver::Taken
    }

    /// What was acked in this session, if it is this user's.
    pub(crate) fn acked_by(&self, user: &UserId) -> Option<BTreeMap<ConversationId, RangeInclusive<Seq>>> {
        let mailbox = self.mailbox.lock();
        mailbox.delivery.is_of(user).then(|| mailbox.delivery.acked_so_far())
    }

    /// Works on the mailbox, under its lock.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Mailbox) -> T) -> T {
        work(&mut self.mailbox.lock())
    }

    /// The loop looks into the mailbox before it sleeps again: nobody needs to wake it.
    pub(super) fn stay_awake(&self) {
        self.mailbox.lock().is_awake = true;
    }

    /// Ready when something was put in since the loop last looked.
    pub(super) fn poll_woken(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut mailbox = self.mailbox.lock();
        if std::mem::take(&mut mailbox.is_woken) {
            return Poll::Ready(());
        }
        mailbox.is_awake = false;
        if mailbox.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            mailbox.waker = Some(cx.waker().clone());
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
        let handle =
            Handle::new(Delivery::new(UserId::new("bob").unwrap(), SessionId(1), 8, BTreeMap::new()));
        let typing = |peer: &str| Typing {
            conversation_id: ConversationId::new(&format!("{peer}~bob")).unwrap(),
            user_id: UserId::new(peer).unwrap(),
        };
        let told = || handle.with(|mailbox| std::mem::take(&mut mailbox.typing).len());
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
        assert!(handle.with(|mailbox| mailbox.typing_told.len()) <= TYPING_TOLD_MAX);
    }

    #[tokio::test]
    async fn a_session_takes_nothing_that_is_for_somebody_else() {
        let (bob, mallory) = (UserId::new("bob").unwrap(), UserId::new("mallory").unwrap());
        let handle = Handle::new(Delivery::new(mallory.clone(), SessionId(1), 8, BTreeMap::new()));
        let wake = || SessionEvent::Wake { conversation_id: ConversationId::new("alice~bob").unwrap() };
        assert_eq!(handle.offer_to(&bob, wake()), HandOver::Refused);
        assert_eq!(handle.offer_to(&mallory, wake()), HandOver::Taken);
    }

    #[tokio::test]
    async fn no_more_frames_are_taken_than_there_is_room_for() {
        let handle =
            Handle::new(Delivery::new(UserId::new("bob").unwrap(), SessionId(1), 8, BTreeMap::new()));
        for n in 0..100 {
            let peer = UserId::new(&format!("a{n}")).unwrap();
            let conversation_id = ConversationId::new(&format!("{peer}~bob")).unwrap();
            let (last_delivered_seq, last_read_seq) = (1, 0);
            let ticks = Ticks { conversation_id, user_id: peer.clone(), last_delivered_seq, last_read_seq };
            handle.offer(SessionEvent::Ticks(ticks));
            handle.offer(SessionEvent::Presence(Presence { user_id: peer, online: true, last_seen: None }));
        }
        let taken = || handle.with(|mailbox| mailbox.take_frames(64, false, Instant::now()).len());
        assert_eq!([taken(), taken(), taken(), taken(), taken()], [64, 64, 64, 8, 0]);
    }

    #[tokio::test]
    async fn ticks_that_waited_never_go_back() {
        let user = UserId::new("bob").unwrap();
        let handle = Handle::new(Delivery::new(user.clone(), SessionId(1), 8, BTreeMap::new()));
        let ticks = |last_delivered_seq, last_read_seq| Ticks {
            conversation_id: ConversationId::new("alice~bob").unwrap(),
            user_id: user.clone(),
            last_delivered_seq,
            last_read_seq,
        };
        handle.offer(SessionEvent::OwnTicks(ticks(4, 0)));
        handle.offer(SessionEvent::Ticks(ticks(5, 5)));
        handle.offer(SessionEvent::OwnTicks(ticks(7, 5)));
        let told = handle.with(|mailbox| mailbox.take_frames(64, true, Instant::now()));
        assert_eq!(told, [ServerFrame::Ticks(ticks(7, 5))], "of several the highest stands for all");
    }

    #[tokio::test(start_paused = true)]
    async fn own_ticks_go_out_with_other_frames_or_after_a_delay() {
        let user = UserId::new("bob").unwrap();
        let handle = Handle::new(Delivery::new(user.clone(), SessionId(1), 8, BTreeMap::new()));
        let conversation_id = ConversationId::new("alice~bob").unwrap();
        let (last_delivered_seq, last_read_seq) = (1, 0);
        let ticks = Ticks { conversation_id, user_id: user, last_delivered_seq, last_read_seq };
        let own = || handle.offer(SessionEvent::OwnTicks(ticks.clone()));
        let taken =
            |most, with_own| handle.with(|mailbox| mailbox.take_frames(most, with_own, Instant::now()).len());
        own();
        assert_eq!(taken(64, false), 0);
        assert_eq!(handle.with(|mailbox| mailbox.own_ticks_at()), Some(Instant::now() + OWN_TICKS_DELAY));
        assert_eq!(taken(0, true), 0, "no room");
        assert_eq!(taken(64, true), 1, "with a message");
        own();
        tokio::time::advance(OWN_TICKS_DELAY).await;
        assert_eq!(taken(64, false), 1, "alone");
        assert_eq!(handle.with(|mailbox| mailbox.own_ticks_at()), None);
    }

    #[tokio::test]
    async fn a_closing_session_refuses_hand_overs() {
        let delivery = Delivery::new(UserId::new("bob").unwrap(), SessionId(1), 8, BTreeMap::new());
        let handle = Handle::new(delivery);
        let wake = || SessionEvent::Wake { conversation_id: ConversationId::new("alice~bob").unwrap() };
        assert_eq!(handle.offer(wake()), HandOver::Taken);
        assert!(handle.with(|mailbox| mailbox.delivery.close()).is_empty());
        assert_eq!(handle.offer(wake()), HandOver::Refused);
    }
}
