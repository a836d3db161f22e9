//! The seqs that a commit takes for one conversation: from Redis, or from the table where Redis
//! cannot answer (R8).

use std::collections::VecDeque;

use bluetick_protocol::{ConversationId, Seq};

use super::{DynamoStore, messages::StoredMessage};
use crate::{Messages as _, Result, StoreError};

/// Seqs that were taken for one conversation and are not used yet.
#[derive(Default)]
pub(super) struct ReservedSeqs {
    pub free: VecDeque<Seq>,
    /// Redis gave them, so the unused ones are returned to it.
    from_redis: bool,
}

impl ReservedSeqs {
    /// Frees the seqs of messages that were not stored.
    pub fn put_back(&mut self, stored: &[StoredMessage]) {
        for stored in stored.iter().rev() {
            self.free.push_front(stored.message.seq);
        }
    }
}

impl DynamoStore {
    pub(super) async fn next_seq(
        &self,
        id: &ConversationId,
        wanted: u64,
        seqs: &mut ReservedSeqs,
    ) -> Result<Seq> {
        if let Some(seq) = seqs.free.pop_front() {
            return Ok(seq);
        }
        let taken = match self.redis.take_seqs(id, wanted).await {
            Ok(None) => {
                // Redis has no counter: raise it to the table's maximum, then take again.
                let last = self.last_seq(id).await?;
                match self.redis.raise_seq(id, last).await {
                    Ok(()) => self.redis.take_seqs(id, wanted).await,
                    Err(error) => Err(error),
                }
            }
            taken => taken,
        };
        match taken {
            Ok(Some(range)) => {
                seqs.from_redis = true;
                seqs.free = range.collect();
            }
            Ok(None) | Err(_) => {
                seqs.from_redis = false;
                let last = self.last_seq(id).await?;
                seqs.free = (last + 1..=last + wanted).collect();
            }
        }
        seqs.free.pop_front().ok_or_else(|| StoreError::unavailable("a seq"))
    }

    /// After a seq turned out to hold another message, because the counter fell back or a reader
    /// closed the hole: drops the reserved seqs that are in use too, and raises the counter to the
    /// maximum.
    pub(super) async fn after_taken(&self, id: &ConversationId, seqs: &mut ReservedSeqs) -> Result<()> {
        metrics::counter!("bluetick_seqs_fenced_total").increment(1);
        let last = self.last_seq(id).await?;
        seqs.free.retain(|&seq| seq > last);
        if seqs.free.is_empty() {
            let _ = self.redis.raise_seq(id, last).await;
        }
        Ok(())
    }

    /// Returns unused seqs to Redis, because they would be holes.
    pub(super) async fn give_back(&self, id: &ConversationId, seqs: ReservedSeqs) {
        if let (true, Some(&first), Some(&last)) = (seqs.from_redis, seqs.free.front(), seqs.free.back()) {
            let _ = self.redis.return_seqs(id, first..=last).await;
        }
    }
}
