//! The background operations of a session's registration: register and plan (R1), refresh (R12),
//! reconcile, and what follows from them. [`Registration`](super::Registration) says which is due.

use bluetick_protocol::{
    Boundaries, ConversationId, ErrorCode, MessageId, Presence, Reset, ServerFrame, StatusAnswer, Ticks,
    UserId, WireError,
};
use bluetick_store::SessionEntry;
use futures_util::future::{BoxFuture, join, join_all};
use tokio::time::Instant;

use super::{ActionOutcome, End, Session};
use crate::{
    AppResult, Plan, PlanRequest, is_revoked,
    session::{FrameSink, FrameSource, registration::Duty},
    token_revoked,
};

/// What came of the operation in the background.
pub(super) enum Completed {
    Registered(RegistrationOutcome),
    /// The displaced sessions were told to end. This session's entry has a later time than theirs.
    DisplacedEnded {
        connected_at: u64,
    },
    Reconciled {
        plan: AppResult<Plan>,
        asked_at_ms: u64,
    },
    Refreshed(EntryStatus),
    /// Watchers were told that this user is online, or knew it.
    Announced,
    /// The watches of this session are in the session store again.
    Watched(AppResult<Vec<Presence>>),
    TicksRead(Vec<(ConversationId, AppResult<StatusAnswer>)>),
    Action(ActionOutcome),
}

pub(super) struct RegistrationOutcome {
    is_first: bool,
    is_registered: bool,
    plan: AppResult<Plan>,
    /// When the plan was asked for.
    asked_at_ms: u64,
    /// The time before which the user's tokens are revoked. Read after the registration, as the
    /// plan is.
    not_before: AppResult<Option<u64>>,
    /// The sessions of the same device that this one displaced.
    displaced: Vec<SessionEntry>,
}

/// A session's entry in the session store.
pub(super) enum EntryStatus {
    /// It is there, or nobody knows.
    Present,
    /// It is gone: register and plan anew (R12).
    Gone,
    /// It is gone, and another session of the device has one.
    Contested(Rival),
}

/// Another session of the same device, by the time of its hello.
pub(super) enum Rival {
    /// The session store has fallen back to an earlier state, or a clock is ahead.
    Older,
    /// The device has reconnected. Or its hello arrived late and has no client behind it: then that
    /// session ends by itself.
    Newer,
}

/// The status of an entry that is not among the user's `sessions`.
fn status_without_entry(entry: &SessionEntry, sessions: &[SessionEntry]) -> EntryStatus {
    let age = |entry: &SessionEntry| (entry.connected_at, entry.session_id);
    let others = sessions.iter().filter(|s| s.device == entry.device && s.session_id != entry.session_id);
    match others.map(age).max() {
        None => EntryStatus::Gone,
        Some(other) if other > age(entry) => EntryStatus::Contested(Rival::Newer),
        Some(_) => EntryStatus::Contested(Rival::Older),
    }
}

fn replaced() -> WireError {
    WireError::new(ErrorCode::Replaced, "this device connected again")
}

