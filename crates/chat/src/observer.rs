//! What happens beside delivery: the trace ring, live subscribers, metrics and failpoints hang on named points.
//!
//! A rule calls one method at each point and knows nothing of what it does. No method waits.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bluetick_protocol::{ConversationId, DeviceId, Seq, UserId};
use bluetick_store::{Clock, Committed, Message, SessionEntry, StatusRow, failpoint};

use crate::{
    StepEvent, Subscription, TraceEvent,
    subscribers::Subscribers,
    trace::{KeptStep, TraceRing, TraceStep, Who},
};

/// A step and what it concerns, borrowed: it is copied only if the ring or a subscriber wants it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Observed<'a> {
    pub step: TraceStep,
    pub message: Option<(&'a ConversationId, Option<Seq>)>,
    pub user: &'a UserId,
    device: Option<&'a DeviceId>,
    count: Option<usize>,
}

impl<'a> Observed<'a> {
    pub fn new(step: TraceStep, user: &'a UserId) -> Self {
        Observed { step, message: None, user, device: None, count: None }
    }

    fn by(step: TraceStep, session: &'a SessionEntry) -> Self {
        Observed { device: Some(&session.device), ..Observed::new(step, &session.user_id) }
    }

    pub fn message(mut self, id: &'a ConversationId, seq: Seq) -> Self {
        self.message = Some((id, Some(seq)));
        self
    }

    pub fn event(&self, at: u64) -> StepEvent {
        StepEvent {
            at,
            step: self.step,
            conversation_id: self.message.map(|(id, _)| id.clone()),
            seq: self.message.and_then(|(_, seq)| seq),
            user: self.user.clone(),
            device: self.device.cloned(),
            count: self.count,
        }
    }
}

/// Called at the named points of delivery.
pub struct DeliveryObserver {
    clock: Arc<dyn Clock>,
    ring: TraceRing,
    subscribers: Arc<Subscribers>,
    metrics: DeliveryMetrics,
}

/// The metrics that are raised with every message: looked up once.
struct DeliveryMetrics {
    sends: metrics::Counter,
    send_seconds: metrics::Histogram,
    hand_overs: metrics::Counter,
    hand_overs_hedged: metrics::Counter,
    acks: metrics::Counter,
    reads: metrics::Counter,
}

impl DeliveryMetrics {
    fn new() -> DeliveryMetrics {
        DeliveryMetrics {
            sends: metrics::counter!("bluetick_sends_total"),
            send_seconds: metrics::histogram!("bluetick_send_seconds"),
            hand_overs: metrics::counter!("bluetick_hand_overs_total"),
            hand_overs_hedged: metrics::counter!("bluetick_hand_overs_hedged_total"),
            acks: metrics::counter!("bluetick_acks_total"),
            reads: metrics::counter!("bluetick_reads_total"),
        }
    }
}

impl DeliveryObserver {
    pub fn new(clock: Arc<dyn Clock>) -> DeliveryObserver {
        DeliveryObserver {
            clock,
            ring: TraceRing::default(),
            subscribers: Arc::default(),
            metrics: DeliveryMetrics::new(),
        }
    }

    /// The remembered steps of a message.
    pub fn steps_of(&self, id: &ConversationId, seq: Seq) -> Vec<TraceEvent> {
        self.ring.steps_of(id, seq)
    }

    /// Subscribes to the steps of these users. `None` if there are `max` subscribers already, or the server is
    /// shutting down.
    pub fn subscribe(&self, users: BTreeSet<UserId>, max: usize) -> Option<Subscription> {
        self.subscribers.subscribe(users, max)
    }

    /// Ends every subscription: the server is shutting down.
    pub fn close(&self) {
        self.subscribers.close();
    }

    fn observe(&self, observed: Observed<'_>) {
        if let Some((id, Some(seq))) = observed.message {
            self.keep(&observed, id, seq, seq);
        }
        self.subscribers.publish(&observed, || self.clock.now_ms());
    }

    /// The same step of several messages. Without subscribers, consecutive messages share an entry in the ring.
    fn observe_each<'m>(&self, observed: Observed<'_>, messages: impl Iterator<Item = &'m Arc<Message>>) {
        if !self.subscribers.is_empty() {
            for message in messages {
                self.observe(Observed {
                    message: Some((&message.conversation_id, Some(message.seq))),
                    ..observed
                });
            }
            return;
        }
        if !observed.step.is_kept() {
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
                        self.keep(&observed, id, first, last);
                    }
                    (&message.conversation_id, message.seq, message.seq)
                }
            });
        }
        if let Some((id, first, last)) = run {
            self.keep(&observed, id, first, last);
        }
    }

    fn keep(&self, observed: &Observed<'_>, id: &ConversationId, first: Seq, last: Seq) {
        if !observed.step.is_kept() {
            return;
        }
        let who = match observed.device {
            Some(device) => Who::Device(device.clone()),
            None => Who::User(observed.user.clone()),
        };
        self.ring.push(KeptStep {
            at: self.clock.now_ms(),
            step: observed.step,
            conversation_id: id.clone(),
            seqs: first..=last,
            who,
        });
    }
}

