//! Asking for much and not reading it: what waits for one socket, or for all of a user's, is bounded in encoded bytes.
//!
//! The messages are the longest there are, of a character that JSON writes as six bytes: 16 KiB take 96 KiB on the wire.

use std::time::{Duration, Instant};

use bluetick_protocol::{ErrorCode, Receipt, Ref, ServerFrame};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};

use crate::{harness::*, http::api};

const MIB: u64 = 1024 * 1024;
const MESSAGES: u64 = 40;
const ID: &str = "alice~bob";

/// Alice fills her conversation with Bob.
async fn fill(server: &Server) -> Person {
    let mut alice = server.connect("alice", "phone").await;
    let body = "\u{1}".repeat(16 * 1024);
    for _ in 0..MESSAGES {
        alice.send("bob", &body).await;
    }
    alice
}

/// A connection whose kernel holds little for it.
async fn connect(server: &Server) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    socket.connect(server.address.parse().unwrap()).await.unwrap()
}

/// A device of Bob's that reads only when it is told to. It holds all messages, so that nothing is sent to it unasked.
async fn device(server: &Server, token: &str, device: usize) -> WebSocketStream<TcpStream> {
    let stream = connect(server).await;
    let (mut socket, _) = tokio_tungstenite::client_async(server.url(), stream).await.unwrap();
    let hello = json!({"type": "hello", "token": token, "device": format!("d{device}")});
    socket.send(Message::text(hello.to_string())).await.unwrap();
    loop {
        let Message::Text(text) = socket.next().await.unwrap().unwrap() else { continue };
        let frame: Value = serde_json::from_str(&text).unwrap();
        if frame["type"] == "caught_up" {
            return socket;
        }
    }
}

async fn ask_for_histories(socket: &mut WebSocketStream<TcpStream>, count: usize) {
    for n in 0..count {
        let history = json!({"type": "history", "ref": n, "conversation_id": ID, "limit": 200});
        socket.feed(Message::text(history.to_string())).await.unwrap();
    }
    socket.flush().await.unwrap();
}

