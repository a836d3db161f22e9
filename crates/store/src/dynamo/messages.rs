//! `messages`: PK conversation_id, SK seq. Reads by position, and voids for holes.

use std::sync::Arc;

use async_trait::async_trait;
use aws_sdk_dynamodb::types::ReturnConsumedCapacity;
use bluetick_protocol::{ClientMsgId, ConversationId, Json, MessageId, Seq, Side};

use super::{
    DynamoStore,
    client::{PartitionQuery, failure, names_in},
    item::{Attributes as _, Item, damaged, flag, key, n, s},
    tables::{Table, rows_about},
    write::Write,
};
use crate::{Committed, Message, Messages, NewMessage, PageLimit, Result, StoreError};

/// The `client_msg_id` of a void that closed a hole.
pub(super) const HOLE_CLIENT_MSG_ID: &str = "void";
/// A search by id scans and pays for the whole table, so it is refused beyond this many messages.
const SEARCHABLE_MESSAGES: u64 = 1_000_000;

/// A message as it is stored in the table.
#[derive(Clone)]
pub(super) struct StoredMessage {
    pub message: Arc<Message>,
    /// A void that closed a hole: nobody wrote it, so no row shows it.
    pub hole: bool,
}

pub(super) fn message_item(message: &Message, hole: bool) -> Item {
    let mut item = key([
        ("conversation_id", s(&message.conversation_id)),
        ("seq", n(message.seq)),
        ("message_id", n(message.message_id.0)),
        ("client_msg_id", s(&message.client_msg_id)),
        ("sender", s(message.sender())),
        ("receiver", s(message.receiver())),
        ("body", s(&message.body)),
        ("ts", n(message.ts)),
    ]);
    let mut put = |name: &str, json: &Option<Json>| {
        if let Some(json) = json {
            item.insert(name.to_owned(), s(json.as_str()));
        }
    };
    put("s3_ref", &message.attachment);
    put("meta", &message.meta);
    for (name, on) in [("withheld", message.withheld), ("void", message.void), ("hole", hole)] {
        if on {
            item.insert(name.to_owned(), flag());
        }
    }
    item
}

pub(super) fn read_message(item: &Item) -> Result<StoredMessage> {
    let conversation_id = item.conversation()?;
    let sender = item.user("sender")?;
    let from = conversation_id
        .side_of(&sender)
        .ok_or_else(|| damaged("sender", "is no member of the conversation"))?;
    let json =
        |name: &str| item.text(name).map(Json::from_text).transpose().map_err(|error| damaged(name, error));
    let message = Message {
        from,
        seq: item.need_number("seq")?,
        message_id: item.message_id("message_id")?,
        client_msg_id: ClientMsgId::new(item.need_text("client_msg_id")?)
            .map_err(|error| damaged("client_msg_id", error))?,
        body: item.owned("body").unwrap_or_default(),
        ts: item.need_number("ts")?,
        attachment: json("s3_ref")?,
        meta: json("meta")?,
        withheld: item.has("withheld"),
        void: item.has("void"),
        conversation_id,
    };
    Ok(StoredMessage { message: Arc::new(message), hole: item.has("hole") })
}

pub(super) fn message_key(conversation: &ConversationId, seq: Seq) -> super::item::ItemKey {
    key([("conversation_id", s(conversation)), ("seq", n(seq))])
}

/// The attributes that tell whom a message counts for.
pub(super) const FOR_COUNTING: &str = "#conversation_id, #seq, #message_id, #client_msg_id, #sender, #ts, #withheld, \
                                       #void, #hole";

