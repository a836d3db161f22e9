//! Receipts: delivered and read. Both only grow, and are told as state, never as events (R10, R11).

use async_trait::async_trait;
use bluetick_protocol::{Seq, SessionId, WireError};
use bluetick_store::Advanced;

use crate::{AppResult, ChatService, ReceiptApi, ReceiptRequest, Step, push::ReadOn, trace::Glimpse, wire};

#[async_trait]
impl ReceiptApi for ChatService {
    async fn ack(&self, request: ReceiptRequest) -> AppResult<()> {
        self.meters.acks.increment(1);
        let seq = request.seq;
        self.advance(request, seq, 0, Step::Acked).await
    }

    async fn read(&self, request: ReceiptRequest) -> AppResult<()> {
        self.meters.reads.increment(1);
        let seq = request.seq;
        self.advance(request, seq, seq, Step::Read).await
    }
}

impl ChatService {
    async fn advance(&self, request: ReceiptRequest, delivered: Seq, read: Seq, step: Step) -> AppResult<()> {
        let ReceiptRequest { user, session, conversation_id: id, again, .. } = request;
        id.side_of(&user).ok_or_else(WireError::not_found)?;
        let advanced = self.store.status.advance(&user, &id, delivered, read).await.map_err(wire)?;
        if !advanced.moved && advanced.row.last_delivered_seq == 0 {
            // Nothing of it was ever acked: there may be no such conversation.
            self.member_of(&user, &id).await?;
        }
        if advanced.moved {
            bluetick_store::failpoint::hit("ack.stored");
            let seq = match step {
                Step::Read => advanced.row.last_read_seq,
                _ => advanced.row.last_delivered_seq,
            };
            self.show(Glimpse::new(step, &user).message(&id, seq)).await;
        }
        // Whoever stored it the first time may have died before telling, and those who are connected ask nobody.
        if advanced.moved || (again && advanced.row.last_delivered_seq > 0) {
            let origin = session.filter(|_| step == Step::Acked);
            self.fanout.tell_ticks(&advanced.row, origin).await;
        }
        if step == Step::Read {
            self.clear_read(&advanced, session, again);
        }
        Ok(())
    }

    /// What was notified of and is read now is taken off the other devices' screens.
    pub(crate) fn clear_read(&self, advanced: &Advanced, session: Option<SessionId>, again: bool) {
        let Advanced { row, read_before, .. } = advanced;
        if let Some(push) = &self.push
            && (row.last_read_seq > *read_before || (again && row.last_read_seq > 0))
        {
            push.read_on(ReadOn {
                user: row.user_id.clone(),
                conversation_id: row.conversation_id.clone(),
                // Whoever stored it the first time may have died before it came to this.
                before: if again { 0 } else { *read_before },
                read: row.last_read_seq,
                session,
            });
        }
    }
}
