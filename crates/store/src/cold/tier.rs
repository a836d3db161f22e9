//! `messages` as callers read them: hot rows first, then the cold runs.
//!
//! The runs are read only where the hot rows lack a seq, and after them: a dropped row was recorded
//! in a run before. The highest seq of a conversation is never cold, so an empty page of hot rows
//! is the end, and a conversation that is all hot costs no extra read.

use std::sync::Arc;

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, MessageId, Seq, Side};
use quick_cache::sync::Cache;

use super::{ColdObjects, ColdRun, ColdRuns};
use crate::{Committed, Message, Messages, NewMessage, PageLimit, Result, StoreError};

/// For the search by id: runs in one page, and the most objects that are read.
const RUNS_AT_ONCE: usize = 500;
const SEARCHED_OBJECTS: usize = 200;
/// Conversations whose border is cached.
const BORDERS: usize = 16 * 1024;

pub struct ColdTier {
    /// The hot messages.
    pub hot: Arc<dyn Messages>,
    pub runs: Arc<dyn ColdRuns>,
    /// `None` without an object store; then nothing is cold.
    pub objects: Option<Arc<ColdObjects>>,
    /// The last known border of each conversation. A border never falls, so seqs below a known one
    /// are read from runs without asking the hot rows.
    borders: Cache<ConversationId, Seq>,
}

impl ColdTier {
    pub fn new(
        hot: Arc<dyn Messages>,
        runs: Arc<dyn ColdRuns>,
        objects: Option<Arc<ColdObjects>>,
    ) -> ColdTier {
        ColdTier { hot, runs, objects, borders: Cache::new(BORDERS) }
    }

    pub fn objects(&self) -> Result<&ColdObjects> {
        ColdObjects::needed(self.objects.as_deref())
    }

    /// The run that holds a seq, if one does.
    pub async fn run_at(&self, conversation: &ConversationId, seq: Seq) -> Result<Option<ColdRun>> {
        let runs = self.runs.runs_from(conversation, seq, 1).await?;
        let run = runs.into_iter().next().filter(|run| run.first_seq <= seq);
        if let Some(run) = &run {
            self.note_border(run);
        }
        Ok(run)
    }

    fn note_border(&self, run: &ColdRun) {
        let known = self.borders.get(&run.conversation_id).unwrap_or(0);
        if known < run.last_seq {
            self.borders.insert(run.conversation_id.clone(), run.last_seq);
        }
    }

    fn is_known_to_be_cold(&self, conversation: &ConversationId, seq: Seq) -> bool {
        self.borders.get(conversation).is_some_and(|border| seq <= border)
    }

    async fn border(&self, conversation: &ConversationId) -> Result<Seq> {
        let last = self.runs.last_run(conversation).await?;
        Ok(last.map_or(0, |run| {
            self.note_border(&run);
            run.last_seq
        }))
    }

    /// Cold messages from a seq upwards, or downwards, in order, at most to the end of its run.
    async fn cold_page(
        &self,
        conversation: &ConversationId,
        seq: Seq,
        upwards: bool,
        most: usize,
    ) -> Result<Vec<Arc<Message>>> {
        let most = most.max(1) as u64 - 1;
        let wanted = |run: &ColdRun| match upwards {
            true => (seq, seq.saturating_add(most).min(run.last_seq)),
            false => (seq.saturating_sub(most).max(run.first_seq), seq),
        };
        let look_up = || self.run_at(conversation, seq);
        match ColdObjects::read_at(self.objects.as_deref(), look_up, wanted).await? {
            Some((_, messages)) => Ok(messages),
            None => Err(StoreError::Corrupt(format!(
                "message {seq} of {conversation} is neither in a cold run nor hot"
            ))),
        }
    }

