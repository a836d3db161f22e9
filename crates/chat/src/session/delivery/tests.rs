use bluetick_protocol::{ClientMsgId, ErrorCode, Side, WireError};

use super::{
    merge::{FAILURES_MAX, READ_AHEAD_BYTES, READS_AT_ONCE},
    *,
};
use crate::{AppResult, MessageRange, Settled};

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

/// A body of the largest size, each of whose bytes takes six on the wire.
fn large(id: &ConversationId, seq: Seq) -> Arc<Message> {
    let small = message(id, seq, seq);
    Arc::new(Message { body: "\u{1}".repeat(limits::BODY_DEFAULT_MAX_BYTES), ..(*small).clone() })
}

fn lane(peer: &str, row: Option<Seq>, last_seq: Seq) -> PlanLane {
    PlanLane { conversation_id: conversation(peer), resume: true, row, last_seq }
}

fn plan(lanes: Vec<PlanLane>, more: Option<ConversationId>) -> Plan {
    let (cursor, since) = (MessageId(0), MessageId(0));
    Plan { lanes, heads: Vec::new(), cursor, since, reset: None, more }
}

fn range(id: &ConversationId, first_seq: Seq, ids: &[u64]) -> MessageRange {
    let messages: Vec<_> = ids.iter().zip(first_seq..).map(|(n, seq)| message(id, seq, *n)).collect();
    let next_seq = first_seq + messages.len() as Seq;
    MessageRange { first_seq, messages, next_seq, last_seq: next_seq - 1 }
}

fn fails<T>() -> AppResult<T> {
    Err(WireError::new(ErrorCode::Unavailable, "the store is down"))
}

fn bobs(window: usize) -> Delivery {
    Delivery::new(UserId::new("bob").unwrap(), SessionId(1), window, BTreeMap::new())
}

/// Room for so many frames, and nothing in progress.
fn idle(frames: usize) -> Capacity {
    Capacity { frames, bytes: limits::OUTBOUND_HIGH_WATER_BYTES, may_read: true, may_start: true }
}

fn busy(frames: usize) -> Capacity {
    Capacity { may_read: false, may_start: false, ..idle(frames) }
}

/// What goes out, `at_a_time` at most in a turn: the messages' ids, and `None` for `caught_up`.
fn sent(delivery: &mut Delivery, at_a_time: usize) -> Vec<Option<u64>> {
    let mut all = Vec::new();
    while let Action::Send(out) = delivery.next(&mut busy(at_a_time)) {
        all.extend(out.into_iter().map(|out| match out {
            Out::Message { message, .. } => Some(message.message_id.0),
            Out::CaughtUp(_) => None,
        }));
    }
    all
}

fn reads(delivery: &mut Delivery) -> Vec<LaneRead> {
    match delivery.next(&mut idle(64)) {
        Action::Read(reads) => reads,
        other => panic!("expected reads, got {other:?}"),
    }
}

fn background(delivery: &mut Delivery) -> BackgroundAction {
    match delivery.next(&mut Capacity { may_read: false, ..idle(64) }) {
        Action::Background(action) => action,
        other => panic!("expected a background action, got {other:?}"),
    }
}

fn is_waiting(delivery: &mut Delivery) -> bool {
    matches!(delivery.next(&mut idle(64)), Action::Wait)
}

/// A session that has read what its plan named: of each conversation the last seq of the plan, and
/// the ids of its messages.
fn drained(window: usize, lanes: &[(&str, Seq, &[u64])]) -> Delivery {
    let mut delivery = bobs(window);
    let planned = lanes.iter().map(|(peer, last_seq, _)| lane(peer, Some(1), *last_seq));
    delivery.plan(plan(planned.collect(), None), true);
    if !lanes.is_empty() {
        assert_eq!(reads(&mut delivery).len(), lanes.len());
    }
    for (peer, _, ids) in lanes {
        let id = conversation(peer);
        let range = range(&id, 1, ids);
        delivery.done(ActionOutcome::Read(vec![(id, Ok(range))]));
    }
    delivery
}

/// A session that has caught up and has one conversation, of which it knows nothing.
fn live() -> (Delivery, ConversationId) {
    let mut delivery = drained(100, &[]);
    assert_eq!(sent(&mut delivery, 64), [None]);
    (delivery, conversation("alice"))
}

