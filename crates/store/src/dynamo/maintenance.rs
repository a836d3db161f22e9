//! What an operator does with the store: health and erasure. A backup is DynamoDB's own
//! point-in-time recovery.

use std::{collections::BTreeSet, sync::atomic::Ordering};

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, Profile, Seq, Side, UserId};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::{
    DynamoStore,
    hot_and_cold::Parts::Whole,
    item::{Attributes as _, flag, key, n, s},
    messages::message_key,
    row::{CountedRow, row_key},
    status::is_receipt,
    tables::Table,
    users::{mute_key, user_key},
    write::Write,
};
use crate::{
    BackupSink, Devices as _, Health, Maintenance, MessageStatus as _, Messages as _, PageLimit, Result,
    StoreError, Users as _,
};

const PAGE: usize = 500;
const VOIDS_AT_ONCE: usize = 16;
const TRIES: usize = 60;

impl DynamoStore {
    /// Takes the content out of what a member wrote. Returns how many messages had any.
    async fn void_messages_of(&self, id: &ConversationId, side: Side) -> Result<u64> {
        let (mut from, mut voided) = (1, 0);
        loop {
            let page = self.page(id, (">=", from), false, PageLimit::messages(PAGE)).await?;
            let Some(last) = page.last() else { return Ok(voided) };
            from = last.message.seq + 1;
            let theirs = page.iter().filter(|s| s.message.from == side && !s.message.void);
            let seqs: Vec<Seq> = theirs.map(|stored| stored.message.seq).collect();
            voided += seqs.len() as u64;
            stream::iter(seqs)
                .map(|seq| async move {
                    let write = Write::update(
                        Table::Messages,
                        message_key(id, seq),
                        "SET #void = :yes REMOVE #body, #s3_ref, #meta",
                    );
                    let write = write.only_if("attribute_exists(#seq)").value(":yes", flag());
                    self.dynamo.write(&write).await.map(|_| ())
                })
                .buffer_unordered(VOIDS_AT_ONCE)
                .try_collect::<Vec<()>>()
                .await?;
        }
    }

    /// A row made from all messages of the conversation, as if it had never been there.
    async fn row_anew(&self, old: &CountedRow, read_seq: Seq) -> Result<CountedRow> {
        let mut row = CountedRow {
            shown: None,
            unread: 0,
            counted_seq: old.erased_up_to,
            counted_last: 0,
            read_seq,
            concerned: false,
            ..old.clone()
        };
        loop {
            let from = row.counted_seq + 1;
            let page = self.stored_from(&row.conversation_id, from, row.cold_up_to, PAGE, Whole).await?;
            let before = row.counted_seq;
            row.take_in(&page);
            // A page may end where a cold run does.
            if row.counted_seq == before {
                break;
            }
        }
        Ok(row)
    }

    async fn replace_with(&self, id: &ConversationId, side: Side, make: MakeRow) -> Result<CountedRow> {
        for _ in 0..TRIES {
            let old = self.row(id, side).await?;
            let next = match make {
                MakeRow::Erased { up_to } => CountedRow {
                    version: old.version,
                    erased_up_to: up_to,
                    counted_seq: up_to,
                    read_seq: up_to,
                    peer: old.peer.clone(),
                    cold_up_to: old.cold_up_to,
                    cold_listed: old.cold_listed,
                    ..CountedRow::none(id, side)
                },
                MakeRow::Anew if old.version == 0 => return Ok(old),
                MakeRow::Anew => {
                    let read = self.status(&id.member(side), id).await?.last_read_seq;
                    self.row_anew(&old, read.max(old.erased_up_to)).await?
                }
            };
            if next == old || self.replace(&next).await?.is_none() {
                return Ok(next);
            }
        }
        Err(StoreError::unavailable("a conversation that is written to very much"))
    }

