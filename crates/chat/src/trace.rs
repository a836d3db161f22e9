//! What happened to recent messages: a bounded ring of steps, for `bluetick trace`.

use std::collections::VecDeque;

use bluetick_protocol::{ConversationId, Seq};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// How many steps are remembered.
const RING_STEPS: usize = 16_384;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    Stored,
    PendingRow,
    HandedOver,
    Acked,
    Read,
    /// A provider took the notification of it for a device.
    Pushed,
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

#[derive(Debug, Default)]
pub struct Trace(Mutex<VecDeque<TraceEvent>>);

impl Trace {
    pub(crate) fn note(&self, id: &ConversationId, seq: Seq, step: Step, who: &str, at: u64) {
        let event = TraceEvent { at, step, conversation_id: id.clone(), seq, who: who.to_owned() };
        let mut ring = self.0.lock();
        if ring.len() >= RING_STEPS {
            ring.pop_front();
        }
        ring.push_back(event);
    }

    /// The steps that concern a message: its own, and receipts that cover it.
    pub fn of(&self, id: &ConversationId, seq: Seq) -> Vec<TraceEvent> {
        let ring = self.0.lock();
        let concerns = |e: &&TraceEvent| {
            e.conversation_id == *id
                && match e.step {
                    Step::Acked | Step::Read => e.seq >= seq,
                    _ => e.seq == seq,
                }
        };
        ring.iter().filter(concerns).cloned().collect()
    }
}
