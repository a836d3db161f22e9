//! What the server does with messages, step by step: a bounded ring of recent steps, for `bluetick trace`, and the
//! onlookers who see each as it happens (`onlookers.rs`).

use std::{collections::VecDeque, time::Duration};

use bluetick_protocol::{ConversationId, DeviceId, Seq, UserId};
use bluetick_store::Clock;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::onlookers::Onlookers;

/// How many steps are remembered.
const RING_STEPS: usize = 16_384;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The receiver's sessions were looked up before the commit.
    LookedUp,
    Stored,
    PendingRow,
    /// They were looked up once more, after the commit (R2).
    LookedAgain,
    HandedOver,
    /// All of that is done, and the sender's answer goes out: one tick.
    Sent,
    /// A device's session stands in the session store.
    Registered,
    /// A message that waited for a device is written to it.
    Drained,
    /// A message is written to a device that had caught up.
    Written,
    CaughtUp,
    Acked,
    Read,
    /// All that a pending row stood for is acked: it is deleted (R4).
    RowGone,
    Unregistered,
    /// A provider took the notification of it for a device.
    Pushed,
}

impl Step {
    /// Whether it says something of a message that is worth remembering.
    fn is_kept(self) -> bool {
        use Step::*;
        matches!(self, Stored | PendingRow | HandedOver | Acked | Read | Pushed)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEvent {
    pub at: u64,
    pub step: Step,
    pub conversation_id: ConversationId,
    pub seq: Seq,
    /// The user or device it concerns.
    pub who: String,
}

/// A step and what it concerns, borrowed: nothing is copied for it unless somebody wants it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Glimpse<'a> {
    pub step: Step,
    pub message: Option<(&'a ConversationId, Option<Seq>)>,
    pub user: &'a UserId,
    pub device: Option<&'a DeviceId>,
    /// How many sessions a lookup found.
    pub count: Option<usize>,
}

impl<'a> Glimpse<'a> {
    pub fn new(step: Step, user: &'a UserId) -> Self {
        Glimpse { step, message: None, user, device: None, count: None }
    }

    pub fn message(mut self, id: &'a ConversationId, seq: Seq) -> Self {
        self.message = Some((id, Some(seq)));
        self
    }

    /// Of a message that has no seq yet.
    pub fn conversation(mut self, id: &'a ConversationId) -> Self {
        self.message = Some((id, None));
        self
    }

    pub fn device(mut self, device: &'a DeviceId) -> Self {
        self.device = Some(device);
        self
    }

    pub fn count(mut self, sessions: usize) -> Self {
        self.count = Some(sessions);
        self
    }
}

/// A step in the ring: nothing is written out before somebody asks.
#[derive(Debug)]
struct Kept {
    at: u64,
    step: Step,
    conversation_id: ConversationId,
    seq: Seq,
    who: Who,
}

#[derive(Debug, PartialEq, Eq)]
enum Who {
    User(UserId),
    Device(DeviceId),
}

impl Kept {
    fn event(&self) -> TraceEvent {
        let who = match &self.who {
            Who::User(user) => user.to_string(),
            Who::Device(device) => device.to_string(),
        };
        let Kept { at, step, conversation_id, seq, .. } = self;
        TraceEvent { at: *at, step: *step, conversation_id: conversation_id.clone(), seq: *seq, who }
    }
}

#[derive(Debug, Default)]
pub struct Trace {
    ring: Mutex<VecDeque<Kept>>,
    pub onlookers: Onlookers,
}

impl Trace {
    /// Notes a step and tells the onlookers. Returns how long the one with the least hurry wants to look at it.
    pub(crate) fn tell(&self, clock: &dyn Clock, glimpse: Glimpse<'_>) -> Duration {
        if glimpse.step.is_kept()
            && let Some((id, Some(seq))) = glimpse.message
        {
            let who = match glimpse.device {
                Some(device) => Who::Device(device.clone()),
                None => Who::User(glimpse.user.clone()),
            };
            let (at, step, conversation_id) = (clock.now_ms(), glimpse.step, id.clone());
            let mut ring = self.ring.lock();
            if ring.len() >= RING_STEPS {
                ring.pop_front();
            }
            ring.push_back(Kept { at, step, conversation_id, seq, who });
        }
        self.onlookers.tell(clock, glimpse)
    }

    /// Notes a step, tells the onlookers, and waits for as long as they want to look.
    pub(crate) async fn show(&self, clock: &dyn Clock, glimpse: Glimpse<'_>) {
        let pace = self.tell(clock, glimpse);
        if !pace.is_zero() {
            tokio::time::sleep(pace).await;
        }
    }

    /// The steps that concern a message: its own, and the first receipts that cover it.
    pub fn of(&self, id: &ConversationId, seq: Seq) -> Vec<TraceEvent> {
        let ring = self.ring.lock();
        let mut steps: Vec<&Kept> = Vec::new();
        for event in ring.iter().filter(|event| event.conversation_id == *id) {
            let is_receipt = matches!(event.step, Step::Acked | Step::Read);
            let covered = |known: &&Kept| known.step == event.step && known.who == event.who;
            let concerns = match is_receipt {
                true => event.seq >= seq && !steps.iter().any(covered),
                false => event.seq == seq,
            };
            if concerns {
                steps.push(event);
            }
        }
        steps.into_iter().map(Kept::event).collect()
    }
}

#[cfg(test)]
mod tests {
    use bluetick_store::SystemClock;

    use super::*;

    #[test]
    fn of_many_receipts_the_first_that_covers_a_message_counts() {
        let (trace, bob) = (Trace::default(), UserId::new("bob").unwrap());
        let id = ConversationId::new("alice~bob").unwrap();
        for (step, seq) in [
            (Step::Stored, 2),
            (Step::Acked, 1),
            (Step::Acked, 2),
            (Step::Acked, 3),
            (Step::Read, 5),
            (Step::Read, 6),
        ] {
            trace.tell(&SystemClock, Glimpse::new(step, &bob).message(&id, seq));
        }
        let steps: Vec<_> = trace.of(&id, 2).iter().map(|event| (event.step, event.seq)).collect();
        assert_eq!(steps, [(Step::Stored, 2), (Step::Acked, 2), (Step::Read, 5)]);
    }
}
