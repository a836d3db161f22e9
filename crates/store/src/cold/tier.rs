//! `messages` as everybody reads them: hot rows, and behind them what is cold.
//!
//! Hot rows are read first. Only where they lack a seq are the runs looked at, after it: what was dropped from the hot rows
//! was recorded before. The highest seq of a conversation is never cold, so an empty page from a seq on is the end, and a
//! conversation that is all hot costs nothing more than before.

use std::sync::Arc;

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, MessageId, Seq, Side};

use super::{ColdObjects, ColdRun, ColdRuns};
use crate::{Committed, Message, Messages, NewMessage, PageLimit, Result, StoreError};

/// How often a run that is written anew under a reader is looked up again.
const TRIES: usize = 5;
/// Runs that are looked through at once for an id.
const RUNS_AT_ONCE: usize = 500;

pub struct ColdTier {
    /// `messages` without what is cold.
    pub hot: Arc<dyn Messages>,
    pub runs: Arc<dyn ColdRuns>,
    /// Nothing where no object store is set up; then nothing can be cold.
    pub objects: Option<Arc<ColdObjects>>,
}

impl ColdTier {
    pub fn objects(&self) -> Result<&ColdObjects> {
        self.objects.as_deref().ok_or_else(|| {
            StoreError::Unusable(
                "messages of this store are in cold objects, and no object store is set up; set [objects]"
                    .into(),
            )
        })
    }

    /// The run that holds a seq, if one does.
    pub async fn run_at(&self, conversation: &ConversationId, seq: Seq) -> Result<Option<ColdRun>> {
        let runs = self.runs.runs_from(conversation, seq, 1).await?;
        Ok(runs.into_iter().next().filter(|run| run.first_seq <= seq))
    }

    /// Cold messages around a seq: from it upwards, or from it downwards, in order, to the end of its run at most.
    /// Nothing if no run holds it.
    async fn cold_page(
        &self,
        conversation: &ConversationId,
        seq: Seq,
        upwards: bool,
        most: usize,
    ) -> Result<Option<Vec<Arc<Message>>>> {
        let (mut tried, mut failed) = (None, None);
        for _ in 0..TRIES {
            let Some(run) = self.run_at(conversation, seq).await? else {
                return failed.map_or(Ok(None), Err);
            };
            if tried.as_ref() == Some(&run) {
                break;
            }
            let most = most.max(1) as u64 - 1;
            let (from, up_to) = match upwards {
                true => (seq, seq.saturating_add(most).min(run.last_seq)),
                false => (seq.saturating_sub(most).max(run.first_seq), seq),
            };
            match self.objects()?.read(&run, from, up_to).await {
                Ok(messages) => return Ok(Some(messages)),
                // It may have been written anew since its row was read; the row tells.
                Err(error) => failed = Some(error),
            }
            tried = Some(run);
        }
        Err(failed
            .unwrap_or_else(|| StoreError::unavailable("a cold object that is written anew again and again")))
    }

    /// Makes void what a member wrote in every run of a conversation, by writing its objects anew without it. Returns how
    /// many messages became void. Once the rows say that the member was erased, so that nobody records what was read before,
    /// `purge` takes every other copy away as well.
    pub async fn erase(&self, conversation: &ConversationId, side: Side, purge: bool) -> Result<u64> {
        let (mut from, mut voided) = (0, 0);
        while let Some(run) = self.runs.runs_from(conversation, from, 1).await?.into_iter().next() {
            let messages = self.objects()?.read_whole(&run).await?;
            let theirs = messages.iter().filter(|m| m.from == side && !m.void).count() as u64;
            if theirs > 0 {
                let kept: Vec<_> = messages.into_iter().map(|m| without(m, side)).collect();
                let anew = self.objects()?.write(&kept).await?;
                crate::failpoint::hit("cold.erased_anew");
                if !self.runs.swap(&run, &anew).await? {
                    // Somebody wrote it anew meanwhile: look at what is there now.
                    self.objects()?.delete(&anew).await?;
                    continue;
                }
                crate::failpoint::hit("cold.erased_swapped");
                if self.objects()?.objects().info(&anew.object).await?.is_none() {
                    // Whoever erases the other member took it for a leftover before it was named: once more.
                    self.runs.swap(&anew, &run).await?;
                    continue;
                }
                self.objects()?.delete(&run).await?;
                voided += theirs;
            }
            from = run.last_seq + 1;
        }
        if purge && from > 0 {
            self.purge(conversation).await?;
        }
        Ok(voided)
    }

    /// Deletes the objects of a conversation that no run names: of runs that were written anew, and of moves that were cut
    /// off. Not beside somebody who may be about to record one.
    async fn purge(&self, conversation: &ConversationId) -> Result<()> {
        let listed = self.objects()?.list(conversation).await?;
        let runs = self.runs.runs_from(conversation, 0, usize::MAX >> 1).await?;
        for object in listed.iter().filter(|object| runs.iter().all(|run| run.object != object.key)) {
            self.objects()?.objects().delete(&object.key).await?;
            crate::failpoint::hit("cold.erased_purged");
        }
        Ok(())
    }
}

