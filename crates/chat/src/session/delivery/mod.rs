//! What a session has still to deliver to its device: one lane per conversation, merged into one
//! ordered stream (R7).
//!
//! A lane knows the next seq to send and the highest seq that is known to exist. A lane with
//! something to send is *behind*. While any lane is behind, the message with the lowest message_id
//! among the fronts of all of them goes out next. Live delivery is the same thing with no lane
//! behind: a message with the next seq of its lane goes straight out, and any other makes its lane
//! be read. The window of unacked messages is the only queue (R13): beyond it a lane only remembers
//! that there is more.
//!
//! The session's loop drives it: it executes [`Delivery::next`] until there is nothing to do but
//! wait, and reports what came of each [`Action`] to [`Delivery::done`].
//!
//! - `action.rs`: what delivery asks of the session, and what comes of it
//! - `phase.rs`: from registering to closing
//! - `lane.rs`: the state of one conversation
//! - `merge.rs`: reading lanes, and sending what they hold in order
//! - `rows.rs`: looking up and removing pending rows
//!
//! Pure state: no I/O and no clock, so that every order of events can be tested.

mod action;
mod lane;
mod merge;
mod phase;
mod rows;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    ops::RangeInclusive,
    sync::Arc,
};

use bluetick_protocol::{CaughtUp, ConversationId, MessageId, Seq, SessionId, UserId, limits};
use bluetick_store::Message;

use crate::{Debt, Plan, PlanLane, ReadFrom};
pub(super) use action::{Action, ActionOutcome, BackgroundAction, Capacity, LaneRead, Out};
use lane::{Lane, MergeState, Position, RowState};
use merge::Merge;
use phase::{Drain, Phase};
use rows::RowWork;

/// Conversations remembered for a device that may resume this session.
const HELD_MAX: usize = 64;
/// Live messages that may go out between two turns of the session's loop. Others are read again
/// later.
const OUT_DIRECT_MAX: usize = 64;

/// Tenths of a second in the life of a session.
pub(super) type Moment = u32;

/// What goes out with the next turn of the session's loop.
#[derive(Debug)]
struct OutBuffer {
    frames: VecDeque<Out>,
    /// Encoded bytes of `frames`, and how many there may be (R13).
    bytes: usize,
    bytes_max: usize,
}

impl OutBuffer {
    fn push(&mut self, message: Arc<Message>, is_drained: bool) {
        self.bytes += message.encoded_bytes_at_most();
        self.frames.push_back(Out::Message { message, is_drained });
    }

    fn has_room(&self, frames_max: usize) -> bool {
        self.frames.len() < frames_max && self.bytes < self.bytes_max
    }
}

/// Messages sent and not acked (R13).
#[derive(Debug)]
struct Window {
    size: usize,
    unacked: usize,
}

impl Window {
    fn has_room(&self) -> bool {
        self.unacked < self.size
    }
}

pub(crate) struct Delivery {
    user: UserId,
    session: SessionId,
    phase: Phase,
    /// Nothing is sent or read while the session registers and reads a plan, whether for the first
    /// time or anew.
    awaits_plan: bool,
    /// The time, as far as the session has said.
    pub(super) now: Moment,
    lanes: BTreeMap<ConversationId, Lane>,
    merge: Merge,
    /// Lanes whose beginning is unknown are read from here on.
    since: MessageId,
    /// What the device acked in the session that it resumes: it is not sent again.
    held: BTreeMap<ConversationId, RangeInclusive<Seq>>,
    rows: RowWork,
    window: Window,
    /// Messages whose acks are overdue, to be reported.
    overdue: Vec<Debt>,
    out: OutBuffer,
}

impl Delivery {
    /// `held` is what the device acked in the session that it resumes.
    pub(super) fn new(
        user: UserId,
        session: SessionId,
        window: usize,
        held: BTreeMap<ConversationId, RangeInclusive<Seq>>,
    ) -> Self {
        Delivery {
            user,
            session,
            phase: Phase::Registering,
            awaits_plan: true,
            now: 0,
            lanes: BTreeMap::new(),
            merge: Merge::default(),
            since: MessageId::default(),
            held,
            rows: RowWork::default(),
            window: Window { size: window.max(1), unacked: 0 },
            overdue: Vec::new(),
            out: OutBuffer {
                frames: VecDeque::new(),
                bytes: 0,
                bytes_max: limits::OUTBOUND_HIGH_WATER_BYTES,
            },
        }
    }

