//! What is missing is asked for, and what came after it waits.

use super::*;

#[test]
fn a_gap_is_asked_for_once_and_told_in_order() {
    let mut state = ready();
    state.frame(from_bob(1));
    frames(&mut state);
    state.frame(from_bob(4));
    state.frame(from_bob(5));
    let written = frames(&mut state);
    assert_eq!(acks(&written), Vec::<Seq>::new(), "what lies behind a gap is not acked");
    let asked = queries(&written);
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].after_seq, asked[0].before_seq), (Some(1), None));
    assert_eq!(told(&mut state), [1]);
    assert_eq!(state.cursor(), Some(MessageId(100)));

    let page = [2, 3, 4].map(|seq| message("alice~bob", "bob", seq)).to_vec();
    state.frame(history(asked[0].reference.clone().unwrap(), page, 4, None));
    assert_eq!(told(&mut state), [2, 3, 4, 5]);
    assert_eq!(acks(&frames(&mut state)), [5]);
    assert_eq!(state.cursor(), Some(MessageId(500)));
}

#[test]
fn a_void_is_closed_by_the_history_that_leaves_it_out() {
    let mut state = ready();
    state.frame(from_bob(1));
    state.frame(from_bob(3));
    let asked = queries(&frames(&mut state));
    state.frame(history(asked[0].reference.clone().unwrap(), vec![message("alice~bob", "bob", 3)], 3, None));
    assert_eq!(told(&mut state), [1, 3]);
    state.frame(from_bob(4));
    assert_eq!(queries(&frames(&mut state)), []);
    assert_eq!(told(&mut state), [4]);
}

#[test]
fn a_wide_gap_is_read_page_by_page_while_the_cursor_waits() {
    let mut state = ready();
    state.frame(from_bob(1));
    state.frame(from_bob(6));
    let asked = queries(&frames(&mut state));
    assert_eq!(state.cursor(), Some(MessageId(10)));
    let page = [2, 3].map(|seq| message("alice~bob", "bob", seq)).to_vec();
    state.frame(history(asked[0].reference.clone().unwrap(), page, 3, Some(3)));
    let asked = queries(&frames(&mut state));
    assert_eq!(asked[0].after_seq, Some(3));
    assert_eq!(state.cursor(), Some(MessageId(10)), "another conversation's message may be the missing one");
    let page = [4, 5, 6].map(|seq| message("alice~bob", "bob", seq)).to_vec();
    state.frame(history(asked[0].reference.clone().unwrap(), page, 6, None));
    assert_eq!(told(&mut state), [1, 2, 3, 4, 5, 6]);
    frames(&mut state);
    assert_eq!(state.cursor(), Some(MessageId(600)));
}

#[test]
fn a_repair_refused_for_now_is_tried_again_and_one_refused_for_ever_is_given_up() {
    let mut state = ready();
    state.frame(from_bob(1));
    state.frame(from_bob(3));
    let asked = queries(&frames(&mut state));
    state.frame(refusal(asked[0].reference.clone().unwrap(), ErrorCode::Unavailable, Some(50)));
    assert_eq!(state.take_retry_ms(), Some(50));
    assert_eq!(queries(&frames(&mut state)), []);
    state.retry();
    let asked = queries(&frames(&mut state));
    assert_eq!(asked.len(), 1);
    state.frame(refusal(asked[0].reference.clone().unwrap(), ErrorCode::NotFound, None));
    assert_eq!(told(&mut state), [1, 3]);
    state.frame(from_bob(2));
    assert_eq!(told(&mut state), [2], "it was never received, so it is not a duplicate");
}

#[test]
fn what_waits_behind_a_gap_comes_again_after_a_reconnect() {
    let mut state = ready();
    state.frame(from_bob(1));
    state.frame(from_bob(3));
    frames(&mut state);
    state.disconnected();
    greet(&mut state);
    for seq in [2, 3] {
        state.frame(from_bob(seq));
    }
    assert_eq!(told(&mut state), [1, 2, 3]);
    assert_eq!(acks(&frames(&mut state)), [3]);
}

#[test]
fn heads_show_what_is_missing_only_where_something_is_known() {
    let mut state = ready();
    state.frame(from_bob(1));
    state.disconnected();
    greet(&mut state);
    frames(&mut state);
    state.frame(caught_up(900, &[("alice~bob", 3)]));
    let asked = queries(&frames(&mut state));
    assert_eq!(asked.len(), 1);
    assert_eq!((&asked[0].conversation_id, asked[0].after_seq), (&ab(), Some(1)));
    assert_eq!(state.cursor(), Some(MessageId(10)));
    let page = [2, 3].map(|seq| message("alice~bob", "bob", seq)).to_vec();
    state.frame(history(asked[0].reference.clone().unwrap(), page, 3, None));
    assert_eq!(told(&mut state), [1, 2, 3]);
    assert_eq!(state.cursor(), Some(MessageId(900)));
}

