//! Hands events to live sessions, to all of them concurrently
//! ([`R2`](crate::rules::Rule::R2), [`R12`](crate::rules::Rule::R12)).
//!
//! A gateway that hangs must not delay the sessions of other gateways, nor a request for long. A
//! request waits for answers no longer than the hedge (`sessions.hand_over_hedge_ms`). A hand-over
//! that is unanswered then continues in the background until its deadline
//! (`sessions.hand_over_deadline_ms`). A session that misses the deadline counts as gone.

use std::{future::ready, pin::pin, sync::Arc, time::Duration};

use bluetick_protocol::{SessionId, Ticks, UserId};
use bluetick_store::{Message, SessionEntry, SessionStore, StatusRow};
use futures_util::{
    StreamExt as _,
    future::{BoxFuture, Either, join},
    stream::FuturesUnordered,
};
use tokio::time::{sleep, timeout};

use crate::{Background, DeliveryObserver, Gateways, HandOver, SessionEvent, Spawner};

/// Most hand-overs of one event that are in flight together. A user may have very many watchers.
const HAND_OVERS_AT_ONCE: usize = 256;

/// A hand-over that the session's gateway has not answered yet. It does nothing until it is polled.
type UnansweredHandOver = BoxFuture<'static, (SessionEntry, HandOver)>;

/// The way from an app server to sessions. Background jobs share it.
#[derive(Clone)]
pub(crate) struct Fanout {
    pub sessions: Arc<dyn SessionStore>,
    pub gateways: Arc<dyn Gateways>,
    pub observer: Arc<DeliveryObserver>,
    pub background: Arc<Background>,
    pub deadline: Duration,
    pub hedge: Duration,
}

impl Fanout {
    pub fn set_spawner(&mut self, spawner: Arc<dyn Spawner>) {
        self.background = Arc::new(Background::new(spawner));
    }

    /// A user's live sessions. While the session store is down everybody is offline: messages
    /// queue, nothing fails ([`R12`](crate::rules::Rule::R12)).
    pub async fn sessions_of(&self, user: &UserId) -> Vec<SessionEntry> {
        match self.sessions.lookup(user).await {
            Ok(sessions) => sessions,
            Err(e) => {
                tracing::warn!(error = %e, "session store unavailable; taking the offline path");
                Vec::new()
            }
        }
    }

    /// Begins a hand-over. A session of this process answers at once, without an allocation.
    fn begin(
        self: &Arc<Self>,
        to: &SessionEntry,
        event: SessionEvent,
    ) -> Either<HandOver, UnansweredHandOver> {
        let handing = match self.gateways.hand_over(to, event) {
            Either::Left(answered) => match answered.into_inner() {
                HandOver::Refused => Either::Left(ready(HandOver::Refused)),
                answer => return Either::Left(answer),
            },
            unanswered => unanswered,
        };
        let (fanout, to) = (self.clone(), to.clone());
        Either::Right(Box::pin(async move {
            let answer = timeout(fanout.deadline, handing).await.unwrap_or(HandOver::Refused);
            if answer == HandOver::Refused {
                fanout.remove_stale_entry(&to).await;
            }
            (to, answer)
        }))
    }

    /// Removes the entry of a session that is gone, if it still names that session
    /// ([`R12`](crate::rules::Rule::R12)).
    async fn remove_stale_entry(&self, of: &SessionEntry) {
        self.observer.stale_session();
        let _ = self.sessions.unregister(&of.user_id, of.session_id).await;
    }

    /// Hands an event to each of the sessions. Returns when all have answered, or after the hedge.
    /// It does not wait for `slow` sessions, which have not answered an earlier event yet.
    pub async fn hand_over_all(
        self: &Arc<Self>,
        sessions: &[SessionEntry],
        slow: &[SessionId],
        event: impl Fn(&SessionEntry) -> SessionEvent,
    ) {
        for chunk in sessions.chunks(HAND_OVERS_AT_ONCE) {
            self.hand_over_chunk(chunk, slow, &event).await;
        }
    }

