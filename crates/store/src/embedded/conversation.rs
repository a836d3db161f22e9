//! The state of one conversation, and how a record changes it.
//!
//! The committer and the replay after a crash both go through [`ConversationState::apply`], so that they come to
//! the same state.

use std::sync::Arc;

use bluetick_protocol::{ConversationId, MessageId, Profile, Seq, Side};

use super::{
    bytes::{ByteReader, FORMAT, Malformed, NEWER, put_str, put_u64, side},
    entry::MessageEntry,
    record::WalRecord,
};
use crate::{ConversationRow, Message, StatusRow};

/// Format 1 has no `notified`: it reads as 0.
const CONV_FORMAT: u8 = 2;

/// A boundary, and how many messages of the other member count as unread up to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Boundary {
    pub seq: Seq,
    pub counted: u64,
}

impl Boundary {
    /// The later of two boundaries.
    pub(super) fn raised_to(self, other: Boundary) -> Boundary {
        if other.seq > self.seq { other } else { self }
    }
}

pub(super) fn put_boundary(out: &mut Vec<u8>, boundary: Boundary) {
    put_u64(out, boundary.seq);
    put_u64(out, boundary.counted);
}

pub(super) fn read_boundary(r: &mut ByteReader<'_>) -> Result<Boundary, Malformed> {
    Ok(Boundary { seq: r.u64()?, counted: r.u64()? })
}

/// The last message in one member's inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LastMessage {
    pub seq: Seq,
    pub ts: u64,
    pub message_id: MessageId,
    pub from: Side,
    pub preview: Preview,
}

/// The preview of a message. Only the last message of many is ever shown, so the text is made when
/// it is read, and when a checkpoint frees the message.
#[derive(Debug, Clone)]
pub(super) enum Preview {
    Text(Arc<str>),
    Of(Arc<Message>),
}

impl Preview {
    pub(super) fn text(&self) -> Arc<str> {
        match self {
            Preview::Text(text) => text.clone(),
            Preview::Of(message) => message.preview().into(),
        }
    }
}

impl From<&str> for Preview {
    fn from(text: &str) -> Preview {
        Preview::Text(text.into())
    }
}

impl PartialEq for Preview {
    fn eq(&self, other: &Preview) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Preview {}

/// One member's `conversations` row (last message; unread from the boundaries), `message_status` row and
/// pending row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Member {
    pub last: Option<LastMessage>,
    pub delivered: Boundary,
    pub read: Boundary,
    pub pending: Option<Seq>,
    /// The messages this member wrote up to this seq were erased.
    pub erased: Seq,
    pub erased_counted: u64,
    /// How many messages this member wrote since, and how many the other had written by then.
    pub written: u64,
    pub peer_written_before: u64,
    /// This member's devices were notified up to this seq.
    pub notified: Seq,
}

/// The state of one conversation: all of its rows but its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConversationState {
    pub id: ConversationId,
    /// The last record applied: a replay skips records up to it.
    pub lsn: u64,
    pub last_seq: Seq,
    pub counted: [u64; 2],
    pub members: [Member; 2],
}

impl ConversationState {
    pub(super) fn new(id: ConversationId) -> ConversationState {
        ConversationState { id, lsn: 0, last_seq: 0, counted: [0; 2], members: Default::default() }
    }

    pub(super) fn member(&self, side: Side) -> &Member {
        &self.members[side.index()]
    }

    pub(super) fn unread(&self, side: Side) -> u64 {
        // Erased messages of the other member never count, wherever the boundary is.
        let read = self.member(side).read.counted.max(self.member(side.other()).erased_counted);
        self.counted[side.other().index()].saturating_sub(read)
    }

    /// Whether the member has acked every message of the other that they may see.
    pub(super) fn has_acked_all(&self, side: Side) -> bool {
        self.member(side).delivered.counted == self.counted[side.other().index()]
    }

    /// Whether the other member wrote a message that this one may see and no device has acked.
    pub(super) fn has_undelivered(&self, side: Side) -> bool {
        let (member, peer) = (self.member(side), self.member(side.other()));
        // Messages from before the member's erasure are not theirs any more.
        let is_theirs = member.delivered.seq >= member.erased || self.has_written_since_erasure(side);
        let acked = member.delivered.counted.max(peer.erased_counted);
        self.last_visible(side) > member.delivered.seq
            && is_theirs
            && self.counted[side.other().index()] > acked
    }

    /// The last seq that a member may see.
    pub(super) fn last_visible(&self, side: Side) -> Seq {
        self.member(side).last.as_ref().map_or(0, |last| last.seq)
    }