impl DynamoStore {
    /// One page of messages in either direction, as many as the limit and one answer of DynamoDB
    /// allow.
    pub(super) async fn page(
        &self,
        conversation: &ConversationId,
        range: (&'static str, Seq),
        backwards: bool,
        limit: PageLimit,
    ) -> Result<Vec<StoredMessage>> {
        let mut query = PartitionQuery {
            range: Some((range.0, n(range.1))),
            backwards,
            limit: Some(limit.messages.min(1_000) as i32),
            ..PartitionQuery::of(Table::Messages, s(conversation))
        };
        let (mut page, mut bytes): (Vec<StoredMessage>, usize) = (Vec::new(), 0);
        loop {
            let (items, next) = self.dynamo.query(&query).await?;
            for item in &items {
                let stored = read_message(item)?;
                bytes += stored.message.weight();
                if page.len() >= limit.messages || (!page.is_empty() && bytes > limit.bytes) {
                    return Ok(page);
                }
                page.push(stored);
            }
            match next {
                Some(next) if page.len() < limit.messages => query.start = Some(next),
                _ => return Ok(page),
            }
        }
    }

    /// Messages from a seq on, without their bodies.
    pub(super) async fn headers_from(
        &self,
        conversation: &ConversationId,
        from: Seq,
        most: usize,
    ) -> Result<Vec<StoredMessage>> {
        let query = PartitionQuery {
            range: Some((">=", n(from))),
            limit: Some(most as i32),
            only: Some(FOR_COUNTING),
            ..PartitionQuery::of(Table::Messages, s(conversation))
        };
        let (items, _) = self.dynamo.query(&query).await?;
        items.iter().map(read_message).collect()
    }

    pub(super) async fn message_at(
        &self,
        conversation: &ConversationId,
        seq: Seq,
    ) -> Result<Option<StoredMessage>> {
        let item = self.dynamo.get(Table::Messages, message_key(conversation, seq)).await?;
        item.as_ref().map(read_message).transpose()
    }
}

#[async_trait]
impl Messages for DynamoStore {
    async fn commit_sends(&self, sends: Vec<NewMessage>) -> Vec<Result<Committed>> {
        self.commit_all(sends).await
    }

    async fn read_from(
        &self,
        conversation: &ConversationId,
        from: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Arc<Message>>> {
        let page = self.page(conversation, (">=", from), false, limit).await?;
        Ok(page.into_iter().map(|stored| stored.message).collect())
    }

    async fn read_before(
        &self,
        conversation: &ConversationId,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Arc<Message>>> {
        // The table's numbers end at `i64::MAX`.
        let before = before.min(i64::MAX as u64);
        let page = self.page(conversation, ("<", before), true, limit).await?;
        Ok(page.into_iter().rev().map(|stored| stored.message).collect())
    }

    async fn last_seq(&self, conversation: &ConversationId) -> Result<Seq> {
        let query = PartitionQuery {
            backwards: true,
            limit: Some(1),
            only: Some("#seq"),
            ..PartitionQuery::of(Table::Messages, s(conversation))
        };
        let (items, _) = self.dynamo.query(&query).await?;
        Ok(items.first().map_or(0, |item| item.seq("seq")))
    }

    async fn close_hole(&self, conversation: &ConversationId, seq: Seq) -> Result<()> {
        self.writable()?;
        // There is no hole beyond the last message, and a cold seq is no hole: a run is recorded
        // before its hot rows are dropped, so the check after the read finds it.
        if seq == 0
            || seq > self.last_seq(conversation).await?
            || self.run_at(conversation, seq).await?.is_some()
        {
            return Ok(());
        }
        let client_msg_id =
            ClientMsgId::new(HOLE_CLIENT_MSG_ID).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let void = Message {
            conversation_id: conversation.clone(),
            seq,
            message_id: self.lease.mint().await?,
            client_msg_id,
            from: Side::Low,
            body: String::new(),
            ts: self.clock.now_ms(),
            attachment: None,
            meta: None,
            withheld: false,
            void: true,
        };
        let write = Write::put(Table::Messages, message_item(&void, true));
        // A refusal means that the seq was no hole.
        self.dynamo.write(&write.only_if("attribute_not_exists(#conversation_id)")).await.map(|_| ())
    }

    /// The table has no index by id, because every message would pay for it. An operator may search
    /// a small table.
    async fn find(&self, message_id: MessageId) -> Result<Option<Arc<Message>>> {
        if rows_about(&self.dynamo, Table::Messages).await? > SEARCHABLE_MESSAGES {
            return Err(StoreError::Unsupported(
                "a search by message id in so large a table; give the conversation and the seq".into(),
            ));
        }
        let mut start = None;
        loop {
            let (items, next) = self
                .dynamo
                .call("Scan", async || {
                    let request = self
                        .dynamo
                        .client()
                        .scan()
                        .table_name(self.dynamo.name_of(Table::Messages))
                        .filter_expression("#message_id = :id")
                        .set_expression_attribute_names(Some(names_in("#message_id").collect()))
                        .expression_attribute_values(":id", n(message_id.0))
                        .set_exclusive_start_key(start.clone())
                        .return_consumed_capacity(ReturnConsumedCapacity::Total);
                    let answer = request.send().await.map_err(failure)?;
                    Ok((answer.items.unwrap_or_default(), answer.last_evaluated_key))
                })
                .await?;
            if let Some(item) = items.first() {
                return read_message(item).map(|stored| Some(stored.message));
            }
            match next.filter(|key| !key.is_empty()) {
                Some(next) => start = Some(next),
                None => return Ok(None),
            }
        }
    }
}
