//! `cold_runs`: small rows that name the objects with cold messages, and which messages may move
//! there.
//!
//! Messages move from the engine only, never from the memtable: a checkpoint would write those
//! again. The row of a run is durable in the log before the hot copies are removed, so a crash
//! leaves copies, which are found by their seqs. No run is recorded while copies of the last one
//! are left, so only the last one is searched.

pub(super) mod reads;

use std::{
    collections::HashMap,
    ops::{Bound, Range},
    sync::Arc,
};

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, MessageId, Seq, Side};
use parking_lot::Mutex;

use super::{
    Embedded, StoreCore,
    bytes::{ByteReader, FORMAT, check_format, put_str, put_u64},
    conversation::ConversationState,
    engine::{EngineSnapshot, Space, conversation_id},
    entry::MessageEntry,
    rows::{Bytes, RowSpace, RowTransaction},
    runs::{RewriteAction, message_key, split_message_key},
};
use crate::{
    ColdCandidate, ColdRun, ColdRuns, EnlistPlace, Message, Movable, PageLimit, Result, StoreError,
    cold_shard,
};

/// State of the cold tier that is kept in memory only.
#[derive(Default)]
pub(super) struct ColdState {
    leases: Mutex<HashMap<u16, (String, u64)>>,
    /// Held while messages of the engine are rewritten or removed.
    pub rewriting: Mutex<()>,
}

/// A run as its row holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunRow {
    pub run: ColdRun,
    /// How many messages of each member count as unread up to the last one.
    pub counted: [u64; 2],
}

impl AsRef<ColdRun> for RunRow {
    fn as_ref(&self) -> &ColdRun {
        &self.run
    }
}

impl RunRow {
    fn key(&self) -> Vec<u8> {
        message_key(&self.run.conversation_id, self.run.last_seq)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let run = &self.run;
        let mut out = vec![FORMAT];
        let numbers = [run.first_seq, self.counted[0], self.counted[1], run.bytes, run.index_bytes];
        let ends = [run.first_ts, run.last_ts, run.least_id.0, run.greatest_id.0];
        numbers.into_iter().chain(ends).for_each(|n| put_u64(&mut out, n));
        put_str(&mut out, &run.object);
        out
    }

    pub(super) fn decode(key: &[u8], value: &[u8]) -> Result<RunRow> {
        let (id, last_seq) = split_message_key(key)?;
        let r = &mut ByteReader(value);
        check_format(r)?;
        let first_seq = r.u64()?;
        let counted = [r.u64()?, r.u64()?];
        let run = ColdRun {
            conversation_id: conversation_id(id)?,
            first_seq,
            last_seq,
            bytes: r.u64()?,
            index_bytes: r.u64()?,
            first_ts: r.u64()?,
            last_ts: r.u64()?,
            least_id: MessageId(r.u64()?),
            greatest_id: MessageId(r.u64()?),
            object: r.str()?.to_owned(),
        };
        r.end()?;
        Ok(RunRow { run, counted })
    }

    fn read((key, value): (Bytes, Bytes)) -> Result<RunRow> {
        RunRow::decode(&key, &value)
    }
}

/// The keys of a conversation's runs that end at or after a seq.
fn keys_from(id: &ConversationId, seq: Seq) -> Range<Vec<u8>> {
    let mut end = id.as_str().as_bytes().to_vec();
    end.push(1);
    message_key(id, seq)..end
}

/// The keys of all runs after one. Ids are text, in which no byte is this high.
fn keys_after(after: Option<&ColdRun>) -> Range<Vec<u8>> {
    let mut start = after.map(|run| message_key(&run.conversation_id, run.last_seq)).unwrap_or_default();
    start.push(0);
    start..vec![u8::MAX]
}

impl StoreCore {
    fn runs(&self, keys: &Range<Vec<u8>>, limit: usize) -> Result<Vec<RunRow>> {
        let rows = self.rows.first(&self.engine, RowSpace::ColdRuns, keys, limit)?;
        rows.into_iter().map(RunRow::read).collect()
    }

