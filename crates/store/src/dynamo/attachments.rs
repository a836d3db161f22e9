//! `attachments`: PK s3_ref, SK item.
//!
//! | PK | SK | meaning |
//! | --- | --- | --- |
//! | an s3_ref | `row` | what was announced |
//! | an s3_ref | a conversation | a message there refers to it |
//! | `unclaimed#00` to `#15` | an s3_ref | no message refers to it yet |
//! | `owner#` and a user | an s3_ref | the user announced it |
//! | `usage#` and a user | `usage` | how many bytes the user is charged for |
//!
//! An s3_ref begins with its time, so each unclaimed partition is in order of age. An unclaimed
//! entry is written with the announcement, and is deleted with the first claim or with the row.
//!
//! Usage changes in one transaction with the charged row, if it is still as it was read. A table of
//! an earlier version has no usage: the first charge derives it from the user's rows and stores it.

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, S3Ref, UserId};
use futures_util::future::try_join_all;
use rand::RngExt as _;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    DynamoStore,
    client::PartitionQuery,
    item::{Attributes as _, Item, ItemKey, damaged, flag, key, n, s},
    tables::Table,
    write::{Transacted, Write, WriteOutcome},
};
use crate::{
    Announced, AttachmentRow, Attachments, Content, Result, StoreError, UploadQuota, UploadState, UploadUsage,
};

/// The sort key of the row itself. A conversation id contains a `~`, so the two differ.
const ROW: &str = "row";
/// Partitions of the unclaimed attachments.
const UNCLAIMED: u64 = 16;
/// The prefix of their keys. No s3_ref contains this character.
const UNCLAIMED_IN: &str = "unclaimed#";
/// The prefix of the key of a user's announcements.
const OWNED_BY: &str = "owner#";
/// The prefix of the key of a user's usage, and its sort key.
const USAGE_OF: &str = "usage#";
const USAGE: &str = "usage";
/// Attempts to change usage that other servers change too.
const USAGE_TRIES: usize = 10;

pub(super) fn item_key(s3_ref: &S3Ref, item: impl ToString) -> ItemKey {
    key([("s3_ref", s(s3_ref)), ("item", s(item))])
}

fn unclaimed_in(partition: u64) -> String {
    format!("{UNCLAIMED_IN}{partition:02}")
}

pub(super) fn unclaimed_key(s3_ref: &S3Ref) -> ItemKey {
    let partition = xxh3_64(s3_ref.as_str().as_bytes()) % UNCLAIMED;
    key([("s3_ref", s(unclaimed_in(partition))), ("item", s(s3_ref))])
}

fn owned_in(user: &UserId) -> String {
    format!("{OWNED_BY}{user}")
}

pub(super) fn owner_key(row: &AttachmentRow) -> ItemKey {
    key([("s3_ref", s(owned_in(&row.owner))), ("item", s(&row.s3_ref))])
}

fn usage_key(user: &UserId) -> ItemKey {
    key([("s3_ref", s(format!("{USAGE_OF}{user}"))), ("item", s(USAGE))])
}

/// What a user is charged for, as it was read.
struct SeenUsage {
    /// Nothing if the table has no such row yet.
    kept: Option<UploadUsage>,
    usage: UploadUsage,
    /// One of the rows that the usage was derived from and that are charged.
    derived_from: Option<S3Ref>,
}

impl SeenUsage {
    /// Holds while usage that was derived is not outdated. Without it, usage that was counted and
    /// went with the user's last row in between would look like usage that was never counted.
    fn still_derived(&self) -> Option<Write> {
        let row = item_key(self.derived_from.as_ref()?, ROW);
        Some(Write::check(Table::Attachments, row, "attribute_exists(#s3_ref)"))
    }

