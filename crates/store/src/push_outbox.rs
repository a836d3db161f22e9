//! `push_outbox`: PK user_id, SK conversation_id; the notification that a user's devices are still owed. One row per
//! conversation, never one per message: a later notification replaces the earlier one, on the phone and here.

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, DeviceId, Seq, UserId};
use serde::{Deserialize, Serialize};

use crate::{Message, Result};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwedPush {
    pub user_id: UserId,
    pub conversation_id: ConversationId,
    /// The message to notify of, or, to clear, what was read up to.
    pub seq: Seq,
    /// Something that was notified has been read elsewhere: take it off the screens.
    pub clear: bool,
    /// How often it was tried in vain.
    pub attempts: u32,
    /// The devices that still lack it; all of the user's if empty.
    pub devices: Vec<DeviceId>,
    /// From then on anybody may claim it, in ms since 1970.
    pub due_at: u64,
}

impl OwedPush {
    /// That all of a user's devices are to be notified of a message.
    pub fn new(user_id: UserId, conversation_id: ConversationId, seq: Seq, due_at: u64) -> OwedPush {
        OwedPush { user_id, conversation_id, seq, clear: false, attempts: 0, devices: Vec::new(), due_at }
    }

    /// The same of a message's receiver.
    pub fn of_message(message: &Message, due_at: u64) -> OwedPush {
        OwedPush::new(message.receiver(), message.conversation_id.clone(), message.seq, due_at)
    }

    /// Whether it takes the place of what a conversation has in the outbox: what is later, and of the same message that it
    /// was read rather than that it is there.
    pub fn replaces(&self, other: &OwedPush) -> bool {
        (self.seq, self.clear) > (other.seq, other.clear)
    }

    /// Whether this row is still what somebody took: the same, with no try since.
    pub fn is_as_taken(&self, taken: &OwedPush) -> bool {
        (self.seq, self.clear) == (taken.seq, taken.clear) && self.attempts <= taken.attempts
    }

    /// Whether paying for `taken` pays for this row.
    pub fn is_paid_by(&self, taken: &OwedPush) -> bool {
        taken.replaces(self) || self.is_as_taken(taken)
    }
}

#[async_trait]
pub trait PushOutbox: Send + Sync {
    /// Makes sure that this, or something that replaces it, is owed. Durable when it returns.
    async fn owe(&self, owed: OwedPush) -> Result<()>;

    /// What is due, at most `limit`, for this caller alone until `until`: each row's `due_at` is moved there. Not all that
    /// is due need be found at once; whoever asks again and again finds it.
    async fn claim(&self, now: u64, until: u64, limit: usize) -> Result<Vec<OwedPush>>;

    /// Puts `later` in the place of what was taken, if that is still what is owed. Returns whether it did.
    async fn postpone(&self, taken: &OwedPush, later: &OwedPush) -> Result<bool>;

    /// It was sent, or is not needed: removes the row, unless it holds what replaces this, or what is left of it after a
    /// try that this knows nothing of.
    async fn paid(&self, owed: &OwedPush) -> Result<()>;

    /// What a user's devices are owed, in order of conversation.
    async fn owed_to(&self, user: &UserId) -> Result<Vec<OwedPush>>;
}
