//! `pending_deliveries`: PK receiver_id, SK conversation_id; first_undelivered_seq.

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, Seq, UserId};

use super::{
    DynamoStore,
    item::{Attributes as _, ItemKey, key, n, s},
    tables::Table,
    write::{Write, WriteOutcome},
};
use crate::{Noted, PendingDeliveries, PendingRow, Result};

pub(super) fn pending_key(receiver: &UserId, conversation: &ConversationId) -> ItemKey {
    key([("receiver_id", s(receiver)), ("conversation_id", s(conversation))])
}

#[async_trait]
impl PendingDeliveries for DynamoStore {
    async fn note_undelivered(
        &self,
        receiver: &UserId,
        conversation: &ConversationId,
        seq: Seq,
    ) -> Result<Noted> {
        self.writable()?;
        let write = Write::update(
            Table::PendingDeliveries,
            pending_key(receiver, conversation),
            "SET #first_undelivered_seq = :seq",
        )
        .only_if("attribute_not_exists(#first_undelivered_seq) OR #first_undelivered_seq > :seq")
        .value(":seq", n(seq));
        Ok(match self.dynamo.write(&write).await? {
            WriteOutcome::Done(_) => Noted { first_undelivered_seq: seq, written: true },
            WriteOutcome::Refused(row) => {
                let first = row.map_or(seq, |row| row.seq("first_undelivered_seq"));
                Noted { first_undelivered_seq: first, written: false }
            }
        })
    }

    async fn pending_of(&self, receiver: &UserId) -> Result<Vec<PendingRow>> {
        let items = self.dynamo.query_all(Table::PendingDeliveries, s(receiver)).await?;
        items
            .iter()
            .map(|item| {
                Ok(PendingRow {
                    receiver_id: receiver.clone(),
                    conversation_id: item.conversation()?,
                    first_undelivered_seq: item.need_number("first_undelivered_seq")?,
                })
            })
            .collect()
    }

    async fn pending_row(&self, receiver: &UserId, conversation: &ConversationId) -> Result<Option<Seq>> {
        let item = self.dynamo.get(Table::PendingDeliveries, pending_key(receiver, conversation)).await?;
        item.map(|item| item.need_number("first_undelivered_seq")).transpose()
    }

    async fn settle(
        &self,
        receiver: &UserId,
        conversation: &ConversationId,
        expected: Seq,
        to: Option<Seq>,
    ) -> Result<bool> {
        self.writable()?;
        let key = pending_key(receiver, conversation);
        let write = match to {
            Some(to) => {
                let update = "SET #first_undelivered_seq = :to";
                Write::update(Table::PendingDeliveries, key, update).value(":to", n(to))
            }
            None => Write::delete(Table::PendingDeliveries, key),
        };
        let write = write.only_if("#first_undelivered_seq = :expected").value(":expected", n(expected));
        Ok(matches!(self.dynamo.write(&write).await?, WriteOutcome::Done(_)))
    }
}