    /// Writes the usage if it is still the one that was seen.
    fn change(&self, user: &UserId, to: Option<UploadUsage>) -> Write {
        let write = match to {
            None => Write::delete(Table::Attachments, usage_key(user)),
            Some(usage) => {
                let mut item = usage_key(user);
                item.extend(key([
                    ("total_bytes", n(usage.total_bytes)),
                    ("day", n(usage.day)),
                    ("day_bytes", n(usage.day_bytes)),
                ]));
                Write::put(Table::Attachments, item)
            }
        };
        match &self.kept {
            None => write.only_if("attribute_not_exists(#s3_ref)"),
            Some(seen) => write
                .only_if("#total_bytes = :total AND #day = :day AND #day_bytes = :day_bytes")
                .value(":total", n(seen.total_bytes))
                .value(":day", n(seen.day))
                .value(":day_bytes", n(seen.day_bytes)),
        }
    }
}

fn usage_contended() -> StoreError {
    StoreError::unavailable("the upload usage of a user, which several servers are changing,")
}

fn state_name(state: UploadState) -> &'static str {
    match state {
        UploadState::Expected => "expected",
        UploadState::Uploaded => "uploaded",
        UploadState::Collecting => "collecting",
    }
}

pub(super) fn row_item(row: &AttachmentRow) -> Item {
    let mut item = item_key(&row.s3_ref, ROW);
    item.extend(key([
        ("owner", s(&row.owner)),
        ("name", s(&row.name)),
        ("mime", s(&row.mime)),
        ("bytes", n(row.bytes)),
        ("sha256", s(&row.sha256)),
        ("state", s(state_name(row.state))),
    ]));
    if let Some(upload_id) = &row.upload_id {
        item.insert("upload_id".into(), s(upload_id));
    }
    if row.claimed {
        item.insert("claimed".into(), flag());
    }
    item
}

/// What an item of the table is.
pub(super) enum AttachmentItem {
    Record(Content),
    /// An entry of the unclaimed attachments.
    Unclaimed(S3Ref),
    /// An entry of a user's announcements.
    Owned(UserId, S3Ref),
    /// A user's usage, which can be derived from the rest.
    Usage,
}

pub(super) fn read_attachment_item(item: &Item) -> Result<AttachmentItem> {
    let read_ref = |name: &str| S3Ref::new(item.need_text(name)?).map_err(|e| damaged(name, e));
    Ok(match (item.need_text("s3_ref")?, item.need_text("item")?) {
        (partition, _) if partition.starts_with(UNCLAIMED_IN) => AttachmentItem::Unclaimed(read_ref("item")?),
        (partition, _) if partition.starts_with(OWNED_BY) => {
            let user = UserId::new(&partition[OWNED_BY.len()..]).map_err(|e| damaged("s3_ref", e))?;
            AttachmentItem::Owned(user, read_ref("item")?)
        }
        (partition, _) if partition.starts_with(USAGE_OF) => AttachmentItem::Usage,
        (_, ROW) => AttachmentItem::Record(Content::Attachment(read_row(item)?)),
        (_, id) => {
            let conversation_id = ConversationId::new(id).map_err(|e| damaged("item", e))?;
            AttachmentItem::Record(Content::Claim { s3_ref: read_ref("s3_ref")?, conversation_id })
        }
    })
}

fn read_row(item: &Item) -> Result<AttachmentRow> {
    let states = [UploadState::Expected, UploadState::Uploaded, UploadState::Collecting];
    let state = item.need_text("state")?;
    Ok(AttachmentRow {
        s3_ref: S3Ref::new(item.need_text("s3_ref")?).map_err(|e| damaged("s3_ref", e))?,
        owner: item.user("owner")?,
        name: item.need_text("name")?.to_owned(),
        mime: item.need_text("mime")?.to_owned(),
        bytes: item.need_number("bytes")?,
        sha256: item.need_text("sha256")?.to_owned(),
        upload_id: item.owned("upload_id"),
        state: states
            .into_iter()
            .find(|known| state_name(*known) == state)
            .ok_or_else(|| damaged("state", "it is none of those there are"))?,
        claimed: item.has("claimed"),
    })
}

