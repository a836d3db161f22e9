//! The systems of the embedded store: each trait, over memory, engine and committer.

use std::{collections::BTreeSet, sync::Arc, sync::atomic::Ordering};

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, MessageId, Mute, Profile, Seq, Side, UserId};

use super::{
    Embedded, StoreCore,
    cold::reads::missing,
    committer::{PreparedSends, ReadForSend, SendOutcome, WriteOp},
    engine::Space,
    memtable::Candidates,
    sent_ids::KnownId,
    state::{Conv, Mark},
};
use crate::{
    ActiveConversation, Advanced, BackupSink, Committed, ConversationRow, Conversations, Health,
    InboxPosition, Maintenance, Message, MessageStatus, Messages, NewMessage, Noted, PageLimit,
    PendingDeliveries, PendingRow, Result, StatusRow, StoreError, Undelivered, Users,
};

/// So many conversations of a user are read where they are asked for, if they are in memory: that takes less time than
/// another thread.
const FEW: usize = 16;

impl StoreCore {
    fn conv(&self, id: &ConversationId) -> Result<Option<Arc<Conv>>> {
        self.memtable.conv(&self.engine, id)
    }

    /// A boundary of a member at a seq, clamped to the end of the conversation. Nothing if the seq is not hot.
    pub(super) fn hot_mark(&self, conv: &Conv, side: Side, seq: Seq) -> Result<Option<Mark>> {
        if seq >= conv.last_seq {
            return Ok(Some(Mark { seq: conv.last_seq, counted: conv.counted[side.other().index()] }));
        }
        let member = conv.member(side);
        if let Some(known) = [member.delivered, member.read].into_iter().find(|mark| mark.seq == seq) {
            return Ok(Some(known));
        }
        if seq == 0 {
            return Ok(Some(Mark::default()));
        }
        let entry = self.memtable.entry(&self.engine, &conv.id, seq)?;
        Ok(entry.map(|entry| Mark { seq, counted: entry.counted[side.other().index()] }))
    }

