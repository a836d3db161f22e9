//! R8 where hot rows are gone: a seq that was used long ago, and whose message is cold, is free in `messages`.
//!
//! A counter that fell back that far (a Redis restored from an old copy) hands out such a seq, and the table takes a
//! message under it. The sender's row knows better: it has counted the seq, and says up to where messages are cold. So
//! whoever stored a stray takes it back before anybody was told of it, and stores it anew under a new seq; a retry that
//! finds one as its original does the same. Who reads meanwhile finds a run that covers the seq.

use std::sync::Arc;

use bluetick_protocol::{ConversationId, MessageId, Seq};

use super::{
    DynamoStore,
    commit::sent_id,
    item::{Attributes as _, Item, key, n, s},
    messages::{Stored, message_key},
    tables::Table,
    write::Write,
};
use crate::{Message, Result, StoreError};

/// What the record of a send leads to.
pub(super) enum Recorded {
    Message(Arc<Message>),
    /// Another message is cold under its seq, and its own is gone.
    Stray,
}

impl DynamoStore {
    /// Whether a hot message stands where another one is cold.
    async fn is_stray(&self, message: &Message) -> Result<bool> {
        let cold = self.cold_at(&message.conversation_id, message.seq).await?;
        Ok(cold.is_some_and(|cold| cold.message_id != message.message_id))
    }

    /// Takes back what was stored under seqs of cold messages, given up to where the sender's row says that they are.
    /// Returns whether there was any.
    pub(super) async fn take_back_strays(&self, sends: &[Stored], cold_up_to: Seq) -> Result<bool> {
        let mut any = false;
        for Stored { message, .. } in sends.iter().filter(|stored| stored.message.seq <= cold_up_to) {
            if self.is_stray(message).await? {
                tracing::warn!(conversation = %message.conversation_id, seq = message.seq, "taking back a used seq");
                let sent = sent_id(&message.conversation_id, message.from, message.client_msg_id.as_str());
                self.take_back(&sent, &message.conversation_id, message.seq, message.message_id).await?;
                any = true;
            }
        }
        Ok(any)
    }

    /// First the record, so that a retry stores it anew; a message without one is dropped like a copy of what is cold.
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
    pub(super) async fn recorded(&self, conversation: &ConversationId, record: &Item) -> Result<Recorded> {
        let (seq, message_id) = (record.need_number("seq")?, record.message_id("message_id")?);
        let is_it = |message: &Arc<Message>| message.message_id == message_id;
        let hot = self.message_at(conversation, seq).await?.map(|stored| stored.message);
        if let Some(message) = hot.filter(is_it) {
            return Ok(Recorded::Message(message));
        }
        match self.cold_at(conversation, seq).await? {
            Some(message) if is_it(&message) => Ok(Recorded::Message(message)),
            Some(_) => Ok(Recorded::Stray),
            None => Err(StoreError::Corrupt(format!("{conversation} {seq} has a record and no message"))),
        }
    }
}
