//! Compares the tables with a source: a count and a checksum for each kind of record, and the first
//! keys that differ.
//!
//! A checksum is the sum of the digests of all records, so that the order of reading does not
//! matter. Both sides are summed in buckets by key. Only the records of differing buckets are read
//! again and named, so memory is bounded.

use std::collections::{BTreeMap, BTreeSet};

use bluetick_protocol::{ClientMsgId, ConversationId, DeviceId, S3Ref, Side, UserId};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    attachments::{AttachmentItem, read_attachment_item},
    client::Scan,
    devices::{read_device, read_owner, token_in, token_of},
    item::{Attributes as _, Item, damaged},
    load::{Loader, MOVED},
    messages::read_message,
    migration_marker::is_marker,
    push_outbox::read_owed,
    row::CountedRow,
    status::{is_receipt, status_row},
    tables::Table,
    users::{BLOCK, MUTE, NOT_BEFORE, PROFILE, read_mute, read_profile},
};
use crate::{
    Content, ContentKind, EmbeddedSource, MemberRow, PendingRow, Result, SentId, ShownMessage, StoreError,
};

const BUCKETS: u64 = 4096;
/// Buckets of a kind whose records are named.
const NAMED_BUCKETS: usize = 16;
/// Keys of a kind that are named.
const NAMED_KEYS: usize = 10;
/// Segments of a table that are scanned concurrently.
const SEGMENTS: i32 = 4;
/// Idempotency records that expire this soon are left out: DynamoDB may delete them during the
/// comparison.
const ENDING_SECS: u64 = 3_600;

/// How many records there are, and the sum of their digests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    pub rows: u64,
    pub checksum: u64,
}

/// One kind of record on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindComparison {
    pub kind: ContentKind,
    pub source: Sum,
    pub target: Sum,
    /// The first records that differ, by their keys, and how.
    pub differing: Vec<(String, Difference)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    Missing,
    Changed,
    Unknown,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Difference::Missing => "is missing in the tables",
            Difference::Changed => "differs in the tables",
            Difference::Unknown => "is in the tables and not in the source",
        })
    }
}

impl KindComparison {
    pub fn is_same(&self) -> bool {
        self.source == self.target && self.differing.is_empty()
    }
}

/// One record, or an item that belongs to one.
struct RecordDigest {
    kind: ContentKind,
    key: String,
    digest: u64,
    /// It belongs to the record of this key, and is not counted itself.
    beside: bool,
}

impl RecordDigest {
    fn bucket(&self) -> usize {
        (xxh3_64(self.key.as_bytes()) % BUCKETS) as usize
    }
}

#[derive(Clone)]
struct Tally([Vec<Sum>; ContentKind::ALL.len()]);

impl Tally {
    fn new() -> Tally {
        Tally(std::array::from_fn(|_| vec![Sum::default(); BUCKETS as usize]))
    }

    fn add(&mut self, seen: &RecordDigest) {
        let sum = &mut self.0[seen.kind as usize][seen.bucket()];
        sum.rows += u64::from(!seen.beside);
        sum.checksum = sum.checksum.wrapping_add(seen.digest);
    }

    fn total(&self, kind: ContentKind) -> Sum {
        self.0[kind as usize].iter().fold(Sum::default(), |total, sum| Sum {
            rows: total.rows + sum.rows,
            checksum: total.checksum.wrapping_add(sum.checksum),
        })
    }
}

type BucketIds = BTreeSet<(ContentKind, usize)>;
type Digests = BTreeMap<(ContentKind, String), u64>;

