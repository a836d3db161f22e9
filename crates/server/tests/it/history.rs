//! What was posted, told and received over all lives of a server, and whether it fits together.
//!
//! Whatever crashes in between: who was told `sent` was told of a place that nobody else has, each device gets every
//! such message once it has dropped what it has seen, in order, and no receipt is ahead of what somebody really has.

use std::collections::{BTreeMap, BTreeSet};

use bluetick_protocol::*;

use crate::deployment::VOIDS;

#[derive(Default)]
pub struct History {
    /// What senders put on its way, whether or not it arrived.
    posted: BTreeMap<ClientMsgId, (ConversationId, String)>,
    told: BTreeMap<ClientMsgId, Sent>,
    places: BTreeMap<(ConversationId, Seq), ClientMsgId>,
    devices: BTreeMap<String, BTreeMap<ConversationId, BTreeMap<Seq, ClientMsgId>>>,
    /// How far each user may be said to be: noted before a device says so.
    truth: BTreeMap<(UserId, ConversationId), Boundaries>,
    ticks: BTreeMap<(UserId, ConversationId), Boundaries>,
    faults: Vec<String>,
}

impl History {
    pub fn posted(&mut self, id: ClientMsgId, conversation: ConversationId, body: String) {
        self.posted.insert(id, (conversation, body));
    }

    pub fn told(&mut self, sent: Sent) {
        let place = (sent.conversation_id.clone(), sent.seq);
        let id = sent.client_msg_id.clone();
        if let Some(other) = self.places.insert(place, id.clone()).filter(|other| *other != id) {
            self.faults.push(format!("{} and {other} were told the same place: {sent:?}", id));
        }
        if let Some(before) = self.told.insert(id, sent.clone())
            && (before.seq, before.message_id) != (sent.seq, sent.message_id)
        {
            self.faults.push(format!("one message, two answers: {before:?} and {sent:?}"));
        }
    }

    pub fn unanswered(&self) -> usize {
        self.posted.len().saturating_sub(self.told.len())
    }

    pub fn told_so_far(&self) -> usize {
        self.told.len()
    }

    /// A device got a message. It must be new to it and come after all it had, or be the same as it had.
    pub fn received(&mut self, device: &str, message: &MessageFrame) {
        let had = self.devices.entry(device.to_owned()).or_default();
        let had = had.entry(message.conversation_id.clone()).or_default();
        let last = had.last_key_value().map_or(0, |(seq, _)| *seq);
        match had.get(&message.seq) {
            Some(id) if *id == message.client_msg_id => {}
            Some(id) => self.faults.push(format!("{device} had {id} where now is {message:?}")),
            None => {
                if message.seq < last {
                    self.faults.push(format!("{device} got {} after {last}: {message:?}", message.seq));
                }
                had.insert(message.seq, message.client_msg_id.clone());
            }
        }
        match self.posted.get(&message.client_msg_id) {
            Some((id, body)) if *id == message.conversation_id && *body == message.body => {}
            // A real client's message may be on its way before the test has noted it.
            None => {}
            Some(_) => self.faults.push(format!("{device} got what nobody wrote: {message:?}")),
        }
    }

    pub fn will_ack(&mut self, user: &UserId, id: &ConversationId, seq: Seq) {
        let truth = self.truth.entry((user.clone(), id.clone())).or_default();
        truth.last_delivered_seq = truth.last_delivered_seq.max(seq);
    }

    pub fn will_read(&mut self, user: &UserId, id: &ConversationId, seq: Seq) {
        self.will_ack(user, id, seq);
        let truth = self.truth.entry((user.clone(), id.clone())).or_default();
        truth.last_read_seq = truth.last_read_seq.max(seq);
    }

    pub fn ticked(&mut self, ticks: &Ticks) {
        let key = (ticks.user_id.clone(), ticks.conversation_id.clone());
        let seen = self.ticks.entry(key).or_default();
        seen.last_delivered_seq = seen.last_delivered_seq.max(ticks.last_delivered_seq);
        seen.last_read_seq = seen.last_read_seq.max(ticks.last_read_seq);
    }

    /// The furthest boundaries of somebody that anybody was told.
    pub fn seen_of(&self, user: &UserId, id: &ConversationId) -> Boundaries {
        self.ticks.get(&(user.clone(), id.clone())).cloned().unwrap_or_default()
    }

