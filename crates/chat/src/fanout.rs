//! Hands events to live sessions, to all of them at once (R2, R12).
//!
//! A gateway that hangs must not delay the sessions of other gateways, and must not delay a request for long. A
//! request waits for answers at most for the hedge (`sessions.hand_over_hedge_ms`). What is unanswered then goes on
//! in the background until its own deadline (`sessions.hand_over_deadline_ms`); a session that misses the deadline
//! counts as gone.

use std::{future::ready, pin::pin, sync::Arc, time::Duration};

use bluetick_protocol::{SessionId, Ticks, UserId};
use bluetick_store::{Message, SessionEntry, SessionStore, StatusRow};
use futures_util::{
    StreamExt as _,
    future::{BoxFuture, Either, join},
    stream::FuturesUnordered,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};

use crate::{DeliveryObserver, Gateways, HandOver, SessionEvent};

/// Jobs that may run in the background of an app server at once. Each lives no longer than a few hand-over deadlines.
const BACKGROUND_MAX: u32 = 4_096;
/// Hand-overs of one event that are in flight together. A user may have very many watchers.
const HAND_OVERS_AT_ONCE: usize = 256;

/// Starts tasks that outlive the request they belong to. It is given to a [`ChatService`](crate::ChatService), as the clock is:
/// a simulated process takes its tasks down with it when it crashes.
pub trait Spawner: Send + Sync {
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

/// The work of an app server that no request waits for. It is bounded: without room, or without a spawner, a request
/// does the work itself before it answers.
#[derive(Default)]
pub struct Background {
    spawner: Option<Arc<dyn Spawner>>,
    room: Option<Arc<Semaphore>>,
}

impl Background {
    fn new(spawner: Arc<dyn Spawner>) -> Background {
        let room = Semaphore::new(BACKGROUND_MAX as usize);
        Background { spawner: Some(spawner), room: Some(Arc::new(room)) }
    }

    /// Room for one job, if there is any.
    pub(crate) fn slot(&self) -> Option<BackgroundSlot<'_>> {
        let spawner = self.spawner.as_deref()?;
        let permit = self.room.clone()?.try_acquire_owned().ok()?;
        Some(BackgroundSlot { spawner, permit })
    }

    /// Runs the job in the background, or gives it back if there is no room.
    fn run<F: Future<Output = ()> + Send + 'static>(&self, job: F) -> Option<F> {
        match self.slot() {
            Some(slot) => {
                slot.run(job);
                None
            }
            None => Some(job),
        }
    }

    /// Resolves when no job is running. For a shutdown, when no new requests come.
    pub async fn idle(&self) {
        if let Some(room) = &self.room {
            let _ = room.acquire_many(BACKGROUND_MAX).await;
        }
    }
}

pub(crate) struct BackgroundSlot<'a> {
    spawner: &'a dyn Spawner,
    permit: OwnedSemaphorePermit,
}

impl BackgroundSlot<'_> {
    pub(crate) fn run(self, job: impl Future<Output = ()> + Send + 'static) {
        let permit = self.permit;
        self.spawner.spawn(Box::pin(async move {
            job.await;
            drop(permit);
        }));
    }
}

/// A hand-over that the session's gateway has not answered yet. It does nothing until it is polled.
type Unanswered = BoxFuture<'static, (SessionEntry, HandOver)>;

