//! What callers ask of the committer, and how they are answered.

use bluetick_protocol::{ConversationId, Profile, Seq, Side, UserId};
use tokio::sync::oneshot;

use crate::{
    Advanced, Committed, NewMessage, Noted, Result,
    embedded::{conversation::Boundary, engine::EngineSnapshot, rows::RowTransactionFn},
};

/// A batch of sends with everything that had to be read for them.
pub(in crate::embedded) struct PreparedSends {
    pub sends: Vec<NewMessage>,
    /// One for each send, in the same order. The sends themselves stay as the caller made them:
    /// they are moved once, into their stored form.
    pub read: Vec<ReadForSend>,
    /// The number of finished checkpoints when the engine was asked for the hashes and had none of
    /// them.
    pub looked_up_at: u64,
}

pub(in crate::embedded) struct ReadForSend {
    /// Names (conversation, sender, client_msg_id) in the idempotency records.
    pub hash: u128,
    /// The seq that the sender's client had seen, and the boundary there when it was looked up.
    pub seen: Option<(Seq, Boundary)>,
}

/// A send that was stored before, and the seq it has. Nothing of the repeated one was stored.
#[derive(Debug, Clone)]
pub(in crate::embedded) struct DuplicateSend {
    pub seq: Seq,
    pub new: Box<NewMessage>,
}

pub(in crate::embedded) type ReplySender<T> = oneshot::Sender<Result<T>>;

/// Answers a caller once the group is durable and visible, or with the error that refused the
/// group.
pub(in crate::embedded) type OnCommit = Box<dyn FnOnce(Result<()>) + Send>;

pub(in crate::embedded) enum WriteOp {
    Sends(PreparedSends, ReplySender<Vec<Result<Committed, DuplicateSend>>>),
    Advance {
        id: ConversationId,
        side: Side,
        delivered: Boundary,
        read: Boundary,
        reply: ReplySender<Advanced>,
    },
    Note {
        id: ConversationId,
        side: Side,
        seq: Seq,
        /// When the notification that goes with the pending row is due, if one is owed.
        push_due: Option<u64>,
        reply: ReplySender<Noted>,
    },
    Settle {
        id: ConversationId,
        side: Side,
        expected: Seq,
        to: Option<Seq>,
        reply: ReplySender<bool>,
    },
    /// Corrects the count of a read boundary.
    Recount {
        id: ConversationId,
        side: Side,
        read: Boundary,
        reply: ReplySender<()>,
    },
    Erase {
        id: ConversationId,
        side: Side,
        reply: ReplySender<()>,
    },
    Profile {
        user: UserId,
        profile: Profile,
        reply: ReplySender<()>,
    },
    Block {
        user: UserId,
        other: UserId,
        blocked: bool,
        reply: ReplySender<()>,
    },
    EraseUser {
        user: UserId,
        reply: ReplySender<()>,
    },
    /// Raises the seq up to which a member's devices were notified.
    Notified {
        id: ConversationId,
        side: Side,
        seq: Seq,
        reply: ReplySender<()>,
    },
    /// A transaction over small rows (`rows.rs`).
    Transaction(RowTransactionFn),
    /// Begins a checkpoint. The answer comes when it is done, with a snapshot of the engine.
    Checkpoint(ReplySender<EngineSnapshot>),
    /// Sent once a second: the committer checks whether a checkpoint is due or done.
    Tick,
    Close(ReplySender<()>),
}

impl WriteOp {
    /// Whether it may linger for a more urgent operation to share a group with: its caller does not
    /// block on the answer.
    pub(in crate::embedded) fn is_deferrable(&self) -> bool {
        matches!(
            self,
            WriteOp::Advance { .. } | WriteOp::Settle { .. } | WriteOp::Notified { .. } | WriteOp::Tick
        )
    }

    pub(super) fn message_count(&self) -> usize {
        match self {
            WriteOp::Sends(prepared, _) => prepared.sends.len(),
            _ => 0,
        }
    }
}
