//! What one `conversations` row counts and shows. No I/O: rows in, rows out.
//!
//! Two fields keep `unread_count` exact although writers overtake each other (R11): every message
//! up to `counted_seq` is in the count, and none up to `read_seq` is. A message is added only if
//! the row has counted the one before it; a writer that finds a gap reads the messages and counts
//! them. `version` changes with every write, so that a row is replaced only if it is still as it
//! was read.

use bluetick_protocol::{ConversationId, MessageId, Profile, Seq, Side, UserId};

use super::{
    item::{Attributes as _, Item, ItemKey, flag, key, n, s},
    messages::StoredMessage,
};
use crate::{ActiveConversation, ConversationRow, Result};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct CountedRow {
    pub conversation_id: ConversationId,
    pub side: Side,
    /// 0 while there is no row.
    pub version: u64,
    /// The last message shown to this member; `None` in a row that the inbox does not show.
    pub shown: Option<LastShown>,
    pub peer: Profile,
    pub unread: u64,
    pub counted_seq: Seq,
    /// The last message that was counted for this member; a read up to it leaves nothing unread.
    pub counted_last: Seq,
    pub read_seq: Seq,
    /// The last seq when this member was erased: the row shows only what came after.
    pub erased_up_to: Seq,
    /// The member wrote, or was sent, something that the row does not show; for an erasure to find.
    pub concerned: bool,
    /// The last seq in a cold run. Hot rows up to here may be dropped, so no seq up to here is free
    /// (R8).
    pub cold_up_to: Seq,
    /// The conversation is listed in `cold_due`.
    pub cold_listed: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct LastShown {
    pub last_seq: Seq,
    pub ts: u64,
    pub preview: String,
    pub sender: UserId,
    pub message_id: MessageId,
}

pub(super) fn row_key(user: &UserId, conversation: &ConversationId) -> ItemKey {
    key([("user_id", s(user)), ("conversation_id", s(conversation))])
}

impl CountedRow {
    pub fn none(conversation_id: &ConversationId, side: Side) -> CountedRow {
        CountedRow {
            conversation_id: conversation_id.clone(),
            side,
            version: 0,
            shown: None,
            peer: Profile::default(),
            unread: 0,
            counted_seq: 0,
            counted_last: 0,
            read_seq: 0,
            erased_up_to: 0,
            concerned: false,
            cold_up_to: 0,
            cold_listed: false,
        }
    }

    pub fn user(&self) -> UserId {
        self.conversation_id.member(self.side)
    }

    pub fn key(&self) -> ItemKey {
        row_key(&self.user(), &self.conversation_id)
    }

    pub fn last_seq(&self) -> Seq {
        self.shown.as_ref().map_or(0, |shown| shown.last_seq)
    }

    /// Whether it shows messages that it has not counted, because there is a hole before them.
    pub fn has_gap(&self) -> bool {
        self.last_seq() > self.counted_seq
    }

    /// Whether the peer has written something that this member may see. What is shown after a hole
    /// is not counted yet.
    pub fn peer_wrote(&self) -> bool {
        let peer = || self.conversation_id.member(self.side.other());
        self.counted_last > 0
            || (self.has_gap() && self.shown.as_ref().is_some_and(|shown| shown.sender == peer()))
    }

    /// Counts and shows messages in order. After a hole, messages are shown but not counted.
    pub fn take_in(&mut self, messages: &[StoredMessage]) {
        for stored in messages {
            let message = &stored.message;
            if message.seq == self.counted_seq + 1 {
                self.counted_seq = message.seq;
                if counts_for(stored, self.side) {
                    self.counted_last = message.seq;
                    self.unread += u64::from(message.seq > self.read_seq);
                }
            }
            self.show(stored, message.ts);
        }
    }

    /// Shows a message if it reached this member and is newer than what is shown.
    pub fn show(&mut self, stored: &StoredMessage, ts: u64) {
        let message = &stored.message;
        let reached = !stored.hole && (!message.withheld || message.from == self.side);
        let newer = message.seq > self.last_seq().max(self.erased_up_to);
        // A void alone shows nothing; after other messages it is the last one.
        if reached && newer && (!message.void || self.shown.is_some()) {
            self.shown = Some(LastShown {
                last_seq: message.seq,
                // Nodes' clocks differ, but an inbox position never moves back.
                ts: ts.max(self.shown.as_ref().map_or(0, |shown| shown.ts)),
                preview: message.preview(),
                sender: message.sender(),
                message_id: message.message_id,
            });
        }
        self.concerned |= !message.void && message.seq > self.erased_up_to;
    }

    pub fn to_item(&self) -> Item {
        let mut item = self.key();
        let mut put = |name: &str, value| item.insert(name.to_owned(), value);
        put("peer_id", s(self.conversation_id.member(self.side.other())));
        put("unread_count", n(self.unread));
        put("counted_seq", n(self.counted_seq));
        put("counted_last", n(self.counted_last));
        put("read_seq", n(self.read_seq));
        put("version", n(self.version));
        for (name, text) in [("peer_name", &self.peer.name), ("avatar_url", &self.peer.avatar_url)] {
            if let Some(text) = text {
                put(name, s(text));
            }
        }
        if self.erased_up_to > 0 {
            put("erased_up_to", n(self.erased_up_to));
        }
        if self.cold_up_to > 0 {
            put("cold_up_to", n(self.cold_up_to));
        }
        for (name, on) in [("concerned", self.concerned), ("cold_listed", self.cold_listed)] {
            if on {
                put(name, flag());
            }
        }
        if let Some(shown) = &self.shown {
            put("last_seq", n(shown.last_seq));
            put("last_message_ts", n(shown.ts));
            put("last_message_preview", s(&shown.preview));
            put("last_sender", s(&shown.sender));
            put("last_message_id", n(shown.message_id.0));
        }
        item
    }

    pub fn from_item(item: &Item, conversation_id: &ConversationId, side: Side) -> Result<CountedRow> {
        let shown = match item.number("last_seq") {
            Some(last_seq) => Some(LastShown {
                last_seq,
                ts: item.need_number("last_message_ts")?,
                preview: item.owned("last_message_preview").unwrap_or_default(),
                sender: item.user("last_sender")?,
                message_id: item.message_id("last_message_id")?,
            }),
            None => None,
        };
        Ok(CountedRow {
            conversation_id: conversation_id.clone(),
            side,
            version: item.need_number("version")?,
            shown,
            peer: Profile { name: item.owned("peer_name"), avatar_url: item.owned("avatar_url") },
            unread: item.seq("unread_count"),
            counted_seq: item.seq("counted_seq"),
            counted_last: item.seq("counted_last"),
            read_seq: item.seq("read_seq"),
            erased_up_to: item.seq("erased_up_to"),
            concerned: item.has("concerned"),
            cold_up_to: item.seq("cold_up_to"),
            cold_listed: item.has("cold_listed"),
        })
    }

    /// Parses a row together with the user whose it is.
    pub fn of_user(item: &Item, user: &UserId) -> Result<CountedRow> {
        let conversation_id = item.conversation()?;
        let side = conversation_id
            .side_of(user)
            .ok_or_else(|| super::item::damaged("conversation_id", "the user is no member of it"))?;
        CountedRow::from_item(item, &conversation_id, side)
    }

    /// The row as the inbox shows it; `None` if it does not.
    pub fn into_public(self) -> Option<ConversationRow> {
        let user_id = self.user();
        let peer_wrote = self.peer_wrote();
        // The copies are there from the start, and shown once the peer has written.
        let peer = if peer_wrote { self.peer } else { Profile::default() };
        let peer_id = self.conversation_id.member(self.side.other());
        let shown = self.shown?;
        Some(ConversationRow {
            user_id,
            peer_id,
            conversation_id: self.conversation_id,
            peer_wrote,
            peer_name: peer.name,
            avatar_url: peer.avatar_url,
            last_message_preview: shown.preview,
            last_message_ts: shown.ts,
            last_seq: shown.last_seq,
            last_sender: shown.sender,
            unread_count: self.unread,
        })
    }

    pub fn as_active(&self) -> Option<ActiveConversation> {
        self.shown.as_ref().map(|shown| ActiveConversation {
            conversation_id: self.conversation_id.clone(),
            last_seq: shown.last_seq,
            last_message_id: shown.message_id,
        })
    }
}

/// Whether a message counts as unread for this side.
pub(super) fn counts_for(stored: &StoredMessage, side: Side) -> bool {
    let message = &stored.message;
    message.from != side && !message.void && !message.withheld && !stored.hole
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bluetick_protocol::ClientMsgId;

    use super::*;
    use crate::Message;

    fn stored(seq: Seq, from: Side, change: impl Fn(&mut Message)) -> StoredMessage {
        let mut message = Message {
            conversation_id: ConversationId::new("alice~bob").unwrap(),
            seq,
            message_id: MessageId(seq),
            client_msg_id: ClientMsgId::new("c").unwrap(),
            from,
            body: format!("m{seq}"),
            ts: seq * 10,
            attachment: None,
            meta: None,
            withheld: false,
            void: false,
        };
        change(&mut message);
        StoredMessage { message: Arc::new(message), hole: false }
    }

    fn bobs() -> CountedRow {
        CountedRow::none(&ConversationId::new("alice~bob").unwrap(), Side::High)
    }

    #[test]
    fn nothing_is_counted_behind_a_hole_and_all_of_it_once_it_is_filled() {
        let plain = |seq| stored(seq, Side::Low, |_| ());
        let mut row = bobs();
        row.take_in(&[plain(1), plain(3)]);
        assert_eq!((row.unread, row.counted_seq, row.last_seq(), row.has_gap()), (1, 1, 3, true));
        row.take_in(&[plain(2), plain(3)]);
        assert_eq!((row.unread, row.counted_seq, row.last_seq(), row.has_gap()), (3, 3, 3, false));
        row.take_in(&[plain(2), plain(3)]);
        assert_eq!(row.unread, 3, "what was counted is not counted again");
    }

    #[test]
    fn own_void_withheld_and_read_messages_do_not_count() {
        let mut row = bobs();
        row.read_seq = 1;
        row.take_in(&[
            stored(1, Side::Low, |_| ()),
            stored(2, Side::High, |_| ()),
            stored(3, Side::Low, |m| m.withheld = true),
            stored(4, Side::Low, |m| m.void = true),
            stored(5, Side::Low, |_| ()),
        ]);
        assert_eq!((row.unread, row.counted_seq, row.last_seq()), (1, 5, 5));
    }

    #[test]
    fn a_row_survives_the_table() {
        let mut row = bobs();
        assert_eq!(CountedRow::from_item(&row.to_item(), &row.conversation_id, row.side).unwrap(), row);
        row.take_in(&[stored(1, Side::Low, |_| ()), stored(2, Side::Low, |m| m.withheld = true)]);
        row.peer = Profile { name: Some("Alice".into()), avatar_url: Some("https://a".into()) };
        (row.version, row.read_seq, row.erased_up_to) = (7, 1, 1);
        (row.cold_up_to, row.cold_listed) = (1, true);
        assert_eq!(CountedRow::from_item(&row.to_item(), &row.conversation_id, row.side).unwrap(), row);
    }
}