    // ---- what to do ----

    /// What to do next. The session executes it and asks again, until there is nothing to do but
    /// wait. `capacity` shrinks by what each action takes.
    pub(super) fn next(&mut self, capacity: &mut Capacity) -> Action {
        self.out.bytes_max = capacity.bytes;
        self.merge_out(capacity.frames);
        if !self.out.frames.is_empty() {
            return Action::Send(self.take_out(capacity));
        }
        if std::mem::take(&mut capacity.may_read) {
            let reads = self.start_reads();
            if !reads.is_empty() {
                return Action::Read(reads);
            }
        }
        if capacity.may_start
            && let Some(action) = self.next_background()
        {
            capacity.may_start = false;
            return Action::Background(action);
        }
        let is_full = capacity.bytes == 0 || (capacity.frames == 0 && self.can_send());
        if is_full { Action::AwaitRoom } else { Action::Wait }
    }

    fn take_out(&mut self, capacity: &mut Capacity) -> VecDeque<Out> {
        let frames = std::mem::take(&mut self.out.frames);
        capacity.frames = capacity.frames.saturating_sub(frames.len());
        capacity.bytes = capacity.bytes.saturating_sub(self.out.bytes);
        // Hand-overs before the next turn have what is left.
        (self.out.bytes, self.out.bytes_max) = (0, capacity.bytes);
        frames
    }

    fn next_background(&mut self) -> Option<BackgroundAction> {
        if let Some(after) = self.rest_of_plan() {
            return Some(BackgroundAction::ContinuePlan(after));
        }
        if !self.overdue.is_empty() {
            return Some(BackgroundAction::ReportOverdue(std::mem::take(&mut self.overdue)));
        }
        self.next_for_rows()
    }

    /// Where the plan continues, once everything planned so far is drained. A conversation that
    /// cannot be read holds up no other.
    fn rest_of_plan(&self) -> Option<ConversationId> {
        let Drain { targets, rest, .. } = self.phase.drain()?;
        let rest = rest.as_ref()?;
        let is_parked = |id| self.lanes.get(id).is_some_and(Lane::is_parked);
        (!self.awaits_plan && targets.keys().all(is_parked)).then(|| rest.clone())
    }

    /// Takes the outcome of an action. Returns whether the next one should wait a moment, because
    /// this one failed.
    pub(super) fn done(&mut self, outcome: ActionOutcome) -> bool {
        let mut must_wait = false;
        match outcome {
            ActionOutcome::Read(reads) => {
                for (id, range) in reads {
                    if let Err(e) = &range {
                        tracing::warn!(error = %e, conversation = %id, "a read for delivery failed; retrying");
                    }
                    must_wait |= !self.read_done(&id, range.ok());
                }
            }
            ActionOutcome::PlanContinued(Ok(plan)) => self.continue_plan(plan),
            ActionOutcome::PlanContinued(Err(e)) => {
                tracing::warn!(error = %e, "the rest of the plan could not be read; retrying");
                must_wait = true;
            }
            ActionOutcome::OverdueReported(left) => {
                must_wait = !left.is_empty();
                self.overdue.extend(left);
            }
            ActionOutcome::RowsLookedUp(rows) => {
                for (id, row) in rows {
                    match row {
                        Ok(row) => self.row_found(&id, row),
                        Err(_) => {
                            must_wait = true;
                            self.rows.to_look_up.insert(id);
                        }
                    }
                }
            }
            ActionOutcome::RowsSettled(rows) => {
                for (id, settled) in rows {
                    must_wait |= settled.is_err();
                    self.row_settled(&id, settled.ok());
                }
            }
        }
        must_wait
    }

    // ---- what happens ----