impl<R: FrameSource, W: FrameSink> Session<'_, R, W> {
    /// Starts the operation that is due, if none is in progress. Delivery's own come after these.
    pub(super) fn start_duty(&mut self, now: Instant) {
        if self.background.is_some() || !self.timers.may_retry(now) {
            return;
        }
        let may_read_ticks = self.outbound.is_below_high_water();
        let Some(duty) = self.registration.next(now, may_read_ticks) else { return };
        self.background = Some(match duty {
            Duty::Register { cursor, is_first } => self.register_and_plan(cursor, is_first),
            Duty::EndDisplaced(sessions) => self.end_displaced(sessions),
            Duty::Refresh => self.refresh(),
            Duty::Reconcile { cursor } => self.reconcile(cursor),
            Duty::Announce => self.announce(),
            Duty::Watch(users) => self.watch(users),
            Duty::ReadTicks(ids) => self.read_ticks(ids),
        });
    }

    /// Registers *before* it reads what is pending (R1): the other way round loses what arrives
    /// between.
    fn register_and_plan(&self, cursor: Option<MessageId>, is_first: bool) -> BoxFuture<'static, Completed> {
        let (app, registry, entry) = (self.host.app.clone(), self.host.registry.clone(), self.entry.clone());
        let (ttl, max_sessions) = (self.host.config.ttl, self.host.config.max_sessions);
        let observer = self.host.observer.clone();
        self.handle.with(|mailbox| mailbox.delivery.await_plan());
        let asked_at_ms = self.host.clock.now_ms();
        let client_is_there = self.registration.client_is_there();
        Box::pin(async move {
            if !is_first && let Ok(sessions) = registry.lookup(&entry.user_id).await {
                match status_without_entry(&entry, &sessions) {
                    EntryStatus::Contested(Rival::Older) if client_is_there => {}
                    // This session may be the one without a client.
                    contested @ EntryStatus::Contested(_) => return Completed::Refreshed(contested),
                    EntryStatus::Present | EntryStatus::Gone => {}
                }
            }
            let request =
                PlanRequest { user: entry.user_id.clone(), cursor, heads: is_first, undelivered_after: None };
            let mut displaced = Vec::new();
            let is_registered = match registry.register(&entry, ttl, max_sessions).await {
                Ok(ended) => {
                    let others;
                    (displaced, others) = ended.into_iter().partition(|old| old.device == entry.device);
                    let many = WireError::new(ErrorCode::TooManySessions, "this user has too many sessions");
                    app.end_sessions(others, many).await;
                    observer.registered(&entry);
                    true
                }
                Err(e) => {
                    tracing::warn!(error = %e, "the session could not be registered; retrying with the next heartbeat");
                    false
                }
            };
            // After the registration, for the same reason as the plan: a revocation either finds
            // this session or is found by it.
            let not_before = app.not_before(entry.user_id.clone());
            let (plan, not_before) = join(app.plan(request), not_before).await;
            Completed::Registered(RegistrationOutcome {
                is_first,
                is_registered,
                plan,
                asked_at_ms,
                not_before,
                displaced,
            })
        })
    }

    /// Ends the sessions of the device that this one displaced: its client has shown that it is
    /// there. Without that a registration may be late, and its client gone and connected elsewhere.
    /// The session there must not be told `replaced`, because a client does not reconnect after
    /// that.
    fn end_displaced(&self, displaced: Vec<SessionEntry>) -> BoxFuture<'static, Completed> {
        let (app, registry, mut entry) =
            (self.host.app.clone(), self.host.registry.clone(), self.entry.clone());
        let (ttl, max_sessions) = (self.host.config.ttl, self.host.config.max_sessions);
        let latest = displaced.iter().map(|other| other.connected_at).max().unwrap_or(0);
        Box::pin(async move {
            if latest >= entry.connected_at {
                // Clocks differ. If this fails, the next refresh finds out.
                entry.connected_at = latest + 1;
                let _ = registry.register(&entry, ttl, max_sessions).await;
            }
            app.end_sessions(displaced, replaced()).await;
            Completed::DisplacedEnded { connected_at: entry.connected_at }
        })
    }

    fn refresh(&self) -> BoxFuture<'static, Completed> {
        let (registry, entry, ttl) = (self.host.registry.clone(), self.entry.clone(), self.host.config.ttl);
        Box::pin(async move {
            let refreshed = registry.refresh(&[(entry.user_id.clone(), entry.session_id)], ttl).await;
            Completed::Refreshed(match refreshed.map(|alive| alive.first().copied()) {
                Ok(Some(true)) => EntryStatus::Present,
                Ok(_) => match registry.lookup(&entry.user_id).await {
                    Ok(sessions) => status_without_entry(&entry, &sessions),
                    Err(_) => EntryStatus::Present,
                },
                Err(_) => EntryStatus::Present,
            })
        })
    }

    /// Looks for messages that nobody handed to this session: a lookup failed, or the sender's app
    /// server crashed. Such a message has its pending row or its place in the inbox, so a plan
    /// finds it.
    fn reconcile(&self, cursor: MessageId) -> BoxFuture<'static, Completed> {
        let (app, user) = (self.host.app.clone(), self.entry.user_id.clone());
        let asked_at_ms = self.host.clock.now_ms();
        Box::pin(async move {
            let request = PlanRequest { user, cursor: Some(cursor), heads: false, undelivered_after: None };
            Completed::Reconciled { plan: app.plan(request).await, asked_at_ms }
        })
    }

    /// Tells watchers that the user is online. Of several sessions only the oldest does: the others
    /// change nothing.
    fn announce(&self) -> BoxFuture<'static, Completed> {
        let (app, registry, entry) = (self.host.app.clone(), self.host.registry.clone(), self.entry.clone());
        Box::pin(async move {
            let sessions = registry.lookup(&entry.user_id).await.unwrap_or_default();
            let oldest = sessions.iter().min_by_key(|session| (session.connected_at, session.session_id));
            if oldest.is_none_or(|oldest| oldest.session_id == entry.session_id) {
                let _ = app.presence_changed(entry.user_id, true).await;
            }
            Completed::Announced
        })
    }

    fn watch(&self, users: Vec<UserId>) -> BoxFuture<'static, Completed> {
        let (app, entry) = (self.host.app.clone(), self.entry.clone());
        Box::pin(async move { Completed::Watched(app.watch(entry, users).await) })
    }

    fn read_ticks(&self, ids: Vec<ConversationId>) -> BoxFuture<'static, Completed> {
        let (app, user) = (self.host.app.clone(), self.entry.user_id.clone());
        Box::pin(async move {
            let read_one = |id: ConversationId| {
                let (app, user) = (app.clone(), user.clone());
                async move { (id.clone(), app.status(user, id).await) }
            };
            Completed::TicksRead(join_all(ids.into_iter().map(read_one)).await)
        })
    }

    /// Takes what came of the operation in the background. What failed is tried again in a moment.
    pub(super) fn take_completed(&mut self, completed: Completed) -> Result<(), End> {
        let now = Instant::now();
        match completed {
            Completed::Registered(outcome) => self.take_registration(outcome, now)?,
            Completed::DisplacedEnded { connected_at } => {
                self.registration.displaced_ended(self.entry.connected_at != connected_at);
                self.entry.connected_at = connected_at;
            }
            // The plan has the pending rows, even if it missed too much for the rest.
            Completed::Reconciled { plan: Ok(plan), asked_at_ms } => {
                self.registration.planned(asked_at_ms);
                self.take_plan(plan, false);
            }
            // The next one covers the same time.
            Completed::Reconciled { plan: Err(_), .. } => {}
            Completed::Refreshed(status) => self.take_entry_status(status, now)?,
            Completed::Announced => {}
            Completed::Watched(Ok(presences)) => {
                self.outbound.push_all(presences.into_iter().map(ServerFrame::Presence).collect());
            }
            Completed::Watched(Err(e)) => {
                tracing::warn!(error = %e, "the watches could not be restored; retrying");
                self.registration.watch_again();
                self.timers.retry_later(now);
            }
            Completed::TicksRead(answers) => self.take_ticks(answers, now),
            Completed::Action(outcome) => self.take_outcome(outcome),
        }
        Ok(())
    }

    fn take_registration(&mut self, outcome: RegistrationOutcome, now: Instant) -> Result<(), End> {
        let RegistrationOutcome { is_first, is_registered, plan, asked_at_ms, not_before, displaced } =
            outcome;
        self.registration.displaced(displaced);
        if let Ok(not_before) = &not_before
            && is_revoked(self.token.issued_at(), *not_before)
        {
            return Err(Some(token_revoked()));
        }
        if !is_registered {
            self.registration.not_registered();
        } else if self.registration.registered(is_first, now, now + self.host.config.online_after) {
            self.outbound.ping();
        }
        let plan = match not_before.and(plan) {
            Ok(plan) => plan,
            Err(e) => {
                tracing::warn!(error = %e, "the plan could not be read; retrying");
                self.registration.plan_failed(is_first);
                self.timers.retry_later(now);
                return Ok(());
            }
        };
        if let Some(reason) = plan.reset.clone() {
            if !is_first {
                let why = "too much was missed; reconnect, and what is missing comes by the cursor";
                return Err(Some(WireError::new(ErrorCode::Unavailable, why)));
            }
            self.outbound.push(&ServerFrame::Reset(Reset { reason }));
        }
        metrics::histogram!("bluetick_drain_conversations").record(plan.lanes.len() as f64);
        self.registration.planned(asked_at_ms);
        let conversations = self.take_plan(plan, is_first);
        if !is_first {
            // Ticks that moved while nobody found this session were told to nobody (R10).
            self.registration.read_ticks_of(conversations);
        }
        Ok(())
    }

    /// Takes on a plan. Returns the conversations that a session which registered anew knows of.
    fn take_plan(&mut self, plan: Plan, is_first: bool) -> Vec<ConversationId> {
        self.handle.with(|mailbox| {
            mailbox.delivery.plan(plan, is_first);
            if is_first { Vec::new() } else { mailbox.delivery.conversations() }
        })
    }

    fn take_entry_status(&mut self, status: EntryStatus, now: Instant) -> Result<(), End> {
        match status {
            EntryStatus::Present => {}
            EntryStatus::Gone => {
                metrics::counter!("bluetick_reregistrations_total").increment(1);
                self.registration.entry_lost();
            }
            EntryStatus::Contested(rival) => {
                self.handle.with(|mailbox| mailbox.delivery.continue_without_plan());
                if self.registration.contested(now) {
                    self.outbound.ping();
                }
                // By then a newer session without a client would have ended, or its entry
                // expired.
                let long = self.host.config.ttl.max(self.host.config.heartbeat * 3);
                let is_long = self.registration.asked_at().is_some_and(|at| at.elapsed() > long);
                if matches!(rival, Rival::Newer) && is_long {
                    return Err(Some(replaced()));
                }
            }
        }
        Ok(())
    }

    fn take_ticks(&mut self, answers: Vec<(ConversationId, AppResult<StatusAnswer>)>, now: Instant) {
        for (id, answer) in answers {
            match answer {
                Ok(status) => self.send_ticks(status),
                Err(e) if e.code.is_retryable() => {
                    self.registration.read_ticks_again(id);
                    self.timers.retry_later(now);
                }
                // The conversation is gone.
                Err(_) => {}
            }
        }
    }

    /// Sends the boundaries of both members.
    fn send_ticks(&mut self, status: StatusAnswer) {
        let StatusAnswer { conversation_id: id, own, peer, .. } = status;
        let user = self.entry.user_id.clone();
        let sides = [id.peer_of(&user).map(|other| (other, peer)), Some((user, own))];
        for (user_id, boundaries) in sides.into_iter().flatten() {
            let Boundaries { last_delivered_seq, last_read_seq } = boundaries;
            if last_delivered_seq > 0 {
                let conversation_id = id.clone();
                let ticks = Ticks { conversation_id, user_id, last_delivered_seq, last_read_seq };
                self.outbound.push(&ServerFrame::Ticks(ticks));
            }
        }
    }
}
