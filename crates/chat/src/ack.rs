//! Receipts: delivered and read. Both only grow, and are told as state, never as events (R10, R11).

use std::sync::Arc;

use bluetick_protocol::{ConversationId, Seq, UserId, WireError};
use bluetick_store::Message;

use crate::{Answer, Node, ReceiptRequest, Step, wire};

/// How far it is looked for a message of the other side's: so many of one's own in a row are enough.
const PAGE: usize = 256;
const PAGES_MAX: usize = 16;

impl Node {
    /// A device holds everything up to this seq: the double tick.
    pub(crate) async fn take_ack(&self, request: ReceiptRequest) -> Answer<bool> {
        metrics::counter!("bluetick_acks_total").increment(1);
        let seq = request.seq;
        if let Some(since) = request.since
            && self.something_is_owed_before(&request.user, &request.conversation_id, since).await?
        {
            return Ok(false);
        }
        self.advance(request, seq, 0, Step::Acked).await?;
        Ok(true)
    }

    /// Whether a message between the user's boundary and a seq has reached no device: another session has it, or its
    /// delivery is still under way. An ack of what comes after it would put a double tick on it.
    async fn something_is_owed_before(&self, user: &UserId, id: &ConversationId, since: Seq) -> Answer<bool> {
        let side = id.side_of(user).ok_or_else(WireError::not_found)?;
        let mut next = self.store.status.status(user, id).await.map_err(wire)?.last_delivered_seq + 1;
        for _ in 0..PAGES_MAX {
            if next >= since {
                return Ok(false);
            }
            let (messages, after) = self.read_without_holes(id, next, PAGE, since - 1).await?;
            let is_theirs = |m: &Arc<Message>| m.seq < since && m.from != side && m.visible_to(side);
            if after == next || messages.iter().any(is_theirs) {
                return Ok(true);
            }
            next = after;
        }
        Ok(false)
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
