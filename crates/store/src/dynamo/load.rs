//! Fills empty tables with what another store holds, in batches, so that it can be stopped and gone on with.
//!
//! How far it is stands in the target itself, in an item of `users` under a key that no user has: it then says what the
//! tables hold to whoever looks at them, from whichever machine, and goes when they go. (A file beside the source would
//! outlive tables that were made anew, and be missing from a copy of the source.)
//!
//! | attribute | |
//! | --- | --- |
//! | `source`, `last_write` | which store is moved, in which state; another one is refused |
//! | `begun_at` | a lease taken after it means that somebody has served from these tables |
//! | `state` | `copying`, `copied` (not yet compared), `done` |
//! | `place_id`, `place_seq`, `place_user`, `place_attachment`, `moved` | everything before this place is written |
//!
//! Every record is written whatever is there, so what is written twice is there once. Nobody may serve meanwhile: a
//! server would be given half of a conversation, and what it writes would be overwritten.

use std::{pin::pin, sync::Arc, time::Duration};

use bluetick_protocol::{ConversationId, S3Ref, UserId};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::{
    DynamoStore,
    attachments::{item_key, owner_key, row_item, unclaimed_key},
    client::{Dynamo, Scan},
    commit::sent_id,
    devices::{device_item, token_item},
    item::{Attributes as _, Item, Key, key, n, s},
    lease,
    messages::message_item,
    pending::pending_key,
    push_outbox::owed_item,
    row::{Row, Shown, row_key},
    tables::Table,
    users::{block_item, mute_item, not_before_item, profile_item},
    write::{Write, Written},
};
use crate::{
    Clock, Content, EmbeddedSource, EnlistPlace, MemberRow, Page, Place, Result, SentId, SourceIdentity,
    StoreError, redis::Redis,
};

/// Batches on their way at once.
const IN_FLIGHT: usize = 8;
/// How often it is noted how far it is: so much is written again after a stop.
const NOTE_EVERY: Duration = Duration::from_secs(2);
/// What a source's clock may be ahead of this machine's and be waited for.
const WAIT_AT_MOST_MS: u64 = 30_000;
/// What one BatchWriteItem takes.
const BATCH_MAX: usize = 25;
/// What a row may hold, less what its attributes are called.
const ROW_MAX_BYTES: usize = 390_000;

/// The tables whose rows are moved: all but the leases, and what the tables themselves know of old messages.
pub(super) const MOVED: [Table; 9] = [
    Table::Messages,
    Table::PendingDeliveries,
    Table::MessageStatus,
    Table::Conversations,
    Table::SentIds,
    Table::Users,
    Table::Devices,
    Table::PushOutbox,
    Table::Attachments,
];

/// No user id has this character.
pub(super) const MIGRATION: &str = "#migration";

/// How a move stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// The tables were empty.
    Anew,
    /// An earlier run has moved so many messages.
    Resumed { moved: u64 },
    /// An earlier run has moved and compared everything.
    Done,
}

/// Moves an embedded store into DynamoDB.
pub struct Loader {
    dynamo: Dynamo,
    redis: Redis,
    clock: Arc<dyn Clock>,
}

struct Marker {
    source: String,
    last_write: u64,
    begun_at: u64,
    state: String,
    place: Option<Place>,
    moved: u64,
}

const COPYING: &str = "copying";
const COPIED: &str = "copied";
const DONE: &str = "done";

fn marker_key() -> Key {
    key([("user_id", s(MIGRATION)), ("item", s("embedded"))])
}

pub(super) fn is_marker(item: &Item) -> bool {
    item.text("user_id") == Some(MIGRATION)
}

impl Marker {
    fn read(item: &Item) -> Result<Marker> {
        let attachment = |text| S3Ref::new(text).map_err(|e| super::item::damaged("place_attachment", e));
        let place = match (item.text("place_id"), item.text("place_user")) {
            (Some(id), _) => {
                let id = ConversationId::new(id).map_err(|e| super::item::damaged("place_id", e))?;
                Some(Place::Conversation { id, seq: item.need_number("place_seq")? })
            }
            (None, Some(user)) => {
                Some(Place::User(UserId::new(user).map_err(|e| super::item::damaged("place_user", e))?))
            }
            (None, None) => item.text("place_attachment").map(attachment).transpose()?.map(Place::Attachment),
        };
        Ok(Marker {
            source: item.need_text("source")?.to_owned(),
            last_write: item.need_number("last_write")?,
            begun_at: item.need_number("begun_at")?,
            state: item.need_text("state")?.to_owned(),
            place,
            moved: item.seq("moved"),
        })
    }
}

fn refused<T>(why: impl Into<String>) -> Result<T> {
    Err(StoreError::Unusable(why.into()))
}