/// Without the sends that repeat an earlier one.
fn new_messages<'c>(
    committed: impl Iterator<Item = &'c Committed>,
) -> impl Iterator<Item = &'c Arc<Message>> {
    committed.filter(|committed| !committed.duplicate).map(|committed| &committed.message)
}

/// The points of a send, in their order.
impl DeliveryObserver {
    /// The receiver's sessions were looked up before the commit.
    pub(crate) fn looked_up(&self, receiver: &UserId, id: &ConversationId, sessions: usize) {
        self.observe(Observed {
            message: Some((id, None)),
            count: Some(sessions),
            ..Observed::new(TraceStep::LookedUp, receiver)
        });
    }

    /// One message of a batch is durable.
    pub(crate) fn committed(&self) {
        failpoint::hit("send.committed");
    }

    /// So many messages of a batch are durable, repeated ones among them.
    pub(crate) fn batch_committed(&self, messages: usize) {
        self.metrics.sends.increment(messages as u64);
    }

    /// Messages of one conversation are durable.
    pub(crate) fn stored(&self, sender: &UserId, committed: &[Committed]) {
        self.observe_each(Observed::new(TraceStep::Stored, sender), new_messages(committed.iter()));
    }

    /// The commit of these messages wrote the pending row, too.
    pub(crate) fn pending_row_committed(&self, receiver: &UserId, committed: &[&Committed]) {
        let new = || new_messages(committed.iter().copied());
        metrics::counter!("bluetick_pending_rows_written_total").increment(new().count() as u64);
        self.pending_row_covers(receiver, new());
    }

    /// The receiver's sessions were looked up after the commit.
    pub(crate) fn looked_again(&self, receiver: &UserId, sessions: usize, messages: &[Arc<Message>]) {
        let observed = Observed { count: Some(sessions), ..Observed::new(TraceStep::LookedAgain, receiver) };
        self.observe_each(observed, messages.iter());
    }

    /// A session accepted the messages.
    pub(crate) fn handed_over(&self, to: &SessionEntry, messages: &[Arc<Message>]) {
        self.metrics.hand_overs.increment(messages.len() as u64);
        failpoint::hit("deliver.handed_over");
        self.observe_each(Observed::by(TraceStep::HandedOver, to), messages.iter());
    }

    /// The session store named a session that is gone.
    pub(crate) fn stale_session(&self) {
        metrics::counter!("bluetick_stale_sessions_total").increment(1);
    }

    /// No session accepted within the hedge: the pending row is written meanwhile.
    pub(crate) fn hand_over_hedged(&self) {
        self.metrics.hand_overs_hedged.increment(1);
    }

    /// No session accepted, and the pending row is not written yet.
    pub(crate) fn nobody_accepted(&self) {
        failpoint::hit("deliver.nobody_took_it");
    }

    /// The pending row covers this seq; `written` if this call wrote it.
    pub(crate) fn pending_row_noted(&self, receiver: &UserId, id: &ConversationId, seq: Seq, written: bool) {
        if written {
            metrics::counter!("bluetick_pending_rows_written_total").increment(1);
        }
        self.observe(Observed::new(TraceStep::PendingRow, receiver).message(id, seq));
        failpoint::hit("deliver.row_written");
    }

    /// A pending row that is written already covers these messages, too.
    pub(crate) fn pending_row_covers<'m>(
        &self,
        receiver: &UserId,
        messages: impl Iterator<Item = &'m Arc<Message>>,
    ) {
        self.observe_each(Observed::new(TraceStep::PendingRow, receiver), messages);
    }

    /// The promise of `sent` holds for these messages.
    pub(crate) fn sent<'m>(&self, sender: &UserId, messages: impl Iterator<Item = &'m Arc<Message>>) {
        self.observe_each(Observed::new(TraceStep::Sent, sender), messages);
    }

    /// Every send of a batch has its answer.
    pub(crate) fn batch_answered(&self, took: Duration) {
        self.metrics.send_seconds.record(took.as_secs_f64());
    }

    /// A push provider accepted the notification of this message for a device.
    pub(crate) fn pushed(&self, user: &UserId, device: &DeviceId, id: &ConversationId, seq: Seq) {
        let observed = Observed { device: Some(device), ..Observed::new(TraceStep::Pushed, user) };
        self.observe(observed.message(id, seq));
    }
}

/// The points of receipts and pending rows.
impl DeliveryObserver {
    pub(crate) fn ack_received(&self) {
        self.metrics.acks.increment(1);
    }

    pub(crate) fn read_received(&self) {
        self.metrics.reads.increment(1);
    }

