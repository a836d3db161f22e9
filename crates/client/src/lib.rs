//! The Rust client of Bluetick: a connection that keeps itself up, an outbox, and every message once and in order.
//!
//! The server promises that a message it confirmed reaches every device of the recipient *at least once on the
//! wire*. This crate does the client's half, which makes it *exactly once, in order* for the application:
//!
//! - [`Client`] is what most programs want. It connects, keeps the connection alive, reconnects and carries sends
//!   across reconnects; what happens comes as [`Event`]s.
//! - [`ClientState`] is the contract as plain state: outbox, deduplication, cursor, acks, receipts, ticks and the
//!   repair of gaps. It has no sockets, no clock and no randomness, so a test or a simulator can drive it frame
//!   by frame.
//! - [`RawConnection`] speaks single frames, well-formed or not, for tests and load generators.
//!
//! The ids and frames are those of [`bluetick_protocol`], which is also here as [`protocol`].
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
//! `examples/echo.rs` is a whole bot; `bluetick chat`, the terminal client, is built on this crate too.
//!
//! # Connecting
//!
//! [`Client::connect`] returns at once and connects in a task of the current tokio runtime. It goes on through every
//! loss, with waits that grow and are drawn at random, or as long as the server asked for; [`Event::Disconnected`]
//! says why, and when the next try is. It ends for good, with [`Event::Closed`], when coming back would be of no use: the token
//! is refused, the device connected elsewhere, the user was erased. It also ends when the last handle is gone.
//!
//! A [`Token::Fixed`] is given at every connection, and the client ends when it has expired. [`Token::provider`] is asked
//! for a fresh one each time; [`Client::refresh_token`] hands one to a session that is up.
//!
//! ```no_run
//! use bluetick_client::{Client, Options, Token};
//!
//! # async fn fetch_token() -> String { String::new() }
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let token = Token::provider(|| async { fetch_token().await });
//! let (client, events) = Client::connect(Options::new("wss://chat.example/v1/ws", "bot-1".parse()?, token));
//! # Ok(()) }
//! ```
//!
//! `wss://` trusts the public certificate authorities; [`Options::tls`] is for others.
//!
//! # Sending
//!
//! [`Client::send`] waits until the server has stored the message, however long that takes. [`Client::post`] only puts
//! it into the outbox; [`Event::Sent`] or [`Event::SendFailed`] follows. Either way the message keeps its id through every
//! repetition, so the server stores it once. Messages go out in the order in which they were given.
//!
//! A program that may crash between sending and remembering that it did gives the id itself:
//!
//! ```no_run
//! use bluetick_client::{Client, Draft, protocol::ClientMsgId};
//!
//! # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
//! // Said twice, by this process or the next, it is stored once.
//! let id = ClientMsgId::new("order-1047-shipped")?;
//! client.post(Draft { client_msg_id: Some(id), ..Draft::text("alice".parse()?, "Your order is on its way") }).await?;
//! # Ok(()) }
//! ```
//!
//! # Reading the events
//!
//! Events come in the order in which the application should handle them. Every queue here is bounded: when the
//! application stops taking events, the client stops reading its socket, and after a while the server ends the session.
//! Nothing is lost, because what was not acked is delivered again. A task that awaits [`Client::send`] should therefore
//! not be the only one that reads the events.
//!
//! # Receipts and ticks
//!
//! Messages are acked by themselves: two ticks for their author. That the user has *seen* them, [`Client::read`] says.
//! The ticks of one's own messages follow from two numbers, how far the other member has received and read;
//! [`Event::Ticks`] brings them, merged so that they only grow, and [`Client::status`] asks for them. A message with a
//! seq up to `last_read_seq` is blue, up to `last_delivered_seq` double, else single.
//!
//! # Inbox and history
//!
//! [`Client::inbox`] and [`Client::history`] ask for pages, and wait for a connection if there is none, up to
//! [`Options::request_timeout`]. They are for showing: what they bring is neither acked nor counted as received.
//! After [`Event::Reset`] the device was away for too long to be told all it missed; reload both.
//!
//! # Surviving a restart
//!
//! What a device must remember is one value, [`Saved`]: cursor, outbox, and what was seen of each conversation.
//! [`Client::save`] asks for it, and it comes as [`Event::Saved`] *behind* every event that it covers: an application
//! that stores it when it gets there has already handled all that the stored cursor claims to hold. Give it back in
//! [`Options::saved`], with the same device.
//!
//! What was handled after the last value that was stored comes again. Handling it must then do no harm: write messages
//! under their `message_id`, and give answers an id made from what they answer.
//!
//! # Driving the state oneself
//!
//! [`ClientState`] takes what happened and gives what is to be done; the words on its methods say in which order. The
//! project's simulator drives thousands of them without a socket.
//!
//! # What is not here
//!
//! Profiles, blocks, mutes, push registrations and the upload of attachments are plain HTTP (`/v1/docs` of any server
//! lists it); [`Draft::attachment`] carries the reference to what was uploaded.

#![warn(missing_docs)]

mod backoff;
mod codec;
mod connection;
mod desk;
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
pub use codec::{DecodeError, decode};
pub use connection::{Client, Error, Events, Options, Token};
pub use event::{Answer, Draft, Event, HistoryRange, Refused, RequestId, Tick};
pub use lost::{Lost, innermost};
pub use raw::{RawConnection, RawError};
pub use reconnect::Reconnect;
pub use saved::{Saved, SavedConversation};
pub use seen::Seen;
pub use state::{ClientState, IN_FLIGHT_MAX, OUTBOX_MAX, REQUESTS_MAX};
