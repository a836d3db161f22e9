//! What a session still owes its device: one lane a conversation, merged into one stream (R7).
//!
//! A lane knows the next seq to send and the highest that is known to exist. A lane with something to send is
//! *behind*; while any is, what goes out next is the message with the lowest message_id among the fronts of all of
//! them. Live delivery is the same thing with nothing behind: a message whose seq is the next one goes straight out,
//! any other makes its lane be read. The window of unacked messages is the only queue (R13): beyond it a lane just
//! remembers that there is more.
//!
//! Pure state: no I/O and no clock, so that every order of events can be tested.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::RangeInclusive,
    sync::Arc,
};

use bluetick_protocol::{CaughtUp, ConversationId, MessageId, Seq, SessionId, UserId, limits};
use bluetick_store::Message;

use crate::{Debt, MessageRange, Plan, PlanLane, ReadFrom};

/// Messages read ahead of their turn are kept up to this size; of the rest only the place is remembered. Reads that are
/// made at once ask for no more together, and each for one message at least.
const READ_AHEAD_BYTES: usize = 256 * 1024;
/// Most messages one read of a lane asks for.
const READ_MESSAGES: usize = 64;
/// Failed reads after which a lane no longer holds up the others.
const FAILURES_MAX: u32 = 6;
/// And after which a session that has caught up ends, because it cannot go on without it.
const FAILURES_LIVE_MAX: u32 = 40;
/// Conversations remembered for a device that may come back.
const HELD_MAX: usize = 64;
/// Live messages that may go out between two turns of the session's loop without being read again.
const OUT_DIRECT_MAX: usize = 64;
/// Most lanes read at once.
const READS_AT_ONCE: usize = 16;

/// Tenths of a second in the life of a session.
pub(super) type Moment = u32;

#[derive(Debug, Clone)]
pub(crate) enum Out {
    Message(Arc<Message>),
    CaughtUp(CaughtUp),
}

#[derive(Debug, Default)]
struct Lane {
    /// Everything from here to `next` has been sent in this session, or is not to be sent.
    start: Seq,
    /// The next seq to send; `None` until the first read has found where to begin.
    next: Option<Seq>,
    /// The lowest seq known to be owed, where `next` is not known.
    at_most: Option<Seq>,
    /// The highest seq known to exist, and the highest that may be the peer's.
    head: Seq,
    peer_head: Seq,
    /// Messages read and not sent, from `next` on, and the seq after the last one that was looked at.
    buffer: VecDeque<Arc<Message>>,
    covered: Seq,
    /// Where this lane stands in the merge.
    front: Option<MessageId>,
    reading: bool,
    /// The pending row this session has taken on.
    row: Option<Seq>,
    /// A device without a cursor is owed what the row says, or what no device has acked, and nothing else of before.
    rows_only: bool,
    settling: bool,
    /// The row was to be removed and nobody said whether it was: it may be gone, and what came after it has no other.
    row_in_doubt: bool,
    /// What was sent and not acked, and when.
    unacked: VecDeque<(Seq, Moment)>,
    /// Up to here it was told that acks are overdue (R14).
    told_overdue: Seq,
    /// Sent by this very session, which knows them.
    own: BTreeSet<Seq>,
    acked: Seq,
    /// Reads in a row that failed; too many park the lane.
    failures: u32,
    parked: bool,
}

impl Lane {
    fn reads_from(&self, since: MessageId) -> ReadFrom {
        let since = if self.rows_only { MessageId::MAX } else { since };
        let beginning = ReadFrom::Since { since, at_most: self.at_most.unwrap_or(Seq::MAX) };
        self.next.map_or(beginning, ReadFrom::Seq)
    }

    fn is_behind(&self) -> bool {
        self.next.is_none_or(|next| next <= self.head)
    }

    /// Notes that a message goes out. Returns how much of the window it takes: what the user wrote needs no ack.
    fn goes_out(&mut self, seq: Seq, own: bool, now: Moment) -> usize {
        if !own {
            self.unacked.push_back((seq, now));
        }
        usize::from(!own)
    }

