//! The contents of a store as records, to be moved into another store and compared there.

use std::sync::Arc;

use bluetick_protocol::{
    ClientMsgId, ConversationId, MessageId, Mute, Profile, PushRegistration, PushTarget, S3Ref, Seq, Side,
    UserId,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::{AttachmentRow, DeviceRow, Message, OwedPush, PendingRow, StatusRow};

/// One record of one system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A message; `hole` marks a void that closed a hole.
    Message {
        message: Arc<Message>,
        hole: bool,
    },
    SentId(SentId),
    Pending(PendingRow),
    /// A user's boundaries in a conversation. At least one is not zero: `notified` may be set
    /// before the first ack.
    Status {
        row: StatusRow,
        notified: Seq,
    },
    Conversation(MemberRow),
    Profile {
        user_id: UserId,
        profile: Profile,
    },
    Block {
        user_id: UserId,
        blocked: UserId,
        /// The blocker's profile as the blocked user still sees it.
        profile: Profile,
    },
    Device(DeviceRow),
    Mute {
        user_id: UserId,
        mute: Mute,
    },
    /// The time before which the user's tokens are revoked, in seconds since 1970.
    NotBefore {
        user_id: UserId,
        secs: u64,
    },
    Owed(OwedPush),
    Attachment(AttachmentRow),
    /// A message of a conversation refers to an attachment.
    Claim {
        s3_ref: S3Ref,
        conversation_id: ConversationId,
    },
}

/// An idempotency record: which message a `client_msg_id` became, and until when that is remembered
/// (R9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentId {
    pub conversation_id: ConversationId,
    pub from: Side,
    pub client_msg_id: ClientMsgId,
    pub seq: Seq,
    pub message_id: MessageId,
    /// In seconds since 1970.
    pub expires_at: u64,
}

/// One member's `conversations` row, with the fields that keep its count exact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRow {
    pub conversation_id: ConversationId,
    pub side: Side,
    /// The last message shown to this member; `None` in a row that the inbox does not show.
    pub shown: Option<ShownMessage>,
    pub peer: Profile,
    pub unread: u64,
    /// Every message up to here is in the count.
    pub counted_seq: Seq,
    /// The last message that was counted for this member, since they were erased if they were; 0 if
    /// none was.
    pub counted_last: Seq,
    /// No message up to here is in the count.
    pub read_seq: Seq,
    /// The last seq when this member was erased.
    pub erased_up_to: Seq,
    /// The conversation holds messages that were not erased with this member.
    pub concerned: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownMessage {
    pub seq: Seq,
    pub ts: u64,
    pub preview: String,
    pub sender: UserId,
    pub message_id: MessageId,
}

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContentKind {
    Messages,
    SentIds,
    PendingDeliveries,
    MessageStatus,
    Conversations,
    Profiles,
    Blocks,
    Devices,
    Mutes,
    PushOutbox,
    Attachments,
    AttachmentClaims,
    NotBefore,
}

impl ContentKind {
    pub const ALL: [ContentKind; 13] = [
        ContentKind::Messages,
        ContentKind::SentIds,
        ContentKind::PendingDeliveries,
        ContentKind::MessageStatus,
        ContentKind::Conversations,
        ContentKind::Profiles,
        ContentKind::Blocks,
        ContentKind::Devices,
        ContentKind::Mutes,
        ContentKind::PushOutbox,
        ContentKind::Attachments,
        ContentKind::AttachmentClaims,
        ContentKind::NotBefore,
    ];

    pub fn name(self) -> &'static str {
        match self {
            ContentKind::Messages => "messages",
            ContentKind::SentIds => "sent_ids",
            ContentKind::PendingDeliveries => "pending_deliveries",
            ContentKind::MessageStatus => "message_status",
            ContentKind::Conversations => "conversations",
            ContentKind::Profiles => "profiles",
            ContentKind::Blocks => "blocks",
            ContentKind::Devices => "devices",
            ContentKind::Mutes => "mutes",
            ContentKind::PushOutbox => "push_outbox",
            ContentKind::Attachments => "attachments",
            ContentKind::AttachmentClaims => "attachment_claims",
            ContentKind::NotBefore => "not_before",
        }
    }
}

impl Content {
    pub fn kind(&self) -> ContentKind {
        match self {
            Content::Message { .. } => ContentKind::Messages,
            Content::SentId(_) => ContentKind::SentIds,
            Content::Pending(_) => ContentKind::PendingDeliveries,
            Content::Status { .. } => ContentKind::MessageStatus,
            Content::Conversation(_) => ContentKind::Conversations,
            Content::Profile { .. } => ContentKind::Profiles,
            Content::Block { .. } => ContentKind::Blocks,
            Content::Device(_) => ContentKind::Devices,
            Content::Mute { .. } => ContentKind::Mutes,
            Content::NotBefore { .. } => ContentKind::NotBefore,
            Content::Owed(_) => ContentKind::PushOutbox,
            Content::Attachment(_) => ContentKind::Attachments,
            Content::Claim { .. } => ContentKind::AttachmentClaims,
        }
    }

