//! A page of a conversation, forwards or backwards. It ends at the limit of messages or before the
//! first message that would exceed the limit of bytes on the wire; `next` says where to continue.

use std::sync::Arc;

use async_trait::async_trait;
use bluetick_protocol::{ErrorCode, HistoryPage, HistoryQuery, Seq, UserId, WireError, limits};
use bluetick_store::{Message, PageLimit};

use crate::{AppResult, ChatService, HistoryApi, wire};

#[async_trait]
impl HistoryApi for ChatService {
    async fn history(&self, user: UserId, query: HistoryQuery) -> AppResult<HistoryPage> {
        let HistoryQuery { reference, conversation_id: id, after_seq, before_seq, limit } = query;
        if after_seq.is_some() && before_seq.is_some() {
            return Err(ChatService::bad_request("give \"after_seq\" or \"before_seq\", not both"));
        }
        let limit = page_limit(limit, limits::HISTORY_DEFAULT_LIMIT, limits::HISTORY_MAX_LIMIT)?;
        // An encoded message is never shorter than the stored one, so this is enough to fill a
        // page.
        let limit = PageLimit { messages: limit, bytes: limits::PAGE_ENCODED_MAX_BYTES };
        let side = self.member_of(&user, &id).await?;
        let last_seq = self.store.messages.last_seq(&id).await.map_err(wire)?;
        let (mut messages, mut from_seq, mut to_seq, mut next) = match after_seq {
            Some(after) => {
                let from = after.saturating_add(1);
                let (messages, next) = match from <= last_seq {
                    true => self.read_without_holes(&id, from, limit, last_seq).await?,
                    false => (Vec::new(), from),
                };
                (messages, from, next - 1, Some(next - 1).filter(|&to| to < last_seq && to > after))
            }
            None => {
                // Nothing precedes the first message: 0 asks for the same empty page as 1.
                let before = before_seq.unwrap_or(u64::MAX).clamp(1, last_seq + 1);
                let read = || self.store.messages.read_before(&id, before, limit);
                let mut messages = read().await.map_err(wire)?;
                if let Some(hole) = first_gap(&messages, before) {
                    // The reader treats a missing seq as void, so it must be void in the store
                    // (R8).
                    self.read_without_holes(&id, hole, limit, before - 1).await?;
                    messages = read().await.map_err(wire)?;
                }
                let from = messages.first().map_or(before, |m| m.seq);
                (
                    messages,
                    from,
                    before.saturating_sub(1),
                    Some(from).filter(|&from| from > 1 && from < before),
                )
            }
        };
        messages.retain(|m| m.visible_to(side));
        if after_seq.is_some() {
            if let Some(cut) = first_beyond_page(messages.iter()) {
                to_seq = cut - 1;
                next = Some(to_seq);
                messages.retain(|m| m.seq <= to_seq);
            }
        } else if let Some(cut) = first_beyond_page(messages.iter().rev()) {
            from_seq = cut + 1;
            next = Some(from_seq);
            messages.retain(|m| m.seq >= from_seq);
        }
        Ok(HistoryPage {
            reference,
            conversation_id: id,
            messages: messages.iter().map(|m| m.to_frame()).collect(),
            from_seq,
            to_seq,
            next,
        })
    }
}

/// The seq of the first message that does not fit the page. The first one always fits.
fn first_beyond_page<'a>(mut messages: impl Iterator<Item = &'a Arc<Message>>) -> Option<Seq> {
    let mut bytes = messages.next()?.encoded_bytes();
    let beyond = messages.find(|message| {
        bytes += message.encoded_bytes();
        bytes > limits::PAGE_ENCODED_MAX_BYTES
    });
    beyond.map(|message| message.seq)
}

/// The first seq that is missing between the messages of a page, or between them and its end.
fn first_gap(page: &[Arc<Message>], before: Seq) -> Option<Seq> {
    let first = page.first()?.seq;
    let found = (first..before).zip(page).find(|(seq, message)| message.seq != *seq);
    found.map(|(seq, _)| seq).or_else(|| {
        let next = page.last()?.seq + 1;
        (next < before).then_some(next)
    })
}

/// A page's size, within bounds.
pub(crate) fn page_limit(asked: Option<u32>, default: u32, max: u32) -> AppResult<usize> {
    match asked.unwrap_or(default) {
        0 => Err(WireError::new(ErrorCode::BadRequest, "\"limit\" must be at least 1")),
        limit => Ok(limit.min(max) as usize),
    }
}