    pub(super) async fn delete_items(&self, table: Table, items: Vec<super::item::ItemKey>) -> Result<()> {
        stream::iter(items)
            .map(|key| async move { self.dynamo.write(&Write::delete(table, key)).await.map(|_| ()) })
            .buffer_unordered(VOIDS_AT_ONCE)
            .try_collect::<Vec<()>>()
            .await?;
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum MakeRow {
    /// Nothing is left of it but up to where.
    Erased { up_to: Seq },
    /// From the messages that are left.
    Anew,
}

#[async_trait]
impl Maintenance for DynamoStore {
    async fn health(&self) -> Health {
        let (table, redis) =
            tokio::join!(self.dynamo.get(Table::NodeLeases, key([("node", n(0))])), self.redis.ping());
        let closed = self.closed.load(Ordering::Acquire).then(|| "the store is closed".to_owned());
        Health {
            backend: "dynamodb",
            refusing: closed.or_else(|| table.err().map(|error| error.to_string())),
            // Without Redis everybody counts as offline: messages queue, nothing fails.
            degraded: redis.err().map(|error| error.to_string()),
            ..Health::default()
        }
    }

    async fn backup(&self, _sink: BackupSink<'_>) -> Result<u64> {
        Err(StoreError::Unsupported(
            "a backup of DynamoDB through this server; use the tables' point-in-time recovery".into(),
        ))
    }

    async fn erase_member(&self, user: &UserId, conversation: &ConversationId) -> Result<u64> {
        self.writable()?;
        let Some(side) = conversation.side_of(user) else { return Ok(0) };
        self.dynamo.write(&Write::delete(Table::PushOutbox, row_key(user, conversation))).await?;
        self.dynamo.write(&Write::delete(Table::Users, mute_key(user, conversation))).await?;
        let last = self.last_seq(conversation).await?;
        if last == 0 {
            return Ok(0);
        }
        let voided = self.void_messages_of(conversation, side).await?;
        let pending = key([("receiver_id", s(user)), ("conversation_id", s(conversation))]);
        self.dynamo.write(&Write::delete(Table::PendingDeliveries, pending)).await?;
        self.dynamo.write(&Write::delete(Table::MessageStatus, row_key(user, conversation))).await?;
        self.replace_with(conversation, side, MakeRow::Erased { up_to: last }).await?;
        let peers = self.replace_with(conversation, side.other(), MakeRow::Anew).await?;
        let _ = self.redis.inbox_remove(user, conversation).await;
        if peers.shown.is_none() {
            let _ = self.redis.inbox_remove(&conversation.member(side.other()), conversation).await;
        }
        Ok(voided)
    }

    async fn erase_user(&self, user: &UserId) -> Result<()> {
        self.writable()?;
        // The profile goes first: who was blocked must not be shown it when the block goes.
        self.dynamo.write(&Write::delete(Table::Users, user_key(user, "profile"))).await?;
        let blocked = self.blocked_by(user).await?;
        for other in blocked {
            self.set_block(user, &other, false).await?;
        }
        for device in self.devices_of(user).await? {
            self.unregister(user, &device.device, None).await?;
        }
        self.forget_owed_to(user).await?;
        let mutes = self.mutes_of(user).await?;
        let mut items: Vec<_> = mutes.iter().map(|mute| mute_key(user, &mute.conversation_id)).collect();
        items.push(user_key(user, "inbox"));
        self.delete_items(Table::Users, items).await?;
        self.copy_until_same(user, Profile::default()).await?;
        let _ = self.redis.inbox_forget(user).await;
        Ok(())
    }

    async fn memberships(&self, user: &UserId) -> Result<Vec<ConversationId>> {
        let mut all = BTreeSet::new();
        for item in self.dynamo.query_all(Table::Conversations, s(user)).await? {
            let row = CountedRow::of_user(&item, user)?;
            if row.shown.is_some() || row.concerned {
                all.insert(row.conversation_id);
            }
        }
        for table in [Table::MessageStatus, Table::PendingDeliveries] {
            let items = self.dynamo.query_all(table, s(user)).await?;
            for item in items.iter().filter(|item| table != Table::MessageStatus || is_receipt(item)) {
                all.insert(item.conversation()?);
            }
        }
        Ok(all.into_iter().collect())
    }

    async fn checkpoint(&self) -> Result<()> {
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        self.closed.store(true, Ordering::Release);
        self.lease.release().await;
        Ok(())
    }
}