    /// Takes a live message in any case: it is sent, or its lane remembers it.
    pub(super) fn hand_over(&mut self, message: &Arc<Message>, row_written: bool, origin: Option<SessionId>) {
        let id = &message.conversation_id;
        let seq = message.seq;
        let own = message.is_from(&self.user);
        let is_origin = origin == Some(self.session);
        let is_drained = !self.phase.is_live();
        let nothing_behind = self.nothing_behind();
        let has_room = (self.window.has_room() || own) && self.out.has_room(OUT_DIRECT_MAX);
        if row_written {
            self.rows.to_look_up.insert(id.clone());
        }
        let lane = match self.lanes.get_mut(id) {
            Some(lane) => lane,
            None => self.lanes.entry(id.clone()).or_default(),
        };
        if !own {
            lane.peer_head = lane.peer_head.max(seq);
        }
        if seq == 1 && lane.is_fresh() {
            // Nothing comes before the first message. Before any other something may be on its way
            // to this session, even before one that it sent itself.
            lane.begin_at(seq);
        }
        match lane.position {
            Position::Known { start, .. } if seq < start => {
                // A message of the peer's was acked by some device before this lane began. One of
                // the user's own may have been on its way for long. It needs no ack, and the device
                // puts it in its place.
                if own && !is_origin && has_room {
                    self.out.push(message.clone(), is_drained);
                }
            }
            Position::Known { next, .. } if seq < next => {}
            Position::Known { next, .. } if seq == next && nothing_behind && has_room => {
                lane.advance_to(seq + 1);
                lane.raise_head(seq);
                if !is_origin {
                    if !own {
                        lane.unacked.push(seq, self.now);
                        self.window.unacked += 1;
                    }
                    self.out.push(message.clone(), is_drained);
                }
                self.check_drained(id);
            }
            _ => {
                if is_origin {
                    lane.own.insert(seq);
                }
                lane.raise_head(seq);
                lane.begin_no_later_than(seq);
                self.fall_behind(id);
            }
        }
    }

    /// A pending row may have been written for this conversation.
    pub(super) fn wake(&mut self, id: ConversationId) {
        self.rows.to_look_up.insert(id);
    }

    /// The session registers and reads a plan: nothing goes out before that is here.
    pub(super) fn await_plan(&mut self) {
        self.awaits_plan = true;
    }

    /// There will be no plan: delivery continues with what is known.
    pub(super) fn continue_without_plan(&mut self) {
        self.awaits_plan = false;
    }

    /// Takes on a plan. The first one begins the drain.
    pub(super) fn plan(&mut self, plan: Plan, is_first: bool) {
        // Lanes that have not found their beginning yet still need the older one.
        self.since = if is_first { plan.since } else { self.since.min(plan.since) };
        self.awaits_plan = false;
        let targets = self.take_lanes(plan.lanes, is_first);
        if is_first {
            let ids: Vec<_> = targets.keys().cloned().collect();
            let caught_up = CaughtUp { cursor: plan.cursor, heads: plan.heads };
            self.phase.begin_drain(Drain { targets, caught_up, rest: plan.more });
            self.check_all_drained(ids);
        }
    }

    /// Takes on a further part of the first plan.
    fn continue_plan(&mut self, plan: Plan) {
        let further = self.take_lanes(plan.lanes, true);
        let ids: Vec<_> = further.keys().cloned().collect();
        if let Some(drain) = self.phase.drain_mut() {
            drain.rest = plan.more;
            drain.targets.extend(further);
        }
        self.check_all_drained(ids);
    }

    /// Takes on planned lanes. Returns the seqs that a drain must pass.
    fn take_lanes(&mut self, lanes: Vec<PlanLane>, drains: bool) -> BTreeMap<ConversationId, Seq> {
        let mut targets = BTreeMap::new();
        for planned in lanes {
            let id = planned.conversation_id;
            let lane = self.lanes.entry(id.clone()).or_default();
            lane.raise_heads(planned.last_seq);
            if let Position::Unknown { rows_only, .. } = &mut lane.position {
                *rows_only = !planned.resume && drains;
            }
            if drains {
                targets.insert(id.clone(), lane.head);
            }
            match planned.row {
                Some(_) => self.row_found(&id, planned.row),
                None => self.fall_behind(&id),
            }
        }
        targets
    }

    /// The device holds everything from where its lane began up to `seq`. Returns whether that
    /// freed part of the window.
    pub(super) fn acked(&mut self, id: &ConversationId, seq: Seq) -> bool {
        let Some(lane) = self.lanes.get_mut(id) else { return false };
        let sent_up_to = lane.next().unwrap_or(1).saturating_sub(1);
        let freed = lane.unacked.ack(seq, sent_up_to);
        self.window.unacked -= freed;
        if lane.row != RowState::None {
            self.rows.may_settle.insert(id.clone());
        }
        freed > 0
    }

