//! The state driven by hand, one frame after another.

use bluetick_protocol::*;

use super::*;

const HOUR: u64 = 3_600_000;

fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

fn ab() -> ConversationId {
    ConversationId::new("alice~bob").unwrap()
}

fn welcome() -> ServerFrame {
    ServerFrame::Welcome(Welcome {
        reference: None,
        user_id: user("alice"),
        device: DeviceId::new("laptop").unwrap(),
        session_id: SessionId(1),
        server_time: HOUR,
        heartbeat_secs: 20,
        max_body_bytes: 100,
    })
}

/// A message with an id that grows with its seq.
fn message(conversation: &str, sender: &str, seq: Seq) -> MessageFrame {
    let conversation_id = ConversationId::new(conversation).unwrap();
    MessageFrame {
        receiver: conversation_id.peer_of(&user(sender)).unwrap(),
        conversation_id,
        seq,
        message_id: MessageId(seq * 100),
        client_msg_id: ClientMsgId::new(&format!("{sender}-{seq}")).unwrap(),
        sender: user(sender),
        body: format!("text {seq}"),
        ts: HOUR + seq,
        attachment: None,
        meta: None,
    }
}

fn from_bob(seq: Seq) -> ServerFrame {
    ServerFrame::Message(message("alice~bob", "bob", seq))
}

fn caught_up(cursor: u64, heads: &[(&str, Seq)]) -> ServerFrame {
    let head = |&(conversation, last_seq): &(&str, Seq)| Head {
        conversation_id: ConversationId::new(conversation).unwrap(),
        last_seq,
    };
    ServerFrame::CaughtUp(CaughtUp {
        cursor: MessageId(cursor),
        heads: heads.iter().map(head).collect(),
    })
}

fn sent(id: &ClientMsgId, seq: Seq) -> ServerFrame {
    ServerFrame::Sent(Sent {
        reference: None,
        client_msg_id: id.clone(),
        conversation_id: ab(),
        seq,
        message_id: MessageId(seq * 100),
        ts: HOUR,
        duplicate: false,
    })
}

fn refusal(reference: Ref, code: ErrorCode, retry_after_ms: Option<u64>) -> ServerFrame {
    let error = WireError {
        code,
        message: "no".into(),
        retry_after_ms,
    };
    ServerFrame::Error(ErrorFrame {
        reference: Some(reference),
        error,
    })
}

fn history(reference: Ref, messages: Vec<MessageFrame>, to_seq: Seq, next: Option<Seq>) -> ServerFrame {
    let from_seq = messages.first().map_or(to_seq, |first| first.seq);
    ServerFrame::History(HistoryPage {
        reference: Some(reference),
        conversation_id: ab(),
        messages,
        from_seq,
        to_seq,
        next,
    })
}

fn ticks(who: &str, delivered: Seq, read: Seq) -> ServerFrame {
    ServerFrame::Ticks(Ticks {
        conversation_id: ab(),
        user_id: user(who),
        last_delivered_seq: delivered,
        last_read_seq: read,
    })
}

fn frames(state: &mut ClientState) -> Vec<ClientFrame> {
    std::iter::from_fn(|| state.next_frame()).collect()
}

fn events(state: &mut ClientState) -> Vec<Event> {
    std::iter::from_fn(|| state.next_event()).collect()
}

fn told(state: &mut ClientState) -> Vec<Seq> {
    let told = events(state).into_iter();
    told.filter_map(|event| {
        if let Event::Message(m) = event {
            Some(m.seq)
        } else {
            None
        }
    })
    .collect()
}

fn sends(written: &[ClientFrame]) -> Vec<ClientMsgId> {
    let ids = written.iter();
    ids.filter_map(|f| {
        if let ClientFrame::Send(send) = f {
            Some(send.client_msg_id.clone())
        } else {
            None
        }
    })
    .collect()
}

fn acks(written: &[ClientFrame]) -> Vec<Seq> {
    written
        .iter()
        .filter_map(|f| {
            if let ClientFrame::Ack(ack) = f {
                Some(ack.seq)
            } else {
                None
            }
        })
        .collect()
}

fn reads(written: &[ClientFrame]) -> Vec<(Seq, Ref)> {
    let reads = written.iter();
    reads
        .filter_map(|f| {
            if let ClientFrame::Read(r) = f {
                Some((r.seq, r.reference.clone().unwrap()))
            } else {
                None
            }
        })
        .collect()
}

fn queries(written: &[ClientFrame]) -> Vec<HistoryQuery> {
    written
        .iter()
        .filter_map(|f| {
            if let ClientFrame::History(q) = f {
                Some(q.clone())
            } else {
                None
            }
        })
        .collect()
}

fn start(saved: Option<Saved>) -> ClientState {
    let mut state = ClientState::new(DeviceId::new("laptop").unwrap(), 0xbeef, saved);
    greet(&mut state);
    state
}

fn greet(state: &mut ClientState) {
    state.connected("token".into());
    assert!(matches!(state.next_frame(), Some(ClientFrame::Hello(_))));
    assert_eq!(state.next_frame(), None);
    state.frame(welcome());
}

