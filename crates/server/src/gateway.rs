//! WebSockets: the upgrade at `/v1/ws`, and a socket as the session loop wants it.
//!
//! An idle connection is what a server has most of, so nothing is kept for one that is not in use: the library's
//! buffers are small, and long texts leave in fragments, because its write buffer never shrinks again.

mod gather;

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Response, StatusCode, header},
};
use bluetick_chat::session::{FrameSink, FrameSource, Gone, Incoming, OutboundQueue, Outgoing, SessionHost};
use bluetick_protocol::{ErrorCode, WireError};
use bytes::Bytes;
use futures_util::{Sink as _, Stream as _};
use hyper::upgrade::{OnUpgrade, Parts, Upgraded};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rand::{TryRng as _, rngs::SysRng};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error as WsError, Message, Utf8Bytes,
        handshake::derive_accept_key,
        protocol::{
            CloseFrame, Role, WebSocketConfig,
            frame::{
                Frame,
                coding::{Data, OpCode},
            },
        },
    },
};

use crate::{
    http::{AppState, error::ApiError, origin},
    listen::{Lingering, Peer, Plain, Unwritten},
};
use gather::Gathering;

/// Allocated for every connection for as long as it lives.
const READ_BUFFER_BYTES: usize = 2 * 1024;
/// Frames are gathered up to here before the socket is written to.
const WRITE_BUFFER_BYTES: usize = 4 * 1024;
/// A longer text leaves in fragments of this length.
const FRAGMENT_BYTES: usize = 8 * 1024;
/// What a close frame can carry beside its code.
const CLOSE_REASON_MAX_BYTES: usize = 123;

/// `GET /v1/ws`.
pub async fn upgrade(
    State(state): State<AppState>,
    mut request: Request,
) -> Result<Response<Body>, ApiError> {
    let key = check_handshake(request.headers())?;
    origin::check_page(request.headers(), &state.config.limits.allowed_origins)?;
    if state.is_draining() {
        let error =
            WireError::new(ErrorCode::ShuttingDown, "the server is going down; connect again shortly");
        return Err(error.retry_after(1_000).into());
    }
    let peer = request.extensions().get::<Peer>().cloned();
    if let Some(unwritten) = request.extensions().get::<Unwritten>() {
        unwritten.upgrade();
    }
    let upgrade = hyper::upgrade::on(&mut request);
    let frame_max_bytes = state.config.limits.frame_max_bytes;
    tokio::spawn(run(state.sessions.clone(), upgrade, frame_max_bytes, peer));
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, key);
    Ok(response)
}

/// The answer to the client's key, if it asks for a WebSocket of the one version there is.
fn check_handshake(headers: &HeaderMap) -> Result<HeaderValue, ApiError> {
    let lists = |name: header::HeaderName, word: &str| {
        let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(word))
    };
    if !lists(header::CONNECTION, "upgrade") || !lists(header::UPGRADE, "websocket") {
        return Err(upgrade_required("this address speaks WebSocket; connect with a WebSocket client"));
    }
    if headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(upgrade_required("only version 13 of WebSocket is spoken here"));
    }
    let accept = headers.get(header::SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes()));
    accept
        .and_then(|accept| HeaderValue::try_from(accept).ok())
        .ok_or_else(|| upgrade_required("the handshake has no Sec-WebSocket-Key"))
}

fn upgrade_required(why: &str) -> ApiError {
    ApiError::with_status(StatusCode::UPGRADE_REQUIRED, WireError::new(ErrorCode::BadRequest, why))
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_VERSION, "13")
}

/// A connection's whole life after the handshake. It holds its place among its address's connections as long as its
/// socket is open.
async fn run(host: Arc<SessionHost>, upgrade: OnUpgrade, frame_max_bytes: usize, peer: Option<Peer>) {
    let upgraded = match upgrade.await {
        Ok(upgraded) => upgraded,
        Err(error) => return tracing::debug!(%error, "upgrade failed"),
    };
    // Most connections, behind a proxy or on a network of one's own: the bare socket, without what HTTP had around it.
    match upgraded.downcast::<Plain>() {
        Ok(Parts { io, read_buf, .. }) => {
            // Copied: what was read is a part of a buffer that is as large as HTTP's.
            let read = Vec::from(&*read_buf);
            drop(read_buf);
            run_on(&host, io.into_inner().into_inner(), read, frame_max_bytes, peer).await;
        }
        Err(upgraded) => {
            Box::pin(run_on(&host, TokioIo::new(upgraded), Vec::new(), frame_max_bytes, peer)).await;
        }
    }
}