impl Loader {
    /// Reads both sides and compares them. Calls `progress` with the number of records read from
    /// the tables.
    pub async fn compare(
        &self,
        source: &EmbeddedSource,
        progress: impl Fn(u64) + Sync,
    ) -> Result<Vec<KindComparison>> {
        let ending = self.now_ms() / 1_000 + ENDING_SECS;
        let (ours, theirs) = (Mutex::new(Tally::new()), Mutex::new(Tally::new()));
        tokio::try_join!(
            in_source(source, ending, |seen| ours.lock().add(&seen)),
            self.in_tables(ending, &progress, |seen| theirs.lock().add(&seen)),
        )?;
        let (ours, theirs) = (ours.into_inner(), theirs.into_inner());
        let mut buckets = BucketIds::new();
        for kind in ContentKind::ALL {
            let pairs = ours.0[kind as usize].iter().zip(&theirs.0[kind as usize]).enumerate();
            let differing = pairs.filter(|(_, (one, other))| one != other).map(|(at, _)| (kind, at));
            buckets.extend(differing.take(NAMED_BUCKETS));
        }
        let mut named = self.differing(source, ending, &buckets).await?;
        Ok(ContentKind::ALL
            .into_iter()
            .map(|kind| KindComparison {
                kind,
                source: ours.total(kind),
                target: theirs.total(kind),
                differing: named.remove(&kind).unwrap_or_default(),
            })
            .collect())
    }

    /// Names the records that differ in these buckets.
    async fn differing(
        &self,
        source: &EmbeddedSource,
        ending: u64,
        buckets: &BucketIds,
    ) -> Result<BTreeMap<ContentKind, Vec<(String, Difference)>>> {
        let mut named: BTreeMap<ContentKind, Vec<(String, Difference)>> = BTreeMap::new();
        if buckets.is_empty() {
            return Ok(named);
        }
        let (ours, theirs) = (Mutex::new(Digests::new()), Mutex::new(Digests::new()));
        let keep = |digests: &Mutex<Digests>, seen: RecordDigest| {
            if buckets.contains(&(seen.kind, seen.bucket())) {
                let mut digests = digests.lock();
                let sum = digests.entry((seen.kind, seen.key)).or_default();
                *sum = sum.wrapping_add(seen.digest);
            }
        };
        tokio::try_join!(
            in_source(source, ending, |seen| keep(&ours, seen)),
            self.in_tables(ending, &|_| (), |seen| keep(&theirs, seen)),
        )?;
        let (ours, theirs) = (ours.into_inner(), theirs.into_inner());
        for key in ours.keys().chain(theirs.keys().filter(|key| !ours.contains_key(*key))) {
            let difference = match (ours.get(key), theirs.get(key)) {
                (one, other) if one == other => continue,
                (Some(_), None) => Difference::Missing,
                (None, _) => Difference::Unknown,
                _ => Difference::Changed,
            };
            let of_kind = named.entry(key.0).or_default();
            if of_kind.len() < NAMED_KEYS {
                of_kind.push((key.1.clone(), difference));
            }
        }
        Ok(named)
    }

    async fn in_tables(
        &self,
        ending: u64,
        progress: &impl Fn(u64),
        see: impl Fn(RecordDigest),
    ) -> Result<()> {
        let parts = MOVED.into_iter().flat_map(|table| (0..SEGMENTS).map(move |part| (table, part)));
        stream::iter(parts)
            .map(|(table, part)| {
                let see = &see;
                async move {
                    let mut scan = Scan { segment: Some((part, SEGMENTS)), ..Scan::of(table) };
                    loop {
                        let (items, next) = self.dynamo().scan(&scan).await?;
                        items.iter().filter_map(|item| seen_in(table, item, ending)).for_each(see);
                        progress(items.len() as u64);
                        match next {
                            Some(next) => scan.start = Some(next),
                            None => return Ok::<_, StoreError>(()),
                        }
                    }
                }
            })
            .buffer_unordered(SEGMENTS as usize)
            .try_collect::<Vec<()>>()
            .await
            .map(drop)
    }
}

async fn in_source(source: &EmbeddedSource, ending: u64, see: impl Fn(RecordDigest)) -> Result<()> {
    let mut walk = source.walk(None);
    while let Some(page) = walk.next().await {
        for content in &page?.contents {
            seen(content, ending).into_iter().for_each(&see);
            if let Content::Device(row) = content {
                see(seen_token(&row.user_id, &row.device, &token_of(row)));
            }
            if let Content::Attachment(row) = content {
                see(seen_owned(&row.owner, &row.s3_ref));
                if !row.claimed {
                    see(seen_unclaimed(&row.s3_ref));
                }
            }
        }
    }
    Ok(())
}