    /// An ack moved the user's boundary.
    pub(crate) fn acked(&self, row: &StatusRow) {
        self.receipt_stored(TraceStep::Acked, row, row.last_delivered_seq);
    }

    /// A read moved the user's boundary.
    pub(crate) fn read(&self, row: &StatusRow) {
        self.receipt_stored(TraceStep::Read, row, row.last_read_seq);
    }

    fn receipt_stored(&self, step: TraceStep, row: &StatusRow, seq: Seq) {
        failpoint::hit("ack.stored");
        self.observe(Observed::new(step, &row.user_id).message(&row.conversation_id, seq));
    }

    /// Everything that the pending row covered is acked, and the row is deleted.
    pub(crate) fn row_removed(&self, user: &UserId, id: &ConversationId, row: Seq) {
        metrics::counter!("bluetick_pending_rows_deleted_total").increment(1);
        failpoint::hit("settle.row_removed");
        self.observe(Observed::new(TraceStep::RowGone, user).message(id, row));
    }

    /// A closing session moved the pending row to its first unacked seq.
    pub(crate) fn row_moved(&self) {
        failpoint::hit("close.row_moved");
    }
}

/// The points of a session.
impl DeliveryObserver {
    pub(crate) fn registered(&self, session: &SessionEntry) {
        self.observe(Observed::by(TraceStep::Registered, session));
    }

    /// A message goes out to a device that is still catching up.
    pub(crate) fn drained(&self, session: &SessionEntry, message: &Message) {
        self.written_to(TraceStep::Drained, session, message);
    }

    /// A message goes out to a device that has caught up.
    pub(crate) fn written(&self, session: &SessionEntry, message: &Message) {
        self.written_to(TraceStep::Written, session, message);
    }

    fn written_to(&self, step: TraceStep, session: &SessionEntry, message: &Message) {
        self.observe(Observed::by(step, session).message(&message.conversation_id, message.seq));
    }

    pub(crate) fn caught_up(&self, session: &SessionEntry) {
        self.observe(Observed::by(TraceStep::CaughtUp, session));
    }

    pub(crate) fn unregistered(&self, session: &SessionEntry) {
        self.observe(Observed::by(TraceStep::Unregistered, session));
    }
}

#[cfg(test)]
mod tests {
    use bluetick_protocol::{ClientMsgId, Side};
    use bluetick_store::SystemClock;

    use super::*;

    fn observer() -> DeliveryObserver {
        DeliveryObserver::new(Arc::new(SystemClock))
    }

    fn steps(observer: &DeliveryObserver, id: &ConversationId, seq: Seq) -> Vec<(TraceStep, Seq)> {
        observer.steps_of(id, seq).iter().map(|event| (event.step, event.seq)).collect()
    }

    #[test]
    fn of_many_receipts_the_first_that_covers_a_message_counts() {
        let (observer, bob) = (observer(), UserId::new("bob").unwrap());
        let id = ConversationId::new("alice~bob").unwrap();
        for (step, seq) in [
            (TraceStep::Stored, 2),
            (TraceStep::Acked, 1),
            (TraceStep::Acked, 2),
            (TraceStep::Acked, 3),
            (TraceStep::Read, 5),
            (TraceStep::Read, 6),
        ] {
            observer.observe(Observed::new(step, &bob).message(&id, seq));
        }
        let expected = [(TraceStep::Stored, 2), (TraceStep::Acked, 2), (TraceStep::Read, 5)];
        assert_eq!(steps(&observer, &id, 2), expected);
    }

    #[test]
    fn messages_in_a_row_share_a_step_and_others_have_their_own() {
        let (observer, bob) = (observer(), UserId::new("bob").unwrap());
        let ids = ["alice~bob", "bob~carol"].map(|id| ConversationId::new(id).unwrap());
        let message = |id: &ConversationId, seq| {
            let message = Arc::new(Message {
                conversation_id: id.clone(),
                seq,
                message_id: Default::default(),
                ts: 0,
                from: Side::Low,
                client_msg_id: ClientMsgId::new("x").unwrap(),
                body: "hi".into(),
                attachment: None,
                meta: None,
                withheld: false,
                void: false,
            });
            Committed { message, duplicate: false, implied_read: None }
        };
        let sent = [(0, 1), (0, 2), (0, 3), (0, 5), (1, 6), (1, 7)].map(|(id, seq)| message(&ids[id], seq));
        observer.stored(&bob, &sent);
        assert_eq!(observer.ring.len(), 3);
        for (id, seq, stored) in
            [(0, 1, true), (0, 3, true), (0, 4, false), (0, 5, true), (0, 6, false), (1, 6, true)]
        {
            let expected: &[_] = if stored { &[(TraceStep::Stored, seq)] } else { &[] };
            assert_eq!(steps(&observer, &ids[id], seq), expected, "{} {seq}", ids[id]);
        }
    }
}