    /// The boundary at the end of what a member may see: a receipt never covers withheld messages
    /// behind it.
    pub(super) fn end_boundary(&self, side: Side) -> Boundary {
        Boundary { seq: self.last_visible(side), counted: self.counted[side.other().index()] }
    }

    /// The boundary that a reply moves: its sender has read up to what the client had seen or, if
    /// the client does not say, up to what was delivered (R10). `seen` is that seq and the boundary
    /// there.
    pub(super) fn implied_read(&self, sender: Side, seen: Option<(Seq, Boundary)>) -> Option<Boundary> {
        let member = self.member(sender);
        let boundary = match seen {
            Some((asked, _)) if asked >= self.last_visible(sender) => self.end_boundary(sender),
            Some((_, boundary)) => boundary,
            None => member.delivered,
        };
        Some(boundary).filter(|boundary| boundary.seq > member.read.seq)
    }

    /// Whether `members` lists the conversation for this member.
    pub(super) fn lists(&self, side: Side) -> bool {
        let member = self.member(side);
        let has_row = member.last.is_some() || member.delivered.seq > 0 || member.pending.is_some();
        has_row || self.concerns(side)
    }

    /// Whether messages are left that were not erased with a member.
    pub(super) fn concerns(&self, side: Side) -> bool {
        let member = self.member(side);
        member.written > 0 || self.has_written_since_erasure(side)
    }

    /// The same state with the previews as texts, so that it holds no whole message.
    pub(super) fn with_previews(self: &Arc<ConversationState>) -> Arc<ConversationState> {
        let of_message =
            |member: &Member| matches!(&member.last, Some(LastMessage { preview: Preview::Of(_), .. }));
        if !self.members.iter().any(of_message) {
            return self.clone();
        }
        let mut conv = ConversationState::clone(self);
        let mut written: Option<(Seq, Preview)> = None;
        for last in conv.members.iter_mut().filter_map(|member| member.last.as_mut()) {
            if let Preview::Of(_) = last.preview {
                last.preview = match &written {
                    Some((seq, preview)) if *seq == last.seq => preview.clone(),
                    _ => Preview::Text(last.preview.text()),
                };
                written = Some((last.seq, last.preview.clone()));
            }
        }
        Arc::new(conv)
    }

    /// Applies a record of this conversation.
    pub(super) fn apply(&mut self, record: &WalRecord, lsn: u64) {
        self.lsn = lsn;
        match record {
            WalRecord::Send { entry, pending, implied_read } => {
                self.apply_send(entry, *pending, *implied_read)
            }
            WalRecord::Receipt { side, delivered, read, .. } => {
                let member = &mut self.members[side.index()];
                member.delivered = *delivered;
                member.read = *read;
            }
            WalRecord::Pending { side, row, .. } => self.members[side.index()].pending = *row,
            WalRecord::Erase { side, up_to, .. } => self.apply_erase(*side, *up_to),
            WalRecord::Notified { side, seq, .. } => self.members[side.index()].notified = *seq,
            WalRecord::Profile { .. }
            | WalRecord::Block { .. }
            | WalRecord::EraseUser { .. }
            | WalRecord::Rows(_) => {}
        }
    }

    fn apply_send(&mut self, entry: &MessageEntry, pending: Option<Seq>, implied_read: Option<Boundary>) {
        let m = &entry.message;
        self.last_seq = m.seq;
        self.counted = entry.counted;
        let last = LastMessage {
            seq: m.seq,
            ts: m.ts,
            message_id: m.message_id,
            from: m.from,
            preview: Preview::Of(m.clone()),
        };
        if !m.withheld {
            let receiver = &mut self.members[m.from.other().index()];
            receiver.last = Some(last.clone());
            if let Some(seq) = pending {
                receiver.pending = Some(receiver.pending.map_or(seq, |old| old.min(seq)));
            }
        }
        let sender = &mut self.members[m.from.index()];
        sender.written += 1;
        sender.last = Some(last);
        if let Some(boundary) = implied_read {
            sender.read = sender.read.raised_to(boundary);
            sender.delivered = sender.delivered.raised_to(sender.read);
        }
    }

    fn apply_erase(&mut self, side: Side, up_to: Seq) {
        let peer_written_before = self.member(side.other()).written;
        let erased_counted = self.counted[side.index()];
        self.members[side.index()] =
            Member { erased: up_to, erased_counted, peer_written_before, ..Member::default() };
        let peer = &mut self.members[side.other().index()];
        peer.peer_written_before = 0;
        if peer.written == 0 {
            // The peer's row has nothing left to show.
            peer.last = None;
        } else if let Some(last) = peer.last.as_mut().filter(|last| last.from == side) {
            last.preview = "".into();
        }
    }