/// The way from an app server to sessions. Shared with the jobs in the background.
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

    /// A user's live sessions. A session store that is down means that everybody is offline: messages queue, nothing
    /// fails (R12).
    pub async fn sessions_of(&self, user: &UserId) -> Vec<SessionEntry> {
        match self.sessions.lookup(user).await {
            Ok(sessions) => sessions,
            Err(e) => {
                tracing::warn!(error = %e, "the session store does not answer; taking the offline path");
                Vec::new()
            }
        }
    }

    /// Begins a hand-over. A session of this process answers at once, without an allocation.
    pub fn begin(self: &Arc<Self>, to: &SessionEntry, event: SessionEvent) -> Either<HandOver, Unanswered> {
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
            let answer = match answer {
                HandOver::Refused => fanout.refused(&to).await,
                answer => answer,
            };
            (to, answer)
        }))
    }

    /// A session that is not there is removed from the session store, if the entry still names it (R12).
    async fn refused(&self, to: &SessionEntry) -> HandOver {
        self.observer.stale_session();
        let _ = self.sessions.unregister(&to.user_id, to.session_id).await;
        HandOver::Refused
    }

    /// Hands an event to each of the sessions. Returns when all have answered, or after the hedge; it does not wait
    /// for `slow` sessions, which are known not to have answered an earlier event yet.
    pub async fn hand_over_all(
        self: &Arc<Self>,
        sessions: &[SessionEntry],
        slow: &[SessionId],
        event: impl Fn(&SessionEntry) -> SessionEvent,
    ) {
        for some in sessions.chunks(HAND_OVERS_AT_ONCE) {
            self.hand_over_some(some, slow, &event).await;
        }
    }

    async fn hand_over_some(
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

    /// Own sends reach the user's other devices; the session that sent them only learns that the seqs are taken.
    pub async fn echo_to_sender(
        self: &Arc<Self>,
        sender: &UserId,
        origin: Option<SessionId>,
        messages: Arc<[Arc<Message>]>,
    ) {
        let sessions = self.sessions_of(sender).await;
        let echo = |_: &_| SessionEvent::Messages { messages: messages.clone(), row_written: false, origin };
        self.hand_over_all(&sessions, &[], echo).await;
    }

    /// Tells all sessions of both members how far one of them is (R10); the one whose receipt it was may wait.
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

/// Hand-overs of messages to one receiver's sessions that are not all answered.
pub(crate) struct InFlight {
    fanout: Arc<Fanout>,
    messages: Arc<[Arc<Message>]>,
    /// The sessions that have not answered.
    sessions: Vec<SessionId>,
    hand_overs: FuturesUnordered<Unanswered>,
}

impl InFlight {
    pub fn new(
        fanout: &Arc<Fanout>,
        messages: &Arc<[Arc<Message>]>,
        unanswered: Vec<(SessionId, Unanswered)>,
    ) -> InFlight {
        let (sessions, hand_overs): (Vec<_>, FuturesUnordered<_>) = unanswered.into_iter().unzip();
        InFlight { fanout: fanout.clone(), messages: messages.clone(), sessions, hand_overs }
    }

    /// Waits for answers for at most `patience`. Returns whether a session accepted the messages: at once when one
    /// does, or, with `all`, when every session has answered.
    pub async fn wait(&mut self, all: bool, patience: Duration) -> bool {
        let mut accepted = false;
        let mut out_of_patience = pin!(sleep(patience));
        loop {
            let answered = tokio::select! {
                biased;
                answered = self.hand_overs.next() => answered,
                () = &mut out_of_patience => None,
            };
            let Some(answered) = answered else { return accepted };
            accepted |= self.take(answered);
            if accepted && !all {
                return true;
            }
        }
    }

    fn take(&mut self, (session, answer): (SessionEntry, HandOver)) -> bool {
        self.sessions.retain(|id| *id != session.session_id);
        let accepted = answer == HandOver::Taken;
        if accepted {
            self.fanout.observer.handed_over(&session, &self.messages);
        }
        accepted
    }

    /// The sessions that have not answered yet.
    pub fn unanswered(&self) -> &[SessionId] {
        &self.sessions
    }

    /// Leaves the rest to the background. If there is no room there, the rest is given back: it must be awaited.
    pub fn leave(mut self) -> Option<impl Future<Output = ()> + Send + 'static> {
        if self.hand_overs.is_empty() {
            return None;
        }
        let background = self.fanout.background.clone();
        background.run(async move {
            while let Some(answered) = self.hand_overs.next().await {
                self.take(answered);
            }
        })
    }
}
