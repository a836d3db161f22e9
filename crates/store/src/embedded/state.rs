//! The rows of one conversation as they are in memory, and how a record changes them. The committer, the replay
//! after a crash and nothing else go through [`Conv::apply`], so that both come to the same rows.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use bluetick_protocol::{Boundaries, ClientMsgId, ConversationId, MessageId, Profile, Seq, Side, UserId};

use super::{
    bytes::{ByteReader, Malformed, put_opt, put_str, put_u64},
    rows::{self, RowChange},
};
use crate::{ConversationRow, Message, StatusRow};

/// Every record and row starts with it. A reader refuses what is newer than it knows.
pub(super) const FORMAT: u8 = 1;
/// The rows of a conversation. In format 1 nobody was notified of anything.
const CONV_FORMAT: u8 = 2;
/// A user who has changed their profile since they blocked somebody. In format 1 the copies of all whom they block are
/// the profile itself.
const USER_FORMAT: u8 = 2;

/// A message as the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MessageEntry {
    pub message: Arc<Message>,
    /// How many messages that count as unread for the other side each member had written up to and including
    /// this one. The difference of two entries is an exact unread count, without reading what lies between (R11).
    pub counted: [u64; 2],
}

impl MessageEntry {
    /// The same position with nothing in it.
    pub(super) fn voided(&self) -> MessageEntry {
        MessageEntry { message: Arc::new(self.message.voided()), counted: self.counted }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let m = &self.message;
        out.push(FORMAT);
        out.push(m.from as u8 | u8::from(m.withheld) << 1 | u8::from(m.void) << 2);
        put_u64(out, m.seq);
        put_u64(out, m.message_id.0);
        put_u64(out, m.ts);
        put_u64(out, self.counted[0]);
        put_u64(out, self.counted[1]);
        put_str(out, m.client_msg_id.as_str());
        put_str(out, &m.body);
        put_opt(out, m.attachment.as_ref().map(|j| j.as_str()));
        put_opt(out, m.meta.as_ref().map(|j| j.as_str()));
    }

    /// Those of a value of `messages` with a seq in a range: one follows another.
    pub(super) fn of_run<'a>(
        id: &'a ConversationId,
        run: &'a [u8],
        seqs: Range<Seq>,
    ) -> impl Iterator<Item = Result<MessageEntry, Malformed>> + 'a {
        let mut r = ByteReader(run);
        std::iter::from_fn(move || {
            while !r.0.is_empty() {
                match MessageEntry::read_if(id, &mut r, |seq| seqs.contains(&seq)) {
                    Ok(Some(entry)) => return Some(Ok(entry)),
                    Ok(None) => {}
                    Err(malformed) => {
                        r.0 = &[];
                        return Some(Err(malformed));
                    }
                }
            }
            None
        })
    }

    fn read(id: &ConversationId, r: &mut ByteReader<'_>) -> Result<MessageEntry, Malformed> {
        MessageEntry::read_if(id, r, |_| true)?.ok_or(Malformed("no message"))
    }

    /// Reads one, and makes it only if it is wanted.
    fn read_if(
        id: &ConversationId,
        r: &mut ByteReader<'_>,
        wanted: impl FnOnce(Seq) -> bool,
    ) -> Result<Option<MessageEntry>, Malformed> {
        check_format(r)?;
        let flags = r.u8()?;
        let seq = r.u64()?;
        let message_id = MessageId(r.u64()?);
        let ts = r.u64()?;
        let counted = [r.u64()?, r.u64()?];
        let (client_msg_id, body) = (r.str()?, r.str()?);
        if !wanted(seq) {
            r.opt()?;
            r.opt()?;
            return Ok(None);
        }
        let message = Message {
            conversation_id: id.clone(),
            seq,
            message_id,
            client_msg_id: ClientMsgId::new(client_msg_id).map_err(|_| Malformed("not a client_msg_id"))?,
            from: side(flags & 1),
            body: body.to_owned(),
            ts,
            attachment: r.json()?,
            meta: r.json()?,
            withheld: flags & 2 != 0,
            void: flags & 4 != 0,
        };
        Ok(Some(MessageEntry { message: Arc::new(message), counted }))
    }
}

const NEWER: Malformed = Malformed("written by a newer version of bluetick");

pub(super) fn check_format(r: &mut ByteReader<'_>) -> Result<(), Malformed> {
    match r.u8()? {
        FORMAT => Ok(()),
        _ => Err(NEWER),
    }
}

fn side(bit: u8) -> Side {
    if bit == 0 { Side::Low } else { Side::High }
}