fn without(message: Arc<Message>, side: Side) -> Arc<Message> {
    match message.from == side && !message.void {
        true => Arc::new(message.voided()),
        false => message,
    }
}

/// The first seq from `from` on that a page in order lacks, up to its end.
fn first_missing(page: &[Arc<Message>], from: Seq) -> Option<Seq> {
    let expected = |at: usize| from.saturating_add(at as u64);
    (0..page.len()).find(|&at| page[at].seq != expected(at)).map(expected)
}

/// The first seqs of the gaps of a page in order before `before`. What lies below its beginning is one only if the page was
/// not ended by its limit.
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

fn body_bytes(page: &[Arc<Message>]) -> usize {
    page.iter().map(|m| m.body.len()).sum()
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
        let from = from.max(1);
        let mut page: Vec<Arc<Message>> = Vec::new();
        loop {
            let next = page.last().map_or(from, |m| m.seq + 1);
            let room = PageLimit {
                messages: limit.messages.saturating_sub(page.len()),
                bytes: limit.bytes.saturating_sub(body_bytes(&page)),
            };
            if room.messages == 0 || (room.bytes == 0 && !page.is_empty()) {
                return Ok(page);
            }
            let hot = self.hot.read_from(conversation, next, room).await?;
            let Some(missing) = first_missing(&hot, next) else {
                page.extend(hot);
                return Ok(page);
            };
            let cold = match self.run_at(conversation, missing).await? {
                // Everything up to it is cold as well, whatever the hot rows say.
                Some(_) => self.cold_page(conversation, next, true, room.messages).await?,
                None => None,
            };
            let Some(cold) = cold else {
                // A hole, and not for us to close.
                page.extend(hot);
                return Ok(page);
            };
            let mut bytes = body_bytes(&page);
            for message in cold {
                bytes += message.body.len();
                if bytes > limit.bytes && !page.is_empty() {
                    return Ok(page);
                }
                page.push(message);
            }
        }
    }

    async fn read_before(
        &self,
        conversation: &ConversationId,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Arc<Message>>> {
        // Newest first while it is gathered.
        let mut page: Vec<Arc<Message>> = Vec::new();
        let in_order = |mut page: Vec<Arc<Message>>| {
            page.reverse();
            page
        };
        loop {
            let end = page.last().map_or(before, |m| m.seq);
            let room = PageLimit {
                messages: limit.messages.saturating_sub(page.len()),
                bytes: limit.bytes.saturating_sub(body_bytes(&page)),
            };
            if room.messages == 0 || end <= 1 || (room.bytes == 0 && !page.is_empty()) {
                return Ok(in_order(page));
            }
            let hot = self.hot.read_before(conversation, end, room).await?;
            let gaps = gaps(&hot, end, hot.len() >= room.messages);
            let border = match gaps.is_empty() {
                true => 0,
                false => self.runs.last_run(conversation).await?.map_or(0, |run| run.last_seq),
            };
            // What is missing above the border is a hole, or the end, and not for us to fill. What is below it is cold,
            // whatever the hot rows say.
            if !gaps.iter().any(|first| *first <= border) {
                page.extend(hot.into_iter().rev());
                return Ok(in_order(page));
            }
            let kept = hot.iter().filter(|m| m.seq > border).count();
            let last = border.min(end - 1);
            let cold = self.cold_page(conversation, last, false, room.messages - kept).await?;
            let Some(cold) = cold else {
                let why = format!("message {last} of {conversation} is in no run, and not hot");
                return Err(StoreError::Corrupt(why));
            };
            page.extend(hot.into_iter().rev().take(kept));
            let mut bytes = body_bytes(&page);
            for message in cold.into_iter().rev() {
                bytes += message.body.len();
                if bytes > limit.bytes && !page.is_empty() {
                    return Ok(in_order(page));
                }
                page.push(message);
            }
        }
    }

    async fn last_seq(&self, conversation: &ConversationId) -> Result<Seq> {
        self.hot.last_seq(conversation).await
    }

    async fn close_hole(&self, conversation: &ConversationId, seq: Seq) -> Result<()> {
        match self.run_at(conversation, seq).await? {
            // What is cold is not missing.
            Some(_) => Ok(()),
            None => self.hot.close_hole(conversation, seq).await,
        }
    }

    async fn find(&self, message_id: MessageId) -> Result<Option<Arc<Message>>> {
        if let Some(found) = self.hot.find(message_id).await? {
            return Ok(Some(found));
        }
        let mut after = None;
        loop {
            let runs = self.runs.all_runs(after.as_ref(), RUNS_AT_ONCE).await?;
            for run in runs.iter().filter(|run| (run.first_id..=run.last_id).contains(&message_id)) {
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
