//! Receipts: delivered and read. Both only grow, and are sent as state, never as events
//! ([`R10`](crate::rules::Rule::R10), [`R11`](crate::rules::Rule::R11)).

use async_trait::async_trait;
use bluetick_protocol::{SessionId, WireError};
use bluetick_store::Advanced;

use crate::{AppResult, ChatService, ReceiptApi, ReceiptRequest, push::ReadOn, wire};

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReceiptKind {
    Delivered,
    Read,
}

#[async_trait]
impl ReceiptApi for ChatService {
    /// A device holds everything up to this seq: the double tick.
    async fn ack(&self, request: ReceiptRequest) -> AppResult<()> {
        self.observer.ack_received();
        self.advance(request, ReceiptKind::Delivered).await
    }

    /// The user has seen everything up to this seq: the blue tick.
    async fn read(&self, request: ReceiptRequest) -> AppResult<()> {
        self.observer.read_received();
        self.advance(request, ReceiptKind::Read).await
    }
}

impl ChatService {
    async fn advance(&self, request: ReceiptRequest, kind: ReceiptKind) -> AppResult<()> {
        let ReceiptRequest { user, session, conversation_id: id, seq, again, .. } = request;
        id.side_of(&user).ok_or_else(WireError::not_found)?;
        let read = if kind == ReceiptKind::Read { seq } else { 0 };
        let advanced = self.store.status.advance(&user, &id, seq, read).await.map_err(wire)?;
        if !advanced.moved && advanced.row.last_delivered_seq == 0 {
            // Nothing was ever acked here: the conversation may not exist.
            self.member_of(&user, &id).await?;
        }
        if advanced.moved {
            match kind {
                ReceiptKind::Delivered => self.observer.acked(&advanced.row),
                ReceiptKind::Read => self.observer.read(&advanced.row),
            }
        }
        // A retry: the first run may have stored the boundary and died before it told the sessions,
        // which do not ask.
        if advanced.moved || (again && advanced.row.last_delivered_seq > 0) {
            let origin = session.filter(|_| kind == ReceiptKind::Delivered);
            self.fanout.tell_ticks(&advanced.row, origin).await;
        }
        if kind == ReceiptKind::Read {
            self.clear_read(&advanced, session, again);
        }
        Ok(())
    }

    /// Withdraws the notifications of what is read now from the user's other devices.
    pub(crate) fn clear_read(&self, advanced: &Advanced, session: Option<SessionId>, again: bool) {
        let Advanced { row, read_before, .. } = advanced;
        if let Some(push) = &self.push
            && (row.last_read_seq > *read_before || (again && row.last_read_seq > 0))
        {
            push.read_on(ReadOn {
                user: row.user_id.clone(),
                conversation_id: row.conversation_id.clone(),
                // A retry: the first run may have died before it withdrew anything.
                before: if again { 0 } else { *read_before },
                read: row.last_read_seq,
                session,
            });
        }
    }
}