    /// Keeps of the buffer what fits its share of the memory that is left, and one message if that fits at all. The
    /// next in order keeps one whatever is left: without it nothing goes on.
    fn cut(&mut self, left: usize, share: usize, is_next: bool) {
        let keeps_one = is_next || self.buffer.front().is_some_and(|m| m.weight() <= left);
        let mut bytes = 0;
        let fitting = self.buffer.iter().take_while(|m| {
            bytes += m.weight();
            bytes <= left.min(share)
        });
        let kept = fitting.count().max(usize::from(keeps_one));
        if kept < self.buffer.len() {
            self.buffer.truncate(kept);
            self.covered = self.buffer.back().map_or(self.covered, |m| m.seq + 1);
        }
    }
}

pub(crate) struct Delivery {
    user: UserId,
    session: SessionId,
    window: usize,
    unacked: usize,
    /// When it is, as far as the session has said.
    pub(super) now: Moment,
    lanes: BTreeMap<ConversationId, Lane>,
    /// Lanes that are behind: to be read, and with a known front.
    unread: BTreeSet<ConversationId>,
    fronts: BTreeSet<(MessageId, ConversationId)>,
    reading: usize,
    read_ahead_bytes: usize,
    /// Lanes whose pending row must be looked up.
    rows_unknown: BTreeSet<ConversationId>,
    since: MessageId,
    /// What the device acked in the session that it resumes: it need not be sent again.
    held: BTreeMap<ConversationId, RangeInclusive<Seq>>,
    planned: bool,
    /// Lanes that must pass a seq before `caught_up`.
    drain: Option<(BTreeMap<ConversationId, Seq>, CaughtUp)>,
    /// The plan goes on behind this conversation, when what was planned so far is drained.
    more: Option<ConversationId>,
    pub(super) out: VecDeque<Out>,
    /// Encoded bytes of `out`, and how many there may be (R13). Without room a live message is read again later.
    out_bytes: usize,
    room_bytes: usize,
    /// Lanes whose pending row may have become ready to be settled.
    may_settle: BTreeSet<ConversationId>,
    /// The drain is over: the device's cursor moves with its acks.
    caught_up: bool,
    stuck: bool,
}

/// A read that the session is to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Read {
    pub conversation_id: ConversationId,
    pub from: ReadFrom,
    pub max_messages: usize,
    pub max_bytes: usize,
}

impl Delivery {
    pub(super) fn new(user: UserId, session: SessionId, window: usize) -> Self {
        Delivery {
            held: BTreeMap::new(),
            user,
            session,
            window: window.max(1),
            unacked: 0,
            now: 0,
            lanes: BTreeMap::new(),
            unread: BTreeSet::new(),
            fronts: BTreeSet::new(),
            reading: 0,
            read_ahead_bytes: 0,
            rows_unknown: BTreeSet::new(),
            since: MessageId::default(),
            planned: false,
            drain: None,
            more: None,
            out: VecDeque::new(),
            out_bytes: 0,
            room_bytes: limits::OUTBOUND_HIGH_WATER_BYTES,
            may_settle: BTreeSet::new(),
            caught_up: false,
            stuck: false,
        }
    }

    pub(super) fn is_of(&self, user: &UserId) -> bool {
        self.user == *user
    }

    /// What the device is known to have.
    pub(super) fn resume(&mut self, held: BTreeMap<ConversationId, RangeInclusive<Seq>>) {
        self.held = held;
    }

