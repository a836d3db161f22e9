//! One conversation on this device: what it received, which receipts it has to write, and how far
//! both members are.

use std::collections::BTreeMap;

use bluetick_protocol::{Boundaries, MessageFrame, MessageId, Seq};

use super::repair::MissingRange;
use crate::{SavedConversation, SeenSeqs, Tick};

/// Messages held back at most while a gap before them is repaired. Further ones are dropped without an
/// ack, so the server delivers them again.
const HELD_MAX: usize = 1024;

/// How a message reached the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageSource {
    Stream,
    /// Read by a `history` request. It is not acked, because it says nothing about what the stream
    /// still has to deliver. If the server has it pending, the stream brings it as well.
    Repair,
}

#[derive(Debug, Default)]
pub(super) struct ConversationState {
    pub(super) kept: SavedConversation,
    /// Valid for the current connection only.
    session: SessionScope,
}

#[derive(Debug, Default)]
struct SessionScope {
    /// The highest message id that the stream brought: the cursor's value after the next ack.
    heard_id: MessageId,
    owes_ack: bool,
    read_written: Seq,
    /// Messages after a gap, by seq. They are neither shown nor acked until the gap is closed.
    held: BTreeMap<Seq, MessageFrame>,
    /// The seq up to which a repair is in progress.
    repairing: Option<Seq>,
}

impl ConversationState {
    pub(super) fn restore(kept: SavedConversation) -> Self {
        ConversationState { kept, session: SessionScope::default() }
    }

    pub(super) fn disconnected(&mut self) {
        self.session = SessionScope::default();
    }

    /// The received seqs. A conversation that is new to the device expects nothing up to `before`.
    pub(super) fn seen_since(&mut self, before: Seq) -> &mut SeenSeqs {
        let seen = self.kept.seen.get_or_insert_default();
        seen.found(before);
        seen
    }

    /// The server has stored a message of one's own. If it is the conversation's first and was stored
    /// just now, everything after it is still to come. A repeated first message does not say that.
    pub(super) fn own_sent(&mut self, seq: Seq, id: MessageId, duplicate: bool) {
        let seen = self.kept.seen.get_or_insert_default();
        if seq == 1 && !duplicate {
            seen.found(0);
        }
        seen.insert(seq);
        self.note_own(seq, id);
    }

    pub(super) fn settled(&self) -> Seq {
        self.kept.seen.as_ref().map_or(0, SeenSeqs::settled)
    }

    /// Takes a message with no gap before it. Returns whether it is new.
    pub(super) fn take(&mut self, message: &MessageFrame, own: bool, source: MessageSource) -> bool {
        let fresh = self.seen_since(message.seq.saturating_sub(1)).insert(message.seq);
        if own {
            self.note_own(message.seq, message.message_id);
        } else if source == MessageSource::Stream {
            // The ack is safe: the stream begins with the first message that no device has, and
            // everything before this one is settled.
            self.kept.heard = self.kept.heard.max(message.seq);
            self.session.heard_id = self.session.heard_id.max(message.message_id);
            self.session.owes_ack = true;
        }
        fresh
    }

    pub(super) fn note_own(&mut self, seq: Seq, id: MessageId) {
        self.kept.last_own = self.kept.last_own.max(Some((seq, id)));
    }

    /// The ack to write now, and the cursor's value after it.
    pub(super) fn take_ack(&mut self) -> Option<(Seq, MessageId)> {
        if !std::mem::take(&mut self.session.owes_ack) {
            return None;
        }
        Some((self.kept.heard, self.session.heard_id))
    }

    /// Schedules the last ack once more if the server has not confirmed it by `ticks`.
    pub(super) fn ack_again(&mut self) -> bool {
        let lost = self.kept.heard > self.kept.own.last_delivered_seq;
        self.session.owes_ack |= lost;
        lost
    }

    // ---- receipts ----

    pub(super) fn read(&mut self, seq: Seq) {
        self.kept.read = self.kept.read.max(seq);
    }