    /// Voids what a member wrote in every run of a conversation, by rewriting the objects. Returns
    /// how many messages became void. Once the rows say that the member was erased, `purge` deletes
    /// all other objects with their messages.
    pub async fn erase(&self, conversation: &ConversationId, side: Side, purge: bool) -> Result<u64> {
        let (mut from, mut voided) = (0, 0);
        while let Some(run) = self.runs.runs_from(conversation, from, 1).await?.into_iter().next() {
            let messages = self.objects()?.read_whole(&run).await?;
            let theirs = messages.iter().filter(|m| says_something(m, side)).count() as u64;
            if theirs > 0 {
                let kept: Vec<_> = messages.into_iter().map(|m| without(m, side)).collect();
                let anew = self.objects()?.write(&kept).await?;
                crate::failpoint::hit("cold.erased_anew");
                if !self.runs.swap(&run, &anew).await? {
                    // The run was replaced meanwhile: read it again.
                    self.objects()?.delete(&anew.object).await?;
                    continue;
                }
                crate::failpoint::hit("cold.erased_swapped");
                self.objects()?.delete(&run.object).await?;
                voided += theirs;
            }
            from = run.last_seq + 1;
        }
        if purge && self.objects.is_some() {
            self.purge(conversation, side).await?;
        }
        Ok(voided)
    }

    /// Deletes the orphaned objects of a conversation that hold messages of a member: those of
    /// rewritten runs and of interrupted moves. This cannot hit an object that is about to be
    /// recorded: a mover that read the messages after the erasure has none of the member's, and one
    /// that read them before is refused.
    async fn purge(&self, conversation: &ConversationId, side: Side) -> Result<()> {
        let objects = self.objects()?;
        let listed = objects.list(conversation).await?;
        let runs = self.runs.runs_from(conversation, 0, usize::MAX >> 1).await?;
        for object in listed.iter().filter(|object| runs.iter().all(|run| run.object != object.key)) {
            let holds_theirs = match objects.read_unnamed(object).await {
                Ok(messages) => messages.iter().any(|m| says_something(m, side)),
                // An object that cannot be read back is never recorded.
                Err(StoreError::Damaged { .. }) => true,
                Err(error) => return Err(error),
            };
            if holds_theirs {
                objects.delete(&object.key).await?;
                crate::failpoint::hit("cold.erased_purged");
            }
        }
        Ok(())
    }
}

fn says_something(message: &Message, side: Side) -> bool {
    message.from == side && !message.void
}

fn without(message: Arc<Message>, side: Side) -> Arc<Message> {
    match says_something(&message, side) {
        true => Arc::new(message.voided()),
        false => message,
    }
}

/// The first seq that a sorted page lacks, from `from` to its end.
fn first_missing(page: &[Arc<Message>], from: Seq) -> Option<Seq> {
    let expected = |at: usize| from.saturating_add(at as u64);
    (0..page.len()).find(|&at| page[at].seq != expected(at)).map(expected)
}

/// The first seqs of the gaps in a sorted page before `before`. What lies below its beginning is a
/// gap only if the page was not ended by its limit.
fn gaps(page: &[Arc<Message>], before: Seq, full: bool) -> Vec<Seq> {
    let (mut gaps, mut end) = (Vec::new(), before);
    for message in page.iter().rev() {
        if message.seq + 1 < end {
            gaps.push(message.seq + 1);
        }
        end = message.seq;
    }
    if end > 1 && !full {
        gaps.push(1);
    }
    gaps
}

/// A page that is collected from hot rows and runs, within its limit.
struct Gathered {
    page: Vec<Arc<Message>>,
    bytes: usize,
    limit: PageLimit,
}

impl Gathered {
    fn new(limit: PageLimit) -> Gathered {
        Gathered { page: Vec::new(), bytes: 0, limit }
    }

    /// What is left of the limit; `None` if the page is full.
    fn room(&self) -> Option<PageLimit> {
        let messages = self.limit.messages.saturating_sub(self.page.len());
        let bytes = self.limit.bytes.saturating_sub(self.bytes);
        (messages > 0 && (bytes > 0 || self.page.is_empty())).then_some(PageLimit { messages, bytes })
    }

    /// Adds messages as far as they fit. Returns whether all of them did.
    fn take(&mut self, messages: impl IntoIterator<Item = Arc<Message>>) -> bool {
        for message in messages {
            let bytes = self.bytes + message.content_bytes();
            let full = self.page.len() >= self.limit.messages || bytes > self.limit.bytes;
            if full && !self.page.is_empty() {
                return false;
            }
            self.bytes = bytes;
            self.page.push(message);
        }
        true
    }
}

