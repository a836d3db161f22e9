//! Receipts: delivered and read. Both only grow, and are told as state, never as events (R10, R11).

use std::sync::Arc;

use bluetick_protocol::{ConversationId, ErrorCode, Seq, UserId, WireError};
use bluetick_store::Message;

use crate::{Answer, Node, ReceiptRequest, Step, wire};

/// How far it is looked for a message of the other side's: so many of one's own in a row are enough.
const PAGE: usize = 256;
const PAGES_MAX: usize = 16;

impl Node {
    /// A device holds everything up to this seq: the double tick. If the session began behind something that no device
    /// has acked, the tick would cover that too: it is delivered first, to whoever is there.
    pub(crate) async fn take_ack(&self, request: ReceiptRequest) -> Answer<bool> {
        metrics::counter!("bluetick_acks_total").increment(1);
        let (user, id, seq) = (&request.user, &request.conversation_id, request.seq);
        if let Some(since) = request.since
            && let Some(owed) = self.first_owed_before(user, id, since).await?
        {
            metrics::counter!("bluetick_late_deliveries_total").increment(1);
            self.note_and_wake(user, id, owed).await?;
            return Ok(false);
        }
        self.advance(request, seq, 0, Step::Acked).await?;
        Ok(true)
    }

    /// The first message of the other side's between the user's boundary and a seq. Its delivery was never finished, or
    /// whoever took it has not acked it.
    async fn first_owed_before(&self, user: &UserId, id: &ConversationId, since: Seq) -> Answer<Option<Seq>> {
        let side = id.side_of(user).ok_or_else(WireError::not_found)?;
        let mut next = self.store.status.status(user, id).await.map_err(wire)?.last_delivered_seq + 1;
        for _ in 0..PAGES_MAX {
            if next >= since {
                return Ok(None);
            }
            let (messages, after) = self.read_without_holes(id, next, PAGE, since - 1).await?;
            let is_owed = |m: &&Arc<Message>| m.seq < since && m.from != side && m.visible_to(side);
            if let Some(owed) = messages.iter().find(is_owed) {
                return Ok(Some(owed.seq));
            }
            if after == next {
                return Err(WireError::new(ErrorCode::Unavailable, "a message is being written; try again"));
            }
            next = after;
        }
        Ok(None)
    }

    /// The user has seen everything up to this seq: the blue tick.
    pub(crate) async fn take_read(&self, request: ReceiptRequest) -> Answer<()> {
        metrics::counter!("bluetick_reads_total").increment(1);
        let seq = request.seq;
        self.advance(request, seq, seq, Step::Read).await
    }

    async fn advance(&self, request: ReceiptRequest, delivered: Seq, read: Seq, step: Step) -> Answer<()> {
        let ReceiptRequest { user, conversation_id: id, .. } = request;
        self.member_of(&user, &id).await?;
        let advanced = self.store.status.advance(&user, &id, delivered, read).await.map_err(wire)?;
        if advanced.moved {
            let seq = match step {
                Step::Read => advanced.row.last_read_seq,
                _ => advanced.row.last_delivered_seq,
            };
            self.trace.note(&id, seq, step, user.as_str(), self.clock.now_ms());
            self.tell_ticks(&advanced.row).await;
        }
        Ok(())
    }
}
