//! Messages, their acks and the cursor.

use super::*;

#[test]
fn a_message_is_told_once_and_acked_every_time() {
    let mut state = ready();
    state.frame(from_bob(1));
    assert_eq!(acks(&frames(&mut state)), [1]);
    state.frame(from_bob(1));
    assert_eq!(told(&mut state), [1]);
    assert_eq!(acks(&frames(&mut state)), [1], "the server may not have heard the first ack");
}

#[test]
fn acks_of_a_batch_are_one_per_conversation() {
    let mut state = ready();
    for seq in 1..=5 {
        state.frame(from_bob(seq));
        state.frame(ServerFrame::Message(message("alice~carol", "carol", seq)));
    }
    assert_eq!(acks(&frames(&mut state)), [5, 5]);
    assert_eq!(frames(&mut state), []);
}

#[test]
fn own_messages_of_other_devices_are_told_and_not_acked() {
    let mut state = ready();
    state.frame(ServerFrame::Message(message("alice~bob", "alice", 1)));
    assert_eq!(told(&mut state), [1]);
    assert_eq!(frames(&mut state), []);
}

#[test]
fn an_own_message_from_history_before_its_confirmation_is_not_told_twice() {
    let mut state = ready();
    state.frame(from_bob(1));
    let id = post(&mut state, "mine");
    frames(&mut state);
    state.frame(from_bob(3));
    let asked = queries(&frames(&mut state));
    let mine = MessageFrame { client_msg_id: id.clone(), ..message("alice~bob", "alice", 2) };
    let page = vec![mine, message("alice~bob", "bob", 3)];
    state.frame(history(asked[0].reference.clone().unwrap(), page, 3, None));
    assert_eq!(told(&mut state), [1, 3]);
    state.frame(sent(&id, 2));
    assert!(matches!(&events(&mut state)[..], [Event::Sent(_)]));
}

#[test]
fn the_cursor_comes_with_caught_up_then_follows_the_acks_and_never_goes_back() {
    let mut state = start(None);
    state.frame(from_bob(7));
    frames(&mut state);
    assert_eq!(state.cursor(), None, "a device that has not caught up holds nothing for sure");
    state.frame(caught_up(500, &[]));
    assert_eq!(state.cursor(), Some(MessageId(500)));
    state.frame(from_bob(8));
    assert_eq!(state.cursor(), Some(MessageId(500)), "an ack moves it, not the message");
    frames(&mut state);
    assert_eq!(state.cursor(), Some(MessageId(800)));
    state.frame(ServerFrame::Message(message("alice~carol", "carol", 1)));
    frames(&mut state);
    assert_eq!(state.cursor(), Some(MessageId(800)));
    state.disconnected();
    greet(&mut state);
    state.frame(caught_up(600, &[]));
    assert_eq!(state.cursor(), Some(MessageId(800)));
}

#[test]
fn during_a_later_drain_acks_leave_the_cursor_alone() {
    let mut state = ready();
    state.disconnected();
    greet(&mut state);
    state.frame(from_bob(1));
    assert_eq!(acks(&frames(&mut state)), [1]);
    assert_eq!(state.cursor(), Some(MessageId(10)));
}

#[test]
fn a_new_device_that_only_sent_does_not_ack_what_it_was_not_sent() {
    let mut state = start(None);
    let id = post(&mut state, "mine");
    frames(&mut state);
    state.frame(sent(&id, 3));
    state.frame(caught_up(500, &[("alice~bob", 4)]));
    assert!(queries(&frames(&mut state)).is_empty(), "it does not know that it lacks something");
    state.frame(from_bob(2));
    assert_eq!(acks(&frames(&mut state)), [2]);
    state.frame(from_bob(4));
    assert_eq!(acks(&frames(&mut state)), [4]);
}

#[test]
fn a_reply_has_seen_what_the_stream_brought_and_not_what_a_head_named() {
    let mut state = start(None);
    state.frame(caught_up(500, &[("alice~bob", 4)]));
    frames(&mut state);
    post(&mut state, "hello");
    state.frame(from_bob(5));
    post(&mut state, "reply");
    let seen: Vec<_> = state.outbox().map(|send| send.seen_seq).collect();
    assert_eq!(seen, [Some(0), Some(5)]);
}

#[test]
fn a_device_names_the_session_that_it_resumes_until_it_is_restarted() {
    let resumes = |state: &mut ClientState| {
        state.connected("token".into());
        let Some(ClientFrame::Hello(hello)) = state.next_frame() else { panic!() };
        hello.resumes
    };
    let mut state = ready();
    assert_eq!(resumes(&mut state), Some(SessionId(1)));
    let mut restarted = ClientState::new(DeviceId::new("laptop").unwrap(), 2, Some(state.saved()));
    assert_eq!(resumes(&mut restarted), None, "what was saved may be older than what was acked");
}

#[test]
fn an_ack_that_may_have_been_lost_with_its_connection_is_said_again() {
    let mut state = ready();
    state.frame(from_bob(1));
    assert_eq!(acks(&frames(&mut state)), [1]);
    state.disconnected();
    greet(&mut state);
    state.frame(caught_up(900, &[("alice~bob", 1)]));
    assert_eq!(acks(&frames(&mut state)), [1], "the message need not come again");
}

#[test]
fn hello_carries_the_cursor() {
    let mut state = ready();
    state.connected("token".into());
    let Some(ClientFrame::Hello(hello)) = state.next_frame() else { panic!() };
    assert_eq!(hello.cursor, Some(MessageId(10)));
}
