//! The end of a pending row: removed when everything drained for it is acked
//! ([`R4`](crate::rules::Rule::R4)), or moved by a session that closes before that
//! ([`R5`](crate::rules::Rule::R5)).

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, Seq, SessionId, UserId};
use futures_util::future::{join, join_all};

use crate::{
    AppResult, ChatService, Debt, DebtsRequest, SessionEvent, SettleApi, SettleRequest, Settled, wire,
};

/// Most debts that are paid concurrently.
const DEBTS_AT_ONCE: usize = 64;

#[async_trait]
impl SettleApi for ChatService {
    async fn pending_row(&self, user: UserId, id: ConversationId) -> AppResult<Option<Seq>> {
        self.store.pending.pending_row(&user, &id).await.map_err(wire)
    }

    /// Removes the row if it still holds the value that was read, then reads the conversation's
    /// end.
    async fn settle(&self, request: SettleRequest) -> AppResult<Settled> {
        let SettleRequest { user, conversation_id: id, row } = request;
        let removed = self.store.pending.settle(&user, &id, row, None).await.map_err(wire)?;
        if removed {
            self.observer.row_removed(&user, &id, row);
        }
        let row = match removed {
            true => None,
            false => self.store.pending.pending_row(&user, &id).await.map_err(wire)?,
        };
        // Read after the removal: a sender that found the row wrote none and relies on this read.
        let last_seq = self.store.messages.last_seq(&id).await.map_err(wire)?;
        Ok(Settled { row, last_seq })
    }

    /// Writes pending rows for what a closing session took and did not see acked. Returns the debts
    /// that could not be paid.
    async fn pay_debts(&self, request: DebtsRequest) -> AppResult<Vec<Debt>> {
        let mut unpaid = Vec::new();
        // Concurrently, so that they share the store's fsync.
        for debts in request.debts.chunks(DEBTS_AT_ONCE) {
            let paid =
                join_all(debts.iter().map(|debt| self.pay(&request.user, debt, request.overdue))).await;
            for (debt, paid) in debts.iter().zip(paid) {
                if let Err(e) = paid {
                    tracing::warn!(error = %e, conversation = %debt.conversation_id, "pending row of a closing session not written; it will be retried");
                    unpaid.push(debt.clone());
                }
            }
        }
        Ok(unpaid)
    }
}

impl ChatService {
    async fn pay(&self, user: &UserId, debt: &Debt, overdue: bool) -> AppResult<()> {
        let id = &debt.conversation_id;
        let last_seq = self.store.messages.last_seq(id).await.map_err(wire)?;
        let first_unacked = self.beginning(user, id, debt.first_unacked, last_seq).await?;
        if first_unacked > last_seq {
            return Ok(());
        }
        let moved = match debt.row {
            // A row before the debt covers it: move it up to the first unacked message.
            Some(row) if row <= first_unacked => {
                self.store.pending.settle(user, id, row, Some(first_unacked)).await.map_err(wire)?
            }
            _ => false,
        };
        let row = async {
            match moved {
                true => {
                    self.observer.row_moved();
                    self.wake(user, id, &[]).await;
                    Ok(())
                }
                false => self.note_and_wake(user, id, first_unacked, &[]).await,
            }
        };
        let (noted, owed) = join(row, self.owe_push(user, id, last_seq, overdue)).await;
        noted.and(owed)
    }

    /// Looks the user up and tells every session found to read the conversation's pending row
    /// ([`R2`](crate::rules::Rule::R2)). It does not wait for `slow` sessions.
    pub(crate) async fn wake(&self, user: &UserId, id: &ConversationId, slow: &[SessionId]) {
        let sessions = self.sessions_of(user).await;
        let wake = |_: &_| SessionEvent::Wake { conversation_id: id.clone() };
        self.fanout.hand_over_all(&sessions, slow, wake).await;
    }
}