    /// A readable key, unique within its kind. Only a `client_msg_id`, which comes last, may
    /// contain a space.
    pub fn key(&self) -> String {
        match self {
            Content::Message { message, .. } => format!("{} {}", message.conversation_id, message.seq),
            Content::SentId(id) => {
                let sender = id.conversation_id.member(id.from);
                format!("{} {sender} {}", id.conversation_id, id.client_msg_id)
            }
            Content::Pending(row) => format!("{} {}", row.receiver_id, row.conversation_id),
            Content::Status { row, .. } => format!("{} {}", row.user_id, row.conversation_id),
            Content::Conversation(row) => {
                format!("{} {}", row.conversation_id.member(row.side), row.conversation_id)
            }
            Content::Profile { user_id, .. } | Content::NotBefore { user_id, .. } => user_id.to_string(),
            Content::Block { user_id, blocked, .. } => format!("{user_id} {blocked}"),
            Content::Device(row) => format!("{} {}", row.user_id, row.device),
            Content::Mute { user_id, mute } => format!("{user_id} {}", mute.conversation_id),
            Content::Owed(owed) => format!("{} {}", owed.user_id, owed.conversation_id),
            Content::Attachment(row) => row.s3_ref.to_string(),
            Content::Claim { s3_ref, conversation_id } => format!("{s3_ref} {conversation_id}"),
        }
    }

    /// A digest of the record that does not depend on the store it was read from.
    pub fn digest(&self) -> u64 {
        let mut bytes = Vec::with_capacity(256);
        self.encode(&mut bytes);
        xxh3_64(&bytes)
    }

    /// An estimate of its size in bytes.
    pub fn weight(&self) -> usize {
        match self {
            Content::Message { message, .. } => message.weight(),
            _ => 256,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.kind() as u8);
        text(out, &self.key());
        match self {
            Content::Message { message, hole } => {
                number(out, message.message_id.0);
                text(out, message.client_msg_id.as_str());
                number(out, message.from.index() as u64);
                text(out, &message.body);
                number(out, message.ts);
                for json in [&message.attachment, &message.meta] {
                    optional(out, json.as_ref().map(|json| json.as_str()));
                }
                out.extend([message.withheld, message.void, *hole].map(u8::from));
            }
            Content::SentId(id) => {
                number(out, id.seq);
                number(out, id.message_id.0);
                number(out, id.expires_at);
            }
            Content::Pending(row) => number(out, row.first_undelivered_seq),
            Content::Status { row, notified } => {
                for n in [row.last_delivered_seq, row.last_read_seq, *notified] {
                    number(out, n);
                }
            }
            Content::Conversation(row) => {
                for n in [row.unread, row.counted_seq, row.counted_last, row.read_seq, row.erased_up_to] {
                    number(out, n);
                }
                out.extend([row.concerned, row.shown.is_some()].map(u8::from));
                if let Some(shown) = &row.shown {
                    for n in [shown.seq, shown.ts, shown.message_id.0] {
                        number(out, n);
                    }
                    text(out, &shown.preview);
                    text(out, shown.sender.as_str());
                }
                profile(out, &row.peer);
            }
            Content::Profile { profile: kept, .. } => profile(out, kept),
            Content::Block { profile: frozen, .. } => profile(out, frozen),
            Content::NotBefore { secs, .. } => number(out, *secs),
            Content::Device(row) => {
                number(out, row.registered_at);
                registration(out, &row.registration);
            }
            Content::Mute { mute, .. } => {
                out.push(u8::from(mute.until.is_some()));
                number(out, mute.until.unwrap_or_default());
            }
            Content::Owed(owed) => {
                for n in [owed.seq, u64::from(owed.clear), u64::from(owed.attempts), owed.due_at] {
                    number(out, n);
                }
                for device in &owed.devices {
                    text(out, device.as_str());
                }
            }
            Content::Attachment(row) => {
                for given in [row.owner.as_str(), &row.name, &row.mime, &row.sha256] {
                    text(out, given);
                }
                number(out, row.bytes);
                optional(out, row.upload_id.as_deref());
                out.extend([row.state as u8, u8::from(row.claimed)]);
            }
            Content::Claim { .. } => {}
        }
    }
}

fn number(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(&n.to_le_bytes());
}

fn text(out: &mut Vec<u8>, text: &str) {
    number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn optional(out: &mut Vec<u8>, given: Option<&str>) {
    out.push(u8::from(given.is_some()));
    text(out, given.unwrap_or_default());
}

fn profile(out: &mut Vec<u8>, profile: &Profile) {
    optional(out, profile.name.as_deref());
    optional(out, profile.avatar_url.as_deref());
}

fn registration(out: &mut Vec<u8>, kept: &PushRegistration) {
    text(out, kept.target.provider().as_str());
    text(out, kept.target.address());
    match &kept.target {
        PushTarget::Apns { topic, sandbox, .. } => {
            optional(out, topic.as_deref());
            out.push(u8::from(*sandbox));
        }
        PushTarget::Webpush { subscription } => {
            text(out, &subscription.keys.p256dh);
            text(out, &subscription.keys.auth);
        }
        PushTarget::Fcm { .. } | PushTarget::Webhook { .. } => {}
    }
    out.push(kept.content as u8);
}

/// A position in a walk over a store's contents: everything before it has been read. A walk that
/// starts here reads the record here once more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WalkPlace {
    /// At a message; all conversations before it are done.
    Conversation { id: ConversationId, seq: Seq },
    /// At a user; all conversations are done.
    User(UserId),
    /// At an attachment; all users are done.
    Attachment(S3Ref),
}