    /// Finds messages that were sent at or before `at` and not acked: they count as not handed over
    /// (R14). Returns when the first of the others was sent, if there are any.
    pub(super) fn find_overdue(&mut self, at: Moment) -> Option<Moment> {
        if self.window.unacked == 0 {
            return None;
        }
        let mut next = None::<Moment>;
        for (id, lane) in &mut self.lanes {
            if let Some(first) = lane.unacked.report_overdue(at) {
                self.overdue.push(Debt {
                    conversation_id: id.clone(),
                    first_unacked: ReadFrom::Seq(first),
                    row: None,
                });
            }
            next = [next, lane.unacked.first_unreported()].into_iter().flatten().min();
        }
        next
    }

    /// Tries the parked lanes once more. A session that was idle since `idle_since` forgets its
    /// lanes.
    pub(super) fn heartbeat(&mut self, idle_since: Option<MessageId>) {
        self.unpark();
        if let Some(idle_since) = idle_since {
            self.forget_idle(idle_since);
        }
    }

    /// Forgets the lanes, if none of them has anything to do. A lane that begins anew is read from
    /// `idle_since` on.
    fn forget_idle(&mut self, idle_since: MessageId) {
        let is_idle = self.nothing_behind()
            && self.window.unacked == 0
            && self.rows.to_look_up.is_empty()
            && self.out.frames.is_empty();
        if is_idle && idle_since > self.since && self.lanes.values().all(Lane::is_idle) {
            self.since = idle_since;
            self.lanes.clear();
        }
    }

    /// Refuses hand-overs from now on. Returns what was taken and not acked (R5).
    pub(super) fn close(&mut self) -> Vec<Debt> {
        let is_live = self.phase.is_live();
        self.phase.close();
        let debt = |(id, lane): (&ConversationId, &Lane)| {
            let first_unacked = lane.first_unacked(self.since, is_live)?;
            Some(Debt { conversation_id: id.clone(), first_unacked, row: lane.row.seq() })
        };
        self.lanes.iter().filter_map(debt).collect()
    }

    // ---- what is known ----

    pub(super) fn is_of(&self, user: &UserId) -> bool {
        self.user == *user
    }

    pub(super) fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing)
    }

    /// How many sent messages are not acked.
    pub(super) fn unacked(&self) -> usize {
        self.window.unacked
    }

    /// Whether a conversation cannot be read and the session must end. After `caught_up` the
    /// device's cursor moves with its acks in other conversations, and must not pass the messages
    /// of this one. A new session delivers the others without a `caught_up`, and so without moving
    /// the cursor.
    pub(super) fn is_stuck(&self) -> bool {
        self.merge.is_stuck
    }

    /// The conversations that this session knows of.
    pub(super) fn conversations(&self) -> Vec<ConversationId> {
        self.lanes.keys().cloned().collect()
    }

    /// From where and how far the device has acked, for the session that resumes this one. What
    /// lies before may still arrive late.
    pub(super) fn acked_so_far(&self) -> BTreeMap<ConversationId, RangeInclusive<Seq>> {
        let mut acked = self.held.clone();
        for (id, lane) in &self.lanes {
            if let Position::Known { start, .. } = lane.position
                && start <= lane.unacked.acked()
            {
                let (mut first, mut last) = (start, lane.unacked.acked());
                if let Some(held) = self.held.get(id)
                    && first <= held.end() + 1
                    && *held.start() <= last + 1
                {
                    (first, last) = (first.min(*held.start()), last.max(*held.end()));
                }
                acked.insert(id.clone(), first..=last);
            }
        }
        while acked.len() > HELD_MAX {
            acked.pop_first();
        }
        acked
    }

    // ---- the end of the drain ----

    fn check_all_drained(&mut self, ids: Vec<ConversationId>) {
        for id in ids {
            self.check_drained(&id);
        }
        self.end_drain();
    }

    /// Notes whether a lane has passed its part of the drain. `caught_up` follows the last of them.
    fn check_drained(&mut self, id: &ConversationId) {
        let Some(drain) = self.phase.drain_mut() else { return };
        let next = self.lanes.get(id).and_then(Lane::next);
        if drain.targets.get(id).is_some_and(|&target| next.is_some_and(|next| next > target)) {
            drain.targets.remove(id);
        }
        self.end_drain();
    }

    fn end_drain(&mut self) {
        if let Some(caught_up) = self.phase.end_drain() {
            self.out.frames.push_back(Out::CaughtUp(caught_up));
        }
    }
}
