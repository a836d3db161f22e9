//! The end of a pending row: removed when all that was drained for it is acked (R4), or moved by a session that
//! closes before (R5).

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, Seq, SessionId, UserId};
use futures_util::future::{join, join_all};

use crate::{
    AppResult, ChatService, Debt, DebtsRequest, SessionEvent, SettleApi, SettleRequest, Settled, Step,
    rules::rule, trace::Glimpse, wire,
};

/// Debts that are paid side by side.
const DEBTS_AT_ONCE: usize = 64;

#[async_trait]
impl SettleApi for ChatService {
    async fn pending_row(&self, user: UserId, id: ConversationId) -> AppResult<Option<Seq>> {
        self.store.pending.pending_row(&user, &id).await.map_err(wire)
    }

    async fn settle(&self, request: SettleRequest) -> AppResult<Settled> {
        let SettleRequest { user, conversation_id: id, row } = request;
        let removed = self.store.pending.settle(&user, &id, row, None).await.map_err(wire)?;
        if removed {
            metrics::counter!("bluetick_pending_rows_deleted_total").increment(1);
            bluetick_store::failpoint::hit("settle.row_removed");
            self.show(Glimpse::new(Step::RowGone, &user).message(&id, row)).await;
        }
        let row = match removed {
            true => None,
            false => self.store.pending.pending_row(&user, &id).await.map_err(wire)?,
        };
        // Read after the removal: a sender who found the row wrote nothing, and relies on this.
        let last_seq = match rule!(self.rules, R4) {
            true => self.store.messages.last_seq(&id).await.map_err(wire)?,
            false => 0,
        };
        Ok(Settled { row, last_seq })
    }

    async fn pay_debts(&self, request: DebtsRequest) -> AppResult<Vec<Debt>> {
        if !rule!(self.rules, R5) {
            return Ok(Vec::new());
        }
        let mut left = Vec::new();
        // Side by side, so that they share the store's fsync.
        for debts in request.debts.chunks(DEBTS_AT_ONCE) {
            let paid =
                join_all(debts.iter().map(|debt| self.pay(&request.user, debt, request.overdue))).await;
            for (debt, paid) in debts.iter().zip(paid) {
                if let Err(e) = paid {
                    tracing::warn!(error = %e, conversation = %debt.conversation_id, "a debt could not be paid");
                    left.push(debt.clone());
                }
            }
        }
        Ok(left)
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
            // A row before the debt covers it; move it up to what is really missing.
            Some(row) if row <= first_unacked => {
                self.store.pending.settle(user, id, row, Some(first_unacked)).await.map_err(wire)?
            }
            _ => false,
        };
        let row = async {
            match moved {
                true => {
                    bluetick_store::failpoint::hit("close.row_moved");
                    self.wake(user, id, &[]).await;
                    Ok(())
                }
                false => self.note_and_wake(user, id, first_unacked, &[]).await,
            }
        };
        let (noted, owed) = join(row, self.owe_push(user, id, last_seq, overdue)).await;
        noted.and(owed)
    }

    /// Looks the user up and tells every session found to look for a pending row (R2). It does not wait for `slow`
    /// sessions.
    pub(crate) async fn wake(&self, user: &UserId, id: &ConversationId, slow: &[SessionId]) {
        let sessions = self.sessions_of(user).await;
        let wake = |_: &_| SessionEvent::Wake { conversation_id: id.clone() };
        self.fanout.hand_over_all(&sessions, slow, wake).await;
    }
}
