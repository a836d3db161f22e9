//! The types that the application exchanges with the client.

use std::time::Duration;

use bluetick_protocol::{
    ClientMsgId, ErrorCode, HistoryPage, InboxPage, Json, MessageFrame, Presence, Sent, Seq, StatusAnswer,
    Ticks, Typing, UserId, WireError,
};

use crate::{Lost, Saved};

/// What happened, in the order in which the application should handle it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The server accepted the session; the messages that the device missed follow.
    Connected {
        /// The user that the token names.
        user_id: UserId,
        /// The server's clock, in ms since 1970.
        server_time: u64,
    },
    /// The connection ended. Without a delay, the client stays offline until it is told otherwise.
    Disconnected {
        /// The delay before the next attempt; `None` after [`go_offline`](crate::Client::go_offline).
        will_retry_in: Option<Duration>,
        /// The cause; `None` after [`go_offline`](crate::Client::go_offline).
        why: Option<Lost>,
    },
    /// Everything that was pending when the session began has been delivered.
    CaughtUp,
    /// A message that this device has not received before. The sender is the other member, or the
    /// user on another device.
    Message(MessageFrame),
    /// The server has stored a message that this device sent.
    Sent(Sent),
    /// The message was refused for good.
    SendFailed {
        /// The id that [`post`](crate::Client::post) returned.
        client_msg_id: ClientMsgId,
        /// The reason.
        error: WireError,
    },
    /// A member has received or read more. Both numbers are merged by maximum.
    Ticks(Ticks),
    /// The other member is typing. There is no event for the end: after some seconds without this
    /// event, they stopped.
    Typing(Typing),
    /// A watched user went online or offline. The current presence follows the start of a watch.
    Presence(Presence),
    /// The cursor is too old: reload the inbox and the open histories.
    Reset {
        /// For people.
        reason: String,
    },
    /// The state to store. It covers every event before this one.
    Saved(Box<Saved>),
    /// The client has ended and will not reconnect. Without a code, the application closed it.
    Closed {
        /// The code of the server's `bye`: `Replaced`, `Unauthorized`, `TokenExpired`,
        /// `TokenRevoked`, `Erased` or `TooManySessions`.
        code: Option<ErrorCode>,
        /// For people.
        reason: String,
    },
}

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// The id of the message. The client chooses one if it is absent.
    ///
    /// For 30 days and across restarts, the same id means the same message, and the server stores
    /// it once. An application that derives the id from the purpose of the message (the order that
    /// it confirms, the question that it answers) can send it again without checking whether it was
    /// sent before.
    pub client_msg_id: Option<ClientMsgId>,
    /// The recipient.
    pub to: UserId,
    /// The text; may be empty only with an attachment.
    pub body: String,
    /// A file that was uploaded over HTTP before, as `{"s3_ref": …}`.
    pub attachment: Option<Json>,
    /// A JSON object of the application, at most 4,096 bytes. It is returned unchanged.
    pub meta: Option<Json>,
    /// How far the user had read when writing this. If absent, everything that the device had
    /// received counts as read.
    pub seen_seq: Option<Seq>,
}

impl Draft {
    /// A text and nothing else.
    pub fn text(to: UserId, body: impl Into<String>) -> Self {
        Draft { client_msg_id: None, to, body: body.into(), attachment: None, meta: None, seen_seq: None }
    }
}

/// The part of a conversation to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryRange {
    /// The page that ends with the newest message.
    Newest,
    /// The page that ends just before this seq.
    Before(Seq),
    /// The page that begins just after this seq.
    After(Seq),
}

/// Identifies a request until its result comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub i64);

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryResult {
    /// A page of conversations.
    Inbox(InboxPage),
    /// A page of messages.
    History(HistoryPage),
    /// How far both members have received and read.
    Status(StatusAnswer),
}

/// The delivery status of an own message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tick {
    /// Stored by the server.
    Single,
    /// Received by a device of the recipient.
    Double,
    /// Read by the recipient.
    Blue,
}

/// Why the client did not accept a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// [`OUTBOX_MAX`](crate::OUTBOX_MAX) messages wait for the server.
    #[error("too many messages are waiting to be sent")]
    OutboxFull,
    /// [`REQUESTS_MAX`](crate::REQUESTS_MAX) requests wait for the server.
    #[error("too many requests are waiting for a response")]
    Busy,
    /// The server would refuse it: it is too long, empty, or addressed to the sender.
    #[error(transparent)]
    Invalid(#[from] WireError),
}
