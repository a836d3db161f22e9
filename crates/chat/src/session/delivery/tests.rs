use bluetick_protocol::{ClientMsgId, Side};

use super::*;
use crate::PlanLane;

fn conversation(peer: &str) -> ConversationId {
    ConversationId::between(&UserId::new("bob").unwrap(), &UserId::new(peer).unwrap()).unwrap()
}

fn message(id: &ConversationId, seq: Seq, message_id: u64) -> Arc<Message> {
    Arc::new(Message {
        conversation_id: id.clone(),
        seq,
        message_id: MessageId(message_id),
        client_msg_id: ClientMsgId::new("c").unwrap(),
        // The peers' names come before Bob's.
        from: Side::Low,
        body: "hello".into(),
        ts: message_id,
        attachment: None,
        meta: None,
        withheld: false,
        void: false,
    })
}

/// What goes out, `at_a_time` at most in a turn: the messages' ids, and nothing for `caught_up`.
fn sent(delivery: &mut Delivery, at_a_time: usize) -> Vec<Option<u64>> {
    let mut all = Vec::new();
    loop {
        delivery.set_room(limits::OUTBOUND_HIGH_WATER_BYTES);
        delivery.pump(at_a_time);
        if delivery.out.is_empty() {
            return all;
        }
        all.extend(delivery.take_out().into_iter().map(|out| match out {
            Out::Message(message) => Some(message.message_id.0),
            Out::CaughtUp(_) => None,
        }));
    }
}

/// A session that has read what its plan named: of each conversation the last seq of the plan, and the ids of its messages.
fn drained(window: usize, lanes: &[(&str, Seq, &[u64])]) -> Delivery {
    let mut delivery = Delivery::new(UserId::new("bob").unwrap(), SessionId(1), window);
    let planned = |(peer, last_seq, _): &(&str, Seq, &[u64])| PlanLane {
        conversation_id: conversation(peer),
        resume: true,
        row: Some(1),
        last_seq: *last_seq,
    };
    let plan = Plan {
        lanes: lanes.iter().map(planned).collect(),
        heads: Vec::new(),
        cursor: MessageId(0),
        since: MessageId(0),
        reset: None,
        more: None,
    };
    delivery.plan(plan, true);
    assert_eq!(delivery.reads().len(), lanes.len());
    for (peer, _, ids) in lanes {
        let id = conversation(peer);
        let messages: Vec<_> =
            ids.iter().zip(1..).map(|(message_id, seq)| message(&id, seq, *message_id)).collect();
        let last_seq = messages.len() as Seq;
        delivery
            .read_done(&id, Some(MessageRange { first_seq: 1, messages, next_seq: last_seq + 1, last_seq }));
    }
    delivery
}

#[test]
fn messages_go_out_by_their_ids_whatever_lane_they_are_in() {
    let lanes: [(&str, Seq, &[u64]); 3] =
        [("alice", 4, &[1, 2, 7, 8]), ("adam", 3, &[3, 6, 9]), ("ann", 2, &[4, 5])];
    for at_a_time in [1, 2, 5, 100] {
        let mut all: Vec<Option<u64>> = (1..10).map(Some).collect();
        all.push(None);
        assert_eq!(sent(&mut drained(100, &lanes), at_a_time), all, "{at_a_time} at a time");
    }
}

#[test]
fn caught_up_comes_behind_what_was_planned_and_before_what_came_since() {
    let mut delivery = drained(100, &[("alice", 3, &[1, 2, 3, 5, 6]), ("adam", 1, &[4, 7])]);
    let expected = [Some(1), Some(2), Some(3), Some(4), None, Some(5), Some(6), Some(7)];
    assert_eq!(sent(&mut delivery, 100), expected);
    let mut delivery = drained(100, &[("alice", 2, &[1, 2, 3, 4])]);
    assert_eq!(sent(&mut delivery, 100), [Some(1), Some(2), None, Some(3), Some(4)]);
}

#[test]
fn a_full_window_ends_a_run_until_acks_make_room() {
    let mut delivery = drained(3, &[("alice", 5, &[1, 2, 3, 4, 5])]);
    assert_eq!(sent(&mut delivery, 100), [Some(1), Some(2), Some(3)]);
    assert!(delivery.acked(&conversation("alice"), 2));
    assert_eq!(sent(&mut delivery, 100), [Some(4), Some(5), None]);
}

