//! One conversation: its messages, and what each member's row shows of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeBounds,
    sync::Arc,
};

use bluetick_protocol::{ClientMsgId, Seq, Side};

use crate::{ColdRun, Message, PageLimit};

#[derive(Default)]
pub(super) struct MemoryConversation {
    pub messages: BTreeMap<Seq, Arc<Message>>,
    /// The last seq that was handed out. It may lag behind the messages or be ahead of them.
    pub counter: Seq,
    /// The idempotency records, by sending side and client_msg_id (R9).
    pub sent: BTreeMap<(usize, ClientMsgId), SentRecord>,
    /// The voids that closed a hole: nobody wrote them, so no row shows them.
    pub closed_holes: BTreeSet<Seq>,
    /// The last seq when a member was erased: their row shows only what came after.
    pub erased_up_to: [Seq; 2],
    /// The cold runs, by last seq.
    pub cold_runs: BTreeMap<Seq, ColdRun>,
    /// The seqs whose hot row was dropped. The model keeps the messages, to derive rows from them.
    pub dropped: BTreeSet<Seq>,
}

pub(super) struct SentRecord {
    pub seq: Seq,
    pub at_ms: u64,
}

impl MemoryConversation {
    pub fn last_seq(&self) -> Seq {
        self.messages.last_key_value().map_or(0, |(&seq, _)| seq)
    }

    /// The messages that have a hot row.
    pub fn hot(&self, range: impl RangeBounds<Seq>) -> impl DoubleEndedIterator<Item = &Arc<Message>> {
        self.messages.range(range).filter(|(seq, _)| !self.dropped.contains(seq)).map(|(_, message)| message)
    }

    /// The last seq that is in a run.
    pub fn cold_border(&self) -> Seq {
        self.cold_runs.last_key_value().map_or(0, |(&seq, _)| seq)
    }

    /// The next seq, fenced by the stored messages: a counter that fell back is raised (R8).
    pub fn next_seq(&mut self) -> Seq {
        self.counter = self.counter.max(self.last_seq()) + 1;
        self.counter
    }

    /// The original of a send that was made within the window.
    pub fn original(
        &self,
        from: Side,
        id: &ClientMsgId,
        now_ms: u64,
        window_ms: u64,
    ) -> Option<&Arc<Message>> {
        let record = self.sent.get(&(from.index(), id.clone()))?;
        let forgotten = now_ms.saturating_sub(record.at_ms) >= window_ms;
        if forgotten { None } else { self.messages.get(&record.seq) }
    }

    /// The message that a member's `conversations` row shows, or `None` while they have no row: the
    /// last one that reached them, if any of those is more than a void. The last one may itself
    /// have been erased.
    pub fn shown_to(&self, side: Side) -> Option<&Arc<Message>> {
        let since_erasure = self.messages.range(self.erased_up_to[side.index()] + 1..);
        let mut reached = since_erasure
            .map(|(_, message)| message)
            .filter(|m| !self.closed_holes.contains(&m.seq))
            .filter(|m| !m.withheld || m.from == side)
            .rev();
        let last = reached.next()?;
        (!last.void || reached.any(|m| !m.void)).then_some(last)
    }

    /// R11 literally: the messages from the other side after the read boundary, without void and
    /// withheld ones.
    pub fn unread_of(&self, side: Side, last_read_seq: Seq) -> u64 {
        let after = self.messages.range(last_read_seq.saturating_add(1)..);
        after.filter(|(_, m)| m.from == side.other() && !m.void && !m.withheld).count() as u64
    }

    /// Whether the other member has written something that this one may see, since this one was
    /// erased.
    pub fn has_written_to(&self, side: Side) -> bool {
        let since_erasure = self.messages.range(self.erased_up_to[side.index()] + 1..);
        since_erasure.map(|(_, m)| m).any(|m| m.from == side.other() && !m.void && !m.withheld)
    }

    /// Whether a member is still part of it: something is left that was not erased with them.
    pub fn concerns(&self, side: Side) -> bool {
        self.messages.range(self.erased_up_to[side.index()] + 1..).any(|(_, m)| !m.void)
    }

    /// Voids what a member wrote, and hides it from their row. Returns how many messages became
    /// void.
    pub fn erase(&mut self, side: Side) -> u64 {
        let mut erased = 0;
        for message in self.messages.values_mut().filter(|m| m.from == side && !m.void) {
            *message = Arc::new(message.voided());
            // The cold tier erases cold messages.
            erased += u64::from(!self.dropped.contains(&message.seq));
        }
        self.erased_up_to[side.index()] = self.last_seq();
        erased
    }
}

/// Takes messages up to a limit, but always the first: a message larger than a page must not stop a
/// reader.
pub(super) fn page<'a>(
    messages: impl Iterator<Item = &'a Arc<Message>>,
    limit: PageLimit,
) -> Vec<Arc<Message>> {
    let mut taken: Vec<Arc<Message>> = Vec::new();
    let mut bytes = 0;
    for message in messages {
        bytes += message.content_bytes();
        let full = taken.len() >= limit.messages || bytes > limit.bytes;
        if full && !taken.is_empty() {
            break;
        }
        taken.push(message.clone());
    }
    taken
}