    fn row(&self, conv: &Conv, side: Side) -> Result<Option<ConversationRow>> {
        if conv.member(side).last.is_none() {
            return Ok(None);
        }
        let counted_at_erasure = match conv.member(side).erased {
            0 => 0,
            erased => {
                let entry = self.memtable.entry(&self.engine, &conv.id, erased)?;
                // The message may have moved to the cold tier. Then whatever the other wrote since counts.
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

    /// The rows of those of a user's conversations for which `pick` has one.
    fn per_conversation<T>(
        &self,
        space: Space,
        user: &UserId,
        pick: impl FnMut(&Conv, Side) -> Result<Option<T>>,
    ) -> Result<Vec<T>> {
        self.per_candidate(self.memtable.candidates(&self.engine, space, user)?, user, pick)
    }

    fn per_candidate<T>(
        &self,
        candidates: Candidates,
        user: &UserId,
        mut pick: impl FnMut(&Conv, Side) -> Result<Option<T>>,
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

    pub(super) fn hashes(&self, sends: &[NewMessage]) -> Vec<u128> {
        sends.iter().map(|new| self.hash(&new.conversation_id, new.from, &new.client_msg_id)).collect()
    }

    /// The checkpoint count, and which of these hashes the engine has.
    pub(super) fn look_up(&self, hashes: &[u128]) -> Result<(u64, Vec<KnownId>)> {
        let looked_up_at = self.checkpoints.load(Ordering::Acquire);
        Ok((looked_up_at, self.engine.sent_ids.records(hashes, self.clock.now_ms())?))
    }
}

/// The side a user is on, for a write. A stranger's rows are simply not there to be read.
fn side_of(id: &ConversationId, user: &UserId) -> Result<Side> {
    id.side_of(user).ok_or_else(|| StoreError::Unsupported("that user is not in this conversation".into()))
}

impl Embedded {
    /// Reads a user's conversations: here if they are few and in memory, and off the async threads otherwise.
    async fn nearby<T: Send + 'static>(
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

    /// Answers a repeated send with the original, and notes it as undelivered if nobody took it (R9) or has acked it.
    async fn duplicate(&self, new: &NewMessage, seq: Seq) -> Result<Committed> {
        let id = &new.conversation_id;
        let message = self.message_at(id, seq).await?;
        new.check_repeats(&message)?;
        if new.undelivered && !message.withheld {
            let side = new.from.other();
            if self.status(&id.member(side), id).await?.last_delivered_seq < seq {
                let push_due = new.push_due;
                self.ask(|reply| WriteOp::Note { id: id.clone(), side, seq, push_due, reply }).await?;
            }
        }
        Ok(Committed { message, duplicate: true, implied_read: None })
    }

    /// What the sender's client had seen, and the boundary that is there. No send fails for want of a cold message: then it
    /// implies no read.
    async fn seen_by(&self, new: &NewMessage) -> Result<Option<(Seq, Mark)>> {
        let Some(seq) = new.seen_seq else { return Ok(None) };
        let Some(conv) = self.shared.conv(&new.conversation_id)? else {
            return Ok(Some((seq, Mark::default())));
        };
        if let Some(mark) = self.shared.hot_mark(&conv, new.from, seq)? {
            return Ok(Some((seq, mark)));
        }
        let there = conv.member(new.from).read;
        let mark = self.mark_at(&conv, new.from, seq, there).await.unwrap_or_else(|error| {
            tracing::warn!(conversation = %conv.id, seq, %error, "a reply implies no read: what was seen is not readable");
            there
        });
        Ok(Some((seq, mark)))
    }

    /// Each send has its own answer; only an engine that cannot be read fails all of them.
    async fn commit(&self, mut sends: Vec<NewMessage>) -> Vec<Result<Committed>> {
        if let Some(why) = self.shared.refusing() {
            return sends.iter().map(|_| Err(StoreError::Full(why.clone()))).collect();
        }
        let hashes = self.shared.hashes(&sends);
        let (looked_up_at, known) = match self.shared.look_up(&hashes) {
            Ok(found) => found,
            Err(e) => return sends.iter().map(|_| Err(e.clone())).collect(),
        };
        let mut answers: Vec<Option<Result<Committed>>> = sends.iter().map(|_| None).collect();
        for KnownId { place, seq, .. } in known {
            answers[place] = Some(self.duplicate(&sends[place], seq).await);
        }
        let mut read = Vec::with_capacity(sends.len());
        for ((new, answer), hash) in sends.iter().zip(&mut answers).zip(hashes) {
            if answer.is_none() {
                match self.seen_by(new).await {
                    Ok(seen) => read.push(ReadForSend { hash, seen }),
                    Err(e) => *answer = Some(Err(e)),
                }
            }
        }
        if read.len() < sends.len() {
            let mut answered = answers.iter().map(Option::is_some);
            sends.retain(|_| answered.next() == Some(false));
        }
        if !sends.is_empty() {
            let prepared = PreparedSends { sends, read, looked_up_at };
            let outcomes = self.ask(|reply| WriteOp::Sends(prepared, reply)).await;
            let (outcomes, failed) = match outcomes {
                Ok(outcomes) => (outcomes, StoreError::unavailable("the committer")),
                Err(e) => (Vec::new(), e),
            };
            let mut outcomes = outcomes.into_iter();
            for answer in answers.iter_mut().filter(|answer| answer.is_none()) {
                *answer = Some(match outcomes.next() {
                    Some(SendOutcome::Stored { message, implied_read }) => {
                        Ok(Committed { message, duplicate: false, implied_read })
                    }
                    Some(SendOutcome::Duplicate(seq, new)) => self.duplicate(&new, seq).await,
                    None => Err(failed.clone()),
                });
            }
        }
        answers.into_iter().flatten().collect()
    }
}

#[async_trait]
impl Messages for Embedded {
    async fn commit_sends(&self, sends: Vec<NewMessage>) -> Vec<Result<Committed>> {
        self.commit(sends).await
    }

    async fn read_from(
        &self,
        conversation: &ConversationId,
        from: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Arc<Message>>> {
        let id = conversation.clone();
        let read = move |shared: &StoreCore| {
            let entries = shared.read_from(&id, from, limit)?;
            Ok(entries.into_iter().map(|e| e.message).collect())
        };
        match self.shared.memtable.holds_from(conversation, from) {
            true => read(&self.shared),
            false => self.blocking(read).await,
        }
    }

    async fn read_before(
        &self,
        conversation: &ConversationId,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Arc<Message>>> {
        let id = conversation.clone();
        self.blocking(move |shared| {
            let entries = shared.read_before(&id, before, limit)?;
            Ok(entries.into_iter().map(|e| e.message).collect())
        })
        .await
    }

    async fn last_seq(&self, conversation: &ConversationId) -> Result<Seq> {
        Ok(self.shared.conv(conversation)?.map_or(0, |conv| conv.last_seq))
    }

    /// The append gives the seq, so there are no holes to close.
    async fn close_hole(&self, _conversation: &ConversationId, _seq: Seq) -> Result<()> {
        Ok(())
    }

    /// An operator's question, answered without an index that every send would pay for: ids grow within a
    /// conversation, so each is searched by halving. What is cold is not looked at.
    async fn find(&self, message_id: MessageId) -> Result<Option<Arc<Message>>> {
        self.blocking(move |shared| {
            let mut ids = shared.memtable.dirty_ids();
            for conv in shared.engine.all_convs() {
                ids.insert(conv?.id);
            }
            for id in ids {
                let Some(conv) = shared.conv(&id)? else { continue };
                let (mut low, mut high) = (shared.border(&id)? + 1, conv.last_seq);
                while low <= high {
                    let middle = low + (high - low) / 2;
                    let Some(entry) = shared.memtable.entry(&shared.engine, &id, middle)? else {
                        break;
                    };
                    match entry.message.message_id.cmp(&message_id) {
                        std::cmp::Ordering::Equal => return Ok(Some(entry.message)),
                        std::cmp::Ordering::Less => low = middle + 1,
                        std::cmp::Ordering::Greater => high = middle - 1,
                    }
                }
            }
            Ok(None)
        })
        .await
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
                row: Conv::new(conversation.clone()).status_row(side),
                read_before: 0,
                moved: false,
            });
        };
        let visible = conv.last_visible(side);
        let member = conv.member(side);
        let delivered = self.mark_at(&conv, side, delivered.min(visible), member.delivered).await?;
        let read = self.mark_at(&conv, side, read.min(visible), member.read).await?;
        // Boundaries only grow: what is behind them already needs no write.
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
        // Whoever connects has just read their inbox. With few conversations that is all there is to look at.
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
            let read = Mark { seq: conv.member(side).read.seq, counted };
            let id = id.clone();
            self.ask(|reply| WriteOp::Recount { id, side, read, reply }).await?;
        }
        Ok((before, after))
    }
}

#[async_trait]
impl Users for Embedded {
    async fn profile(&self, user: &UserId) -> Result<Profile> {
        Ok(self.shared.memtable.user(&self.shared.engine, user)?.profile.clone())
    }

    async fn put_profile(&self, user: &UserId, profile: Profile) -> Result<()> {
        let user = user.clone();
        self.ask(|reply| WriteOp::Profile { user, profile, reply }).await
    }

    async fn blocks(&self, user: &UserId, other: &UserId) -> Result<bool> {
        Ok(self.shared.memtable.user(&self.shared.engine, user)?.blocked.contains_key(other))
    }

    async fn set_block(&self, user: &UserId, other: &UserId, blocked: bool) -> Result<()> {
        let (user, other) = (user.clone(), other.clone());
        self.ask(|reply| WriteOp::Block { user, other, blocked, reply }).await
    }

    async fn blocked_by(&self, user: &UserId) -> Result<Vec<UserId>> {
        Ok(self.shared.memtable.user(&self.shared.engine, user)?.blocked.keys().cloned().collect())
    }

    async fn mute(&self, user: &UserId, mute: Mute) -> Result<()> {
        self.put_mute(user, &mute).await
    }

    async fn unmute(&self, user: &UserId, conversation: &ConversationId) -> Result<()> {
        self.remove_mute(user, conversation).await
    }

    async fn muted(&self, user: &UserId, conversation: &ConversationId) -> Result<Option<Mute>> {
        self.mute_of(user, conversation)
    }

    async fn mutes_of(&self, user: &UserId) -> Result<Vec<Mute>> {
        self.mutes(user).await
    }

    async fn not_before(&self, user: &UserId) -> Result<Option<u64>> {
        self.not_before_of(user)
    }

    async fn raise_not_before(&self, user: &UserId, secs: u64) -> Result<()> {
        self.put_not_before(user, secs).await
    }
}

#[async_trait]
impl Maintenance for Embedded {
    async fn health(&self) -> Health {
        Health {
            backend: "embedded",
            degraded: None,
            refusing: self.shared.refusing(),
            free_bytes: self.shared.free_bytes(),
            log_bytes: self.shared.log_bytes.load(Ordering::Relaxed),
            unflushed_messages: self.shared.unflushed.load(Ordering::Relaxed),
        }
    }

    async fn backup(&self, sink: BackupSink<'_>) -> Result<u64> {
        self.write_backup(sink).await
    }

    async fn erase_member(&self, user: &UserId, conversation: &ConversationId) -> Result<u64> {
        let side = side_of(conversation, user)?;
        let id = conversation.clone();
        let erased = self
            .blocking(move |shared| {
                let (mut from, mut erased) = (1, 0);
                loop {
                    let page = shared.read_from(&id, from, PageLimit::messages(1000))?;
                    let Some(last) = page.last() else {
                        return Ok(erased);
                    };
                    from = last.message.seq + 1;
                    erased +=
                        page.iter().filter(|e| e.message.from == side && !e.message.void).count() as u64;
                }
            })
            .await?;
        let id = conversation.clone();
        self.ask(|reply| WriteOp::Erase { id, side, reply }).await?;
        Ok(erased)
    }

    async fn erase_user(&self, user: &UserId) -> Result<()> {
        let user = user.clone();
        self.ask(|reply| WriteOp::EraseUser { user, reply }).await?;
        // The bytes themselves go with the log segments and the engine's old tables.
        self.ask(WriteOp::Checkpoint).await.map(drop)
    }

    async fn memberships(&self, user: &UserId) -> Result<Vec<ConversationId>> {
        let user = user.clone();
        self.blocking(move |shared| {
            let listed = shared.per_conversation(Space::Members, &user, |conv, side| {
                Ok(conv.lists(side).then(|| conv.id.clone()))
            })?;
            Ok(listed.into_iter().collect::<BTreeSet<_>>().into_iter().collect())
        })
        .await
    }

    async fn checkpoint(&self) -> Result<()> {
        self.ask(WriteOp::Checkpoint).await.map(drop)
    }

    async fn close(&self) -> Result<()> {
        self.shut().await
    }
}