/// The most memory that the server took while this long passed, beyond `before`.
async fn growth(server: &Server, before: u64, time: Duration) -> u64 {
    let until = Instant::now() + time;
    let mut most = 0;
    while Instant::now() < until {
        most = most.max(server.rss().saturating_sub(before));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    most
}

#[tokio::test]
async fn unread_histories_take_little_memory() {
    const CONNECTIONS: usize = 24;
    let server = Server::with(&[("BLUETICK_LIMITS__MAX_SESSIONS", "30")]);
    let mut alice = fill(&server).await;
    let mut bob = server.connect("bob", "phone").await;
    bob.ack_seq(ID, MESSAGES).await;
    let token = server.token("bob");
    let mut sockets = Vec::new();
    for n in 0..CONNECTIONS {
        sockets.push(device(&server, &token, n).await);
    }
    let before = server.rss();
    for socket in &mut sockets {
        ask_for_histories(socket, 64).await;
    }
    let growth = growth(&server, before, Duration::from_secs(8)).await;
    println!("{CONNECTIONS} connections that read nothing took {} MiB", growth / MIB);
    assert!(growth < 64 * MIB, "{} MiB", growth / MIB);
    let began = Instant::now();
    alice.send("carol", "everybody else goes on").await;
    assert!(began.elapsed() < Duration::from_secs(2), "a send took {:?}", began.elapsed());
}

#[tokio::test]
async fn who_reads_gets_every_answer_and_acks_behind_the_requests_count() {
    let server = Server::start();
    let _alice = fill(&server).await;
    let mut bob = server.open("bob", "phone", None).await;
    for n in 0..100 {
        let query = bluetick_protocol::HistoryQuery {
            reference: Some(Ref::Number(n)),
            conversation_id: conversation(ID),
            after_seq: Some(0),
            before_seq: None,
            limit: Some(200),
        };
        bob.say(bluetick_protocol::ClientFrame::History(query)).await;
    }
    let reference = Some(Ref::Text("ack".into()));
    let ack = Receipt { reference: reference.clone(), conversation_id: conversation(ID), seq: MESSAGES };
    bob.say(bluetick_protocol::ClientFrame::Ack(ack)).await;
    let (mut answers, mut acked) = (0, false);
    while answers < 100 || !acked {
        bob.wait(|frame| match frame {
            ServerFrame::History(page) => {
                assert_eq!(page.reference, Some(Ref::Number(answers)), "in the order of the requests");
                assert_eq!((page.from_seq, page.next), (1, Some(page.to_seq)));
                answers += 1;
                Some(())
            }
            ServerFrame::Done(done) => {
                acked = Some(done.reference) == reference;
                Some(())
            }
            ServerFrame::Bye(bye) => panic!("{bye:?}"),
            _ => None,
        })
        .await;
    }
    // Page by page everything is there.
    let (mut seqs, mut next) = (Vec::new(), Some(0));
    while let Some(after) = next {
        let page = bob.history(ID, Some(after), None, 200).await;
        seqs.extend(page.messages.iter().map(|m| m.seq));
        next = page.next;
    }
    assert_eq!(seqs, (1..=MESSAGES).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_reader_below_the_minimum_rate_is_ended() {
    let server = Server::with(&[
        ("BLUETICK_SESSIONS__WRITE_TIMEOUT_SECS", "3"),
        ("BLUETICK_SESSIONS__MIN_READ_BYTES_PER_SEC", "1048576"),
    ]);
    let _alice = fill(&server).await;
    let mut bob = server.connect("bob", "phone").await;
    bob.ack_seq(ID, MESSAGES).await;
    bob.leave().await;
    let token = server.token("bob");
    let mut socket = device(&server, &token, 1).await;
    ask_for_histories(&mut socket, 64).await;
    // Some 100 KiB a second: an answer leaves every two, so the socket is never stuck for long.
    let slow = async {
        let mut piece = vec![0; 10 * 1024];
        while matches!(socket.get_mut().read_exact(&mut piece).await, Ok(1..)) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = slow => {}
        () = gone(&server, "bob") => {}
    }
    gone(&server, "bob").await;
}

/// Requests for a conversation, one after another on a connection, of which nothing is read.
async fn ask_and_leave_unread(server: &Server, token: &str, count: usize) -> TcpStream {
    let mut stream = connect(server).await;
    let request = format!(
        "GET /v1/conversations/{ID}/messages?limit=200 HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\n\r\n",
        server.address
    );
    stream.write_all(request.repeat(count).as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn unread_http_answers_take_little_memory_and_are_limited_by_user() {
    const CONNECTIONS: usize = 100;
    let server = Server::start();
    let _alice = fill(&server).await;
    let (bob, carol) = (api(&server, "bob"), api(&server, "carol"));
    assert_eq!(bob.get("/v1/inbox").await.0, 200);
    assert_eq!(carol.get("/v1/inbox").await.0, 200);
    let before = server.rss();
    let token = server.token("bob");
    let mut streams = Vec::new();
    for n in 0..CONNECTIONS {
        // A page or two fit into the kernel's buffers; forty do not.
        let count = if n % 6 == 0 { 40 } else { 1 };
        streams.push(ask_and_leave_unread(&server, &token, count).await);
    }
    let growth = growth(&server, before, Duration::from_secs(8)).await;
    println!("{CONNECTIONS} connections whose answers nobody reads took {} MiB", growth / MIB);
    assert!(growth < 64 * MIB, "{} MiB", growth / MIB);
    // Until the kernel's buffers are full, answers leave the process and their places are given back.
    let until = Instant::now() + 4 * SOON;
    let refused = loop {
        let (status, answer) = bob.get("/v1/inbox").await;
        if status == 429 {
            break answer;
        }
        assert!(status == 200 && Instant::now() < until, "{status} {answer}");
    };
    assert_eq!(refused["error"]["code"], json!(ErrorCode::RateLimited), "{refused}");
    assert!(refused["error"]["retry_after_ms"].as_u64() > Some(0), "{refused}");
    let began = Instant::now();
    assert_eq!(carol.get("/v1/inbox").await.0, 200);
    assert!(began.elapsed() < Duration::from_secs(2), "others are answered: {:?}", began.elapsed());
    drop(streams);
    let until = Instant::now() + SOON;
    while bob.get("/v1/inbox").await.0 != 200 {
        assert!(Instant::now() < until, "the places are given back");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
