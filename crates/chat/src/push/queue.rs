//! Decisions ordered by due time. Bounded: a decision without room stays in the outbox.

use std::{collections::BTreeMap, time::Duration};

use bluetick_protocol::{ConversationId, Seq, SessionId, UserId};
use bluetick_store::OwedPush;
use tokio::time::Instant;

#[derive(Debug, Clone)]
pub(super) enum Job {
    /// A notification to decide. `sure`: do not wait for live sessions.
    Decide { owed: OwedPush, sure: bool },
    /// A user has read further: a notification may have to be cleared.
    Read(ReadOn),
}

#[derive(Debug, Clone)]
pub(crate) struct ReadOn {
    pub user: UserId,
    pub conversation_id: ConversationId,
    pub before: Seq,
    pub read: Seq,
    /// The session that read it: its device needs no clear.
    pub session: Option<SessionId>,
}

type QueuePosition = (Instant, u64);

pub(super) struct Queue {
    waiting: BTreeMap<QueuePosition, Job>,
    /// Reads come in bursts as a user scrolls; those of one conversation are merged.
    reads: BTreeMap<(UserId, ConversationId), QueuePosition>,
    added: u64,
    max: usize,
}

impl Queue {
    pub(super) fn new(max: usize) -> Queue {
        Queue { waiting: BTreeMap::new(), reads: BTreeMap::new(), added: 0, max }
    }

    /// Whether there is no room for another decision.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() - self.reads.len() >= self.max
    }

    /// Adds an item that is due after a delay. Returns whether it is the first one due.
    pub(super) fn add(&mut self, job: Job, after: Duration) -> bool {
        if let Job::Read(new) = &job {
            let place = self.reads.get(&(new.user.clone(), new.conversation_id.clone()));
            if let Some(Job::Read(waiting)) = place.and_then(|place| self.waiting.get_mut(place)) {
                waiting.before = waiting.before.min(new.before);
                waiting.read = waiting.read.max(new.read);
                waiting.session = new.session;
                return false;
            }
        }
        // Reads have a limit of their own, so that scrolling users do not delay notifications of
        // messages.
        let is_full = match &job {
            Job::Decide { .. } => self.is_full(),
            Job::Read(_) => self.reads.len() >= self.max,
        };
        if is_full {
            metrics::counter!("bluetick_push_queue_full_total").increment(1);
            return false;
        }
        self.added += 1;
        let place = (Instant::now() + after, self.added);
        if let Job::Read(new) = &job {
            self.reads.insert((new.user.clone(), new.conversation_id.clone()), place);
        }
        self.waiting.insert(place, job);
        metrics::gauge!("bluetick_push_queue").set(self.waiting.len() as f64);
        self.waiting.first_key_value().is_some_and(|(first, _)| *first == place)
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the next due item.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Job> {
        let job = self.waiting.first_entry().filter(|first| first.key().0 <= now)?.remove();
        if let Job::Read(read) = &job {
            self.reads.remove(&(read.user.clone(), read.conversation_id.clone()));
        }
        metrics::gauge!("bluetick_push_queue").set(self.waiting.len() as f64);
        Some(job)
    }

    /// Takes everything, due or not.
    pub(super) fn take_all(&mut self) -> Vec<Job> {
        self.reads.clear();
        std::mem::take(&mut self.waiting).into_values().collect()
    }
}

pub(super) fn key(owed: &OwedPush) -> (UserId, ConversationId) {
    (owed.user_id.clone(), owed.conversation_id.clone())
}
