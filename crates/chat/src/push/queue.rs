//! Decisions that wait for their moment, in the order of their moments. Bounded: what finds no room stays in the outbox.

use std::{collections::BTreeMap, time::Duration};

use bluetick_protocol::{ConversationId, UserId};
use bluetick_store::OwedPush;
use tokio::time::Instant;

type Place = (Instant, u64);

pub(super) struct Queue {
    waiting: BTreeMap<Place, OwedPush>,
    /// Clears come in bursts, as a user scrolls: one of a conversation is enough, with the latest seq.
    clears: BTreeMap<(UserId, ConversationId), Place>,
    added: u64,
    max: usize,
}

impl Queue {
    pub(super) fn new(max: usize) -> Queue {
        Queue { waiting: BTreeMap::new(), clears: BTreeMap::new(), added: 0, max }
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= self.max
    }

    /// Adds a decision that is due after a while. Returns whether it is the first one due.
    pub(super) fn add(&mut self, owed: OwedPush, after: Duration) -> bool {
        if owed.clear {
            let waiting = self.clears.get(&key(&owed)).and_then(|place| self.waiting.get_mut(place));
            if let Some(waiting) = waiting {
                waiting.seq = waiting.seq.max(owed.seq);
                return false;
            }
        }
        if self.is_full() {
            metrics::counter!("bluetick_push_queue_full_total").increment(1);
            return false;
        }
        self.added += 1;
        let place = (Instant::now() + after, self.added);
        if owed.clear {
            self.clears.insert(key(&owed), place);
        }
        self.waiting.insert(place, owed);
        metrics::gauge!("bluetick_push_queue").set(self.waiting.len() as f64);
        self.waiting.first_key_value().is_some_and(|(first, _)| *first == place)
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the next one that is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<OwedPush> {
        let first = self.waiting.first_entry().filter(|first| first.key().0 <= now)?;
        let owed = first.remove();
        if owed.clear {
            self.clears.remove(&key(&owed));
        }
        metrics::gauge!("bluetick_push_queue").set(self.waiting.len() as f64);
        Some(owed)
    }
}

pub(super) fn key(owed: &OwedPush) -> (UserId, ConversationId) {
    (owed.user_id.clone(), owed.conversation_id.clone())
}
