use super::*;
use std::{future::poll_fn, time::Duration};

use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use tokio::{
    io::DuplexStream,
    net::{TcpListener, TcpStream},
};

impl SessionStream for DuplexStream {}

const FRAME_MAX: usize = 1024 * 1024;

/// Both ends of a WebSocket, ours behind its lock. The pipe takes a kibibyte at a time.
async fn pair(frame_max_bytes: usize) -> (SharedSocket<DuplexStream>, WebSocketStream<DuplexStream>) {
    let (ours, theirs) = tokio::io::duplex(1024);
    let ours = Gathering::new(ours);
    let config = socket_config(frame_max_bytes);
    let ours = WebSocketStream::from_raw_socket(ours, Role::Server, Some(config)).await;
    (Arc::new(Mutex::new(ours)), WebSocketStream::from_raw_socket(theirs, Role::Client, None).await)
}

fn text(length: usize) -> Outgoing {
    Outgoing::Text("x\u{e9}".repeat(length / 3))
}

#[tokio::test]
async fn frames_leave_in_order_and_long_ones_whole() {
    let (ours, mut theirs) = pair(FRAME_MAX).await;
    let lengths = [3, 300, 30_000, 3_000_000, 9, 13_000];
    let mut queue: OutboundQueue = lengths.iter().map(|length| text(*length)).collect();
    queue.push_back(Outgoing::Ping);
    queue.push_back(Outgoing::Close(4409, "replaced".into()));
    let reader = tokio::spawn(async move {
        let mut seen = Vec::new();
        while !matches!(seen.last(), Some(Message::Close(_))) {
            seen.push(theirs.next().await.unwrap().unwrap());
        }
        seen
    });
    let mut sink = SocketSink { socket: ours.clone(), unsent: None, _peer: None };
    poll_fn(|cx| sink.poll_write(cx, &mut queue)).await.unwrap();
    assert!(queue.is_empty() && sink.unsent.is_none());
    let seen = reader.await.unwrap();
    let texts: Vec<usize> =
        seen.iter().filter(|message| message.is_text()).map(|message| message.len()).collect();
    assert_eq!(texts, lengths.map(|length| length / 3 * 3));
    assert!(seen[lengths.len()].is_ping());
    let Some(Message::Close(Some(close))) = seen.last() else { panic!("{seen:?}") };
    assert_eq!((u16::from(close.code), close.reason.as_str()), (4409, "replaced"));
}

#[tokio::test]
async fn a_reader_that_stops_holds_up_its_queue_and_nothing_else() {
    let (ours, theirs) = pair(FRAME_MAX).await;
    let mut queue: OutboundQueue = (0..100).map(|_| text(3000)).collect();
    let mut sink = SocketSink { socket: ours.clone(), unsent: None, _peer: None };
    let written =
        tokio::time::timeout(Duration::from_millis(50), poll_fn(|cx| sink.poll_write(cx, &mut queue)));
    assert!(written.await.is_err());
    assert!(queue.len() > 90, "{} frames left the queue for nowhere", 100 - queue.len());
    drop(theirs);
    assert_eq!(poll_fn(|cx| sink.poll_write(cx, &mut queue)).await, Err(Gone));
}

#[tokio::test]
async fn what_comes_in_is_told_apart() {
    let (ours, mut theirs) = pair(1000).await;
    let sender = tokio::spawn(async move {
        theirs.send(Message::text("hi")).await.unwrap();
        theirs.send(Message::binary(vec![1])).await.unwrap();
        theirs.send(Message::Ping(Bytes::new())).await.unwrap();
        theirs.send(Message::text("y".repeat(1000))).await.unwrap();
        theirs.send(Message::text("z".repeat(1001))).await.unwrap();
        theirs
    });
    let mut source = SocketSource::new(ours.clone());
    assert_eq!(source.next().await, Incoming::Text("hi".into()));
    assert_eq!(source.next().await, Incoming::Binary);
    assert_eq!(source.next().await, Incoming::Alive);
    assert_eq!(source.next().await, Incoming::Text("y".repeat(1000).into()));
    assert_eq!(source.next().await, Incoming::TooLarge);
    // The other direction still works: there is a reason to be told.
    let mut queue = OutboundQueue::from(Outgoing::Text("too long".into()));
    let mut sink = SocketSink { socket: ours.clone(), unsent: None, _peer: None };
    let told = poll_fn(|cx| sink.poll_write(cx, &mut queue));
    let (told, theirs) = tokio::join!(told, sender);
    told.unwrap();
    let mut theirs = theirs.unwrap();
    assert!(theirs.next().await.unwrap().unwrap().is_pong());
    assert_eq!(theirs.next().await.unwrap().unwrap(), Message::text("too long"));
}

