//! A user's conversations: which they are, and their order in the inbox (`inbox:{user}`), which is
//! kept in memory for users who read it and rebuilt from `conversations`.

use std::{collections::BTreeSet, sync::Arc};

use bluetick_protocol::{ConversationId, UserId};
use foldhash::HashMap;

use super::Memtable;
use crate::{
    InboxPosition, Result,
    embedded::{
        conversation::ConversationState,
        engine::{Engine, Space},
    },
};

/// A user's conversations, sorted, and the number of drops before they were read.
pub(in crate::embedded) struct Candidates {
    pub ids: BTreeSet<ConversationId>,
    drop_count: u64,
}

/// `inbox:{user}`: the user's conversations by time of the last message.
#[derive(Debug, Clone, Default)]
pub(super) struct InboxOrder {
    order: BTreeSet<InboxPosition>,
    ts: HashMap<ConversationId, u64>,
}

impl InboxOrder {
    fn page(&self, after: Option<&InboxPosition>, at_least_ts: u64, limit: usize) -> Vec<InboxPosition> {
        let positions = match after {
            Some(after) => self.order.range(..after),
            None => self.order.range(..),
        };
        positions.rev().take_while(|p| p.last_message_ts >= at_least_ts).take(limit).cloned().collect()
    }

    pub(super) fn set(&mut self, id: &ConversationId, ts: u64) {
        let old = self.ts.insert(id.clone(), ts);
        if old == Some(ts) {
            return;
        }
        if let Some(old) = old {
            self.order.remove(&InboxPosition { last_message_ts: old, conversation_id: id.clone() });
        }
        self.order.insert(InboxPosition { last_message_ts: ts, conversation_id: id.clone() });
    }
}

impl Memtable {
    /// A user's conversations by `members` or `pending_deliveries`, and all that changed since the
    /// last checkpoint.
    pub(in crate::embedded) fn candidates(
        &self,
        engine: &Engine,
        space: Space,
        user: &UserId,
    ) -> Result<Candidates> {
        self.first_candidates(engine, space, user, usize::MAX)
    }

    /// The same, if there are at most `most` and all of them are in memory.
    pub(in crate::embedded) fn few_candidates(
        &self,
        engine: &Engine,
        space: Space,
        user: &UserId,
        most: usize,
    ) -> Result<Option<Candidates>> {
        let found = self.first_candidates(engine, space, user, most + 1)?;
        let few = found.ids.len() <= most && found.ids.iter().all(|id| self.is_in_memory(id));
        Ok(few.then_some(found))
    }

    /// Reads at most `most` from the engine.
    fn first_candidates(
        &self,
        engine: &Engine,
        space: Space,
        user: &UserId,
        most: usize,
    ) -> Result<Candidates> {
        let mut found = {
            let shard = self.user_shard(user.as_str()).lock();
            let dirty = [shard.active.get(user), shard.frozen.get(user)];
            let ids = dirty.into_iter().flatten().flat_map(|dirty| dirty.convs.iter().cloned()).collect();
            Candidates { ids, drop_count: shard.drop_count }
        };
        if found.ids.len() < most {
            // The engine is read last: a conversation that leaves memory in between is already
            // there.
            found.ids.extend(engine.conversations_under(space, user, most)?);
        }
        Ok(found)
    }

    /// At most `most` of a user's conversations after one of them, sorted.
    pub(in crate::embedded) fn candidates_after(
        &self,
        engine: &Engine,
        user: &UserId,
        after: Option<&ConversationId>,
        most: usize,
    ) -> Result<BTreeSet<ConversationId>> {
        let mut ids: BTreeSet<ConversationId> = {
            let shard = self.user_shard(user.as_str()).lock();
            let dirty = [shard.active.get(user), shard.frozen.get(user)].into_iter().flatten();
            let ids = dirty.flat_map(|dirty| &dirty.convs);
            ids.filter(|id| after.is_none_or(|after| *id > after)).cloned().collect()
        };
        // The engine is read last: a conversation that leaves memory in between is already there.
        ids.extend(match after {
            Some(after) => engine.members_after(user, after, most)?,
            None => engine.conversations_under(Space::Members, user, most)?,
        });
        while ids.len() > most {
            ids.pop_last();
        }
        Ok(ids)
    }

