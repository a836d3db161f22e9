//! What is sent, sent again, held back or given up.

use super::*;

#[test]
fn what_was_not_confirmed_goes_out_again_with_the_same_ids_in_order() {
    let mut state = ready();
    let ids: Vec<_> = ["one", "two", "three"].iter().map(|body| post(&mut state, body)).collect();
    assert_eq!(sends(&frames(&mut state)), ids);
    state.frame(sent(&ids[0], 1));
    state.disconnected();
    assert_eq!(frames(&mut state), []);
    let fourth = post(&mut state, "four");
    greet(&mut state);
    assert_eq!(sends(&frames(&mut state)), [ids[1].clone(), ids[2].clone(), fourth]);
}

#[test]
fn an_id_of_the_applications_own_is_one_message_however_often_it_is_sent() {
    let mut state = ready();
    let id = ClientMsgId::new("answer-7").unwrap();
    let draft = Draft { client_msg_id: Some(id.clone()), ..Draft::text(user("bob"), "seven") };
    assert_eq!(state.send(draft.clone()).unwrap(), id);
    assert_eq!(state.send(draft.clone()).unwrap(), id);
    assert_eq!(sends(&frames(&mut state)), std::slice::from_ref(&id));
    state.frame(refusal(Ref::Text("answer-7".into()), ErrorCode::RateLimited, Some(5)));
    state.retry();
    assert_eq!(sends(&frames(&mut state)), std::slice::from_ref(&id));
    state.frame(sent(&id, 1));
    assert_eq!(state.outbox_len(), 0);
    // Once it is confirmed the server knows it, and says so again.
    assert_eq!(state.send(draft).unwrap(), id);
    assert_eq!(sends(&frames(&mut state)), [id]);
}

#[test]
fn nothing_is_sent_before_the_welcome() {
    let mut state = ClientState::new(DeviceId::new("laptop").unwrap(), 1, None);
    post(&mut state, "early");
    state.connected("token".into());
    assert!(matches!(&frames(&mut state)[..], [ClientFrame::Hello(_)]));
    state.frame(welcome());
    assert_eq!(sends(&frames(&mut state)).len(), 1);
}

#[test]
fn a_confirmation_that_comes_twice_is_told_once() {
    let mut state = ready();
    let id = post(&mut state, "one");
    frames(&mut state);
    state.frame(sent(&id, 1));
    state.frame(sent(&id, 1));
    assert_eq!(events(&mut state).len(), 1);
    assert_eq!(state.outbox_len(), 0);
}

#[test]
fn a_refusal_for_now_waits_and_holds_back_what_comes_after_it() {
    let mut state = ready();
    let first = post(&mut state, "one");
    frames(&mut state);
    state.frame(refusal(Ref::Text(first.to_string()), ErrorCode::RateLimited, Some(700)));
    let second = post(&mut state, "two");
    assert_eq!(frames(&mut state), []);
    assert_eq!(state.take_retry_ms(), Some(700));
    assert_eq!(state.take_retry_ms(), None);
    state.retry();
    assert_eq!(sends(&frames(&mut state)), [first, second]);
    assert_eq!(events(&mut state), []);
}

