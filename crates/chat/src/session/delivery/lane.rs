//! A lane: the stream of one conversation to the device.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use bluetick_protocol::{MessageId, Seq};
use bluetick_store::Message;

use super::Moment;
use crate::ReadFrom;

#[derive(Debug, Default)]
pub(super) struct Lane {
    pub position: Position,
    /// The highest seq known to exist.
    pub head: Seq,
    /// The highest seq that may be the peer's.
    pub peer_head: Seq,
    pub merge: MergeState,
    pub read_ahead: ReadAhead,
    pub row: RowState,
    pub unacked: Unacked,
    /// Messages that were sent in this very session: its client has them.
    pub own: BTreeSet<Seq>,
    /// Reads in a row that failed.
    pub failures: u32,
}

/// How far the lane has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    /// The first read will find where the lane begins.
    Unknown {
        /// The lowest seq known to be undelivered.
        at_most: Option<Seq>,
        /// A device without a cursor gets the messages of the pending row and those that no device
        /// has acked, and nothing older.
        rows_only: bool,
    },
    /// Everything from `start` up to `next` was sent in this session, or is not to be sent.
    Known { start: Seq, next: Seq },
}

impl Default for Position {
    fn default() -> Self {
        Position::Unknown { at_most: None, rows_only: false }
    }
}

/// Where the lane stands in the merge of all lanes that are behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum MergeState {
    /// Not in it: the lane has nothing to send.
    #[default]
    Idle,
    /// Its next messages must be read before the merge goes on.
    ToRead,
    Reading,
    /// Its next message has this id.
    Front(MessageId),
    /// It cannot be read, and holds up no other lane. Only `caught_up` waits for it.
    Parked,
}

/// The pending row that this session is responsible for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum RowState {
    #[default]
    None,
    Held(Seq),
    /// Its removal was started (R4).
    Removing(Seq),
    /// Its removal failed without an answer. It may be gone, and then later messages have no row.
    InDoubt(Seq),
}

impl RowState {
    pub(super) fn seq(self) -> Option<Seq> {
        match self {
            RowState::None => None,
            RowState::Held(seq) | RowState::Removing(seq) | RowState::InDoubt(seq) => Some(seq),
        }
    }

    /// The row has this value.
    pub(super) fn found(&mut self, row: Seq) {
        *self = match self {
            RowState::None | RowState::Held(_) => RowState::Held(row),
            RowState::Removing(_) => RowState::Removing(row),
            RowState::InDoubt(_) => RowState::InDoubt(row),
        };
    }

    /// Starts the removal, unless there is no row or its removal is in progress. Returns the value
    /// it must still have.
    pub(super) fn begin_removal(&mut self) -> Option<Seq> {
        match *self {
            RowState::Held(seq) | RowState::InDoubt(seq) => {
                *self = RowState::Removing(seq);
                Some(seq)
            }
            RowState::None | RowState::Removing(_) => None,
        }
    }

    pub(super) fn removal_failed(&mut self) {
        if let Some(seq) = self.seq() {
            *self = RowState::InDoubt(seq);
        }
    }

    /// Whether messages after the row may have been stored without a row of their own.
    fn may_be_gone(self) -> bool {
        matches!(self, RowState::Removing(_) | RowState::InDoubt(_))
    }
}

/// Messages read and not yet sent, from the lane's next seq on.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    pub messages: VecDeque<Arc<Message>>,
    /// The seq after the last one that was read. It may lie beyond the messages: some seqs are
    /// void.
    pub covered: Seq,
}

impl ReadAhead {
    pub(super) fn weight(&self) -> usize {
        self.messages.iter().map(|m| m.weight()).sum()
    }

    /// The seq that follows a message just taken from the front.
    pub(super) fn next_after(&self, seq: Seq) -> Seq {
        if self.messages.is_empty() { self.covered.max(seq + 1) } else { seq + 1 }
    }