    /// All runs of a conversation, in order.
    pub(super) fn runs_of(&self, id: &ConversationId) -> Result<Vec<RunRow>> {
        self.runs(&keys_from(id, 0), usize::MAX)
    }

    fn last_run(&self, id: &ConversationId) -> Result<Option<RunRow>> {
        let last = self.rows.last(&self.engine, RowSpace::ColdRuns, &keys_from(id, 0))?;
        last.map(RunRow::read).transpose()
    }

    /// The last cold seq of a conversation: everything up to it is cold.
    pub(super) fn last_cold_seq(&self, id: &ConversationId) -> Result<Seq> {
        Ok(self.last_run(id)?.map_or(0, |row| row.run.last_seq))
    }

    /// The engine for a backup. Called by the committer, so that no run is recorded meanwhile.
    pub(super) fn snapshot(&self) -> EngineSnapshot {
        let (recent_runs, _) = self.rows.recent(RowSpace::ColdRuns, &keys_after(None));
        self.engine.snapshot(recent_runs)
    }

    /// Hot copies of messages in the last run, before a seq. The bound keeps the read from scanning
    /// the tombstones behind them.
    fn leftovers_before(&self, last: &ColdRun, before: Seq, limit: usize) -> Result<Vec<MessageEntry>> {
        self.engine.entries(&last.conversation_id, last.first_seq, before, PageLimit::messages(limit))
    }

    fn leftovers(&self, id: &ConversationId, limit: usize) -> Result<Vec<Arc<Message>>> {
        let (last, conv) = (self.last_run(id)?, self.memtable.conv(&self.engine, id)?);
        let (Some(RunRow { run, .. }), Some(conv)) = (last, conv) else { return Ok(Vec::new()) };
        let entries = self.leftovers_before(&run, run.last_seq + 1, limit)?;
        Ok(entries.into_iter().map(|entry| conv.masked(entry).message).collect())
    }

    /// Whether copies of the last run are left, or the first message after it is older than the
    /// idempotency window (R9): younger messages never move.
    fn has_something_to_move(&self, conv: &ConversationState, now: u64) -> Result<bool> {
        let last = self.last_run(&conv.id)?.map(|row| row.run);
        let border = last.as_ref().map_or(0, |run| run.last_seq);
        let first = match conv.last_seq > border + 1 {
            true => self.engine.entry(&conv.id, border + 1)?,
            false => None,
        };
        let young_since = now.saturating_sub(self.config.idempotency_window_ms);
        if first.is_some_and(|first| first.message.ts < young_since) {
            return Ok(true);
        }
        Ok(match last {
            Some(run) => !self.leftovers_before(&run, run.last_seq + 1, 1)?.is_empty(),
            None => false,
        })
    }

    /// Removes messages from the engine, in the order of their keys, as far as they are cold.
    fn drop_hot(&self, places: &[(ConversationId, Seq)]) -> Result<()> {
        let _nothing_is_rewritten = self.cold.rewriting.lock();
        let mut changes = Vec::new();
        for of_one in places.chunk_by(|(a, _), (b, _)| a == b) {
            let border = self.last_cold_seq(&of_one[0].0)?;
            let cold = &of_one[..of_one.partition_point(|(_, seq)| *seq <= border)];
            let (Some((id, first)), Some((_, last))) = (cold.first(), cold.last()) else { continue };
            let is_cold = |seq: Seq| cold.binary_search_by_key(&seq, |(_, seq)| *seq).is_ok();
            let action = |entry: &MessageEntry| {
                if is_cold(entry.message.seq) { RewriteAction::Remove } else { RewriteAction::Keep }
            };
            let mut next = Some(*first);
            while let Some(from) = next {
                let (some, rest) = self.engine.rewritten(id, *first..last + 1, from, action)?;
                changes.extend(some);
                next = rest;
            }
        }
        changes.sort_unstable();
        self.engine.ingest(Space::Messages, changes)
    }
}

