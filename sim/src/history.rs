//! What everybody saw, in the order in which it happened.

use std::collections::{BTreeMap, BTreeSet};

use bluetick_protocol::{ConversationId, MessageFrame, MessageId, Sent, Seq, Ticks, UserId};
use bluetick_store::Message;

pub type MessageKey = (ConversationId, Seq);

/// A message as the store has it.
pub struct StoredMessage {
    pub client_msg_id: String,
    pub receiver: UserId,
    pub at_ms: u64,
}

#[derive(Default)]
pub struct RunHistory {
    pub stored: BTreeMap<MessageKey, StoredMessage>,
    /// The messages that a sender was told are sent.
    pub sent: BTreeMap<MessageKey, MessageId>,
    /// Which users have received a message on any device, ever.
    pub received: BTreeSet<(UserId, MessageKey)>,
    /// How far a user has read, on any device, by a read or a reply.
    reads: BTreeMap<(UserId, ConversationId), Seq>,
    /// The highest boundaries that anybody was told.
    pub told: BTreeMap<(UserId, ConversationId), (Seq, Seq)>,
    /// The seq that was reported for each `client_msg_id`.
    places: BTreeMap<(ConversationId, String), Seq>,
    ids: BTreeMap<MessageKey, MessageId>,
    /// Something was wrong until every device reconnected, and lost notices excuse it.
    pub excused: bool,
    pub violations: Vec<String>,
}

impl RunHistory {
    pub fn violation(&mut self, what: String) {
        self.violations.push(what);
    }

    pub fn stored(&mut self, message: &Message, at_ms: u64) {
        let place = (message.conversation_id.clone(), message.seq);
        let stored = StoredMessage {
            client_msg_id: message.client_msg_id.to_string(),
            receiver: message.receiver(),
            at_ms,
        };
        if self.stored.insert(place, stored).is_some() {
            self.violation(format!("{} {} was stored twice", message.conversation_id, message.seq));
        }
    }

    pub fn told_sent(&mut self, sent: &Sent) {
        self.sent.insert((sent.conversation_id.clone(), sent.seq), sent.message_id);
        self.same_message(&sent.conversation_id, sent.seq, sent.message_id);
        let key = (sent.conversation_id.clone(), sent.client_msg_id.to_string());
        let seq = *self.places.entry(key).or_insert(sent.seq);
        if seq != sent.seq {
            let id = &sent.client_msg_id;
            self.violation(format!("{id} in {} is {seq} and {}", sent.conversation_id, sent.seq));
        }
    }

    /// One seq names the same message for everybody.
    pub fn same_message(&mut self, id: &ConversationId, seq: Seq, message_id: MessageId) {
        let known = *self.ids.entry((id.clone(), seq)).or_insert(message_id);
        if known != message_id {
            self.violation(format!("{id} {seq} is two messages: {known} and {message_id}"));
        }
    }

    pub fn received(&mut self, user: &UserId, message: &MessageFrame) {
        self.same_message(&message.conversation_id, message.seq, message.message_id);
        if message.receiver == *user {
            self.received.insert((user.clone(), (message.conversation_id.clone(), message.seq)));
        }
    }

    pub fn read(&mut self, user: &UserId, id: &ConversationId, seq: Seq) {
        let read = self.reads.entry((user.clone(), id.clone())).or_default();
        *read = seq.max(*read);
    }

    /// A tick was sent to somebody: it must be true by now.
    pub fn told_ticks(&mut self, ticks: &Ticks) {
        let (user, id) = (&ticks.user_id, &ticks.conversation_id);
        let key = (user.clone(), id.clone());
        let read = self.reads.get(&key).copied().unwrap_or(0);
        if ticks.last_read_seq > read {
            let told = ticks.last_read_seq;
            self.violation(format!(
                "{id}: told that {user} has read up to {told}, who has read up to {read}"
            ));
        }
        let unread = (id.clone(), read + 1)..=(id.clone(), ticks.last_delivered_seq.max(read + 1));
        let missing = self.stored.range(unread).find(|((_, seq), stored)| {
            *seq <= ticks.last_delivered_seq
                && stored.receiver == *user
                && !self.received.contains(&(user.clone(), (id.clone(), *seq)))
        });
        if let Some(((_, seq), _)) = missing {
            let told = ticks.last_delivered_seq;
            let what = format!("{id}: told that {user} has {told}, and no device of theirs ever got {seq}");
            self.violation(what);
        }
        let told = self.told.entry(key).or_default();
        *told = (told.0.max(ticks.last_delivered_seq), told.1.max(ticks.last_read_seq));
    }
}
