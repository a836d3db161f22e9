//! The records of the write-ahead log, one for each write, and their encoding.

use bluetick_protocol::{ConversationId, Profile, Seq, Side, UserId};

use super::{
    bytes::{ByteReader, FORMAT, Malformed, check_format, put_str, put_u64, side},
    conversation::{Boundary, put_boundary, read_boundary},
    entry::MessageEntry,
    rows::{self, RowChange},
    user_row::{profile, put_profile},
};

/// A record holds values, not intentions: applying it gives the same rows in every version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WalRecord {
    Send {
        entry: MessageEntry,
        pending: Option<Seq>,
        implied_read: Option<Boundary>,
    },
    /// Both boundaries of a member after the write.
    Receipt {
        id: ConversationId,
        side: Side,
        delivered: Boundary,
        read: Boundary,
    },
    /// The pending row of a member after the write.
    Pending {
        id: ConversationId,
        side: Side,
        row: Option<Seq>,
    },
    /// Everything a member wrote up to a seq is void, and their rows are gone.
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
    /// The seq up to which a member's devices were notified, after the write.
    Notified {
        id: ConversationId,
        side: Side,
        seq: Seq,
    },
    /// Small rows after the write.
    Rows(Vec<RowChange>),
}

impl WalRecord {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(FORMAT);
        match self {
            WalRecord::Send { entry, pending, implied_read } => {
                out.push(1);
                put_str(out, entry.message.conversation_id.as_str());
                put_u64(out, pending.unwrap_or(0));
                put_boundary(out, implied_read.unwrap_or_default());
                entry.encode(out);
            }
            WalRecord::Receipt { id, side, delivered, read } => {
                put_member(out, 2, id, *side);
                put_boundary(out, *delivered);
                put_boundary(out, *read);
            }
            WalRecord::Pending { id, side, row } => {
                put_member(out, 3, id, *side);
                put_u64(out, row.unwrap_or(0));
            }
            WalRecord::Erase { id, side, up_to } => {
                put_member(out, 4, id, *side);
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
                put_member(out, 8, id, *side);
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
                let implied_read = Some(read_boundary(r)?).filter(|m| m.seq != 0);
                WalRecord::Send { entry: MessageEntry::read(&id, r)?, pending, implied_read }
            }
            2 => WalRecord::Receipt {
                id: r.conversation()?,
                side: side(r.u8()?),
                delivered: read_boundary(r)?,
                read: read_boundary(r)?,
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
            _ => return Err(Malformed("a kind of record that this version does not know")),
        };
        r.end()?;
        Ok(record)
    }
}

/// The kind of a record about one member of a conversation, and which member.
fn put_member(out: &mut Vec<u8>, kind: u8, id: &ConversationId, side: Side) {
    out.push(kind);
    put_str(out, id.as_str());
    out.push(side as u8);
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