    async fn hand_over_chunk(
        self: &Arc<Self>,
        sessions: &[SessionEntry],
        slow: &[SessionId],
        event: &impl Fn(&SessionEntry) -> SessionEvent,
    ) {
        let (mut awaited, mut others) = (Vec::new(), Vec::new());
        for session in sessions {
            if let Either::Right(unanswered) = self.begin(session, event(session)) {
                match slow.contains(&session.session_id) {
                    true => others.push(unanswered),
                    false => awaited.push(unanswered),
                }
            }
        }
        if awaited.is_empty() && others.is_empty() {
            return;
        }
        let mut unanswered: FuturesUnordered<_> = awaited.into_iter().collect();
        let answers = async { while unanswered.next().await.is_some() {} };
        let _ = timeout(self.hedge, answers).await;
        unanswered.extend(others);
        if unanswered.is_empty() {
            return;
        }
        let rest = async move { while unanswered.next().await.is_some() {} };
        if let Some(rest) = self.background.run(rest) {
            rest.await;
        }
    }

    /// Hands messages of one conversation to every session. Returns when one of them has accepted
    /// (with `wait_for_all`, when all have answered) or when `wait_budget` is used up; it is zero
    /// afterwards, so that a gateway that hangs is waited for once.
    pub async fn hand_over_messages(
        self: &Arc<Self>,
        sessions: &[SessionEntry],
        messages: &Arc<[Arc<Message>]>,
        row_written: bool,
        wait_for_all: bool,
        wait_budget: &mut Duration,
    ) -> HandedOver<impl Future<Output = ()> + Send + 'static> {
        let (mut accepted, mut unanswered) = (false, Vec::new());
        for session in sessions {
            let event = SessionEvent::Messages { messages: messages.clone(), row_written, origin: None };
            match self.begin(session, event) {
                Either::Left(HandOver::Taken) => {
                    accepted = true;
                    self.observer.handed_over(session, messages);
                }
                Either::Left(_) => {}
                Either::Right(hand_over) => unanswered.push((session.session_id, hand_over)),
            }
        }
        if unanswered.is_empty() {
            return HandedOver { accepted, slow: Vec::new(), rest: None };
        }
        let mut in_flight = HandOversInFlight::new(self, messages, unanswered);
        if wait_for_all || !accepted {
            accepted |= in_flight.wait(wait_for_all, *wait_budget).await;
        }
        let mut slow = Vec::new();
        if !accepted && !in_flight.sessions.is_empty() {
            *wait_budget = Duration::ZERO;
            self.observer.hand_over_hedged();
            slow.extend_from_slice(&in_flight.sessions);
        }
        HandedOver { accepted, slow, rest: in_flight.leave() }
    }

    /// Echoes and ticks, which are no part of the promise of `sent`: they go out in the background,
    /// and the answer does not wait for them. In one process, where nothing hangs, they go out at
    /// once.
    pub async fn echo_and_tick(
        self: &Arc<Self>,
        sender: &UserId,
        origin: Option<SessionId>,
        own: Arc<[Arc<Message>]>,
        read: Option<&StatusRow>,
    ) {
        match self.background.slot() {
            None => self.echo_and_tick_now(sender, origin, own, read).await,
            Some(slot) => {
                let (fanout, sender, read) = (self.clone(), sender.clone(), read.cloned());
                slot.run(async move { fanout.echo_and_tick_now(&sender, origin, own, read.as_ref()).await });
            }
        }
    }

    async fn echo_and_tick_now(
        self: &Arc<Self>,
        sender: &UserId,
        origin: Option<SessionId>,
        own: Arc<[Arc<Message>]>,
        read: Option<&StatusRow>,
    ) {
        let echo = async {
            if !own.is_empty() {
                self.echo_to_sender(sender, origin, own).await;
            }
        };
        let tick = async {
            if let Some(row) = read {
                self.tell_ticks(row, None).await;
            }
        };
        join(echo, tick).await;
    }

    /// Hands own messages to the user's other devices. The session that sent them only learns their
    /// seqs.
    async fn echo_to_sender(
        self: &Arc<Self>,
        sender: &UserId,
        origin: Option<SessionId>,
        messages: Arc<[Arc<Message>]>,
    ) {
        let sessions = self.sessions_of(sender).await;
        let echo = |_: &_| SessionEvent::Messages { messages: messages.clone(), row_written: false, origin };
        self.hand_over_all(&sessions, &[], echo).await;
    }

    /// Tells all sessions of both members how far one of them is
    /// ([`R10`](crate::rules::Rule::R10)). The session whose receipt it was may hear of it later.
    pub async fn tell_ticks(self: &Arc<Self>, row: &StatusRow, origin: Option<SessionId>) {
        let ticks = Ticks {
            conversation_id: row.conversation_id.clone(),
            user_id: row.user_id.clone(),
            last_delivered_seq: row.last_delivered_seq,
            last_read_seq: row.last_read_seq,
        };
        let tell = async |user: &UserId| {
            let sessions = self.sessions_of(user).await;
            let event = |session: &SessionEntry| match origin == Some(session.session_id) {
                true => SessionEvent::OwnTicks(ticks.clone()),
                false => SessionEvent::Ticks(ticks.clone()),
            };
            self.hand_over_all(&sessions, &[], event).await;
        };
        match row.conversation_id.peer_of(&row.user_id) {
            Some(peer) => {
                join(tell(&peer), tell(&row.user_id)).await;
            }
            None => tell(&row.user_id).await,
        }
    }
}