#[test]
fn to_a_new_device_a_head_is_not_a_message_and_not_a_gap() {
    let mut state = start(None);
    state.frame(caught_up(900, &[("alice~carol", 40)]));
    assert!(queries(&frames(&mut state)).is_empty());
    state.frame(ServerFrame::Message(message("alice~carol", "carol", 40)));
    state.frame(ServerFrame::Message(message("alice~carol", "carol", 41)));
    assert_eq!(told(&mut state), [40, 41]);
}

#[test]
fn a_conversation_that_began_after_the_device_had_caught_up_is_expected_from_its_first_message() {
    let mut state = ready();
    state.frame(ServerFrame::Message(message("alice~carol", "carol", 2)));
    let asked = queries(&frames(&mut state));
    assert_eq!(asked[0].after_seq, Some(0));
    let page = vec![message("alice~carol", "carol", 1), message("alice~carol", "carol", 2)];
    let carol = ConversationId::new("alice~carol").unwrap();
    let answer = HistoryPage {
        reference: asked[0].reference.clone(),
        conversation_id: carol,
        messages: page,
        from_seq: 1,
        to_seq: 2,
        next: None,
    };
    state.frame(ServerFrame::History(answer));
    assert_eq!(told(&mut state), [1, 2]);
    assert_eq!(queries(&frames(&mut state)), []);
}

#[test]
fn a_confirmed_message_of_ones_own_is_no_gap() {
    let mut state = ready();
    state.frame(from_bob(1));
    let id = post(&mut state, "mine");
    frames(&mut state);
    state.frame(sent(&id, 2));
    state.frame(from_bob(3));
    assert_eq!(queries(&frames(&mut state)), []);
    assert!(told(&mut state).ends_with(&[3]));
}

#[test]
fn a_confirmation_can_be_what_a_gap_waited_for() {
    let mut state = ready();
    state.frame(from_bob(1));
    let id = post(&mut state, "mine");
    frames(&mut state);
    state.frame(from_bob(3));
    state.frame(sent(&id, 2));
    assert_eq!(told(&mut state), [1, 3]);
}

#[test]
fn after_a_reset_gaps_are_the_applications_to_reload() {
    let mut state = ready();
    state.frame(from_bob(1));
    state.disconnected();
    greet(&mut state);
    frames(&mut state);
    events(&mut state);
    state.frame(ServerFrame::Reset(Reset { reason: "too old".into() }));
    state.frame(from_bob(500));
    state.frame(caught_up(90_000, &[("alice~bob", 510)]));
    assert_eq!(queries(&frames(&mut state)), []);
    let told = events(&mut state);
    assert!(matches!(&told[..], [Event::Reset { .. }, Event::Message(_), Event::CaughtUp]), "{told:?}");
    assert_eq!(state.cursor(), Some(MessageId(90_000)));
    state.frame(from_bob(513));
    assert_eq!(queries(&frames(&mut state))[0].after_seq, Some(510));
}

#[test]
fn a_gap_that_shrinks_while_its_history_is_asked_for_is_still_closed() {
    let mut state = ready();
    state.frame(from_bob(1));
    let id = post(&mut state, "mine");
    frames(&mut state);
    state.frame(from_bob(3));
    state.frame(from_bob(5));
    let asked = queries(&frames(&mut state));
    assert_eq!(asked[0].after_seq, Some(1));
    state.frame(sent(&id, 2));
    let mine = MessageFrame { client_msg_id: id, ..message("alice~bob", "alice", 2) };
    state.frame(history(asked[0].reference.clone().unwrap(), vec![mine], 2, Some(2)));
    let asked = queries(&frames(&mut state));
    assert_eq!(asked[0].after_seq, Some(3), "the page ended before what is missing");
    let page = [4, 5].map(|seq| message("alice~bob", "bob", seq)).to_vec();
    state.frame(history(asked[0].reference.clone().unwrap(), page, 5, None));
    assert_eq!(told(&mut state), [1, 3, 4, 5]);
}

#[test]
fn what_history_brings_ahead_of_the_stream_does_not_move_the_cursor() {
    let mut state = ready();
    state.frame(from_bob(1));
    state.frame(from_bob(3));
    let asked = queries(&frames(&mut state));
    let page = [2, 3, 4, 5].map(|seq| message("alice~bob", "bob", seq)).to_vec();
    state.frame(history(asked[0].reference.clone().unwrap(), page, 5, None));
    assert_eq!(acks(&frames(&mut state)), [3], "the rest is acked when the stream brings it");
    assert_eq!(
        state.cursor(),
        Some(MessageId(300)),
        "another conversation's message may come before the fifth"
    );
}
