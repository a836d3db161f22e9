//! WebSockets: the upgrade at `/v1/ws`, and the socket as frame source and frame sink of a session.
//!
//! Most connections are idle, so an idle one must be small. The library's buffers are small, and
//! long texts are sent in fragments, because the library's write buffer never shrinks.

mod gather;
#[cfg(test)]
mod tests;

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
    listen::{Lingering, PeerConnection, Plain, Unwritten},
};
use gather::Gathering;

/// Allocated for every connection for its whole life.
const READ_BUFFER_BYTES: usize = 2 * 1024;
/// Frames are buffered up to here before a socket write.
const WRITE_BUFFER_BYTES: usize = 4 * 1024;
/// A longer text is sent in fragments of this length.
const FRAGMENT_BYTES: usize = 8 * 1024;
/// The maximum reason of a close frame (RFC 6455, 5.5).
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
    let peer = request.extensions().get::<PeerConnection>().cloned();
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

/// Checks the handshake. Returns the value of `Sec-WebSocket-Accept`.
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

/// Runs a connection after the handshake. `peer` holds its connection permit while the socket is
/// open.
async fn run(
    host: Arc<SessionHost>,
    upgrade: OnUpgrade,
    frame_max_bytes: usize,
    peer: Option<PeerConnection>,
) {
    let upgraded = match upgrade.await {
        Ok(upgraded) => upgraded,
        Err(error) => return tracing::debug!(%error, "upgrade failed"),
    };
    // Without TLS: the bare socket, without the wrappers that HTTP needed.
    match upgraded.downcast::<Plain>() {
        Ok(Parts { io, read_buf, .. }) => {
            // Copied, because the slice would keep HTTP's whole read buffer alive.
            let read = Vec::from(&*read_buf);
            drop(read_buf);
            run_on(&host, io.into_inner().into_inner(), read, frame_max_bytes, peer).await;
        }
        Err(upgraded) => {
            Box::pin(run_on(&host, TokioIo::new(upgraded), Vec::new(), frame_max_bytes, peer)).await;
        }
    }
}

/// The byte stream below a WebSocket.
trait SessionStream: AsyncRead + AsyncWrite + Unpin + Send {
    /// The client sends nothing more.
    fn client_ended(&mut self) {}

    /// Ready when a read may succeed; cheaper than a read. `Pending` registers the waker, and the
    /// next readable event wakes the task.
    fn poll_readable(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

impl SessionStream for Lingering {
    fn client_ended(&mut self) {
        Lingering::client_ended(self);
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        Lingering::poll_readable(self, cx)
    }
}

impl SessionStream for TokioIo<Upgraded> {}

/// Runs a session on a socket. `read` holds bytes that were read with the handshake.
async fn run_on(
    host: &SessionHost,
    stream: impl SessionStream,
    read: Vec<u8>,
    frame_max_bytes: usize,
    peer: Option<PeerConnection>,
) {
    let config = Some(socket_config(frame_max_bytes));
    let stream = Gathering::new(stream);
    let socket = WebSocketStream::from_partially_read(stream, read, Role::Server, config).await;
    // The session drops both halves, and with them the socket, before slow cleanup.
    let socket = Arc::new(Mutex::new(socket));
    let source = SocketSource::new(socket.clone());
    let sink = SocketSink { socket, unsent: None, _peer: peer };
    host.run(source, sink, rand::random()).await;
}

fn socket_config(frame_max_bytes: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_write_buffer_size(WRITE_BUFFER_BYTES + 4 * FRAGMENT_BYTES)
        .max_message_size(Some(frame_max_bytes))
        .max_frame_size(Some(frame_max_bytes))
}

/// Both halves run in one task, so the lock is never contended.
type SharedSocket<S> = Arc<Mutex<WebSocketStream<Gathering<S>>>>;

struct SocketSource<S> {
    socket: SharedSocket<S>,
    /// A frame was not read, so the stream is out of sync and cannot be parsed further.
    ended: bool,
    /// The library had no frame at the last poll: there is none before the socket is readable.
    drained: bool,
    /// A ping arrived, and its pong may still be in the library's buffer.
    owes_pong: bool,
}

impl<S> SocketSource<S> {
    fn new(socket: SharedSocket<S>) -> Self {
        SocketSource { socket, ended: false, drained: false, owes_pong: false }
    }
}

impl<S: SessionStream> FrameSource for SocketSource<S> {
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
                // The library sends its close frame with the next read. One attempt: the client may
                // be gone already.
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
            // Invalid UTF-8 is answered like an empty text: as invalid JSON.
            Some(Err(WsError::Utf8(_))) => {
                self.ended = true;
                Incoming::Text(Utf8Bytes::default())
            }
            Some(Err(_)) | None => Incoming::Closed,
        };
        Poll::Ready(incoming)
    }
}

struct SocketSink<S> {
    socket: SharedSocket<S>,
    /// The rest of a long text that is sent in fragments.
    unsent: Option<Bytes>,
    /// Holds the connection permit while the socket is open.
    _peer: Option<PeerConnection>,
}

impl<S: SessionStream> FrameSink for SocketSink<S> {
    fn poll_write(&mut self, cx: &mut Context<'_>, queue: &mut OutboundQueue) -> Poll<Result<(), Gone>> {
        let SocketSink { socket, unsent, .. } = self;
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
                        reason: truncated(&reason, CLOSE_REASON_MAX_BYTES).into(),
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

/// The next fragment of a text. The rest goes into `unsent`.
fn fragment(unsent: &mut Option<Bytes>, mut text: Bytes, opcode: OpCode) -> Message {
    // A rest of less than half a fragment is not worth its own frame.
    if text.len() > FRAGMENT_BYTES + FRAGMENT_BYTES / 2 {
        *unsent = Some(text.split_off(FRAGMENT_BYTES));
    }
    Message::Frame(Frame::message(text, opcode, unsent.is_none()))
}

/// Truncates at a character boundary.
fn truncated(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    &text[..end]
}
