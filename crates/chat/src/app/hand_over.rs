//! How an app server reaches a session: through the gateway that holds it.

use std::{future::Ready, sync::Arc};

use bluetick_protocol::{ConversationId, Presence, SessionId, Ticks, Typing, WireError};
use bluetick_store::{Message, SessionEntry};
use futures_util::future::{BoxFuture, Either};
use serde::{Deserialize, Serialize};

/// An event for a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum SessionEvent {
    /// Messages of one conversation, in order. A message that was sent twice may be repeated.
    Messages {
        messages: Arc<[Arc<Message>]>,
        /// A pending row was, or may have been, written for them: the session reads the row and settles it.
        row_written: bool,
        /// The session that sent them. It needs no copy.
        origin: Option<SessionId>,
    },
    /// A pending row was written for this conversation: the session reads it (R2).
    Wake {
        conversation_id: ConversationId,
    },
    Ticks(Ticks),
    /// The ticks of the session's own ack: not urgent.
    OwnTicks(Ticks),
    Typing(Typing),
    Presence(Presence),
    /// End the session with this reason.
    Close(WireError),
}

/// Whether a gateway accepted an event for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandOver {
    Taken,
    /// No such session, or it is closing: a miss (R12).
    Refused,
    /// The gateway is of another version and does not know this event: a miss, but the session exists.
    NotUnderstood,
}

/// How an app server reaches the gateway that holds a session.
pub trait Gateways: Send + Sync {
    /// Hands an event to a session. An error or a missed deadline counts as refused.
    fn hand_over(&self, to: &SessionEntry, event: SessionEvent) -> HandingOver;
}

/// A session of this process answers at once, one of another process later. The future owns its data, so that it can
/// outlive the request that started it.
pub type HandingOver = Either<Ready<HandOver>, BoxFuture<'static, HandOver>>;
