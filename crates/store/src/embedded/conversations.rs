//! `conversations` and the inbox: one row for each member of each conversation, computed from the
//! conversation's state when it is read.

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, Side, UserId};

use super::{
    Embedded, StoreCore,
    cold::reads::missing,
    committer::WriteOp,
    conversation::{Boundary, ConversationState},
    engine::Space,
    memtable::Candidates,
    receipts::side_of,
};
use crate::{ActiveConversation, ConversationRow, Conversations, InboxPosition, Result, Undelivered};

/// Up to this many conversations are read on the caller's thread, if they are in memory: that takes
/// less time than a hop to a blocking thread.
const FEW: usize = 16;

impl StoreCore {
    fn row(&self, conv: &ConversationState, side: Side) -> Result<Option<ConversationRow>> {
        if conv.member(side).last.is_none() {
            return Ok(None);
        }
        let counted_at_erasure = match conv.member(side).erased {
            0 => 0,
            erased => {
                let entry = self.memtable.entry(&self.engine, &conv.id, erased)?;
                // If that message is cold, anything the other wrote since counts.
                let wrote_since = conv.has_written_since_erasure(side);
                entry.map_or(if wrote_since { 0 } else { u64::MAX }, |entry| {
                    entry.counted[side.other().index()]
                })
            }
        };
        if !conv.peer_wrote(side, counted_at_erasure) {
            return Ok(conv.row(side, None));
        }
        let peer = self.memtable.user(&self.engine, &conv.id.member(side.other()))?;
        Ok(conv.row(side, Some(peer.profile_for(&conv.id.member(side)).clone())))
    }

    /// What `pick` returns for each of a user's conversations.
    pub(super) fn per_conversation<T>(
        &self,
        space: Space,
        user: &UserId,
        pick: impl FnMut(&ConversationState, Side) -> Result<Option<T>>,
    ) -> Result<Vec<T>> {
        self.per_candidate(self.memtable.candidates(&self.engine, space, user)?, user, pick)
    }

    pub(super) fn per_candidate<T>(
        &self,
        candidates: Candidates,
        user: &UserId,
        mut pick: impl FnMut(&ConversationState, Side) -> Result<Option<T>>,
    ) -> Result<Vec<T>> {
        let mut rows = Vec::new();
        for id in candidates.ids {
            if let (Some(side), Some(conv)) = (id.side_of(user), self.conv(&id)?)
                && let Some(row) = pick(&conv, side)?
            {
                rows.push(row);
            }
        }
        Ok(rows)
    }

    fn undelivered_among(
        &self,
        user: &UserId,
        ids: impl IntoIterator<Item = ConversationId>,
        next: Option<ConversationId>,
    ) -> Result<Undelivered> {
        let mut conversations = Vec::new();
        for id in ids {
            if let (Some(side), Some(conv)) = (id.side_of(user), self.conv(&id)?)
                && conv.has_undelivered(side)
            {
                conversations.push(id);
            }
        }
        Ok(Undelivered { conversations, next })
    }
}

impl Embedded {
    /// Reads a user's conversations: on this thread if they are few and in memory, else on a
    /// blocking thread.
    pub(super) async fn nearby<T: Send + 'static>(
        &self,
        user: &UserId,
        space: Space,
        read: impl FnOnce(&StoreCore, Candidates) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if let Some(few) = self.shared.memtable.few_candidates(&self.shared.engine, space, user, FEW)? {
            return read(&self.shared, few);
        }
        let user = user.clone();
        self.blocking(move |shared| read(shared, shared.memtable.candidates(&shared.engine, space, &user)?))
            .await
    }
}

#[async_trait]
impl Conversations for Embedded {
    async fn conversation(&self, user: &UserId, id: &ConversationId) -> Result<Option<ConversationRow>> {
        let Some(side) = id.side_of(user) else {
            return Ok(None);
        };
        match self.shared.conv(id)? {
            Some(conv) => self.shared.row(&conv, side),
            None => Ok(None),
        }
    }

    async fn conversations_of(&self, user: &UserId) -> Result<Vec<ConversationRow>> {
        let user = user.clone();
        self.blocking(move |shared| {
            shared.per_conversation(Space::Members, &user, |conv, side| shared.row(conv, side))
        })
        .await
    }

