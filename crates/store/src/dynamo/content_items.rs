//! Records of another store as rows of the tables.

use super::{
    attachments::{item_key, row_item},
    commit::sent_id,
    devices::device_item,
    item::{Item, key, n, s},
    messages::message_item,
    pending::pending_key,
    push_outbox::owed_item,
    row::{CountedRow, LastShown, row_key},
    tables::Table,
    users::{block_item, mute_item, not_before_item, profile_item},
};
use crate::{Content, MemberRow, Result, SentId};

/// A record as a row of its table.
pub(super) fn item_of(content: Content) -> Result<(Table, Item)> {
    Ok(match content {
        Content::Message { message, hole } => (Table::Messages, message_item(&message, hole)),
        Content::SentId(SentId { conversation_id, from, client_msg_id, seq, message_id, expires_at }) => {
            let id = sent_id(&conversation_id, from, client_msg_id.as_str());
            let item = key([
                ("sent_id", s(id)),
                ("seq", n(seq)),
                ("message_id", n(message_id.0)),
                ("expires_at", n(expires_at)),
            ]);
            (Table::SentIds, item)
        }
        Content::Pending(row) => {
            let mut item = pending_key(&row.receiver_id, &row.conversation_id);
            item.insert("first_undelivered_seq".into(), n(row.first_undelivered_seq));
            (Table::PendingDeliveries, item)
        }
        Content::Status { row, notified } => {
            let mut item = row_key(&row.user_id, &row.conversation_id);
            if row.last_delivered_seq > 0 {
                item.insert("last_delivered_seq".into(), n(row.last_delivered_seq));
                item.insert("last_read_seq".into(), n(row.last_read_seq));
            }
            if notified > 0 {
                item.insert("last_notified_seq".into(), n(notified));
            }
            (Table::MessageStatus, item)
        }
        Content::Conversation(row) => (Table::Conversations, CountedRow::from(row).to_item()),
        Content::Profile { user_id, profile } => (Table::Users, profile_item(&user_id, &profile)),
        Content::Block { user_id, blocked, profile } => {
            (Table::Users, block_item(&user_id, &blocked, &profile))
        }
        Content::Device(row) => (Table::Devices, device_item(&row)?),
        Content::Mute { user_id, mute } => (Table::Users, mute_item(&user_id, &mute)),
        Content::NotBefore { user_id, secs } => (Table::Users, not_before_item(&user_id, secs)),
        Content::Owed(owed) => (Table::PushOutbox, owed_item(&owed)),
        Content::Attachment(row) => (Table::Attachments, row_item(&row)),
        Content::Claim { s3_ref, conversation_id } => {
            (Table::Attachments, item_key(&s3_ref, conversation_id))
        }
    })
}

impl From<MemberRow> for CountedRow {
    fn from(row: MemberRow) -> CountedRow {
        CountedRow {
            conversation_id: row.conversation_id,
            side: row.side,
            version: 1,
            shown: row.shown.map(|shown| LastShown {
                last_seq: shown.seq,
                ts: shown.ts,
                preview: shown.preview,
                sender: shown.sender,
                message_id: shown.message_id,
            }),
            peer: row.peer,
            unread: row.unread,
            counted_seq: row.counted_seq,
            counted_last: row.counted_last,
            read_seq: row.read_seq,
            erased_up_to: row.erased_up_to,
            concerned: row.concerned,
            // `Loader::enlist` lists the conversations for the cold tier afterwards.
            cold_up_to: 0,
            cold_listed: false,
        }
    }
}