/// A body of the largest size, each of whose bytes takes six on the wire.
fn large(id: &ConversationId, seq: Seq) -> Arc<Message> {
    let small = message(id, seq, seq);
    Arc::new(Message { body: "\u{1}".repeat(limits::BODY_DEFAULT_MAX_BYTES), ..(*small).clone() })
}

#[test]
fn no_more_goes_out_than_the_socket_has_room_for() {
    let id = conversation("alice");
    let mut delivery = drained(100, &[("alice", 20, &[])]);
    let messages: Vec<_> = (1..=20).map(|seq| large(&id, seq)).collect();
    assert_eq!(delivery.reads().len(), 1);
    delivery.read_done(&id, Some(MessageRange { first_seq: 1, messages, next_seq: 21, last_seq: 20 }));
    let mut went = 0;
    for turn in 0.. {
        delivery.set_room(limits::OUTBOUND_HIGH_WATER_BYTES);
        delivery.pump(64);
        let out = delivery.take_out();
        let messages = out.iter().filter(|out| matches!(out, Out::Message(_))).count();
        let bytes = messages * 6 * limits::BODY_DEFAULT_MAX_BYTES;
        assert!(bytes < limits::OUTBOUND_HIGH_WATER_BYTES + 7 * limits::BODY_DEFAULT_MAX_BYTES, "{bytes}");
        went += messages;
        if messages == 0 {
            assert!(turn > 3, "all at once");
            break;
        }
    }
    assert_eq!(went, 20);
}

#[test]
fn a_live_message_without_room_is_read_again_later() {
    let id = conversation("alice");
    let mut delivery = drained(100, &[]);
    delivery.take_out();
    delivery.set_room(limits::OUTBOUND_HIGH_WATER_BYTES);
    for seq in 1..=20 {
        delivery.hand_over(&large(&id, seq), false, None);
    }
    let direct = delivery.out.len() as Seq;
    assert!((5..8).contains(&direct), "{direct} of 20 at once");
    let reads = delivery.reads();
    assert_eq!(reads.len(), 1);
    assert_eq!(reads[0].from, ReadFrom::Seq(direct + 1), "the rest is remembered");
}

#[test]
fn reads_at_once_share_the_memory_for_them() {
    let peers: Vec<String> = (0..20).map(|n| format!("a{n:02}")).collect();
    let lanes: Vec<(&str, Seq, &[u64])> = peers.iter().map(|peer| (&**peer, 9, &[][..])).collect();
    let mut delivery = Delivery::new(UserId::new("bob").unwrap(), SessionId(1), 100);
    let lane = |(peer, last_seq, _): &(&str, Seq, &[u64])| PlanLane {
        conversation_id: conversation(peer),
        resume: true,
        row: Some(1),
        last_seq: *last_seq,
    };
    let plan = Plan {
        lanes: lanes.iter().map(lane).collect(),
        heads: Vec::new(),
        cursor: MessageId(0),
        since: MessageId(0),
        reset: None,
        more: None,
    };
    delivery.plan(plan, true);
    let reads = delivery.reads();
    assert_eq!(reads.len(), READS_AT_ONCE);
    assert!(reads.iter().map(|read| read.max_bytes).sum::<usize>() <= READ_AHEAD_BYTES);
}

#[test]
fn a_conversation_that_cannot_be_read_does_not_hold_up_the_rest_of_the_plan() {
    let id = conversation("alice");
    let lane = PlanLane { conversation_id: id.clone(), resume: false, row: None, last_seq: 1 };
    let mut delivery = Delivery::new(UserId::new("bob").unwrap(), SessionId(1), 8);
    let plan = Plan {
        lanes: vec![lane],
        heads: Vec::new(),
        cursor: MessageId(0),
        since: MessageId(0),
        reset: None,
        more: Some(id.clone()),
    };
    delivery.plan(plan, true);
    for _ in 0..FAILURES_MAX {
        assert_eq!(delivery.wants_more(), None);
        assert_eq!(delivery.reads().len(), 1);
        delivery.read_done(&id, None);
    }
    assert_eq!(delivery.wants_more(), Some(&id));
    assert!(delivery.take_out().is_empty(), "caught_up waits for what cannot be read");
}