    /// Whether a message was erased with its writer, whatever still holds its bytes.
    pub(super) fn has_erased(&self, message: &Message) -> bool {
        !message.void && message.seq <= self.member(message.from).erased
    }

    /// The entry as readers see it: an erased message is void from the moment the erasure is
    /// durable.
    pub(super) fn masked(&self, entry: MessageEntry) -> MessageEntry {
        match self.has_erased(&entry.message) {
            true => entry.voided(),
            false => entry,
        }
    }

    pub(super) fn masked_message(&self, message: Arc<Message>) -> Arc<Message> {
        match self.has_erased(&message) {
            true => Arc::new(message.voided()),
            false => message,
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(CONV_FORMAT);
        put_u64(out, self.lsn);
        put_u64(out, self.last_seq);
        put_u64(out, self.counted[0]);
        put_u64(out, self.counted[1]);
        for member in &self.members {
            put_boundary(out, member.delivered);
            put_boundary(out, member.read);
            put_u64(out, member.pending.unwrap_or(0));
            put_u64(out, member.erased);
            put_u64(out, member.erased_counted);
            put_u64(out, member.written);
            put_u64(out, member.peer_written_before);
            put_u64(out, member.notified);
            match &member.last {
                None => out.push(0),
                Some(last) => {
                    out.push(1 + last.from as u8);
                    put_u64(out, last.seq);
                    put_u64(out, last.ts);
                    put_u64(out, last.message_id.0);
                    put_str(out, &last.preview.text());
                }
            }
        }
    }

    pub(super) fn decode(id: ConversationId, bytes: &[u8]) -> Result<ConversationState, Malformed> {
        let r = &mut ByteReader(bytes);
        let format = r.u8()?;
        if !(FORMAT..=CONV_FORMAT).contains(&format) {
            return Err(NEWER);
        }
        let mut conv = ConversationState::new(id);
        conv.lsn = r.u64()?;
        conv.last_seq = r.u64()?;
        conv.counted = [r.u64()?, r.u64()?];
        for member in &mut conv.members {
            member.delivered = read_boundary(r)?;
            member.read = read_boundary(r)?;
            member.pending = Some(r.u64()?).filter(|&seq| seq != 0);
            member.erased = r.u64()?;
            member.erased_counted = r.u64()?;
            member.written = r.u64()?;
            member.peer_written_before = r.u64()?;
            if format >= 2 {
                member.notified = r.u64()?;
            }
            let kind = r.u8()?;
            if kind != 0 {
                member.last = Some(LastMessage {
                    from: side(kind - 1),
                    seq: r.u64()?,
                    ts: r.u64()?,
                    message_id: MessageId(r.u64()?),
                    preview: r.str()?.into(),
                });
            }
        }
        r.end()?;
        Ok(conv)
    }

    pub(super) fn status_row(&self, side: Side) -> StatusRow {
        let member = self.member(side);
        StatusRow {
            user_id: self.id.member(side),
            conversation_id: self.id.clone(),
            last_delivered_seq: member.delivered.seq,
            last_read_seq: member.read.seq,
        }
    }

    /// Whether the other member wrote anything since this one was erased, withheld messages
    /// included.
    pub(super) fn has_written_since_erasure(&self, side: Side) -> bool {
        self.member(side.other()).written > self.member(side).peer_written_before
    }

    /// Whether the other member wrote something that this one may see: beyond the other's own
    /// erasure, and beyond `counted_at_erasure`, the other's count when this member was erased.
    pub(super) fn peer_wrote(&self, side: Side, counted_at_erasure: u64) -> bool {
        let erased = self.member(side.other()).erased_counted.max(counted_at_erasure);
        self.counted[side.other().index()] > erased
    }

    /// The member's `conversations` row. `peer` is the other's profile, if this member may see it.
    pub(super) fn row(&self, side: Side, peer: Option<Profile>) -> Option<ConversationRow> {
        let last = self.member(side).last.as_ref()?;
        let peer_wrote = peer.is_some();
        let peer = peer.unwrap_or_default();
        Some(ConversationRow {
            user_id: self.id.member(side),
            conversation_id: self.id.clone(),
            peer_id: self.id.member(side.other()),
            peer_wrote,
            peer_name: peer.name,
            avatar_url: peer.avatar_url,
            last_message_preview: last.preview.text().to_string(),
            last_message_ts: last.ts,
            last_seq: last.seq,
            last_sender: self.id.member(last.from),
            unread_count: self.unread(side),
        })
    }
}