/// Connected, caught up at cursor 10, nothing seen.
fn ready() -> ClientState {
    let mut state = start(None);
    state.frame(caught_up(10, &[]));
    events(&mut state);
    state
}

fn post(state: &mut ClientState, body: &str) -> ClientMsgId {
    state.send(Draft::text(user("bob"), body)).unwrap()
}

// ---- the outbox ----

#[test]
fn what_was_not_confirmed_goes_out_again_with_the_same_ids_in_order() {
    let mut state = ready();
    let ids: Vec<_> = ["one", "two", "three"]
        .iter()
        .map(|body| post(&mut state, body))
        .collect();
    assert_eq!(sends(&frames(&mut state)), ids);
    state.frame(sent(&ids[0], 1));
    state.disconnected();
    assert_eq!(frames(&mut state), []);
    let fourth = post(&mut state, "four");
    greet(&mut state);
    assert_eq!(
        sends(&frames(&mut state)),
        [ids[1].clone(), ids[2].clone(), fourth]
    );
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
    state.frame(refusal(
        Ref::Text(first.to_string()),
        ErrorCode::RateLimited,
        Some(700),
    ));
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
fn only_so_many_are_on_their_way_at_once() {
    let mut state = ready();
    let ids: Vec<_> = (0..IN_FLIGHT_MAX + 5)
        .map(|n| post(&mut state, &n.to_string()))
        .collect();
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
    assert!(matches!(
        offline.send(Draft::text(user("bob"), "x".repeat(101))),
        Err(Refused::Invalid(_))
    ));
}

#[test]
fn a_message_that_ends_the_connection_is_not_sent_for_ever() {
    let mut state = ready();
    let (short, long) = (post(&mut state, "short"), post(&mut state, "much longer"));
    frames(&mut state);
    let code = ErrorCode::FrameTooLarge;
    state.frame(ServerFrame::Bye(Bye {
        code,
        reason: "too large".into(),
        reconnect_after_ms: 0,
    }));
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
        written
            .iter()
            .any(|f| matches!(f, ClientFrame::Send(send) if send.seen_seq == Some(2))),
        "{written:?}"
    );
}

#[test]
fn another_user_gets_nothing_of_the_one_before() {
    let mut before = ready();
    before.frame(from_bob(1));
    post(&mut before, "alice's secret");
    let saved = Saved {
        user: Some(user("zoe")),
        ..before.saved()
    };
    let mut state = start(Some(saved));
    assert_eq!(sends(&frames(&mut state)), []);
    let told = events(&mut state);
    assert!(
        matches!(told[0], Event::SendFailed { .. }) && matches!(told[1], Event::Reset { .. }),
        "{told:?}"
    );
    assert_eq!(state.cursor(), None);
}

// ---- messages, acks, cursor ----

#[test]
fn a_message_is_told_once_and_acked_every_time() {
    let mut state = ready();
    state.frame(from_bob(1));
    assert_eq!(acks(&frames(&mut state)), [1]);
    state.frame(from_bob(1));
    assert_eq!(told(&mut state), [1]);
    assert_eq!(
        acks(&frames(&mut state)),
        [1],
        "the server may not have heard the first ack"
    );
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
    let mine = MessageFrame {
        client_msg_id: id.clone(),
        ..message("alice~bob", "alice", 2)
    };
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
    assert_eq!(
        state.cursor(),
        None,
        "a device that has not caught up holds nothing for sure"
    );
    state.frame(caught_up(500, &[]));
    assert_eq!(state.cursor(), Some(MessageId(500)));
    state.frame(from_bob(8));
    assert_eq!(
        state.cursor(),
        Some(MessageId(500)),
        "an ack moves it, not the message"
    );
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
    let Some(ClientFrame::Hello(hello)) = state.next_frame() else {
        panic!()
    };
    assert_eq!(hello.cursor, Some(MessageId(10)));
}

// ---- gaps ----

