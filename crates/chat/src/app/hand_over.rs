//! How an app server reaches a session: through the gateway that holds it.

use std::{future::Ready, sync::Arc};

use bluetick_protocol::{ConversationId, Presence, SessionId, Ticks, Typing, WireError};
use bluetick_store::{Message, SessionEntry};
use futures_util::future::{BoxFuture, Either};
use serde::{Deserialize, Serialize};

/// What an app server hands to a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum SessionEvent {
    /// Messages of one conversation, as they were sent; one that was sent again may be among them once more.
    Messages {
        messages: Arc<[Arc<Message>]>,
        /// A pending row was, or may have been, written for them: the session is to look for the row and settle it.
        row_written: bool,
        /// The session that sent them, which needs no copy.
        origin: Option<SessionId>,
    },
    /// A pending row was written for this conversation: look again (R2).
    Wake {
        conversation_id: ConversationId,
    },
    Ticks(Ticks),
    /// What the session's own ack came to: it is in no hurry to hear of it.
    OwnTicks(Ticks),
    Typing(Typing),
    Presence(Presence),
    /// End the session with this reason.
    Close(WireError),
}

/// Whether a gateway had the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandOver {
    Taken,
    /// No such session, or it is closing: a miss (R12).
    Refused,
    /// The gateway is of another version and does not know this event: a miss, and no reason to forget the session.
    NotUnderstood,
}

/// How an app server reaches the gateway that holds a session.
pub trait Gateways: Send + Sync {
    /// Hands an event to a session. An error or a missed deadline counts as refused.
    fn hand_over(&self, to: &SessionEntry, event: SessionEvent) -> HandingOver;
}

/// A session of this process answers at once. One of another process answers later; its future owns what it needs, so
/// that it can go on after the request that began it is answered.
pub type HandingOver = Either<Ready<HandOver>, BoxFuture<'static, HandOver>>;
