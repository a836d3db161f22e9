//! The commit of a send, in two round trips:
//!
//! 1. Reserve a seq (`seqs.rs`). It is a proposal: step 2 takes it only if the seq is free (R8).
//! 2. One transaction writes the message and its idempotency record (R9). From here on the message
//!    is durable. The sender's row is read at the same time, because a reply may imply a read (R10).
//! 3. Write the rows concurrently (`commit_rows.rs`): both members' `conversations` rows and inbox
//!    places, the pending row (R3) and the notification that is owed (R14). A failure here fails the
//!    send, and its retry repeats the steps.
//!
//! Sends of one conversation that arrive together are one transaction, in order.
//!
//! The seq of a cold message is free in the table, but not in the sender's row. A message that was
//! stored under such a seq is taken back and stored again under a new one (`reused_seqs.rs`).

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use bluetick_protocol::{ConversationId, Side};
use futures_util::future::join_all;

use super::{
    DynamoStore,
    commit_rows::ReadAhead,
    item::{Attributes as _, Item, key, n, s},
    messages::{StoredMessage, message_item},
    reused_seqs::RecordedSend,
    rows::concerns_sender,
    seqs::ReservedSeqs,
    tables::Table,
    write::{Transacted, Write},
};
use crate::{Committed, Message, NewMessage, Result, StoreError};

/// Sends in one transaction: two rows each, of the hundred that DynamoDB allows.
const TOGETHER: usize = 25;
/// The bytes of their bodies, of the four megabytes that DynamoDB allows.
const TOGETHER_BYTES: usize = 1 << 20;
/// Seqs tried before a send fails.
const SEQ_TRIES: usize = 30;

/// The outcome of one send's transaction.
enum PutOutcome {
    Stored,
    SeqTaken,
    Duplicate(Arc<Message>),
    /// It was sent before under the seq of a cold message; that copy was removed, so it must be
    /// stored again.
    TakenBack,
}

pub(super) fn sent_id(conversation: &ConversationId, from: Side, client_msg_id: &str) -> String {
    // Unambiguous, because a conversation id contains no space.
    format!("{conversation} {} {client_msg_id}", from.index())
}

impl DynamoStore {
    pub(super) async fn commit_all(&self, sends: Vec<NewMessage>) -> Vec<Result<Committed>> {
        let mut lanes: BTreeMap<ConversationId, Vec<(usize, NewMessage)>> = BTreeMap::new();
        let mut results: Vec<Option<Result<Committed>>> = sends.iter().map(|_| None).collect();
        for (place, new) in sends.into_iter().enumerate() {
            lanes.entry(new.conversation_id.clone()).or_default().push((place, new));
        }
        let committed = join_all(lanes.into_iter().map(|(id, lane)| async move {
            let (places, sends): (Vec<_>, Vec<_>) = lane.into_iter().unzip();
            (places, Box::pin(self.commit_lane(&id, sends)).await)
        }));
        for (places, lane) in committed.await {
            for (place, result) in places.into_iter().zip(lane) {
                results[place] = Some(result);
            }
        }
        let lost = || Err(StoreError::unavailable("this send"));
        results.into_iter().map(|result| result.unwrap_or_else(lost)).collect()
    }

    /// Commits the sends of one conversation in order. After a failure none that follows is stored,
    /// so that a retry of all keeps the order.
    async fn commit_lane(&self, id: &ConversationId, sends: Vec<NewMessage>) -> Vec<Result<Committed>> {
        if let Err(error) = self.writable() {
            return sends.iter().map(|_| Err(error.clone())).collect();
        }
        let mut seqs = ReservedSeqs::default();
        let mut results = Vec::with_capacity(sends.len());
        let mut left = VecDeque::from(sends);
        while !left.is_empty() {
            let chunk = next_chunk(&mut left);
            let wanted = (chunk.len() + left.len()) as u64;
            match Box::pin(self.commit_chunk(id, chunk, wanted, &mut seqs)).await {
                (done, None) => results.extend(done),
                (done, Some(error)) => {
                    let failed = results.len() + done.len() + left.len();
                    results.extend(done);
                    results.extend((results.len()..failed).map(|_| Err(error.clone())));
                    left.clear();
                }
            }
        }
        self.give_back(id, seqs).await;
        results
    }