fn erased(conv: &ConversationState) -> [Seq; 2] {
    Side::BOTH.map(|side| conv.member(side).erased)
}

impl RowTransaction<'_> {
    /// Records a run if everything is as it was seen, and the run follows the last one or replaces
    /// it.
    fn record(&mut self, row: &RunRow, replaces: Option<&ColdRun>, seen: &Movable) -> Result<bool> {
        let (run, id) = (&row.run, &row.run.conversation_id);
        let Some(conv) = self.conv(id)? else { return Ok(false) };
        let last = self.last(RowSpace::ColdRuns, &keys_from(id, 0))?;
        let last = last.map(RunRow::read).transpose()?.map(|row| row.run);
        let same = last == seen.last_run && replaces.is_none_or(|old| last.as_ref() == Some(old));
        let begins = replaces.map_or(last.as_ref().map_or(0, |last| last.last_seq) + 1, |old| old.first_seq);
        let fits = run.first_seq == begins && (begins..conv.last_seq).contains(&run.last_seq);
        if !same
            || !fits
            || erased(&conv) != seen.erased
            || !self.shared.memtable.is_flushed(id, run.last_seq)
        {
            return Ok(false);
        }
        if let Some(old) = replaces {
            self.remove(RowSpace::ColdRuns, message_key(id, old.last_seq));
        }
        self.put(RowSpace::ColdRuns, row.key(), row.encode());
        Ok(true)
    }

    fn swap(&mut self, old: &ColdRun, new: &ColdRun) -> Result<bool> {
        let key = message_key(&old.conversation_id, old.last_seq);
        let row =
            self.get(RowSpace::ColdRuns, &key)?.map(|value| RunRow::decode(&key, &value)).transpose()?;
        let Some(row) = row.filter(|row| row.run == *old) else { return Ok(false) };
        let place = |run: &ColdRun| (run.conversation_id.clone(), run.first_seq, run.last_seq);
        if place(old) != place(new) {
            return Err(StoreError::Unsupported("replacing a cold object by one with other messages".into()));
        }
        let row = RunRow { run: new.clone(), ..row };
        self.put(RowSpace::ColdRuns, key, row.encode());
        Ok(true)
    }
}

#[async_trait]
impl ColdRuns for Embedded {
    async fn runs_from(&self, conversation: &ConversationId, seq: Seq, limit: usize) -> Result<Vec<ColdRun>> {
        let keys = keys_from(conversation, seq);
        let rows = self.blocking(move |shared| shared.runs(&keys, limit)).await?;
        Ok(rows.into_iter().map(|row| row.run).collect())
    }

    async fn last_run(&self, conversation: &ConversationId) -> Result<Option<ColdRun>> {
        let id = conversation.clone();
        Ok(self.blocking(move |shared| shared.last_run(&id)).await?.map(|row| row.run))
    }

    /// Conversations of the engine in the order of their ids: those in memory alone are young.
    async fn candidates(
        &self,
        shard: u16,
        after: Option<&ColdCandidate>,
        now: u64,
        limit: usize,
    ) -> Result<Vec<ColdCandidate>> {
        let after = after.map(|after| after.conversation_id.clone());
        self.blocking(move |shared| {
            let start = after.as_ref().map_or(Bound::Unbounded, |id| Bound::Excluded(id.as_str()));
            let mut found = Vec::new();
            for row in shared.engine.rows_from(Space::Conversations, start) {
                let (key, value) = row?;
                let id = conversation_id(&key)?;
                if cold_shard(&id) == shard
                    && shared.has_something_to_move(&ConversationState::decode(id.clone(), &value)?, now)?
                {
                    found.push(ColdCandidate { conversation_id: id, due_at: None });
                }
                if found.len() >= limit {
                    break;
                }
            }
            Ok(found)
        })
        .await
    }