    async fn inbox(
        &self,
        user: &UserId,
        after: Option<&InboxPosition>,
        limit: usize,
    ) -> Result<(Vec<ConversationRow>, bool)> {
        let (user_id, after) = (user.clone(), after.cloned());
        let read = move |shared: &StoreCore, candidates: Option<Candidates>| {
            let positions =
                shared.memtable.inbox(&shared.engine, &user_id, candidates, after.as_ref(), 0, limit + 1)?;
            let more = positions.len() > limit;
            let mut rows = Vec::with_capacity(limit.min(positions.len()));
            for position in positions.into_iter().take(limit) {
                if let (Some(side), Some(conv)) =
                    (position.conversation_id.side_of(&user_id), shared.conv(&position.conversation_id)?)
                {
                    rows.extend(shared.row(&conv, side)?);
                }
            }
            Ok((rows, more))
        };
        match self.shared.memtable.has_inbox(user) {
            true => read(&self.shared, None),
            false => self.nearby(user, Space::Members, move |shared, found| read(shared, Some(found))).await,
        }
    }

    async fn active_since(
        &self,
        user: &UserId,
        since_ms: u64,
        limit: usize,
    ) -> Result<Vec<ActiveConversation>> {
        let user_id = user.clone();
        let read = move |shared: &StoreCore, candidates: Option<Candidates>| {
            let mut active = Vec::new();
            let positions =
                shared.memtable.inbox(&shared.engine, &user_id, candidates, None, since_ms, limit)?;
            for position in positions {
                let id = position.conversation_id;
                if let (Some(side), Some(conv)) = (id.side_of(&user_id), shared.conv(&id)?)
                    && let Some(last) = &conv.member(side).last
                {
                    active.push(ActiveConversation {
                        conversation_id: id,
                        last_seq: last.seq,
                        last_message_id: last.message_id,
                    });
                }
            }
            Ok(active)
        };
        match self.shared.memtable.has_inbox(user) {
            true => read(&self.shared, None),
            false => self.nearby(user, Space::Members, move |shared, found| read(shared, Some(found))).await,
        }
    }

    async fn undelivered(
        &self,
        user: &UserId,
        after: Option<&ConversationId>,
        limit: usize,
    ) -> Result<Undelivered> {
        // A user who connects has just read their inbox. If it is short, it holds every
        // conversation there is.
        if after.is_none()
            && let Some(few) = self.shared.memtable.few_in_inbox(user, FEW.min(limit))
        {
            return self.shared.undelivered_among(user, few, None);
        }
        let (user, after) = (user.clone(), after.cloned());
        self.blocking(move |shared| {
            let mut ids = shared.memtable.candidates_after(
                &shared.engine,
                &user,
                after.as_ref(),
                limit.saturating_add(1),
            )?;
            let next = match ids.len() > limit {
                true => ids.pop_last().and_then(|_| ids.last().cloned()),
                false => None,
            };
            shared.undelivered_among(&user, ids, next)
        })
        .await
    }

    async fn total_unread(&self, user: &UserId) -> Result<u64> {
        let user_id = user.clone();
        let read = move |shared: &StoreCore, candidates: Candidates| {
            let counts = shared.per_candidate(candidates, &user_id, |conv, side| {
                Ok(conv.member(side).last.as_ref().map(|_| conv.unread(side)))
            })?;
            Ok(counts.into_iter().sum())
        };
        self.nearby(user, Space::Members, read).await
    }

    async fn recount(&self, user: &UserId, id: &ConversationId) -> Result<(u64, u64)> {
        let side = side_of(id, user)?;
        let Some(conv) = self.shared.conv(id)? else { return Ok((0, 0)) };
        let (mut from, mut after) = (conv.member(side).read.seq + 1, 0);
        while from <= conv.last_seq {
            let page = self.messages_from(id, from, 1000).await?;
            let last = page.last().ok_or_else(|| missing(id, from))?;
            from = last.seq + 1;
            let page = page.iter().filter(|m| m.seq <= conv.last_seq);
            after += page.filter(|m| m.from != side && m.visible_to(side)).count() as u64;
        }
        let before = conv.unread(side);
        if before != after {
            let counted = conv.counted[side.other().index()].saturating_sub(after);
            let read = Boundary { seq: conv.member(side).read.seq, counted };
            let id = id.clone();
            self.ask(|reply| WriteOp::Recount { id, side, read, reply }).await?;
        }
        Ok((before, after))
    }
}
