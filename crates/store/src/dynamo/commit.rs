//! The commit of a send in two round trips: the message with its idempotency record in one transaction, then the rows.
//!
//! 1. A seq from Redis, or from the table where Redis cannot say. It is only a proposal: the transaction takes the
//!    message under it only if nothing is there (R8).
//! 2. One transaction: message and idempotency record (R9). From here on the message is durable. Beside it the sender's
//!    row is read, to know whether this reply implies a read (R10).
//! 3. Side by side: both members' `conversations` rows and inbox places, the implied read with the sender's, and if the
//!    first lookup missed the pending row (R3) and the notification that is owed with it (R14). What fails here fails the send; its retry does these steps again.
//!
//! Sends of one conversation that come together are one transaction, in order.
//!
//! A seq that was used long ago and whose message is cold is free in the table. The sender's row knows better; then what was
//! stored is taken back, and stored anew (`stray.rs`).

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use bluetick_protocol::{ConversationId, Profile, Seq, Side};
use futures_util::future::{join_all, try_join, try_join3};

use super::{
    DynamoStore,
    item::{Attributes as _, Item, key, n, s},
    messages::{Stored, message_item},
    row::Row,
    rows::{Beginning, concerns_sender},
    status::{Read, ReadOutcome},
    stray::Recorded,
    tables::Table,
    write::{Transacted, Write},
};
use crate::{
    Advanced, Committed, Message, MessageStatus as _, Messages as _, NewMessage, OwedPush,
    PendingDeliveries as _, PushOutbox as _, Result, StatusRow, StoreError,
};

/// Sends in one transaction: two rows each, of the hundred that one takes.
const TOGETHER: usize = 25;
/// Their bodies together, of the four megabytes that one takes.
const TOGETHER_BYTES: usize = 1 << 20;
/// How often a seq that turns out to be taken is replaced by another.
const SEQ_TRIES: usize = 30;

/// Seqs that were handed out for one conversation and are not used yet.
struct Seqs {
    free: VecDeque<Seq>,
    /// Whether Redis gave them, so that what is left goes back to it.
    from_redis: bool,
}

/// What became of the transaction of one send.
enum Put {
    Stored,
    SeqTaken,
    Duplicate(Arc<Message>),
    /// It was sent before, under a seq that was not free, and its message is gone.
    TakenBack,
}

