//! Gaps: a seq that should have come and did not is asked for as history, and what came after it waits.
//!
//! The server delivers each conversation in seq order, so a gap is rare: a void, a message withheld, or a fault.
//! While one is open, the messages behind it are neither told nor acked, and the cursor stands still; should the
//! connection end before the answer, all of it comes again.

use std::collections::BTreeSet;

use bluetick_protocol::{
    ClientFrame, ConversationId, HistoryPage, HistoryQuery, MessageFrame, Ref, Seq, WireError, limits,
};

use super::{Asked, ClientState, conversation::Source};

/// Histories asked for at the same time: a device that lacks much must not crowd out its own acks.
const IN_FLIGHT_MAX: usize = 4;
/// The wait after a refusal that names none.
const RETRY_MS: u64 = 2_000;

/// What a repair asks for. Other frames may bring a part of it before the answer comes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Missing {
    pub(super) after: Seq,
    pub(super) upto: Seq,
}

#[derive(Debug, Default)]
pub(super) struct Repairs {
    /// Every conversation with a gap that is being closed.
    open: BTreeSet<ConversationId>,
    /// Those of them whose next page is not asked for yet.
    waiting: BTreeSet<ConversationId>,
    in_flight: usize,
    /// After a refusal nothing is asked until the retry timer fires.
    paused: bool,
}

impl Repairs {
    pub(super) fn are_done(&self) -> bool {
        self.open.is_empty()
    }
}

impl ClientState {
    /// A message came whose predecessors did not.
    pub(super) fn hold_behind_gap(&mut self, message: MessageFrame) {
        let (id, before) = (message.conversation_id.clone(), message.seq.saturating_sub(1));
        self.conversation(&id).hold(message);
        self.repair_up_to(id, before);
    }

    /// Asks for everything up to `seq` that is not here; once, however often it is noticed.
    pub(super) fn repair_up_to(&mut self, id: ConversationId, seq: Seq) {
        if self.conversation(&id).begin_repair(seq) {
            self.repairs.open.insert(id.clone());
            self.repairs.waiting.insert(id);
            self.ask_for_repairs();
        }
    }

    pub(super) fn resume_repairs(&mut self) {
        self.repairs.paused = false;
        self.ask_for_repairs();
    }

    fn ask_for_repairs(&mut self) {
        while !self.repairs.paused && self.repairs.in_flight < IN_FLIGHT_MAX {
            let Some(id) = self.repairs.waiting.pop_first() else {
                return;
            };
            self.repairs.in_flight += 1;
            let number = self.next_ref();
            let missing = self.conversation(&id).missing();
            self.asked.insert(number, Asked::Repair(id.clone(), missing));
            let query = HistoryQuery {
                reference: Some(Ref::Number(number)),
                after_seq: Some(missing.after),
                conversation_id: id,
                before_seq: None,
                limit: Some(limits::HISTORY_MAX_LIMIT),
            };
            self.frames.push_back(ClientFrame::History(query));
        }
    }

    /// The answer to a repair. The page begins where the device's knowledge ended, so whatever it leaves out up to
    /// its end is void.
    pub(super) fn repaired(
        &mut self,
        id: ConversationId,
        asked: Missing,
        answer: Result<HistoryPage, WireError>,
    ) {
        self.repairs.in_flight = self.repairs.in_flight.saturating_sub(1);
        match answer {
            Ok(page) => self.take_repair_page(&id, asked, page),
            Err(error) if error.code.is_retryable() => {
                self.repairs.paused = true;
                self.repairs.waiting.insert(id);
                self.retry_later(error.retry_after_ms.unwrap_or(RETRY_MS));
            }
            Err(_) => self.give_up_repair(&id),
        }
        self.ask_for_repairs();
        self.settle_cursor();
    }

    fn take_repair_page(&mut self, id: &ConversationId, asked: Missing, page: HistoryPage) {
        let upto = self.conversation(id).missing().upto;
        for message in page.messages {
            if message.conversation_id == *id {
                self.conversation(id).seen_since(0).settle(message.seq.saturating_sub(1));
                self.take(message, Source::Repair);
            }
        }
        self.conversation(id).seen_since(0).settle(page.to_seq.min(upto));
        self.release_held(id);

        let conversation = self.conversation(id);
        let more_to_read = page.next.is_some() && conversation.settled() > asked.after;
        if conversation.is_repaired() {
            self.close_repair(id);
        } else if more_to_read || upto > asked.upto {
            self.repairs.waiting.insert(id.clone());
        } else {
            // The history ends before the gap does: there is nothing to wait for.
            self.give_up_repair(id);
        }
    }

    /// Takes what waited behind a gap that has closed.
    pub(super) fn release_held(&mut self, id: &ConversationId) {
        while let Some(message) = self.conversation(id).next_held() {
            self.take(message, Source::Stream);
        }
    }

    /// Goes on without what is missing; should it come after all, it is still new.
    fn give_up_repair(&mut self, id: &ConversationId) {
        let upto = self.conversation(id).missing().upto;
        while self.conversation(id).settle_to_next_held() {
            self.release_held(id);
        }
        self.conversation(id).seen_since(0).settle(upto);
        self.close_repair(id);
    }

    fn close_repair(&mut self, id: &ConversationId) {
        self.conversation(id).end_repair();
        self.repairs.open.remove(id);
        self.repairs.waiting.remove(id);
    }
}