#[test]
fn a_session_registers_drains_and_is_live() {
    let (mut delivery, id) = (bobs(100), conversation("alice"));
    assert!(matches!(delivery.phase, Phase::Registering) && is_waiting(&mut delivery));
    // Alice's next message is handed over before the plan is here: it waits for its turn.
    delivery.hand_over(&message(&id, 3, 30), false, None);
    assert!(is_waiting(&mut delivery));
    delivery.plan(plan(vec![lane("alice", Some(1), 2)], None), true);
    assert!(matches!(delivery.phase, Phase::Draining(_)));
    assert_eq!(reads(&mut delivery)[0].from, ReadFrom::Since { since: MessageId(0), at_most: 1 });
    // A fourth message is stored while the lane is read.
    delivery.done(ActionOutcome::Read(vec![(id.clone(), Ok(range(&id, 1, &[10, 20, 30, 40])))]));
    let Action::Send(out) = delivery.next(&mut idle(64)) else { panic!("messages to send") };
    let kinds = out.iter().map(|out| match out {
        Out::Message { is_drained: true, .. } => "drained",
        Out::Message { .. } => "live",
        Out::CaughtUp(_) => "caught up",
    });
    assert_eq!(kinds.collect::<Vec<_>>(), ["drained", "drained", "drained", "caught up", "live"]);
    assert!(matches!(delivery.phase, Phase::Live) && is_waiting(&mut delivery));
    // The row goes once everything is acked, and the conversation is read past it.
    assert!(delivery.acked(&id, 2));
    assert!(is_waiting(&mut delivery));
    assert!(delivery.acked(&id, 4));
    let BackgroundAction::SettleRows(rows) = background(&mut delivery) else { panic!("a row to remove") };
    assert_eq!(rows, [(id.clone(), 1)]);
    let settled = Settled { row: None, last_seq: 5 };
    assert!(!delivery.done(ActionOutcome::RowsSettled(vec![(id.clone(), Ok(settled))])));
    assert_eq!(reads(&mut delivery)[0].from, ReadFrom::Seq(5));
    delivery.done(ActionOutcome::Read(vec![(id.clone(), Ok(range(&id, 5, &[50])))]));
    assert_eq!(sent(&mut delivery, 64), [Some(50)]);
    // Live messages go straight out.
    delivery.hand_over(&message(&id, 6, 60), false, None);
    assert_eq!(sent(&mut delivery, 64), [Some(60)]);
    let debts = delivery.close();
    assert_eq!(debts.len(), 1);
    assert_eq!(debts[0].first_unacked, ReadFrom::Seq(5));
    assert!(delivery.is_closing());
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
fn reads_may_come_back_in_any_order() {
    let lanes: [(&str, &[u64]); 3] = [("alice", &[1, 4]), ("adam", &[2, 6]), ("ann", &[3, 5])];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut delivery = bobs(100);
        delivery.plan(plan(lanes.iter().map(|(peer, _)| lane(peer, Some(1), 2)).collect(), None), true);
        assert_eq!(reads(&mut delivery).len(), 3);
        for (n, at) in order.into_iter().enumerate() {
            assert!(is_waiting(&mut delivery), "{n} of three reads are not enough");
            let (peer, ids) = lanes[at];
            let id = conversation(peer);
            let range = range(&id, 1, ids);
            assert!(!delivery.done(ActionOutcome::Read(vec![(id, Ok(range))])));
        }
        let all = [Some(1), Some(2), Some(3), Some(4), Some(5), Some(6), None];
        assert_eq!(sent(&mut delivery, 64), all, "{order:?}");
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
fn an_empty_plan_is_caught_up_at_once_and_a_later_plan_says_nothing() {
    let (mut delivery, id) = live();
    delivery.await_plan();
    delivery.hand_over(&message(&id, 1, 10), false, None);
    assert!(is_waiting(&mut delivery), "nothing goes out while the session registers anew");
    delivery.plan(plan(vec![lane("alice", None, 1)], None), false);
    assert_eq!(reads(&mut delivery).len(), 1);
    delivery.done(ActionOutcome::Read(vec![(id.clone(), Ok(range(&id, 1, &[10])))]));
    assert_eq!(sent(&mut delivery, 64), [Some(10)]);
}

#[test]
fn a_session_that_need_not_register_anew_goes_on_with_what_it_knows() {
    let (mut delivery, id) = live();
    delivery.await_plan();
    delivery.hand_over(&message(&id, 1, 10), false, None);
    delivery.continue_without_plan();
    assert_eq!(reads(&mut delivery)[0].from, ReadFrom::Seq(1));
}

#[test]
fn a_full_window_ends_a_run_until_acks_make_room() {
    let mut delivery = drained(3, &[("alice", 5, &[1, 2, 3, 4, 5])]);
    assert_eq!(sent(&mut delivery, 100), [Some(1), Some(2), Some(3)]);
    assert!(delivery.acked(&conversation("alice"), 2));
    assert_eq!(sent(&mut delivery, 100), [Some(4), Some(5), None]);
}

#[test]
fn the_session_waits_for_the_socket_only_if_more_could_go_out() {
    let lanes: [(&str, Seq, &[u64]); 1] = [("alice", 9, &[1, 2, 3, 4])];
    let after = |window: usize, frames: usize| {
        let mut delivery = drained(window, &lanes);
        let mut capacity = busy(frames);
        while let Action::Send(_) = delivery.next(&mut capacity) {}
        delivery.next(&mut capacity)
    };
    assert!(matches!(after(100, 3), Action::AwaitRoom), "one is left");
    assert!(matches!(after(100, 4), Action::Wait), "a read comes next");
    assert!(matches!(after(3, 3), Action::Wait), "an ack comes next");
}

#[test]
fn no_more_goes_out_than_the_socket_has_room_for() {
    let id = conversation("alice");
    let mut delivery = drained(100, &[("alice", 20, &[])]);
    let messages: Vec<_> = (1..=20).map(|seq| large(&id, seq)).collect();
    assert_eq!(reads(&mut delivery).len(), 1);
    let range = MessageRange { first_seq: 1, messages, next_seq: 21, last_seq: 20 };
    delivery.done(ActionOutcome::Read(vec![(id, Ok(range))]));
    let (mut went, mut turns) = (0, 0);
    while let Action::Send(out) = delivery.next(&mut busy(64)) {
        let messages = out.iter().filter(|out| matches!(out, Out::Message { .. })).count();
        let bytes = messages * 6 * limits::BODY_DEFAULT_MAX_BYTES;
        assert!(bytes < limits::OUTBOUND_HIGH_WATER_BYTES + 7 * limits::BODY_DEFAULT_MAX_BYTES, "{bytes}");
        (went, turns) = (went + messages, turns + 1);
    }
    assert!(turns > 3, "all at once");
    assert_eq!(went, 20);
}

#[test]
fn a_live_message_without_room_is_read_again_later() {
    let (mut delivery, id) = live();
    assert!(is_waiting(&mut delivery));
    for seq in 1..=20 {
        delivery.hand_over(&large(&id, seq), false, None);
    }
    let Action::Send(out) = delivery.next(&mut idle(64)) else { panic!("messages to send") };
    let direct = out.len() as Seq;
    assert!((5..8).contains(&direct), "{direct} of 20 at once");
    let reads = reads(&mut delivery);
    assert_eq!(reads.len(), 1);
    assert_eq!(reads[0].from, ReadFrom::Seq(direct + 1), "the rest is remembered");
}

#[test]
fn a_live_message_behind_a_gap_makes_its_lane_be_read() {
    let (mut delivery, id) = live();
    delivery.hand_over(&message(&id, 1, 10), false, None);
    delivery.hand_over(&message(&id, 3, 30), false, None);
    assert_eq!(sent(&mut delivery, 64), [Some(10)]);
    assert_eq!(reads(&mut delivery)[0].from, ReadFrom::Seq(2));
    // What was missing arrives while it is read: it is not sent twice.
    delivery.hand_over(&message(&id, 2, 20), false, None);
    assert!(is_waiting(&mut delivery));
    delivery.done(ActionOutcome::Read(vec![(id.clone(), Ok(range(&id, 2, &[20, 30])))]));
    assert_eq!(sent(&mut delivery, 64), [Some(20), Some(30)]);
    delivery.hand_over(&message(&id, 2, 20), false, None);
    assert!(is_waiting(&mut delivery));
}

#[test]
fn a_session_is_not_sent_what_it_sent_itself() {
    let (mut delivery, id) = live();
    let own = |seq| Arc::new(Message { from: Side::High, ..(*message(&id, seq, seq * 10)).clone() });
    delivery.hand_over(&own(1), false, Some(SessionId(1)));
    delivery.hand_over(&own(3), false, Some(SessionId(1)));
    assert_eq!(reads(&mut delivery)[0].from, ReadFrom::Seq(2));
    let messages = vec![own(2), own(3)];
    let range = MessageRange { first_seq: 2, messages, next_seq: 4, last_seq: 3 };
    delivery.done(ActionOutcome::Read(vec![(id.clone(), Ok(range))]));
    assert_eq!(sent(&mut delivery, 64), [Some(20)], "only the one of another device");
    assert_eq!(delivery.unacked(), 0, "own messages need no ack");
}

#[test]
fn a_device_that_resumes_is_not_sent_what_it_acked() {
    let id = conversation("alice");
    let mut delivery =
        Delivery::new(UserId::new("bob").unwrap(), SessionId(2), 100, [(id.clone(), 1..=2)].into());
    delivery.plan(plan(vec![lane("alice", Some(1), 3)], None), true);
    assert_eq!(reads(&mut delivery).len(), 1);
    assert_eq!(delivery.acked_so_far(), [(id.clone(), 1..=2)].into(), "it still holds that");
    delivery.done(ActionOutcome::Read(vec![(id.clone(), Ok(range(&id, 1, &[10, 20, 30])))]));
    assert_eq!(sent(&mut delivery, 64), [Some(30), None]);
    delivery.acked(&id, 3);
    assert_eq!(delivery.acked_so_far(), [(id, 1..=3)].into());
}

#[test]
fn reads_at_once_share_the_memory_for_them() {
    let peers: Vec<String> = (0..20).map(|n| format!("a{n:02}")).collect();
    let mut delivery = bobs(100);
    delivery.plan(plan(peers.iter().map(|peer| lane(peer, Some(1), 9)).collect(), None), true);
    let reads = reads(&mut delivery);
    assert_eq!(reads.len(), READS_AT_ONCE);
    assert!(reads.iter().map(|read| read.max_bytes).sum::<usize>() <= READ_AHEAD_BYTES);
}

#[test]
fn the_plan_continues_when_its_first_part_is_drained() {
    let (mut delivery, id) = (bobs(100), conversation("alice"));
    delivery.plan(plan(vec![lane("alice", None, 1)], Some(id.clone())), true);
    assert_eq!(reads(&mut delivery).len(), 1);
    assert!(is_waiting(&mut delivery), "the first part comes first");
    delivery.done(ActionOutcome::Read(vec![(id.clone(), Ok(range(&id, 1, &[10])))]));
    assert_eq!(sent(&mut delivery, 64), [Some(10)]);
    for _ in 0..2 {
        let action = background(&mut delivery);
        assert!(matches!(action, BackgroundAction::ContinuePlan(after) if after == id));
        assert!(delivery.done(ActionOutcome::PlanContinued(fails())), "to be asked for again");
    }
    let rest = plan(vec![lane("ann", None, 1)], None);
    assert!(!delivery.done(ActionOutcome::PlanContinued(Ok(rest))));
    let id = conversation("ann");
    assert_eq!(reads(&mut delivery)[0].conversation_id, id);
    delivery.done(ActionOutcome::Read(vec![(id.clone(), Ok(range(&id, 1, &[20])))]));
    assert_eq!(sent(&mut delivery, 64), [Some(20), None]);
}

#[test]
fn a_conversation_that_cannot_be_read_does_not_hold_up_the_rest_of_the_plan() {
    let (mut delivery, id) = (bobs(8), conversation("alice"));
    delivery.plan(plan(vec![lane("alice", None, 1)], Some(id.clone())), true);
    for _ in 0..FAILURES_MAX {
        assert_eq!(delivery.rest_of_plan(), None);
        assert_eq!(reads(&mut delivery).len(), 1);
        assert!(delivery.done(ActionOutcome::Read(vec![(id.clone(), fails())])));
    }
    assert!(matches!(background(&mut delivery), BackgroundAction::ContinuePlan(after) if after == id));
    assert!(!delivery.done(ActionOutcome::PlanContinued(Ok(plan(Vec::new(), None)))));
    assert!(is_waiting(&mut delivery), "caught_up waits for what cannot be read");
    delivery.heartbeat(None);
    assert_eq!(reads(&mut delivery).len(), 1);
    delivery.done(ActionOutcome::Read(vec![(id.clone(), Ok(range(&id, 1, &[10])))]));
    assert_eq!(sent(&mut delivery, 64), [Some(10), None]);
}

#[test]
fn a_row_is_removed_after_the_ack_whichever_of_row_and_message_comes_first() {
    for row_first in [true, false] {
        let (mut delivery, id) = live();
        if row_first {
            delivery.wake(id.clone());
        } else {
            delivery.hand_over(&message(&id, 1, 10), true, None);
            assert_eq!(sent(&mut delivery, 64), [Some(10)]);
        }
        let BackgroundAction::LookUpRows(ids) = background(&mut delivery) else { panic!("a row to look up") };
        assert_eq!(ids, std::slice::from_ref(&id));
        assert!(delivery.done(ActionOutcome::RowsLookedUp(vec![(id.clone(), fails())])));
        assert!(matches!(background(&mut delivery), BackgroundAction::LookUpRows(_)), "once more");
        delivery.done(ActionOutcome::RowsLookedUp(vec![(id.clone(), Ok(Some(1)))]));
        if row_first {
            assert_eq!(reads(&mut delivery).len(), 1);
            delivery.done(ActionOutcome::Read(vec![(id.clone(), Ok(range(&id, 1, &[10])))]));
            assert_eq!(sent(&mut delivery, 64), [Some(10)]);
        }
        assert!(is_waiting(&mut delivery), "not before the ack");
        delivery.acked(&id, 1);
        assert!(matches!(background(&mut delivery), BackgroundAction::SettleRows(_)));
        assert!(is_waiting(&mut delivery), "one removal at a time");
        // Nobody knows whether the row is gone: a session that closes now owes what may have come
        // after it.
        assert!(delivery.done(ActionOutcome::RowsSettled(vec![(id.clone(), fails())])));
        assert!(matches!(background(&mut delivery), BackgroundAction::SettleRows(_)), "once more");
        assert!(delivery.done(ActionOutcome::RowsSettled(vec![(id.clone(), fails())])));
        let debts = delivery.close();
        assert_eq!((debts.len(), &debts[0].first_unacked), (1, &ReadFrom::Seq(2)));
    }
}

#[test]
fn a_row_that_changed_meanwhile_is_drained_as_well() {
    let (mut delivery, id) = live();
    delivery.hand_over(&message(&id, 1, 10), true, None);
    assert_eq!(sent(&mut delivery, 64), [Some(10)]);
    assert!(matches!(background(&mut delivery), BackgroundAction::LookUpRows(_)));
    delivery.done(ActionOutcome::RowsLookedUp(vec![(id.clone(), Ok(Some(1)))]));
    delivery.acked(&id, 1);
    assert!(matches!(background(&mut delivery), BackgroundAction::SettleRows(_)));
    let settled = Settled { row: Some(2), last_seq: 2 };
    delivery.done(ActionOutcome::RowsSettled(vec![(id.clone(), Ok(settled))]));
    assert_eq!(reads(&mut delivery)[0].from, ReadFrom::Seq(2));
    delivery.done(ActionOutcome::Read(vec![(id.clone(), Ok(range(&id, 2, &[20])))]));
    assert_eq!(sent(&mut delivery, 64), [Some(20)]);
    delivery.acked(&id, 2);
    let BackgroundAction::SettleRows(rows) = background(&mut delivery) else { panic!("a row to remove") };
    assert_eq!(rows, [(id, 2)]);
}

#[test]
fn overdue_messages_are_reported_until_that_succeeds() {
    let (mut delivery, id) = live();
    delivery.now = 10;
    delivery.hand_over(&message(&id, 1, 10), false, None);
    delivery.now = 20;
    delivery.hand_over(&message(&id, 2, 20), false, None);
    assert_eq!(sent(&mut delivery, 64), [Some(10), Some(20)]);
    assert_eq!(delivery.find_overdue(10), Some(20));
    for must_retry in [true, false] {
        let BackgroundAction::ReportOverdue(debts) = background(&mut delivery) else { panic!("overdue") };
        assert_eq!(debts[0].first_unacked, ReadFrom::Seq(1));
        let left = if must_retry { debts } else { Vec::new() };
        assert_eq!(delivery.done(ActionOutcome::OverdueReported(left)), must_retry);
    }
    assert!(is_waiting(&mut delivery));
    delivery.acked(&id, 2);
    assert_eq!(delivery.find_overdue(30), None);
}

#[test]
fn an_idle_session_forgets_its_lanes_and_reads_them_anew() {
    let (mut delivery, id) = live();
    delivery.hand_over(&message(&id, 1, 10), false, None);
    assert_eq!(sent(&mut delivery, 64), [Some(10)]);
    delivery.heartbeat(Some(MessageId(5)));
    assert_eq!(delivery.conversations().len(), 1, "something is unacked");
    delivery.acked(&id, 1);
    delivery.heartbeat(Some(MessageId(5)));
    assert!(delivery.conversations().is_empty());
    delivery.hand_over(&message(&id, 3, 30), false, None);
    assert_eq!(reads(&mut delivery)[0].from, ReadFrom::Since { since: MessageId(5), at_most: 3 });
}

#[test]
fn a_session_that_closes_during_its_drain_owes_what_it_was_to_deliver() {
    let mut delivery = bobs(100);
    delivery.plan(plan(vec![lane("alice", Some(4), 6), lane("ann", None, 3)], None), true);
    let debts = delivery.close();
    assert_eq!(debts.len(), 1, "the device asks for the others by its cursor");
    assert_eq!((&debts[0].first_unacked, debts[0].row), (&ReadFrom::Seq(4), Some(4)));
}
