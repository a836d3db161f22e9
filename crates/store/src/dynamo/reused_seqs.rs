//! R8 where hot rows are gone: the seq of a message that became cold is free in `messages`.
//!
//! A counter that fell back that far (a Redis restored from an old snapshot) hands out such a seq,
//! and the table accepts a message under it. The sender's row shows the mistake: it has counted the
//! seq, and knows up to where messages are cold. So the writer takes the message back before
//! anybody is told of it and stores it under a new seq; a retry whose original is such a message
//! does the same. Readers meanwhile find the cold run that covers the seq.

use std::sync::Arc;

use bluetick_protocol::{ConversationId, MessageId, Seq};

use super::{
    DynamoStore,
    commit::sent_id,
    item::{Attributes as _, Item, key, n, s},
    messages::{StoredMessage, message_key},
    tables::Table,
    write::Write,
};
use crate::{Message, Result, StoreError};

/// What an idempotency record points at.
pub(super) enum RecordedSend {
    Message(Arc<Message>),
    /// Another message is cold under its seq, and its own is gone.
    SeqReused,
}

impl DynamoStore {
    /// Whether another message is cold under the seq of this hot one.
    async fn reuses_cold_seq(&self, message: &Message) -> Result<bool> {
        let cold = self.cold_at(&message.conversation_id, message.seq).await?;
        Ok(cold.is_some_and(|cold| cold.message_id != message.message_id))
    }

    /// Removes messages that were stored under seqs of cold ones; `cold_up_to` is from the sender's
    /// row. Returns whether there were any.
    pub(super) async fn take_back_reused(&self, sends: &[StoredMessage], cold_up_to: Seq) -> Result<bool> {
        let mut any = false;
        for StoredMessage { message, .. } in sends.iter().filter(|stored| stored.message.seq <= cold_up_to) {
            if self.reuses_cold_seq(message).await? {
                tracing::warn!(conversation = %message.conversation_id, seq = message.seq, "removing a message that was stored under a used seq; it is stored again under a new one");
                let sent = sent_id(&message.conversation_id, message.from, message.client_msg_id.as_str());
                self.take_back(&sent, &message.conversation_id, message.seq, message.message_id).await?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Deletes the record first, so that a retry stores the message again. A message without a
    /// record is dropped like a hot copy of a cold message.
    pub(super) async fn take_back(
        &self,
        sent: &str,
        conversation: &ConversationId,
        seq: Seq,
        message_id: MessageId,
    ) -> Result<()> {
        for write in [
            Write::delete(Table::SentIds, key([("sent_id", s(sent))])),
            Write::delete(Table::Messages, message_key(conversation, seq)),
        ] {
            let write = write.only_if("#message_id = :id").value(":id", n(message_id.0));
            self.dynamo.write(&write).await?;
        }
        Ok(())
    }

    /// The message of an idempotency record, hot or cold.
    pub(super) async fn recorded(
        &self,
        conversation: &ConversationId,
        record: &Item,
    ) -> Result<RecordedSend> {
        let (seq, message_id) = (record.need_number("seq")?, record.message_id("message_id")?);
        let is_it = |message: &Arc<Message>| message.message_id == message_id;
        let hot = self.message_at(conversation, seq).await?.map(|stored| stored.message);
        if let Some(message) = hot.filter(is_it) {
            return Ok(RecordedSend::Message(message));
        }
        match self.cold_at(conversation, seq).await? {
            Some(message) if is_it(&message) => Ok(RecordedSend::Message(message)),
            Some(_) => Ok(RecordedSend::SeqReused),
            None => Err(StoreError::Corrupt(format!(
                "{conversation} {seq} has an idempotency record and no message"
            ))),
        }
    }
}
