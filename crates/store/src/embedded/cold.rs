//! The rows of the cold tier.

use std::sync::Arc;

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, Seq};

use super::Embedded;
use crate::{ColdCandidate, ColdRun, ColdRuns, Message, Movable, Result, StoreError};

fn not_yet<T>() -> Result<T> {
    Err(StoreError::Unsupported("the cold tier".into()))
}

#[async_trait]
impl ColdRuns for Embedded {
    async fn runs_from(
        &self,
        _conversation: &ConversationId,
        _seq: Seq,
        _limit: usize,
    ) -> Result<Vec<ColdRun>> {
        Ok(Vec::new())
    }

    async fn last_run(&self, _conversation: &ConversationId) -> Result<Option<ColdRun>> {
        not_yet()
    }

    async fn candidates(
        &self,
        _shard: u16,
        _after: Option<&ColdCandidate>,
        _now: u64,
        _limit: usize,
    ) -> Result<Vec<ColdCandidate>> {
        not_yet()
    }

    async fn enlist_all(&self, _now: u64) -> Result<u64> {
        not_yet()
    }

    async fn movable(&self, _conversation: &ConversationId) -> Result<Option<Movable>> {
        not_yet()
    }

    async fn record(&self, _run: &ColdRun, _replaces: Option<&ColdRun>, _seen: &Movable) -> Result<bool> {
        not_yet()
    }

    async fn swap(&self, _old: &ColdRun, _new: &ColdRun) -> Result<bool> {
        not_yet()
    }

    async fn leftovers(&self, _conversation: &ConversationId, _limit: usize) -> Result<Vec<Arc<Message>>> {
        not_yet()
    }

    async fn drop_hot(&self, _messages: &[Arc<Message>]) -> Result<()> {
        not_yet()
    }

    async fn looked_at(&self, _candidate: &ColdCandidate, _next: Option<u64>) -> Result<()> {
        not_yet()
    }

    async fn lease(&self, _shard: u16, _holder: &str, _now: u64, _until: u64) -> Result<bool> {
        not_yet()
    }

    async fn all_runs(&self, _after: Option<&ColdRun>, _limit: usize) -> Result<Vec<ColdRun>> {
        Ok(Vec::new())
    }
}
