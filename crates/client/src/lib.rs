//! The Rust client of Bluetick.
//!
//! The server promises that a message it confirmed reaches every device of the recipient *at least once on the
//! wire*. This crate does the client's half, which makes it *exactly once, in order* for the application:
//!
//! - [`ClientState`] is the contract as plain state: outbox, deduplication, cursor, acks, receipts, ticks and the
//!   repair of gaps. It has no sockets, no clock and no randomness, so a test or a simulator can drive it frame
//!   by frame.
//! - [`Client`] runs that state over a WebSocket: it connects, keeps the connection alive, reconnects and
//!   carries sends across reconnects.
//! - [`RawConnection`] speaks single frames, well-formed or not, for tests and load generators.
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
//! # Surviving a restart
//!
//! What a device must remember is one value, [`Saved`]. [`Client::save`] asks for it, and it comes as
//! [`Event::Saved`] *behind* every event that it covers: an application that stores it when it gets there has
//! already handled all that the stored cursor claims to hold. Give it back in [`Options::saved`].
//!
//! # Reading the events
//!
//! Every queue here is bounded. When the application stops taking events, the client stops reading its socket,
//! and after a while the server ends the session; nothing is lost, because what was not acked is delivered again.
//! A task that awaits [`Client::send`] should therefore not be the only one that reads the events.

mod backoff;
mod codec;
mod connection;
mod desk;
mod driver;
mod event;
mod raw;
mod saved;
mod seen;
mod state;
mod transport;

pub use codec::{DecodeError, decode};
pub use connection::{Client, Error, Events, Options, Token};
pub use event::{Answer, Draft, Event, HistoryRange, Refused, RequestId, Tick};
pub use raw::{RawConnection, RawError};
pub use saved::{Saved, SavedConversation};
pub use seen::Seen;
pub use state::{ClientState, IN_FLIGHT_MAX, OUTBOX_MAX, REQUESTS_MAX};