/// What a WebSocket is spoken on.
trait Wire: AsyncRead + AsyncWrite + Unpin + Send {
    /// The client has said that it sends nothing more.
    fn client_ended(&mut self) {}

    /// Ready when there may be something to read: cheaper to ask than a read is. Who is told that there is nothing is woken when there is.
    fn poll_readable(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

impl Wire for Lingering {
    fn client_ended(&mut self) {
        Lingering::client_ended(self);
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        Lingering::poll_readable(self, cx)
    }
}

impl Wire for TokioIo<Upgraded> {}

/// A session on a socket of which some bytes may have been read.
async fn run_on(
    host: &SessionHost,
    stream: impl Wire,
    read: Vec<u8>,
    frame_max_bytes: usize,
    peer: Option<Peer>,
) {
    let config = Some(socket_config(frame_max_bytes));
    let stream = Gathering::new(stream);
    let socket = WebSocketStream::from_partially_read(stream, read, Role::Server, config).await;
    // The session lets go of both halves, and so of the socket, before it does what may take a while.
    let socket = Arc::new(Mutex::new(socket));
    let seed = SysRng.try_next_u64().unwrap_or(Arc::as_ptr(&socket) as *const u8 as u64);
    let source = Source::new(socket.clone());
    let sink = Sink { socket, unsent: None, _peer: peer };
    host.run(source, sink, seed).await;
}

fn socket_config(frame_max_bytes: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_write_buffer_size(WRITE_BUFFER_BYTES + 4 * FRAGMENT_BYTES)
        .max_message_size(Some(frame_max_bytes))
        .max_frame_size(Some(frame_max_bytes))
}

/// Both halves run in one task, so the lock is never waited for.
type Socket<S> = Arc<Mutex<WebSocketStream<Gathering<S>>>>;

struct Source<S> {
    socket: Socket<S>,
    /// The stream is out of step after a frame that was not read: nothing more can be made of it.
    ended: bool,
    /// The library had no frame when it was asked last: there is none before the socket has more.
    drained: bool,
    /// A ping came, and what it is answered with may be in the library's buffer still.
    owes_pong: bool,
}

impl<S> Source<S> {
    fn new(socket: Socket<S>) -> Self {
        Source { socket, ended: false, drained: false, owes_pong: false }
    }
}

impl<S: Wire> FrameSource for Source<S> {
    type Text = Utf8Bytes;

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Incoming<Utf8Bytes>> {
        if self.ended {
            return Poll::Pending;
        }
        let mut socket = self.socket.lock();
        if self.drained {
            ready!(socket.get_mut().get_mut().poll_readable(cx));
        }
        let mut socket = Pin::new(&mut *socket);
        let next = socket.as_mut().poll_next(cx);
        if next.is_pending() && self.owes_pong {
            self.owes_pong = socket.as_mut().poll_flush(cx).is_pending();
        }
        self.drained = next.is_pending() && !self.owes_pong;
        let incoming = match ready!(next) {
            Some(Ok(Message::Text(text))) => Incoming::Text(text),
            Some(Ok(Message::Binary(_))) => Incoming::Binary,
            Some(Ok(Message::Ping(_))) => {
                self.owes_pong = true;
                Incoming::Alive
            }
            Some(Ok(Message::Pong(_) | Message::Frame(_))) => Incoming::Alive,
            Some(Ok(Message::Close(_))) => {
                // The answer to a close leaves with the next read; one try, for who is in a hurry will not wait.
                let _ = socket.as_mut().poll_next(cx);
                let stream = socket.get_mut().get_mut();
                let _ = Pin::new(&mut *stream).poll_flush(cx);
                stream.get_mut().client_ended();
                Incoming::Closed
            }
            Some(Err(WsError::Capacity(_))) => {
                self.ended = true;
                Incoming::TooLarge
            }
            // Bytes that are not text are not JSON either, and an empty text is answered as such.
            Some(Err(WsError::Utf8(_))) => {
                self.ended = true;
                Incoming::Text(Utf8Bytes::default())
            }
            Some(Err(_)) | None => Incoming::Closed,
        };
        Poll::Ready(incoming)
    }
}

struct Sink<S> {
    socket: Socket<S>,
    /// The fragments of a long text that the socket has not taken yet.
    unsent: Option<Bytes>,
    /// The place among its address's connections goes with the socket.
    _peer: Option<Peer>,
}

impl<S: Wire> FrameSink for Sink<S> {
    fn poll_write(&mut self, cx: &mut Context<'_>, queue: &mut OutboundQueue) -> Poll<Result<(), Gone>> {
        let Sink { socket, unsent, .. } = self;
        let mut socket = socket.lock();
        let mut socket = Pin::new(&mut *socket);
        while unsent.is_some() || !queue.is_empty() {
            ready!(socket.as_mut().poll_ready(cx)).map_err(|_| Gone)?;
            let message = match unsent.take() {
                Some(rest) => fragment(unsent, rest, OpCode::Data(Data::Continue)),
                None => match queue.pop_front() {
                    Some(Outgoing::Text(text)) => fragment(unsent, text.into(), OpCode::Data(Data::Text)),
                    Some(Outgoing::Ping) => Message::Ping(Bytes::new()),
                    Some(Outgoing::Close(code, reason)) => Message::Close(Some(CloseFrame {
                        code: code.into(),
                        reason: cut(&reason, CLOSE_REASON_MAX_BYTES).into(),
                    })),
                    None => break,
                },
            };
            socket.as_mut().start_send(message).map_err(|_| Gone)?;
        }
        socket.poll_flush(cx).map_err(|_| Gone)
    }

    fn unsent_bytes(&self) -> usize {
        self.unsent.as_ref().map_or(0, Bytes::len)
    }
}

/// The next frame of a text; what is left of it goes into `unsent`.
fn fragment(unsent: &mut Option<Bytes>, mut text: Bytes, opcode: OpCode) -> Message {
    // A little over the length is not worth a frame of its own.
    if text.len() > FRAGMENT_BYTES + FRAGMENT_BYTES / 2 {
        *unsent = Some(text.split_off(FRAGMENT_BYTES));
    }
    Message::Frame(Frame::message(text, opcode, unsent.is_none()))
}

fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::poll_fn, time::Duration};