fn seen(content: &Content, ending: u64) -> Option<RecordDigest> {
    let ends = matches!(content, Content::SentId(id) if id.expires_at <= ending);
    (!ends).then(|| RecordDigest {
        kind: content.kind(),
        key: content.key(),
        digest: content.digest(),
        beside: false,
    })
}

/// That a token is a device's: as much a part of its registration as the row itself.
fn seen_token(user: &UserId, device: &DeviceId, token: &str) -> RecordDigest {
    let digest = xxh3_64(token.as_bytes());
    RecordDigest { kind: ContentKind::Devices, key: format!("{user} {device}"), digest, beside: true }
}

/// That nobody claimed an attachment: by this it is found when it is to go.
fn seen_unclaimed(s3_ref: &S3Ref) -> RecordDigest {
    let key = s3_ref.to_string();
    RecordDigest { kind: ContentKind::Attachments, digest: xxh3_64(key.as_bytes()), key, beside: true }
}

/// That an attachment is a user's: by this it is found when they are erased.
fn seen_owned(user: &UserId, s3_ref: &S3Ref) -> RecordDigest {
    let key = format!("{user} {s3_ref}");
    RecordDigest { kind: ContentKind::Attachments, digest: xxh3_64(key.as_bytes()), key, beside: true }
}

/// A row of a table, if it is one that is moved. One that cannot be read is like no record there
/// is.
fn seen_in(table: Table, item: &Item, ending: u64) -> Option<RecordDigest> {
    if table == Table::Users && (is_marker(item) || item.text("item") == Some("inbox")) {
        return None;
    }
    let found = match (table, token_in(item)) {
        (Table::Devices, Some(token)) => {
            read_owner(item).map(|(user, device)| Some(seen_token(&user, &device, token)))
        }
        (Table::Attachments, _) => read_attachment_item(item).map(|kept| match kept {
            AttachmentItem::Record(content) => seen(&content, ending),
            AttachmentItem::Unclaimed(s3_ref) => Some(seen_unclaimed(&s3_ref)),
            AttachmentItem::Owned(user, s3_ref) => Some(seen_owned(&user, &s3_ref)),
            AttachmentItem::Usage => None,
        }),
        _ => content_of(table, item).map(|content| seen(&content, ending)),
    };
    match found {
        Ok(seen) => seen,
        Err(error) => {
            let (partition, sort) = table.key_names();
            let part = |name: &str| match item.number(name) {
                Some(number) => number.to_string(),
                None => item.owned(name).unwrap_or_default(),
            };
            let mut key = part(partition);
            if let Some(sort) = sort {
                key = format!("{key} {}", part(sort));
            }
            let digest = xxh3_64(error.to_string().as_bytes());
            Some(RecordDigest { kind: kind_of(table, item), key, digest, beside: false })
        }
    }
}

fn kind_of(table: Table, item: &Item) -> ContentKind {
    match table {
        Table::Messages => ContentKind::Messages,
        Table::SentIds => ContentKind::SentIds,
        Table::PendingDeliveries => ContentKind::PendingDeliveries,
        Table::MessageStatus => ContentKind::MessageStatus,
        Table::Conversations => ContentKind::Conversations,
        Table::Devices => ContentKind::Devices,
        Table::PushOutbox => ContentKind::PushOutbox,
        Table::Attachments => ContentKind::Attachments,
        Table::Users | Table::NodeLeases | Table::ColdRuns | Table::ColdDue => match item.text("item") {
            Some(text) if text.starts_with(BLOCK) => ContentKind::Blocks,
            Some(text) if text.starts_with(MUTE) => ContentKind::Mutes,
            Some(NOT_BEFORE) => ContentKind::NotBefore,
            _ => ContentKind::Profiles,
        },
    }
}