    /// The same, of a user whose devices note each receipt here before they say it: checked at once.
    pub fn ticked_exactly(&mut self, ticks: &Ticks) {
        self.ticked(ticks);
        let key = (ticks.user_id.clone(), ticks.conversation_id.clone());
        let truth = self.truth.get(&key).cloned().unwrap_or_default();
        if ticks.last_delivered_seq > truth.last_delivered_seq || ticks.last_read_seq > truth.last_read_seq {
            self.faults.push(format!("ticks ahead of the truth: {ticks:?}, and {truth:?} was said"));
        }
    }

    /// The places of confirmed messages to this user that a device of theirs has not got.
    pub fn missing(&self, device: &str, user: &UserId) -> Vec<(ConversationId, Seq)> {
        let none = BTreeMap::new();
        let had = self.devices.get(device).unwrap_or(&none);
        let to_user = |id: &ClientMsgId, conversation: &ConversationId| {
            conversation.side_of(user).is_some() && !self.posted_by(user, id)
        };
        let places = self.places.iter().filter(|((conversation, _), id)| to_user(id, conversation));
        places
            .filter(|((conversation, seq), _)| had.get(conversation).is_none_or(|had| !had.contains_key(seq)))
            .map(|(place, _)| place.clone())
            .collect()
    }

    /// Bodies begin with who wrote them.
    fn posted_by(&self, user: &UserId, id: &ClientMsgId) -> bool {
        self.posted.get(id).is_some_and(|(_, body)| body.starts_with(&format!("{user} ")))
    }

    /// Compares a conversation as the server has it, from its first message or a later one to its last.
    pub fn compare(&mut self, id: &ConversationId, stored: &[MessageFrame]) {
        let Some(first) = stored.first().map(|m| m.seq) else {
            if self.places.keys().any(|(conversation, _)| conversation == id) {
                self.faults.push(format!("{id} is empty"));
            }
            return;
        };
        let (mut ids, mut seqs) = (BTreeSet::new(), BTreeMap::new());
        let mut next = first;
        for message in stored {
            let seq = message.seq;
            let in_place = if VOIDS { seq >= next } else { seq == next };
            if !in_place {
                self.faults.push(format!("{id} has {seq} where {next} should be"));
                return;
            }
            next = seq + 1;
            if !ids.insert(&message.client_msg_id) {
                self.faults.push(format!("{} is stored twice in {id}", message.client_msg_id));
            }
            match self.posted.get(&message.client_msg_id) {
                Some((conversation, body)) if conversation == id && *body == message.body => {}
                other => self.faults.push(format!("stored: {message:?}, but posted: {other:?}")),
            }
            seqs.insert(seq, message);
        }
        for ((conversation, seq), told) in self.places.range((id.clone(), first)..) {
            if conversation != id {
                break;
            }
            let stored = seqs.get(seq).map(|m| (&m.client_msg_id, m.message_id));
            if stored != Some((told, self.told[told].message_id)) {
                self.faults.push(format!("{id} {seq} was told to be {told}, and {stored:?} is stored"));
            }
        }
    }

    /// Compares a member's stored boundaries with what their devices have said.
    pub fn compare_status(&mut self, user: &UserId, id: &ConversationId, stored: &Boundaries) {
        let key = (user.clone(), id.clone());
        let truth = self.truth.get(&key).cloned().unwrap_or_default();
        let seen = self.ticks.get(&key).cloned().unwrap_or_default();
        let within = |a: &Boundaries, b: &Boundaries| {
            a.last_delivered_seq <= b.last_delivered_seq && a.last_read_seq <= b.last_read_seq
        };
        if !within(&seen, stored) {
            self.faults.push(format!("{user} in {id} was at {seen:?} and has fallen back to {stored:?}"));
        }
        if !within(stored, &truth) {
            self.faults.push(format!("{user} in {id} is at {stored:?} and has said no more than {truth:?}"));
        }
    }

    pub fn fault(&mut self, what: String) {
        self.faults.push(what);
    }