/// What the log says. Values, not intentions: a record applied by a later version gives the same rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WalRecord {
    Send {
        entry: MessageEntry,
        pending: Option<Seq>,
        implied_read: Option<Mark>,
    },
    /// Both boundaries of a member, as they are after it.
    Receipt {
        id: ConversationId,
        side: Side,
        delivered: Mark,
        read: Mark,
    },
    /// The pending row of a member, as it is after it.
    Pending {
        id: ConversationId,
        side: Side,
        row: Option<Seq>,
    },
    /// Everything a member wrote up to here is void, and their rows are gone.
    Erase {
        id: ConversationId,
        side: Side,
        up_to: Seq,
    },
    Profile {
        user: UserId,
        profile: Profile,
    },
    Block {
        user: UserId,
        other: UserId,
        blocked: bool,
    },
    EraseUser {
        user: UserId,
    },
    /// Up to where a member's devices were notified, as it is after it.
    Notified {
        id: ConversationId,
        side: Side,
        seq: Seq,
    },
    /// Small rows, as they are after it.
    Rows(Vec<RowChange>),
}

/// A boundary, and how many of the other side's messages count up to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Mark {
    pub seq: Seq,
    pub counted: u64,
}

impl Mark {
    /// The later of two boundaries.
    pub(super) fn raised_to(self, other: Mark) -> Mark {
        if other.seq > self.seq { other } else { self }
    }
}

impl WalRecord {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(FORMAT);
        match self {
            WalRecord::Send { entry, pending, implied_read } => {
                out.push(1);
                put_str(out, entry.message.conversation_id.as_str());
                put_u64(out, pending.unwrap_or(0));
                put_mark(out, implied_read.unwrap_or_default());
                entry.encode(out);
            }
            WalRecord::Receipt { id, side, delivered, read } => {
                out.push(2);
                put_str(out, id.as_str());
                out.push(*side as u8);
                put_mark(out, *delivered);
                put_mark(out, *read);
            }
            WalRecord::Pending { id, side, row } => {
                out.push(3);
                put_str(out, id.as_str());
                out.push(*side as u8);
                put_u64(out, row.unwrap_or(0));
            }
            WalRecord::Erase { id, side, up_to } => {
                out.push(4);
                put_str(out, id.as_str());
                out.push(*side as u8);
                put_u64(out, *up_to);
            }
            WalRecord::Profile { user, profile } => {
                out.push(5);
                put_str(out, user.as_str());
                put_profile(out, profile);
            }
            WalRecord::Block { user, other, blocked } => {
                out.push(6);
                put_str(out, user.as_str());
                put_str(out, other.as_str());
                out.push(u8::from(*blocked));
            }
            WalRecord::EraseUser { user } => {
                out.push(7);
                put_str(out, user.as_str());
            }
            WalRecord::Notified { id, side, seq } => {
                out.push(8);
                put_str(out, id.as_str());
                out.push(*side as u8);
                put_u64(out, *seq);
            }
            WalRecord::Rows(changes) => {
                out.push(9);
                rows::put_changes(out, changes);
            }
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<WalRecord, Malformed> {
        let r = &mut ByteReader(bytes);
        check_format(r)?;
        let record = match r.u8()? {
            1 => {
                let id = r.conversation()?;
                let pending = Some(r.u64()?).filter(|&seq| seq != 0);
                let implied_read = Some(mark(r)?).filter(|m| m.seq != 0);
                WalRecord::Send { entry: MessageEntry::read(&id, r)?, pending, implied_read }
            }
            2 => WalRecord::Receipt {
                id: r.conversation()?,
                side: side(r.u8()?),
                delivered: mark(r)?,
                read: mark(r)?,
            },
            3 => WalRecord::Pending {
                id: r.conversation()?,
                side: side(r.u8()?),
                row: Some(r.u64()?).filter(|&seq| seq != 0),
            },
            4 => WalRecord::Erase { id: r.conversation()?, side: side(r.u8()?), up_to: r.u64()? },
            5 => WalRecord::Profile { user: r.user()?, profile: profile(r)? },
            6 => WalRecord::Block { user: r.user()?, other: r.user()?, blocked: r.u8()? != 0 },
            7 => WalRecord::EraseUser { user: r.user()? },
            8 => WalRecord::Notified { id: r.conversation()?, side: side(r.u8()?), seq: r.u64()? },
            9 => WalRecord::Rows(rows::changes(r)?),
            _ => return Err(Malformed("a kind of record this version does not know")),
        };
        r.end()?;
        Ok(record)
    }
}

fn put_mark(out: &mut Vec<u8>, mark: Mark) {
    put_u64(out, mark.seq);
    put_u64(out, mark.counted);
}

fn mark(r: &mut ByteReader<'_>) -> Result<Mark, Malformed> {
    Ok(Mark { seq: r.u64()?, counted: r.u64()? })
}

fn put_profile(out: &mut Vec<u8>, profile: &Profile) {
    put_opt(out, profile.name.as_deref());
    put_opt(out, profile.avatar_url.as_deref());
}

fn profile(r: &mut ByteReader<'_>) -> Result<Profile, Malformed> {
    Ok(Profile { name: r.opt()?.map(str::to_owned), avatar_url: r.opt()?.map(str::to_owned) })
}

/// What one member's inbox shows as the last message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Last {
    pub seq: Seq,
    pub ts: u64,
    pub message_id: MessageId,
    pub from: Side,
    pub preview: Preview,
}

