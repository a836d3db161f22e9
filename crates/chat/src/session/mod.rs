//! A session: the life of one connection of one device, from `hello` to `bye`. It runs beside the
//! socket and reaches data only through [`App`](crate::App).
//!
//! The loop, which executes what the state below asks for:
//!
//! - `run.rs`: one turn after another, and what happens when a device reconnects
//! - `run/take_in.rs`: the client's frames
//! - `run/register.rs`: the operations of the registration
//! - `run/deliver.rs`: the actions of delivery
//! - `run/closing.rs`: the end
//!
//! State, without I/O:
//!
//! - `delivery/`: which message goes out next, the window of unacked messages, the pending rows
//! - `registration.rs`: the session's place in the session store
//! - `requests.rs`, `receipts.rs`: the client's requests and receipts, waiting and in progress
//! - `outbound.rs`: frames that wait for the socket, and how fast the socket takes them
//! - `timers.rs`: deadlines
//! - `handle.rs`: the mailbox into which others put events
//!
//! And the edges: `io.rs` (what a session needs of a socket), `hello.rs` (the first frame),
//! `encode.rs` (message frames), `token_profile.rs` (names and avatars that come from tokens).

mod delivery;
mod encode;
mod handle;
mod hello;
mod io;
mod outbound;
mod receipts;
mod registration;
mod requests;
mod run;
mod timers;
mod token_profile;

use std::{sync::Arc, time::Duration};

use bluetick_protocol::limits;
use bluetick_store::{Clock, SessionStore};

pub(crate) use handle::Handle;
pub use io::{FrameSink, FrameSource, Gone, Identity, Incoming, Outgoing, TokenCheck};
pub use outbound::OutboundQueue;

use crate::{App, DeliveryObserver, Gateway, RequestBudget};

/// The settings of sessions.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// How often the server pings and refreshes the session's entry.
    pub heartbeat: Duration,
    /// How long an entry lives without a refresh.
    pub ttl: Duration,
    /// How long a new connection may take to say `hello`.
    pub hello_deadline: Duration,
    /// Most messages sent and not acked (R13).
    pub window: usize,
    /// A session with unacked messages ends if nothing is acked for this long (R13).
    pub ack_timeout: Duration,
    /// A message that is not acked for this long gets its pending row and a notification, as if it
    /// had not been handed over (R14). `None` if notifications are off.
    pub unacked_after: Option<Duration>,
    /// A session ends if its socket takes nothing for this long (R13).
    pub write_timeout: Duration,
    /// A session with a backlog ends if its socket takes bytes more slowly than this over
    /// `write_timeout` (R13).
    pub min_read_bytes_per_sec: u64,
    pub max_sessions: usize,
    pub max_body_bytes: usize,
    /// `reconnect_after_ms` is drawn from this span, so that clients do not all reconnect at once.
    pub reconnect_spread: Duration,
    /// How often a session polls for messages that nobody handed to it.
    pub reconcile_every: Duration,
    /// How far back a conversation is read whose state was forgotten.
    pub overlap: Duration,
    /// Watchers are told that a user is online once a session has lasted this long.
    pub online_after: Duration,
    /// Watchers are told that a user is offline if no new session came for this long.
    pub offline_after: Duration,
}

impl Default for SessionConfig {
    fn default() -> Self {
        SessionConfig {
            heartbeat: Duration::from_secs(20),
            ttl: Duration::from_secs(60),
            hello_deadline: Duration::from_secs(5),
            window: 256,
            ack_timeout: Duration::from_secs(30),
            unacked_after: None,
            write_timeout: Duration::from_secs(20),
            min_read_bytes_per_sec: 4 * 1024,
            max_sessions: 10,
            max_body_bytes: limits::BODY_DEFAULT_MAX_BYTES,
            reconnect_spread: Duration::from_secs(5),
            reconcile_every: Duration::from_secs(60),
            overlap: Duration::from_secs(60),
            online_after: Duration::from_secs(1),
            offline_after: Duration::from_secs(2),
        }
    }
}

/// Everything the sessions of a gateway share.
pub struct SessionHost {
    pub app: Arc<dyn App>,
    pub registry: Arc<dyn SessionStore>,
    pub gateway: Arc<Gateway>,
    pub tokens: Arc<dyn TokenCheck>,
    pub clock: Arc<dyn Clock>,
    pub config: SessionConfig,
    pub observer: Arc<DeliveryObserver>,
    /// What each user may request. Sends have a budget of their own.
    pub budget: Arc<dyn RequestBudget>,
}
