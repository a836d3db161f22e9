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
        state.frame(ServerFrame::Message(message("alice~carol", "carol", seq + 10)));
    }
    assert_eq!(acks(&frames(&mut state)), [5, 15]);
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
    state.frame(from_bob(9));
    assert_eq!(acks(&frames(&mut state)), [9]);
    assert_eq!(state.cursor(), Some(MessageId(10)));
}

#[test]
fn hello_carries_the_cursor() {
    let mut state = ready();
    state.connected("token".into());
    let Some(ClientFrame::Hello(hello)) = state.next_frame() else { panic!() };
    assert_eq!(hello.cursor, Some(MessageId(10)));
}