/// How a message begins. Of many messages only the last is ever shown, so it is written out when somebody looks, and when a
/// checkpoint lets go of the messages themselves.
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

/// One member's rows: `conversations` (last, and unread by the marks), `message_status`, `pending_deliveries`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Member {
    pub last: Option<Last>,
    pub delivered: Mark,
    pub read: Mark,
    pub pending: Option<Seq>,
    /// Messages this member wrote up to here were erased.
    pub erased: Seq,
    pub erased_counted: u64,
    /// How many messages this member wrote since, and the other had written by then.
    pub written: u64,
    pub peer_written_before: u64,
    /// This member's devices were notified up to here.
    pub notified: Seq,
}

/// All rows of one conversation but its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conv {
    pub id: ConversationId,
    /// The last record that these rows include: a replay skips what they already have.
    pub lsn: u64,
    pub last_seq: Seq,
    pub counted: [u64; 2],
    pub members: [Member; 2],
}

impl Conv {
    pub(super) fn new(id: ConversationId) -> Conv {
        Conv { id, lsn: 0, last_seq: 0, counted: [0; 2], members: Default::default() }
    }

    pub(super) fn member(&self, side: Side) -> &Member {
        &self.members[side.index()]
    }

    pub(super) fn unread(&self, side: Side) -> u64 {
        // What the other side wrote and was erased counts for nothing, wherever the boundary is.
        let read = self.member(side).read.counted.max(self.member(side.other()).erased_counted);
        self.counted[side.other().index()].saturating_sub(read)
    }

    /// Whether the other side's messages were all acked, but for those that a member may not see.
    pub(super) fn has_acked_all(&self, side: Side) -> bool {
        self.member(side).delivered.counted == self.counted[side.other().index()]
    }