impl DynamoStore {
    async fn seen_usage(&self, user: &UserId) -> Result<SeenUsage> {
        let item = self.dynamo.get(Table::Attachments, usage_key(user)).await?;
        if let Some(item) = item {
            let usage = UploadUsage {
                total_bytes: item.need_number("total_bytes")?,
                day: item.need_number("day")?,
                day_bytes: item.need_number("day_bytes")?,
            };
            return Ok(SeenUsage { kept: Some(usage), usage, derived_from: None });
        }
        let keys = self.owned_by(user).await?.iter().map(|s3_ref| item_key(s3_ref, ROW)).collect();
        let items = self.dynamo.get_many(Table::Attachments, keys).await?;
        let mut rows: Vec<AttachmentRow> = items.iter().map(read_row).collect::<Result<_>>()?;
        rows.sort_by(|one, other| one.s3_ref.as_str().cmp(other.s3_ref.as_str()));
        let charged = rows.iter().find(|row| row.charged_bytes() > 0);
        let derived_from = charged.map(|row| row.s3_ref.clone());
        Ok(SeenUsage { kept: None, usage: UploadUsage::of(&rows), derived_from })
    }

    /// Keeps usage that was derived: a user over the quota may announce again and again. If
    /// somebody changed it meanwhile, they have kept it.
    async fn keep_usage(&self, user: &UserId, seen: &SeenUsage) -> Result<()> {
        if seen.kept.is_none() {
            let mut writes = vec![seen.change(user, Some(seen.usage))];
            writes.extend(seen.still_derived());
            self.dynamo.transact(&writes).await?;
        }
        Ok(())
    }

    /// The oldest of what nobody claimed, of one partition.
    async fn unclaimed_of(&self, partition: u64, before_ms: u64, limit: usize) -> Result<Vec<String>> {
        let mut query = PartitionQuery {
            range: Some(("<", s(format!("{before_ms:012x}")))),
            only: Some("#item"),
            ..PartitionQuery::of(Table::Attachments, s(unclaimed_in(partition)))
        };
        let mut found = Vec::new();
        while found.len() < limit {
            query.limit = Some((limit - found.len()).min(1_000) as i32);
            let (items, next) = self.dynamo.query(&query).await?;
            for item in &items {
                found.push(item.need_text("item")?.to_owned());
            }
            match next {
                Some(next) => query.start = Some(next),
                None => break,
            }
        }
        Ok(found)
    }

    /// Removes the row and what is found by it, and gives back what its owner was charged.
    async fn forget_row(&self, s3_ref: &S3Ref) -> Result<()> {
        let delete = |key| Write::delete(Table::Attachments, key);
        for _ in 0..USAGE_TRIES {
            let Some(row) = self.attachment(s3_ref).await? else {
                self.dynamo.write(&delete(unclaimed_key(s3_ref))).await?;
                return Ok(());
            };
            let mut writes = vec![
                delete(item_key(s3_ref, ROW)).only_if("attribute_exists(#s3_ref)"),
                delete(unclaimed_key(s3_ref)),
                delete(owner_key(&row)),
            ];
            if row.charged_bytes() > 0 {
                let seen = self.seen_usage(&row.owner).await?;
                writes.push(seen.change(&row.owner, seen.usage.give_back(&row)));
            }
            if let Transacted::Done = self.dynamo.transact(&writes).await? {
                return Ok(());
            }
        }
        Err(usage_contended())
    }

    async fn forget_claims(&self, s3_ref: &S3Ref) -> Result<()> {
        let items = self.dynamo.query_all(Table::Attachments, s(s3_ref)).await?;
        let mut claims = Vec::new();
        for item in &items {
            let item = item.need_text("item")?;
            if item != ROW {
                claims.push(item_key(s3_ref, item));
            }
        }
        self.delete_items(Table::Attachments, claims).await
    }
}

