//! Reads of `conversations`. The order of a user's inbox is a hint in Redis: with a complete set, a
//! page costs one batch of rows. Without one, all rows of the user are read and the set is rebuilt
//! from them.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, Seq, Side, UserId};

use super::{
    DynamoStore,
    client::PartitionQuery,
    item::{Attributes as _, Item, n, s},
    row::{CountedRow, row_key},
    tables::Table,
    users::user_key,
    write::Write,
};
use crate::{
    ActiveConversation, ConversationRow, Conversations, InboxPosition, MessageStatus as _, Result,
    StoreError, Undelivered, redis::InboxRead,
};

/// The item of `users` that marks an inbox order as stale.
const STALE: &str = "inbox";
/// How much the clocks of nodes may differ.
const CLOCKS_DIFFER_MS: u64 = 60_000;
const TRIES: usize = 60;
/// A row read by its key costs a whole unit; in a query of all the user's rows it costs about a
/// tenth.
const ROWS_ONE_BY_ONE: usize = 50;

fn position(row: &ConversationRow) -> InboxPosition {
    InboxPosition { last_message_ts: row.last_message_ts, conversation_id: row.conversation_id.clone() }
}

impl DynamoStore {
    /// Moves a conversation to its place in a member's inbox. If Redis cannot be reached, the table
    /// marks the order as stale: a complete set that lacks the conversation would hide the message
    /// from a device that resumes (R6).
    pub(super) async fn touch(&self, id: &ConversationId, side: Side, ts: Option<u64>) -> Result<()> {
        let (Some(ts), user) = (ts, id.member(side)) else { return Ok(()) };
        match self.redis.inbox_touch(&user, id, ts).await {
            Ok(()) => Ok(()),
            Err(error) => {
                tracing::debug!(%error, "redis missed an inbox update; the order is marked as stale and rebuilt");
                self.mark_stale(&user).await
            }
        }
    }

    async fn mark_stale(&self, user: &UserId) -> Result<()> {
        let write = Write::update(Table::Users, user_key(user, STALE), "SET #stale_at = :now")
            .value(":now", n(self.clock.now_ms()));
        self.dynamo.write(&write).await.map(|_| ())
    }

    /// The same for a repeated send: if its place was never set, it gets the current time, in the
    /// row too, because a device may have resumed in between.
    pub(super) async fn touch_again(&self, row: CountedRow) -> Result<()> {
        let Some(shown) = &row.shown else { return Ok(()) };
        let (user, id) = (row.user(), row.conversation_id.clone());
        match self.redis.inbox_score(&user, &id).await {
            // A set that is being made may have read the row before it was written.
            Ok(None) => self.touch(&id, row.side, Some(shown.ts)).await,
            Ok(Some(Some(score))) if score >= shown.ts => Ok(()),
            Ok(Some(_)) => {
                let (now, side, mut late) = (self.clock.now_ms(), row.side, row);
                for _ in 0..TRIES {
                    if let Some(shown) = &mut late.shown {
                        shown.ts = shown.ts.max(now);
                    }
                    match self.replace(&late).await? {
                        None => break,
                        Some(other) => late = other,
                    }
                }
                self.touch(&id, side, Some(now)).await
            }
            Err(_) => self.mark_stale(&user).await,
        }
    }

    async fn all_rows(&self, user: &UserId) -> Result<Vec<CountedRow>> {
        let items = self.dynamo.query_all(Table::Conversations, s(user)).await?;
        items.iter().map(|item| CountedRow::of_user(item, user)).collect()
    }

    /// All rows of a user, newest first; and the order in Redis made from them.
    async fn rebuild(&self, user: &UserId) -> Result<Vec<CountedRow>> {
        // First the mark, then the rows: who sends in between finds the mark and adds to the set.
        let token = self.redis.inbox_begin(user).await;
        let built_at = self.clock.now_ms();
        let mut rows = self.all_rows(user).await?;
        rows.retain(|row| row.shown.is_some());
        let place =
            |row: &CountedRow| (row.shown.as_ref().map(|shown| shown.ts), row.conversation_id.clone());
        rows.sort_by_key(|row| std::cmp::Reverse(place(row)));
        if let Ok(token) = token {
            let order: Vec<_> = rows
                .iter()
                .filter_map(|row| Some((row.conversation_id.clone(), row.shown.as_ref()?.ts)))
                .collect();
            let finished = self.redis.inbox_finish(user, &token, &order, built_at).await;
            metrics::counter!("bluetick_inbox_rebuilds_total").increment(1);
            if let Err(error) = finished {
                tracing::debug!(%error, "an inbox order could not be kept");
            }
        }
        Ok(rows)
    }

