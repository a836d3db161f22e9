//! The cold tier: what is older than a month rests in objects, and is read from there as if it were still in `messages`.
//!
//! The cold messages of a conversation are seqs 1 to some border, without a gap, in runs of consecutive seqs: one object
//! each (`format.rs`), named by a row of `cold_runs`. Whoever moves messages writes the object, reads it back, records the
//! run, and only then drops the hot rows; so a seq is in a run, in `messages`, or in both, and the copies are the same.
//! A reader looks at `messages` first and at the runs afterwards: what it missed there was recorded before ([`ColdTier`]).

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

/// `cold_runs`: PK conversation_id, SK last_seq; consecutive messages of a conversation in one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColdRun {
    pub conversation_id: ConversationId,
    pub first_seq: Seq,
    pub last_seq: Seq,
    /// The object's key.
    pub object: String,
    /// How long the object is.
    pub bytes: u64,
    /// How much of its end is the index.
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

/// A conversation that may have something to move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColdCandidate {
    pub conversation_id: ConversationId,
    /// When it was to be looked at, where that is written down.
    pub due_at: Option<u64>,
}

/// Where listing of what is older than the cold tier is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnlistPlace {
    /// The row that was looked at last.
    pub after: Option<(UserId, ConversationId)>,
    /// Whether rows that say that they are listed are believed: found out at the beginning.
    pub believed: Option<bool>,
}

/// Which messages of a conversation may be moved, as far as its rows say; their age is not looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Movable {
    /// The first seq that is in no run.
    pub from: Seq,
    /// The last seq that may be moved: never the highest of the conversation (R8), and nothing that a row or a reader of
    /// rows still needs to find hot.
    pub up_to: Seq,
    /// What each member's devices acked.
    pub delivered: [Seq; 2],
    /// Each member's pending row.
    pub pending: [Option<Seq>; 2],
    /// The run before `from`, for a short one to be written anew together with what follows it.
    pub last_run: Option<ColdRun>,
    /// Up to where each member was erased when this was read.
    pub erased: [Seq; 2],
}

impl Movable {
    /// Whether nobody waits for a message any more: it was acked, was never to reach anybody, or whoever it was for is gone.
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
    /// Runs that end at or after a seq, in order, at most `limit`. A read after a record sees it.
    async fn runs_from(&self, conversation: &ConversationId, seq: Seq, limit: usize) -> Result<Vec<ColdRun>>;

    /// The run that ends at the border: everything up to its end is cold.
    async fn last_run(&self, conversation: &ConversationId) -> Result<Option<ColdRun>>;

    /// Conversations of a shard that should be looked at by now, at most about `limit`, after those of an earlier page. The
    /// page that comes back empty is the last.
    async fn candidates(
        &self,
        shard: u16,
        after: Option<&ColdCandidate>,
        now: u64,
        limit: usize,
    ) -> Result<Vec<ColdCandidate>>;

    /// Has conversations looked at whose due time was never written down, where due times are: those older than the cold
    /// tier. A page at a time; returns how many were listed, and where to go on.
    async fn enlist(&self, now: u64, from: EnlistPlace) -> Result<(u64, Option<EnlistPlace>)>;

    /// What may be moved of a conversation; nothing if it has no message.
    async fn movable(&self, conversation: &ConversationId) -> Result<Option<Movable>>;

    /// Records a run, whose object is written and was read back, in place of `replaces`, if there is one. Returns false, and
    /// changes nothing, if the runs are not what they were, or if a member was erased since `seen` was read.
    async fn record(&self, run: &ColdRun, replaces: Option<&ColdRun>, seen: &Movable) -> Result<bool>;

    /// Puts another object in the place of a run's, which has not changed since. Returns whether it did.
    async fn swap(&self, old: &ColdRun, new: &ColdRun) -> Result<bool>;

    /// Hot messages that are in a run already, in order, at most `limit`.
    async fn leftovers(
        &self,
        conversation: &ConversationId,
        limit: usize,
    ) -> Result<Vec<std::sync::Arc<Message>>>;

    /// Drops the hot copies of messages that are in a run.
    async fn drop_hot(&self, messages: &[std::sync::Arc<Message>]) -> Result<()>;

    /// A candidate was looked at: when it is to be looked at again, or `None` when nothing is left that will ever be old
    /// enough unless somebody writes. Called before the last look at what is hot, with `None`, if that may be the outcome.
    async fn looked_at(&self, candidate: &ColdCandidate, next: Option<u64>) -> Result<()>;

    /// Takes or keeps a shard for a holder until a time. Returns whether it has it.
    async fn lease(&self, shard: u16, holder: &str, now: u64, until: u64) -> Result<bool>;

    /// All runs in some order, a page at a time, for an operator: those after one, or the first.
    async fn all_runs(&self, after: Option<&ColdRun>, limit: usize) -> Result<Vec<ColdRun>>;
}

/// The shard of a conversation.
pub fn cold_shard(conversation: &ConversationId) -> u16 {
    (xxhash_rust::xxh3::xxh3_64(conversation.as_str().as_bytes()) % u64::from(COLD_SHARDS)) as u16
}
