//! `pending_deliveries` and `message_status`: which messages each member still lacks, and the
//! boundaries up to which they were delivered and read.

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, Seq, Side, UserId};

use super::{
    Embedded, StoreCore,
    committer::WriteOp,
    conversation::{Boundary, ConversationState},
    engine::Space,
    memtable::Candidates,
};
use crate::{Advanced, MessageStatus, Noted, PendingDeliveries, PendingRow, Result, StatusRow, StoreError};

/// The side of a user, for a write. Reads of a stranger find nothing instead.
pub(super) fn side_of(id: &ConversationId, user: &UserId) -> Result<Side> {
    id.side_of(user).ok_or_else(|| StoreError::Unsupported("that user is not in this conversation".into()))
}

impl StoreCore {
    /// The boundary of a member at a seq, clamped to the end of the conversation. `None` if the seq
    /// is cold.
    pub(super) fn hot_boundary(
        &self,
        conv: &ConversationState,
        side: Side,
        seq: Seq,
    ) -> Result<Option<Boundary>> {
        if seq >= conv.last_seq {
            return Ok(Some(Boundary { seq: conv.last_seq, counted: conv.counted[side.other().index()] }));
        }
        let member = conv.member(side);
        if let Some(known) = [member.delivered, member.read].into_iter().find(|boundary| boundary.seq == seq)
        {
            return Ok(Some(known));
        }
        if seq == 0 {
            return Ok(Some(Boundary::default()));
        }
        let entry = self.memtable.entry(&self.engine, &conv.id, seq)?;
        Ok(entry.map(|entry| Boundary { seq, counted: entry.counted[side.other().index()] }))
    }
}

#[async_trait]
impl PendingDeliveries for Embedded {
    async fn note_undelivered(
        &self,
        receiver: &UserId,
        conversation: &ConversationId,
        seq: Seq,
    ) -> Result<Noted> {
        let (id, side) = (conversation.clone(), side_of(conversation, receiver)?);
        self.ask(|reply| WriteOp::Note { id, side, seq, push_due: None, reply }).await
    }

    async fn pending_of(&self, receiver: &UserId) -> Result<Vec<PendingRow>> {
        let user = receiver.clone();
        let read = move |shared: &StoreCore, candidates: Candidates| {
            shared.per_candidate(candidates, &user, |conv, side| {
                Ok(conv.member(side).pending.map(|first_undelivered_seq| PendingRow {
                    receiver_id: user.clone(),
                    conversation_id: conv.id.clone(),
                    first_undelivered_seq,
                }))
            })
        };
        self.nearby(receiver, Space::PendingDeliveries, read).await
    }

    async fn pending_row(&self, receiver: &UserId, conversation: &ConversationId) -> Result<Option<Seq>> {
        let Some(side) = conversation.side_of(receiver) else {
            return Ok(None);
        };
        Ok(self.shared.conv(conversation)?.and_then(|conv| conv.member(side).pending))
    }

    async fn settle(
        &self,
        receiver: &UserId,
        conversation: &ConversationId,
        expected: Seq,
        to: Option<Seq>,
    ) -> Result<bool> {
        let (id, side) = (conversation.clone(), side_of(conversation, receiver)?);
        self.ask(|reply| WriteOp::Settle { id, side, expected, to, reply }).await
    }
}

fn no_status(user: &UserId, conversation: &ConversationId) -> StatusRow {
    StatusRow {
        user_id: user.clone(),
        conversation_id: conversation.clone(),
        last_delivered_seq: 0,
        last_read_seq: 0,
    }
}

#[async_trait]
impl MessageStatus for Embedded {
    async fn advance(
        &self,
        user: &UserId,
        conversation: &ConversationId,
        delivered: Seq,
        read: Seq,
    ) -> Result<Advanced> {
        let side = side_of(conversation, user)?;
        let Some(conv) = self.shared.conv(conversation)? else {
            return Ok(Advanced {
                row: ConversationState::new(conversation.clone()).status_row(side),
                read_before: 0,
                moved: false,
            });
        };
        let visible = conv.last_visible(side);
        let member = conv.member(side);
        let delivered = self.boundary_at(&conv, side, delivered.min(visible), member.delivered).await?;
        let read = self.boundary_at(&conv, side, read.min(visible), member.read).await?;
        // Boundaries only grow: a lower one needs no write.
        if read.seq <= member.read.seq && delivered.seq <= member.delivered.seq {
            return Ok(Advanced { row: conv.status_row(side), read_before: member.read.seq, moved: false });
        }
        let id = conversation.clone();
        self.ask(|reply| WriteOp::Advance { id, side, delivered, read, reply }).await
    }

    async fn status(&self, user: &UserId, conversation: &ConversationId) -> Result<StatusRow> {
        let stored = conversation.side_of(user).zip(self.shared.conv(conversation)?);
        Ok(stored.map_or_else(|| no_status(user, conversation), |(side, conv)| conv.status_row(side)))
    }

    async fn has_acked_all(&self, user: &UserId, conversation: &ConversationId) -> Result<bool> {
        let stored = conversation.side_of(user).zip(self.shared.conv(conversation)?);
        Ok(stored.is_none_or(|(side, conv)| conv.has_acked_all(side)))
    }

    async fn notified(&self, user: &UserId, conversation: &ConversationId) -> Result<(StatusRow, Seq)> {
        let stored = conversation.side_of(user).zip(self.shared.conv(conversation)?);
        Ok(match stored {
            Some((side, conv)) => (conv.status_row(side), conv.member(side).notified),
            None => (no_status(user, conversation), 0),
        })
    }

    async fn raise_notified(&self, user: &UserId, conversation: &ConversationId, seq: Seq) -> Result<()> {
        let (id, side) = (conversation.clone(), side_of(conversation, user)?);
        self.ask(|reply| WriteOp::Notified { id, side, seq, reply }).await
    }

    async fn statuses_of(&self, user: &UserId) -> Result<Vec<StatusRow>> {
        let user = user.clone();
        self.blocking(move |shared| {
            shared.per_conversation(Space::Members, &user, |conv, side| {
                Ok(Some(conv.status_row(side)).filter(|row| row.last_delivered_seq > 0))
            })
        })
        .await
    }
}