    /// Keeps what fits the lane's share of the memory that is left, and one message if that fits at
    /// all. The lane that is next in order keeps one in any case: without it nothing goes out.
    pub(super) fn cut(&mut self, left: usize, share: usize, is_next: bool) {
        let keeps_one = is_next || self.messages.front().is_some_and(|m| m.weight() <= left);
        let mut bytes = 0;
        let fitting = self.messages.iter().take_while(|m| {
            bytes += m.weight();
            bytes <= left.min(share)
        });
        let kept = fitting.count().max(usize::from(keeps_one));
        if kept < self.messages.len() {
            self.messages.truncate(kept);
            self.covered = self.messages.back().map_or(self.covered, |m| m.seq + 1);
        }
    }
}

/// Messages sent and not acked.
#[derive(Debug, Default)]
pub(super) struct Unacked {
    /// Each with the time when it was sent.
    sent: VecDeque<(Seq, Moment)>,
    /// The device holds everything from the lane's start up to here.
    acked: Seq,
    /// Messages up to here were reported as overdue (R14).
    reported: Seq,
}

impl Unacked {
    pub(super) fn push(&mut self, seq: Seq, now: Moment) {
        self.sent.push_back((seq, now));
    }

    pub(super) fn first(&self) -> Option<Seq> {
        self.sent.front().map(|&(seq, _)| seq)
    }

    pub(super) fn acked(&self) -> Seq {
        self.acked
    }

    /// The client acked up to `seq`, of which `sent_up_to` was sent. Returns how many messages that
    /// frees.
    pub(super) fn ack(&mut self, seq: Seq, sent_up_to: Seq) -> usize {
        self.acked = self.acked.max(seq.min(sent_up_to));
        let before = self.sent.len();
        while self.sent.pop_front_if(|(first, _)| *first <= seq).is_some() {}
        before - self.sent.len()
    }

    /// The first unacked message, if one that was sent at or before `at` has not been reported as
    /// overdue. Such messages count as reported from now on.
    pub(super) fn report_overdue(&mut self, at: Moment) -> Option<Seq> {
        let &(last, _) = self.sent.iter().take_while(|(_, sent)| *sent <= at).last()?;
        if last <= self.reported {
            return None;
        }
        self.reported = last;
        self.first()
    }

    /// When the first message was sent that is not reported as overdue.
    pub(super) fn first_unreported(&self) -> Option<Moment> {
        self.sent.iter().find(|(seq, _)| *seq > self.reported).map(|&(_, sent)| sent)
    }
}

impl Lane {
    /// The next seq to send, once the first read has found where to begin.
    pub(super) fn next(&self) -> Option<Seq> {
        match self.position {
            Position::Unknown { .. } => None,
            Position::Known { next, .. } => Some(next),
        }
    }

    /// Whether nothing at all is known of the conversation.
    pub(super) fn is_fresh(&self) -> bool {
        matches!(self.position, Position::Unknown { at_most: None, .. }) && self.head == 0
    }

    pub(super) fn begin_at(&mut self, seq: Seq) {
        self.position = Position::Known { start: seq, next: seq };
    }

    /// Everything before `next` was sent, or is not to be sent.
    pub(super) fn advance_to(&mut self, seq: Seq) {
        if let Position::Known { next, .. } = &mut self.position {
            *next = seq;
        }
    }

    /// The message `seq` is undelivered: where the lane's beginning is not known, it begins there
    /// at the latest.
    pub(super) fn begin_no_later_than(&mut self, seq: Seq) {
        if let Position::Unknown { at_most, .. } = &mut self.position {
            *at_most = Some(at_most.map_or(seq, |known| known.min(seq)));
        }
    }

    pub(super) fn raise_head(&mut self, seq: Seq) {
        self.head = self.head.max(seq);
    }

    /// As `raise_head`, of a message that may be the peer's.
    pub(super) fn raise_heads(&mut self, seq: Seq) {
        self.raise_head(seq);
        self.peer_head = self.peer_head.max(seq);
    }

    /// Whether there is something to send.
    pub(super) fn is_behind(&self) -> bool {
        self.next().is_none_or(|next| next <= self.head)
    }

