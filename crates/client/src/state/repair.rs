//! Gaps: a skipped seq is requested by `history`, and the messages after it are held back.
//!
//! The server delivers each conversation in seq order, so a gap is rare: a void seq, a withheld
//! message, or a fault. While a gap is open, the messages behind it are neither shown nor acked, and
//! the cursor does not move. If the connection ends first, the server delivers all of them again.

use std::collections::BTreeSet;

use bluetick_protocol::{
    ClientFrame, ConversationId, HistoryPage, HistoryQuery, MessageFrame, Ref, Seq, WireError, limits,
};

use super::{ClientState, PendingRequest, conversation::MessageSource};

/// Repair requests in flight at most, so that a device with many gaps does not delay its own acks.
const IN_FLIGHT_MAX: usize = 4;
/// The delay after a refusal without `retry_after_ms`.
const RETRY_MS: u64 = 2_000;

/// The range that a repair requests. Other frames may bring a part of it before the page comes.
#[derive(Debug, Clone, Copy)]
pub(super) struct MissingRange {
    pub(super) after: Seq,
    pub(super) upto: Seq,
}

#[derive(Debug, Default)]
pub(super) struct Repairs {
    /// Every conversation with an open gap.
    open: BTreeSet<ConversationId>,
    /// Those of them whose next page is not requested yet.
    waiting: BTreeSet<ConversationId>,
    in_flight: usize,
    /// After a refusal, nothing is requested until the retry timer fires.
    paused: bool,
}

impl Repairs {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

impl ClientState {
    /// Holds back a message whose predecessors are missing.
    pub(super) fn hold_behind_gap(&mut self, message: MessageFrame) {
        let (id, before) = (message.conversation_id.clone(), message.seq.saturating_sub(1));
        self.conversation(&id).hold(message);
        self.repair_up_to(id, before);
    }

    /// Requests what is missing up to `seq`, once per gap.
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
            self.pending_requests.insert(number, PendingRequest::Repair(id.clone(), missing));
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

    /// The response to a repair. The page begins after the last settled seq, so every seq that it
    /// covers without a message is void.
    pub(super) fn repaired(
        &mut self,
        id: ConversationId,
        asked: MissingRange,
        response: Result<HistoryPage, WireError>,
    ) {
        self.repairs.in_flight = self.repairs.in_flight.saturating_sub(1);
        match response {
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

    fn take_repair_page(&mut self, id: &ConversationId, asked: MissingRange, page: HistoryPage) {
        let upto = self.conversation(id).missing().upto;
        for message in page.messages {
            if message.conversation_id == *id {
                self.conversation(id).seen_since(0).settle(message.seq.saturating_sub(1));
                self.take(message, MessageSource::Repair);
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
            // The history ends before the gap does: nothing more will come.
            self.give_up_repair(id);
        }
    }

    /// Takes the messages that were held back behind a closed gap.
    pub(super) fn release_held(&mut self, id: &ConversationId) {
        while let Some(message) = self.conversation(id).next_held() {
            self.take(message, MessageSource::Stream);
        }
    }

    /// Continues without the missing messages. If they come after all, they are still new.
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
