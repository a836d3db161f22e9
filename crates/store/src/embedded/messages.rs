//! `messages`: reads by position, over the memtable and the engine. Sends are in `send.rs`.

use std::sync::Arc;

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, MessageId, Seq};

use super::{Embedded, StoreCore};
use crate::{Committed, Message, Messages, NewMessage, PageLimit, Result};

#[async_trait]
impl Messages for Embedded {
    async fn commit_sends(&self, sends: Vec<NewMessage>) -> Vec<Result<Committed>> {
        self.commit(sends).await
    }

    async fn read_from(
        &self,
        conversation: &ConversationId,
        from: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Arc<Message>>> {
        let id = conversation.clone();
        let read = move |shared: &StoreCore| {
            let entries = shared.read_from(&id, from, limit)?;
            Ok(entries.into_iter().map(|e| e.message).collect())
        };
        match self.shared.memtable.holds_from(conversation, from) {
            true => read(&self.shared),
            false => self.blocking(read).await,
        }
    }

    async fn read_before(
        &self,
        conversation: &ConversationId,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Arc<Message>>> {
        let id = conversation.clone();
        self.blocking(move |shared| {
            let entries = shared.read_before(&id, before, limit)?;
            Ok(entries.into_iter().map(|e| e.message).collect())
        })
        .await
    }

    async fn last_seq(&self, conversation: &ConversationId) -> Result<Seq> {
        Ok(self.shared.conv(conversation)?.map_or(0, |conv| conv.last_seq))
    }

    /// The append assigns the seq, so there are no holes to close.
    async fn close_hole(&self, _conversation: &ConversationId, _seq: Seq) -> Result<()> {
        Ok(())
    }

    /// An operator's query without an index, which every send would pay for: ids grow within a
    /// conversation, so each is searched by binary search. Cold messages are not searched.
    async fn find(&self, message_id: MessageId) -> Result<Option<Arc<Message>>> {
        self.blocking(move |shared| {
            let mut ids = shared.memtable.dirty_ids();
            for conv in shared.engine.all_convs() {
                ids.insert(conv?.id);
            }
            for id in ids {
                let Some(conv) = shared.conv(&id)? else { continue };
                let (mut low, mut high) = (shared.last_cold_seq(&id)? + 1, conv.last_seq);
                while low <= high {
                    let middle = low + (high - low) / 2;
                    let Some(entry) = shared.memtable.entry(&shared.engine, &id, middle)? else {
                        break;
                    };
                    match entry.message.message_id.cmp(&message_id) {
                        std::cmp::Ordering::Equal => return Ok(Some(entry.message)),
                        std::cmp::Ordering::Less => low = middle + 1,
                        std::cmp::Ordering::Greater => high = middle - 1,
                    }
                }
            }
            Ok(None)
        })
        .await
    }
}