    /// Whether the other side has written something that a member may see and no device of theirs has acked.
    pub(super) fn has_undelivered(&self, side: Side) -> bool {
        let (member, peer) = (self.member(side), self.member(side.other()));
        // Nothing that was written before the member was erased is theirs any more.
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

    /// A boundary at the end of what a member may see: a receipt never covers what is withheld behind it.
    pub(super) fn end_mark(&self, side: Side) -> Mark {
        Mark { seq: self.last_visible(side), counted: self.counted[side.other().index()] }
    }

    pub(super) fn boundaries(&self, side: Side) -> Boundaries {
        let member = self.member(side);
        Boundaries { last_delivered_seq: member.delivered.seq, last_read_seq: member.read.seq }
    }

    /// Whether a user's list of conversations has this one.
    pub(super) fn lists(&self, side: Side) -> bool {
        let member = self.member(side);
        let has_row = member.last.is_some() || member.delivered.seq > 0 || member.pending.is_some();
        has_row || self.concerns(side)
    }

    /// Whether something is left of it that was not erased with a member.
    pub(super) fn concerns(&self, side: Side) -> bool {
        let member = self.member(side);
        member.written > 0 || self.has_written_since_erasure(side)
    }

    /// The same rows with the beginnings of the last messages written out, so that they keep no whole message.
    pub(super) fn with_previews(self: &Arc<Conv>) -> Arc<Conv> {
        let of_message = |member: &Member| matches!(&member.last, Some(Last { preview: Preview::Of(_), .. }));
        if !self.members.iter().any(of_message) {
            return self.clone();
        }
        let mut conv = Conv::clone(self);
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

    /// Changes the rows as a conversation's record says.
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

    fn apply_send(&mut self, entry: &MessageEntry, pending: Option<Seq>, implied_read: Option<Mark>) {
        let m = &entry.message;
        self.last_seq = m.seq;
        self.counted = entry.counted;
        let last = Last {
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
        if let Some(mark) = implied_read {
            sender.read = sender.read.raised_to(mark);
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
            // Nothing is left that the peer's row could show.
            peer.last = None;
        } else if let Some(last) = peer.last.as_mut().filter(|last| last.from == side) {
            last.preview = "".into();
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(CONV_FORMAT);
        put_u64(out, self.lsn);
        put_u64(out, self.last_seq);
        put_u64(out, self.counted[0]);
        put_u64(out, self.counted[1]);
        for member in &self.members {
            put_mark(out, member.delivered);
            put_mark(out, member.read);
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

    pub(super) fn decode(id: ConversationId, bytes: &[u8]) -> Result<Conv, Malformed> {
        let r = &mut ByteReader(bytes);
        let format = r.u8()?;
        if !(FORMAT..=CONV_FORMAT).contains(&format) {
            return Err(NEWER);
        }
        let mut conv = Conv::new(id);
        conv.lsn = r.u64()?;
        conv.last_seq = r.u64()?;
        conv.counted = [r.u64()?, r.u64()?];
        for member in &mut conv.members {
            member.delivered = mark(r)?;
            member.read = mark(r)?;
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
                member.last = Some(Last {
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
        let Boundaries { last_delivered_seq, last_read_seq } = self.boundaries(side);
        StatusRow {
            user_id: self.id.member(side),
            conversation_id: self.id.clone(),
            last_delivered_seq,
            last_read_seq,
        }
    }

    /// Whether the other member has written anything since this one was erased, withheld messages included.
    pub(super) fn has_written_since_erasure(&self, side: Side) -> bool {
        self.member(side.other()).written > self.member(side).peer_written_before
    }

    /// Whether the other member has written something that this one may see: more than what was erased with its writer,
    /// and more than `counted_at_erasure`, the other's count when this member was erased.
    pub(super) fn peer_wrote(&self, side: Side, counted_at_erasure: u64) -> bool {
        let erased = self.member(side.other()).erased_counted.max(counted_at_erasure);
        self.counted[side.other().index()] > erased
    }

    /// The member's `conversations` row, with the peer's card, if this member may see it.
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

/// What is kept of a user outside conversations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct UserRow {
    pub profile: Profile,
    /// Whom they block, each with the profile as it was at that moment; nothing where it has not changed since.
    pub blocked: BTreeMap<UserId, Option<Arc<Profile>>>,
}

impl UserRow {
    /// The profile as another user's inbox shows it.
    pub(super) fn profile_for(&self, other: &UserId) -> &Profile {
        match self.blocked.get(other) {
            Some(Some(frozen)) => frozen,
            _ => &self.profile,
        }
    }

    pub(super) fn apply(&mut self, record: &WalRecord) {
        match record {
            WalRecord::Profile { profile, .. } => {
                if *profile != self.profile && !self.blocked.is_empty() {
                    let before = Arc::new(self.profile.clone());
                    for frozen in self.blocked.values_mut() {
                        frozen.get_or_insert_with(|| before.clone());
                    }
                }
                self.profile = profile.clone();
            }
            WalRecord::Block { other, blocked: true, .. } => {
                self.blocked.entry(other.clone()).or_default();
            }
            WalRecord::Block { other, blocked: false, .. } => {
                self.blocked.remove(other);
            }
            WalRecord::EraseUser { .. } => *self = UserRow::default(),
            _ => {}
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        // Many blocks share a profile: each is written once, and the blocks name its place.
        let mut profiles: Vec<&Profile> = Vec::new();
        let mut places: BTreeMap<(Option<&str>, Option<&str>), u64> = BTreeMap::new();
        for frozen in self.blocked.values().flatten() {
            places.entry((frozen.name.as_deref(), frozen.avatar_url.as_deref())).or_insert_with(|| {
                profiles.push(frozen);
                profiles.len() as u64
            });
        }
        let plain = profiles.is_empty();
        out.push(if plain { FORMAT } else { USER_FORMAT });
        put_profile(out, &self.profile);
        if !plain {
            put_u64(out, profiles.len() as u64);
            for profile in profiles {
                put_profile(out, profile);
            }
        }
        put_u64(out, self.blocked.len() as u64);
        for (user, frozen) in &self.blocked {
            put_str(out, user.as_str());
            if !plain {
                let place = frozen.as_ref().and_then(|frozen| {
                    places.get(&(frozen.name.as_deref(), frozen.avatar_url.as_deref())).copied()
                });
                put_u64(out, place.unwrap_or(0));
            }
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<UserRow, Malformed> {
        let r = &mut ByteReader(bytes);
        let format = r.u8()?;
        if !(FORMAT..=USER_FORMAT).contains(&format) {
            return Err(NEWER);
        }
        let current = profile(r)?;
        let mut profiles = Vec::new();
        if format >= 2 {
            for _ in 0..r.u64()? {
                profiles.push(Arc::new(profile(r)?));
            }
        }
        let count = r.u64()?;
        let mut blocked = BTreeMap::new();
        for _ in 0..count {
            let user = r.user()?;
            let place = if format >= 2 { r.u64()? } else { 0 };
            let frozen = match place.checked_sub(1) {
                None => None,
                Some(at) => {
                    let known = usize::try_from(at).ok().and_then(|at| profiles.get(at));
                    Some(known.ok_or(Malformed("a block names a profile that is not there"))?.clone())
                }
            };
            blocked.insert(user, frozen);
        }
        r.end()?;
        Ok(UserRow { profile: current, blocked })
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
