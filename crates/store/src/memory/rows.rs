//! The rows beside the messages: pending, status, conversations, users; and maintenance.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use bluetick_protocol::{Boundaries, ConversationId, Mute, Profile, Seq, UserId};

use super::{Memory, MemoryTables};
use crate::{
    ActiveConversation, Advanced, BackupSink, ConversationRow, Conversations, Health, InboxPosition,
    Maintenance, MessageStatus, Noted, PendingDeliveries, PendingRow, Result, StatusRow, StoreError,
    Undelivered, Users,
};

#[async_trait]
impl PendingDeliveries for Memory {
    async fn note_undelivered(
        &self,
        receiver: &UserId,
        conversation: &ConversationId,
        seq: Seq,
    ) -> Result<Noted> {
        Ok(self.write()?.note(receiver, conversation, seq))
    }

    async fn pending_of(&self, receiver: &UserId) -> Result<Vec<PendingRow>> {
        let state = self.read();
        let rows = state.pending.get(receiver).into_iter().flatten();
        Ok(rows
            .map(|(id, &first_undelivered_seq)| PendingRow {
                receiver_id: receiver.clone(),
                conversation_id: id.clone(),
                first_undelivered_seq,
            })
            .collect())
    }

    async fn pending_row(&self, receiver: &UserId, conversation: &ConversationId) -> Result<Option<Seq>> {
        Ok(self.read().pending.get(receiver).and_then(|rows| rows.get(conversation)).copied())
    }

    async fn settle(
        &self,
        receiver: &UserId,
        conversation: &ConversationId,
        expected: Seq,
        to: Option<Seq>,
    ) -> Result<bool> {
        let mut state = self.write()?;
        let Some(rows) = state.pending.get_mut(receiver) else {
            return Ok(false);
        };
        if rows.get(conversation) != Some(&expected) {
            return Ok(false);
        }
        match to {
            Some(seq) => rows.insert(conversation.clone(), seq),
            None => rows.remove(conversation),
        };
        Ok(true)
    }
}

#[async_trait]
impl MessageStatus for Memory {
    async fn advance(
        &self,
        user: &UserId,
        conversation: &ConversationId,
        delivered: Seq,
        read: Seq,
    ) -> Result<Advanced> {
        let mut state = self.write()?;
        let before = state.boundaries(user, conversation);
        let (after, moved) = state.raise(user, conversation, delivered, read);
        if moved {
            let passed = before.last_delivered_seq + 1..=after.last_delivered_seq;
            state.close_holes(conversation, passed, self.clock.now_ms());
        }
        let row = status_row(user, conversation, &after);
        Ok(Advanced { row, read_before: before.last_read_seq, moved })
    }

    async fn status(&self, user: &UserId, conversation: &ConversationId) -> Result<StatusRow> {
        Ok(status_row(user, conversation, &self.read().boundaries(user, conversation)))
    }

    async fn has_acked_all(&self, user: &UserId, conversation: &ConversationId) -> Result<bool> {
        let state = self.read();
        let Some((side, known)) = conversation.side_of(user).zip(state.conversations.get(conversation))
        else {
            return Ok(true);
        };
        let acked = state.boundaries(user, conversation).last_delivered_seq;
        // A late writer may still fill a hole.
        let there = known.messages.range(acked + 1..).count() as u64;
        Ok(known.counter.max(known.last_seq()) - acked == there && known.unread_of(side, acked) == 0)
    }

    async fn notified(&self, user: &UserId, conversation: &ConversationId) -> Result<(StatusRow, Seq)> {
        let state = self.read();
        let row = status_row(user, conversation, &state.boundaries(user, conversation));
        Ok((row, state.notified_of(user, conversation)))
    }

    async fn raise_notified(&self, user: &UserId, conversation: &ConversationId, seq: Seq) -> Result<()> {
        let mut state = self.write()?;
        let notified =
            state.notified.entry(user.clone()).or_default().entry(conversation.clone()).or_default();
        *notified = seq.max(*notified);
        Ok(())
    }

    async fn statuses_of(&self, user: &UserId) -> Result<Vec<StatusRow>> {
        let state = self.read();
        let rows = state.status.get(user).into_iter().flatten();
        Ok(rows.map(|(id, boundaries)| status_row(user, id, boundaries)).collect())
    }
}

pub(super) fn status_row(user: &UserId, conversation: &ConversationId, boundaries: &Boundaries) -> StatusRow {
    StatusRow {
        user_id: user.clone(),
        conversation_id: conversation.clone(),
        last_delivered_seq: boundaries.last_delivered_seq,
        last_read_seq: boundaries.last_read_seq,
    }
}