    /// The rows of some conversations, in no order.
    async fn rows_of(&self, user: &UserId, ids: &[ConversationId]) -> Result<Vec<CountedRow>> {
        let keys = ids.iter().map(|id| row_key(user, id)).collect();
        let items = self.dynamo.get_many(Table::Conversations, keys).await?;
        items.iter().map(|item| CountedRow::of_user(item, user)).collect()
    }

    async fn public(&self, rows: Vec<CountedRow>) -> Result<Vec<ConversationRow>> {
        let mut public = Vec::with_capacity(rows.len());
        for row in rows {
            public.extend(self.exact(row).await?.into_public());
        }
        Ok(public)
    }

    /// A page out of all rows of the user.
    async fn page_of_all(
        &self,
        user: &UserId,
        after: Option<&InboxPosition>,
        limit: usize,
    ) -> Result<(Vec<ConversationRow>, bool)> {
        let mut rows = self.rebuild(user).await?;
        rows.retain(|row| {
            row.shown.as_ref().is_some_and(|shown| {
                after.is_none_or(|after| {
                    (shown.ts, &row.conversation_id) < (after.last_message_ts, &after.conversation_id)
                })
            })
        });
        let more = rows.len() > limit;
        rows.truncate(limit);
        Ok((self.public(rows).await?, more))
    }

    /// `last_delivered_seq` of some conversations, which are in order and lie behind `after`;
    /// nothing where there is no receipt.
    async fn delivered_of(
        &self,
        user: &UserId,
        after: Option<&ConversationId>,
        of: &[(ConversationId, Seq)],
    ) -> Result<BTreeMap<ConversationId, Seq>> {
        let Some((last, _)) = of.last() else { return Ok(BTreeMap::new()) };
        let items = if of.len() <= ROWS_ONE_BY_ONE {
            let keys = of.iter().map(|(id, _)| row_key(user, id)).collect();
            self.dynamo.get_many(Table::MessageStatus, keys).await?
        } else {
            let (mut items, mut start) = (Vec::new(), after.map(|after| row_key(user, after)));
            loop {
                let query = PartitionQuery {
                    range: Some(("<=", s(last))),
                    only: Some("#conversation_id, #last_delivered_seq"),
                    start: start.take(),
                    ..PartitionQuery::of(Table::MessageStatus, s(user))
                };
                let (page, next) = self.dynamo.query(&query).await?;
                items.extend(page);
                match next {
                    Some(next) => start = Some(next),
                    None => break items,
                }
            }
        };
        items.iter().map(|item| Ok((item.conversation()?, item.seq("last_delivered_seq")))).collect()
    }

    async fn is_stale_since(&self, user: &UserId) -> Result<Option<u64>> {
        let item = self.dynamo.get(Table::Users, user_key(user, STALE)).await?;
        Ok(item.as_ref().and_then(|item: &Item| item.number("stale_at")))
    }
}

#[async_trait]
impl Conversations for DynamoStore {
    async fn conversation(&self, user: &UserId, id: &ConversationId) -> Result<Option<ConversationRow>> {
        let Some(side) = id.side_of(user) else { return Ok(None) };
        let row = self.row(id, side).await?;
        Ok(self.exact(row).await?.into_public())
    }

    async fn conversations_of(&self, user: &UserId) -> Result<Vec<ConversationRow>> {
        let rows = self.all_rows(user).await?;
        self.public(rows).await
    }

    async fn inbox(
        &self,
        user: &UserId,
        after: Option<&InboxPosition>,
        limit: usize,
    ) -> Result<(Vec<ConversationRow>, bool)> {
        let mut page: BTreeMap<InboxPosition, ConversationRow> = BTreeMap::new();
        let mut from = after.cloned();
        loop {
            let wanted = limit - page.len();
            let (ids, more) = match self.redis.inbox_page(user, from.as_ref(), wanted).await {
                Ok(InboxRead::Page { ids, more, .. }) => (ids, more),
                Ok(InboxRead::Incomplete | InboxRead::BeyondCap) | Err(_) => {
                    return self.page_of_all(user, after, limit).await;
                }
            };
            let names: Vec<_> = ids.iter().map(|(id, _)| id.clone()).collect();
            let rows = self.rows_of(user, &names).await?;
            for row in self.public(rows).await? {
                // A row that moved up since the order was read belongs to an earlier page.
                if after.is_none_or(|after| position(&row) < *after) {
                    page.insert(position(&row), row);
                }
            }
            from = ids
                .into_iter()
                .next_back()
                .map(|(conversation_id, last_message_ts)| InboxPosition { last_message_ts, conversation_id });
            if !more || page.len() >= limit || from.is_none() {
                return Ok((page.into_values().rev().collect(), more));
            }
        }
    }

