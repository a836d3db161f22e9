//! The client over a real socket, against a server that does what the test tells it.
#![allow(clippy::unwrap_used)]

use std::{sync::atomic::AtomicU32, sync::atomic::Ordering, time::Duration};

use bluetick_client::{
    Client, Draft, Error, Event, Events, HistoryRange, Options, RawConnection, RawError, TokenSource,
};
use bluetick_protocol::*;
use futures_util::{SinkExt, StreamExt};
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_tungstenite::{WebSocketStream, accept_async, tungstenite::Message};

const SOON: Duration = Duration::from_secs(10);

struct FakeServer {
    listener: TcpListener,
    url: String,
}

/// One connection of the fake server's.
struct ScriptedServer(WebSocketStream<TcpStream>);

impl FakeServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}/v1/ws", listener.local_addr().unwrap());
        FakeServer { listener, url }
    }

    fn options(&self) -> Options {
        Options::new(self.url.clone(), "laptop".parse().unwrap(), "a token")
    }

    async fn accept(&self) -> ScriptedServer {
        let (tcp, _) = timeout(SOON, self.listener.accept()).await.expect("nobody connected").unwrap();
        ScriptedServer(accept_async(tcp).await.unwrap())
    }

    /// Accepts a session and lets it catch up.
    async fn accept_session(&self) -> (ScriptedServer, Hello) {
        let mut peer = self.accept().await;
        let ClientFrame::Hello(hello) = peer.heard().await else { panic!("no hello") };
        peer.say(welcome(20)).await;
        peer.say(ServerFrame::CaughtUp(CaughtUp { cursor: MessageId(10), heads: vec![] })).await;
        (peer, hello)
    }
}

impl ScriptedServer {
    async fn say(&mut self, frame: ServerFrame) {
        self.0.send(Message::text(frame.to_text())).await.unwrap();
    }

    async fn heard(&mut self) -> ClientFrame {
        loop {
            let next = timeout(SOON, self.0.next()).await.expect("the client says nothing");
            match next.expect("the client is gone").unwrap() {
                Message::Text(text) => return decode(&text).unwrap(),
                Message::Close(_) => panic!("the client closed"),
                _ => {}
            }
        }
    }

    async fn heard_send(&mut self) -> Send {
        loop {
            if let ClientFrame::Send(send) = self.heard().await {
                return send;
            }
        }
    }

    async fn confirm(&mut self, send: &Send, seq: Seq) {
        self.say(ServerFrame::Sent(Sent {
            reference: send.reference.clone(),
            client_msg_id: send.client_msg_id.clone(),
            conversation_id: "alice~bob".parse().unwrap(),
            seq,
            message_id: MessageId(1000 + seq),
            ts: 5,
            duplicate: false,
        }))
        .await;
    }
}

fn welcome(heartbeat_secs: u64) -> ServerFrame {
    ServerFrame::Welcome(Welcome {
        reference: None,
        user_id: "alice".parse().unwrap(),
        device: "laptop".parse().unwrap(),
        session_id: SessionId(7),
        server_time: 1,
        heartbeat_secs,
        max_body_bytes: 1000,
    })
}

fn bye(code: ErrorCode, reconnect_after_ms: u64) -> ServerFrame {
    ServerFrame::Bye(Bye { code, reason: "because".into(), reconnect_after_ms })
}

