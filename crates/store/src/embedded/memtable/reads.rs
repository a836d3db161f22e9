//! Pages of messages, merged from the memtable and the engine.

use std::ops::Range;

use bluetick_protocol::{ConversationId, Seq};

use super::{DirtyConversation, Memtable};
use crate::{
    PageLimit, Result,
    embedded::{engine::Engine, entry::MessageEntry},
};

impl Memtable {
    /// One entry, from memory or the engine.
    pub(in crate::embedded) fn entry(
        &self,
        engine: &Engine,
        id: &ConversationId,
        seq: Seq,
    ) -> Result<Option<MessageEntry>> {
        {
            let shard = self.conv_shard(id).lock();
            let memtables = [shard.active.get(id), shard.frozen.get(id)];
            // The newest state says what is erased, wherever the entry is.
            if let Some(newest) = memtables.into_iter().flatten().next()
                && let Some(entry) = memtables.into_iter().flatten().find_map(|d| find(&d.entries, seq))
            {
                return Ok(Some(newest.conv.masked(entry.clone())));
            }
        }
        let Some(entry) = engine.entry(id, seq)? else {
            return Ok(None);
        };
        Ok(match self.conv(engine, id)? {
            Some(conv) => Some(conv.masked(entry)),
            None => Some(entry),
        })
    }

    /// The first seq in memory, and the entries in memory with seqs in a range: at most `max`, from
    /// its front or its end.
    fn recent(
        &self,
        id: &ConversationId,
        range: Range<Seq>,
        max: usize,
        from_end: bool,
    ) -> (Seq, Vec<MessageEntry>) {
        let shard = self.conv_shard(id).lock();
        let memtables = [shard.frozen.get(id), shard.active.get(id)];
        let runs: Vec<&[MessageEntry]> =
            memtables.into_iter().flatten().map(|d| d.entries.as_slice()).collect();
        let first_in_memory = runs.iter().find_map(|run| run.first()).map_or(Seq::MAX, |e| e.message.seq);
        let within = |run: &[MessageEntry]| {
            let first = run.first().map_or(0, |e| e.message.seq);
            let place =
                |seq: Seq| usize::try_from(seq.saturating_sub(first)).unwrap_or(usize::MAX).min(run.len());
            place(range.start)..place(range.end)
        };
        let found = runs.iter().flat_map(|run| &run[within(run)]);
        let entries = match from_end {
            false => found.take(max).cloned().collect(),
            true => {
                let skip = found.clone().count().saturating_sub(max);
                found.skip(skip).cloned().collect()
            }
        };
        (first_in_memory, entries)
    }

    /// Whether an entry and everything before it are in the engine alone.
    pub(in crate::embedded) fn is_flushed(&self, id: &ConversationId, seq: Seq) -> bool {
        seq < self.recent(id, 0..0, 0, false).0
    }

    /// The last seq that is in the engine alone; `last_seq` is the conversation's last.
    pub(in crate::embedded) fn last_flushed(&self, id: &ConversationId, last_seq: Seq) -> Seq {
        last_seq.min(self.recent(id, 0..0, 0, false).0.saturating_sub(1))
    }

    /// Whether every entry from `seq` on is in memory, so that reading them needs no disk.
    pub(in crate::embedded) fn holds_from(&self, id: &ConversationId, seq: Seq) -> bool {
        let shard = self.conv_shard(id).lock();
        let first = |d: Option<&DirtyConversation>| d.and_then(|d| d.entries.first()).map(|e| e.message.seq);
        let oldest = first(shard.frozen.get(id)).or_else(|| first(shard.active.get(id)));
        let last = shard.active.get(id).or_else(|| shard.frozen.get(id)).or(None).map(|d| d.conv.last_seq);
        let last = last.or_else(|| shard.clean.get(id).map(|conv| conv.last_seq));
        oldest.is_some_and(|oldest| oldest <= seq) || last.is_some_and(|last| last < seq)
    }

    pub(in crate::embedded) fn read_from(
        &self,
        engine: &Engine,
        id: &ConversationId,
        from: Seq,
        limit: PageLimit,
    ) -> Result<Vec<MessageEntry>> {
        let Some(conv) = self.conv(engine, id)? else {
            return Ok(Vec::new());
        };
        if from > conv.last_seq {
            return Ok(Vec::new());
        }
        let (first_in_memory, mut recent) = self.recent(id, from..Seq::MAX, limit.messages, false);
        let mut entries = match from < first_in_memory {
            true => engine.entries(id, from, first_in_memory, limit)?,
            false => Vec::new(),
        };
        let whole = entries.last().is_none_or(|e| e.message.seq + 1 == first_in_memory);
        if whole {
            let mut bytes: usize = entries.iter().map(|e| e.message.content_bytes()).sum();
            let room = limit.messages.saturating_sub(entries.len());
            let fitting = recent.iter().take(room).take_while(|e| {
                bytes += e.message.content_bytes();
                bytes <= limit.bytes
            });
            // A page holds at least one message, however long it is.
            let fitting = fitting.count().max(room.min(usize::from(entries.is_empty())));
            recent.truncate(fitting);
            match entries.is_empty() {
                true => entries = recent,
                false => entries.append(&mut recent),
            }
        }
        Ok(entries.into_iter().map(|e| conv.masked(e)).collect())
    }

    /// Reads backwards. The engine is not read below `floor`.
    pub(in crate::embedded) fn read_before(
        &self,
        engine: &Engine,
        id: &ConversationId,
        floor: Seq,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<MessageEntry>> {
        let Some(conv) = self.conv(engine, id)? else {
            return Ok(Vec::new());
        };
        let (first_in_memory, recent) = self.recent(id, 0..before, limit.messages, true);
        let (mut entries, mut bytes) = (Vec::new(), 0usize);
        for entry in recent.into_iter().rev() {
            bytes += entry.message.content_bytes();
            if entries.len() >= limit.messages || (bytes > limit.bytes && !entries.is_empty()) {
                entries.reverse();
                return Ok(entries.into_iter().map(|e| conv.masked(e)).collect());
            }
            entries.push(entry);
        }
        entries.reverse();
        let room = limit.messages.saturating_sub(entries.len());
        if room > 0 {
            let room = PageLimit { messages: room, bytes: limit.bytes };
            let mut older = engine.entries_before(id, floor, before.min(first_in_memory), room)?;
            // The whole page stays within the limit; the oldest entries are left out.
            let fits = older.iter().rev().take_while(|e| {
                bytes += e.message.content_bytes();
                bytes <= limit.bytes
            });
            let fits = fits.count().max(usize::from(entries.is_empty() && !older.is_empty()));
            older.drain(..older.len() - fits);
            older.append(&mut entries);
            entries = older;
        }
        Ok(entries.into_iter().map(|e| conv.masked(e)).collect())
    }
}

fn find(entries: &[MessageEntry], seq: Seq) -> Option<&MessageEntry> {
    let first = entries.first()?.message.seq;
    entries.get(usize::try_from(seq.checked_sub(first)?).ok()?)
}