    /// All conversations of a user whose inbox is in memory, sorted, if there are at most `most`
    /// and all of them are in memory.
    pub(in crate::embedded) fn few_in_inbox(
        &self,
        user: &UserId,
        most: usize,
    ) -> Option<Vec<ConversationId>> {
        let mut ids: Vec<ConversationId> = {
            let shard = self.user_shard(user.as_str()).lock();
            let inbox = shard.inboxes.get(user).filter(|inbox| inbox.ts.len() <= most)?;
            inbox.ts.keys().cloned().collect()
        };
        if !ids.iter().all(|id| self.is_in_memory(id)) {
            return None;
        }
        ids.sort();
        Some(ids)
    }

    fn is_in_memory(&self, id: &ConversationId) -> bool {
        let shard = self.conv_shard(id).lock();
        shard.active.contains_key(id) || shard.frozen.contains_key(id) || shard.clean.peek(id).is_some()
    }

    /// Positions in a user's inbox, newest first. Builds the inbox from the given candidates if it
    /// is not in memory.
    pub(in crate::embedded) fn inbox(
        &self,
        engine: &Engine,
        user: &UserId,
        mut candidates: Option<Candidates>,
        after: Option<&InboxPosition>,
        at_least_ts: u64,
        limit: usize,
    ) -> Result<Vec<InboxPosition>> {
        if let Some(inbox) = self.user_shard(user.as_str()).lock().inboxes.get(user) {
            return Ok(inbox.page(after, at_least_ts, limit));
        }
        loop {
            let Candidates { ids, drop_count } = match candidates.take() {
                Some(candidates) => candidates,
                None => self.candidates(engine, Space::Members, user)?,
            };
            let mut inbox = InboxOrder::default();
            for id in ids {
                if let Some(conv) = self.conv(engine, &id)? {
                    place(&mut inbox, user, &conv);
                }
            }
            let mut shard = self.user_shard(user.as_str()).lock();
            if shard.drop_count != drop_count {
                continue;
            }
            // Conversations that changed during the build are still dirty: read them again, now
            // that nothing can be published past this lock.
            for dirty in [shard.active.get(user), shard.frozen.get(user)].into_iter().flatten() {
                for id in &dirty.convs {
                    if let Some(conv) = self.dirty_conv(id) {
                        place(&mut inbox, user, &conv);
                    }
                }
            }
            let page = inbox.page(after, at_least_ts, limit);
            shard.inboxes.insert(user.clone(), inbox);
            return Ok(page);
        }
    }

    fn dirty_conv(&self, id: &ConversationId) -> Option<Arc<ConversationState>> {
        let shard = self.conv_shard(id).lock();
        shard.active.get(id).or_else(|| shard.frozen.get(id)).map(|dirty| dirty.conv.clone())
    }

    /// Whether the inbox can be read without building it.
    pub(in crate::embedded) fn has_inbox(&self, user: &UserId) -> bool {
        self.user_shard(user.as_str()).lock().inboxes.peek(user).is_some()
    }
}

fn place(inbox: &mut InboxOrder, user: &UserId, conv: &ConversationState) {
    if let Some(last) = conv.id.side_of(user).and_then(|side| conv.member(side).last.as_ref()) {
        inbox.set(&conv.id, last.ts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        EmbeddedConfig, ManualClock, Messages,
        embedded::{Embedded, committer::WriteOp, rows::tests::send},
    };

    /// A conversation that began and left memory after the candidates were read is in neither of
    /// them.
    #[tokio::test]
    async fn an_inbox_of_candidates_that_were_read_too_early_lacks_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_760_000_000_000));
        let store = Embedded::open(EmbeddedConfig::new(dir.path()), clock).unwrap();
        let (hot, engine, bob) = (&store.shared.memtable, &store.shared.engine, UserId::new("bob").unwrap());
        let early = hot.few_candidates(engine, Space::Members, &bob, 9).unwrap().unwrap();
        assert!(early.ids.is_empty());
        store.commit_sends(vec![send("m1")]).await.remove(0).unwrap();
        store.ask(WriteOp::Checkpoint).await.unwrap();
        let inbox = hot.inbox(engine, &bob, Some(early), None, 0, 9).unwrap();
        assert_eq!(inbox.len(), 1);
        store.shut().await.unwrap();
    }
}
