//! Fills empty tables with the contents of another store, in batches that can be interrupted and
//! resumed. The progress is in the tables themselves (`migration_marker.rs`).
//!
//! Every record is written unconditionally, so a record that is written twice is there once. No
//! server may run meanwhile: it would serve half of a conversation, and its writes would be
//! overwritten.

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::{
    DynamoStore,
    attachments::{owner_key, unclaimed_key},
    client::{Dynamo, Scan},
    content_items::item_of,
    devices::token_item,
    item::{Attributes as _, Item, ItemKey, n, s},
    lease,
    migration_marker::{COPIED, COPYING, DONE, MIGRATION, is_marker},
    tables::Table,
    write::Write,
};
use crate::{
    Clock, Content, EmbeddedSource, EnlistPlace, Result, SourceIdentity, StoreError, WalkPage, WalkPlace,
    redis::Redis,
};

/// Batches in flight.
const IN_FLIGHT: usize = 8;
/// How often the progress is saved. A resumed run repeats at most this much.
const NOTE_EVERY: Duration = Duration::from_secs(2);
/// How far a source's clock may be ahead of this machine's: so long is waited.
const WAIT_AT_MOST_MS: u64 = 30_000;
/// The limit of one BatchWriteItem.
const BATCH_MAX: usize = 25;
/// The limit of a row, less the names of its attributes.
const ROW_MAX_BYTES: usize = 390_000;

/// The tables that are filled: all but the leases, and the two that belong to the cold tier.
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

/// What a migration finds when it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MigrationStart {
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

pub(super) fn refused<T>(why: impl Into<String>) -> Result<T> {
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

    /// Claims the tables for a source, or finds that an earlier run did. Refuses tables that hold
    /// anything else. `start_over` first empties tables that hold an earlier state of this source,
    /// unless a server has used them.
    pub async fn begin(&self, source: &SourceIdentity, start_over: bool) -> Result<MigrationStart> {
        self.wait_for_clock(source).await?;
        let Some(marker) = self.marker().await? else {
            self.nobody_serves_since(self.clock.now_ms()).await?;
            self.refuse_other_data().await?;
            self.claim(source).await?;
            return Ok(MigrationStart::Anew);
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
            return Ok(MigrationStart::Anew);
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
            return Ok(MigrationStart::Done);
        }
        self.nobody_serves_since(marker.begun_at).await?;
        Ok(MigrationStart::Resumed { moved: marker.moved })
    }

    /// Writes everything that is not written yet. Calls `progress` with the number of messages
    /// moved since the last call.
    pub async fn load(&self, source: &EmbeddedSource, progress: impl Fn(u64)) -> Result<()> {
        let marker = self.marker().await?.ok_or_else(unclaimed)?;
        if marker.state != COPYING {
            return Ok(());
        }
        let (mut moved, mut noted) = (marker.moved, tokio::time::Instant::now());
        let walk = source.walk(marker.place);
        let pages =
            stream::unfold(walk, |mut walk| async move { walk.next().await.map(|page| (page, walk)) });
        // In order, so that nothing is missing before the last page that is done.
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
        // Whatever Redis holds under this prefix was derived from other rows.
        self.redis.forget_rows().await?;
        self.set_state(source.identity(), COPIED, moved).await
    }

    /// Lists every conversation for the cold tier. Returns how many there are.
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

    /// Marks the migration as done, after the comparison found no difference.
    pub async fn finish(&self, source: &SourceIdentity) -> Result<()> {
        let moved = self.marker().await?.ok_or_else(unclaimed)?.moved;
        self.set_state(source, DONE, moved).await
    }

    /// Whether a server has used the tables since they were filled.
    pub async fn served_since(&self) -> Result<bool> {
        let begun_at = self.marker().await?.ok_or_else(unclaimed)?.begun_at;
        Ok(self.lease_after(begun_at).await?.is_some())
    }

    async fn write(&self, page: Result<WalkPage>) -> Result<(WalkPlace, u64)> {
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

    // --- what must hold before anything is written ---

    /// New ids must be greater than every old one, or a device's cursor would skip them (R6).
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

    /// Makes the next holder of the source's node number mint only ids after the source's last one.
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
        // A lease that ends later has the same effect.
        self.dynamo.write(&write).await.map(|_| ())
    }

    /// The node of a lease that ends after a moment, which means that a server has minted ids
    /// since.
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

    /// Deletes what an earlier run wrote. The marker stays until the tables are claimed again.
    async fn empty(&self) -> Result<()> {
        for table in Table::ALL.into_iter().filter(|&table| table != Table::NodeLeases) {
            let mut scan = Scan { keys_only: true, ..Scan::of(table) };
            loop {
                let (items, next) = self.dynamo.scan(&scan).await?;
                let keys: Vec<ItemKey> = items.into_iter().filter(|item| !is_marker(item)).collect();
                stream::iter(keys.chunks(BATCH_MAX).map(<[ItemKey]>::to_vec).collect::<Vec<_>>())
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
