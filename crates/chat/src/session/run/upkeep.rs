//! A session's standing: registered and planned (R1), refreshed (R12), looking for what it missed, and its pending rows
//! looked up and removed (R4).

use bluetick_protocol::{Boundaries, Presence, StatusAnswer, Ticks};
use futures_util::future::join;

use super::*;
use crate::{is_revoked, token_revoked};

/// Work on the session's standing, one piece at a time.
pub(super) enum Upkeep {
    Opened {
        registered: bool,
        plan: AppResult<Plan>,
        /// Read after the registration, as the plan is.
        not_before: AppResult<Option<u64>>,
        first: bool,
        at_ms: u64,
        /// The sessions of the same device whose place it took.
        displaced: Vec<SessionEntry>,
    },
    /// Those have been told to go. The time of this session's entry is later than theirs.
    Replaced {
        connected_at: u64,
    },
    Looked {
        plan: AppResult<Plan>,
        at_ms: u64,
    },
    /// The rest of the first plan, or a further part of it.
    More(AppResult<Plan>),
    Refreshed(Refresh),
    Settled(Vec<(ConversationId, AppResult<Settled>)>),
    Rows(Vec<(ConversationId, AppResult<Option<Seq>>)>),
    Ticks(Vec<(ConversationId, AppResult<StatusAnswer>)>),
    /// The overdue messages that could not be told of, if any.
    Overdue(Vec<Debt>),
    /// Watchers were told that this user is there, or knew it.
    Announced,
    /// The watches of this session are in the session store again.
    Watched(AppResult<Vec<Presence>>),
}

pub(super) enum Refresh {
    /// The entry is there, or it cannot be known.
    Fine,
    /// The entry is gone: register anew and drain anew (R12).
    Gone,
    /// The entry is gone, and another session of the device has one.
    Contested(Rival),
}

/// Another session of the same device, by the time at which it said hello.
pub(super) enum Rival {
    /// The session store has fallen back to an earlier state, or a clock is ahead.
    Older,
    /// The device has come back. Or its hello came late, and nobody is behind it: it ends by itself then.
    Newer,
}

/// What the session store says of a session that is not in it.
fn standing(entry: &SessionEntry, sessions: &[SessionEntry]) -> Refresh {
    let age = |entry: &SessionEntry| (entry.connected_at, entry.session_id);
    let others = sessions.iter().filter(|s| s.device == entry.device && s.session_id != entry.session_id);
    match others.map(age).max() {
        None => Refresh::Gone,
        Some(other) if other > age(entry) => Refresh::Contested(Rival::Newer),
        Some(_) => Refresh::Contested(Rival::Older),
    }
}

fn replaced() -> WireError {
    WireError::new(ErrorCode::Replaced, "this device connected again")
}

