//! `message_status`: PK user_id, SK conversation_id. Boundaries that only grow (R10), and the
//! unread count after a read (R11). A row with only `last_notified_seq` is no receipt.

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, Seq, UserId};

use super::{
    DynamoStore,
    item::{Attributes as _, Item, n, s},
    row::{CountedRow, row_key},
    tables::Table,
    write::{Transacted, Write, WriteOutcome},
};
use crate::{Advanced, MessageStatus, Result, StatusRow, StoreError};

const TRIES: usize = 60;

pub(super) fn status_row(user: &UserId, conversation: &ConversationId, item: Option<&Item>) -> StatusRow {
    StatusRow {
        user_id: user.clone(),
        conversation_id: conversation.clone(),
        last_delivered_seq: item.map_or(0, |item| item.seq("last_delivered_seq")),
        last_read_seq: item.map_or(0, |item| item.seq("last_read_seq")),
    }
}

/// Whether a row holds a receipt.
pub(super) fn is_receipt(item: &Item) -> bool {
    item.has("last_delivered_seq")
}

/// What a read changes in its two rows, in one transaction.
pub(super) struct ReadUpdate<'a> {
    /// The new row. `version` is the one that was read.
    pub row: &'a CountedRow,
    pub version: u64,
    pub delivered: Seq,
}

/// The outcome of a read.
pub(super) enum ReadOutcome {
    Moved(StatusRow),
    /// The row has changed since it was read.
    RowChanged(CountedRow),
    /// The boundaries are already further.
    Behind(StatusRow),
}

impl DynamoStore {
    /// Moves the read boundary in `message_status` and in the `conversations` row by one
    /// transaction, so that no crash leaves an unread count that disagrees with its boundary.
    pub(super) async fn read_at_once(&self, read: ReadUpdate<'_>) -> Result<ReadOutcome> {
        let ReadUpdate { row, version, delivered } = read;
        let (user, id) = (row.user(), &row.conversation_id);
        let status = Write::update(
            Table::MessageStatus,
            row_key(&user, id),
            "SET #last_read_seq = :read, #last_delivered_seq = :delivered",
        )
        .only_if(
            "attribute_not_exists(#last_read_seq) OR (#last_read_seq < :read AND #last_delivered_seq <= :delivered)",
        )
        .value(":read", n(row.read_seq))
        .value(":delivered", n(delivered));
        match self.dynamo.transact(&[status, self.replacing(row, version)]).await? {
            Transacted::Done => Ok(ReadOutcome::Moved(StatusRow {
                user_id: user,
                conversation_id: id.clone(),
                last_delivered_seq: delivered,
                last_read_seq: row.read_seq,
            })),
            Transacted::Refused(refused) => {
                if let Some(Some(in_the_way)) = refused.get(1) {
                    let item = in_the_way.as_ref();
                    let row = item.map_or_else(
                        || Ok(CountedRow::none(id, row.side)),
                        |item| CountedRow::from_item(item, id, row.side),
                    )?;
                    return Ok(ReadOutcome::RowChanged(row));
                }
                let item = refused.into_iter().next().flatten().flatten();
                Ok(ReadOutcome::Behind(status_row(&user, id, item.as_ref())))
            }
        }
    }

    /// The row after a read up to a seq: what was counted after it stays unread. Only a read that
    /// leaves something unread has to read messages.
    pub(super) async fn after_read(&self, row: &CountedRow, read: Seq) -> Result<CountedRow> {
        let mut next = row.clone();
        next.read_seq = read;
        next.unread = if read >= row.counted_last {
            0
        } else if read - row.read_seq < row.counted_seq - read {
            let read = self.count_between(row, row.read_seq, read).await?;
            row.unread.saturating_sub(read)
        } else {
            self.count_between(row, read, row.counted_seq).await?
        };
        Ok(next)
    }

    async fn advance_delivered(
        &self,
        user: &UserId,
        id: &ConversationId,
        delivered: Seq,
    ) -> Result<Advanced> {
        if delivered == 0 {
            let row = self.status(user, id).await?;
            return Ok(Advanced { read_before: row.last_read_seq, row, moved: false });
        }
        let write = Write::update(
            Table::MessageStatus,
            row_key(user, id),
            "SET #last_delivered_seq = :delivered, #last_read_seq = if_not_exists(#last_read_seq, :zero)",
        )
        .only_if("attribute_not_exists(#last_delivered_seq) OR #last_delivered_seq < :delivered")
        .value(":delivered", n(delivered))
        .value(":zero", n(0));
        let (item, moved) = match self.dynamo.write(&write).await? {
            WriteOutcome::Done(item) => (Some(item), true),
            WriteOutcome::Refused(item) => (item, false),
        };
        let row = status_row(user, id, item.as_ref());
        Ok(Advanced { read_before: row.last_read_seq, row, moved })
    }
}

