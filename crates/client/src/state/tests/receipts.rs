//! Ticks and reads.

use super::*;

#[test]
fn ticks_only_grow_and_read_implies_delivered() {
    let mut state = ready();
    assert_eq!(state.tick_of(&ab(), 1), Tick::Single);
    state.frame(ticks("bob", 3, 0));
    state.frame(ticks("bob", 2, 1));
    let tick = |seq| state.tick_of(&ab(), seq);
    assert_eq!([tick(1), tick(3), tick(4)], [Tick::Blue, Tick::Double, Tick::Single]);
    events(&mut state);
    state.frame(ticks("bob", 1, 0));
    assert_eq!(events(&mut state), [], "nothing grew");
    state.frame(ticks("bob", 0, 5));
    assert_eq!(state.tick_of(&ab(), 5), Tick::Blue);
    let ServerFrame::Ticks(merged) = ticks("bob", 5, 5) else { unreachable!() };
    assert_eq!(events(&mut state), [Event::Ticks(merged)]);
}

#[test]
fn own_boundaries_make_no_ticks() {
    let mut state = ready();
    state.frame(ticks("alice", 9, 9));
    assert_eq!(state.tick_of(&ab(), 1), Tick::Single);
}

#[test]
fn ticks_missed_while_away_are_asked_for() {
    let mut state = ready();
    let id = post(&mut state, "mine");
    frames(&mut state);
    state.frame(sent(&id, 1));
    state.disconnected();
    greet(&mut state);
    state.frame(caught_up(20, &[]));
    let written = frames(&mut state);
    let Some(ClientFrame::Status(query)) = written.iter().find(|f| matches!(f, ClientFrame::Status(_)))
    else {
        panic!("{written:?}")
    };
    let read = Boundaries { last_delivered_seq: 1, last_read_seq: 1 };
    let reference = query.reference.clone();
    let own = Boundaries::default();
    let answer =
        StatusAnswer { reference, conversation_id: ab(), last_seq: 1, unread_count: 0, own, peer: read };
    state.frame(ServerFrame::Status(answer));
    assert_eq!(state.tick_of(&ab(), 1), Tick::Blue);
    assert_eq!(state.next_query_result(), None, "the application did not ask");
}

#[test]
fn a_read_made_offline_is_said_after_the_reconnect_until_it_is_confirmed() {
    let mut state = ready();
    state.frame(from_bob(1));
    frames(&mut state);
    state.disconnected();
    state.read(ab(), 1);
    assert_eq!(frames(&mut state), []);
    let mut state = ClientState::new(DeviceId::new("laptop").unwrap(), 2, Some(state.saved()));
    greet(&mut state);
    assert_eq!(reads(&frames(&mut state)).len(), 1);
    state.disconnected();
    greet(&mut state);
    let written = reads(&frames(&mut state));
    assert_eq!(written[0].0, 1);
    state.frame(ServerFrame::Done(Done { reference: written[0].1.clone() }));
    state.disconnected();
    greet(&mut state);
    assert_eq!(reads(&frames(&mut state)), []);
}

#[test]
fn reads_are_written_together_and_never_backwards() {
    let mut state = ready();
    for seq in [3, 7, 5] {
        state.read(ab(), seq);
    }
    let written = reads(&frames(&mut state));
    assert_eq!(written.len(), 1);
    assert_eq!(written[0].0, 7);
    state.read(ab(), 6);
    assert_eq!(frames(&mut state), []);
    state.frame(refusal(written[0].1.clone(), ErrorCode::Unavailable, Some(5)));
    assert_eq!(state.take_retry_ms(), Some(5));
    state.retry();
    assert_eq!(reads(&frames(&mut state))[0].0, 7);
}

#[test]
fn a_read_on_another_device_needs_no_saying() {
    let mut state = ready();
    state.disconnected();
    state.read(ab(), 4);
    greet(&mut state);
    state.frame(ticks("alice", 4, 4));
    assert_eq!(reads(&frames(&mut state)), []);
}
