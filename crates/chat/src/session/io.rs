//! What a session needs of a socket. The server gives it a WebSocket, the simulator a pair of
//! channels.

use std::{
    future::{Future, poll_fn},
    task::{Context, Poll},
};

use async_trait::async_trait;
use bluetick_protocol::{Profile, UserId, WireError};

use super::OutboundQueue;

/// What comes from the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming<T> {
    Text(T),
    /// A binary frame, which the protocol does not have.
    Binary,
    /// A frame longer than the server reads.
    TooLarge,
    /// A ping or pong of the transport: a sign of life.
    Alive,
    Closed,
}

/// What goes to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outgoing {
    Text(String),
    Ping,
    /// The last frame: a close code and reason.
    Close(u16, String),
}

pub trait FrameSource: Send {
    /// A text as the socket has it. It is decoded at once, without a copy.
    type Text: AsRef<str> + Send;

    /// The next frame, if there is one.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Incoming<Self::Text>>;

    /// The next frame. Dropping the future loses nothing.
    fn next(&mut self) -> impl Future<Output = Incoming<Self::Text>> + Send {
        poll_fn(|cx| self.poll_next(cx))
    }
}

/// The client is gone: nothing more can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

pub trait FrameSink: Send {
    /// Takes frames from the front of the queue while the socket takes them, then flushes once.
    /// Ready when all are written and flushed.
    fn poll_write(&mut self, cx: &mut Context<'_>, queue: &mut OutboundQueue) -> Poll<Result<(), Gone>>;

    /// Bytes of frames that left the queue and that the socket has not taken yet.
    fn unsent_bytes(&self) -> usize {
        0
    }
}

/// The user that a token names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub user: UserId,
    /// In milliseconds since 1970; `None` if the token does not expire.
    pub expires_at: Option<u64>,
    /// The profile in the token, where profiles come from tokens.
    pub profile: Option<Profile>,
    /// When the token was issued, in seconds since 1970, if it says so.
    pub issued_at: Option<u64>,
}

#[async_trait]
pub trait TokenCheck: Send + Sync {
    /// The identity that a token names, or why the token is refused.
    async fn check(&self, token: &str) -> Result<Identity, WireError>;
}