/// What came of [`Fanout::hand_over_messages`].
pub(crate) struct HandedOver<F> {
    /// At least one session has accepted the messages.
    pub accepted: bool,
    /// The sessions that did not answer in time, where none has accepted.
    pub slow: Vec<SessionId>,
    /// Hand-overs that the background had no room for. The request must await them.
    pub rest: Option<F>,
}

/// Hand-overs of messages to one receiver's sessions that are not all answered.
struct HandOversInFlight {
    fanout: Arc<Fanout>,
    messages: Arc<[Arc<Message>]>,
    /// The sessions that have not answered.
    sessions: Vec<SessionId>,
    hand_overs: FuturesUnordered<UnansweredHandOver>,
}

impl HandOversInFlight {
    fn new(
        fanout: &Arc<Fanout>,
        messages: &Arc<[Arc<Message>]>,
        unanswered: Vec<(SessionId, UnansweredHandOver)>,
    ) -> HandOversInFlight {
        let (sessions, hand_overs): (Vec<_>, FuturesUnordered<_>) = unanswered.into_iter().unzip();
        HandOversInFlight { fanout: fanout.clone(), messages: messages.clone(), sessions, hand_overs }
    }

    /// Waits for answers, at most for `wait_budget`. Returns whether a session accepted the
    /// messages: at once when one does, or, with `all`, when every session has answered.
    async fn wait(&mut self, all: bool, wait_budget: Duration) -> bool {
        let mut accepted = false;
        let mut budget_is_used_up = pin!(sleep(wait_budget));
        loop {
            let answered = tokio::select! {
                biased;
                answered = self.hand_overs.next() => answered,
                () = &mut budget_is_used_up => None,
            };
            let Some(answered) = answered else { return accepted };
            accepted |= self.take(answered).await;
            if accepted && !all {
                return true;
            }
        }
    }

    async fn take(&mut self, (session, answer): (SessionEntry, HandOver)) -> bool {
        self.sessions.retain(|id| *id != session.session_id);
        let accepted = answer == HandOver::Taken;
        if accepted {
            self.fanout.observer.handed_over(&session, &self.messages);
        }
        accepted
    }

    /// Moves the rest to the background, or returns it if there is no room.
    fn leave(mut self) -> Option<impl Future<Output = ()> + Send + 'static> {
        if self.hand_overs.is_empty() {
            return None;
        }
        let background = self.fanout.background.clone();
        background.run(async move {
            while let Some(answered) = self.hand_overs.next().await {
                self.take(answered).await;
            }
        })
    }
}
