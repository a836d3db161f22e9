//! `cold_due`: PK shard, SK time and conversation. Finds old messages without a scan of all
//! messages.
//!
//! The first message of a conversation lists it under the time at which that message will be old.
//! The flag `cold_listed` in the members' `conversations` rows says that it is listed; a send reads
//! its row anyway, so only a send that finds no flag pays for the listing. The entry is written
//! before the flag is set, and the flag is cleared before the entry is deleted: a crash in between
//! lists a conversation twice, never not at all.
//!
//! A mover that finds nothing left to grow old clears the flag and then checks once more
//! (`looked_at`): a send that still saw the flag had stored its message before. The flag changes a
//! row's version, so that no stale row is put back.

use std::collections::BTreeSet;

use bluetick_protocol::{ConversationId, Side};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::{
    DynamoStore,
    client::{PartitionQuery, Scan},
    item::{Attributes as _, Item, ItemKey, damaged, flag, key, n, s},
    row::{CountedRow, row_key},
    tables::Table,
    write::{Write, WriteOutcome},
};
use crate::{COLD_SHARDS, ColdCandidate, EnlistPlace, Result, cold_shard};

/// Conversations that are listed concurrently.
const AT_ONCE: usize = 16;
/// The first rows of a conversation are written within this time.
const SOON_MS: u64 = 60_000;
/// The sort key of a shard's lease; it sorts after every time.
const LEASE: &str = "lease";

fn shard_name(shard: u16) -> String {
    format!("{shard:02}")
}

fn due_key(conversation: &ConversationId, due_at: u64) -> ItemKey {
    let shard = shard_name(cold_shard(conversation));
    key([("shard", s(shard)), ("due", s(format!("{due_at:015}#{conversation}")))])
}

fn read_due(item: &Item) -> Result<ColdCandidate> {
    let wrong = || damaged("due", "it is no time and conversation");
    let (due_at, id) = item.need_text("due")?.split_once('#').ok_or_else(wrong)?;
    Ok(ColdCandidate {
        conversation_id: ConversationId::new(id).map_err(|e| damaged("due", e))?,
        due_at: Some(due_at.parse().map_err(|_| wrong())?),
    })
}

/// What is due by a time. `$` is the character after `#`.
fn due_by(shard: u16, now: u64) -> PartitionQuery {
    PartitionQuery {
        range: Some(("<", s(format!("{now:015}$")))),
        ..PartitionQuery::of(Table::ColdDue, s(shard_name(shard)))
    }
}

impl DynamoStore {
    pub(super) async fn put_due(&self, conversation: &ConversationId, due_at: u64) -> Result<()> {
        self.dynamo.write(&Write::put(Table::ColdDue, due_key(conversation, due_at))).await.map(|_| ())
    }

    /// Lists a new conversation. Returns whether its rows should say so. One that is due so soon
    /// that a mover may check it before its rows exist is listed after them.
    pub(super) async fn list_beginning(&self, conversation: &ConversationId, ts: u64) -> bool {
        let Some(cold_after_ms) = self.cold_after_ms.filter(|&after| after >= SOON_MS) else { return false };
        self.put_due(conversation, ts + cold_after_ms).await.is_ok()
    }

    /// Lists a conversation if the sender's row does not say that it is. A failure fails no send:
    /// the next one tries again.
    pub(super) async fn list_if_unlisted(&self, row: &CountedRow, ts: u64) {
        let Some(cold_after_ms) = self.cold_after_ms.filter(|_| !row.cold_listed && row.version > 0) else {
            return;
        };
        if let Err(error) = self.list(&row.conversation_id, ts + cold_after_ms).await {
            tracing::warn!(conversation = %row.conversation_id, %error, "not listed to become cold");
        }
    }

    /// Returns whether a row did not say so before.
    async fn list(&self, conversation: &ConversationId, due_at: u64) -> Result<bool> {
        self.put_due(conversation, due_at).await?;
        let changed = self.flag_both(conversation, true).await?;
        // Somebody may have looked, and taken it off, before there was a flag to take away.
        if self.dynamo.get(Table::ColdDue, due_key(conversation, due_at)).await?.is_none() {
            self.put_due(conversation, due_at).await?;
        }
        Ok(changed)
    }

    /// Returns whether any row said otherwise.
    async fn flag_both(&self, conversation: &ConversationId, listed: bool) -> Result<bool> {
        let mut changed = false;
        for side in Side::BOTH {
            let key = row_key(&conversation.member(side), conversation);
            let write = match listed {
                true => Write::update(
                    Table::Conversations,
                    key,
                    "SET #version = #version + :one, #cold_listed = :yes",
                )
                .only_if("attribute_exists(#version) AND attribute_not_exists(#cold_listed)")
                .value(":yes", flag()),
                false => Write::update(
                    Table::Conversations,
                    key,
                    "SET #version = #version + :one REMOVE #cold_listed",
                )
                .only_if("attribute_exists(#cold_listed)"),
            };
            let written = self.dynamo.write(&write.value(":one", n(1))).await?;
            changed |= matches!(written, WriteOutcome::Done(_));
        }
        Ok(changed)
    }

