//! The Rust client of Bluetick: it stays connected, keeps an outbox, and delivers every message once
//! and in order.
//!
//! The server promises that a message it confirmed reaches every device of the recipient *at least
//! once on the wire*. This crate does the client's half, which makes it *exactly once, in order* for
//! the application:
//!
//! - [`Client`] is what most programs want. It connects, keeps the connection alive, reconnects and
//!   carries sends across reconnects. It reports what happens as [`Event`]s.
//! - [`ClientState`] is the contract as plain state: outbox, deduplication, cursor, acks, receipts,
//!   ticks and the repair of gaps. It has no sockets, no clock and no randomness, so a test or a
//!   simulator can drive it frame by frame.
//! - [`RawConnection`] sends and receives single frames, well-formed or not, for tests and load
//!   generators.
//!
//! The ids and frames are those of [`bluetick_protocol`], re-exported as [`protocol`].
//!
//! ```no_run
//! use bluetick_client::{Client, Event, Options};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let options = Options::new("ws://127.0.0.1:8080/v1/ws", "laptop".parse()?, "a token");
//! let (client, mut events) = Client::connect(options);
//! let sent = client.send("bob".parse()?, "hello").await?;
//! println!("stored as {} {}", sent.conversation_id, sent.seq);
//! while let Some(event) = events.next().await {
//!     if let Event::Message(message) = event {
//!         println!("{}: {}", message.sender, message.body);
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! `examples/echo.rs` is a complete bot. `bluetick chat`, the terminal client, uses this crate too.
//!
//! # Connecting
//!
//! [`Client::connect`] returns at once and connects in a task of the current tokio runtime. The
//! client reconnects after every loss. The delay grows and is random, unless the server asked for
//! one. [`Event::Disconnected`] gives the reason and the time of the next attempt. The client ends
//! with [`Event::Closed`] when reconnecting cannot help ([`Reconnect::Never`]): the token is refused,
//! the device connected elsewhere, or the user was erased. It also ends when the last handle is
//! dropped.
//!
//! A [`TokenSource::Fixed`] is used for every connection, and the client ends when it has expired. A
//! [`TokenSource::provider`] is asked for a fresh token each time. [`Client::refresh_token`] gives a
//! fresh token to the running session.
//!
//! ```no_run
//! use bluetick_client::{Client, Options, TokenSource};
//!
//! # async fn fetch_token() -> String { String::new() }
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let token = TokenSource::provider(|| async { fetch_token().await });
//! let (client, events) = Client::connect(Options::new("wss://chat.example/v1/ws", "bot-1".parse()?, token));
//! # Ok(()) }
//! ```
//!
//! `wss://` trusts the public certificate authorities; [`Options::tls`] is for others.
//!
//! # Sending
//!
//! [`Client::send`] waits until the server has stored the message, however long that takes.
//! [`Client::post`] only puts it into the outbox; [`Event::Sent`] or [`Event::SendFailed`] follows. A
//! message keeps its id through every repetition, so the server stores it once. Messages are sent in
//! the order in which the application gave them.
//!
//! A program that may crash between sending and remembering that it did chooses the id itself:
//!
//! ```no_run
//! use bluetick_client::{Client, Draft, protocol::ClientMsgId};
//!
//! # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
//! // Sent twice, by this process or the next, it is stored once.
//! let id = ClientMsgId::new("order-1047-shipped")?;
//! client.post(Draft { client_msg_id: Some(id), ..Draft::text("alice".parse()?, "Your order is on its way") }).await?;
//! # Ok(()) }
//! ```
//!
//! # Reading the events
//!
//! Events come in the order in which the application should handle them. Every queue here is
//! bounded: when the application stops taking events, the client stops reading its socket, and after
//! a while the server ends the session. Nothing is lost, because what was not acked is delivered
//! again. A task that awaits [`Client::send`] should therefore not be the only one that reads the
//! events.
//!
//! # Receipts and ticks
//!
//! The client acks messages by itself: two ticks for their author. The application calls
//! [`Client::read`] when the user has *seen* them. The ticks of one's own messages follow from two
//! numbers: how far the other member has received and read. [`Event::Ticks`] brings them, merged so
//! that they only grow, and [`Client::status`] asks for them. A message with a seq up to
//! `last_read_seq` is blue, up to `last_delivered_seq` double, else single.
//!
//! # Inbox and history
//!
//! [`Client::inbox`] and [`Client::history`] request pages. Without a connection they wait for one,
//! up to [`Options::request_timeout`]. The pages are for display: their messages are neither acked nor
//! counted as received. After [`Event::Reset`] the device was away for too long to be sent everything
//! it missed; reload both.
//!
//! # Surviving a restart
//!
//! A device must store one value, [`Saved`]: the cursor, the outbox, and what was received in each
//! conversation. [`Client::save`] requests it, and it comes as [`Event::Saved`] *after* every event
//! that it covers: an application that stores it when it comes has already handled everything that
//! the cursor covers. Pass it in [`Options::saved`] at the next start, with the same device.
//!
//! Messages that came after the last stored value are delivered again. Handling them twice must do no
//! harm: store messages under their `message_id`, and derive the id of a reply from the message that
//! it answers.
//!
//! # Driving the state yourself
//!
//! [`ClientState`] takes what happened and returns what to do; its documentation gives the order of
//! the calls. The simulator drives thousands of them without a socket, and the scripts of
//! `clients/conformance` are run against it.
//!
//! # Out of scope
//!
//! Profiles, blocks, mutes, push registrations and uploads of attachments are plain HTTP (`/v1/docs`
//! of any server lists the calls). [`Draft::attachment`] refers to a file that was uploaded before.

#![warn(missing_docs)]

mod backoff;
mod codec;
mod connection;
mod dispatcher;
mod driver;
mod event;
mod lost;
mod raw;
mod reconnect;
mod saved;
mod seen;
mod state;
mod transport;

pub use bluetick_protocol as protocol;
pub use codec::{FrameError, decode};
pub use connection::{Client, Error, Events, Options, TokenSource};
pub use event::{Draft, Event, HistoryRange, QueryResult, Refusal, RequestId, Tick};
pub use lost::{Lost, innermost};
pub use raw::{RawConnection, RawError};
pub use reconnect::Reconnect;
pub use saved::{Saved, SavedConversation};
pub use seen::SeenSeqs;
pub use state::{ClientState, IN_FLIGHT_MAX, OUTBOX_MAX, REQUESTS_MAX};
