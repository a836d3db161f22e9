//! What the application says to the client and hears from it.

use std::time::Duration;

use bluetick_protocol::{
    ClientMsgId, ErrorCode, HistoryPage, InboxPage, Json, MessageFrame, Presence, Sent, Seq, StatusAnswer,
    Ticks, Typing, UserId, WireError,
};

use crate::Saved;

/// What happened, in the order in which the application should handle it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The server took the session; what was missed comes next.
    Connected {
        user_id: UserId,
        server_time: u64,
    },
    /// The connection is gone. Without a time to wait, the client stays offline until told otherwise.
    Disconnected {
        will_retry_in: Option<Duration>,
    },
    /// Everything that was waiting when the session began has been delivered.
    CaughtUp,
    /// A message that this device has not seen before; `sender` may be the user's own other device.
    Message(MessageFrame),
    /// The server has stored a message of ours.
    Sent(Sent),
    /// The server will never take this message as it is.
    SendFailed {
        client_msg_id: ClientMsgId,
        error: WireError,
    },
    /// Somebody's boundaries grew; both numbers are the merged ones.
    Ticks(Ticks),
    Typing(Typing),
    Presence(Presence),
    /// The device was away for too long: reload the inbox and the open histories.
    Reset {
        reason: String,
    },
    /// What the device should remember; covers every event before this one.
    Saved(Box<Saved>),
    /// The client has ended and will not come back. Without a code, it was closed from this side.
    Closed {
        code: Option<ErrorCode>,
        reason: String,
    },
}

/// A message about to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    pub to: UserId,
    pub body: String,
    pub attachment: Option<Json>,
    pub meta: Option<Json>,
    /// How far the user had read when writing this. If absent, what the device had received counts as read.
    pub seen_seq: Option<Seq>,
}

impl Draft {
    pub fn text(to: UserId, body: impl Into<String>) -> Self {
        Draft { to, body: body.into(), attachment: None, meta: None, seen_seq: None }
    }
}

/// Which part of a conversation's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryRange {
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
    Inbox(InboxPage),
    History(HistoryPage),
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
    #[error("too many messages are waiting to be sent")]
    OutboxFull,
    #[error("too many requests are waiting for an answer")]
    Busy,
    #[error(transparent)]
    Invalid(#[from] WireError),
}