#[async_trait]
impl Attachments for DynamoStore {
    async fn announce(&self, row: AttachmentRow, quota: &UploadQuota) -> Result<Announced> {
        self.writable()?;
        let put = Write::put(Table::Attachments, row_item(&row)).only_if("attribute_not_exists(#s3_ref)");
        let mut writes = vec![put, Write::put(Table::Attachments, owner_key(&row))];
        if !row.claimed {
            writes.push(Write::put(Table::Attachments, unclaimed_key(&row.s3_ref)));
        }
        let uncharged = writes.len();
        for _ in 0..USAGE_TRIES {
            writes.truncate(uncharged);
            if row.charged_bytes() > 0 {
                let seen = self.seen_usage(&row.owner).await?;
                match seen.usage.charge(&row, quota) {
                    Ok(charged) => {
                        writes.push(seen.change(&row.owner, Some(charged)));
                        writes.extend(seen.still_derived());
                    }
                    Err(over) => {
                        self.keep_usage(&row.owner, &seen).await?;
                        return Ok(Announced::OverQuota(over));
                    }
                }
            }
            let refused = match self.dynamo.transact(&writes).await? {
                Transacted::Done => return Ok(Announced::Done),
                Transacted::Refused(refused) => refused,
            };
            match refused.into_iter().next().flatten() {
                // The answer to the write got lost, not the write.
                Some(Some(item)) if read_row(&item)? == row => return Ok(Announced::Done),
                Some(_) => return Err(StoreError::Corrupt(format!("{} was announced before", row.s3_ref))),
                // Only the usage was in the way.
                None => {}
            }
        }
        Err(usage_contended())
    }

    async fn upload_usage(&self, user: &UserId) -> Result<UploadUsage> {
        Ok(self.seen_usage(user).await?.usage)
    }

    async fn attachment(&self, s3_ref: &S3Ref) -> Result<Option<AttachmentRow>> {
        let item = self.dynamo.get(Table::Attachments, item_key(s3_ref, ROW)).await?;
        item.as_ref().map(read_row).transpose()
    }

    async fn uploaded(&self, s3_ref: &S3Ref) -> Result<bool> {
        self.writable()?;
        // Whose call it was that found them expected, should its answer get lost.
        let arrival = rand::rng().random_range(1..u64::from(u32::MAX));
        let update = "SET #state = :uploaded, #arrival = :arrival";
        let write = Write::update(Table::Attachments, item_key(s3_ref, ROW), update)
            .only_if("#state = :expected")
            .value(":uploaded", s(state_name(UploadState::Uploaded)))
            .value(":expected", s(state_name(UploadState::Expected)))
            .value(":arrival", n(arrival));
        Ok(match self.dynamo.write(&write).await? {
            WriteOutcome::Done(_) => true,
            WriteOutcome::Refused(item) => item.is_some_and(|item| item.number("arrival") == Some(arrival)),
        })
    }

    async fn claim(&self, s3_ref: &S3Ref, conversation: &ConversationId) -> Result<bool> {
        self.writable()?;
        let row = Write::update(Table::Attachments, item_key(s3_ref, ROW), "SET #claimed = :yes")
            .only_if("#state = :uploaded")
            .value(":uploaded", s(state_name(UploadState::Uploaded)))
            .value(":yes", flag());
        let claim = Write::put(Table::Attachments, item_key(s3_ref, conversation));
        let unclaimed = Write::delete(Table::Attachments, unclaimed_key(s3_ref));
        let claimed = self.dynamo.transact(&[row, claim, unclaimed]).await?;
        Ok(matches!(claimed, Transacted::Done))
    }

    async fn is_claimed_by(&self, s3_ref: &S3Ref, conversation: &ConversationId) -> Result<bool> {
        let item = self.dynamo.get(Table::Attachments, item_key(s3_ref, conversation)).await?;
        Ok(item.is_some())
    }

    async fn owned_by(&self, user: &UserId) -> Result<Vec<S3Ref>> {
        let items = self.dynamo.query_all(Table::Attachments, s(owned_in(user))).await?;
        let s3_ref = |item: &Item| S3Ref::new(item.need_text("item")?).map_err(|e| damaged("item", e));
        items.iter().map(s3_ref).collect()
    }

    async fn unclaimed(&self, before_ms: u64, limit: usize) -> Result<Vec<AttachmentRow>> {
        let partitions = (0..UNCLAIMED).map(|partition| self.unclaimed_of(partition, before_ms, limit));
        let mut found: Vec<String> = try_join_all(partitions).await?.into_iter().flatten().collect();
        found.sort_unstable();
        found.truncate(limit);
        let keys = found.iter().map(|s3_ref| key([("s3_ref", s(s3_ref)), ("item", s(ROW))])).collect();
        let items = self.dynamo.get_many(Table::Attachments, keys).await?;
        let mut rows: Vec<AttachmentRow> = items.iter().map(read_row).collect::<Result<_>>()?;
        // Somebody may have claimed one meanwhile.
        rows.retain(|row| !row.claimed);
        rows.sort_by(|one, other| one.s3_ref.as_str().cmp(other.s3_ref.as_str()));
        Ok(rows)
    }

