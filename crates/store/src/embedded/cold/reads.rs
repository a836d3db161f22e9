//! The store's own reads of cold messages: for unread counts, recounts and export. They are rare. A
//! read that fails fails the call: nothing is counted without it.

use std::sync::Arc;

use bluetick_protocol::{ConversationId, Seq, Side};

use super::{RunRow, keys_from};
use crate::{
    ColdObjects, ColdRun, Message, PageLimit, Result, StoreError,
    embedded::{
        Embedded, StoreCore,
        conversation::{Boundary, ConversationState},
        entry::MessageEntry,
    },
};

pub(in crate::embedded) fn missing(id: &ConversationId, seq: Seq) -> StoreError {
    StoreError::Corrupt(format!("message {seq} of {id} is missing"))
}

impl StoreCore {
    /// The run that holds a seq, if there is one.
    pub(in crate::embedded) fn run_at(&self, id: &ConversationId, seq: Seq) -> Result<Option<RunRow>> {
        let runs = self.runs(&keys_from(id, seq), 1)?;
        Ok(runs.into_iter().next().filter(|row| row.run.first_seq <= seq))
    }

    /// Cold messages from a seq to the end of its run at most, and the run's row. `None` if no run
    /// holds the seq.
    pub(in crate::embedded) async fn cold_page(
        &self,
        id: &ConversationId,
        seq: Seq,
        most: usize,
    ) -> Result<Option<(RunRow, Vec<Arc<Message>>)>> {
        let last = |run: &ColdRun| seq.saturating_add(most.max(1) as u64 - 1).min(run.last_seq);
        let look_up = || std::future::ready(self.run_at(id, seq));
        ColdObjects::read_at(self.config.objects.as_deref(), look_up, |run| (seq, last(run))).await
    }

    /// The boundary of a member at a cold seq: the count at the end of its run, less what comes
    /// after the seq.
    async fn cold_boundary(&self, conv: &ConversationState, side: Side, seq: Seq) -> Result<Boundary> {
        let (id, other) = (&conv.id, side.other());
        let row = self.run_at(id, seq)?.ok_or_else(|| missing(id, seq))?;
        if row.run.last_seq == seq {
            return Ok(Boundary { seq, counted: row.counted[other.index()] });
        }
        let page = self.cold_page(id, seq + 1, usize::MAX).await?;
        let (row, after) = page.ok_or_else(|| missing(id, seq + 1))?;
        let after = after.iter().filter(|m| counts(m, other)).count() as u64;
        Ok(Boundary { seq, counted: row.counted[other.index()].saturating_sub(after) })
    }

    /// A page of hot messages from a seq on, not below the cold ones.
    pub(in crate::embedded) fn read_from(
        &self,
        id: &ConversationId,
        from: Seq,
        limit: PageLimit,
    ) -> Result<Vec<MessageEntry>> {
        let from = match self.memtable.holds_from(id, from) {
            true => from,
            // Skips the cold part at once: the engine would step over its tombstones one by one.
            false => from.max(self.last_cold_seq(id)? + 1),
        };
        self.memtable.read_from(&self.engine, id, from, limit)
    }

    /// A page of hot messages before a seq.
    pub(in crate::embedded) fn read_before(
        &self,
        id: &ConversationId,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<MessageEntry>> {
        self.memtable.read_before(&self.engine, id, self.last_cold_seq(id)? + 1, before, limit)
    }
}

/// Whether a message counts as unread for the other member until they read it. An erasure does not
/// change that.
pub(in crate::embedded) fn counts(message: &Message, writer: Side) -> bool {
    message.from == writer && !message.withheld
}

impl Embedded {
    /// The boundary of a member at a seq, clamped to the end of the conversation. It is to raise
    /// the boundary `there`.
    pub(in crate::embedded) async fn boundary_at(
        &self,
        conv: &ConversationState,
        side: Side,
        seq: Seq,
        there: Boundary,
    ) -> Result<Boundary> {
        match self.shared.hot_boundary(conv, side, seq)? {
            Some(boundary) => Ok(boundary),
            // Boundaries only grow: no count is needed below one.
            None if seq <= there.seq => Ok(there),
            // Boxed, because it is rare and would make every caller's future larger.
            None => Box::pin(self.shared.cold_boundary(conv, side, seq)).await,
        }
    }

    /// One message, hot or cold.
    pub(in crate::embedded) async fn message_at(
        &self,
        id: &ConversationId,
        seq: Seq,
    ) -> Result<Arc<Message>> {
        if let Some(entry) = self.shared.memtable.entry(&self.shared.engine, id, seq)? {
            return Ok(entry.message);
        }
        let page = Box::pin(self.messages_from(id, seq, 1)).await?;
        page.into_iter().next().ok_or_else(|| missing(id, seq))
    }

    /// Messages from a seq on, hot or cold, without gaps. Empty only behind the last one.
    pub(in crate::embedded) async fn messages_from(
        &self,
        id: &ConversationId,
        from: Seq,
        most: usize,
    ) -> Result<Vec<Arc<Message>>> {
        let conversation = id.clone();
        let read = move |shared: &StoreCore| shared.read_from(&conversation, from, PageLimit::messages(most));
        let hot = self.blocking(read).await?;
        let at_all = !hot.is_empty();
        // Messages may move to the cold tier during the read: what is missing is looked up there.
        let in_order = hot.into_iter().zip(from..).take_while(|(entry, seq)| entry.message.seq == *seq);
        let page: Vec<_> = in_order.map(|(entry, _)| entry.message).collect();
        if !page.is_empty() || !at_all {
            return Ok(page);
        }
        let cold = self.shared.cold_page(id, from, most).await?;
        let (_, cold) = cold.ok_or_else(|| missing(id, from))?;
        let conv = self.shared.memtable.conv(&self.shared.engine, id)?.ok_or_else(|| missing(id, from))?;
        Ok(cold.into_iter().map(|message| conv.masked_message(message)).collect())
    }
}
