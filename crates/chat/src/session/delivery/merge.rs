//! The merge: lanes that are behind are read, and their messages go out in the order of message ids
//! (R7).

use std::collections::BTreeSet;

use bluetick_protocol::{ConversationId, MessageId};

use super::{Delivery, LaneRead, MergeState, Position, RowState};
use crate::MessageRange;

/// Messages read ahead of their turn are kept up to this size; of the rest only the place is
/// remembered. Reads that are made at once ask for no more together, and each for one message at
/// least.
pub(super) const READ_AHEAD_BYTES: usize = 256 * 1024;
/// Most messages one read of a lane asks for.
const READ_MESSAGES: usize = 64;
/// Most lanes read at once.
pub(super) const READS_AT_ONCE: usize = 16;
/// Failed reads in a row after which a lane no longer holds up the others.
pub(super) const FAILURES_MAX: u32 = 6;
/// Failed reads in a row after which a session that has caught up ends: it cannot go on without the
/// lane.
const FAILURES_LIVE_MAX: u32 = 40;

/// The lanes that are behind, by their [`MergeState`].
#[derive(Debug, Default)]
pub(super) struct Merge {
    to_read: BTreeSet<ConversationId>,
    /// How many lanes are being read.
    reading: usize,
    /// The next message of each lane that was read.
    fronts: BTreeSet<(MessageId, ConversationId)>,
    /// The size of the messages read ahead.
    read_ahead_bytes: usize,
    /// A lane of a live session has failed too often.
    pub is_stuck: bool,
}

impl Merge {
    /// Whether every lane that is behind shows its front, so that the lowest of them is the next in
    /// order.
    fn is_complete(&self) -> bool {
        self.to_read.is_empty() && self.reading == 0
    }
}

impl Delivery {
    pub(super) fn nothing_behind(&self) -> bool {
        !self.awaits_plan && self.merge.is_complete() && self.merge.fronts.is_empty()
    }

    fn may_merge(&self) -> bool {
        !self.awaits_plan && self.window.has_room() && self.merge.is_complete()
    }

    /// Whether the next message in order could go out, but for the room in the socket's queue.
    pub(super) fn can_send(&self) -> bool {
        self.may_merge() && !self.merge.fronts.is_empty()
    }

    /// The reads to make now: every lane that is behind must show its front before the merge goes
    /// on.
    pub(super) fn start_reads(&mut self) -> Vec<LaneRead> {
        if self.awaits_plan || !self.window.has_room() {
            return Vec::new();
        }
        if self.merge.is_complete() {
            self.read_next_again_if_cut();
        }
        let merge = &mut self.merge;
        let behind = merge.to_read.len() + merge.fronts.len();
        let max_messages = (READ_MESSAGES * 4 / behind.max(1)).clamp(1, READ_MESSAGES);
        let at_once = merge.to_read.len().clamp(1, READS_AT_ONCE.saturating_sub(merge.reading).max(1));
        let max_bytes = READ_AHEAD_BYTES / at_once;
        let mut reads = Vec::new();
        while merge.reading < READS_AT_ONCE
            && let Some(id) = merge.to_read.pop_first()
        {
            let Some(lane) = self.lanes.get_mut(&id) else { continue };
            lane.merge = MergeState::Reading;
            merge.reading += 1;
            let from = lane.reads_from(self.since);
            reads.push(LaneRead { conversation_id: id, from, max_messages, max_bytes });
        }
        reads
    }

    /// The lane that is next in order may have no messages: there was no room for them when they
    /// were read.
    fn read_next_again_if_cut(&mut self) {
        let Some((front, id)) = self.merge.fronts.first() else { return };
        if let Some(lane) = self.lanes.get_mut(id).filter(|lane| lane.read_ahead.messages.is_empty()) {
            let (front, id) = (*front, id.clone());
            lane.merge = MergeState::ToRead;
            self.merge.fronts.remove(&(front, id.clone()));
            self.merge.to_read.insert(id);
        }
    }

