//! `messages` in the engine: a row holds a run of consecutive messages of a conversation, under the
//! seq of the last. Writing, merging and reading a row costs the engine about the same for one
//! message as for many. Older versions wrote a row for each message; these are runs of one.
//!
//! Runs may overlap: after a crash in a checkpoint, the next one writes the same messages again and
//! may cut them into runs elsewhere. Each set of runs covers its messages without gaps, so a reader
//! that goes through the rows in order and takes every seq once misses none.

use std::ops::Range;

use bluetick_protocol::{ConversationId, Seq};

use super::{
    bytes::Malformed,
    engine::{Engine, EngineChange, Space, broken},
    entry::MessageEntry,
};
use crate::{PageLimit, Result, failpoint};

/// A run ends at this size: half of a block of the engine, which is always read whole.
const RUN_BYTES: usize = 4 * 1024;
/// The most messages in a run, however short they are. It bounds how far a message is from its key.
const RUN_MESSAGES: u64 = 64;
/// How much is read at a time when runs are rewritten.
const REWRITE_BYTES: usize = 16 * 1024 * 1024;

/// What a rewrite does with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RewriteAction {
    Keep,
    Void,
    Remove,
}

/// Partition key conversation, sort key seq. No id contains a zero byte.
pub(super) fn message_key(id: &ConversationId, seq: Seq) -> Vec<u8> {
    let mut key = Vec::with_capacity(id.as_str().len() + 9);
    put_message_key(&mut key, id, seq);
    key
}

fn put_message_key(key: &mut Vec<u8>, id: &ConversationId, seq: Seq) {
    key.extend_from_slice(id.as_str().as_bytes());
    key.push(0);
    key.extend_from_slice(&seq.to_be_bytes());
}

/// The conversation and the seq in a key.
pub(super) fn split_message_key(key: &[u8]) -> Result<(&[u8], Seq), Malformed> {
    let split = key.split_last_chunk::<8>().and_then(|(id, seq)| Some((id.strip_suffix(&[0])?, seq)));
    let (id, seq) = split.ok_or(Malformed("a key with a seq is cut short"))?;
    Ok((id, Seq::from_be_bytes(*seq)))
}

/// The keys of all rows that may hold messages with these seqs. The end is bounded, so that a read
/// does not scan the tombstones behind it.
fn keys_of(id: &ConversationId, seqs: Range<Seq>) -> Range<Vec<u8>> {
    let end = seqs.end.max(seqs.start).saturating_add(RUN_MESSAGES);
    message_key(id, seqs.start)..message_key(id, end)
}

/// Collects the messages of a page, as far as they fit.
struct PageBuilder {
    entries: Vec<MessageEntry>,
    bytes: usize,
    limit: PageLimit,
}

impl PageBuilder {
    fn new(limit: PageLimit) -> PageBuilder {
        PageBuilder { entries: Vec::new(), bytes: 0, limit }
    }

    /// Returns whether it fits.
    fn take(&mut self, entry: MessageEntry) -> bool {
        self.bytes += entry.message.content_bytes();
        let fits = self.entries.is_empty() || self.bytes <= self.limit.bytes;
        let fits = fits && !self.is_full();
        if fits {
            self.entries.push(entry);
        }
        fits
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= self.limit.messages
    }
}

impl Engine {
    pub(super) fn entry(&self, id: &ConversationId, seq: Seq) -> Result<Option<MessageEntry>> {
        Ok(self.entries(id, seq, seq.saturating_add(1), PageLimit::messages(1))?.pop())
    }