#[async_trait]
impl MessageStatus for DynamoStore {
    async fn advance(
        &self,
        user: &UserId,
        conversation: &ConversationId,
        delivered: Seq,
        read: Seq,
    ) -> Result<Advanced> {
        self.writable()?;
        let Some(side) = conversation.side_of(user) else {
            return Ok(Advanced { row: status_row(user, conversation, None), read_before: 0, moved: false });
        };
        let mut row = self.row(conversation, side).await?;
        if delivered.max(read) > row.counted_seq {
            // The messages may be ahead of the row.
            row = self.bring_up(row, None).await?;
            row = self.close_holes(row, delivered.max(read)).await?;
        }
        let mut at_least_delivered = 0;
        for _ in 0..TRIES {
            let last = row.last_seq();
            let read = read.min(last);
            let delivered = delivered.min(last).max(read).max(at_least_delivered);
            if read <= row.read_seq {
                return self.advance_delivered(user, conversation, delivered).await;
            }
            let next = self.after_read(&row, read).await?;
            match self.read_at_once(ReadUpdate { row: &next, version: row.version, delivered }).await? {
                ReadOutcome::Moved(status) => {
                    // Both rows are written together, so one tells where the other was. After an
                    // erasure nothing was read.
                    let read_before = if row.read_seq > row.erased_up_to { row.read_seq } else { 0 };
                    return Ok(Advanced { row: status, read_before, moved: true });
                }
                ReadOutcome::RowChanged(other) => row = other,
                ReadOutcome::Behind(status) if status.last_read_seq >= read => {
                    // Another call has written both rows; this one started from an older row.
                    row = self.row(conversation, side).await?;
                    if row.read_seq < status.last_read_seq {
                        return Err(StoreError::Corrupt(format!(
                            "message_status and conversations disagree on what {user} has read of {conversation}; run \
                             `bluetick repair --user {user}`"
                        )));
                    }
                }
                ReadOutcome::Behind(status) => at_least_delivered = status.last_delivered_seq,
            }
        }
        Err(StoreError::unavailable("a conversation with too many concurrent writers"))
    }

    async fn status(&self, user: &UserId, conversation: &ConversationId) -> Result<StatusRow> {
        let item = self.dynamo.get(Table::MessageStatus, row_key(user, conversation)).await?;
        Ok(status_row(user, conversation, item.as_ref()))
    }

    async fn statuses(&self, rows: &[(UserId, ConversationId)]) -> Result<Vec<StatusRow>> {
        let keys = rows.iter().map(|(user, id)| row_key(user, id)).collect();
        let items = self.dynamo.get_many(Table::MessageStatus, keys).await?;
        let of = |user: &UserId, id: &ConversationId| {
            let is_it = |item: &&Item| {
                item.text("user_id") == Some(user.as_str())
                    && item.text("conversation_id") == Some(id.as_str())
            };
            status_row(user, id, items.iter().find(is_it))
        };
        Ok(rows.iter().map(|(user, id)| of(user, id)).collect())
    }

    async fn notified(&self, user: &UserId, conversation: &ConversationId) -> Result<(StatusRow, Seq)> {
        let item = self.dynamo.get(Table::MessageStatus, row_key(user, conversation)).await?;
        let notified = item.as_ref().map_or(0, |item| item.seq("last_notified_seq"));
        Ok((status_row(user, conversation, item.as_ref()), notified))
    }

    async fn raise_notified(&self, user: &UserId, conversation: &ConversationId, seq: Seq) -> Result<()> {
        self.writable()?;
        let key = row_key(user, conversation);
        let write = Write::update(Table::MessageStatus, key, "SET #last_notified_seq = :seq")
            .only_if("attribute_not_exists(#last_notified_seq) OR #last_notified_seq < :seq")
            .value(":seq", n(seq));
        self.dynamo.write(&write).await.map(|_| ())
    }

    async fn statuses_of(&self, user: &UserId) -> Result<Vec<StatusRow>> {
        let items = self.dynamo.query_all(Table::MessageStatus, s(user)).await?;
        let receipts = items.iter().filter(|item| is_receipt(item));
        receipts.map(|item| Ok(status_row(user, &item.conversation()?, Some(item)))).collect()
    }
}
