//! The caller's side of a send: everything a send needs to know is read here, on the caller's
//! thread, so that the committer reads nothing from disk.
//!
//! The path of a send, and the forms a message takes on it:
//!
//! 1. [`NewMessage`]: what the caller hands over, without a seq. `commit` refuses it if the disk is
//!    nearly full (R15).
//! 2. `commit` hashes (conversation, sender, client_msg_id) and asks the Bloom filters and the
//!    engine whether that send is known (`sent_ids.rs`, R9). A known one is answered with the
//!    original.
//! 3. [`PreparedSends`]: the batch of new messages as it came, with the hash and the implied read
//!    boundary of each. It goes to the committer as one operation (`committer/op.rs`).
//! 4. The committer (`committer/decide.rs`) looks for the hash among the sends that the engine did
//!    not have when it was asked, assigns seq and message id, and makes a
//!    [`MessageEntry`](super::entry::MessageEntry): the stored `Message` with the two unread
//!    counters.
//! 5. [`WalRecord::Send`](super::record::WalRecord::Send) wraps the entry with the pending row and
//!    the implied read. It is encoded into the group (`wal/group.rs`) and applied to the
//!    conversation (`conversation.rs`).
//! 6. [`DirtyConversation`](super::memtable::DirtyConversation) collects the rows and entries that
//!    the group changed. After the fsync it is merged into the memtable, where readers see it.
//! 7. [`Committed`]: the answer, sent when the group is durable and visible. A duplicate of a send
//!    that the engine did not have yet comes back as [`DuplicateSend`] and is answered as in step
//!    2.

use std::sync::atomic::Ordering;

use bluetick_protocol::Seq;

use super::{
    Embedded, StoreCore,
    committer::{DuplicateSend, PreparedSends, ReadForSend, WriteOp},
    conversation::Boundary,
    sent_ids::KnownId,
};
use crate::{Committed, MessageStatus, NewMessage, Result, StoreError};

impl StoreCore {
    pub(super) fn hashes(&self, sends: &[NewMessage]) -> Vec<u128> {
        sends.iter().map(|new| self.hash(&new.conversation_id, new.from, &new.client_msg_id)).collect()
    }

    /// The number of finished checkpoints, and which of these hashes the engine has.
    pub(super) fn look_up(&self, hashes: &[u128]) -> Result<(u64, Vec<KnownId>)> {
        let looked_up_at = self.checkpoints.load(Ordering::Acquire);
        Ok((looked_up_at, self.engine.sent_ids.records(hashes, self.clock.now_ms())?))
    }
}

impl Embedded {
    /// Commits a batch of sends. Each has its own answer; only an engine that cannot be read fails
    /// all.
    pub(super) async fn commit(&self, sends: Vec<NewMessage>) -> Vec<Result<Committed>> {
        if let Some(why) = self.shared.refusing() {
            return sends.iter().map(|_| Err(StoreError::Full(why.clone()))).collect();
        }
        let hashes = self.shared.hashes(&sends);
        let (looked_up_at, known) = match self.shared.look_up(&hashes) {
            Ok(found) => found,
            Err(e) => return sends.iter().map(|_| Err(e.clone())).collect(),
        };
        let mut answers: Vec<Option<Result<Committed>>> = sends.iter().map(|_| None).collect();
        for KnownId { index, seq, .. } in known {
            answers[index] = Some(self.duplicate(&sends[index], seq).await);
        }
        let (sends, read) = self.read_for_sends(sends, hashes, &mut answers).await;
        if !sends.is_empty() {
            self.commit_prepared(PreparedSends { sends, read, looked_up_at }, &mut answers).await;
        }
        answers.into_iter().flatten().collect()
    }

    /// Reads what the committer needs for each send that has no answer yet. A send whose read fails
    /// gets the error as its answer; the others are returned.
    async fn read_for_sends(
        &self,
        mut sends: Vec<NewMessage>,
        hashes: Vec<u128>,
        answers: &mut [Option<Result<Committed>>],
    ) -> (Vec<NewMessage>, Vec<ReadForSend>) {
        let mut read = Vec::with_capacity(sends.len());
        for ((new, answer), hash) in sends.iter().zip(answers.iter_mut()).zip(hashes) {
            if answer.is_none() {
                match self.seen_by(new).await {
                    Ok(seen) => read.push(ReadForSend { hash, seen }),
                    Err(e) => *answer = Some(Err(e)),
                }
            }
        }
        if read.len() < sends.len() {
            let mut answered = answers.iter().map(Option::is_some);
            sends.retain(|_| answered.next() == Some(false));
        }
        (sends, read)
    }

    /// Hands sends to the committer, and fills in the answers that are still missing.
    async fn commit_prepared(&self, prepared: PreparedSends, answers: &mut [Option<Result<Committed>>]) {
        let outcomes = self.ask(|reply| WriteOp::Sends(prepared, reply)).await;
        let (outcomes, failed) = match outcomes {
            Ok(outcomes) => (outcomes, StoreError::unavailable("the committer")),
            Err(e) => (Vec::new(), e),
        };
        let mut outcomes = outcomes.into_iter();
        for answer in answers.iter_mut().filter(|answer| answer.is_none()) {
            *answer = Some(match outcomes.next() {
                Some(Ok(committed)) => Ok(committed),
                Some(Err(DuplicateSend { seq, new })) => self.duplicate(&new, seq).await,
                None => Err(failed.clone()),
            });
        }
    }

    /// Answers a repeated send with the original (R9). Notes it as undelivered again, unless it was
    /// acked.
    async fn duplicate(&self, new: &NewMessage, seq: Seq) -> Result<Committed> {
        let id = &new.conversation_id;
        let message = self.message_at(id, seq).await?;
        new.check_repeats(&message)?;
        if new.undelivered && !message.withheld {
            let side = new.from.other();
            if self.status(&id.member(side), id).await?.last_delivered_seq < seq {
                let push_due = new.push_due;
                self.ask(|reply| WriteOp::Note { id: id.clone(), side, seq, push_due, reply }).await?;
            }
        }
        Ok(Committed { message, duplicate: true, implied_read: None })
    }

    /// What the sender's client had seen, and the boundary there. If that message is cold and
    /// cannot be read, the send implies no read: it must not fail for that.
    async fn seen_by(&self, new: &NewMessage) -> Result<Option<(Seq, Boundary)>> {
        let Some(seq) = new.seen_seq else { return Ok(None) };
        let Some(conv) = self.shared.conv(&new.conversation_id)? else {
            return Ok(Some((seq, Boundary::default())));
        };
        if let Some(boundary) = self.shared.hot_boundary(&conv, new.from, seq)? {
            return Ok(Some((seq, boundary)));
        }
        let there = conv.member(new.from).read;
        let boundary = self.boundary_at(&conv, new.from, seq, there).await.unwrap_or_else(|error| {
            tracing::warn!(conversation = %conv.id, seq, %error, "the reply implies no read: the message that was seen cannot be read");
            there
        });
        Ok(Some((seq, boundary)))
    }
}
