//! What the server has stored, held against what everybody was told.

use std::{
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use bluetick_client::{Client, HistoryRange};
use bluetick_protocol::*;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{harness::*, history::History};

pub struct StoredRows<'a> {
    pub server: &'a Server,
    /// Of a member of the conversations that are looked at.
    pub client: &'a Client,
    pub history: &'a Mutex<History>,
}

impl StoredRows<'_> {
    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap()
    }

    /// Waits until somebody who has acked all has no pending row.
    pub async fn pending_go(&self, name: &str, after: &str) {
        let until = Instant::now() + SOON;
        loop {
            let rows = self.server.rows("pending", name).await;
            if rows.is_empty() {
                return;
            }
            assert!(Instant::now() < until, "after {after}: {name} has acked all and still has {rows:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Compares a conversation after a seq, and the rows that its members have of it. Gives the last seq.
    pub async fn compare(&self, id: &ConversationId, known: Seq) -> Seq {
        let stored = self.stored_after(id, known).await;
        let last = stored.last().map_or(known, |m| m.seq);
        if known == 0 || !stored.is_empty() {
            self.history().compare(id, &stored);
        }
        for member in members(id) {
            self.compare_row(&member, id, last).await;
        }
        last
    }

    async fn stored_after(&self, id: &ConversationId, after: Seq) -> Vec<MessageFrame> {
        let (mut stored, mut from) = (Vec::new(), after);
        loop {
            let range = HistoryRange::After(from);
            let page = self.client.history(id.clone(), range, Some(200)).await.unwrap();
            stored.extend(page.messages);
            match page.next {
                Some(next) => from = next,
                None => return stored,
            }
        }
    }

    /// A member's boundaries are no further than what they said, and unread is what a count says.
    async fn compare_row(&self, member: &UserId, id: &ConversationId, last: Seq) {
        let (boundaries, row) = self.at_one_time(member, id).await;
        self.history().compare_status(member, id, &boundaries);
        if number(&row, "last_seq") != last {
            self.history().fault(format!("{member}'s row of {id} does not end at {last}: {row:?}"));
        }
        let unread = self.stored_after(id, boundaries.last_read_seq).await;
        let counted = unread.iter().filter(|m| m.sender != *member).count() as u64;
        if number(&row, "unread_count") != counted {
            self.history().fault(format!("{member} has {counted} unread in {id}, and the row: {row:?}"));
        }
    }

    /// Boundaries and row that belong together: a receipt may still be on its way.
    async fn at_one_time(&self, member: &UserId, id: &ConversationId) -> (Boundaries, Option<Value>) {
        loop {
            let before = self.boundaries(member, id).await;
            let row = self.row("conversations", member, id).await;
            if self.boundaries(member, id).await == before {
                return (before, row);
            }
        }
    }

    async fn boundaries(&self, member: &UserId, id: &ConversationId) -> Boundaries {
        let status = self.row("status", member, id).await;
        Boundaries {
            last_delivered_seq: number(&status, "last_delivered_seq"),
            last_read_seq: number(&status, "last_read_seq"),
        }
    }

    async fn row(&self, what: &str, member: &UserId, id: &ConversationId) -> Option<Value> {
        let rows = self.server.rows(what, member.as_str()).await;
        rows.into_iter().find(|row| row["conversation_id"] == id.as_str())
    }

    /// Both members read all there is: every tick is blue, here and in what the client is told, and nothing is unread.
    pub async fn all_turn_blue(&self, id: &ConversationId, last: Seq, after: &str) {
        for member in members(id) {
            self.history().will_read(&member, id, last);
            let path = self.server.http(&format!("/v1/conversations/{id}/read"));
            let token = self.server.mint(member.as_str());
            let read = crate::http::client().post(path).bearer_auth(token).json(&json!({"seq": last}));
            let answer = read.send().await.unwrap();
            assert_eq!(answer.status().as_u16(), 204, "after {after}: {member} reads");
            let all = Boundaries { last_delivered_seq: last, last_read_seq: last };
            assert_eq!(self.boundaries(&member, id).await, all, "after {after}: {member} in {id}");
            let row = self.row("conversations", &member, id).await;
            assert_eq!(number(&row, "unread_count"), 0, "after {after}: {member}'s row: {row:?}");
        }
    }
}

fn members(id: &ConversationId) -> [UserId; 2] {
    let (one, other) = id.as_str().split_once('~').unwrap();
    [user(one), user(other)]
}

fn number(row: &Option<Value>, key: &str) -> u64 {
    row.as_ref().and_then(|row| row[key].as_u64()).unwrap_or(0)
}

/// Looks until something has become so.
pub async fn wait_for(in_vain: impl Fn() -> String, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < until, "{}", in_vain());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
