//! Updates of a `conversations` row: one conditional write where messages arrive in order, and a
//! read of the messages where they do not.

use std::time::Duration;

use bluetick_protocol::{ConversationId, Profile, Seq, Side};
use rand::RngExt as _;

use super::{
    DynamoStore,
    hot_and_cold::Parts::Headers,
    item::{flag, n, s},
    messages::StoredMessage,
    row::{CountedRow, counts_for, row_key},
    tables::Table,
    write::{Write, WriteOutcome},
};
use crate::{Messages as _, PageLimit, Result, StoreError};

/// Messages that are counted in one page.
const PAGE: usize = 200;
/// Attempts to replace a row that others change.
const TRIES: usize = 60;
/// The age at which a hole is closed, so that rows are not recounted after it for ever (R8).
const HOLE_AGE_MS: u64 = 5_000;

/// What the rows of a new conversation are created from, beside its first message.
#[derive(Clone)]
pub(super) struct Beginning {
    pub profiles: [Profile; 2],
    pub cold_listed: bool,
}

/// Creates the row of a member who has written, without showing it. It has counted nothing yet, so
/// the next writer of the row brings it up to date.
pub(super) fn concerns_sender(conversation: &ConversationId, side: Side) -> Write {
    Write::update(
        Table::Conversations,
        row_key(&conversation.member(side), conversation),
        "SET #concerned = :yes, #peer_id = :peer, #version = if_not_exists(#version, :zero) + :one",
    )
    .value(":yes", flag())
    .value(":peer", s(conversation.member(side.other())))
    .value(":zero", n(0))
    .value(":one", n(1))
}

impl DynamoStore {
    pub(super) async fn row(&self, conversation: &ConversationId, side: Side) -> Result<CountedRow> {
        let key = row_key(&conversation.member(side), conversation);
        let item = self.dynamo.get(Table::Conversations, key).await?;
        item.map_or_else(
            || Ok(CountedRow::none(conversation, side)),
            |item| CountedRow::from_item(&item, conversation, side),
        )
    }

    /// The write that replaces the version that was read.
    pub(super) fn replacing(&self, row: &CountedRow, version: u64) -> Write {
        let next = CountedRow { version: version + 1, ..row.clone() };
        let write = Write::put(Table::Conversations, next.to_item());
        match version {
            0 => write.only_if("attribute_not_exists(#version)"),
            _ => write.only_if("#version = :version").value(":version", n(version)),
        }
    }

    /// Replaces a row. If it has changed since it was read, returns the current one instead.
    pub(super) async fn replace(&self, row: &CountedRow) -> Result<Option<CountedRow>> {
        match self.dynamo.write(&self.replacing(row, row.version)).await? {
            WriteOutcome::Done(_) => Ok(None),
            WriteOutcome::Refused(Some(item)) => {
                CountedRow::from_item(&item, &row.conversation_id, row.side).map(Some)
            }
            WriteOutcome::Refused(None) => Ok(Some(CountedRow::none(&row.conversation_id, row.side))),
        }
    }

    /// Adds sends with consecutive seqs, all from one side, to a member's row. Returns the row;
    /// `None` if the member may not see them.
    pub(super) async fn show_sent(
        &self,
        side: Side,
        sends: &[StoredMessage],
        beginning: Option<&Beginning>,
    ) -> Result<Option<CountedRow>> {
        let (Some(first), Some(last)) = (sends.first(), sends.last()) else { return Ok(None) };
        let (first, message) = (&first.message, &last.message);
        let conversation = &message.conversation_id;
        if message.withheld && message.from != side {
            return self.note_withheld(conversation, side).await.map(|()| None);
        }
        let write = match (first.seq, beginning) {
            (1, Some(Beginning { profiles, cold_listed })) => {
                let mut row =
                    CountedRow { cold_listed: *cold_listed, ..CountedRow::none(conversation, side) };
                row.take_in(sends);
                row.peer = profiles[side.other().index()].clone();
                // The sender's row was created with the message.
                self.replacing(&row, u64::from(side == first.from))
            }
            _ => {
                let counted = sends.iter().filter(|stored| counts_for(stored, side)).count();
                let mut update = "SET #last_seq = :seq, #counted_seq = :seq, #last_message_ts = :ts, \
                     #last_message_preview = :preview, #last_sender = :sender, #last_message_id = :id, \
                     #unread_count = #unread_count + :counted, #version = #version + :one, #concerned = :yes"
                    .to_owned();
                if counted > 0 {
                    // They are all from one side.
                    update.push_str(", #counted_last = :seq");
                }
                Write::update(Table::Conversations, row_key(&conversation.member(side), conversation), update)
                    .only_if(
                        "#counted_seq = :before AND #read_seq < :first AND \
                     (attribute_not_exists(#last_seq) OR (#last_seq < :seq AND #last_message_ts <= :ts))",
                    )
                    .value(":seq", n(message.seq))
                    .value(":first", n(first.seq))
                    .value(":before", n(first.seq.saturating_sub(1)))
                    .value(":ts", n(message.ts))
                    .value(":preview", s(message.preview()))
                    .value(":sender", s(message.sender()))
                    .value(":id", n(message.message_id.0))
                    .value(":counted", n(counted as u64))
                    .value(":one", n(1))
                    .value(":yes", flag())
            }
        };
        match self.dynamo.write(&write).await? {
            WriteOutcome::Done(item) => CountedRow::from_item(&item, conversation, side).map(Some),
            WriteOutcome::Refused(item) => {
                let known = item.map(|item| CountedRow::from_item(&item, conversation, side)).transpose()?;
                let known = known.unwrap_or_else(|| CountedRow::none(conversation, side));
                self.bring_up(known, None).await.map(Some)
            }
        }
    }