/// The same on a real socket, which says whether there is something to read.
async fn tcp_pair() -> (SharedSocket<Lingering>, WebSocketStream<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let theirs = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let ours = Gathering::new(Lingering::new(listener.accept().await.unwrap().0));
    let config = socket_config(FRAME_MAX);
    let ours = WebSocketStream::from_raw_socket(ours, Role::Server, Some(config)).await;
    (Arc::new(Mutex::new(ours)), WebSocketStream::from_raw_socket(theirs, Role::Client, None).await)
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), work).await.expect("nobody woke it")
}

#[tokio::test]
async fn a_socket_that_has_nothing_is_asked_again_when_it_has() {
    let (ours, mut theirs) = tcp_pair().await;
    let mut source = SocketSource::new(ours.clone());
    assert!(source.next().now_or_never().is_none());
    assert!(source.drained);
    theirs.send(Message::text("one")).await.unwrap();
    theirs.send(Message::text("two")).await.unwrap();
    assert_eq!(in_time(source.next()).await, Incoming::Text("one".into()));
    assert_eq!(in_time(source.next()).await, Incoming::Text("two".into()));
    // Longer than what is read at once: the frame is whole long after its first bytes came.
    let long = "x".repeat(200_000);
    let both = async { tokio::join!(theirs.send(Message::text(&*long)), source.next()) };
    let (sent, incoming) = in_time(both).await;
    sent.unwrap();
    assert_eq!(incoming, Incoming::Text(long.into()));
    assert!(source.next().now_or_never().is_none());
    drop(theirs);
    assert_eq!(in_time(source.next()).await, Incoming::Closed);
}

#[tokio::test]
async fn a_pong_that_found_no_room_leaves_when_there_is_some() {
    let (ours, mut theirs) = tcp_pair().await;
    let mut source = SocketSource::new(ours.clone());
    let mut sink = SocketSink { socket: ours.clone(), unsent: None, _peer: None };
    let mut queue: OutboundQueue = (0..10_000).map(|_| text(6000)).collect();
    let full =
        tokio::time::timeout(Duration::from_millis(200), poll_fn(|cx| sink.poll_write(cx, &mut queue)));
    assert!(full.await.is_err() && !queue.is_empty());
    theirs.send(Message::Ping(Bytes::new())).await.unwrap();
    assert_eq!(in_time(source.next()).await, Incoming::Alive);
    assert!(source.next().now_or_never().is_none());
    assert!(source.owes_pong && !source.drained, "the socket is full");
    // Nobody writes any more: what is left goes with the reads.
    let reader = async {
        while !theirs.next().await.unwrap().unwrap().is_pong() {}
        theirs.send(Message::text("it came")).await.unwrap();
    };
    let ((), incoming) = in_time(async { tokio::join!(reader, source.next()) }).await;
    assert_eq!(incoming, Incoming::Text("it came".into()));
    assert!(!source.owes_pong);
}

#[tokio::test]
async fn a_close_is_answered_and_bytes_that_are_no_text_are_not_json() {
    let (ours, mut theirs) = pair(1000).await;
    let mut source = SocketSource::new(ours.clone());
    theirs.send(Message::Close(None)).await.unwrap();
    assert_eq!(source.next().await, Incoming::Closed);
    assert!(matches!(theirs.next().await, Some(Ok(Message::Close(_)))));

    let (ours, mut theirs) = pair(1000).await;
    let mut source = SocketSource::new(ours.clone());
    let broken = Frame::message(vec![0xff, 0xfe], OpCode::Data(Data::Text), true);
    theirs.send(Message::Frame(broken)).await.unwrap();
    assert_eq!(source.next().await, Incoming::Text(Utf8Bytes::default()));
    drop(theirs);
    let (ours, theirs) = pair(1000).await;
    drop(theirs);
    assert_eq!(SocketSource::new(ours.clone()).next().await, Incoming::Closed);
}

#[test]
fn reasons_are_cut_at_a_character() {
    assert_eq!(truncated("short", 123), "short");
    assert_eq!(truncated("aéé", 2), "a");
    assert_eq!(truncated("aéé", 3), "aé");
}

#[test]
fn a_handshake_must_be_one() {
    let mut headers = HeaderMap::new();
    assert!(check_handshake(&headers).is_err());
    headers.insert(header::CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("WebSocket"));
    headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    assert!(check_handshake(&headers).is_err(), "no key");
    headers.insert(header::SEC_WEBSOCKET_KEY, HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="));
    assert_eq!(
        check_handshake(&headers).unwrap_or(HeaderValue::from_static("")),
        "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    );
    headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("8"));
    assert!(check_handshake(&headers).is_err());
}