#[async_trait]
impl Conversations for Memory {
    async fn conversation(&self, user: &UserId, id: &ConversationId) -> Result<Option<ConversationRow>> {
        Ok(self.read().row(user, id))
    }

    async fn conversations_of(&self, user: &UserId) -> Result<Vec<ConversationRow>> {
        Ok(self.read().rows(user))
    }

    async fn inbox(
        &self,
        user: &UserId,
        after: Option<&InboxPosition>,
        limit: usize,
    ) -> Result<(Vec<ConversationRow>, bool)> {
        let mut rows = self.read().newest_first(user);
        rows.retain(|row| after.is_none_or(|after| position(row) < *after));
        let more = rows.len() > limit;
        rows.truncate(limit);
        Ok((rows, more))
    }

    async fn active_since(
        &self,
        user: &UserId,
        since_ms: u64,
        limit: usize,
    ) -> Result<Vec<ActiveConversation>> {
        let state = self.read();
        let rows = state.newest_first(user).into_iter();
        let active = rows.filter(|row| row.last_message_ts >= since_ms).take(limit);
        Ok(active
            .filter_map(|row| {
                let last = state.conversations.get(&row.conversation_id)?.messages.get(&row.last_seq)?;
                Some(ActiveConversation {
                    conversation_id: row.conversation_id,
                    last_seq: row.last_seq,
                    last_message_id: last.message_id,
                })
            })
            .collect())
    }

    async fn undelivered(
        &self,
        user: &UserId,
        after: Option<&ConversationId>,
        limit: usize,
    ) -> Result<Undelivered> {
        let state = self.read();
        let mut rest = state.conversations.iter().filter_map(|(id, conversation)| {
            let side = id.side_of(user).filter(|_| after.is_none_or(|after| id > after))?;
            Some((id, side, conversation))
        });
        let mut page = Undelivered::default();
        let mut last = None;
        for (id, side, conversation) in rest.by_ref().take(limit) {
            last = Some(id);
            let acked = state.boundaries(user, id).last_delivered_seq;
            if conversation.unread_of(side, acked.max(conversation.erased_up_to[side.index()])) > 0 {
                page.conversations.push(id.clone());
            }
        }
        page.next = last.filter(|_| rest.next().is_some()).cloned();
        Ok(page)
    }

    async fn total_unread(&self, user: &UserId) -> Result<u64> {
        Ok(self.read().rows(user).iter().map(|row| row.unread_count).sum())
    }

    /// The row is counted at every read, so there is nothing to repair.
    async fn recount(&self, user: &UserId, id: &ConversationId) -> Result<(u64, u64)> {
        let unread = self.write()?.row(user, id).map_or(0, |row| row.unread_count);
        Ok((unread, unread))
    }
}

fn position(row: &ConversationRow) -> InboxPosition {
    InboxPosition { last_message_ts: row.last_message_ts, conversation_id: row.conversation_id.clone() }
}

impl MemoryTables {
    fn row(&self, user: &UserId, id: &ConversationId) -> Option<ConversationRow> {
        let side = id.side_of(user)?;
        let conversation = self.conversations.get(id)?;
        let last = conversation.shown_to(side)?;
        let peer_id = id.member(side.other());
        let peer_wrote = conversation.has_written_to(side);
        let frozen = self.blocks.get(&peer_id).and_then(|blocked| blocked.get(user));
        let profile = frozen.or_else(|| self.profiles.get(&peer_id)).filter(|_| peer_wrote);
        let profile = profile.cloned().unwrap_or_default();
        let last_read_seq = self.boundaries(user, id).last_read_seq;
        Some(ConversationRow {
            user_id: user.clone(),
            conversation_id: id.clone(),
            peer_id,
            peer_wrote,
            peer_name: profile.name,
            avatar_url: profile.avatar_url,
            last_message_preview: last.preview(),
            last_message_ts: last.ts,
            last_seq: last.seq,
            last_sender: last.sender(),
            unread_count: conversation.unread_of(side, last_read_seq),
        })
    }

    fn rows(&self, user: &UserId) -> Vec<ConversationRow> {
        self.conversations.keys().filter_map(|id| self.row(user, id)).collect()
    }

    fn newest_first(&self, user: &UserId) -> Vec<ConversationRow> {
        let mut rows = self.rows(user);
        rows.sort_by_key(|row| std::cmp::Reverse(position(row)));
        rows
    }
}

#[async_trait]
impl Users for Memory {
    async fn profile(&self, user: &UserId) -> Result<Profile> {
        Ok(self.read().profiles.get(user).cloned().unwrap_or_default())
    }

