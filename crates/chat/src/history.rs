//! A page of a conversation, forwards or backwards.

use std::sync::Arc;

use bluetick_protocol::{ErrorCode, HistoryPage, HistoryQuery, Seq, UserId, WireError, limits};
use bluetick_store::{Message, PageLimit};

use crate::{Answer, Node, wire};

impl Node {
    pub(crate) async fn history_page(&self, user: UserId, query: HistoryQuery) -> Answer<HistoryPage> {
        let HistoryQuery { reference, conversation_id: id, after_seq, before_seq, limit } = query;
        if after_seq.is_some() && before_seq.is_some() {
            return Err(Node::bad_request("give \"after_seq\" or \"before_seq\", not both"));
        }
        let limit = page_limit(limit, limits::HISTORY_DEFAULT_LIMIT, limits::HISTORY_MAX_LIMIT)?;
        let side = self.member_of(&user, &id).await?;
        let last_seq = self.store.messages.last_seq(&id).await.map_err(wire)?;
        let (messages, from_seq, to_seq, next) = match after_seq {
            Some(after) => {
                let from = after.saturating_add(1);
                let (messages, next) = match from <= last_seq {
                    true => self.read_without_holes(&id, from, limit, last_seq).await?,
                    false => (Vec::new(), from),
                };
                (messages, from, next - 1, Some(next - 1).filter(|&to| to < last_seq && to > after))
            }
            None => {
                let before = before_seq.unwrap_or(u64::MAX).min(last_seq + 1);
                let read = || self.store.messages.read_before(&id, before, PageLimit::messages(limit));
                let mut messages = read().await.map_err(wire)?;
                if let Some(hole) = first_gap(&messages, before) {
                    // Whoever reads the page takes what is missing for void, so it must be (R8).
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
        let visible = messages.iter().filter(|m| m.visible_to(side));
        Ok(HistoryPage {
            reference,
            conversation_id: id,
            messages: visible.map(|m| m.to_frame()).collect(),
            from_seq,
            to_seq,
            next,
        })
    }
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
pub(crate) fn page_limit(asked: Option<u32>, default: u32, max: u32) -> Answer<usize> {
    match asked.unwrap_or(default) {
        0 => Err(WireError::new(ErrorCode::BadRequest, "\"limit\" must be at least 1")),
        limit => Ok(limit.min(max) as usize),
    }
}