#[test]
fn refusals_without_a_time_wait_longer_and_longer() {
    let mut state = ready();
    let id = post(&mut state, "one");
    let mut waits = Vec::new();
    for _ in 0..7 {
        frames(&mut state);
        state.frame(refusal(Ref::Text(id.to_string()), ErrorCode::Unavailable, None));
        waits.push(state.take_retry_ms().unwrap());
        state.retry();
    }
    assert_eq!(waits, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
}

#[test]
fn a_refusal_for_ever_is_told_and_forgotten() {
    let mut state = ready();
    let id = post(&mut state, "one");
    frames(&mut state);
    state.frame(refusal(Ref::Text(id.to_string()), ErrorCode::Blocked, None));
    assert!(
        matches!(&events(&mut state)[..], [Event::SendFailed { error, .. }] if error.code == ErrorCode::Blocked)
    );
    assert_eq!(state.outbox_len(), 0);
}

#[test]
fn an_id_that_names_another_message_fails_and_is_not_sent_again() {
    let mut state = ready();
    let id = post(&mut state, "other words under an id of before");
    frames(&mut state);
    state.frame(refusal(Ref::Text(id.to_string()), ErrorCode::ClientMsgIdConflict, None));
    let told = events(&mut state);
    assert!(
        matches!(&told[..], [Event::SendFailed { client_msg_id, error }]
            if *client_msg_id == id && error.code == ErrorCode::ClientMsgIdConflict),
        "{told:?}"
    );
    assert_eq!((state.outbox_len(), state.take_retry_ms()), (0, None));
    state.disconnected();
    greet(&mut state);
    assert_eq!(sends(&frames(&mut state)), []);
}

#[test]
fn only_so_many_are_on_their_way_at_once() {
    let mut state = ready();
    let ids: Vec<_> = (0..IN_FLIGHT_MAX + 5).map(|n| post(&mut state, &n.to_string())).collect();
    assert_eq!(sends(&frames(&mut state)), ids[..IN_FLIGHT_MAX]);
    state.frame(sent(&ids[0], 1));
    assert_eq!(sends(&frames(&mut state)), ids[IN_FLIGHT_MAX..=IN_FLIGHT_MAX]);
}

#[test]
fn a_body_the_server_would_not_take_fails_here() {
    let mut offline = ClientState::new(DeviceId::new("laptop").unwrap(), 1, None);
    let id = post(&mut offline, &"x".repeat(101));
    offline.connected("token".into());
    frames(&mut offline);
    offline.frame(welcome());
    assert_eq!(frames(&mut offline), []);
    let failed = Event::SendFailed {
        client_msg_id: id,
        error: WireError::new(ErrorCode::BodyTooLarge, "the body is longer than 100 bytes"),
    };
    assert!(events(&mut offline).contains(&failed));
    assert!(matches!(offline.send(Draft::text(user("bob"), "x".repeat(101))), Err(Refusal::Invalid(_))));
}

#[test]
fn a_message_that_ends_the_connection_is_not_sent_for_ever() {
    let mut state = ready();
    let (short, long) = (post(&mut state, "short"), post(&mut state, "much longer"));
    frames(&mut state);
    let code = ErrorCode::FrameTooLarge;
    state.frame(ServerFrame::Bye(Bye { code, reason: "too large".into(), reconnect_after_ms: 0 }));
    state.disconnected();
    assert!(
        matches!(&events(&mut state)[..], [Event::SendFailed { client_msg_id, .. }] if *client_msg_id == long)
    );
    greet(&mut state);
    assert_eq!(sends(&frames(&mut state)), [short]);
}

#[test]
fn a_restart_goes_on_with_the_saved_outbox_and_never_reuses_an_id() {
    let mut before = ready();
    let id = post(&mut before, "unsent");
    let stored = serde_json::to_string(&before.saved()).unwrap();
    let saved: Saved = serde_json::from_str(&stored).unwrap();
    assert_eq!(saved, before.saved());
    let mut after = ClientState::new(DeviceId::new("laptop").unwrap(), 0xcafe, Some(saved));
    let new = post(&mut after, "new");
    greet(&mut after);
    assert_eq!(sends(&frames(&mut after)), [id, new]);
}

#[test]
fn a_draft_says_what_its_author_had_received() {
    let mut state = ready();
    state.frame(from_bob(1));
    state.frame(from_bob(2));
    state.disconnected();
    post(&mut state, "a reply");
    greet(&mut state);
    state.frame(from_bob(3));
    let written = frames(&mut state);
    assert!(
        written.iter().any(|f| matches!(f, ClientFrame::Send(send) if send.seen_seq == Some(2))),
        "{written:?}"
    );
}

#[test]
fn another_user_gets_nothing_of_the_one_before() {
    let mut before = ready();
    before.frame(from_bob(1));
    post(&mut before, "alice's secret");
    let saved = Saved { user: Some(user("zoe")), ..before.saved() };
    let mut state = start(Some(saved));
    assert_eq!(sends(&frames(&mut state)), []);
    let told = events(&mut state);
    assert!(
        matches!(told[0], Event::SendFailed { .. }) && matches!(told[1], Event::Reset { .. }),
        "{told:?}"
    );
    assert_eq!(state.cursor(), None);
}