    pub(super) fn is_parked(&self) -> bool {
        self.merge == MergeState::Parked
    }

    /// Whether everything drained for the pending row is sent and acked, so that the row can go
    /// (R4).
    pub(super) fn has_settled(&self) -> bool {
        self.unacked.first().is_none() && !self.is_behind()
    }

    /// Whether the lane can be forgotten, if nothing is unacked.
    pub(super) fn is_idle(&self) -> bool {
        self.row == RowState::None && !self.is_parked() && !self.is_behind()
    }

    pub(super) fn reads_from(&self, since: MessageId) -> ReadFrom {
        match self.position {
            Position::Known { next, .. } => ReadFrom::Seq(next),
            Position::Unknown { at_most, rows_only } => {
                let since = if rows_only { MessageId::MAX } else { since };
                ReadFrom::Since { since, at_most: at_most.unwrap_or(Seq::MAX) }
            }
        }
    }

    /// Where the first message lies that the session took on and that is not acked, when the
    /// session ends (R5).
    pub(super) fn first_unacked(&self, since: MessageId, is_live: bool) -> Option<ReadFrom> {
        match self.position {
            Position::Known { next, .. } => {
                let unsent = Some(next).filter(|&next| next <= self.peer_head || self.row.may_be_gone());
                [self.unacked.first(), unsent].into_iter().flatten().min().map(ReadFrom::Seq)
            }
            Position::Unknown { .. } if is_live => {
                Some(self.reads_from(since)).filter(|_| self.peer_head > 0)
            }
            // A device that has not caught up asks for the rest itself, by the cursor that it
            // connected with.
            Position::Unknown { at_most, .. } => {
                at_most.filter(|&first| first <= self.peer_head).map(ReadFrom::Seq)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_whose_removal_has_no_answer_stays_in_doubt_until_one_comes() {
        let mut row = RowState::None;
        assert_eq!(row.begin_removal(), None);
        row.found(3);
        assert_eq!(row.begin_removal(), Some(3));
        assert_eq!(row.begin_removal(), None, "one at a time");
        row.found(5);
        assert_eq!(row, RowState::Removing(5), "a row found meanwhile does not end the removal");
        row.removal_failed();
        assert_eq!(row, RowState::InDoubt(5));
        row.found(4);
        assert_eq!(row, RowState::InDoubt(4));
        assert_eq!(row.begin_removal(), Some(4));
        assert!(row.may_be_gone());
    }

    #[test]
    fn a_closing_session_owes_what_is_unsent_if_its_row_may_be_gone() {
        let mut lane = Lane::default();
        lane.begin_at(1);
        lane.raise_heads(2);
        lane.advance_to(3);
        assert_eq!(lane.first_unacked(MessageId(0), true), None, "everything is sent and acked");
        lane.row.found(1);
        assert_eq!(lane.first_unacked(MessageId(0), true), None);
        lane.row.begin_removal();
        assert_eq!(lane.first_unacked(MessageId(0), true), Some(ReadFrom::Seq(3)));
        lane.unacked.push(2, 0);
        assert_eq!(lane.first_unacked(MessageId(0), true), Some(ReadFrom::Seq(2)));
    }

    #[test]
    fn overdue_messages_are_reported_once() {
        let mut unacked = Unacked::default();
        [(1, 10), (2, 20), (3, 30)].into_iter().for_each(|(seq, sent)| unacked.push(seq, sent));
        assert_eq!(unacked.report_overdue(9), None);
        assert_eq!(unacked.report_overdue(20), Some(1));
        assert_eq!(unacked.report_overdue(20), None);
        assert_eq!(unacked.first_unreported(), Some(30));
        assert_eq!(unacked.ack(2, 3), 2);
        assert_eq!(unacked.report_overdue(30), Some(3));
        assert_eq!(unacked.first_unreported(), None);
        assert_eq!((unacked.ack(9, 3), unacked.acked()), (1, 3), "no more was sent than this");
    }
}
