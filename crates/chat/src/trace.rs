//! What the server does with messages, step by step: a bounded ring of recent steps, for `bluetick trace`, and the
//! onlookers who see each as it happens (`onlookers.rs`).

use std::{collections::VecDeque, ops::RangeInclusive, sync::Arc, time::Duration};

use bluetick_protocol::{ConversationId, DeviceId, Seq, UserId};
use bluetick_store::{Clock, Message};
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

/// A step in the ring, which several messages in a row may share: nothing is written out before somebody asks.
#[derive(Debug)]
struct Kept {
    at: u64,
    step: Step,
    conversation_id: ConversationId,
    seqs: RangeInclusive<Seq>,
    who: Who,
}

#[derive(Debug, PartialEq, Eq)]
enum Who {
    User(UserId),
    Device(DeviceId),
}

impl Kept {
    fn is_receipt(&self) -> bool {
        matches!(self.step, Step::Acked | Step::Read)
    }

    /// As it concerns a message.
    fn event(&self, of: Seq) -> TraceEvent {
        let who = match &self.who {
            Who::User(user) => user.to_string(),
            Who::Device(device) => device.to_string(),
        };
        let seq = if self.is_receipt() { *self.seqs.end() } else { of };
        TraceEvent { at: self.at, step: self.step, conversation_id: self.conversation_id.clone(), seq, who }
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
        if let Some((id, Some(seq))) = glimpse.message {
            self.keep(clock, &glimpse, id, seq..=seq);
        }
        self.onlookers.tell(clock, glimpse)
    }

    fn keep(&self, clock: &dyn Clock, glimpse: &Glimpse<'_>, id: &ConversationId, seqs: RangeInclusive<Seq>) {
        if !glimpse.step.is_kept() {
            return;
        }
        let who = match glimpse.device {
            Some(device) => Who::Device(device.clone()),
            None => Who::User(glimpse.user.clone()),
        };
        let kept = Kept { at: clock.now_ms(), step: glimpse.step, conversation_id: id.clone(), seqs, who };
        let mut ring = self.ring.lock();
        if ring.len() >= RING_STEPS {
            ring.pop_front();
        }
        ring.push_back(kept);
    }

    /// The same step of several messages. Where nobody watches, those of one conversation in a row are noted as one.
    pub(crate) async fn show_each(
        &self,
        clock: &dyn Clock,
        glimpse: Glimpse<'_>,
        messages: impl Iterator<Item = &Arc<Message>>,
    ) {
        if self.onlookers.is_anybody() {
            for message in messages {
                self.show(clock, glimpse.message(&message.conversation_id, message.seq)).await;
            }
            return;
        }
        if !glimpse.step.is_kept() {
            return;
        }
        let mut run: Option<(&ConversationId, Seq, Seq)> = None;
        for message in messages {
            run = Some(match run {
                Some((id, first, last)) if message.seq == last + 1 && message.conversation_id == *id => {
                    (id, first, message.seq)
                }
                other => {
                    if let Some((id, first, last)) = other {
                        self.keep(clock, &glimpse, id, first..=last);
                    }
                    (&message.conversation_id, message.seq, message.seq)
                }
            });
        }
        if let Some((id, first, last)) = run {
            self.keep(clock, &glimpse, id, first..=last);
        }
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
            let covered = |known: &&Kept| known.step == event.step && known.who == event.who;
            let concerns = match event.is_receipt() {
                true => *event.seqs.end() >= seq && !steps.iter().any(covered),
                false => event.seqs.contains(&seq),
            };
            if concerns {
                steps.push(event);
            }
        }
        steps.into_iter().map(|step| step.event(seq)).collect()
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

    #[tokio::test]
    async fn messages_in_a_row_share_a_step_and_others_have_their_own() {
        let (trace, bob) = (Trace::default(), UserId::new("bob").unwrap());
        let ids = ["alice~bob", "bob~carol"].map(|id| ConversationId::new(id).unwrap());
        let message = |id: &ConversationId, seq| {
            Arc::new(Message {
                conversation_id: id.clone(),
                seq,
                message_id: Default::default(),
                ts: 0,
                from: bluetick_protocol::Side::Low,
                client_msg_id: bluetick_protocol::ClientMsgId::new("x").unwrap(),
                body: "hi".into(),
                attachment: None,
                meta: None,
                withheld: false,
                void: false,
            })
        };
        let sent = [(0, 1), (0, 2), (0, 3), (0, 5), (1, 6), (1, 7)].map(|(id, seq)| message(&ids[id], seq));
        trace.show_each(&SystemClock, Glimpse::new(Step::Stored, &bob), sent.iter()).await;
        assert_eq!(trace.ring.lock().len(), 3);
        for (id, seq, stored) in
            [(0, 1, true), (0, 3, true), (0, 4, false), (0, 5, true), (0, 6, false), (1, 6, true)]
        {
            let steps: Vec<_> = trace.of(&ids[id], seq).iter().map(|event| (event.step, event.seq)).collect();
            let expected: &[_] = if stored { &[(Step::Stored, seq)] } else { &[] };
            assert_eq!(steps, expected, "{} {seq}", ids[id]);
        }
    }
}
