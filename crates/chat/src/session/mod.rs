//! A session: the life of one connection of one device, from `hello` to `bye`. It runs beside the socket and reaches
//! data only through [`App`](crate::App).
//!
//! - `io.rs`: what it needs of a socket
//! - `hello.rs`: the first frame
//! - `run.rs`: the loop: reads frames, works on requests, delivers, beats
//! - `requests.rs`: what each client frame becomes
//! - `delivery.rs`: which message goes out next, the window, the rows
//! - `outbound.rs`: what waits for the socket, in encoded bytes, and how fast the socket takes it
//! - `handle.rs`: where others put events for it
//! - `token_profile.rs`: names and avatars that come from tokens

mod delivery;
mod encode;
mod handle;
mod hello;
mod io;
mod outbound;
mod requests;
mod run;
mod token_profile;

use std::{sync::Arc, time::Duration};

use bluetick_protocol::limits;
use bluetick_store::{Clock, SessionStore};

pub(crate) use handle::Handle;
pub use io::{FrameSink, FrameSource, Gone, Identity, Incoming, Outgoing, TokenCheck};
pub use outbound::OutboundQueue;

use crate::{App, DeliveryObserver, Gateway, RequestBudget};

#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// How often the server pings and refreshes the session's entry.
    pub heartbeat: Duration,
    /// How long an entry lives without a refresh.
    pub ttl: Duration,
    pub hello_deadline: Duration,
    /// Most messages sent and not acked (R13).
    pub window: usize,
    /// A window in which nothing is acked for so long ends the session (R13).
    pub ack_timeout: Duration,
    /// A message that was handed over and not acked for so long gets its row and a notification as if it had not been
    /// (R14). Nothing where nobody is notified.
    pub unacked_after: Option<Duration>,
    /// A socket that takes nothing for so long ends the session (R13).
    pub write_timeout: Duration,
    /// A socket with a backlog that takes fewer bytes over `write_timeout` ends the session (R13).
    pub min_read_bytes_per_sec: u64,
    pub max_sessions: usize,
    pub max_body_bytes: usize,
    /// `reconnect_after_ms` is drawn from this span, so that clients do not all come back at once.
    pub reconnect_spread: Duration,
    /// How often a session looks for what nobody handed to it.
    pub look_every: Duration,
    /// How far back a lane that was let go of is read again.
    pub overlap: Duration,
    /// A session that lasts for so long is told to watchers, and so is that the last one left. Sessions that come and go
    /// faster are not.
    pub online_after: Duration,
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
            look_every: Duration::from_secs(60),
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
    /// What each user may ask for, sends apart.
    pub budget: Arc<dyn RequestBudget>,
}