impl Loader {
    pub fn new(dynamo: Dynamo, redis: Redis, clock: Arc<dyn Clock>) -> Loader {
        Loader { dynamo, redis, clock }
    }

    pub(super) fn dynamo(&self) -> &Dynamo {
        &self.dynamo
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Claims the tables for a source, or finds that an earlier run has. Tables with anything else in them are refused.
    /// `start_over` empties tables that hold this source's earlier state, if nobody has served from them.
    pub async fn begin(&self, source: &SourceIdentity, start_over: bool) -> Result<Begun> {
        self.wait_for_clock(source).await?;
        let Some(marker) = self.marker().await? else {
            self.nobody_serves_since(self.clock.now_ms()).await?;
            self.refuse_other_data().await?;
            self.claim(source).await?;
            return Ok(Begun::Anew);
        };
        if marker.source != source.name {
            return refused(
                "these tables hold another store that was moved here, or part of it; choose other tables with \
                 dynamodb.table_prefix",
            );
        }
        if start_over {
            self.nobody_serves_since(marker.begun_at).await?;
            self.empty().await?;
            self.claim(source).await?;
            return Ok(Begun::Anew);
        }
        if marker.last_write != source.last_write {
            return refused(match marker.state.as_str() {
                DONE => {
                    "this store was moved to these tables before, and has been written to since; nothing is moved \
                     twice. If nobody has served from the tables, --start-over empties them and moves it as it is now"
                }
                _ => {
                    "an earlier move of this store to these tables was not finished, and the store has been written \
                     to since; --start-over empties the tables and moves it as it is now"
                }
            });
        }
        if marker.state == DONE {
            return Ok(Begun::Done);
        }
        self.nobody_serves_since(marker.begun_at).await?;
        Ok(Begun::Resumed { moved: marker.moved })
    }

    /// Writes everything that is not written yet. `progress` is told of messages as they are moved.
    pub async fn load(&self, source: &EmbeddedSource, progress: impl Fn(u64)) -> Result<()> {
        let marker = self.marker().await?.ok_or_else(unclaimed)?;
        if marker.state != COPYING {
            return Ok(());
        }
        let (mut moved, mut noted) = (marker.moved, tokio::time::Instant::now());
        let walk = source.walk(marker.place);
        let pages =
            stream::unfold(walk, |mut walk| async move { walk.next().await.map(|page| (page, walk)) });
        // In order, so that behind the last page that is done nothing is missing.
        let mut written = pin!(pages.map(|page| self.write(page)).buffered(IN_FLIGHT));
        while let Some((place, messages)) = written.try_next().await? {
            moved += messages;
            progress(messages);
            if noted.elapsed() >= NOTE_EVERY {
                self.nobody_serves_since(marker.begun_at).await?;
                self.note(source.identity(), &place, moved).await?;
                noted = tokio::time::Instant::now();
            }
        }
        self.nobody_serves_since(marker.begun_at).await?;
        self.reserve_node(source.identity()).await?;
        // What Redis knows under this prefix is of other rows.
        self.redis.forget_rows().await?;
        self.set_state(source.identity(), COPIED, moved).await
    }

    /// Has whoever moves old messages look at every conversation. Returns how many there are.
    pub async fn enlist(&self) -> Result<u64> {
        let (dynamo, redis) = (self.dynamo.clone(), self.redis.clone());
        let (store, now) = (DynamoStore::new(dynamo, redis, self.clock.clone(), 0), self.clock.now_ms());
        let (mut place, mut listed) = (Some(EnlistPlace::default()), 0);
        while let Some(from) = place {
            let (some, next) = store.list_page(now, from).await?;
            listed += some;
            place = next;
        }
        Ok(listed)
    }

    /// Notes that everything was compared and is there.
    pub async fn finish(&self, source: &SourceIdentity) -> Result<()> {
        let moved = self.marker().await?.ok_or_else(unclaimed)?.moved;
        self.set_state(source, DONE, moved).await
    }

    /// Whether somebody has served from the tables since they were filled.
    pub async fn served_since(&self) -> Result<bool> {
        let begun_at = self.marker().await?.ok_or_else(unclaimed)?.begun_at;
        Ok(self.lease_after(begun_at).await?.is_some())
    }

    async fn write(&self, page: Result<Page>) -> Result<(Place, u64)> {
        let page = page?;
        let messages = page.messages();
        for content in &page.contents {
            if let Content::Message { message, .. } = content
                && message.weight() > ROW_MAX_BYTES
            {
                return Err(StoreError::Unusable(format!(
                    "{} {} is longer than a row of DynamoDB may be (400 KB); it cannot be moved, and trying again \
                     does not help",
                    message.conversation_id, message.seq
                )));
            }
        }
        let mut puts = Vec::with_capacity(page.contents.len());
        for content in page.contents {
            if let Content::Device(row) = &content {
                puts.push((Table::Devices, token_item(row)));
            }
            if let Content::Attachment(row) = &content {
                puts.push((Table::Attachments, owner_key(row)));
                if !row.claimed {
                    puts.push((Table::Attachments, unclaimed_key(&row.s3_ref)));
                }
            }
            puts.push(item_of(content)?);
        }
        for batch in puts.chunks(BATCH_MAX) {
            self.dynamo.put_batch(batch.to_vec()).await?;
        }
        Ok((page.place, messages))
    }

    // --- the marker ---

    async fn marker(&self) -> Result<Option<Marker>> {
        self.dynamo.get(Table::Users, marker_key()).await?.as_ref().map(Marker::read).transpose()
    }

    async fn claim(&self, source: &SourceIdentity) -> Result<()> {
        let mut item = marker_key();
        item.extend(key([
            ("source", s(&source.name)),
            ("last_write", n(source.last_write)),
            ("begun_at", n(self.clock.now_ms())),
            ("state", s(COPYING)),
            ("moved", n(0)),
        ]));
        let write = Write::put(Table::Users, item)
            .only_if("attribute_not_exists(#source) OR #source = :source")
            .value(":source", s(&source.name));
        match self.dynamo.write(&write).await? {
            Written::Done(_) => Ok(()),
            Written::Refused(_) => refused("another store is being moved to these tables at this moment"),
        }
    }

    async fn note(&self, source: &SourceIdentity, place: &Place, moved: u64) -> Result<()> {
        let (set, remove, values) = match place {
            Place::Conversation { id, seq } => {
                ("#place_id = :id, #place_seq = :seq", "#place_user", vec![(":id", s(id)), (":seq", n(*seq))])
            }
            Place::User(user) => ("#place_user = :user", "#place_id, #place_seq", vec![(":user", s(user))]),
            Place::Attachment(s3_ref) => (
                "#place_attachment = :attachment",
                "#place_id, #place_seq, #place_user",
                vec![(":attachment", s(s3_ref))],
            ),
        };
        let update = format!("SET #moved = :moved, {set} REMOVE {remove}");
        let mut write = Write::update(Table::Users, marker_key(), update).value(":moved", n(moved));
        for (name, value) in values {
            write = write.value(name, value);
        }
        self.change_marker(source, write).await
    }

    async fn set_state(&self, source: &SourceIdentity, state: &str, moved: u64) -> Result<()> {
        let update = "SET #state = :state, #moved = :moved REMOVE #place_id, #place_seq, #place_user, \
                      #place_attachment";
        let write = Write::update(Table::Users, marker_key(), update)
            .value(":state", s(state))
            .value(":moved", n(moved));
        self.change_marker(source, write).await
    }

    async fn change_marker(&self, source: &SourceIdentity, write: Write) -> Result<()> {
        let write = write
            .only_if("#source = :source AND #last_write = :last_write")
            .value(":source", s(&source.name))
            .value(":last_write", n(source.last_write));
        match self.dynamo.write(&write).await? {
            Written::Done(_) => Ok(()),
            Written::Refused(_) => refused("somebody else has begun to move another store to these tables"),
        }
    }

    // --- what must hold before anything is written ---

    /// New ids must come after every old one, or a device's cursor would pass over them.
    async fn wait_for_clock(&self, source: &SourceIdentity) -> Result<()> {
        let ahead = source.last_message_id.ms().saturating_sub(self.clock.now_ms());
        if ahead > WAIT_AT_MOST_MS {
            return refused(format!(
                "the last message was sent {} s in the future of this machine's clock: set the clock right, on all \
                 machines, or wait until then",
                ahead / 1_000
            ));
        }
        tokio::time::sleep(Duration::from_millis(ahead)).await;
        Ok(())
    }

    /// Whoever takes the source's node number next mints only ids after its last one.
    async fn reserve_node(&self, source: &SourceIdentity) -> Result<()> {
        let until = source.last_message_id.ms() + 1;
        let write = Write::update(
            Table::NodeLeases,
            lease::at(source.node),
            "SET #expires_at = :until, #owner = :migration",
        )
        .only_if("attribute_not_exists(#expires_at) OR #expires_at < :until")
        .value(":until", n(until))
        .value(":migration", s(MIGRATION));
        // A lease that ended later forbids more than this would.
        self.dynamo.write(&write).await.map(|_| ())
    }

    /// A lease that ends, or ended, after a moment: some server minted ids since.
    async fn lease_after(&self, ms: u64) -> Result<Option<u64>> {
        let mut scan = Scan::of(Table::NodeLeases);
        loop {
            let (items, next) = self.dynamo.scan(&scan).await?;
            let is_late = |item: &&Item| {
                item.text("owner") != Some(MIGRATION) && item.number("expires_at").is_some_and(|at| at > ms)
            };
            if let Some(item) = items.iter().find(is_late) {
                return Ok(item.number("node"));
            }
            match next {
                Some(next) => scan.start = Some(next),
                None => return Ok(None),
            }
        }
    }

    async fn nobody_serves_since(&self, ms: u64) -> Result<()> {
        match self.lease_after(ms).await? {
            None => Ok(()),
            Some(_) if ms >= self.clock.now_ms() => {
                refused("a server uses these tables; stop it, wait 40 s, and try again")
            }
            Some(_) => refused(
                "a server has used these tables since the move began, and may have stored messages there; choose \
                 empty tables with dynamodb.table_prefix",
            ),
        }
    }

    async fn refuse_other_data(&self) -> Result<()> {
        for table in Table::ALL.into_iter().filter(|&table| table != Table::NodeLeases) {
            let (items, _) = self.dynamo.scan(&Scan { limit: Some(1), ..Scan::of(table) }).await?;
            if !items.is_empty() {
                return refused(format!(
                    "the table {} already holds something; a store is moved to empty tables only, choose others with \
                     dynamodb.table_prefix",
                    self.dynamo.name_of(table)
                ));
            }
        }
        Ok(())
    }

    /// Takes out what an earlier run wrote. The marker stays until the tables are claimed again.
    async fn empty(&self) -> Result<()> {
        for table in Table::ALL.into_iter().filter(|&table| table != Table::NodeLeases) {
            let mut scan = Scan { keys_only: true, ..Scan::of(table) };
            loop {
                let (items, next) = self.dynamo.scan(&scan).await?;
                let keys: Vec<Key> = items.into_iter().filter(|item| !is_marker(item)).collect();
                stream::iter(keys.chunks(BATCH_MAX).map(<[Key]>::to_vec).collect::<Vec<_>>())
                    .map(|keys| self.dynamo.delete_batch(table, keys))
                    .buffer_unordered(IN_FLIGHT)
                    .try_collect::<Vec<()>>()
                    .await?;
                match next {
                    Some(next) => scan.start = Some(next),
                    None => break,
                }
            }
        }
        Ok(())
    }
}

fn unclaimed() -> StoreError {
    StoreError::Unusable("no store has been moved to these tables".into())
}

/// A record as a row of its table.
fn item_of(content: Content) -> Result<(Table, Item)> {
    Ok(match content {
        Content::Message { message, hole } => (Table::Messages, message_item(&message, hole)),
        Content::SentId(SentId { conversation_id, from, client_msg_id, seq, message_id, expires_at }) => {
            let id = sent_id(&conversation_id, from, client_msg_id.as_str());
            let item = key([
                ("sent_id", s(id)),
                ("seq", n(seq)),
                ("message_id", n(message_id.0)),
                ("expires_at", n(expires_at)),
            ]);
            (Table::SentIds, item)
        }
        Content::Pending(row) => {
            let mut item = pending_key(&row.receiver_id, &row.conversation_id);
            item.insert("first_undelivered_seq".into(), n(row.first_undelivered_seq));
            (Table::PendingDeliveries, item)
        }
        Content::Status { row, notified } => {
            let mut item = row_key(&row.user_id, &row.conversation_id);
            if row.last_delivered_seq > 0 {
                item.insert("last_delivered_seq".into(), n(row.last_delivered_seq));
                item.insert("last_read_seq".into(), n(row.last_read_seq));
            }
            if notified > 0 {
                item.insert("last_notified_seq".into(), n(notified));
            }
            (Table::MessageStatus, item)
        }
        Content::Conversation(row) => (Table::Conversations, Row::from(row).to_item()),
        Content::Profile { user_id, profile } => (Table::Users, profile_item(&user_id, &profile)),
        Content::Block { user_id, blocked, profile } => {
            (Table::Users, block_item(&user_id, &blocked, &profile))
        }
        Content::Device(row) => (Table::Devices, device_item(&row)?),
        Content::Mute { user_id, mute } => (Table::Users, mute_item(&user_id, &mute)),
        Content::NotBefore { user_id, secs } => (Table::Users, not_before_item(&user_id, secs)),
        Content::Owed(owed) => (Table::PushOutbox, owed_item(&owed)),
        Content::Attachment(row) => (Table::Attachments, row_item(&row)),
        Content::Claim { s3_ref, conversation_id } => {
            (Table::Attachments, item_key(&s3_ref, conversation_id))
        }
    })
}

impl From<MemberRow> for Row {
    fn from(row: MemberRow) -> Row {
        Row {
            conversation_id: row.conversation_id,
            side: row.side,
            version: 1,
            shown: row.shown.map(|shown| Shown {
                last_seq: shown.seq,
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
            // Whoever looks for what is old is told of it afterwards, by `enlist`.
            cold_up_to: 0,
            cold_listed: false,
        }
    }
}