fn content_of(table: Table, item: &Item) -> Result<Content> {
    Ok(match table {
        Table::Messages => {
            let stored = read_message(item)?;
            Content::Message { message: stored.message, hole: stored.hole }
        }
        Table::SentIds => Content::SentId(read_sent_id(item)?),
        Table::PendingDeliveries => Content::Pending(PendingRow {
            receiver_id: item.user("receiver_id")?,
            conversation_id: item.conversation()?,
            first_undelivered_seq: item.need_number("first_undelivered_seq")?,
        }),
        Table::MessageStatus => {
            let notified = match item.has("last_notified_seq") {
                true => item.need_number("last_notified_seq")?,
                false => 0,
            };
            if is_receipt(item) || notified == 0 {
                item.need_number("last_delivered_seq")?;
                item.need_number("last_read_seq")?;
            }
            let row = status_row(&item.user("user_id")?, &item.conversation()?, Some(item));
            Content::Status { row, notified }
        }
        Table::Conversations => {
            Content::Conversation(CountedRow::of_user(item, &item.user("user_id")?)?.into())
        }
        Table::Devices => Content::Device(read_device(item)?),
        Table::PushOutbox => Content::Owed(read_owed(item)?),
        Table::Users | Table::NodeLeases | Table::ColdRuns | Table::ColdDue | Table::Attachments => {
            let user_id = item.user("user_id")?;
            match item.need_text("item")? {
                PROFILE => Content::Profile { user_id, profile: read_profile(Some(item)) },
                NOT_BEFORE => Content::NotBefore { user_id, secs: item.need_number("secs")? },
                other => match (other.strip_prefix(BLOCK), read_mute(item)?) {
                    (Some(blocked), _) => {
                        let blocked = UserId::new(blocked).map_err(|e| damaged("item", e))?;
                        Content::Block { user_id, blocked, profile: read_profile(Some(item)) }
                    }
                    (None, Some(mute)) => Content::Mute { user_id, mute },
                    (None, None) => return Err(damaged("item", "it is nothing that a move writes")),
                },
            }
        }
    })
}

/// The other way from the key that a commit gives it.
fn read_sent_id(item: &Item) -> Result<SentId> {
    let wrong = || damaged("sent_id", "it does not name a send");
    let mut parts = item.need_text("sent_id")?.splitn(3, ' ');
    let (id, side, client_msg_id) = (parts.next(), parts.next(), parts.next());
    let from = match side {
        Some("0") => Side::Low,
        Some("1") => Side::High,
        _ => return Err(wrong()),
    };
    Ok(SentId {
        conversation_id: id.and_then(|id| ConversationId::new(id).ok()).ok_or_else(wrong)?,
        from,
        client_msg_id: client_msg_id.and_then(|id| ClientMsgId::new(id).ok()).ok_or_else(wrong)?,
        seq: item.need_number("seq")?,
        message_id: item.message_id("message_id")?,
        expires_at: item.need_number("expires_at")?,
    })
}

impl From<CountedRow> for MemberRow {
    fn from(row: CountedRow) -> MemberRow {
        MemberRow {
            conversation_id: row.conversation_id,
            side: row.side,
            shown: row.shown.map(|shown| ShownMessage {
                seq: shown.last_seq,
                ts: shown.ts,
                preview: shown.preview,
                sender: shown.sender,
                message_id: shown.message_id,
            }),
            peer: row.peer,
            unread: row.unread,
            counted_seq: row.counted_seq,
            counted_last: row.counted_last,
            read_seq: row.read_seq,
            erased_up_to: row.erased_up_to,
            concerned: row.concerned,
        }
    }
}

#[cfg(test)]
mod tests {
    use bluetick_protocol::UserId;
    use proptest::prelude::*;

    use super::*;
    use crate::dynamo::{
        commit::sent_id,
        item::{key, n, s},
    };

    proptest! {
        #[test]
        fn a_sent_id_leads_back_to_its_send(
            one in "[A-Za-z0-9._@+|:=-]{1,128}", other in "[A-Za-z0-9._@+|:=-]{1,128}",
            client_msg_id in "[!-~]{1,64}", low in any::<bool>(),
        ) {
            let members = [one, other].map(|id| UserId::new(&id).unwrap());
            let Some(id) = ConversationId::between(&members[0], &members[1]) else { return Ok(()) };
            let from = if low { Side::Low } else { Side::High };
            let item = key([
                ("sent_id", s(sent_id(&id, from, &client_msg_id))),
                ("seq", n(1)),
                ("message_id", n(2)),
                ("expires_at", n(3)),
            ]);
            let found = read_sent_id(&item).unwrap();
            prop_assert_eq!((found.conversation_id, found.from), (id, from));
            prop_assert_eq!(found.client_msg_id.as_str(), client_msg_id);
        }
    }
}