    use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
    use tokio::{
        io::DuplexStream,
        net::{TcpListener, TcpStream},
    };

    impl Wire for DuplexStream {}

    const FRAME_MAX: usize = 1024 * 1024;

    /// Both ends of a WebSocket, ours behind its lock. The pipe takes a kibibyte at a time.
    async fn pair(frame_max_bytes: usize) -> (Socket<DuplexStream>, WebSocketStream<DuplexStream>) {
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
        let mut sink = Sink { socket: ours.clone(), unsent: None, _peer: None };
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
        let mut sink = Sink { socket: ours.clone(), unsent: None, _peer: None };
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
        let mut source = Source::new(ours.clone());
        assert_eq!(source.next().await, Incoming::Text("hi".into()));
        assert_eq!(source.next().await, Incoming::Binary);
        assert_eq!(source.next().await, Incoming::Alive);
        assert_eq!(source.next().await, Incoming::Text("y".repeat(1000).into()));
        assert_eq!(source.next().await, Incoming::TooLarge);
        // The other direction still works: there is a reason to be told.
        let mut queue = OutboundQueue::from(Outgoing::Text("too long".into()));
        let mut sink = Sink { socket: ours.clone(), unsent: None, _peer: None };
        let told = poll_fn(|cx| sink.poll_write(cx, &mut queue));
        let (told, theirs) = tokio::join!(told, sender);
        told.unwrap();
        let mut theirs = theirs.unwrap();
        assert!(theirs.next().await.unwrap().unwrap().is_pong());
        assert_eq!(theirs.next().await.unwrap().unwrap(), Message::text("too long"));
    }

    /// The same on a real socket, which says whether there is something to read.
    async fn tcp_pair() -> (Socket<Lingering>, WebSocketStream<TcpStream>) {
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
        let mut source = Source::new(ours.clone());
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
        let mut source = Source::new(ours.clone());
        let mut sink = Sink { socket: ours.clone(), unsent: None, _peer: None };
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
        let mut source = Source::new(ours.clone());
        theirs.send(Message::Close(None)).await.unwrap();
        assert_eq!(source.next().await, Incoming::Closed);
        assert!(matches!(theirs.next().await, Some(Ok(Message::Close(_)))));

        let (ours, mut theirs) = pair(1000).await;
        let mut source = Source::new(ours.clone());
        let broken = Frame::message(vec![0xff, 0xfe], OpCode::Data(Data::Text), true);
        theirs.send(Message::Frame(broken)).await.unwrap();
        assert_eq!(source.next().await, Incoming::Text(Utf8Bytes::default()));
        drop(theirs);
        let (ours, theirs) = pair(1000).await;
        drop(theirs);
        assert_eq!(Source::new(ours.clone()).next().await, Incoming::Closed);
    }

    #[test]
    fn reasons_are_cut_at_a_character() {
        assert_eq!(cut("short", 123), "short");
        assert_eq!(cut("aéé", 2), "a");
        assert_eq!(cut("aéé", 3), "aé");
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
}