    /// Takes what a read found. Returns whether it brought the lane on; if not, the next read
    /// should wait a moment.
    pub(super) fn read_done(&mut self, id: &ConversationId, range: Option<MessageRange>) -> bool {
        self.merge.reading = self.merge.reading.saturating_sub(1);
        let Some(lane) = self.lanes.get_mut(id) else { return true };
        lane.merge = MergeState::Idle;
        let Some(range) = range else {
            self.read_failed(id);
            return false;
        };
        lane.failures = 0;
        let next = match lane.position {
            Position::Known { next, .. } if next == range.first_seq => next,
            Position::Unknown { at_most, .. } if at_most.is_none_or(|known| known >= range.first_seq) => {
                lane.begin_at(range.first_seq);
                range.first_seq
            }
            // The lane has moved, or something older became known, while this was read.
            _ => {
                self.fall_behind(id);
                return true;
            }
        };
        lane.raise_head(range.last_seq);
        lane.read_ahead.covered = range.next_seq.max(next);
        lane.read_ahead.messages = range.messages.into();
        let Some(front) = lane.read_ahead.messages.front().map(|m| m.message_id) else {
            lane.advance_to(lane.read_ahead.covered);
            let progress = range.next_seq > next || !lane.is_behind();
            self.fall_behind(id);
            self.check_drained(id);
            return progress;
        };
        let progress = range.next_seq > next || !lane.is_behind();
        let merge = &mut self.merge;
        let others = merge.fronts.len() + merge.to_read.len() + merge.reading;
        if others > 0 {
            let left = READ_AHEAD_BYTES.saturating_sub(merge.read_ahead_bytes);
            let is_next = merge.fronts.first().is_none_or(|(other, _)| front < *other);
            lane.read_ahead.cut(left, READ_AHEAD_BYTES / (others + 1), is_next);
        }
        merge.read_ahead_bytes += lane.read_ahead.weight();
        lane.merge = MergeState::Front(front);
        merge.fronts.insert((front, id.clone()));
        self.check_drained(id);
        progress
    }

    fn read_failed(&mut self, id: &ConversationId) {
        let Some(lane) = self.lanes.get_mut(id) else { return };
        lane.failures += 1;
        if !self.phase.is_live() && lane.failures >= FAILURES_MAX {
            tracing::error!(conversation = %id, "a conversation cannot be read; delivering the others without it");
            metrics::counter!("bluetick_unreadable_conversations_total").increment(1);
            // What it owes is written down when the session ends (R5).
            lane.merge = MergeState::Parked;
        } else {
            self.merge.is_stuck |= lane.failures >= FAILURES_LIVE_MAX;
            lane.merge = MergeState::ToRead;
            self.merge.to_read.insert(id.clone());
        }
    }

    /// Tries the parked lanes once more.
    pub(super) fn unpark(&mut self) {
        let parked = self.lanes.iter_mut().filter(|(_, lane)| lane.is_parked());
        let ids: Vec<_> = parked
            .map(|(id, lane)| {
                lane.merge = MergeState::Idle;
                lane.failures = FAILURES_MAX - 1;
                id.clone()
            })
            .collect();
        for id in ids {
            self.fall_behind(&id);
        }
    }

    /// Puts a lane into the merge, if it has something to send and is not in it.
    pub(super) fn fall_behind(&mut self, id: &ConversationId) {
        let Some(lane) = self.lanes.get_mut(id) else { return };
        if !lane.is_behind() {
            if lane.row != RowState::None {
                self.rows.may_settle.insert(id.clone());
            }
        } else if lane.merge == MergeState::Idle {
            lane.merge = MergeState::ToRead;
            self.merge.to_read.insert(id.clone());
        }
    }

    /// Moves messages out, lowest message_id first, until the window or the room of `frames_max` is
    /// full, a read is needed, or nothing is left.
    pub(super) fn merge_out(&mut self, frames_max: usize) {
        while self.may_merge() && self.out.has_room(frames_max) {
            let Some((_, id)) = self.merge.fronts.first().cloned() else { break };
            let Some(lane) = self.lanes.get_mut(&id).filter(|lane| !lane.read_ahead.messages.is_empty())
            else {
                break;
            };
            self.merge.fronts.pop_first();
            // The lane's messages go out while no other lane has an earlier one, and not past where
            // `caught_up` belongs.
            let other = self.merge.fronts.first().map(|(front, _)| *front);
            let target = self.phase.drain().and_then(|drain| drain.targets.get(&id).copied());
            let held = self.held.get(&id);
            let is_drained = !self.phase.is_live();
            while self.window.has_room()
                && self.out.has_room(frames_max)
                && let Some(message) =
                    lane.read_ahead.messages.pop_front_if(|m| other.is_none_or(|other| m.message_id <= other))
            {
                let bytes = self.merge.read_ahead_bytes;
                self.merge.read_ahead_bytes = bytes.saturating_sub(message.weight());
                let seq = message.seq;
                let next = lane.read_ahead.next_after(seq);
                lane.advance_to(next);
                let is_known = lane.own.remove(&seq);
                if !is_known && !held.is_some_and(|acked| acked.contains(&seq)) {
                    // The user's own messages need no ack.
                    if !message.is_from(&self.user) {
                        lane.unacked.push(seq, self.now);
                        self.window.unacked += 1;
                    }
                    self.out.push(message, is_drained);
                }
                if target.is_some_and(|target| next > target) {
                    break;
                }
            }
            match lane.read_ahead.messages.front().map(|m| m.message_id) {
                Some(front) => {
                    lane.merge = MergeState::Front(front);
                    self.merge.fronts.insert((front, id.clone()));
                }
                None => {
                    lane.merge = MergeState::Idle;
                    self.fall_behind(&id);
                }
            }
            self.check_drained(&id);
        }
    }
}
