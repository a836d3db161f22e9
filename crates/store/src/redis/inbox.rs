//! The inbox order: `inbox:{user}`, a sorted set of conversations by time, capped, rebuilt from
//! `conversations`.
//!
//! After a flush, the first touch creates a set that lacks every other conversation. So a set
//! carries markers of its own state: members that are no conversations, with negative scores.
//!
//! | member | score | meaning |
//! | --- | --- | --- |
//! | `#` | −built_at | the set is complete and answers reads |
//! | `@run_id` | −2 | complete on this server only: a replica that took over, or a restart from a snapshot, may lack the last writes |
//! | `?token` | −1 | a rebuild is in progress; touches are added too |
//! | `!` | −floor − 1 | cut at the cap: the set answers nothing at or below the floor |
//!
//! A rebuild first adds its token and then reads `conversations`. A change after the read touches a
//! set that accepts it; a change before the read is part of it. Eviction removes a set together
//! with its markers.

use std::time::Duration;

use ::redis::{Value, cmd};
use bluetick_protocol::{ConversationId, UserId};

use super::{
    Redis,
    connection::random,
    scripts::{INBOX_BEGIN, INBOX_FILL, INBOX_PAGE, INBOX_REMOVE, INBOX_SCORE, INBOX_TOUCH, ScriptCall},
};
use crate::{InboxPosition, Result};

/// Conversations of a user in the set. Older ones are read from `conversations`.
pub const INBOX_CAP: usize = 10_000;
/// A complete set is rebuilt after this, which bounds the life of any error in it.
const KEPT: Duration = Duration::from_secs(3600);
/// The leftovers of a crashed rebuild expire after this.
const UNFINISHED_KEPT: Duration = Duration::from_secs(300);
/// Rows in one call of a rebuild: Redis serves nobody else while a script runs.
const ROWS: usize = 1000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InboxRead {
    /// The set is missing or incomplete: rebuild it, or read `conversations`.
    Incomplete,
    /// Newest first, each with its time.
    Page { ids: Vec<(ConversationId, u64)>, more: bool, built_at: u64 },
    /// The page reaches below the cap: read `conversations`.
    BeyondCap,
}

impl Redis {
    fn inbox(&self, user: &UserId) -> String {
        self.key("inbox", user.as_str())
    }

    /// Opens the set for a rebuild. `conversations` must be read after this, and consistently.
    pub async fn inbox_begin(&self, user: &UserId) -> Result<String> {
        let token = format!("{:016x}", random());
        let call = ScriptCall::on([self.inbox(user)])
            .arg(format!("?{token}"))
            .arg(UNFINISHED_KEPT.as_millis() as u64);
        self.eval::<Value>(&INBOX_BEGIN, call).await?;
        Ok(token)
    }

    /// Adds the rows and marks the set complete. `false` if the set was deleted or completed by
    /// another rebuild meanwhile; the rows are valid all the same.
    pub async fn inbox_finish(
        &self,
        user: &UserId,
        token: &str,
        rows: &[(ConversationId, u64)],
        built_at: u64,
    ) -> Result<bool> {
        let mut rows: Vec<_> = rows.iter().map(|(id, ts)| (*ts, id.as_str())).collect();
        rows.sort_unstable_by(|a, b| b.cmp(a));
        // One beyond the cap, so that the script sees that it cuts.
        rows.truncate(INBOX_CAP + 1);
        let mut rest = rows.as_slice();
        loop {
            let (batch, left) = rest.split_at(rest.len().min(ROWS));
            rest = left;
            let mut call = ScriptCall::on([self.inbox(user)])
                .arg(format!("?{token}"))
                .arg(INBOX_CAP)
                .arg(KEPT.as_millis() as u64);
            call = match rest.is_empty() {
                true => call.arg(built_at.max(1)),
                false => call.arg(""),
            };
            for (ts, id) in batch {
                call = call.arg(ts).arg(id);
            }
            let open: bool = self.eval(&INBOX_FILL, call).await?;
            if !open || rest.is_empty() {
                return Ok(open);
            }
        }
    }

    /// Moves a conversation up to a time, never down. A set that missed this would hide a
    /// conversation from a device that resumes (R6), so after a failure the set is deleted in the
    /// background as soon as Redis answers.
    pub async fn inbox_touch(&self, user: &UserId, conversation: &ConversationId, ts: u64) -> Result<()> {
        let call = ScriptCall::on([self.inbox(user)]).arg(INBOX_CAP).arg(ts).arg(conversation.as_str());
        let touched = self.eval::<Value>(&INBOX_TOUCH, call).await;
        if touched.is_err() {
            self.inbox_is_stale(user);
        }
        touched.map(drop)
    }

    /// Deletes the set; the next read rebuilds it.
    pub async fn inbox_forget(&self, user: &UserId) -> Result<()> {
        self.query::<Value>(cmd("UNLINK").arg(self.inbox(user)).take()).await.map(drop)
    }

    /// Removes one conversation.
    pub async fn inbox_remove(&self, user: &UserId, conversation: &ConversationId) -> Result<()> {
        let call = ScriptCall::on([self.inbox(user)]).arg(conversation.as_str());
        self.eval::<Value>(&INBOX_REMOVE, call).await.map(drop)
    }

    /// The time of a conversation in the set; the outer `None` if the set is not complete.
    pub async fn inbox_score(
        &self,
        user: &UserId,
        conversation: &ConversationId,
    ) -> Result<Option<Option<u64>>> {
        let call = ScriptCall::on([self.inbox(user)]).arg(conversation.as_str());
        let standing: Option<String> = self.eval(&INBOX_SCORE, call).await?;
        Ok(standing.map(|text| score(&text)))
    }

    /// A page after a position, newest first, in the order of [`InboxPosition`].
    pub async fn inbox_page(
        &self,
        user: &UserId,
        after: Option<&InboxPosition>,
        limit: usize,
    ) -> Result<InboxRead> {
        let call = ScriptCall::on([self.inbox(user)]).arg(limit).arg(0);
        let call = match after {
            Some(after) => call.arg(after.last_message_ts).arg(after.conversation_id.as_str()),
            None => call.arg("").arg(""),
        };
        self.inbox_read(call, limit).await
    }

    /// The conversations active at or after a time, newest first.
    pub async fn inbox_since(&self, user: &UserId, since_ms: u64, limit: usize) -> Result<InboxRead> {
        let call = ScriptCall::on([self.inbox(user)]).arg(limit).arg(since_ms).arg("").arg("");
        self.inbox_read(call, limit).await
    }

    async fn inbox_read(&self, call: ScriptCall, limit: usize) -> Result<InboxRead> {
        let Some(answer): Option<Vec<String>> = self.eval(&INBOX_PAGE, call).await? else {
            return Ok(InboxRead::Incomplete);
        };
        let [built_at, more, cut, page @ ..] = answer.as_slice() else {
            return Ok(InboxRead::Incomplete);
        };
        let (pairs, _) = page.as_chunks::<2>();
        let read = |[id, ts]: &[String; 2]| Some((ConversationId::new(id).ok()?, score(ts)?));
        let ids: Vec<_> = pairs.iter().filter_map(read).collect();
        let cut = cut == "1";
        if cut && pairs.len() < limit {
            return Ok(InboxRead::BeyondCap);
        }
        let built_at = built_at.strip_prefix('-').and_then(score).unwrap_or_default();
        Ok(InboxRead::Page { ids, more: more == "1" || cut, built_at })
    }
}

/// Scores are floating point, which holds whole milliseconds exactly.
fn score(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| text.parse::<f64>().ok().map(|score| score as u64))
}
