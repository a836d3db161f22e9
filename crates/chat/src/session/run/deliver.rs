//! Delivery: the session executes what [`Delivery::next`](super::Delivery::next) says.

use std::collections::VecDeque;

use bluetick_protocol::{ConversationId, ErrorCode, Seq, ServerFrame, WireError};
use futures_util::future::join_all;
use tokio::time::Instant;

use super::{Completed, End, Session};
use crate::{
    DebtsRequest, PlanRequest, RangeRequest, SettleRequest,
    session::{
        FrameSink, FrameSource,
        delivery::{Action, ActionOutcome, BackgroundAction, Capacity, LaneRead, Out},
        encode::message_text,
        timers::RETRY,
    },
};

impl<R: FrameSource, W: FrameSink> Session<'_, R, W> {
    /// Takes everything out of the mailbox, sends what may be sent, and starts the reads and other
    /// operations that delivery needs. Returns when the ticks of own acks are to be sent, if they
    /// wait.
    pub(super) fn deliver(&mut self, now: Instant) -> Result<Option<Instant>, End> {
        self.requests.end_pause(now);
        let may_retry = self.timers.may_retry(now);
        let bytes = self.outbound.room_bytes();
        let frames = if bytes > 0 { self.outbound.room_frames() } else { 0 };
        let mut capacity = Capacity {
            frames,
            bytes: if frames > 0 { bytes } else { 0 },
            may_read: may_retry && self.reading.is_none(),
            may_start: may_retry && self.background.is_none(),
        };
        let moment = self.handle.moment(now);
        let (mut out, mut reads, mut background) = (VecDeque::new(), Vec::new(), None);
        // Encoding frames takes a while: it is done after the lock is released.
        let (others, close, unacked, own_ticks_at) = self.handle.with(|mailbox| {
            let close = mailbox.begin_turn();
            if close.is_some() {
                (capacity.may_read, capacity.may_start) = (false, false);
            }
            mailbox.delivery.now = moment;
            let awaits_room = loop {
                match mailbox.delivery.next(&mut capacity) {
                    Action::Send(frames) => {
                        debug_assert!(out.is_empty(), "everything that may be sent is sent at once");
                        out = frames;
                    }
                    Action::Read(lanes) => reads = lanes,
                    Action::AwaitRoom => break true,
                    Action::Wait => break false,
                    Action::Background(action) => background = Some(action),
                }
            };
            let others = mailbox.take_frames(frames, !self.outbound.is_empty() || !out.is_empty(), now);
            let own_ticks_at = mailbox.own_ticks_at();
            let more_waits = frames == 0 || own_ticks_at.is_some() || mailbox.has_frames();
            self.outbound.wake_when_written(awaits_room || more_waits);
            let close = close.or_else(|| mailbox.delivery.is_stuck().then(unreadable));
            (others, close, mailbox.delivery.unacked(), own_ticks_at)
        });
        if !out.is_empty() {
            self.timers.active(now);
            self.send(out);
        }
        self.outbound.push_all(others);
        if !reads.is_empty() {
            self.start_reads(reads);
        }
        if let Some(action) = background {
            self.start_action(action);
        }
        self.timers.set_unacked(unacked, now, self.host.config.unacked_after);
        if close.is_some() { Err(close) } else { Ok(own_ticks_at) }
    }

    fn send(&mut self, out: VecDeque<Out>) {
        let messages = out.iter().filter(|out| matches!(out, Out::Message { .. })).count();
        self.host.gateway.deliveries.increment(messages as u64);
        let observer = &self.host.observer;
        for out in out {
            let text = match out {
                Out::Message { message, is_drained } => {
                    match is_drained {
                        true => observer.drained(&self.entry, &message),
                        false => observer.written(&self.entry, &message),
                    }
                    message_text(&message)
                }
                Out::CaughtUp(caught_up) => {
                    observer.caught_up(&self.entry);
                    ServerFrame::CaughtUp(caught_up).to_text()
                }
            };
            self.outbound.push_text(text);
        }
    }

    fn start_reads(&mut self, reads: Vec<LaneRead>) {
        let (app, user) = (self.host.app.clone(), self.entry.user_id.clone());
        self.reading = Some(Box::pin(async move {
            let read_one = |read: LaneRead| {
                let id = read.conversation_id.clone();
                let request = RangeRequest {
                    user: user.clone(),
                    conversation_id: read.conversation_id,
                    from: read.from,
                    max_messages: read.max_messages,
                    max_bytes: read.max_bytes,
                };
                let app = app.clone();
                async move { (id, app.read_range(request).await) }
            };
            ActionOutcome::Read(join_all(reads.into_iter().map(read_one)).await)
        }));
    }

    /// Starts an action in the background.
    pub(super) fn start_action(&mut self, action: BackgroundAction) {
        let (app, user) = (self.host.app.clone(), self.entry.user_id.clone());
        self.background = Some(Box::pin(async move {
            Completed::Action(match action {
                BackgroundAction::ContinuePlan(after) => {
                    let request =
                        PlanRequest { user, cursor: None, heads: false, undelivered_after: Some(after) };
                    ActionOutcome::PlanContinued(app.plan(request).await)
                }
                BackgroundAction::ReportOverdue(debts) => {
                    let request = DebtsRequest { user, debts, overdue: true };
                    let left = app.pay_debts(request.clone()).await.unwrap_or(request.debts);
                    ActionOutcome::OverdueReported(left)
                }
                BackgroundAction::LookUpRows(ids) => {
                    let look_up = |id: ConversationId| {
                        let (app, user) = (app.clone(), user.clone());
                        async move { (id.clone(), app.pending_row(user, id).await) }
                    };
                    ActionOutcome::RowsLookedUp(join_all(ids.into_iter().map(look_up)).await)
                }
                BackgroundAction::SettleRows(rows) => {
                    let settle = |(id, row): (ConversationId, Seq)| {
                        let (app, user) = (app.clone(), user.clone());
                        let request = SettleRequest { user, conversation_id: id.clone(), row };
                        async move { (id, app.settle(request).await) }
                    };
                    ActionOutcome::RowsSettled(join_all(rows.into_iter().map(settle)).await)
                }
            })
        }));
    }

    pub(super) fn take_outcome(&mut self, outcome: ActionOutcome) {
        if self.handle.with(|mailbox| mailbox.delivery.done(outcome)) {
            self.timers.retry_later(Instant::now());
        }
    }

    /// Takes acks that are durable. Returns whether they freed part of the window.
    pub(super) fn take_acks(&mut self, acked: Vec<(ConversationId, Seq)>) -> bool {
        self.handle.with(|mailbox| {
            acked.iter().fold(false, |freed, (id, seq)| mailbox.delivery.acked(id, *seq) || freed)
        })
    }

    /// Messages that are not acked for long count as not handed over: they get their row and a
    /// notification, while the session continues (R14).
    pub(super) fn find_overdue(&mut self, now: Instant) {
        let after = self.host.config.unacked_after.unwrap_or_default();
        let before = now.checked_sub(after).map_or(0, |at| self.handle.moment(at));
        let next = self.handle.with(|mailbox| mailbox.delivery.find_overdue(before));
        let next = next.map(|sent| (self.handle.instant(sent) + after).max(now + RETRY));
        self.timers.search_overdue_at(next);
    }
}

fn unreadable() -> WireError {
    WireError::new(
        ErrorCode::Unavailable,
        "a conversation cannot be read right now; reconnect for the others",
    )
}