    async fn active_since(
        &self,
        user: &UserId,
        since_ms: u64,
        limit: usize,
    ) -> Result<Vec<ActiveConversation>> {
        let (order, stale) =
            tokio::join!(self.redis.inbox_since(user, since_ms, limit), self.is_stale_since(user));
        let stale = stale?;
        let rows = match order {
            Ok(InboxRead::Page { ids, built_at, .. })
                if stale.is_none_or(|stale| stale + CLOCKS_DIFFER_MS < built_at) =>
            {
                let names: Vec<_> = ids.iter().map(|(id, _)| id.clone()).collect();
                let mut rows = match names.len() > ROWS_ONE_BY_ONE {
                    true => self.all_rows(user).await?,
                    false => self.rows_of(user, &names).await?,
                };
                let place = |row: &CountedRow| {
                    (row.shown.as_ref().map(|shown| shown.ts), row.conversation_id.clone())
                };
                rows.sort_by_key(|row| std::cmp::Reverse(place(row)));
                rows
            }
            _ => self.rebuild(user).await?,
        };
        let active = rows.iter().filter(|row| row.shown.as_ref().is_some_and(|shown| shown.ts >= since_ms));
        Ok(active.filter_map(CountedRow::as_active).take(limit).collect())
    }

    /// A page of the user's rows, and of `message_status` only what they leave open: what is read
    /// is delivered.
    async fn undelivered(
        &self,
        user: &UserId,
        after: Option<&ConversationId>,
        limit: usize,
    ) -> Result<Undelivered> {
        let query = PartitionQuery {
            limit: Some(i32::try_from(limit).unwrap_or(i32::MAX).max(1)),
            only: Some(
                "#conversation_id, #last_seq, #unread_count, #counted_seq, #counted_last, #erased_up_to",
            ),
            start: after.map(|after| row_key(user, after)),
            ..PartitionQuery::of(Table::Conversations, s(user))
        };
        let (items, next) = self.dynamo.query(&query).await?;
        let next = next.map(|last| last.conversation()).transpose()?;
        let mut open: Vec<(ConversationId, Seq)> = Vec::new();
        for item in &items {
            let (last, counted) = (item.seq("last_seq"), item.seq("counted_seq"));
            // Behind a hole nothing is counted: there the last message may be the peer's.
            let end = if last > counted { last } else { item.seq("counted_last") };
            let is_read = item.seq("unread_count") == 0 && last <= counted;
            if !is_read && end > item.seq("erased_up_to") {
                open.push((item.conversation()?, end));
            }
        }
        let delivered = self.delivered_of(user, after, &open).await?;
        let is_undelivered =
            |(id, end): &(ConversationId, Seq)| delivered.get(id).is_none_or(|seq| seq < end);
        let conversations = open.into_iter().filter(is_undelivered).map(|(id, _)| id).collect();
        Ok(Undelivered { conversations, next })
    }

    async fn total_unread(&self, user: &UserId) -> Result<u64> {
        let rows = self.all_rows(user).await?;
        let mut total = 0;
        for row in rows.into_iter().filter(|row| row.shown.is_some()) {
            total += self.exact(row).await?.unread;
        }
        Ok(total)
    }

    async fn recount(&self, user: &UserId, id: &ConversationId) -> Result<(u64, u64)> {
        self.writable()?;
        let Some(side) = id.side_of(user) else { return Ok((0, 0)) };
        for _ in 0..TRIES {
            let row = self.row(id, side).await?;
            if row.shown.is_none() {
                return Ok((0, 0));
            }
            let before = self.exact(row.clone()).await?.unread;
            let row = self.bring_up(row, None).await?;
            let read = self.status(user, id).await?.last_read_seq.max(row.erased_up_to);
            let unread = self.count_between(&row, read, row.counted_seq).await?;
            let mut next = row.clone();
            (next.read_seq, next.unread) = (read, unread);
            if next == row || self.replace(&next).await?.is_none() {
                let after = self.exact(next).await?.unread;
                return Ok((before, after));
            }
        }
        Err(StoreError::unavailable("a conversation that is written to very much"))
    }
}
