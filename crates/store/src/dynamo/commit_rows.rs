//! The rows of a send, after its transaction: both members' `conversations` rows and inbox places,
//! the read that a reply implies (R10), the pending row (R3) and the notification that is owed with
//! it (R14).

use std::sync::Arc;

use bluetick_protocol::{ConversationId, Profile, Seq, Side};
use futures_util::future::{try_join, try_join3};

use super::{
    DynamoStore,
    messages::StoredMessage,
    row::CountedRow,
    rows::Beginning,
    status::{ReadOutcome, ReadUpdate},
};
use crate::{
    Advanced, Committed, Message, MessageStatus as _, NewMessage, OwedPush, PendingDeliveries as _,
    PushOutbox as _, Result, StatusRow, StoreError,
};

/// What the rows need, read at the same time as the transaction is written.
#[derive(Clone, Default)]
pub(super) struct ReadAhead {
    /// The sender's row and boundaries before this send.
    sender: Option<(CountedRow, StatusRow)>,
    /// What the first message of a conversation creates the rows from.
    beginning: Option<Beginning>,
}

impl DynamoStore {
    /// Reads what the rows will need, while the transaction is written.
    pub(super) async fn read_beside(&self, message: &Message, known: &ReadAhead) -> Result<ReadAhead> {
        if known.sender.is_some() {
            return Ok(known.clone());
        }
        let id = &message.conversation_id;
        if message.seq == 1 {
            // Listed before the row says that it is listed.
            let (profiles, cold_listed) =
                tokio::join!(self.profiles(id), self.list_beginning(id, message.ts));
            let beginning = Beginning { profiles: profiles?, cold_listed };
            return Ok(ReadAhead { beginning: Some(beginning), ..ReadAhead::default() });
        }
        let sender = id.member(message.from);
        let (row, status) = tokio::join!(self.row(id, message.from), self.status(&sender, id));
        Ok(ReadAhead { sender: Some((row?, status?)), beginning: None })
    }

    pub(super) async fn finish(
        &self,
        news: &[NewMessage],
        stored: &[StoredMessage],
    ) -> Result<Option<Vec<Committed>>> {
        let extra = match stored.first() {
            Some(first) => self.read_beside(&first.message, &ReadAhead::default()).await?,
            None => return Ok(Some(Vec::new())),
        };
        self.finish_with(news, stored, extra).await
    }

    /// Everything that follows the transaction, concurrently. `None` if some messages were stored
    /// under seqs of cold messages and were taken back (R8).
    pub(super) async fn finish_with(
        &self,
        news: &[NewMessage],
        stored: &[StoredMessage],
        extra: ReadAhead,
    ) -> Result<Option<Vec<Committed>>> {
        let Some(first) = stored.first().map(|stored| stored.message.clone()) else {
            return Ok(Some(Vec::new()));
        };
        let (id, from) = (&first.conversation_id, first.from);
        let cold_up_to = extra.sender.as_ref().map_or(0, |(row, _)| row.cold_up_to);
        if self.take_back_reused(stored, cold_up_to).await? {
            return Ok(None);
        }
        // The pending row keeps the first undelivered message, the outbox the last.
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
        if self.take_back_reused(stored, cold_up_to).await? {
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

    /// Writes the pending row of an undelivered message and, concurrently, the notification that is
    /// owed.
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

    /// Updates the sender's row together with the read that a reply implies: up to what the client
    /// had seen, or up to what was delivered to the user (R10). Returns the boundaries if they
    /// moved, and the new row.
    async fn show_to_sender(
        &self,
        news: &[NewMessage],
        stored: &[StoredMessage],
        extra: &ReadAhead,
    ) -> Result<(Option<Advanced>, CountedRow)> {
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
            Ok::<_, StoreError>(row.unwrap_or_else(|| CountedRow::none(id, from)))
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
                let outcome =
                    self.read_at_once(ReadUpdate { row: &next, version: row.version, delivered }).await?;
                if let ReadOutcome::Moved(status) = outcome {
                    let advanced = Advanced { row: status, read_before: row.read_seq, moved: true };
                    return Ok((Some(advanced), next));
                }
            } else if read <= row.read_seq {
                return Ok((None, show().await?));
            }
        }
        // The rows changed since they were read: update them one after the other.
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

    /// Copies a profile again that changed while its first row was created: the change may have run
    /// before there was a row to copy it into.
    async fn copy_again_if_changed(&self, id: &ConversationId, copied: &[Profile; 2]) -> Result<()> {
        let now = self.profiles(id).await?;
        for side in Side::BOTH {
            if now[side.index()] != copied[side.index()] {
                self.copy_profile(&id.member(side.other()), id, &now[side.index()]).await?;
            }
        }
        Ok(())
    }

    /// A retry: returns the original and repeats every step after its commit, because the first run
    /// may have failed before them (R9). `None` if the original was stored under the seq of a cold
    /// message and was taken back (R8).
    pub(super) async fn repeat(&self, new: &NewMessage, original: Arc<Message>) -> Result<Option<Committed>> {
        let (id, from) = (&original.conversation_id, original.from);
        let receiver = id.member(from.other());
        let mut sender_row = None;
        for side in [from, from.other()] {
            if original.withheld && side != from {
                continue;
            }
            let row = self.row(id, side).await?;
            if side == from {
                let stored = StoredMessage { message: original.clone(), hole: false };
                if self.take_back_reused(&[stored], row.cold_up_to).await? {
                    return Ok(None);
                }
            }
            let was_shown = row.last_seq() >= original.seq;
            // A message that is shown late gets the current time, so that a device whose cursor has
            // passed the message's own time still finds it (R6).
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
        // The implied read, if the first run did not get to it. A boundary that is reached already
        // does not move.
        let sender = id.member(from);
        let status = self.status(&sender, id).await?;
        let read = new.seen_seq.unwrap_or(0).min(original.seq.saturating_sub(1));
        let implied_read = match read > status.last_read_seq && !original.void {
            true => {
                let row = sender_row.unwrap_or_else(|| CountedRow::none(id, from));
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

/// The read that a send implies; `None` if it failed because cold messages cannot be read, which
/// fails no send.
fn unless_cold<T>(row: &CountedRow, read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(error) if row.read_seq < row.cold_up_to => {
            tracing::warn!(conversation = %row.conversation_id, %error, "the read that a reply implies is skipped: cold messages cannot be read; check the object store");
            Ok(None)
        }
        read => read.map(Some),
    }
}