    async fn put_profile(&self, user: &UserId, profile: Profile) -> Result<()> {
        self.write()?.profiles.insert(user.clone(), profile);
        Ok(())
    }

    async fn blocks(&self, user: &UserId, other: &UserId) -> Result<bool> {
        Ok(self.read().blocks.get(user).is_some_and(|blocked| blocked.contains_key(other)))
    }

    async fn set_block(&self, user: &UserId, other: &UserId, blocked: bool) -> Result<()> {
        let mut state = self.write()?;
        let profile = state.profiles.get(user).cloned().unwrap_or_default();
        let list = state.blocks.entry(user.clone()).or_default();
        if blocked {
            list.entry(other.clone()).or_insert(profile);
        } else {
            list.remove(other);
        }
        Ok(())
    }

    async fn blocked_by(&self, user: &UserId) -> Result<Vec<UserId>> {
        Ok(self.read().blocks.get(user).into_iter().flat_map(|blocked| blocked.keys()).cloned().collect())
    }

    async fn mute(&self, user: &UserId, mute: Mute) -> Result<()> {
        let mut state = self.write()?;
        state.mutes.entry(user.clone()).or_default().insert(mute.conversation_id.clone(), mute);
        Ok(())
    }

    async fn unmute(&self, user: &UserId, conversation: &ConversationId) -> Result<()> {
        remove_row(&mut self.write()?.mutes, user, conversation);
        Ok(())
    }

    async fn muted(&self, user: &UserId, conversation: &ConversationId) -> Result<Option<Mute>> {
        Ok(self.read().mutes.get(user).and_then(|mutes| mutes.get(conversation)).cloned())
    }

    async fn mutes_of(&self, user: &UserId) -> Result<Vec<Mute>> {
        Ok(self.read().mutes.get(user).into_iter().flat_map(|mutes| mutes.values()).cloned().collect())
    }

    async fn not_before(&self, user: &UserId) -> Result<Option<u64>> {
        Ok(self.read().not_before.get(user).copied())
    }

    async fn raise_not_before(&self, user: &UserId, secs: u64) -> Result<()> {
        let mut state = self.write()?;
        let kept = state.not_before.entry(user.clone()).or_default();
        *kept = secs.max(*kept);
        Ok(())
    }
}

fn remove_row<T>(
    rows: &mut BTreeMap<UserId, BTreeMap<ConversationId, T>>,
    user: &UserId,
    conversation: &ConversationId,
) {
    if let Some(rows) = rows.get_mut(user) {
        rows.remove(conversation);
    }
}

#[async_trait]
impl Maintenance for Memory {
    async fn health(&self) -> Health {
        let refusing = self.read().closed.then(|| "the store is closed".to_owned());
        Health { backend: "memory", refusing, ..Health::default() }
    }

    async fn backup(&self, _sink: BackupSink<'_>) -> Result<u64> {
        Err(StoreError::Unsupported("a backup of the store in memory".into()))
    }

    async fn erase_member(&self, user: &UserId, conversation: &ConversationId) -> Result<u64> {
        let mut state = self.write()?;
        let Some(side) = conversation.side_of(user) else {
            return Ok(0);
        };
        remove_row(&mut state.pending, user, conversation);
        remove_row(&mut state.status, user, conversation);
        remove_row(&mut state.notified, user, conversation);
        remove_row(&mut state.mutes, user, conversation);
        state.push_outbox.remove(&(user.clone(), conversation.clone()));
        Ok(state.conversations.get_mut(conversation).map_or(0, |c| c.erase(side)))
    }

    /// Blocks by others stay: an erased user who returns stays blocked. `not_before` stays as well.
    async fn erase_user(&self, user: &UserId) -> Result<()> {
        let mut state = self.write()?;
        state.profiles.remove(user);
        state.blocks.remove(user);
        state.mutes.remove(user);
        state.devices.retain(|_, row| row.user_id != *user);
        state.push_outbox.retain(|_, owed| owed.user_id != *user);
        Ok(())
    }

    async fn memberships(&self, user: &UserId) -> Result<Vec<ConversationId>> {
        let state = self.read();
        let by_message = state.conversations.iter().filter_map(|(id, conversation)| {
            id.side_of(user).filter(|&side| conversation.concerns(side)).map(|_| id)
        });
        let by_status = state.status.get(user).into_iter().flat_map(|rows| rows.keys());
        let by_pending = state.pending.get(user).into_iter().flat_map(|rows| rows.keys());
        let all = by_message.chain(by_status).chain(by_pending).cloned();
        Ok(all.collect::<BTreeSet<_>>().into_iter().collect())
    }

    async fn checkpoint(&self) -> Result<()> {
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        self.read().closed = true;
        Ok(())
    }
}