    async fn collect(&self, s3_ref: &S3Ref) -> Result<bool> {
        self.writable()?;
        let write = Write::update(Table::Attachments, item_key(s3_ref, ROW), "SET #state = :collecting")
            .only_if("attribute_exists(#state) AND attribute_not_exists(#claimed)")
            .value(":collecting", s(state_name(UploadState::Collecting)));
        Ok(matches!(self.dynamo.write(&write).await?, WriteOutcome::Done(_)))
    }

    async fn forget(&self, s3_ref: &S3Ref) -> Result<()> {
        self.writable()?;
        self.forget_claims(s3_ref).await?;
        self.forget_row(s3_ref).await?;
        // Without a row nobody claims it any more; somebody may have in between.
        self.forget_claims(s3_ref).await
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{
        ManualClock, OverQuota, RedisConfig,
        dynamo::{CreateOptions, Dynamo, DynamoConfig, create_tables},
        redis::Redis,
    };

    const NOW_MS: u64 = 1_760_000_000_000;

    /// Tables of its own on a real server: `scripts/services start` runs one.
    async fn store() -> DynamoStore {
        let service = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
        let dynamo = Dynamo::new(DynamoConfig {
            endpoint: Some(service("BLUETICK_TEST_DYNAMODB")),
            table_prefix: format!("a{:016x}-", rand::rng().random_range(0..u64::MAX)),
            deadline: Duration::from_secs(20),
            ..DynamoConfig::default()
        });
        let dynamo = dynamo.await.unwrap();
        let options = CreateOptions {
            ttl: false,
            point_in_time_recovery: false,
            deletion_protection: false,
            ..CreateOptions::default()
        };
        create_tables(&dynamo, &options).await.unwrap();
        let redis = Redis::new(RedisConfig::new(service("BLUETICK_TEST_REDIS"))).unwrap();
        DynamoStore::new(dynamo, redis, Arc::new(ManualClock::new(NOW_MS)), 0)
    }

    fn row(n: u8) -> AttachmentRow {
        AttachmentRow {
            s3_ref: S3Ref::mint(NOW_MS + u64::from(n), [n; 10]),
            owner: UserId::new("alice").unwrap(),
            name: "a".into(),
            mime: "image/png".into(),
            bytes: 10_000,
            sha256: String::new(),
            upload_id: None,
            state: UploadState::Expected,
            claimed: false,
        }
    }

    /// Tables of a version that did not count.
    #[tokio::test]
    async fn usage_that_was_never_counted_is_derived_once() {
        let (store, alice) = (store().await, row(0).owner);
        let quota = UploadQuota { bytes_per_day: 0, bytes_total: 25_000 };
        let forget_count = || async {
            let delete = Write::delete(Table::Attachments, usage_key(&alice));
            store.dynamo.write(&delete).await.unwrap();
        };
        let kept = || async { store.seen_usage(&alice).await.unwrap().kept.map(|usage| usage.total_bytes) };
        for n in 0..2 {
            assert_eq!(store.announce(row(n), &quota).await.unwrap(), Announced::Done);
        }
        forget_count().await;
        assert_eq!(kept().await, None);
        assert_eq!(store.announce(row(2), &quota).await.unwrap(), Announced::OverQuota(OverQuota::Total));
        assert_eq!(kept().await, Some(20_000), "a refusal keeps it: the next one derives nothing");

        // What was derived before the user's last row went is not kept after it.
        forget_count().await;
        let outdated = store.seen_usage(&alice).await.unwrap();
        for n in 0..2 {
            store.forget(&row(n).s3_ref).await.unwrap();
        }
        store.keep_usage(&alice, &outdated).await.unwrap();
        assert_eq!((kept().await, store.upload_usage(&alice).await.unwrap().total_bytes), (None, 0));
    }
}
