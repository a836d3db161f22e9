//! What the application says to the client and hears from it.

use std::time::Duration;

use bluetick_protocol::{
    ClientMsgId, ErrorCode, HistoryPage, InboxPage, Json, MessageFrame, Presence, Sent, Seq, StatusAnswer,
    Ticks, Typing, UserId, WireError,
};

use crate::{Lost, Saved};

/// What happened, in the order in which the application should handle it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The server took the session; what was missed comes next.
    Connected {
        /// Whom the token names.
        user_id: UserId,
        /// The server's clock, in ms since 1970.
        server_time: u64,
    },
    /// The connection is gone. Without a time to wait, the client stays offline until told otherwise.
    Disconnected {
        /// When the next try is; `None` after [`go_offline`](crate::Client::go_offline).
        will_retry_in: Option<Duration>,
        /// Why; `None` after [`go_offline`](crate::Client::go_offline).
        why: Option<Lost>,
    },
    /// Everything that was waiting when the session began has been delivered.
    CaughtUp,
    /// A message that this device has not seen before; `sender` may be the user's own other device.
    Message(MessageFrame),
    /// The server has stored a message of ours.
    Sent(Sent),
    /// The server will never take this message as it is.
    SendFailed {
        /// Which one: what [`post`](crate::Client::post) returned.
        client_msg_id: ClientMsgId,
        /// Why.
        error: WireError,
    },
    /// Somebody's boundaries grew; both numbers are the merged ones.
    Ticks(Ticks),
    /// Somebody is typing. There is no event for the end of it: after some seconds without one, they stopped.
    Typing(Typing),
    /// A watched user came or went, or is as they were when the watch began.
    Presence(Presence),
    /// The device was away for too long: reload the inbox and the open histories.
    Reset {
        /// For people.
        reason: String,
    },
    /// What the device should remember; covers every event before this one.
    Saved(Box<Saved>),
    /// The client has ended and will not come back. Without a code, it was closed from this side.
    Closed {
        /// The server's word: `Replaced`, `Unauthorized`, `TokenExpired`, `TokenRevoked`, `Erased` or `TooManySessions`.
        code: Option<ErrorCode>,
        /// For people.
        reason: String,
    },
}

/// A message about to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// The id of the message, if the application has a reason to choose it; drawn at random otherwise.
    ///
    /// The same id always means the same message, for 30 days and across restarts, and the server stores it once. Who makes
    /// it from what the message stands for (the order that is confirmed, the question that is answered) can send it
    /// again without asking whether it went out before.
    pub client_msg_id: Option<ClientMsgId>,
    /// To whom.
    pub to: UserId,
    /// The text; may be empty only with an attachment.
    pub body: String,
    /// What was uploaded before, as `{"s3_ref": …}`; the upload itself goes over HTTP.
    pub attachment: Option<Json>,
    /// The application's own, a JSON object of at most 4,096 bytes; comes back as it was written.
    pub meta: Option<Json>,
    /// How far the user had read when writing this. If absent, what the device had received counts as read.
    pub seen_seq: Option<Seq>,
}

impl Draft {
    /// A text and nothing else.
    pub fn text(to: UserId, body: impl Into<String>) -> Self {
        Draft { client_msg_id: None, to, body: body.into(), attachment: None, meta: None, seen_seq: None }
    }
}

/// Which part of a conversation's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryRange {
    /// The page that ends with the newest message.
    Newest,
    /// The page that ends just before this seq.
    Before(Seq),
    /// The page that begins just after this seq.
    After(Seq),
}

/// Names a request until its answer comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub i64);

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A page of conversations.
    Inbox(InboxPage),
    /// A page of messages.
    History(HistoryPage),
    /// How far both members have received and read.
    Status(StatusAnswer),
}

/// How far a message of one's own has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tick {
    /// Stored by the server.
    Single,
    /// Received by a device of the recipient.
    Double,
    /// Read by the recipient.
    Blue,
}

/// Why the client did not even take something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// [`OUTBOX_MAX`](crate::OUTBOX_MAX) messages wait for the server.
    #[error("too many messages are waiting to be sent")]
    OutboxFull,
    /// [`REQUESTS_MAX`](crate::REQUESTS_MAX) requests wait for the server.
    #[error("too many requests are waiting for an answer")]
    Busy,
    /// The server would not take it either: too long, empty, to oneself.
    #[error(transparent)]
    Invalid(#[from] WireError),
}
