//! The store as an app server sees it, with R3, R6, R8 or R9 broken.

use std::sync::Arc;

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, MessageId, Seq, UserId};
use bluetick_store::{
    ActiveConversation, Advanced, Committed, ConversationRow, Conversations, InboxPosition, Message,
    MessageStatus, Messages, NewMessage, Noted, PageLimit, PendingDeliveries, PendingRow, Result, StatusRow,
    Store, Undelivered,
};

use super::{Breach, Breaches};

pub(super) struct BreachingStore {
    pub inner: Store,
    pub breaches: Breaches,
}

impl BreachingStore {
    /// Commits without the pending rows, and then notes each by itself (R3).
    async fn commit_then_note(&self, mut sends: Vec<NewMessage>) -> Vec<Result<Committed>> {
        let undelivered: Vec<bool> =
            sends.iter_mut().map(|new| std::mem::take(&mut new.undelivered)).collect();
        let mut answers = self.inner.messages.commit_sends(sends).await;
        for (answer, undelivered) in answers.iter_mut().zip(undelivered) {
            if undelivered
                && let Ok(committed) = answer
                && let Err(e) = self.note_committed(committed).await
            {
                *answer = Err(e);
            }
        }
        answers
    }

    async fn note_committed(&self, committed: &Committed) -> Result<()> {
        let Committed { message, duplicate, .. } = committed;
        let (receiver, id) = (message.receiver(), &message.conversation_id);
        if message.withheld {
            return Ok(());
        }
        if *duplicate && self.inner.status.status(&receiver, id).await?.last_delivered_seq >= message.seq {
            return Ok(());
        }
        self.note_undelivered(&receiver, id, message.seq).await?;
        Ok(())
    }
}

/// The repeated send as a void, which delivery passes over (R9).
fn pass_over_repeated(committed: Committed) -> Committed {
    match committed.duplicate {
        true => Committed { message: Arc::new(committed.message.voided()), ..committed },
        false => committed,
    }
}

/// Puts a void into every hole of the page, where nothing is stored (R8).
fn paper_over_holes(page: Vec<Arc<Message>>, from: Seq) -> Vec<Arc<Message>> {
    let mut whole = Vec::with_capacity(page.len());
    let mut next = from;
    for message in page {
        whole.extend((next..message.seq).map(|seq| Arc::new(Message { seq, ..message.voided() })));
        next = message.seq + 1;
        whole.push(message);
    }
    whole
}

#[async_trait]
impl Messages for BreachingStore {
    async fn commit_sends(&self, sends: Vec<NewMessage>) -> Vec<Result<Committed>> {
        let answers = match self.breaches.contains(Breach::R3) {
            true => self.commit_then_note(sends).await,
            false => self.inner.messages.commit_sends(sends).await,
        };
        match self.breaches.contains(Breach::R9) {
            true => answers.into_iter().map(|answer| answer.map(pass_over_repeated)).collect(),
            false => answers,
        }
    }

    async fn read_from(&self, id: &ConversationId, from: Seq, limit: PageLimit) -> Result<Vec<Arc<Message>>> {
        let page = self.inner.messages.read_from(id, from, limit).await?;
        match self.breaches.contains(Breach::R8) {
            true => Ok(paper_over_holes(page, from)),
            false => Ok(page),
        }
    }

    async fn read_before(
        &self,
        id: &ConversationId,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Arc<Message>>> {
        self.inner.messages.read_before(id, before, limit).await
    }

    async fn last_seq(&self, id: &ConversationId) -> Result<Seq> {
        self.inner.messages.last_seq(id).await
    }

    async fn close_hole(&self, id: &ConversationId, seq: Seq) -> Result<()> {
        match self.breaches.contains(Breach::R8) {
            true => Ok(()),
            false => self.inner.messages.close_hole(id, seq).await,
        }
    }

    async fn find(&self, message_id: MessageId) -> Result<Option<Arc<Message>>> {
        self.inner.messages.find(message_id).await
    }
}

#[async_trait]
impl PendingDeliveries for BreachingStore {
    /// Get, then put (R3): a row that is there is kept, even if it holds a later seq.
    async fn note_undelivered(&self, receiver: &UserId, id: &ConversationId, seq: Seq) -> Result<Noted> {
        if self.breaches.contains(Breach::R3)
            && let Some(row) = self.pending_row(receiver, id).await?
        {
            return Ok(Noted { first_undelivered_seq: row, written: false });
        }
        self.inner.pending.note_undelivered(receiver, id, seq).await
    }