    /// No due times are stored: a walk finds every conversation.
    async fn enlist(&self, _now: u64, _from: EnlistPlace) -> Result<(u64, Option<EnlistPlace>)> {
        Ok((0, None))
    }

    async fn movable(&self, conversation: &ConversationId) -> Result<Option<Movable>> {
        let id = conversation.clone();
        self.blocking(move |shared| {
            let conv = shared.memtable.conv(&shared.engine, &id)?.filter(|conv| conv.last_seq > 0);
            let Some(conv) = conv else { return Ok(None) };
            // Read after the conversation: messages that came since are behind its last seq.
            let up_to = shared.memtable.last_flushed(&id, conv.last_seq - 1);
            let last_run = shared.last_run(&id)?.map(|row| row.run);
            Ok(Some(Movable {
                from: last_run.as_ref().map_or(0, |run| run.last_seq) + 1,
                up_to,
                delivered: Side::BOTH.map(|side| conv.member(side).delivered.seq),
                pending: Side::BOTH.map(|side| conv.member(side).pending),
                last_run,
                erased: erased(&conv),
            }))
        })
        .await
    }

    async fn record(&self, run: &ColdRun, replaces: Option<&ColdRun>, seen: &Movable) -> Result<bool> {
        let (first_seq, last_seq, before) = (run.first_seq, run.last_seq, seen.last_run.clone());
        let id = run.conversation_id.clone();
        let last = self.blocking(move |shared| {
            let left = match before {
                Some(before) => shared.leftovers_before(&before, first_seq, 1)?.len(),
                None => 0,
            };
            let last = shared.memtable.entry(&shared.engine, &id, last_seq)?;
            Ok(last.filter(|_| left == 0))
        });
        // Not hot any more, or copies before it are left: another move is running.
        let Some(last) = last.await? else { return Ok(false) };
        let row = RunRow { run: run.clone(), counted: last.counted };
        let (replaces, seen) = (replaces.cloned(), seen.clone());
        self.transact(move |tx| tx.record(&row, replaces.as_ref(), &seen)).await
    }

    async fn swap(&self, old: &ColdRun, new: &ColdRun) -> Result<bool> {
        let (old, new) = (old.clone(), new.clone());
        self.transact(move |tx| tx.swap(&old, &new)).await
    }

    async fn leftovers(&self, conversation: &ConversationId, limit: usize) -> Result<Vec<Arc<Message>>> {
        let id = conversation.clone();
        self.blocking(move |shared| shared.leftovers(&id, limit)).await
    }

    async fn drop_hot(&self, messages: &[Arc<Message>]) -> Result<()> {
        let mut places: Vec<_> = messages.iter().map(|m| (m.conversation_id.clone(), m.seq)).collect();
        places.sort_unstable();
        places.dedup();
        self.blocking(move |shared| shared.drop_hot(&places)).await
    }

    async fn looked_at(&self, _candidate: &ColdCandidate, _next: Option<u64>) -> Result<()> {
        Ok(())
    }

    /// Only this process has the store open, so leases are kept in memory.
    async fn lease(&self, shard: u16, holder: &str, now: u64, until: u64) -> Result<bool> {
        let mut leases = self.shared.cold.leases.lock();
        let (there, ends) = leases.entry(shard).or_insert_with(|| (holder.to_owned(), until));
        let has = there == holder || *ends <= now;
        if has {
            (*there, *ends) = (holder.to_owned(), until);
        }
        Ok(has)
    }

    async fn all_runs(&self, after: Option<&ColdRun>, limit: usize) -> Result<Vec<ColdRun>> {
        let keys = keys_after(after);
        let rows = self.blocking(move |shared| shared.runs(&keys, limit)).await?;
        Ok(rows.into_iter().map(|row| row.run).collect())
    }
}

#[cfg(test)]
mod tests;