impl<R: FrameSource, W: FrameSink> Session<'_, R, W> {
    pub(super) fn start_upkeep(&mut self) {
        if !self.opened {
            self.upkeep = Some(self.register_and_plan(self.cursor, true));
            return;
        }
        if !self.displaced.is_empty() && self.gave_sign {
            self.upkeep = Some(self.end_displaced());
            return;
        }
        if self.refresh_due {
            self.refresh_due = false;
            self.upkeep = Some(match self.registered {
                true => self.refresh(),
                false => self.register_and_plan(Some(MessageId::at(self.planned_ms)), false),
            });
            return;
        }
        if self.look_due {
            self.look_due = false;
            self.upkeep = Some(self.look());
            return;
        }
        if let Some(after) = self.planned_up_to.take() {
            let (app, user) = (self.host.app.clone(), self.entry.user_id.clone());
            let request = PlanRequest { user, cursor: None, heads: false, undelivered_after: Some(after) };
            self.upkeep = Some(Box::pin(async move { Upkeep::More(app.plan(request).await) }));
            return;
        }
        if self.announce_at.is_some_and(|at| at <= Instant::now()) {
            self.announce_at = None;
            self.announced = true;
            self.upkeep = Some(self.announce());
            return;
        }
        if std::mem::take(&mut self.watch_due)
            && let Some(Watch { users, .. }) = self.watched.clone()
        {
            let (app, entry) = (self.host.app.clone(), self.entry.clone());
            self.upkeep = Some(Box::pin(async move { Upkeep::Watched(app.watch(entry, users).await) }));
            return;
        }
        if !self.ticks_due.is_empty() && self.is_below_high_water() {
            let (app, user) = (self.host.app.clone(), self.entry.user_id.clone());
            let ids = self.ticks_due.split_off(self.ticks_due.len().saturating_sub(64));
            self.upkeep = Some(Box::pin(async move {
                let one = |id: ConversationId| {
                    let (app, user) = (app.clone(), user.clone());
                    async move { (id.clone(), app.status(user, id).await) }
                };
                Upkeep::Ticks(join_all(ids.into_iter().map(one)).await)
            }));
            return;
        }
        if !self.overdue.is_empty() {
            let (app, user) = (self.host.app.clone(), self.entry.user_id.clone());
            let debts = std::mem::take(&mut self.overdue);
            let request = DebtsRequest { user, debts, overdue: true };
            self.upkeep = Some(Box::pin(async move {
                Upkeep::Overdue(app.pay_debts(request.clone()).await.unwrap_or(request.debts))
            }));
            return;
        }
        if !self.wants_rows {
            return;
        }
        let (rows, settles) = self.handle.with(|state| {
            let rows: Vec<_> = std::iter::from_fn(|| state.delivery.row_to_look_up()).take(64).collect();
            let settles: Vec<_> = match rows.is_empty() {
                true => std::iter::from_fn(|| state.delivery.next_to_settle()).take(64).collect(),
                false => Vec::new(),
            };
            (rows, settles)
        });
        let (app, user) = (self.host.app.clone(), self.entry.user_id.clone());
        if !rows.is_empty() {
            self.upkeep = Some(Box::pin(async move {
                let one = |id: ConversationId| {
                    let (app, user) = (app.clone(), user.clone());
                    async move { (id.clone(), app.pending_row(user, id).await) }
                };
                Upkeep::Rows(join_all(rows.into_iter().map(one)).await)
            }));
        } else if !settles.is_empty() {
            self.upkeep = Some(Box::pin(async move {
                let one = |(id, row): (ConversationId, Seq)| {
                    let (app, user) = (app.clone(), user.clone());
                    let request = SettleRequest { user, conversation_id: id.clone(), row };
                    async move { (id, app.settle(request).await) }
                };
                Upkeep::Settled(join_all(settles.into_iter().map(one)).await)
            }));
        }
    }

    /// Registers *before* it reads what is pending (R1): the other way round loses what arrives between.
    fn register_and_plan(&self, cursor: Option<MessageId>, first: bool) -> BoxFuture<'static, Upkeep> {
        let (app, registry, entry) = (self.host.app.clone(), self.host.registry.clone(), self.entry.clone());
        let (ttl, max_sessions) = (self.host.config.ttl, self.host.config.max_sessions);
        let observer = self.host.observer.clone();
        self.handle.with(|state| state.delivery.await_plan());
        let at_ms = self.host.clock.now_ms();
        let client_is_there = self.gave_sign;
        Box::pin(async move {
            if !first && let Ok(sessions) = registry.lookup(&entry.user_id).await {
                match standing(&entry, &sessions) {
                    Refresh::Contested(Rival::Older) if client_is_there => {}
                    // This session may be the one that nobody is behind.
                    contested @ Refresh::Contested(_) => return Upkeep::Refreshed(contested),
                    Refresh::Fine | Refresh::Gone => {}
                }
            }
            let request =
                PlanRequest { user: entry.user_id.clone(), cursor, heads: first, undelivered_after: None };
            let mut displaced = Vec::new();
            let registered = match registry.register(&entry, ttl, max_sessions).await {
                Ok(ended) => {
                    let others;
                    (displaced, others) = ended.into_iter().partition(|old| old.device == entry.device);
                    let many = WireError::new(ErrorCode::TooManySessions, "this user has too many sessions");
                    app.end_sessions(others, many).await;
                    observer.registered(&entry);
                    true
                }
                Err(e) => {
                    tracing::warn!(error = %e, "the session could not be registered; trying again");
                    false
                }
            };
            // After the registration, for the same reason as the plan: a revocation either finds this session or is
            // found by it.
            let not_before = app.not_before(entry.user_id.clone());
            let (plan, not_before) = join(app.plan(request), not_before).await;
            Upkeep::Opened { registered, plan, not_before, first, at_ms, displaced }
        })
    }

    /// Tells watchers that the user is there. Of several sessions the oldest does: whoever joins it later changes nothing.
    fn announce(&self) -> BoxFuture<'static, Upkeep> {
        let (app, registry, entry) = (self.host.app.clone(), self.host.registry.clone(), self.entry.clone());
        Box::pin(async move {
            let sessions = registry.lookup(&entry.user_id).await.unwrap_or_default();
            let oldest = sessions.iter().min_by_key(|session| (session.connected_at, session.session_id));
            if oldest.is_none_or(|oldest| oldest.session_id == entry.session_id) {
                let _ = app.presence_changed(entry.user_id, true).await;
            }
            Upkeep::Announced
        })
    }

    /// Ends the sessions of the device whose place this one took: its client is there. A registration may be late, and
    /// its client gone and connected elsewhere; that one must not be told `replaced`, after which it would not come back.
    fn end_displaced(&mut self) -> BoxFuture<'static, Upkeep> {
        let (app, registry, mut entry) =
            (self.host.app.clone(), self.host.registry.clone(), self.entry.clone());
        let (ttl, max_sessions) = (self.host.config.ttl, self.host.config.max_sessions);
        let displaced = std::mem::take(&mut self.displaced);
        let latest = displaced.iter().map(|other| other.connected_at).max().unwrap_or(0);
        Box::pin(async move {
            if latest >= entry.connected_at {
                // Clocks differ. What fails here is found out by the next refresh.
                entry.connected_at = latest + 1;
                let _ = registry.register(&entry, ttl, max_sessions).await;
            }
            app.end_sessions(displaced, replaced()).await;
            Upkeep::Replaced { connected_at: entry.connected_at }
        })
    }

    /// Asks the client for a sign of life, unless it was asked.
    fn ask_for_sign(&mut self) {
        if self.asked_at.is_none() {
            (self.asked_at, self.gave_sign) = (Some(Instant::now()), false);
            self.queue.push_back(Outgoing::Ping);
        }
    }

    /// Looks for what should have been handed to this session and was not: a lookup that failed, a hand-over whose
    /// sender crashed. Such a message has its pending row or its place in the inbox, and nobody to say so.
    fn look(&self) -> BoxFuture<'static, Upkeep> {
        let (app, user) = (self.host.app.clone(), self.entry.user_id.clone());
        let at_ms = self.host.clock.now_ms();
        let cursor = Some(MessageId::at(self.planned_ms));
        Box::pin(async move {
            let request = PlanRequest { user, cursor, heads: false, undelivered_after: None };
            Upkeep::Looked { plan: app.plan(request).await, at_ms }
        })
    }

    fn refresh(&self) -> BoxFuture<'static, Upkeep> {
        let (registry, entry, ttl) = (self.host.registry.clone(), self.entry.clone(), self.host.config.ttl);
        Box::pin(async move {
            let refreshed = registry.refresh(&[(entry.user_id.clone(), entry.session_id)], ttl).await;
            Upkeep::Refreshed(match refreshed.map(|alive| alive.first().copied()) {
                Ok(Some(true)) => Refresh::Fine,
                Ok(_) => match registry.lookup(&entry.user_id).await {
                    Ok(sessions) => standing(&entry, &sessions),
                    Err(_) => Refresh::Fine,
                },
                Err(_) => Refresh::Fine,
            })
        })
    }

    pub(super) fn take_upkeep(&mut self, done: Upkeep) -> Option<WireError> {
        let mut failed = false;
        match done {
            Upkeep::Opened { registered, plan, not_before, first, at_ms, displaced } => {
                // The session store no longer has these: whatever follows, this session must not forget them.
                self.displaced.extend(displaced);
                if let Ok(not_before) = &not_before
                    && is_revoked(self.issued_at, *not_before)
                {
                    return Some(token_revoked());
                }
                self.registered = registered;
                if registered {
                    (self.asked_at, self.gave_sign) = (None, false);
                    if !self.displaced.is_empty() {
                        self.ask_for_sign();
                    }
                }
                if registered && !self.announced {
                    self.announce_at.get_or_insert(Instant::now() + self.host.config.online_after);
                }
                self.watch_due |= registered && !first;
                match not_before.and(plan) {
                    Ok(plan) => {
                        self.opened = true;
                        self.planned_ms = at_ms;
                        if let Some(reason) = plan.reset.clone() {
                            if !first {
                                let why =
                                    "too much was missed; reconnect, and what is missing comes by the cursor";
                                return Some(WireError::new(ErrorCode::Unavailable, why));
                            }
                            self.push_frames(vec![ServerFrame::Reset(Reset { reason })]);
                        }
                        metrics::histogram!("bluetick_drain_conversations").record(plan.lanes.len() as f64);
                        let known = self.handle.with(|state| {
                            state.delivery.plan(plan, first);
                            state.delivery.conversations()
                        });
                        if !first {
                            // Ticks that moved while nobody found this session were told to nobody (R10).
                            self.ticks_due = known;
                        }
                    }
                    Err(e) => {
                        tracing::warn!(error = %e, "what is pending could not be read; trying again");
                        failed = true;
                        // A later registration drains anew, whatever this one missed.
                        self.registered &= first;
                        self.refresh_due |= !first;
                    }
                }
            }
            // Rows are in it, even if too much happened for the rest.
            Upkeep::Looked { plan: Ok(plan), at_ms } => {
                self.planned_ms = at_ms;
                self.handle.with(|state| state.delivery.plan(plan, false));
            }
            // The next look covers the same time.
            Upkeep::Looked { .. } => {}
            Upkeep::More(Ok(plan)) => self.handle.with(|state| state.delivery.plan_more(plan)),
            // It is asked for again: the drain waits for it.
            Upkeep::More(Err(e)) => {
                tracing::warn!(error = %e, "the rest of what is undelivered could not be read; trying again");
                failed = true;
            }
            Upkeep::Refreshed(Refresh::Fine) => {}
            Upkeep::Refreshed(Refresh::Gone) => {
                metrics::counter!("bluetick_reregistrations_total").increment(1);
                self.registered = false;
                self.refresh_due = true;
            }
            Upkeep::Refreshed(Refresh::Contested(rival)) => {
                self.registered = false;
                self.handle.with(|state| state.delivery.go_on());
                self.ask_for_sign();
                // A newer one that nobody is behind would have ended by then, or its entry expired.
                let long = self.host.config.ttl.max(self.host.config.heartbeat * 3);
                let contested_for = self.asked_at.map(|at| at.elapsed());
                if matches!(rival, Rival::Newer) && contested_for.is_some_and(|time| time > long) {
                    return Some(replaced());
                }
            }
            Upkeep::Replaced { connected_at } => {
                (self.asked_at, self.gave_sign) = (None, false);
                // Who registers again loses the watches of the entry before.
                self.watch_due |= self.entry.connected_at != connected_at;
                self.entry.connected_at = connected_at;
            }
            Upkeep::Settled(settled) => self.handle.with(|state| {
                for (id, outcome) in settled {
                    failed |= outcome.is_err();
                    state.delivery.settled(&id, outcome.ok().map(|s| (s.row, s.last_seq)));
                }
            }),
            Upkeep::Ticks(answers) => {
                for (id, answer) in answers {
                    match answer {
                        Ok(status) => self.tell_ticks(status),
                        Err(e) if e.code.is_retryable() => {
                            failed = true;
                            self.ticks_due.push(id);
                        }
                        // Nothing is left to tell of it.
                        Err(_) => {}
                    }
                }
            }
            Upkeep::Announced => {}
            Upkeep::Watched(Ok(presences)) => {
                self.push_frames(presences.into_iter().map(ServerFrame::Presence).collect());
            }
            Upkeep::Watched(Err(e)) => {
                tracing::warn!(error = %e, "watches could not be put back; trying again");
                (self.watch_due, failed) = (true, true);
            }
            Upkeep::Overdue(left) => {
                failed |= !left.is_empty();
                self.overdue.extend(left);
            }
            Upkeep::Rows(rows) => self.handle.with(|state| {
                for (id, row) in rows {
                    match row {
                        Ok(row) => state.delivery.row_found(&id, row),
                        Err(_) => {
                            failed = true;
                            state.delivery.wake(id);
                        }
                    }
                }
            }),
        }
        if failed {
            self.retry_at = Some(Instant::now() + RETRY);
        }
        None
    }

    /// Both members' boundaries, as they are.
    fn tell_ticks(&mut self, status: StatusAnswer) {
        let StatusAnswer { conversation_id: id, own, peer, .. } = status;
        let user = self.entry.user_id.clone();
        let sides = [id.peer_of(&user).map(|other| (other, peer)), Some((user, own))];
        for (user_id, boundaries) in sides.into_iter().flatten() {
            let Boundaries { last_delivered_seq, last_read_seq } = boundaries;
            if last_delivered_seq > 0 {
                let conversation_id = id.clone();
                let ticks = Ticks { conversation_id, user_id, last_delivered_seq, last_read_seq };
                self.push_frames(vec![ServerFrame::Ticks(ticks)]);
            }
        }
    }
}