    async fn pending_of(&self, receiver: &UserId) -> Result<Vec<PendingRow>> {
        self.inner.pending.pending_of(receiver).await
    }

    async fn pending_row(&self, receiver: &UserId, id: &ConversationId) -> Result<Option<Seq>> {
        self.inner.pending.pending_row(receiver, id).await
    }

    async fn settle(
        &self,
        receiver: &UserId,
        id: &ConversationId,
        expected: Seq,
        to: Option<Seq>,
    ) -> Result<bool> {
        self.inner.pending.settle(receiver, id, expected, to).await
    }
}

#[async_trait]
impl MessageStatus for BreachingStore {
    async fn advance(
        &self,
        user: &UserId,
        id: &ConversationId,
        delivered: Seq,
        read: Seq,
    ) -> Result<Advanced> {
        self.inner.status.advance(user, id, delivered, read).await
    }

    async fn status(&self, user: &UserId, id: &ConversationId) -> Result<StatusRow> {
        self.inner.status.status(user, id).await
    }

    /// Always (R3): nothing is owed before the row.
    async fn has_acked_all(&self, user: &UserId, id: &ConversationId) -> Result<bool> {
        match self.breaches.contains(Breach::R3) {
            true => Ok(true),
            false => self.inner.status.has_acked_all(user, id).await,
        }
    }

    async fn notified(&self, user: &UserId, id: &ConversationId) -> Result<(StatusRow, Seq)> {
        self.inner.status.notified(user, id).await
    }

    async fn raise_notified(&self, user: &UserId, id: &ConversationId, seq: Seq) -> Result<()> {
        self.inner.status.raise_notified(user, id, seq).await
    }

    async fn statuses_of(&self, user: &UserId) -> Result<Vec<StatusRow>> {
        self.inner.status.statuses_of(user).await
    }
}

#[async_trait]
impl Conversations for BreachingStore {
    async fn conversation(&self, user: &UserId, id: &ConversationId) -> Result<Option<ConversationRow>> {
        self.inner.conversations.conversation(user, id).await
    }

    async fn conversations_of(&self, user: &UserId) -> Result<Vec<ConversationRow>> {
        self.inner.conversations.conversations_of(user).await
    }

    async fn inbox(
        &self,
        user: &UserId,
        after: Option<&InboxPosition>,
        limit: usize,
    ) -> Result<(Vec<ConversationRow>, bool)> {
        self.inner.conversations.inbox(user, after, limit).await
    }

    async fn active_since(
        &self,
        user: &UserId,
        since_ms: u64,
        limit: usize,
    ) -> Result<Vec<ActiveConversation>> {
        self.inner.conversations.active_since(user, since_ms, limit).await
    }

    async fn undelivered(
        &self,
        user: &UserId,
        after: Option<&ConversationId>,
        limit: usize,
    ) -> Result<Undelivered> {
        match self.breaches.contains(Breach::R6Undelivered) {
            true => Ok(Undelivered::default()),
            false => self.inner.conversations.undelivered(user, after, limit).await,
        }
    }

    async fn total_unread(&self, user: &UserId) -> Result<u64> {
        self.inner.conversations.total_unread(user).await
    }

    async fn recount(&self, user: &UserId, id: &ConversationId) -> Result<(u64, u64)> {
        self.inner.conversations.recount(user, id).await
    }
}
