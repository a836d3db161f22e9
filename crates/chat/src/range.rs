//! Reads consecutive messages of a conversation for one of its members: without holes
//! ([`R8`](crate::rules::Rule::R8)) and without messages that the member may not see.

use std::sync::Arc;

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, ErrorCode, MessageId, Seq, UserId, WireError};
use bluetick_store::{Message, PageLimit};
use futures_util::future::join_all;

use crate::{AppResult, ChatService, MessageRange, RangeApi, RangeRequest, ReadFrom, wire};

/// Messages that one probe reads, in case the first are void.
const PROBE: usize = 4;
/// After this many own messages in a row the delivered boundary is moved past them.
const OWN_RUN: Seq = 16;
/// Messages that are searched at once for an unacked one.
const PAGE: usize = 256;
/// Most holes that are closed concurrently.
const HOLES_AT_ONCE: usize = 16;

#[async_trait]
impl RangeApi for ChatService {
    async fn read_range(&self, request: RangeRequest) -> AppResult<MessageRange> {
        let RangeRequest { user, conversation_id: id, from, max_messages, max_bytes } = request;
        let limit = PageLimit { messages: max_messages, bytes: max_bytes };
        let side = id.side_of(&user).ok_or_else(WireError::not_found)?;
        let last_seq = self.store.messages.last_seq(&id).await.map_err(wire)?;
        let first_seq = self.beginning(&user, &id, from, last_seq).await?;
        let (messages, next_seq) = self.read_without_holes(&id, first_seq, limit, last_seq).await?;
        let messages = messages.into_iter().filter(|m| m.visible_to(side)).collect();
        Ok(MessageRange { first_seq, messages, next_seq, last_seq: last_seq.max(next_seq - 1) })
    }
}

impl ChatService {
    /// The seq at which a session begins to read a conversation: no later than the first message
    /// that no device has acked ([`R3`](crate::rules::Rule::R3)).
    pub(crate) async fn beginning(
        &self,
        user: &UserId,
        id: &ConversationId,
        from: ReadFrom,
        last_seq: Seq,
    ) -> AppResult<Seq> {
        match from {
            ReadFrom::Seq(seq) => Ok(seq.max(1)),
            ReadFrom::Since { at_most, .. } if at_most <= 1 => Ok(1),
            ReadFrom::Since { since, at_most } => {
                let newer = match since {
                    MessageId::MAX => last_seq + 1,
                    since => self.first_since(id, since, last_seq).await?,
                };
                let first = newer.min(at_most).max(1);
                Ok(self.first_owed_before(user, id, first).await?.unwrap_or(first))
            }
        }
    }

    /// The first seq whose message is newer than `since`; one past the end if none is. Ids grow
    /// with seqs, so a galloping search from the end finds it in logarithmic time.
    async fn first_since(&self, id: &ConversationId, since: MessageId, last_seq: Seq) -> AppResult<Seq> {
        let (mut newer, mut step) = (last_seq + 1, 1);
        let mut older = loop {
            if newer == 1 {
                return Ok(1);
            }
            let probe = newer.saturating_sub(step).max(1);
            if !self.is_newer(id, probe, since).await? {
                break probe;
            }
            (newer, step) = (probe, step * 2);
        };
        while newer - older > 1 {
            let middle = older + (newer - older) / 2;
            match self.is_newer(id, middle, since).await? {
                true => newer = middle,
                false => older = middle,
            }
        }
        Ok(newer)
    }

    /// The first message of the peer before `first` that no device has acked: its delivery was
    /// never finished, or the session that took it is slow or gone. A session that began after it
    /// would ack it unseen with its later acks, and could not send it in order when it arrives.
    async fn first_owed_before(
        &self,
        user: &UserId,
        id: &ConversationId,
        first: Seq,
    ) -> AppResult<Option<Seq>> {
        let side = id.side_of(user).ok_or_else(WireError::not_found)?;
        let acked = self.store.status.status(user, id).await.map_err(wire)?.last_delivered_seq;
        let nothing_owed = self.store.status.has_acked_all(user, id).await.map_err(wire)?;
        let mut next = if nothing_owed { first } else { acked + 1 };
        while next < first {
            let (messages, after) = self.read_without_holes(id, next, PAGE, first - 1).await?;
            let is_owed = |m: &&Arc<Message>| m.seq < first && m.from != side && m.visible_to(side);
            if let Some(owed) = messages.iter().find(is_owed) {
                return Ok(Some(owed.seq));
            }
            if after == next {
                return Err(WireError::new(ErrorCode::Unavailable, "a message is being written; try again"));
            }
            next = after;
        }
        if next > acked + OWN_RUN {
            // Spares the next session the search. If the boundary cannot be moved, it searches
            // again.
            let _ = self.store.status.advance(user, id, first - 1, 0).await;
        }
        Ok(None)
    }

    /// Whether the message at a seq, or the first after it that is not void, is newer than `since`.
    async fn is_newer(&self, id: &ConversationId, seq: Seq, since: MessageId) -> AppResult<bool> {
        let page = self.store.messages.read_from(id, seq, PageLimit::messages(PROBE)).await.map_err(wire)?;
        Ok(page.iter().find(|m| !m.void).is_none_or(|m| m.message_id > since))
    }

    /// Messages from a seq on, and the seq after them. At a hole it waits a moment, reads again,
    /// and closes the hole with a void, so that its late writer fails and takes a new seq
    /// ([`R8`](crate::rules::Rule::R8)).
    pub(crate) async fn read_without_holes(
        &self,
        id: &ConversationId,
        from: Seq,
        limit: impl Into<PageLimit>,
        last_seq: Seq,
    ) -> AppResult<(Vec<Arc<Message>>, Seq)> {
        let limit = limit.into();
        let read = || self.store.messages.read_from(id, from, limit);
        let mut page = read().await.map_err(wire)?;
        if let Some(hole) = first_hole(&page, from, last_seq) {
            tokio::time::sleep(self.config.hole_wait).await;
            page = read().await.map_err(wire)?;
            if let Some(still) = first_hole(&page, from, last_seq) {
                let end = page.iter().map(|m| m.seq).find(|&seq| seq > still).unwrap_or(last_seq + 1);
                tracing::warn!(conversation = %id, seq = still, "closing a hole in the sequence");
                let holes: Vec<Seq> = (still.max(hole)..end).collect();
                for chunk in holes.chunks(HOLES_AT_ONCE) {
                    let closed = chunk.iter().map(|&seq| self.store.messages.close_hole(id, seq));
                    for closed in join_all(closed).await {
                        closed.map_err(wire)?;
                    }
                }
                page = read().await.map_err(wire)?;
            }
        }
        // What follows a hole that is still open is left for the next read.
        let contiguous = (from..).zip(&page).take_while(|(expected, m)| m.seq == *expected);
        let messages: Vec<_> = contiguous.map(|(_, m)| m.clone()).collect();
        let next = messages.last().map_or(from, |m| m.seq + 1);
        Ok((messages, next))
    }
}

/// The first seq that is missing before a message that is there, or before the known end.
fn first_hole(page: &[Arc<Message>], from: Seq, last_seq: Seq) -> Option<Seq> {
    for (expected, message) in (from..).zip(page) {
        if message.seq != expected {
            return Some(expected);
        }
    }
    (page.is_empty() && from <= last_seq).then_some(from)
}