/// A page of records in the order of a walk.
#[derive(Debug, Clone)]
pub struct WalkPage {
    pub contents: Vec<Content>,
    /// The position of the last of them.
    pub place: WalkPlace,
}

impl WalkPage {
    pub fn messages(&self) -> u64 {
        self.contents.iter().filter(|content| content.kind() == ContentKind::Messages).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use bluetick_protocol::{DeviceId, PushContent};

    use super::*;
    use crate::UploadState;

    #[test]
    fn records_that_differ_anywhere_have_other_digests() {
        let (user_id, other) = (UserId::new("alice").unwrap(), UserId::new("bob").unwrap());
        let profile = |name: Option<&str>, avatar_url: Option<&str>| Content::Profile {
            user_id: user_id.clone(),
            profile: Profile { name: name.map(Into::into), avatar_url: avatar_url.map(Into::into) },
        };
        let id = ConversationId::between(&user_id, &other).unwrap();
        let status = |last_read_seq, notified| Content::Status {
            row: StatusRow {
                user_id: user_id.clone(),
                conversation_id: id.clone(),
                last_delivered_seq: last_read_seq,
                last_read_seq,
            },
            notified,
        };
        let mute = |until| Content::Mute {
            user_id: user_id.clone(),
            mute: Mute { conversation_id: id.clone(), until },
        };
        let not_before = |secs| Content::NotBefore { user_id: user_id.clone(), secs };
        let device_id = |name: &str| DeviceId::new(name).unwrap();
        let device = |target, content| {
            Content::Device(DeviceRow {
                user_id: user_id.clone(),
                device: device_id("phone"),
                registration: PushRegistration { target, content },
                registered_at: 7,
            })
        };
        let owed = |seq, clear, devices: &[&str]| {
            Content::Owed(OwedPush {
                user_id: user_id.clone(),
                conversation_id: id.clone(),
                seq,
                clear,
                attempts: 0,
                devices: devices.iter().map(|name| device_id(name)).collect(),
                due_at: 9,
            })
        };
        let s3_ref = S3Ref::new(&"0".repeat(32)).unwrap();
        let attachment = |change: fn(&mut AttachmentRow)| {
            let mut row = AttachmentRow {
                s3_ref: s3_ref.clone(),
                owner: user_id.clone(),
                name: "a".into(),
                mime: "a".into(),
                bytes: 1,
                sha256: "a".into(),
                upload_id: None,
                state: UploadState::Uploaded,
                claimed: false,
            };
            change(&mut row);
            Content::Attachment(row)
        };
        let records = [
            profile(None, None),
            profile(Some(""), None),
            profile(None, Some("")),
            profile(Some("ab"), None),
            profile(Some("a"), Some("b")),
            Content::Block { user_id: user_id.clone(), blocked: other.clone(), profile: Profile::default() },
            Content::Block {
                user_id: user_id.clone(),
                blocked: other.clone(),
                profile: Profile { name: Some("a".into()), avatar_url: None },
            },
            Content::Block { user_id: other, blocked: user_id.clone(), profile: Profile::default() },
            status(1, 0),
            status(0, 1),
            mute(None),
            mute(Some(0)),
            mute(Some(1)),
            not_before(1),
            not_before(2),
            device(PushTarget::Fcm { token: "t".into() }, PushContent::Sender),
            device(PushTarget::Fcm { token: "t".into() }, PushContent::None),
            device(PushTarget::Webhook { token: "t".into() }, PushContent::None),
            device(PushTarget::Apns { token: "t".into(), topic: None, sandbox: false }, PushContent::None),
            device(PushTarget::Apns { token: "t".into(), topic: None, sandbox: true }, PushContent::None),
            owed(1, false, &[]),
            owed(1, true, &[]),
            owed(2, false, &["phone"]),
            owed(2, false, &["pho", "ne"]),
            attachment(|_| ()),
            attachment(|row| row.name = "b".into()),
            attachment(|row| row.mime = "b".into()),
            attachment(|row| row.bytes = 2),
            attachment(|row| row.upload_id = Some("u".into())),
            attachment(|row| row.state = UploadState::Collecting),
            attachment(|row| row.claimed = true),
            Content::Claim { s3_ref: s3_ref.clone(), conversation_id: id.clone() },
        ];
        for (n, one) in records.iter().enumerate() {
            assert_eq!(one.digest(), one.clone().digest());
            assert!(records[..n].iter().all(|other| other.digest() != one.digest()), "{one:?}");
        }
    }
}