pub(super) fn sent_id(conversation: &ConversationId, from: Side, client_msg_id: &str) -> String {
    // No member id and no conversation id has a space.
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

    /// Sends of one conversation, in order; behind one that failed none is stored, so that order holds when all are
    /// tried again.
    async fn commit_lane(&self, id: &ConversationId, sends: Vec<NewMessage>) -> Vec<Result<Committed>> {
        if let Err(error) = self.writable() {
            return sends.iter().map(|_| Err(error.clone())).collect();
        }
        let mut seqs = Seqs { free: VecDeque::new(), from_redis: false };
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

    /// Returns what was committed, and the error that ended the lane, if one did.
    async fn commit_chunk(
        &self,
        id: &ConversationId,
        chunk: Vec<NewMessage>,
        wanted: u64,
        seqs: &mut Seqs,
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
                // Something was in the way of one of them: one by one it shows which.
                Ok(None) => {}
                Err(error) => return failed(Vec::new(), error),
            }
        }
        let mut done = Vec::with_capacity(count);
        for (n, new) in chunk.into_iter().enumerate() {
            let left = wanted.saturating_sub(n as u64).max(1);
            match Box::pin(self.commit_one(id, new, left, seqs)).await {
                // A conflict is the answer to this send alone: trying it again changes nothing.
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
        seqs: &mut Seqs,
    ) -> Result<Committed> {
        let mut extra = Extra::default();
        for _ in 0..SEQ_TRIES {
            let seq = self.next_seq(id, wanted, seqs).await?;
            // Minted right before its write, so that a device's overlap covers what lies between (R6).
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
                    // Even if it was stored: the table takes no second message under it.
                    seqs.free.push_front(seq);
                    return Err(error);
                }
            };
            let committed = match put {
                Put::SeqTaken => None,
                Put::Stored => {
                    let (news, stored) = ([new.clone()], [Stored { message: next, hole: false }]);
                    let done = Box::pin(self.finish_with(&news, &stored, extra.clone())).await?;
                    done.and_then(|mut done| done.pop())
                }
                Put::Duplicate(original) => {
                    // If another node has stored it under a later seq, what follows it must come later still.
                    seqs.free.push_front(seq);
                    let after = original.seq;
                    seqs.free.retain(|&seq| seq > after);
                    new.check_repeats(&original)?;
                    self.repeat(&new, original).await?
                }
                Put::TakenBack => {
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

    // --- seqs ---

    async fn next_seq(&self, id: &ConversationId, wanted: u64, seqs: &mut Seqs) -> Result<Seq> {
        if let Some(seq) = seqs.free.pop_front() {
            return Ok(seq);
        }
        let taken = match self.redis.take_seqs(id, wanted).await {
            Ok(None) => {
                // Redis does not know the conversation: tell it where the table is, then ask again.
                let last = self.last_seq(id).await?;
                match self.redis.raise_seq(id, last).await {
                    Ok(()) => self.redis.take_seqs(id, wanted).await,
                    Err(error) => Err(error),
                }
            }
            taken => taken,
        };
        match taken {
            Ok(Some(range)) => {
                seqs.from_redis = true;
                seqs.free = range.collect();
            }
            Ok(None) | Err(_) => {
                seqs.from_redis = false;
                let last = self.last_seq(id).await?;
                seqs.free = (last + 1..=last + wanted).collect();
            }
        }
        seqs.free.pop_front().ok_or_else(|| StoreError::unavailable("a seq"))
    }

    /// A seq that was handed out holds another message: the counter fell back, or a reader closed the hole. It is
    /// raised to the maximum, and what else was handed out below that is dropped.
    async fn after_taken(&self, id: &ConversationId, seqs: &mut Seqs) -> Result<()> {
        metrics::counter!("bluetick_seqs_fenced_total").increment(1);
        let last = self.last_seq(id).await?;
        seqs.free.retain(|&seq| seq > last);
        if seqs.free.is_empty() {
            let _ = self.redis.raise_seq(id, last).await;
        }
        Ok(())
    }

    /// Seqs that nobody used would be holes: what can go back goes back.
    async fn give_back(&self, id: &ConversationId, seqs: Seqs) {
        if let (true, Some(&first), Some(&last)) = (seqs.from_redis, seqs.free.front(), seqs.free.back()) {
            let _ = self.redis.return_seqs(id, first..=last).await;
        }
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
            // DynamoDB removes an old record when it gets round to it; it counts no longer before.
            Write::put(Table::SentIds, record)
                .only_if("attribute_not_exists(#sent_id) OR #expires_at <= :now")
                .value(":now", n(now / 1_000)),
            Write::put(Table::Messages, message_item(message, false))
                .only_if("attribute_not_exists(#conversation_id)"),
        ]
    }

    /// The transaction of some messages: their records and rows in turn. With the first message of a conversation goes
    /// a row that names its sender as concerned. If the process dies before the rows are written, and nobody repeats
    /// the send, an erasure finds the message by it.
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

    async fn put_one(&self, message: &Arc<Message>, extra: &mut Extra) -> Result<Put> {
        let writes = self.transaction_of([message]);
        let (outcome, read) = tokio::join!(self.dynamo.transact(&writes), self.read_beside(message, extra));
        let outcome = outcome?;
        // What was read beside it is a help; without it the rows are read again.
        if let Ok(read) = read {
            *extra = read;
        }
        let Transacted::Refused(refused) = outcome else { return Ok(Put::Stored) };
        let mut refused = refused.into_iter();
        let is_ours = |item: &Item| item.number("message_id") == Some(message.message_id.0);
        let (record, in_the_way) = (refused.next().flatten().flatten(), refused.next().flatten().flatten());
        if [&record, &in_the_way].into_iter().flatten().any(is_ours) {
            // The answer to the write got lost, not the write (R8).
            return Ok(Put::Stored);
        }
        match record {
            Some(record) => {
                let id = &message.conversation_id;
                match self.recorded(id, &record).await? {
                    Recorded::Message(original) => Ok(Put::Duplicate(original)),
                    Recorded::Stray => {
                        let (seq, message_id) =
                            (record.need_number("seq")?, record.message_id("message_id")?);
                        self.take_back(record.need_text("sent_id")?, id, seq, message_id).await?;
                        Ok(Put::TakenBack)
                    }
                }
            }
            None => Ok(Put::SeqTaken),
        }
    }

    /// All of a chunk in one transaction, if nothing is in the way of any.
    async fn try_together(
        &self,
        id: &ConversationId,
        chunk: &[NewMessage],
        wanted: u64,
        seqs: &mut Seqs,
    ) -> Result<Option<Vec<Stored>>> {
        let mut stored: Vec<Stored> = Vec::with_capacity(chunk.len());
        for (n, new) in chunk.iter().enumerate() {
            let seq = self.next_seq(id, wanted.saturating_sub(n as u64).max(1), seqs).await?;
            if stored.last().is_some_and(|before: &Stored| before.message.seq + 1 != seq) {
                // The rows take in what is consecutive.
                seqs.free.push_front(seq);
                seqs.put_back(&stored);
                return Ok(None);
            }
            let minted = self.lease.mint().await.inspect_err(|_| {
                seqs.free.push_front(seq);
                seqs.put_back(&stored);
            })?;
            let message = new.clone().into_message(seq, minted, self.clock.now_ms());
            stored.push(Stored { message: Arc::new(message), hole: false });
        }
        let writes = self.transaction_of(stored.iter().map(|stored| &stored.message));
        let outcome = self.dynamo.transact(&writes).await.inspect_err(|_| seqs.put_back(&stored))?;
        match outcome {
            Transacted::Done => Ok(Some(stored)),
            Transacted::Refused(refused) => {
                let ours = |(item, stored): (&Option<Option<Item>>, &Stored)| {
                    let item = item.as_ref().and_then(|item| item.as_ref());
                    item.is_some_and(|item| item.number("message_id") == Some(stored.message.message_id.0))
                };
                // The records stand at the even places.
                if refused.iter().step_by(2).zip(&stored).all(ours) {
                    return Ok(Some(stored));
                }
                seqs.put_back(&stored);
                Ok(None)
            }
        }
    }

    // --- the rows ---

    /// What the rows will need, read while the transaction is on its way.
    async fn read_beside(&self, message: &Message, known: &Extra) -> Result<Extra> {
        if known.sender.is_some() {
            return Ok(known.clone());
        }
        let id = &message.conversation_id;
        if message.seq == 1 {
            // Written down before the rows say that it is.
            let (profiles, cold_listed) =
                tokio::join!(self.profiles(id), self.list_beginning(id, message.ts));
            let beginning = Beginning { profiles: profiles?, cold_listed };
            return Ok(Extra { beginning: Some(beginning), ..Extra::default() });
        }
        let sender = id.member(message.from);
        let (row, status) = tokio::join!(self.row(id, message.from), self.status(&sender, id));
        Ok(Extra { sender: Some((row?, status?)), beginning: None })
    }

    async fn finish(&self, news: &[NewMessage], stored: &[Stored]) -> Result<Option<Vec<Committed>>> {
        let extra = match stored.first() {
            Some(first) => self.read_beside(&first.message, &Extra::default()).await?,
            None => return Ok(Some(Vec::new())),
        };
        self.finish_with(news, stored, extra).await
    }

    /// Everything that follows the transaction, side by side. Nothing comes back if some of it was stored under seqs that were
    /// not free, and was taken back (R8).
    async fn finish_with(
        &self,
        news: &[NewMessage],
        stored: &[Stored],
        extra: Extra,
    ) -> Result<Option<Vec<Committed>>> {
        let Some(first) = stored.first().map(|stored| stored.message.clone()) else {
            return Ok(Some(Vec::new()));
        };
        let (id, from) = (&first.conversation_id, first.from);
        let cold_up_to = extra.sender.as_ref().map_or(0, |(row, _)| row.cold_up_to);
        if self.take_back_strays(stored, cold_up_to).await? {
            return Ok(None);
        }
        // The row keeps the first, and the outbox the last.
        let mut undelivered = news.iter().zip(stored).filter(|(new, _)| new.undelivered && !new.withheld);
        let owed = undelivered.clone().rev().find_map(|(new, stored)| Some((&stored.message, new.push_due?)));
        let first_undelivered = undelivered.next().map(|(_, stored)| &stored.message);
        let note = self.note_and_owe(first_undelivered, owed);
        let beginning = extra.beginning.as_ref();
        let sender = async {
            let (implied_read, row) = self.show_to_sender(news, stored, &extra).await?;
            self.touch(id, from, row.shown.as_ref().map(|shown| shown.ts)).await?;
            self.list_if_unlisted(&row, first.ts).await;
            Ok::<_, StoreError>((implied_read, row.cold_up_to))
        };
        let receiver = async {
            let row = self.show_sent(from.other(), stored, beginning).await?;
            self.touch(id, from.other(), row.and_then(|row| row.shown.map(|shown| shown.ts))).await
        };
        let ((implied_read, cold_up_to), (), ()) =
            try_join3(Box::pin(sender), Box::pin(receiver), Box::pin(note)).await?;
        // Messages may have become cold since the row was read.
        if self.take_back_strays(stored, cold_up_to).await? {
            return Ok(None);
        }
        if let Some(beginning) = beginning {
            self.copy_again_if_changed(id, &beginning.profiles).await?;
        }
        let mut done: Vec<Committed> = stored
            .iter()
            .map(|stored| Committed { message: stored.message.clone(), duplicate: false, implied_read: None })
            .collect();
        if let Some(last) = done.last_mut() {
            last.implied_read = implied_read;
        }
        Ok(Some(done))
    }

    /// The pending row of a message that could not be handed over, and beside it the notification of it.
    async fn note_and_owe(
        &self,
        undelivered: Option<&Arc<Message>>,
        owed: Option<(&Arc<Message>, u64)>,
    ) -> Result<()> {
        let note = async {
            match undelivered {
                Some(message) => {
                    let receiver = message.receiver();
                    self.note_undelivered(&receiver, &message.conversation_id, message.seq).await.map(|_| ())
                }
                None => Ok(()),
            }
        };
        let owe = async {
            match owed {
                Some((message, due_at)) => self.owe(OwedPush::of_message(message, due_at)).await,
                None => Ok(()),
            }
        };
        try_join(note, owe).await.map(|_| ())
    }

    /// The sender's own row, and the read that a reply implies: up to what their client had seen, or else up to what was
    /// delivered to them (R10). Returns the boundaries if they moved, and the row as it is then.
    async fn show_to_sender(
        &self,
        news: &[NewMessage],
        stored: &[Stored],
        extra: &Extra,
    ) -> Result<(Option<Advanced>, Row)> {
        let Some(first) = stored.first().map(|stored| &stored.message) else {
            return Err(StoreError::unavailable("this send"));
        };
        let (id, from) = (&first.conversation_id, first.from);
        let seen = |delivered: Seq, last: Seq| {
            let seen = news.iter().map(|new| new.seen_seq.unwrap_or(delivered)).max().unwrap_or(0);
            seen.min(last).min(first.seq - 1)
        };
        let show = async || {
            let row = self.show_sent(from, stored, extra.beginning.as_ref()).await?;
            Ok::<_, StoreError>(row.unwrap_or_else(|| Row::none(id, from)))
        };
        if let Some((row, status)) = &extra.sender {
            let read = seen(status.last_delivered_seq, Seq::MAX);
            let in_order = row.counted_seq + 1 == first.seq && read <= row.last_seq();
            if read > row.read_seq && in_order && row.version > 0 {
                let Some(mut next) = unless_cold(row, self.after_read(row, read).await)? else {
                    return Ok((None, show().await?));
                };
                next.take_in(stored);
                let delivered = status.last_delivered_seq.max(read);
                let outcome = self.read_at_once(Read { row: &next, version: row.version, delivered }).await?;
                if let ReadOutcome::Moved(status) = outcome {
                    let advanced = Advanced { row: status, read_before: row.read_seq, moved: true };
                    return Ok((Some(advanced), next));
                }
            } else if read <= row.read_seq {
                return Ok((None, show().await?));
            }
        }
        // The rows were not as they were read: one after the other.
        let row = show().await?;
        if first.seq == 1 {
            return Ok((None, row));
        }
        let sender = id.member(from);
        let status = self.status(&sender, id).await?;
        let read = seen(status.last_delivered_seq, Seq::MAX);
        if read <= status.last_read_seq {
            return Ok((None, row));
        }
        let advanced = unless_cold(&row, self.advance(&sender, id, 0, read).await)?;
        Ok((advanced.filter(|advanced| advanced.moved), row))
    }

    /// A profile that changed while its first row was made is copied again: whoever changed it may have come too early
    /// to find the row.
    async fn copy_again_if_changed(&self, id: &ConversationId, copied: &[Profile; 2]) -> Result<()> {
        let now = self.profiles(id).await?;
        for side in Side::BOTH {
            if now[side.index()] != copied[side.index()] {
                self.copy_profile(&id.member(side.other()), id, &now[side.index()]).await?;
            }
        }
        Ok(())
    }

    /// A retry: the original, and every step after its commit again, which may never have been made (R9).
    /// Nothing comes back if it was stored under a seq that was not free, and was taken back (R8).
    async fn repeat(&self, new: &NewMessage, original: Arc<Message>) -> Result<Option<Committed>> {
        let (id, from) = (&original.conversation_id, original.from);
        let receiver = id.member(from.other());
        let mut sender_row = None;
        for side in [from, from.other()] {
            if original.withheld && side != from {
                continue;
            }
            let row = self.row(id, side).await?;
            if side == from {
                let stored = Stored { message: original.clone(), hole: false };
                if self.take_back_strays(&[stored], row.cold_up_to).await? {
                    return Ok(None);
                }
            }
            let was_shown = row.last_seq() >= original.seq;
            // A device whose cursor has passed the message meanwhile must meet it all the same, so what is shown
            // late is shown as of now.
            let row = match was_shown && !row.has_gap() {
                true => row,
                false => self.bring_up(row, Some(self.clock.now_ms())).await?,
            };
            if side == from {
                self.list_if_unlisted(&row, original.ts).await;
                sender_row = Some(row.clone());
            }
            self.touch_again(row).await?;
        }
        // The read that it implies, as far as it was not made: a boundary that is there already does not move.
        let sender = id.member(from);
        let status = self.status(&sender, id).await?;
        let read = new.seen_seq.unwrap_or(0).min(original.seq.saturating_sub(1));
        let implied_read = match read > status.last_read_seq && !original.void {
            true => {
                let row = sender_row.unwrap_or_else(|| Row::none(id, from));
                unless_cold(&row, self.advance(&sender, id, 0, read).await)?.filter(|a| a.moved)
            }
            false => None,
        };
        if new.undelivered && !original.withheld && !original.void {
            let (status, notified) = self.notified(&receiver, id).await?;
            if status.last_delivered_seq < original.seq {
                let due = new.push_due.filter(|_| notified < original.seq);
                self.note_and_owe(Some(&original), due.map(|due_at| (&original, due_at))).await?;
            }
        }
        Ok(Some(Committed { message: original, duplicate: true, implied_read }))
    }
}

impl Seqs {
    /// Those of messages that were not stored are free again.
    fn put_back(&mut self, stored: &[Stored]) {
        for stored in stored.iter().rev() {
            self.free.push_front(stored.message.seq);
        }
    }
}

/// The read that a send implies, or nothing if it failed where messages are cold: no send fails for want of one.
fn unless_cold<T>(row: &Row, read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(error) if row.read_seq < row.cold_up_to => {
            tracing::warn!(conversation = %row.conversation_id, %error, "a reply implies no read: what was seen is not readable");
            Ok(None)
        }
        read => read.map(Some),
    }
}

/// What was read beside the transaction.
#[derive(Clone, Default)]
struct Extra {
    /// The sender's row and boundaries before this send.
    sender: Option<(Row, StatusRow)>,
    /// What the first message makes the rows of.
    beginning: Option<Beginning>,
}

/// The sends at the front that may be one transaction: of one side, alike, none of them twice.
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
