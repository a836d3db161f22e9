//! The state driven by hand, one frame after another.

use bluetick_protocol::*;

use super::*;

mod delivery;
mod gaps;
mod outbox;
mod random;
mod receipts;
mod requests;

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
    ServerFrame::CaughtUp(CaughtUp { cursor: MessageId(cursor), heads: heads.iter().map(head).collect() })
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
    let error = WireError { code, message: "no".into(), retry_after_ms };
    ServerFrame::Error(ErrorFrame { reference: Some(reference), error })
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
    told.filter_map(|event| if let Event::Message(m) = event { Some(m.seq) } else { None }).collect()
}

fn sends(written: &[ClientFrame]) -> Vec<ClientMsgId> {
    let ids = written.iter();
    ids.filter_map(|f| if let ClientFrame::Send(send) = f { Some(send.client_msg_id.clone()) } else { None })
        .collect()
}

fn acks(written: &[ClientFrame]) -> Vec<Seq> {
    written.iter().filter_map(|f| if let ClientFrame::Ack(ack) = f { Some(ack.seq) } else { None }).collect()
}

fn reads(written: &[ClientFrame]) -> Vec<(Seq, Ref)> {
    let reads = written.iter();
    reads
        .filter_map(|f| {
            if let ClientFrame::Read(r) = f { Some((r.seq, r.reference.clone().unwrap())) } else { None }
        })
        .collect()
}

fn queries(written: &[ClientFrame]) -> Vec<HistoryQuery> {
    written
        .iter()
        .filter_map(|f| if let ClientFrame::History(q) = f { Some(q.clone()) } else { None })
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