    pub(super) fn owes_read(&self) -> bool {
        self.kept.read > self.kept.own.last_read_seq.max(self.session.read_written)
    }

    /// The read to write now.
    pub(super) fn take_read(&mut self) -> Option<Seq> {
        if !self.owes_read() {
            return None;
        }
        self.session.read_written = self.kept.read;
        Some(self.kept.read)
    }

    /// The server has the read, which implies the ack.
    pub(super) fn read_confirmed(&mut self, seq: Seq) {
        merge(&mut self.kept.own, &Boundaries { last_delivered_seq: 0, last_read_seq: seq });
    }

    /// The read was refused temporarily and has to be written again.
    pub(super) fn read_lost(&mut self) {
        self.session.read_written = 0;
    }

    /// The read was refused for good.
    pub(super) fn read_refused(&mut self) {
        self.kept.read = self.kept.own.last_read_seq;
    }

    pub(super) fn merge_own(&mut self, theirs: &Boundaries) -> bool {
        merge(&mut self.kept.own, theirs)
    }

    pub(super) fn merge_peer(&mut self, theirs: &Boundaries) -> bool {
        merge(&mut self.kept.peer, theirs)
    }

    pub(super) fn tick_of(&self, seq: Seq) -> Tick {
        if seq <= self.kept.peer.last_read_seq {
            Tick::Blue
        } else if seq <= self.kept.peer.last_delivered_seq {
            Tick::Double
        } else {
            Tick::Single
        }
    }

    /// The newest own message, if its tick may have changed while the device was offline.
    pub(super) fn unfinished_tick(&self) -> Option<MessageId> {
        self.kept.last_own.filter(|(seq, _)| self.tick_of(*seq) != Tick::Blue).map(|(_, id)| id)
    }

    // ---- gaps ----

    /// Holds back a message that came after a gap.
    pub(super) fn hold(&mut self, message: MessageFrame) {
        if self.session.held.len() < HELD_MAX {
            self.session.held.insert(message.seq, message);
        }
    }

    /// The next held message that has no gap before it any more.
    pub(super) fn next_held(&mut self) -> Option<MessageFrame> {
        let first = self.session.held.first_entry()?;
        let ready = self.kept.seen.as_ref().is_none_or(|seen| !seen.lacks_before(*first.key()));
        ready.then(|| first.remove())
    }

    /// Begins a repair up to `seq`, or extends the one in progress. Returns whether it is new.
    pub(super) fn begin_repair(&mut self, seq: Seq) -> bool {
        let upto = self.session.repairing.map_or(seq, |upto| upto.max(seq));
        self.session.repairing.replace(upto).is_none()
    }

    pub(super) fn missing(&self) -> MissingRange {
        let after = self.settled();
        MissingRange { after, upto: self.session.repairing.unwrap_or(after) }
    }

    pub(super) fn is_repaired(&self) -> bool {
        self.session.held.is_empty() && self.session.repairing.is_none_or(|upto| self.settled() >= upto)
    }

    pub(super) fn end_repair(&mut self) {
        self.session.repairing = None;
    }

    /// Gives up on the gap before the next held message. Returns false if none is held.
    pub(super) fn settle_to_next_held(&mut self) -> bool {
        let Some((&seq, _)) = self.session.held.first_key_value() else {
            return false;
        };
        self.seen_since(0).settle(seq.saturating_sub(1));
        true
    }
}

fn merge(ours: &mut Boundaries, theirs: &Boundaries) -> bool {
    let read = ours.last_read_seq.max(theirs.last_read_seq);
    // Read implies delivered, in whatever order the two numbers come.
    let delivered = ours.last_delivered_seq.max(theirs.last_delivered_seq).max(read);
    let grew = read > ours.last_read_seq || delivered > ours.last_delivered_seq;
    *ours = Boundaries { last_delivered_seq: delivered, last_read_seq: read };
    grew
}
