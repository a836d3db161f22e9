//! `push_outbox`: PK user_id, SK conversation_id; the notification that is still to be sent to a
//! user's devices. One row per conversation, never one per message: a later notification replaces
//! the earlier one, on the phone and here.

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, DeviceId, Seq, UserId};
use serde::{Deserialize, Serialize};

use crate::{Message, Result};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwedPush {
    pub user_id: UserId,
    pub conversation_id: ConversationId,
    /// The message to notify about; for `clear`, the last seq that was read.
    pub seq: Seq,
    /// The message was read on another device: remove the notification from the screens.
    pub clear: bool,
    /// Failed attempts.
    pub attempts: u32,
    /// The devices that still lack it; all of the user's if empty.
    pub devices: Vec<DeviceId>,
    /// From then on any node may claim it, in ms since 1970.
    pub due_at: u64,
}

impl OwedPush {
    /// A notification of a message for all devices of a user.
    pub fn new(user_id: UserId, conversation_id: ConversationId, seq: Seq, due_at: u64) -> OwedPush {
        OwedPush { user_id, conversation_id, seq, clear: false, attempts: 0, devices: Vec::new(), due_at }
    }

    /// A notification of a message for its receiver.
    pub fn of_message(message: &Message, due_at: u64) -> OwedPush {
        OwedPush::new(message.receiver(), message.conversation_id.clone(), message.seq, due_at)
    }

    /// Whether it replaces the conversation's row in the outbox: the later message wins, and for
    /// the same message `clear` wins.
    pub fn replaces(&self, other: &OwedPush) -> bool {
        (self.seq, self.clear) > (other.seq, other.clear)
    }

    /// Whether this row is unchanged since it was claimed: the same notification, with no attempt
    /// since.
    pub fn is_as_taken(&self, taken: &OwedPush) -> bool {
        (self.seq, self.clear) == (taken.seq, taken.clear) && self.attempts <= taken.attempts
    }

    /// Whether the delivery of `taken` settles this row.
    pub fn is_paid_by(&self, taken: &OwedPush) -> bool {
        taken.replaces(self) || self.is_as_taken(taken)
    }
}

#[async_trait]
pub trait PushOutbox: Send + Sync {
    /// Ensures that the outbox holds this notification or one that replaces it. Durable when it
    /// returns.
    async fn owe(&self, owed: OwedPush) -> Result<()>;

    /// Claims at most `limit` due rows for this caller until `until`, to which their `due_at`
    /// moves. One call need not find all due rows; repeated calls do.
    async fn claim(&self, now: u64, until: u64, limit: usize) -> Result<Vec<OwedPush>>;

    /// Replaces a claimed row by `later`, if it is unchanged. Returns whether it did.
    async fn postpone(&self, taken: &OwedPush, later: &OwedPush) -> Result<bool>;

    /// Removes a row whose notification was sent or is not needed, unless it was replaced, or
    /// another node has tried it since.
    async fn paid(&self, owed: &OwedPush) -> Result<()>;

    /// A user's rows, in order of conversation.
    async fn owed_to(&self, user: &UserId) -> Result<Vec<OwedPush>>;
}
