//! Reads of messages for the rows, hot or cold, in one order.
//!
//! A seq that a run covers is read from the run, even if a hot copy remains. The row's `cold_up_to`
//! says up to where that is. A row that was read before a run was recorded lacks it, but then the
//! hot rows have a gap: so a reader looks for a run only at a gap.

use std::sync::Arc;

use bluetick_protocol::{ConversationId, Seq};

use super::{
    DynamoStore,
    client::PartitionQuery,
    cold::read_run,
    item::{n, s},
    messages::{HOLE_CLIENT_MSG_ID, StoredMessage},
    tables::Table,
};
use crate::{ColdObjects, ColdRun, Message, PageLimit, Result, StoreError};

/// What to read of hot messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Parts {
    Whole,
    /// All but their bodies.
    Headers,
}

/// A void that closed a hole is known by its `client_msg_id`.
fn stored(message: Arc<Message>) -> StoredMessage {
    let hole = message.void && message.client_msg_id.as_str() == HOLE_CLIENT_MSG_ID;
    StoredMessage { message, hole }
}

impl DynamoStore {
    /// The run that holds a seq, if one does.
    pub(super) async fn run_at(&self, conversation: &ConversationId, seq: Seq) -> Result<Option<ColdRun>> {
        let query = PartitionQuery {
            range: Some((">=", n(seq))),
            limit: Some(1),
            ..PartitionQuery::of(Table::ColdRuns, s(conversation))
        };
        let (items, _) = self.dynamo.query(&query).await?;
        let run = items.first().map(read_run).transpose()?;
        Ok(run.filter(|run| run.first_seq <= seq))
    }

    /// Cold messages from a seq on, to the end of its run at most. Nothing if no run holds it.
    async fn cold_from(
        &self,
        conversation: &ConversationId,
        seq: Seq,
        most: usize,
    ) -> Result<Option<Vec<Arc<Message>>>> {
        let last = |run: &ColdRun| seq.saturating_add(most.max(1) as u64 - 1).min(run.last_seq);
        let look_up = || self.run_at(conversation, seq);
        let read = ColdObjects::read_at(self.objects.as_deref(), look_up, |run| (seq, last(run))).await?;
        Ok(read.map(|(_, messages)| messages))
    }

    /// The message that a run holds under a seq, if one does.
    pub(super) async fn cold_at(
        &self,
        conversation: &ConversationId,
        seq: Seq,
    ) -> Result<Option<Arc<Message>>> {
        let page = self.cold_from(conversation, seq, 1).await?;
        Ok(page.and_then(|page| page.into_iter().next()))
    }

    /// Messages from a seq on, at most so many, given up to where a row says that they are cold. A
    /// page may be shorter; the one that comes back empty is the last.
    pub(super) async fn stored_from(
        &self,
        conversation: &ConversationId,
        from: Seq,
        cold_up_to: Seq,
        most: usize,
        parts: Parts,
    ) -> Result<Vec<StoredMessage>> {
        let cold = async || {
            let page = self.cold_from(conversation, from, most).await?;
            Ok::<_, StoreError>(page.map(|page| page.into_iter().map(stored).collect()))
        };
        if from <= cold_up_to
            && let Some(page) = cold().await?
        {
            return Ok(page);
        }
        let hot = match parts {
            Parts::Headers => self.headers_from(conversation, from, most).await?,
            Parts::Whole => {
                let limit = PageLimit { messages: most, bytes: usize::MAX };
                self.page(conversation, (">=", from), false, limit).await?
            }
        };
        let whole = (from..).zip(&hot).all(|(seq, stored)| stored.message.seq == seq);
        match whole {
            true => Ok(hot),
            // What is cold has no gap up to its border: if this seq is not cold, no later one is.
            false => Ok(cold().await?.unwrap_or(hot)),
        }
    }
}
