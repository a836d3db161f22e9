//! One conversation as the device knows it: what it received, what it owes the server, and how far both sides are.

use std::collections::BTreeMap;

use bluetick_protocol::{Boundaries, MessageFrame, MessageId, Seq};

use super::repair::Missing;
use crate::{SavedConversation, Seen, Tick};

/// Messages kept while a gap before them is repaired. Those beyond it are dropped unacked and come again.
const HELD_MAX: usize = 1024;

/// How a message reached the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Stream,
    /// Fetched past the stream: it says nothing about what the stream has still to bring, so it is not acked. If the
    /// server owes it, it comes by the stream as well.
    Repair,
}

#[derive(Debug, Default)]
pub(super) struct Conversation {
    pub(super) kept: SavedConversation,
    /// Belongs to the connection that is up now, and begins anew with the next.
    session: Session,
}

#[derive(Debug, Default)]
struct Session {
    /// The highest id that the stream brought: how far the cursor may go with the next ack.
    heard_id: MessageId,
    owes_ack: bool,
    read_written: Seq,
    /// Came after a gap: neither told to the application nor acked until the gap is closed.
    held: BTreeMap<Seq, MessageFrame>,
    /// The seq up to which a repair is under way.
    repairing: Option<Seq>,
}

impl Conversation {
    pub(super) fn restore(kept: SavedConversation) -> Self {
        Conversation { kept, session: Session::default() }
    }

    pub(super) fn disconnected(&mut self) {
        self.session = Session::default();
    }

    /// What was received here; a conversation not heard of before expects nothing up to `before`.
    pub(super) fn seen_since(&mut self, before: Seq) -> &mut Seen {
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
        self.kept.seen.as_ref().map_or(0, Seen::settled)
    }

    /// Takes a message with nothing missing before it; whether it is new.
    pub(super) fn take(&mut self, message: &MessageFrame, own: bool, source: Source) -> bool {
        let fresh = self.seen_since(message.seq.saturating_sub(1)).insert(message.seq);
        if own {
            self.note_own(message.seq, message.message_id);
        } else if source == Source::Stream {
            // Acking it is right, because the server begins a stream with the first message that nobody has, and all
            // before this one is settled.
            self.kept.heard = self.kept.heard.max(message.seq);
            self.session.heard_id = self.session.heard_id.max(message.message_id);
            self.session.owes_ack = true;
        }
        fresh
    }

    pub(super) fn note_own(&mut self, seq: Seq, id: MessageId) {
        self.kept.last_own = self.kept.last_own.max(Some((seq, id)));
    }

    /// The ack to write now, and the message_id to which it moves the cursor.
    pub(super) fn take_ack(&mut self) -> Option<(Seq, MessageId)> {
        if !std::mem::take(&mut self.session.owes_ack) {
            return None;
        }
        Some((self.kept.heard, self.session.heard_id))
    }

    /// Whether the server has not said that it has the last ack.
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

    /// The read did not arrive and shall be written again.
    pub(super) fn read_lost(&mut self) {
        self.session.read_written = 0;
    }

    /// The server will not take this read, now or later.
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

    /// The newest own message, if its tick may have changed while nobody was listening.
    pub(super) fn unfinished_tick(&self) -> Option<MessageId> {
        self.kept.last_own.filter(|(seq, _)| self.tick_of(*seq) != Tick::Blue).map(|(_, id)| id)
    }

    // ---- gaps ----

    /// Keeps a message that came after a gap.
    pub(super) fn hold(&mut self, message: MessageFrame) {
        if self.session.held.len() < HELD_MAX {
            self.session.held.insert(message.seq, message);
        }
    }

    /// The next held message that no longer waits for anything.
    pub(super) fn next_held(&mut self) -> Option<MessageFrame> {
        let first = self.session.held.first_entry()?;
        let ready = self.kept.seen.as_ref().is_none_or(|seen| !seen.lacks_before(*first.key()));
        ready.then(|| first.remove())
    }

    /// Waits for history up to `seq`; false if a repair was under way already.
    pub(super) fn begin_repair(&mut self, seq: Seq) -> bool {
        let upto = self.session.repairing.map_or(seq, |upto| upto.max(seq));
        self.session.repairing.replace(upto).is_none()
    }

    pub(super) fn missing(&self) -> Missing {
        let after = self.settled();
        Missing { after, upto: self.session.repairing.unwrap_or(after) }
    }

    pub(super) fn is_repaired(&self) -> bool {
        self.session.held.is_empty() && self.session.repairing.is_none_or(|upto| self.settled() >= upto)
    }

    pub(super) fn end_repair(&mut self) {
        self.session.repairing = None;
    }

    /// Gives up on the gap before the next held message; false if none is held.
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
    // Read implies delivered, whatever order the two numbers come in.
    let delivered = ours.last_delivered_seq.max(theirs.last_delivered_seq).max(read);
    let grew = read > ours.last_read_seq || delivered > ours.last_delivered_seq;
    *ours = Boundaries { last_delivered_seq: delivered, last_read_seq: read };
    grew
}