    /// Panics if anything did not fit.
    pub fn is_sound(&self, after: &str) {
        let first: Vec<_> = self.faults.iter().take(5).collect();
        assert!(first.is_empty(), "after {after}: {} faults, the first: {first:#?}", self.faults.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{conversation, user};

    fn message(seq: Seq, id: &str) -> MessageFrame {
        MessageFrame {
            conversation_id: conversation("alice~bob"),
            seq,
            message_id: MessageId(seq),
            client_msg_id: ClientMsgId::new(id).unwrap(),
            sender: user("alice"),
            receiver: user("bob"),
            body: format!("alice {id}"),
            ts: 1,
            attachment: None,
            meta: None,
        }
    }

    fn sent(seq: Seq, id: &str) -> Sent {
        Sent {
            reference: None,
            client_msg_id: ClientMsgId::new(id).unwrap(),
            conversation_id: conversation("alice~bob"),
            seq,
            message_id: MessageId(seq),
            ts: 1,
            duplicate: false,
        }
    }

    /// Two messages, confirmed.
    fn two() -> History {
        let mut history = History::default();
        for (seq, id) in [(1, "a"), (2, "b")] {
            let m = message(seq, id);
            history.posted(m.client_msg_id, m.conversation_id, m.body);
            history.told(sent(seq, id));
        }
        history
    }

    fn faults(change: impl FnOnce(&mut History)) -> usize {
        let mut history = two();
        change(&mut history);
        history.faults.len()
    }

    #[test]
    fn a_sound_history_has_no_faults() {
        let none = faults(|h| {
            h.received("phone", &message(1, "a"));
            h.received("phone", &message(2, "b"));
            h.received("phone", &message(1, "a"));
            h.compare(&conversation("alice~bob"), &[message(1, "a"), message(2, "b")]);
            h.will_read(&user("bob"), &conversation("alice~bob"), 2);
            let stored = Boundaries { last_delivered_seq: 2, last_read_seq: 2 };
            h.compare_status(&user("bob"), &conversation("alice~bob"), &stored);
            assert_eq!(h.missing("phone", &user("bob")), []);
            assert_eq!(h.unanswered(), 0);
        });
        assert_eq!(none, 0);
    }

    #[test]
    fn every_kind_of_fault_is_found() {
        let id = conversation("alice~bob");
        assert_eq!(faults(|h| h.told(sent(2, "c"))), 1, "one place for two messages");
        assert_eq!(faults(|h| h.told(sent(3, "a"))), 1, "two places for one message");
        let out_of_order = |h: &mut History| {
            h.received("phone", &message(2, "b"));
            h.received("phone", &message(1, "a"));
        };
        assert_eq!(faults(out_of_order), 1);
        let changed = |h: &mut History| {
            h.received("phone", &message(1, "a"));
            h.received("phone", &message(1, "b"));
        };
        assert_eq!(faults(changed), 1);
        assert_eq!(faults(|h| h.compare(&id, &[message(1, "a")])), 1, "lost at the end");
        assert_eq!(faults(|h| h.compare(&id, &[])), 1, "lost altogether");
        let hole = [message(1, "a"), message(3, "b")];
        assert_eq!(faults(|h| h.compare(&id, &hole)), 1);
        let twice = [message(1, "a"), message(2, "b"), message(3, "a")];
        assert_eq!(faults(|h| h.compare(&id, &twice)), 1);
        let ahead = Boundaries { last_delivered_seq: 1, last_read_seq: 0 };
        assert_eq!(faults(|h| h.compare_status(&user("bob"), &id, &ahead)), 1);
        let ticks = Ticks {
            conversation_id: id.clone(),
            user_id: user("bob"),
            last_delivered_seq: 1,
            last_read_seq: 0,
        };
        assert_eq!(faults(|h| h.ticked_exactly(&ticks)), 1);
        let fell_back = |h: &mut History| {
            h.will_ack(&user("bob"), &id, 1);
            h.ticked_exactly(&ticks);
            h.compare_status(&user("bob"), &id, &Boundaries::default());
        };
        assert_eq!(faults(fell_back), 1);
        let mut history = two();
        history.received("phone", &message(1, "a"));
        assert_eq!(history.missing("phone", &user("bob")), [(id, 2)]);
        assert!(history.missing("phone", &user("alice")).is_empty(), "one's own are not missed");
    }
}
