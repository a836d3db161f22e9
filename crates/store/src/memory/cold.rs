//! The rows of the cold tier.

use std::sync::Arc;

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, Seq, Side};

use super::Memory;
use crate::{ColdCandidate, ColdRun, ColdRuns, EnlistPlace, Message, Movable, Result, cold_shard};

#[async_trait]
impl ColdRuns for Memory {
    async fn runs_from(&self, conversation: &ConversationId, seq: Seq, limit: usize) -> Result<Vec<ColdRun>> {
        let state = self.read();
        let runs = state.conversations.get(conversation).map(|c| c.cold_runs.range(seq..));
        Ok(runs.into_iter().flatten().map(|(_, run)| run.clone()).take(limit).collect())
    }

    async fn last_run(&self, conversation: &ConversationId) -> Result<Option<ColdRun>> {
        let state = self.read();
        let runs = state.conversations.get(conversation).map(|c| &c.cold_runs);
        Ok(runs.and_then(|runs| runs.last_key_value()).map(|(_, run)| run.clone()))
    }

    async fn candidates(
        &self,
        shard: u16,
        after: Option<&ColdCandidate>,
        _now: u64,
        limit: usize,
    ) -> Result<Vec<ColdCandidate>> {
        let state = self.read();
        let ids = state.conversations.keys().filter(|id| cold_shard(id) == shard);
        let ids = ids.filter(|id| after.is_none_or(|after| **id > after.conversation_id));
        let candidate = |id: &ConversationId| ColdCandidate { conversation_id: id.clone(), due_at: None };
        Ok(ids.take(limit).map(candidate).collect())
    }

    async fn enlist(&self, _now: u64, _from: EnlistPlace) -> Result<(u64, Option<EnlistPlace>)> {
        Ok((0, None))
    }

    async fn movable(&self, conversation: &ConversationId) -> Result<Option<Movable>> {
        let state = self.read();
        let Some(c) = state.conversations.get(conversation) else { return Ok(None) };
        let member = |side: Side| conversation.member(side);
        let pending = |side: Side| state.pending.get(&member(side)).and_then(|rows| rows.get(conversation));
        let last_seq = c.last_seq();
        Ok((last_seq > 0).then(|| Movable {
            from: c.cold_border() + 1,
            up_to: last_seq - 1,
            delivered: Side::BOTH
                .map(|side| state.boundaries(&member(side), conversation).last_delivered_seq),
            pending: Side::BOTH.map(|side| pending(side).copied()),
            last_run: c.cold_runs.last_key_value().map(|(_, run)| run.clone()),
            erased: c.erased_up_to,
        }))
    }

    async fn record(&self, run: &ColdRun, replaces: Option<&ColdRun>, seen: &Movable) -> Result<bool> {
        let mut state = self.write()?;
        let c = state.conversation_mut(&run.conversation_id);
        let last = c.cold_runs.last_key_value().map(|(_, run)| run);
        let begins = replaces.map_or(c.cold_border() + 1, |old| old.first_seq);
        let same = last == seen.last_run.as_ref() && replaces.is_none_or(|old| last == Some(old));
        let fits = run.first_seq == begins && run.last_seq < c.last_seq();
        if !same || !fits || c.erased_up_to != seen.erased {
            return Ok(false);
        }
        if let Some(old) = replaces {
            c.cold_runs.remove(&old.last_seq);
        }
        c.cold_runs.insert(run.last_seq, run.clone());
        Ok(true)
    }

    async fn swap(&self, old: &ColdRun, new: &ColdRun) -> Result<bool> {
        let mut state = self.write()?;
        let c = state.conversation_mut(&old.conversation_id);
        Ok(match c.cold_runs.get_mut(&old.last_seq).filter(|run| *run == old) {
            Some(run) => {
                *run = new.clone();
                true
            }
            None => false,
        })
    }

    async fn leftovers(&self, conversation: &ConversationId, limit: usize) -> Result<Vec<Arc<Message>>> {
        let state = self.read();
        let Some(c) = state.conversations.get(conversation) else { return Ok(Vec::new()) };
        Ok(c.hot(..=c.cold_border()).take(limit).cloned().collect())
    }

    async fn drop_hot(&self, messages: &[Arc<Message>]) -> Result<()> {
        let mut state = self.write()?;
        for message in messages {
            let c = state.conversation_mut(&message.conversation_id);
            if message.seq <= c.cold_border() {
                c.dropped.insert(message.seq);
            }
        }
        Ok(())
    }

    async fn looked_at(&self, _candidate: &ColdCandidate, _next: Option<u64>) -> Result<()> {
        Ok(())
    }

    async fn lease(&self, shard: u16, holder: &str, now: u64, until: u64) -> Result<bool> {
        let mut state = self.write()?;
        let (there, ends) = state.cold_leases.entry(shard).or_insert((holder.to_owned(), until));
        let has = there == holder || *ends <= now;
        if has {
            (*there, *ends) = (holder.to_owned(), until);
        }
        Ok(has)
    }

    async fn all_runs(&self, after: Option<&ColdRun>, limit: usize) -> Result<Vec<ColdRun>> {
        let state = self.read();
        let place = |run: &ColdRun| (run.conversation_id.clone(), run.last_seq);
        let runs = state.conversations.values().flat_map(|c| c.cold_runs.values());
        let runs = runs.filter(|run| after.is_none_or(|after| place(run) > place(after)));
        Ok(runs.take(limit).cloned().collect())
    }
}