    /// Returns the results, and the error that ended the conversation's sends, if one did.
    async fn commit_chunk(
        &self,
        id: &ConversationId,
        chunk: Vec<NewMessage>,
        wanted: u64,
        seqs: &mut ReservedSeqs,
    ) -> (Vec<Result<Committed>>, Option<StoreError>) {
        let count = chunk.len();
        let failed = |done: Vec<Result<Committed>>, error: StoreError| {
            let mut done = done;
            done.extend((done.len()..count).map(|_| Err(error.clone())));
            (done, Some(error))
        };
        if count > 1 {
            match self.try_together(id, &chunk, wanted, seqs).await {
                Ok(Some(stored)) => match Box::pin(self.finish(&chunk, &stored)).await {
                    Ok(Some(done)) => return (done.into_iter().map(Ok).collect(), None),
                    Ok(None) => {
                        if let Err(error) = self.after_taken(id, seqs).await {
                            return failed(Vec::new(), error);
                        }
                    }
                    Err(error) => return failed(Vec::new(), error),
                },
                // A condition of one of them failed: committing one by one shows which.
                Ok(None) => {}
                Err(error) => return failed(Vec::new(), error),
            }
        }
        let mut done = Vec::with_capacity(count);
        for (n, new) in chunk.into_iter().enumerate() {
            let left = wanted.saturating_sub(n as u64).max(1);
            match Box::pin(self.commit_one(id, new, left, seqs)).await {
                // A conflict concerns this send alone, and a retry would not change it.
                committed @ (Ok(_) | Err(StoreError::ClientMsgIdConflict(_))) => done.push(committed),
                Err(error) => return failed(done, error),
            }
        }
        (done, None)
    }

    async fn commit_one(
        &self,
        id: &ConversationId,
        new: NewMessage,
        wanted: u64,
        seqs: &mut ReservedSeqs,
    ) -> Result<Committed> {
        let mut extra = ReadAhead::default();
        for _ in 0..SEQ_TRIES {
            let seq = self.next_seq(id, wanted, seqs).await?;
            // Minted right before the write, so that the overlap of a resume covers the time
            // between (R6).
            let minted = match self.lease.mint().await {
                Ok(minted) => minted,
                Err(error) => {
                    seqs.free.push_front(seq);
                    return Err(error);
                }
            };
            let next = Arc::new(new.clone().into_message(seq, minted, self.clock.now_ms()));
            let put = match self.put_one(&next, &mut extra).await {
                Ok(put) => put,
                Err(error) => {
                    // Free even if the message was stored: the table refuses a second one under it.
                    seqs.free.push_front(seq);
                    return Err(error);
                }
            };
            let committed = match put {
                PutOutcome::SeqTaken => None,
                PutOutcome::Stored => {
                    let (news, stored) = ([new.clone()], [StoredMessage { message: next, hole: false }]);
                    let done = Box::pin(self.finish_with(&news, &stored, extra.clone())).await?;
                    done.and_then(|mut done| done.pop())
                }
                PutOutcome::Duplicate(original) => {
                    // Another node may have stored it under a later seq: those that follow must
                    // come after it.
                    seqs.free.push_front(seq);
                    let after = original.seq;
                    seqs.free.retain(|&seq| seq > after);
                    new.check_repeats(&original)?;
                    self.repeat(&new, original).await?
                }
                PutOutcome::TakenBack => {
                    seqs.free.push_front(seq);
                    None
                }
            };
            match committed {
                Some(committed) => return Ok(committed),
                None => self.after_taken(id, seqs).await?,
            }
        }
        Err(StoreError::unavailable("a free seq"))
    }

    // --- the transaction ---

    pub(super) fn record_and_message(&self, message: &Message) -> [Write; 2] {
        let now = self.clock.now_ms();
        let record = key([
            ("sent_id", s(sent_id(&message.conversation_id, message.from, message.client_msg_id.as_str()))),
            ("seq", n(message.seq)),
            ("message_id", n(message.message_id.0)),
            ("expires_at", n((now + self.idempotency_window_ms).div_ceil(1_000))),
        ]);
        [
            // DynamoDB deletes expired records late, so the condition ignores them.
            Write::put(Table::SentIds, record)
                .only_if("attribute_not_exists(#sent_id) OR #expires_at <= :now")
                .value(":now", n(now / 1_000)),
            Write::put(Table::Messages, message_item(message, false))
                .only_if("attribute_not_exists(#conversation_id)"),
        ]
    }