#[async_trait]
impl Messages for ColdTier {
    async fn commit_sends(&self, sends: Vec<NewMessage>) -> Vec<Result<Committed>> {
        self.hot.commit_sends(sends).await
    }

    async fn read_from(
        &self,
        conversation: &ConversationId,
        from: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Arc<Message>>> {
        let mut gathered = Gathered::new(limit);
        let mut next = from.max(1);
        while let Some(room) = gathered.room() {
            let mut hot = Vec::new();
            let is_cold = self.is_known_to_be_cold(conversation, next) || {
                hot = self.hot.read_from(conversation, next, room).await?;
                match first_missing(&hot, next) {
                    // Everything up to it is cold as well, even if hot copies remain.
                    Some(missing) => self.run_at(conversation, missing).await?.is_some(),
                    None => false,
                }
            };
            if !is_cold {
                // A missing seq here is a hole, which the caller closes (R8).
                gathered.take(hot);
                break;
            }
            let cold = self.cold_page(conversation, next, true, room.messages).await?;
            next += cold.len() as u64;
            if !gathered.take(cold) {
                break;
            }
        }
        Ok(gathered.page)
    }

    async fn read_before(
        &self,
        conversation: &ConversationId,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Arc<Message>>> {
        // Newest first while it is collected.
        let mut gathered = Gathered::new(limit);
        let mut end = before;
        while let Some(room) = gathered.room().filter(|_| end > 1) {
            let last = match self.is_known_to_be_cold(conversation, end - 1) {
                true => end - 1,
                false => {
                    let hot = self.hot.read_before(conversation, end, room).await?;
                    let gaps = gaps(&hot, end, hot.len() >= room.messages);
                    let border = match gaps.is_empty() {
                        true => 0,
                        false => self.border(conversation).await?,
                    };
                    if !gaps.iter().any(|first| *first <= border) {
                        // A missing seq here is a hole, which the caller closes (R8), or the end.
                        gathered.take(hot.into_iter().rev());
                        break;
                    }
                    // Everything below the border is cold, even if hot copies remain.
                    let above: Vec<_> = hot.into_iter().rev().filter(|m| m.seq > border).collect();
                    let lowest = above.last().map_or(end, |m| m.seq);
                    if !gathered.take(above) {
                        break;
                    }
                    if lowest > border + 1 && lowest < end {
                        // The page was ended by its bytes, or there is a hole: more hot messages
                        // may follow.
                        end = lowest;
                        continue;
                    }
                    border.min(lowest - 1)
                }
            };
            let Some(room) = gathered.room() else { break };
            let cold = self.cold_page(conversation, last, false, room.messages).await?;
            end = last + 1 - cold.len() as u64;
            if !gathered.take(cold.into_iter().rev()) {
                break;
            }
        }
        gathered.page.reverse();
        Ok(gathered.page)
    }

    async fn last_seq(&self, conversation: &ConversationId) -> Result<Seq> {
        self.hot.last_seq(conversation).await
    }

    async fn close_hole(&self, conversation: &ConversationId, seq: Seq) -> Result<()> {
        match self.run_at(conversation, seq).await? {
            // A cold seq is no hole.
            Some(_) => Ok(()),
            None => self.hot.close_hole(conversation, seq).await,
        }
    }

    async fn find(&self, message_id: MessageId) -> Result<Option<Arc<Message>>> {
        if let Some(found) = self.hot.find(message_id).await? {
            return Ok(Some(found));
        }
        let (mut after, mut read) = (None, 0);
        loop {
            let runs = self.runs.all_runs(after.as_ref(), RUNS_AT_ONCE).await?;
            for run in runs.iter().filter(|run| (run.least_id..=run.greatest_id).contains(&message_id)) {
                read += 1;
                if read > SEARCHED_OBJECTS {
                    return Err(StoreError::Unsupported(
                        "a search by message id in so many cold objects; give the conversation and the seq"
                            .into(),
                    ));
                }
                let messages = self.objects()?.read(run, run.first_seq, run.last_seq).await?;
                if let Some(found) = messages.into_iter().find(|m| m.message_id == message_id) {
                    return Ok(Some(found));
                }
            }
            match runs.into_iter().next_back() {
                Some(last) => after = Some(last),
                None => return Ok(None),
            }
        }
    }
}