#[test]
fn a_gap_is_asked_for_once_and_told_in_order() {
    let mut state = ready();
    state.frame(from_bob(1));
    frames(&mut state);
    state.frame(from_bob(4));
    state.frame(from_bob(5));
    let written = frames(&mut state);
    assert_eq!(
        acks(&written),
        Vec::<Seq>::new(),
        "what lies behind a gap is not acked"
    );
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
    state.frame(history(
        asked[0].reference.clone().unwrap(),
        vec![message("alice~bob", "bob", 3)],
        3,
        None,
    ));
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
    assert_eq!(
        state.cursor(),
        Some(MessageId(10)),
        "another conversation's message may be the missing one"
    );
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
    state.frame(refusal(
        asked[0].reference.clone().unwrap(),
        ErrorCode::Unavailable,
        Some(50),
    ));
    assert_eq!(state.take_retry_ms(), Some(50));
    assert_eq!(queries(&frames(&mut state)), []);
    state.retry();
    let asked = queries(&frames(&mut state));
    assert_eq!(asked.len(), 1);
    state.frame(refusal(
        asked[0].reference.clone().unwrap(),
        ErrorCode::NotFound,
        None,
    ));
    assert_eq!(told(&mut state), [1, 3]);
    state.frame(from_bob(2));
    assert_eq!(
        told(&mut state),
        [2],
        "it was never received, so it is not a duplicate"
    );
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
    state.frame(caught_up(900, &[("alice~bob", 3), ("alice~carol", 40)]));
    let asked = queries(&frames(&mut state));
    assert_eq!(asked.len(), 1);
    assert_eq!((&asked[0].conversation_id, asked[0].after_seq), (&ab(), Some(1)));
    assert_eq!(state.cursor(), Some(MessageId(10)));
    let page = [2, 3].map(|seq| message("alice~bob", "bob", seq)).to_vec();
    state.frame(history(asked[0].reference.clone().unwrap(), page, 3, None));
    assert_eq!(told(&mut state), [1, 2, 3]);
    assert_eq!(state.cursor(), Some(MessageId(900)));
    state.frame(ServerFrame::Message(message("alice~carol", "carol", 40)));
    state.frame(ServerFrame::Message(message("alice~carol", "carol", 41)));
    assert_eq!(told(&mut state), [40, 41], "a head is not a message");
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
    state.frame(ServerFrame::Reset(Reset {
        reason: "too old".into(),
    }));
    state.frame(from_bob(500));
    state.frame(caught_up(90_000, &[("alice~bob", 510)]));
    assert_eq!(queries(&frames(&mut state)), []);
    let told = events(&mut state);
    assert!(
        matches!(
            &told[..],
            [Event::Reset { .. }, Event::Message(_), Event::CaughtUp]
        ),
        "{told:?}"
    );
    assert_eq!(state.cursor(), Some(MessageId(90_000)));
    state.frame(from_bob(513));
    assert_eq!(queries(&frames(&mut state))[0].after_seq, Some(510));
}

// ---- receipts ----

#[test]
fn ticks_only_grow_and_read_implies_delivered() {
    let mut state = ready();
    assert_eq!(state.tick_of(&ab(), 1), Tick::Single);
    state.frame(ticks("bob", 3, 0));
    state.frame(ticks("bob", 2, 1));
    let tick = |seq| state.tick_of(&ab(), seq);
    assert_eq!(
        [tick(1), tick(3), tick(4)],
        [Tick::Blue, Tick::Double, Tick::Single]
    );
    events(&mut state);
    state.frame(ticks("bob", 1, 0));
    assert_eq!(events(&mut state), [], "nothing grew");
    state.frame(ticks("bob", 0, 5));
    assert_eq!(state.tick_of(&ab(), 5), Tick::Blue);
    let ServerFrame::Ticks(merged) = ticks("bob", 5, 5) else {
        unreachable!()
    };
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
    let read = Boundaries {
        last_delivered_seq: 1,
        last_read_seq: 1,
    };
    let reference = query.reference.clone();
    let own = Boundaries::default();
    let answer = StatusAnswer {
        reference,
        conversation_id: ab(),
        last_seq: 1,
        unread_count: 0,
        own,
        peer: read,
    };
    state.frame(ServerFrame::Status(answer));
    assert_eq!(state.tick_of(&ab(), 1), Tick::Blue);
    assert_eq!(state.next_answer(), None, "the application did not ask");
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
    state.frame(ServerFrame::Done(Done {
        reference: written[0].1.clone(),
    }));
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

// ---- requests ----

#[test]
fn a_request_is_asked_again_after_a_reconnect_and_answered_once() {
    let mut state = ready();
    let id = state.history(ab(), HistoryRange::Newest, Some(20)).unwrap();
    assert_eq!(queries(&frames(&mut state)).len(), 1);
    state.disconnected();
    greet(&mut state);
    let asked = queries(&frames(&mut state));
    assert_eq!(asked.len(), 1);
    let reference = asked[0].reference.clone().unwrap();
    state.frame(history(reference.clone(), vec![], 0, None));
    state.frame(history(reference, vec![], 0, None));
    assert!(matches!(state.next_answer(), Some((answered, Ok(Answer::History(_)))) if answered == id));
    assert_eq!(state.next_answer(), None);
}

#[test]
fn what_is_watched_is_watched_again() {
    let mut state = ready();
    state.watch(vec![user("bob")]).unwrap();
    frames(&mut state);
    state.disconnected();
    greet(&mut state);
    assert!(matches!(&frames(&mut state)[..], [ClientFrame::Watch(watch)] if watch.users == [user("bob")]));
}

#[test]
fn requests_are_bounded_and_forgetting_makes_room() {
    let mut state = ready();
    let ids: Vec<_> = (0..REQUESTS_MAX).map(|_| state.status(ab()).unwrap()).collect();
    assert_eq!(state.inbox(None, None), Err(Refused::Busy));
    state.forget(ids[0]);
    assert!(state.inbox(None, None).is_ok());
}
