//! The steps of delivery, and a bounded ring of the recent ones for `bluetick trace`.

use std::{collections::VecDeque, ops::RangeInclusive};

use bluetick_protocol::{ConversationId, DeviceId, Seq, UserId};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

const RING_CAPACITY: usize = 16_384;

/// A named point of delivery, as `bluetick trace` and the event streams name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceStep {
    /// The receiver's sessions were looked up before the commit.
    LookedUp,
    Stored,
    PendingRow,
    /// The receiver's sessions were looked up again after the commit (R2).
    LookedAgain,
    HandedOver,
    /// The sender's `sent` goes out: one tick.
    Sent,
    /// The session store holds the device's session.
    Registered,
    /// A message was written to a device that is still catching up.
    Drained,
    /// A message was written to a device that has caught up.
    Written,
    CaughtUp,
    Acked,
    Read,
    /// Everything that a pending row covered is acked, and the row is deleted (R4).
    RowGone,
    Unregistered,
    /// A push provider accepted a notification for a device.
    Pushed,
}

impl TraceStep {
    /// Whether the ring keeps it. The other steps only go to subscribers.
    pub(crate) fn is_kept(self) -> bool {
        use TraceStep::*;
        matches!(self, Stored | PendingRow | HandedOver | Acked | Read | Pushed)
    }

    /// A receipt for a seq covers every seq before it.
    pub(crate) fn is_receipt(self) -> bool {
        matches!(self, TraceStep::Acked | TraceStep::Read)
    }
}

/// A step of one message, as `bluetick trace` reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEvent {
    pub at: u64,
    pub step: TraceStep,
    pub conversation_id: ConversationId,
    pub seq: Seq,
    /// The user or device it concerns.
    pub who: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Who {
    User(UserId),
    Device(DeviceId),
}

/// A step in the ring. Consecutive messages share one entry, and nothing is formatted before it is read.
#[derive(Debug)]
pub(crate) struct KeptStep {
    pub at: u64,
    pub step: TraceStep,
    pub conversation_id: ConversationId,
    pub seqs: RangeInclusive<Seq>,
    pub who: Who,
}

impl KeptStep {
    /// The step as it concerns the message `of`.
    fn event(&self, of: Seq) -> TraceEvent {
        let who = match &self.who {
            Who::User(user) => user.to_string(),
            Who::Device(device) => device.to_string(),
        };
        let seq = if self.step.is_receipt() { *self.seqs.end() } else { of };
        TraceEvent { at: self.at, step: self.step, conversation_id: self.conversation_id.clone(), seq, who }
    }
}

/// The most recent steps. The oldest gives way to the newest.
#[derive(Debug, Default)]
pub(crate) struct TraceRing(Mutex<VecDeque<KeptStep>>);

impl TraceRing {
    pub fn push(&self, step: KeptStep) {
        let mut ring = self.0.lock();
        if ring.len() >= RING_CAPACITY {
            ring.pop_front();
        }
        ring.push_back(step);
    }

    /// The steps that concern a message: its own, and the first receipts that cover it.
    pub fn steps_of(&self, id: &ConversationId, seq: Seq) -> Vec<TraceEvent> {
        let ring = self.0.lock();
        let mut steps: Vec<&KeptStep> = Vec::new();
        for event in ring.iter().filter(|event| event.conversation_id == *id) {
            let covered = |known: &&KeptStep| known.step == event.step && known.who == event.who;
            let concerns = match event.step.is_receipt() {
                true => *event.seqs.end() >= seq && !steps.iter().any(covered),
                false => event.seqs.contains(&seq),
            };
            if concerns {
                steps.push(event);
            }
        }
        steps.into_iter().map(|step| step.event(seq)).collect()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }
}
