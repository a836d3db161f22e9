//! What the rows need of old messages: hot or cold, read in one order.
//!
//! What a run covers is read from the run, whatever is still hot of it. A row says up to where that is; one that was read
//! before a run was recorded does not, and then the hot rows have a gap: so only a gap makes a reader look for a run.

use std::sync::Arc;

use bluetick_protocol::{ConversationId, Seq};

use super::{
    DynamoStore,
    client::Query,
    cold::read_run,
    item::{n, s},
    messages::{HOLE_CLIENT_MSG_ID, Stored},
    tables::Table,
};
use crate::{ColdObjects, ColdRun, Message, PageLimit, Result, StoreError};

/// What is wanted of hot messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Parts {
    Whole,
    /// All but their bodies.
    Headers,
}

/// A void that closed a hole has the id that no client gave.
fn stored(message: Arc<Message>) -> Stored {
    let hole = message.void && message.client_msg_id.as_str() == HOLE_CLIENT_MSG_ID;
    Stored { message, hole }
}

impl DynamoStore {
    /// The run that holds a seq, if one does.
    pub(super) async fn run_at(&self, conversation: &ConversationId, seq: Seq) -> Result<Option<ColdRun>> {
        let query = Query {
            range: Some((">=", n(seq))),
            limit: Some(1),
            ..Query::of(Table::ColdRuns, s(conversation))
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

    /// Messages from a seq on, at most so many, given up to where a row says that they are cold. A page may be shorter; the
    /// one that comes back empty is the last.
    pub(super) async fn stored_from(
        &self,
        conversation: &ConversationId,
        from: Seq,
        cold_up_to: Seq,
        most: usize,
        parts: Parts,
    ) -> Result<Vec<Stored>> {
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