    /// Entries with seqs in `from..before`, from the front, within the limit.
    pub(super) fn entries(
        &self,
        id: &ConversationId,
        from: Seq,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<MessageEntry>> {
        let (mut page, mut next) = (PageBuilder::new(limit), from);
        let mut rows = self.space(Space::Messages).range(keys_of(id, from..before));
        while next < before
            && !page.is_full()
            && let Some(row) = rows.next()
        {
            let run = row.value().map_err(broken)?;
            for entry in MessageEntry::of_run(id, &run, next..before) {
                let entry = entry?;
                next = entry.message.seq + 1;
                if !page.take(entry) {
                    return Ok(page.entries);
                }
            }
        }
        Ok(page.entries)
    }

    /// The last entries with seqs in `floor..before`, in order, within the limit.
    pub(super) fn entries_before(
        &self,
        id: &ConversationId,
        floor: Seq,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<MessageEntry>> {
        if before <= floor {
            return Ok(Vec::new());
        }
        let messages = self.space(Space::Messages);
        let (mut page, mut before) = (PageBuilder::new(limit), before);
        // The run with the last of them may end behind it; all other runs end before it.
        let keys = keys_of(id, before - 1..before);
        let older = message_key(id, floor)..keys.start.clone();
        let mut rows = messages.range(keys).take(1).chain(messages.range(older).rev());
        while floor < before
            && !page.is_full()
            && let Some(row) = rows.next()
        {
            let run = row.value().map_err(broken)?;
            let entries: Vec<MessageEntry> =
                MessageEntry::of_run(id, &run, floor..before).collect::<Result<_, _>>()?;
            before = entries.first().map_or(before, |entry| entry.message.seq);
            if !entries.into_iter().rev().all(|entry| page.take(entry)) {
                break;
            }
        }
        page.entries.reverse();
        Ok(page.entries)
    }

    /// Writes messages sorted by conversation and seq, erased ones as voids. Buffers are reused:
    /// this is the bulk of a checkpoint.
    pub(super) fn ingest_messages<'a>(
        &self,
        entries: impl Iterator<Item = (&'a MessageEntry, bool)>,
    ) -> Result<()> {
        let mut entries = entries.peekable();
        if entries.peek().is_none() {
            return Ok(());
        }
        let mut ingestion = self.space(Space::Messages).start_ingestion().map_err(broken)?;
        let (mut key, mut run) = (Vec::with_capacity(160), Vec::with_capacity(2 * RUN_BYTES));
        let mut messages = 0;
        while let Some((entry, erased)) = entries.next() {
            match erased {
                true => entry.voided().encode(&mut run),
                false => entry.encode(&mut run),
            }
            let message = &entry.message;
            let goes_on = entries.peek().is_some_and(|(next, _)| {
                next.message.seq == message.seq + 1 && next.message.conversation_id == message.conversation_id
            });
            messages += 1;
            if goes_on && run.len() < RUN_BYTES && messages < RUN_MESSAGES {
                continue;
            }
            put_message_key(&mut key, &message.conversation_id, message.seq);
            ingestion.write(key.as_slice(), run.as_slice()).map_err(broken)?;
            failpoint::hit("checkpoint.half_a_run");
            key.clear();
            run.clear();
            messages = 0;
        }
        ingestion.finish().map_err(broken)
    }

    /// The writes that apply `action` to each message with a seq in `seqs`, beginning with the row
    /// that ends at `from` or later; and where to go on, if there is more than one part.
    pub(super) fn rewritten(
        &self,
        id: &ConversationId,
        seqs: Range<Seq>,
        from: Seq,
        action: impl Fn(&MessageEntry) -> RewriteAction,
    ) -> Result<(Vec<EngineChange>, Option<Seq>)> {
        let (mut changes, mut bytes) = (Vec::new(), 0);
        for row in self.space(Space::Messages).range(keys_of(id, from..seqs.end)) {
            let (key, run) = row.into_inner().map_err(broken)?;
            let (mut left, mut changed) = (Vec::with_capacity(run.len()), false);
            for entry in MessageEntry::of_run(id, &run, 0..Seq::MAX) {
                let entry = entry?;
                let action =
                    if seqs.contains(&entry.message.seq) { action(&entry) } else { RewriteAction::Keep };
                changed |= action != RewriteAction::Keep;
                match action {
                    RewriteAction::Keep => entry.encode(&mut left),
                    RewriteAction::Void => entry.voided().encode(&mut left),
                    RewriteAction::Remove => {}
                }
            }
            if changed {
                changes.push((key.to_vec(), Some(left).filter(|left| !left.is_empty())));
            }
            bytes += run.len();
            if bytes >= REWRITE_BYTES {
                return Ok((changes, Some(split_message_key(&key)?.1 + 1)));
            }
        }
        Ok((changes, None))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bluetick_protocol::{ClientMsgId, MessageId, Side};

    use super::*;
    use crate::Message;

    const ALL: PageLimit = PageLimit { messages: usize::MAX, bytes: usize::MAX };

    fn conversation(name: &str) -> ConversationId {
        ConversationId::new(name).unwrap()
    }

    fn entry(id: &ConversationId, seq: Seq) -> MessageEntry {
        let message = Message {
            conversation_id: id.clone(),
            seq,
            message_id: MessageId(seq * 10),
            client_msg_id: ClientMsgId::new(&format!("c-{seq}")).unwrap(),
            from: if seq.is_multiple_of(3) { Side::High } else { Side::Low },
            body: "x".repeat(200),
            ts: seq * 100,
            attachment: None,
            meta: None,
            withheld: false,
            void: false,
        };
        MessageEntry { message: Arc::new(message), counted: [seq, seq / 3] }
    }

    struct OpenEngine {
        engine: Engine,
        _dir: tempfile::TempDir,
    }

    fn open() -> OpenEngine {
        let dir = tempfile::tempdir().unwrap();
        OpenEngine { engine: Engine::open(dir.path(), 1 << 20, 3_000).unwrap(), _dir: dir }
    }

    impl OpenEngine {
        fn write(&self, id: &ConversationId, seqs: Range<Seq>) {
            let entries: Vec<MessageEntry> = seqs.map(|seq| entry(id, seq)).collect();
            self.engine.ingest_messages(entries.iter().map(|entry| (entry, false))).unwrap();
        }

        /// Every fourth message as a void, or none.
        fn write_some_void(&self, id: &ConversationId, seqs: Range<Seq>, voids: bool) {
            let entries: Vec<MessageEntry> = seqs.map(|seq| entry(id, seq)).collect();
            let written = entries.iter().map(|e| (e, voids && e.message.seq.is_multiple_of(4)));
            self.engine.ingest_messages(written).unwrap();
        }

        /// As older versions did, with a row for each message.
        fn write_singles(&self, id: &ConversationId, seqs: Range<Seq>) {
            let rows = seqs.map(|seq| {
                let mut value = Vec::new();
                entry(id, seq).encode(&mut value);
                (message_key(id, seq), Some(value))
            });
            self.engine.ingest(Space::Messages, rows.collect()).unwrap();
        }

        fn rows(&self) -> usize {
            self.engine.space(Space::Messages).iter().count()
        }

        fn seqs(&self, id: &ConversationId) -> Vec<Seq> {
            seqs_of(&self.engine.entries(id, 0, Seq::MAX, ALL).unwrap())
        }

        /// Every kind of read gives the same messages, however they are cut into rows.
        fn reads(&self, id: &ConversationId, there: Range<Seq>) {
            for from in 0..there.end + 3 {
                let expected: Vec<Seq> = (from.max(there.start)..there.end).collect();
                let found = self.engine.entries(id, from, Seq::MAX, ALL).unwrap();
                assert_eq!(seqs_of(&found), expected, "from {from}");
                let some = self.engine.entries(id, from, from + 4, PageLimit::messages(3)).unwrap();
                let expected: Vec<Seq> = (from.max(there.start)..there.end.min(from + 4)).take(3).collect();
                assert_eq!(seqs_of(&some), expected, "three from {from}");
                let one = self.engine.entry(id, from).unwrap().map(|entry| entry.message.seq);
                assert_eq!(one, there.contains(&from).then_some(from));
                for floor in [0, there.start + 5] {
                    let back = self.engine.entries_before(id, floor, from, PageLimit::messages(20)).unwrap();
                    let expected: Vec<Seq> = (floor.max(there.start)..from.min(there.end)).collect();
                    let expected = &expected[expected.len().saturating_sub(20)..];
                    assert_eq!(seqs_of(&back), expected, "before {from}, not below {floor}");
                }
            }
            // The first and the last are never void here.
            let bytes = PageLimit { messages: 100, bytes: 500 };
            assert_eq!(self.engine.entries(id, there.start, Seq::MAX, bytes).unwrap().len(), 2);
            assert_eq!(self.engine.entries_before(id, 0, there.end, bytes).unwrap().len(), 2);
            let none = PageLimit { messages: 100, bytes: 0 };
            assert_eq!(self.engine.entries(id, there.start, Seq::MAX, none).unwrap().len(), 1);
        }
    }

    fn seqs_of(entries: &[MessageEntry]) -> Vec<Seq> {
        entries.iter().map(|entry| entry.message.seq).collect()
    }

    #[test]
    fn messages_that_follow_each_other_share_rows_and_are_read_one_by_one() {
        let (store, id) = (open(), conversation("alice~bob"));
        let others = [conversation("alice~b"), conversation("alice~boba")];
        for other in &others {
            store.write(other, 1..9);
        }
        store.write(&id, 1..70);
        store.write(&id, 70..72);
        store.write(&id, 72..120);
        assert!(store.rows() < 16, "{} rows", store.rows());
        store.reads(&id, 1..120);
        for other in &others {
            store.reads(other, 1..9);
        }
        assert!(store.seqs(&conversation("alice~bobb")).is_empty());
    }

    #[test]
    fn rows_of_one_message_each_are_read_as_before() {
        let (store, id) = (open(), conversation("alice~bob"));
        store.write_singles(&id, 1..30);
        store.write(&id, 30..60);
        store.reads(&id, 1..60);
    }

    #[test]
    fn runs_that_overlap_give_each_message_once() {
        // What a crashed checkpoint left, and what the next one wrote: with more messages, with
        // shorter voids in place of some, or without those voids.
        for (left, voids) in [(12, false), (40, false), (40, true), (99, true), (100, false), (100, true)] {
            for earlier in [true, false] {
                let (store, id) = (open(), conversation("alice~bob"));
                store.write(&id, 1..10);
                store.write_some_void(&id, 10..left, voids && earlier);
                store.write_some_void(&id, 10..100, voids && !earlier);
                store.write(&id, 100..110);
                store.reads(&id, 1..110);
            }
        }
    }

    #[test]
    fn a_message_is_not_far_from_its_key_however_short_it_is() {
        let (store, id) = (open(), conversation("alice~bob"));
        let voids: Vec<MessageEntry> = (1..1_000).map(|seq| entry(&id, seq).voided()).collect();
        store.engine.ingest_messages(voids.iter().map(|entry| (entry, false))).unwrap();
        assert_eq!(store.rows(), 999usize.div_ceil(RUN_MESSAGES as usize));
        for seq in [1, 2, 63, 64, 65, 500, 999] {
            assert_eq!(store.engine.entry(&id, seq).unwrap().map(|entry| entry.message.seq), Some(seq));
        }
        assert_eq!(store.engine.entry(&id, 1_000).unwrap(), None);
    }

    /// Rewrites all rows, a part at a time. Returns the number of rows written and the number of
    /// parts.
    fn rewrite(
        store: &OpenEngine,
        id: &ConversationId,
        seqs: Range<Seq>,
        action: impl Fn(&MessageEntry) -> RewriteAction + Copy,
    ) -> (usize, usize) {
        let (mut next, mut rows, mut parts) = (Some(seqs.start), 0, 0);
        while let Some(from) = next {
            let (changes, rest) = store.engine.rewritten(id, seqs.clone(), from, action).unwrap();
            rows += changes.len();
            store.engine.ingest(Space::Messages, changes).unwrap();
            (next, parts) = (rest, parts + 1);
        }
        (rows, parts)
    }

    #[test]
    fn rewriting_leaves_what_is_not_meant() {
        let (store, id, other) = (open(), conversation("alice~bob"), conversation("alice~bobb"));
        store.write(&id, 1..100);
        store.write(&id, 90..110);
        store.write(&other, 1..20);
        assert_eq!(rewrite(&store, &id, 1..Seq::MAX, |_| RewriteAction::Keep), (0, 1));
        // Removes prefixes that end within a run, from all runs that hold part of them.
        for border in [3, 40, 91, 96] {
            rewrite(&store, &id, 1..border, |_| RewriteAction::Remove);
            assert_eq!(store.seqs(&id), (border..110).collect::<Vec<_>>());
            assert_eq!(store.engine.entry(&id, border - 1).unwrap(), None);
            assert_eq!(
                rewrite(&store, &id, 1..border, |_| RewriteAction::Remove).0,
                0,
                "nothing is left of it"
            );
        }
        let action = |entry: &MessageEntry| match entry.message.from == Side::High {
            true => RewriteAction::Void,
            false => RewriteAction::Keep,
        };
        assert!(rewrite(&store, &id, 1..Seq::MAX, action).0 > 0);
        for entry in store.engine.entries(&id, 0, Seq::MAX, ALL).unwrap() {
            assert_eq!(entry.message.void, entry.message.from == Side::High);
            assert_eq!(entry.message.body.is_empty(), entry.message.void);
        }
        rewrite(&store, &id, 1..Seq::MAX, |_| RewriteAction::Remove);
        assert!(store.seqs(&id).is_empty());
        store.reads(&other, 1..20);
    }

    /// Rows whose first seqs do not rise with their last ones: rows of one message within a longer
    /// run.
    #[test]
    fn nothing_that_was_dropped_comes_back_from_under_another_row() {
        let (store, id) = (open(), conversation("alice~bob"));
        store.write_singles(&id, 1..60);
        store.write(&id, 1..70);
        for border in [5, 11, 30, 52, 60] {
            rewrite(&store, &id, 1..border, |_| RewriteAction::Remove);
            assert_eq!(store.seqs(&id), (border..70).collect::<Vec<_>>());
            assert!(rewrite(&store, &id, 0..border, |_| RewriteAction::Remove).0 == 0, "left below {border}");
        }
    }

    #[test]
    fn a_long_conversation_is_rewritten_a_part_at_a_time_and_wholly() {
        let (store, id) = (open(), conversation("alice~bob"));
        let body = "y".repeat(3 * 1024);
        let entries: Vec<MessageEntry> = (1..4_000)
            .map(|seq| {
                let plain = entry(&id, seq);
                MessageEntry {
                    message: Arc::new(Message { body: body.clone(), ..(*plain.message).clone() }),
                    ..plain
                }
            })
            .collect();
        // Two messages to a row, and each row overlaps with two others.
        store.engine.ingest_messages(entries.iter().map(|entry| (entry, false))).unwrap();
        store.engine.ingest_messages(entries[1..].iter().map(|entry| (entry, false))).unwrap();
        let (rows, parts) = rewrite(&store, &id, 1..Seq::MAX, |_| RewriteAction::Void);
        assert_eq!((rows, parts), (store.rows(), 2));
        for row in store.engine.space(Space::Messages).iter() {
            let run = row.value().unwrap();
            assert!(MessageEntry::of_run(&id, &run, 0..Seq::MAX).all(|entry| entry.unwrap().message.void));
        }
    }
}