    /// The transaction of some messages: record and message of each, in turn. The first message of
    /// a conversation adds the sender's row, marked as concerned: if the process dies before the
    /// rows are written and the send is never repeated, an erasure finds the message by that row.
    pub(super) fn transaction_of<'a>(
        &self,
        messages: impl IntoIterator<Item = &'a Arc<Message>>,
    ) -> Vec<Write> {
        let (mut writes, mut first) = (Vec::new(), None);
        for message in messages {
            writes.extend(self.record_and_message(message));
            first = first.or((message.seq == 1).then_some(message));
        }
        writes.extend(first.map(|message| concerns_sender(&message.conversation_id, message.from)));
        writes
    }

    async fn put_one(&self, message: &Arc<Message>, extra: &mut ReadAhead) -> Result<PutOutcome> {
        let writes = self.transaction_of([message]);
        let (outcome, read) = tokio::join!(self.dynamo.transact(&writes), self.read_beside(message, extra));
        let outcome = outcome?;
        // Without it the rows are read again.
        if let Ok(read) = read {
            *extra = read;
        }
        let Transacted::Refused(refused) = outcome else { return Ok(PutOutcome::Stored) };
        let mut refused = refused.into_iter();
        let is_ours = |item: &Item| item.number("message_id") == Some(message.message_id.0);
        let (record, in_the_way) = (refused.next().flatten().flatten(), refused.next().flatten().flatten());
        if [&record, &in_the_way].into_iter().flatten().any(is_ours) {
            // The write had succeeded and its answer was lost (R8).
            return Ok(PutOutcome::Stored);
        }
        match record {
            Some(record) => {
                let id = &message.conversation_id;
                match self.recorded(id, &record).await? {
                    RecordedSend::Message(original) => Ok(PutOutcome::Duplicate(original)),
                    RecordedSend::SeqReused => {
                        let (seq, message_id) =
                            (record.need_number("seq")?, record.message_id("message_id")?);
                        self.take_back(record.need_text("sent_id")?, id, seq, message_id).await?;
                        Ok(PutOutcome::TakenBack)
                    }
                }
            }
            None => Ok(PutOutcome::SeqTaken),
        }
    }

    /// Stores a chunk in one transaction. `None` if a condition failed.
    async fn try_together(
        &self,
        id: &ConversationId,
        chunk: &[NewMessage],
        wanted: u64,
        seqs: &mut ReservedSeqs,
    ) -> Result<Option<Vec<StoredMessage>>> {
        let mut stored: Vec<StoredMessage> = Vec::with_capacity(chunk.len());
        for (n, new) in chunk.iter().enumerate() {
            let seq = self.next_seq(id, wanted.saturating_sub(n as u64).max(1), seqs).await?;
            if stored.last().is_some_and(|before: &StoredMessage| before.message.seq + 1 != seq) {
                // The rows count consecutive seqs only.
                seqs.free.push_front(seq);
                seqs.put_back(&stored);
                return Ok(None);
            }
            let minted = self.lease.mint().await.inspect_err(|_| {
                seqs.free.push_front(seq);
                seqs.put_back(&stored);
            })?;
            let message = new.clone().into_message(seq, minted, self.clock.now_ms());
            stored.push(StoredMessage { message: Arc::new(message), hole: false });
        }
        let writes = self.transaction_of(stored.iter().map(|stored| &stored.message));
        let outcome = self.dynamo.transact(&writes).await.inspect_err(|_| seqs.put_back(&stored))?;
        match outcome {
            Transacted::Done => Ok(Some(stored)),
            Transacted::Refused(refused) => {
                let ours = |(item, stored): (&Option<Option<Item>>, &StoredMessage)| {
                    let item = item.as_ref().and_then(|item| item.as_ref());
                    item.is_some_and(|item| item.number("message_id") == Some(stored.message.message_id.0))
                };
                // The records are at the even positions.
                if refused.iter().step_by(2).zip(&stored).all(ours) {
                    return Ok(Some(stored));
                }
                seqs.put_back(&stored);
                Ok(None)
            }
        }
    }
}

/// The sends at the front that fit one transaction: from one side, equally withheld, with different
/// ids.
fn next_chunk(left: &mut VecDeque<NewMessage>) -> Vec<NewMessage> {
    let (mut chunk, mut ids, mut bytes): (Vec<NewMessage>, BTreeSet<String>, usize) = Default::default();
    while let Some(new) = left.front() {
        let alike =
            chunk.first().is_none_or(|first| first.from == new.from && first.withheld == new.withheld);
        bytes += new.body.len() + new.meta.as_ref().map_or(0, |meta| meta.as_str().len());
        let fits = chunk.is_empty() || (chunk.len() < TOGETHER && bytes <= TOGETHER_BYTES);
        if !alike || !fits || !ids.insert(new.client_msg_id.as_str().to_owned()) {
            break;
        }
        chunk.extend(left.pop_front());
    }
    chunk
}