fn message(seq: Seq) -> ServerFrame {
    ServerFrame::Message(MessageFrame {
        conversation_id: "alice~bob".parse().unwrap(),
        seq,
        message_id: MessageId(1000 + seq),
        client_msg_id: format!("b-{seq}").parse().unwrap(),
        sender: "bob".parse().unwrap(),
        receiver: "alice".parse().unwrap(),
        body: "hi".into(),
        ts: 5,
        attachment: None,
        meta: Some(Json::from_text(r#"{"k":1}"#).unwrap()),
    })
}

async fn next(events: &mut Events) -> Event {
    timeout(SOON, events.next()).await.expect("no event came").expect("the events ended")
}

async fn wait_for(events: &mut Events, wanted: impl Fn(&Event) -> bool) -> Event {
    loop {
        let event = next(events).await;
        if wanted(&event) {
            return event;
        }
    }
}

fn bob() -> UserId {
    "bob".parse().unwrap()
}

#[tokio::test]
async fn a_send_survives_the_connection_it_was_made_on() {
    let server = FakeServer::start().await;
    let (client, mut events) = Client::connect(server.options());
    let (mut peer, hello) = server.accept_session().await;
    assert_eq!((hello.token.as_str(), hello.cursor), ("a token", None));

    let sending = tokio::spawn({
        let client = client.clone();
        async move { client.send(bob(), "hello").await }
    });
    let lost = peer.heard_send().await;
    drop(peer);
    wait_for(&mut events, |e| matches!(e, Event::Disconnected { will_retry_in: Some(_), .. })).await;

    let (mut peer, hello) = server.accept_session().await;
    assert_eq!(hello.cursor, Some(MessageId(10)));
    let again = peer.heard_send().await;
    assert_eq!(again.client_msg_id, lost.client_msg_id);
    peer.confirm(&again, 1).await;
    assert_eq!(timeout(SOON, sending).await.unwrap().unwrap().unwrap().seq, 1);
    wait_for(&mut events, |e| matches!(e, Event::Sent(_))).await;
}

#[tokio::test]
async fn messages_are_told_acked_and_covered_by_what_is_saved() {
    let server = FakeServer::start().await;
    let (client, mut events) = Client::connect(server.options());
    let (mut peer, _) = server.accept_session().await;
    peer.say(message(1)).await;
    peer.say(message(2)).await;
    let mut acked = 0;
    while acked < 2 {
        let ClientFrame::Ack(ack) = peer.heard().await else { panic!("not an ack") };
        acked = ack.seq;
    }
    client.save().await.unwrap();
    let mut told = Vec::new();
    let saved = loop {
        match next(&mut events).await {
            Event::Message(message) => told.push((message.seq, message.meta.unwrap().as_str().to_owned())),
            Event::Saved(saved) => break saved,
            _ => {}
        }
    };
    assert_eq!(told, [(1, r#"{"k":1}"#.to_owned()), (2, r#"{"k":1}"#.to_owned())]);
    assert_eq!(saved.cursor, Some(MessageId(1002)));
    client.close().await.unwrap();

    let (_client, mut events) = Client::connect(server.options().saved(Some(*saved)));
    let (mut peer, hello) = server.accept_session().await;
    assert_eq!(hello.cursor, Some(MessageId(1002)));
    peer.say(message(2)).await;
    peer.say(message(3)).await;
    let Event::Message(first) = wait_for(&mut events, |e| matches!(e, Event::Message(_))).await else {
        panic!()
    };
    assert_eq!(first.seq, 3, "a device that resumes has seen the second");
}

#[tokio::test]
async fn codes_that_forbid_a_return_end_the_client() {
    for code in [
        ErrorCode::Replaced,
        ErrorCode::Unauthorized,
        ErrorCode::Erased,
        ErrorCode::TooManySessions,
        ErrorCode::TokenExpired,
        ErrorCode::TokenRevoked,
    ] {
        let server = FakeServer::start().await;
        let (client, mut events) = Client::connect(server.options());
        let mut peer = server.accept().await;
        peer.heard().await;
        peer.say(bye(code, 0)).await;
        let closed = wait_for(&mut events, |e| matches!(e, Event::Closed { .. })).await;
        assert_eq!(closed, Event::Closed { code: Some(code), reason: "because".into() });
        assert!(timeout(SOON, events.next()).await.unwrap().is_none());
        assert_eq!(client.send(bob(), "late").await, Err(Error::Closed));
    }
}

#[tokio::test]
async fn an_expired_token_is_replaced_by_a_fresh_one_and_the_hint_is_waited_for() {
    let server = FakeServer::start().await;
    let made = std::sync::Arc::new(AtomicU32::new(0));
    let token = TokenSource::provider(move || {
        let number = made.fetch_add(1, Ordering::Relaxed);
        async move { format!("token {number}") }
    });
    let (client, mut events) = Client::connect(Options { token, ..server.options() });
    let (mut peer, hello) = server.accept_session().await;
    assert_eq!(hello.token, "token 0");
    client.refresh_token().await.unwrap();
    let ClientFrame::Auth(auth) = peer.heard().await else { panic!("no auth") };
    assert_eq!(auth.token, "token 1");
    peer.say(bye(ErrorCode::TokenExpired, 300)).await;
    let lost = wait_for(&mut events, |e| matches!(e, Event::Disconnected { .. })).await;
    let Event::Disconnected { will_retry_in: Some(wait), .. } = lost else { panic!("{lost:?}") };
    assert!(wait >= Duration::from_millis(300));
    let (mut peer, hello) = server.accept_session().await;
    assert_eq!(hello.token, "token 2");
    // The same after a revocation: a token that was issued since is good.
    peer.say(bye(ErrorCode::TokenRevoked, 0)).await;
    let (_peer, hello) = server.accept_session().await;
    assert_eq!(hello.token, "token 3");
}

#[tokio::test]
async fn offline_on_purpose_lasts_until_told_otherwise() {
    let server = FakeServer::start().await;
    let (client, mut events) = Client::connect(server.options());
    let (mut peer, _) = server.accept_session().await;
    wait_for(&mut events, |e| *e == Event::CaughtUp).await;
    client.go_offline().await.unwrap();
    wait_for(&mut events, |e| *e == Event::Disconnected { will_retry_in: None, why: None }).await;
    while let Some(Ok(heard)) = timeout(SOON, peer.0.next()).await.unwrap() {
        assert!(heard.is_close(), "{heard:?}");
    }
    let id = client.post(Draft::text(bob(), "written offline")).await.unwrap();
    client.go_offline().await.unwrap();
    client.go_online().await.unwrap();
    let (mut peer, _) = server.accept_session().await;
    assert_eq!(peer.heard_send().await.client_msg_id, id);
}

#[tokio::test]
async fn requests_are_answered_and_refused() {
    let server = FakeServer::start().await;
    let (client, _events) = Client::connect(server.options());
    let asking = tokio::spawn({
        let client = client.clone();
        async move {
            let conversation: ConversationId = "alice~bob".parse().unwrap();
            let inbox = client.inbox(Some(5), None).await;
            (inbox, client.history(conversation, HistoryRange::Before(9), None).await)
        }
    });
    let (mut peer, _) = server.accept_session().await;
    let ClientFrame::Inbox(query) = peer.heard().await else { panic!("no inbox") };
    assert_eq!(query.limit, Some(5));
    let reference = query.reference;
    peer.say(ServerFrame::Inbox(InboxPage { reference, conversations: vec![], next: None })).await;
    let ClientFrame::History(query) = peer.heard().await else { panic!("no history") };
    assert_eq!(query.before_seq, Some(9));
    let error = WireError::not_found();
    peer.say(ServerFrame::Error(ErrorFrame { reference: query.reference, error: error.clone() })).await;
    let (inbox, history) = timeout(SOON, asking).await.unwrap().unwrap();
    assert_eq!(inbox.unwrap().next, None);
    assert_eq!(history, Err(Error::Wire(error)));
}

#[tokio::test]
async fn an_application_that_reads_no_events_loses_none() {
    let server = FakeServer::start().await;
    let (_client, mut events) = Client::connect(Options { events_max: 2, ..server.options() });
    let (mut peer, _) = server.accept_session().await;
    for seq in 1..=300 {
        peer.say(message(seq)).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut told = Vec::new();
    while told.len() < 300 {
        if let Event::Message(message) = next(&mut events).await {
            told.push(message.seq);
        }
    }
    assert!(told.iter().copied().eq(1..=300));
}

#[tokio::test]
async fn a_server_that_goes_silent_is_left() {
    let server = FakeServer::start().await;
    let (_client, mut events) = Client::connect(server.options());
    let mut peer = server.accept().await;
    peer.heard().await;
    peer.say(welcome(1)).await;
    wait_for(&mut events, |e| matches!(e, Event::Connected { .. })).await;
    wait_for(&mut events, |e| matches!(e, Event::Disconnected { will_retry_in: Some(_), .. })).await;
}

#[tokio::test]
async fn a_bad_address_ends_and_an_unreachable_one_is_tried_again() {
    let bad = Options::new("http://127.0.0.1:1/v1/ws", "laptop".parse().unwrap(), "t");
    let (_client, mut events) = Client::connect(bad);
    wait_for(&mut events, |e| matches!(e, Event::Closed { code: None, .. })).await;

    let unreachable = Options::new("ws://127.0.0.1:1/v1/ws", "laptop".parse().unwrap(), "t");
    let (client, mut events) = Client::connect(unreachable);
    wait_for(&mut events, |e| matches!(e, Event::Disconnected { will_retry_in: Some(_), .. })).await;
    client.close().await.unwrap();
    wait_for(&mut events, |e| matches!(e, Event::Closed { .. })).await;
}

#[tokio::test]
async fn a_raw_connection_sends_anything_and_says_how_it_ended() {
    let server = FakeServer::start().await;
    let speaking = async {
        let mut raw =
            RawConnection::connect_with(&server.url, &[("Origin", "https://example.com")]).await.unwrap();
        raw.send_text("not a frame").await.unwrap();
        let device: DeviceId = "raw".parse().unwrap();
        assert_eq!(raw.hello("t", &device, None).await.unwrap().user_id.as_str(), "alice");
        assert!(matches!(raw.next_frame(Duration::from_millis(50)).await, Err(RawError::Timeout)));
        raw.send_binary(vec![1, 2, 3]).await.unwrap();
        let picked = raw.next_where(SOON, |f| matches!(f, ServerFrame::Bye(_)).then_some(f)).await.unwrap();
        assert_eq!(picked, bye(ErrorCode::NotJson, 0));
        let end = raw.next_frame(SOON).await;
        assert!(matches!(end, Err(RawError::Closed { code: Some(1003), .. })), "{end:?}");
        raw.abort();
    };
    let answering = async {
        let mut peer = server.accept().await;
        assert_eq!(peer.0.next().await.unwrap().unwrap(), Message::text("not a frame"));
        peer.heard().await;
        peer.say(welcome(20)).await;
        assert!(peer.0.next().await.unwrap().unwrap().is_binary());
        peer.say(message(1)).await;
        peer.say(bye(ErrorCode::NotJson, 0)).await;
        let close =
            tokio_tungstenite::tungstenite::protocol::CloseFrame { code: 1003.into(), reason: "no".into() };
        peer.0.close(Some(close)).await.unwrap();
    };
    tokio::join!(speaking, answering);
}

#[tokio::test]
async fn what_was_read_is_said_before_leaving() {
    let server = FakeServer::start().await;
    let (client, mut events) = Client::connect(server.options());
    let (mut peer, _) = server.accept_session().await;
    wait_for(&mut events, |e| *e == Event::CaughtUp).await;
    let conversation: ConversationId = "alice~bob".parse().unwrap();
    for seq in 1..=3 {
        client.read(conversation.clone(), seq).await.unwrap();
    }
    client.close().await.unwrap();
    loop {
        let ClientFrame::Read(read) = peer.heard().await else { panic!("not a read") };
        let reference = read.reference.unwrap();
        peer.say(ServerFrame::Done(Done { reference })).await;
        if read.seq == 3 {
            break;
        }
    }
    assert!(timeout(SOON, peer.0.next()).await.unwrap().unwrap().unwrap().is_close());
    wait_for(&mut events, |e| matches!(e, Event::Closed { code: None, .. })).await;
}