    pub(super) async fn due(
        &self,
        shard: u16,
        after: Option<&ColdCandidate>,
        now: u64,
        limit: usize,
    ) -> Result<Vec<ColdCandidate>> {
        let after = after.and_then(|after| Some((after, after.due_at?)));
        if after.is_some_and(|(_, due_at)| due_at > now) {
            return Ok(Vec::new());
        }
        let mut query = PartitionQuery {
            limit: Some(limit.clamp(1, 1_000) as i32),
            start: after.map(|(after, due_at)| due_key(&after.conversation_id, due_at)),
            ..due_by(shard, now)
        };
        loop {
            let (items, next) = self.dynamo.query(&query).await?;
            if !items.is_empty() || next.is_none() {
                return items.iter().map(read_due).collect();
            }
            query.start = next;
        }
    }

    pub(super) async fn list_again(&self, candidate: &ColdCandidate, next: Option<u64>) -> Result<()> {
        let id = &candidate.conversation_id;
        let old = candidate.due_at.filter(|due_at| Some(*due_at) != next);
        let old = old.map(|due_at| Write::delete(Table::ColdDue, due_key(id, due_at)));
        let Some(next) = next else {
            self.flag_both(id, false).await?;
            if let Some(old) = old {
                self.dynamo.write(&old).await?;
            }
            return Ok(());
        };
        self.put_due(id, next).await?;
        let was_listed = match old {
            Some(old) => {
                let old = old.only_if("attribute_exists(#due)");
                matches!(self.dynamo.write(&old).await?, WriteOutcome::Done(_))
            }
            None => false,
        };
        if !was_listed {
            // It was taken off the list before the last look, and something was left.
            self.flag_both(id, true).await?;
        }
        Ok(())
    }

    /// Flags are believed only while anything is listed at all: a table that was lost and made anew
    /// lists nothing.
    pub(super) async fn list_page(&self, now: u64, from: EnlistPlace) -> Result<(u64, Option<EnlistPlace>)> {
        let believed = match from.believed {
            Some(believed) => believed,
            None => self.lists_anything().await?,
        };
        let start = from.after.map(|(user, conversation)| row_key(&user, &conversation));
        let scan = Scan { start, ..Scan::of(Table::Conversations) };
        let (items, next) = self.dynamo.scan(&scan).await?;
        // Both rows of a conversation may be on one page.
        let (mut unlisted, mut lost, mut count) = (BTreeSet::new(), BTreeSet::new(), 0);
        for item in &items {
            let id = item.conversation()?;
            match item.has("cold_listed") {
                false => drop(unlisted.insert(id)),
                true if believed => {}
                true => {
                    count += u64::from(id.side_of(&item.user("user_id")?) == Some(Side::Low));
                    lost.insert(id);
                }
            }
        }
        let listed: Vec<bool> = stream::iter(unlisted)
            .map(|id| async move { self.list(&id, now).await })
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        count += listed.into_iter().filter(|&changed| changed).count() as u64;
        stream::iter(lost)
            .map(|id| async move { self.put_due(&id, now).await })
            .buffer_unordered(AT_ONCE)
            .try_collect::<Vec<()>>()
            .await?;
        let after = match next {
            Some(last) => Some((last.user("user_id")?, last.conversation()?)),
            None => None,
        };
        Ok((count, after.map(|after| EnlistPlace { after: Some(after), believed: Some(believed) })))
    }

    async fn lists_anything(&self) -> Result<bool> {
        for shard in 0..COLD_SHARDS {
            let query = PartitionQuery { limit: Some(1), ..due_by(shard, 999_999_999_999_999) };
            if !self.dynamo.query(&query).await?.0.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) async fn lease_shard(&self, shard: u16, holder: &str, now: u64, until: u64) -> Result<bool> {
        let key = key([("shard", s(shard_name(shard))), ("due", s(LEASE))]);
        let write = Write::update(Table::ColdDue, key, "SET #holder = :holder, #until = :until")
            .only_if("attribute_not_exists(#holder) OR #holder = :holder OR #until <= :now")
            .value(":holder", s(holder))
            .value(":until", n(until))
            .value(":now", n(now));
        Ok(matches!(self.dynamo.write(&write).await?, WriteOutcome::Done(_)))
    }
}

#[cfg(test)]
mod tests {
    use bluetick_protocol::UserId;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_due_key_leads_back_to_its_conversation(
            one in "[A-Za-z0-9._@+|:=-]{1,128}", other in "[A-Za-z0-9._@+|:=-]{1,128}", due_at in 0u64..1 << 45,
        ) {
            let members = [one, other].map(|id| UserId::new(&id).unwrap());
            let Some(id) = ConversationId::between(&members[0], &members[1]) else { return Ok(()) };
            let found = read_due(&due_key(&id, due_at)).unwrap();
            prop_assert_eq!((found.conversation_id, found.due_at), (id, Some(due_at)));
        }
    }
}
