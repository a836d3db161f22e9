//! The cold tier: messages older than a month lie in objects, and are read as if they were still in
//! `messages`.
//!
//! The cold messages of a conversation are the seqs from 1 to a border, without a gap, in runs of
//! consecutive seqs. A run is one object (`format.rs`), named by a row of `cold_runs`. The mover
//! writes the object, reads it back, records the run, and only then drops the hot rows. So a seq is
//! in a run, in `messages`, or in both with the same content. A reader reads `messages` first and
//! the runs afterwards: a message that has left `messages` is in a recorded run ([`ColdTier`]).

mod format;
mod objects;
mod tier;

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, MessageId, Seq, Side, UserId};
use serde::{Deserialize, Serialize};

pub use objects::{ColdConfig, ColdObjects};
pub use tier::ColdTier;

use crate::{Message, Result};

/// Shards of conversations, each moved by one worker at a time.
pub const COLD_SHARDS: u16 = 16;

/// `cold_runs`: PK conversation_id, SK last_seq; consecutive messages of a conversation in one
/// object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColdRun {
    pub conversation_id: ConversationId,
    pub first_seq: Seq,
    pub last_seq: Seq,
    /// The object's key.
    pub object: String,
    /// The length of the object.
    pub bytes: u64,
    /// The length of the index at its end.
    pub index_bytes: u64,
    pub first_ts: u64,
    pub last_ts: u64,
    /// Of its messages' ids.
    pub least_id: MessageId,
    pub greatest_id: MessageId,
}

impl ColdRun {
    pub fn messages(&self) -> u64 {
        self.last_seq - self.first_seq + 1
    }
}

/// A conversation that may have messages to move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColdCandidate {
    pub conversation_id: ConversationId,
    /// When it was due, in a backend that stores due times.
    pub due_at: Option<u64>,
}

/// How far the listing of conversations from before the cold tier has come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnlistPlace {
    /// The last row that was read.
    pub after: Option<(UserId, ConversationId)>,
    /// Whether the rows' own `listed` flags are trusted; decided at the start.
    pub believed: Option<bool>,
}

/// Which messages of a conversation may be moved by the state of its rows, whatever their age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Movable {
    /// The first seq that is in no run.
    pub from: Seq,
    /// The last seq that may be moved: never the highest of the conversation (R8), and none that a
    /// row still needs hot.
    pub up_to: Seq,
    /// What each member's devices have acked.
    pub delivered: [Seq; 2],
    /// Each member's pending row.
    pub pending: [Option<Seq>; 2],
    /// The run before `from`; a short one is rewritten together with the messages that follow.
    pub last_run: Option<ColdRun>,
    /// Up to where each member was erased when this was read.
    pub erased: [Seq; 2],
}

impl Movable {
    /// Whether nobody waits for a message: it was acked, was withheld, or its receiver was erased.
    pub fn is_settled(&self, message: &Message) -> bool {
        let receiver = message.from.other();
        let boundary = self.delivered[receiver.index()].max(self.erased[receiver.index()]);
        let acked = message.void || message.withheld || message.seq <= boundary;
        let is_pending = |side: Side| self.pending[side.index()].is_some_and(|first| first <= message.seq);
        acked && !Side::BOTH.into_iter().any(is_pending)
    }
}

/// The rows of the cold tier.
#[async_trait]
pub trait ColdRuns: Send + Sync {
    /// Runs that end at or after a seq, in order, at most `limit`. A read after `record` returned
    /// sees its run.
    async fn runs_from(&self, conversation: &ConversationId, seq: Seq, limit: usize) -> Result<Vec<ColdRun>>;

    /// The last run: everything up to its end is cold.
    async fn last_run(&self, conversation: &ConversationId) -> Result<Option<ColdRun>>;

    /// A page of the conversations of a shard that are due, at most about `limit`, after an earlier
    /// page. An empty page is the last.
    async fn candidates(
        &self,
        shard: u16,
        after: Option<&ColdCandidate>,
        now: u64,
        limit: usize,
    ) -> Result<Vec<ColdCandidate>>;

    /// Lists a page of the conversations from before the cold tier, in a backend that stores due
    /// times. Returns how many were listed, and where to go on.
    async fn enlist(&self, now: u64, from: EnlistPlace) -> Result<(u64, Option<EnlistPlace>)>;

    /// What may be moved of a conversation; `None` if it has no message.
    async fn movable(&self, conversation: &ConversationId) -> Result<Option<Movable>>;

    /// Records a run whose object was written and read back, in place of `replaces` if given.
    /// Returns false and changes nothing if the runs have changed, or if a member was erased since
    /// `seen` was read.
    async fn record(&self, run: &ColdRun, replaces: Option<&ColdRun>, seen: &Movable) -> Result<bool>;

    /// Replaces a run's object, if the run has not changed since. Returns whether it did.
    async fn swap(&self, old: &ColdRun, new: &ColdRun) -> Result<bool>;

    /// Hot copies of messages that are in a run, in order, at most `limit`.
    async fn leftovers(
        &self,
        conversation: &ConversationId,
        limit: usize,
    ) -> Result<Vec<std::sync::Arc<Message>>>;

    /// Drops the hot copies of messages that are in a run.
    async fn drop_hot(&self, messages: &[std::sync::Arc<Message>]) -> Result<()>;

    /// Sets when a candidate is due again; `None` if nothing is left that will grow old unless
    /// somebody writes. With `None` it must be called before the last check for hot messages, so
    /// that a concurrent send is not missed.
    async fn looked_at(&self, candidate: &ColdCandidate, next: Option<u64>) -> Result<()>;

    /// Takes or extends a holder's lease on a shard. Returns whether the holder has it.
    async fn lease(&self, shard: u16, holder: &str, now: u64, until: u64) -> Result<bool>;

    /// A page of all runs, in any order, after a run or from the start; for operators.
    async fn all_runs(&self, after: Option<&ColdRun>, limit: usize) -> Result<Vec<ColdRun>>;
}

/// The shard of a conversation.
pub fn cold_shard(conversation: &ConversationId) -> u16 {
    (xxhash_rust::xxh3::xxh3_64(conversation.as_str().as_bytes()) % u64::from(COLD_SHARDS)) as u16
}