    /// From where and how far the device has acked, for when it comes back. What lies before may yet come late.
    pub(super) fn acked_so_far(&self) -> BTreeMap<ConversationId, RangeInclusive<Seq>> {
        let mut acked = self.held.clone();
        for (id, lane) in &self.lanes {
            if lane.start <= lane.acked {
                let (mut first, mut last) = (lane.start, lane.acked);
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

    pub(super) fn unacked(&self) -> usize {
        self.unacked
    }

    /// Whether a conversation cannot be read, and the device's cursor must not pass it: what came after it in other
    /// conversations would move the cursor. A device that begins anew gets those, and no `caught_up`.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// The conversations that this session is about.
    pub(super) fn conversations(&self) -> Vec<ConversationId> {
        self.lanes.keys().cloned().collect()
    }

    fn has_room(&self) -> bool {
        self.unacked < self.window
    }

    fn nothing_behind(&self) -> bool {
        self.planned && self.unread.is_empty() && self.fronts.is_empty() && self.reading == 0
    }

    /// A live message. It is taken in any case: sent, or remembered.
    pub(super) fn hand_over(&mut self, message: &Arc<Message>, row_written: bool, origin: Option<SessionId>) {
        let id = &message.conversation_id;
        let seq = message.seq;
        let own = message.is_from(&self.user);
        let is_origin = origin == Some(self.session);
        let nothing_behind = self.nothing_behind();
        let has_room =
            (self.has_room() || own) && self.out_bytes < self.room_bytes && self.out.len() < OUT_DIRECT_MAX;
        if row_written {
            self.rows_unknown.insert(id.clone());
        }
        let now = self.now;
        let lane = match self.lanes.get_mut(id) {
            Some(lane) => lane,
            None => self.lanes.entry(id.clone()).or_default(),
        };
        if !own {
            lane.peer_head = lane.peer_head.max(seq);
        }
        let fresh = lane.next.is_none() && lane.at_most.is_none() && lane.head == 0;
        if fresh && seq == 1 {
            // Nothing comes before the first message. Before any other something may be on its way to this session,
            // even before one that it sent itself.
            (lane.start, lane.next, lane.covered) = (seq, Some(seq), seq);
        }
        match lane.next {
            Some(_) if seq < lane.start => {
                // One of the peer's was acked by some device before this lane began. An own one may have been on its
                // way for long; it needs no ack, and the device puts it where it belongs.
                if own && !is_origin && has_room {
                    self.out_bytes += message.encoded_bytes_at_most();
                    self.out.push_back(Out::Message(message.clone()));
                }
            }
            Some(next) if seq < next => {}
            Some(next)
                if seq == next && lane.buffer.is_empty() && !lane.reading && nothing_behind && has_room =>
            {
                (lane.next, lane.covered) = (Some(seq + 1), seq + 1);
                lane.head = lane.head.max(seq);
                if !is_origin {
                    self.unacked += lane.goes_out(seq, own, now);
                    self.out_bytes += message.encoded_bytes_at_most();
                    self.out.push_back(Out::Message(message.clone()));
                }
                self.check_drained(id);
            }
            _ => {
                if is_origin {
                    lane.own.insert(seq);
                }
                lane.head = lane.head.max(seq);
                if lane.next.is_none() {
                    lane.at_most = Some(lane.at_most.map_or(seq, |known| known.min(seq)));
                }
                self.fall_behind(id);
            }
        }
    }

    /// A pending row may have been written for this conversation: it must be looked up.
    pub(super) fn wake(&mut self, id: ConversationId) {
        self.rows_unknown.insert(id);
    }

    /// A plan is being made: nothing goes out before it is there.
    pub(super) fn await_plan(&mut self) {
        self.planned = false;
    }

    /// The plan is not made after all: what was known before goes on.
    pub(super) fn go_on(&mut self) {
        self.planned = true;
    }

    /// Takes on what a connecting, or re-registered, session must deliver. `drain` asks for a `caught_up` at its end.
    pub(super) fn plan(&mut self, plan: Plan, drain: bool) {
        // Lanes that have not found their beginning yet still need the older one.
        self.since = if drain { plan.since } else { self.since.min(plan.since) };
        self.planned = true;
        let targets = self.take_lanes(plan.lanes, drain);
        if drain {
            let ids: Vec<_> = targets.keys().cloned().collect();
            self.drain = Some((targets, CaughtUp { cursor: plan.cursor, heads: plan.heads }));
            self.more = plan.more;
            self.check_all_drained(ids);
        }
    }

    /// Where the plan goes on, once all that was planned so far is drained.
    pub(super) fn wants_more(&self) -> Option<&ConversationId> {
        // A conversation that cannot be read holds up no other.
        let is_parked = |id: &ConversationId| self.lanes.get(id).is_some_and(|lane| lane.parked);
        let is_drained =
            |(targets, _): &(BTreeMap<ConversationId, Seq>, CaughtUp)| targets.keys().all(is_parked);
        self.more.as_ref().filter(|_| self.planned && self.drain.as_ref().is_some_and(is_drained))
    }

    /// Takes on a further part of the plan.
    pub(super) fn plan_more(&mut self, plan: Plan) {
        let further = self.take_lanes(plan.lanes, true);
        self.more = plan.more;
        let ids: Vec<_> = further.keys().cloned().collect();
        if let Some((targets, _)) = &mut self.drain {
            targets.extend(further);
        }
        self.check_all_drained(ids);
    }

    fn check_all_drained(&mut self, ids: Vec<ConversationId>) {
        for id in ids {
            self.check_drained(&id);
        }
        self.drain_may_be_empty();
    }

    /// Takes on planned lanes. Returns the seqs that a drain must pass.
    fn take_lanes(&mut self, lanes: Vec<PlanLane>, drain: bool) -> BTreeMap<ConversationId, Seq> {
        let mut targets = BTreeMap::new();
        for planned in lanes {
            let id = planned.conversation_id;
            let lane = self.lanes.entry(id.clone()).or_default();
            lane.head = lane.head.max(planned.last_seq);
            lane.peer_head = lane.peer_head.max(planned.last_seq);
            if lane.next.is_none() {
                lane.rows_only = !planned.resume && drain;
                lane.at_most = [lane.at_most, planned.row].into_iter().flatten().min();
            }
            if drain {
                targets.insert(id.clone(), lane.head);
            }
            self.fall_behind(&id);
            if planned.row.is_some() {
                self.row_found(&id, planned.row);
            }
        }
        targets
    }

    /// Whether there may be something to read.
    pub(super) fn wants_reads(&self) -> bool {
        self.planned && self.has_room() && (!self.unread.is_empty() || !self.fronts.is_empty())
    }

    /// Whether there are rows to look up or to settle.
    pub(super) fn wants_rows(&self) -> bool {
        !self.rows_unknown.is_empty() || !self.may_settle.is_empty()
    }

    /// The reads to make now: every lane that is behind must show its front before the merge goes on.
    pub(super) fn reads(&mut self) -> Vec<Read> {
        if !self.planned || !self.has_room() {
            return Vec::new();
        }
        if self.unread.is_empty() && self.reading == 0 {
            // The next in order may have lost its buffer for want of room: read it again.
            let next = self.fronts.first().map(|(_, id)| id.clone());
            if let Some(id) = next.filter(|id| self.lanes.get(id).is_some_and(|lane| lane.buffer.is_empty()))
            {
                self.leave_merge(&id);
                self.unread.insert(id);
            }
        }
        let behind = self.unread.len() + self.fronts.len();
        let max_messages = (READ_MESSAGES * 4 / behind.max(1)).clamp(1, READ_MESSAGES);
        let at_once = self.unread.len().clamp(1, READS_AT_ONCE.saturating_sub(self.reading).max(1));
        let max_bytes = READ_AHEAD_BYTES / at_once;
        let mut reads = Vec::new();
        while self.reading < READS_AT_ONCE
            && let Some(id) = self.unread.pop_first()
        {
            let Some(lane) = self.lanes.get_mut(&id) else {
                continue;
            };
            lane.reading = true;
            self.reading += 1;
            let from = lane.reads_from(self.since);
            reads.push(Read { conversation_id: id, from, max_messages, max_bytes });
        }
        reads
    }

    /// A read came back. Returns whether it brought the lane on; if not, the next read should wait a moment.
    pub(super) fn read_done(&mut self, id: &ConversationId, range: Option<MessageRange>) -> bool {
        self.reading = self.reading.saturating_sub(1);
        let Some(lane) = self.lanes.get_mut(id) else {
            return true;
        };
        lane.reading = false;
        let Some(range) = range else {
            lane.failures += 1;
            if !self.caught_up && lane.failures >= FAILURES_MAX {
                self.park(id);
            } else {
                self.stuck |= lane.failures >= FAILURES_LIVE_MAX;
                self.unread.insert(id.clone());
            }
            return false;
        };
        lane.failures = 0;
        let next = match lane.next {
            // What came is not what is wanted now.
            Some(next) if next != range.first_seq => {
                self.fall_behind(id);
                return true;
            }
            Some(next) => next,
            // Something older became known while this was read: begin there.
            None if lane.at_most.is_some_and(|known| known < range.first_seq) => {
                self.fall_behind(id);
                return true;
            }
            None => {
                lane.start = range.first_seq;
                range.first_seq
            }
        };
        lane.head = lane.head.max(range.last_seq);
        lane.covered = range.next_seq.max(next);
        lane.buffer = range.messages.into();
        lane.next = Some(if lane.buffer.is_empty() { lane.covered } else { next });
        let progress = range.next_seq > next || !lane.is_behind();
        lane.front = lane.buffer.front().map(|m| m.message_id);
        match lane.front {
            Some(front) => {
                let others = self.fronts.len() + self.unread.len() + self.reading;
                if others > 0 {
                    let left = READ_AHEAD_BYTES.saturating_sub(self.read_ahead_bytes);
                    let is_next = self.fronts.first().is_none_or(|(other, _)| front < *other);
                    lane.cut(left, READ_AHEAD_BYTES / (others + 1), is_next);
                }
                self.read_ahead_bytes += lane.buffer.iter().map(|m| m.weight()).sum::<usize>();
                self.fronts.insert((front, id.clone()));
            }
            None => self.fall_behind(id),
        }
        self.check_drained(id);
        progress
    }

    /// Sets how many encoded bytes may go out, what is on its way out already included.
    pub(super) fn set_room(&mut self, bytes: usize) {
        self.room_bytes = bytes;
    }

    /// Whether nothing more may go out before the session's loop has written something.
    pub(super) fn is_out_of_room(&self) -> bool {
        self.out_bytes >= self.room_bytes
    }

    /// What goes out now. What is handed over until the room is set again has what is left of it.
    pub(super) fn take_out(&mut self) -> VecDeque<Out> {
        self.room_bytes = self.room_bytes.saturating_sub(self.out_bytes);
        self.out_bytes = 0;
        std::mem::take(&mut self.out)
    }

    /// Sends what may be sent, lowest message_id first. Returns when the window or the socket's queue is full, a read is
    /// needed, or nothing is left.
    pub(super) fn pump(&mut self, max_out: usize) {
        let can_send = |d: &Self| d.planned && d.has_room() && d.unread.is_empty() && d.reading == 0;
        while can_send(self) && self.out.len() < max_out && self.out_bytes < self.room_bytes {
            let Some((_, id)) = self.fronts.first().cloned() else {
                break;
            };
            let Some(lane) = self.lanes.get_mut(&id).filter(|lane| !lane.buffer.is_empty()) else {
                break;
            };
            self.fronts.pop_first();
            // What this lane has goes out for as long as nothing of another comes before it, and not past where `caught_up` belongs.
            let other = self.fronts.first().map(|(front, _)| *front);
            let target = self.drain.as_ref().and_then(|(targets, _)| targets.get(&id).copied());
            let held = self.held.get(&id);
            while self.unacked < self.window
                && self.out.len() < max_out
                && self.out_bytes < self.room_bytes
                && let Some(message) =
                    lane.buffer.pop_front_if(|m| other.is_none_or(|other| m.message_id <= other))
            {
                self.read_ahead_bytes = self.read_ahead_bytes.saturating_sub(message.weight());
                let seq = message.seq;
                let next = if lane.buffer.is_empty() { lane.covered.max(seq + 1) } else { seq + 1 };
                lane.next = Some(next);
                let known = lane.own.remove(&seq);
                if !known && !held.is_some_and(|acked| acked.contains(&seq)) {
                    self.unacked += lane.goes_out(seq, message.is_from(&self.user), self.now);
                    self.out_bytes += message.encoded_bytes_at_most();
                    self.out.push_back(Out::Message(message));
                }
                if target.is_some_and(|target| next > target) {
                    break;
                }
            }
            lane.front = lane.buffer.front().map(|m| m.message_id);
            match lane.front {
                Some(front) => {
                    self.fronts.insert((front, id.clone()));
                }
                None => self.fall_behind(&id),
            }
            self.check_drained(&id);
        }
    }

    /// The device holds everything from where its lane began up to here. Returns whether that freed something of the
    /// window.
    pub(super) fn acked(&mut self, id: &ConversationId, seq: Seq) -> bool {
        let before = self.unacked;
        if let Some(lane) = self.lanes.get_mut(id) {
            lane.acked = lane.acked.max(seq.min(lane.next.unwrap_or(1).saturating_sub(1)));
            while lane.unacked.front().is_some_and(|&(first, _)| first <= seq) {
                lane.unacked.pop_front();
                self.unacked -= 1;
            }
            if lane.row.is_some() {
                self.may_settle.insert(id.clone());
            }
        }
        self.unacked < before
    }

    /// What was sent at or before a moment and is not acked, each message once: it counts as not handed over (R14). And the
    /// next moment of which this is to be asked, if something is left.
    pub(super) fn overdue(&mut self, at: Moment) -> (Vec<Debt>, Option<Moment>) {
        let (mut overdue, mut next) = (Vec::new(), None::<Moment>);
        if self.unacked == 0 {
            return (overdue, next);
        }
        for (id, lane) in &mut self.lanes {
            let late = lane.unacked.iter().take_while(|(_, sent)| *sent <= at).last();
            if let (Some(&(last, _)), Some(&(first, _))) = (late, lane.unacked.front())
                && last > lane.told_overdue
            {
                lane.told_overdue = last;
                overdue.push(Debt {
                    conversation_id: id.clone(),
                    first_unacked: ReadFrom::Seq(first),
                    row: None,
                });
            }
            let left = lane.unacked.iter().find(|(seq, _)| *seq > lane.told_overdue);
            next = [next, left.map(|&(_, sent)| sent)].into_iter().flatten().min();
        }
        (overdue, next)
    }

    /// Rows that can be settled: all that was drained for them is sent and acked (R4).
    pub(super) fn next_to_settle(&mut self) -> Option<(ConversationId, Seq)> {
        while let Some(id) = self.may_settle.pop_first() {
            let Some(lane) = self.lanes.get_mut(&id) else { continue };
            let done = !lane.settling && lane.unacked.is_empty() && !lane.is_behind();
            if let Some(row) = lane.row.filter(|_| done) {
                lane.settling = true;
                return Some((id, row));
            }
        }
        None
    }

    /// A row was settled, or could not be. `last_seq` was read afterwards: what lies beyond is still to be sent.
    pub(super) fn settled(&mut self, id: &ConversationId, outcome: Option<(Option<Seq>, Seq)>) {
        let Some(lane) = self.lanes.get_mut(id) else {
            return;
        };
        lane.settling = false;
        lane.row_in_doubt = outcome.is_none();
        let Some((row, last_seq)) = outcome else {
            self.may_settle.insert(id.clone());
            return;
        };
        lane.row = None;
        if last_seq > lane.head {
            lane.head = last_seq;
            lane.peer_head = lane.peer_head.max(last_seq);
        }
        self.fall_behind(id);
        if row.is_some() {
            self.row_found(id, row);
        }
    }

    pub(super) fn row_to_look_up(&mut self) -> Option<ConversationId> {
        self.rows_unknown.pop_first()
    }

    /// A pending row was looked up: this session takes it on.
    pub(super) fn row_found(&mut self, id: &ConversationId, row: Option<Seq>) {
        let Some(row) = row else { return };
        let lane = self.lanes.entry(id.clone()).or_default();
        lane.row = Some(row);
        lane.head = lane.head.max(row);
        lane.peer_head = lane.peer_head.max(row);
        if lane.next.is_none() {
            lane.at_most = Some(lane.at_most.map_or(row, |known| known.min(row)));
        }
        self.fall_behind(id);
    }

    /// Puts a lane into the merge if it has something to send and is not in it.
    fn fall_behind(&mut self, id: &ConversationId) {
        let Some(lane) = self.lanes.get(id) else { return };
        if !lane.is_behind() {
            if lane.row.is_some() {
                self.may_settle.insert(id.clone());
            }
        } else if lane.front.is_none() && !lane.reading && !lane.parked {
            self.unread.insert(id.clone());
        }
    }

    /// Takes a lane that cannot be read out of the merge, so that it holds up no other conversation; only
    /// `caught_up` waits for it. What it owes is written down when the session ends.
    fn park(&mut self, id: &ConversationId) {
        tracing::error!(conversation = %id, "a conversation cannot be read; delivering the others without it");
        metrics::counter!("bluetick_unreadable_conversations_total").increment(1);
        if let Some(lane) = self.lanes.get_mut(id) {
            lane.parked = true;
        }
    }

    /// Tries the parked lanes once more.
    pub(super) fn unpark(&mut self) {
        let parked = self.lanes.iter_mut().filter(|(_, lane)| lane.parked);
        let ids: Vec<_> = parked
            .map(|(id, lane)| {
                lane.parked = false;
                lane.failures = FAILURES_MAX - 1;
                id.clone()
            })
            .collect();
        for id in ids {
            self.fall_behind(&id);
        }
    }

    fn leave_merge(&mut self, id: &ConversationId) {
        if let Some(front) = self.lanes.get_mut(id).and_then(|lane| lane.front.take()) {
            self.fronts.remove(&(front, id.clone()));
        }
    }

    /// Whether a lane has passed its part of the drain; `caught_up` follows the last of them.
    fn check_drained(&mut self, id: &ConversationId) {
        let Some((targets, _)) = &mut self.drain else {
            return;
        };
        let passed = |lane: &Lane, target: Seq| lane.next.is_some_and(|next| next > target);
        if let (Some(&target), Some(lane)) = (targets.get(id), self.lanes.get(id))
            && passed(lane, target)
        {
            targets.remove(id);
        }
        self.drain_may_be_empty();
    }

    fn drain_may_be_empty(&mut self) {
        if self.more.is_some() {
            return;
        }
        if let Some((_, caught_up)) = self.drain.take_if(|(targets, _)| targets.is_empty()) {
            self.caught_up = true;
            self.out.push_back(Out::CaughtUp(caught_up));
        }
    }

    /// Lets go of lanes with nothing in them, if nothing at all is under way: what happens in them later begins with
    /// a read from `since`, which moves up to `quiet`.
    pub(super) fn forget_idle(&mut self, quiet: MessageId) {
        if self.nothing_behind() && self.unacked == 0 && self.rows_unknown.is_empty() && self.out.is_empty() {
            let idle =
                |lane: &Lane| lane.row.is_none() && !lane.settling && !lane.parked && !lane.is_behind();
            if self.lanes.values().all(idle) && quiet > self.since {
                self.since = quiet;
                self.lanes.clear();
            }
        }
    }

    /// What was taken and not acked, when the session ends (R5).
    pub(super) fn debts(&self) -> Vec<Debt> {
        let debt = |(id, lane): (&ConversationId, &Lane)| {
            let first_unacked = match lane.next {
                Some(next) => {
                    // A row that is being removed, or may have been, may have had more to it than was read.
                    let unread = lane.settling || lane.row_in_doubt;
                    let unsent = Some(next).filter(|&next| next <= lane.peer_head || unread);
                    let unacked = lane.unacked.front().map(|&(seq, _)| seq);
                    ReadFrom::Seq([unacked, unsent].into_iter().flatten().min()?)
                }
                // A device that has not caught up asks for the rest itself, by the cursor that it came with.
                None if !self.caught_up => {
                    ReadFrom::Seq(lane.at_most.filter(|&first| first <= lane.peer_head)?)
                }
                None => Some(lane.reads_from(self.since)).filter(|_| lane.peer_head > 0)?,
            };
            Some(Debt { conversation_id: id.clone(), first_unacked, row: lane.row })
        };
        self.lanes.iter().filter_map(debt).collect()
    }
}

#[cfg(test)]
mod tests;