    /// Marks the row of a member who was sent a withheld message, so that an erasure finds the
    /// conversation.
    async fn note_withheld(&self, conversation: &ConversationId, side: Side) -> Result<()> {
        let write = Write::update(
            Table::Conversations,
            row_key(&conversation.member(side), conversation),
            "SET #concerned = :yes, #peer_id = :peer, #version = if_not_exists(#version, :zero) + :one, \
             #counted_seq = if_not_exists(#counted_seq, :zero), #read_seq = if_not_exists(#read_seq, :zero), \
             #unread_count = if_not_exists(#unread_count, :zero)",
        )
        .value(":yes", flag())
        .value(":peer", s(conversation.member(side.other())))
        .value(":zero", n(0))
        .value(":one", n(1));
        self.dynamo.write(&write).await.map(|_| ())
    }

    /// Counts and shows every message that a row lacks. A newly shown message gets the time
    /// `shown_at`.
    pub(super) async fn bring_up(&self, mut row: CountedRow, shown_at: Option<u64>) -> Result<CountedRow> {
        for round in 0..TRIES {
            let limit = PageLimit { messages: PAGE, bytes: usize::MAX };
            let from = row.counted_seq + 1;
            let messages = self.page(&row.conversation_id, (">=", from), false, limit).await?;
            let mut next = row.clone();
            next.take_in(&messages);
            if let Some((from, to)) = self.hole_to_close(&next, &messages) {
                tracing::warn!(conversation = %row.conversation_id, from, to, "closing a hole in a conversation's seqs");
                for seq in from..to {
                    self.close_hole(&row.conversation_id, seq).await?;
                }
                // The missing messages may be cold: then others have counted them.
                row = self.row(&row.conversation_id, row.side).await?;
                continue;
            }
            if next == row {
                return Ok(row);
            }
            if let (Some(ts), Some(shown)) = (shown_at, &mut next.shown)
                && shown.last_seq > row.last_seq()
            {
                shown.ts = ts;
            }
            if row.shown.is_none() && next.shown.is_some() {
                next.peer = self.profiles(&row.conversation_id).await?[row.side.other().index()].clone();
            }
            match self.replace(&next).await? {
                None => {
                    next.version += 1;
                    row = next;
                    if messages.len() < PAGE {
                        return Ok(row);
                    }
                }
                Some(other) => {
                    row = other;
                    let pause = rand::rng().random_range(0..5 * (round as u64 + 1));
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
            }
        }
        Err(StoreError::unavailable("a conversation with too many concurrent writers"))
    }

    /// Closes the holes before a seq that is about to be acked: nothing may appear below an acked
    /// seq (R8). Their writers take new seqs.
    pub(super) async fn close_holes(&self, mut row: CountedRow, up_to: Seq) -> Result<CountedRow> {
        let id = row.conversation_id.clone();
        for _ in 0..TRIES {
            let end = up_to.min(row.last_seq());
            if end <= row.counted_seq {
                return Ok(row);
            }
            let headers = self.headers_from(&id, row.counted_seq + 1, PAGE).await?;
            let mut next = row.counted_seq + 1;
            for there in headers.iter().map(|header| header.message.seq) {
                for hole in next..there.min(end + 1) {
                    tracing::warn!(conversation = %id, seq = hole, "closing a hole below an acked seq");
                    self.close_hole(&id, hole).await?;
                }
                next = there + 1;
            }
            row = self.bring_up(self.row(&id, row.side).await?, None).await?;
        }
        Err(StoreError::unavailable("a conversation with too many concurrent writers"))
    }

    /// The holes before messages so old that no writer will fill them.
    fn hole_to_close(&self, row: &CountedRow, messages: &[StoredMessage]) -> Option<(Seq, Seq)> {
        let behind = messages.iter().map(|stored| &stored.message).find(|m| m.seq > row.counted_seq)?;
        let old = behind.ts + HOLE_AGE_MS < self.clock.now_ms();
        old.then_some((row.counted_seq + 1, behind.seq))
    }

    /// The row with its current unread count, even while there is a hole.
    pub(super) async fn exact(&self, mut row: CountedRow) -> Result<CountedRow> {
        if row.has_gap() {
            let headers = self.headers_from(&row.conversation_id, row.counted_seq + 1, 1_000).await?;
            let whole = (row.counted_seq + 1..).zip(&headers).all(|(seq, header)| header.message.seq == seq);
            if whole && !headers.is_empty() {
                // The hole is gone: store the count.
                return self.bring_up(row, None).await;
            }
            let unread = headers.iter().filter(|h| h.message.seq > row.read_seq && counts_for(h, row.side));
            row.unread += unread.count() as u64;
        }
        Ok(row)
    }

    /// How many messages for a row's member lie after one seq, up to another.
    pub(super) async fn count_between(&self, row: &CountedRow, after: Seq, up_to: Seq) -> Result<u64> {
        let (mut from, mut counted) = (after + 1, 0);
        while from <= up_to {
            let most = (up_to + 1 - from).min(1_000) as usize;
            let headers = self.stored_from(&row.conversation_id, from, row.cold_up_to, most, Headers).await?;
            let Some(last) = headers.last() else { break };
            from = last.message.seq + 1;
            let within = headers.iter().filter(|h| h.message.seq <= up_to && counts_for(h, row.side));
            counted += within.count() as u64;
        }
        Ok(counted)
    }
}
