//! The frames of the wire, one struct each. `docs/protocol.md` shows every one with an example.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::value::RawValue;

use crate::{ClientMsgId, ConversationId, DeviceId, ErrorCode, MessageId, Seq, SessionId, UserId, WireError};

/// Chosen by the client and returned unchanged in the answer: a string or an integer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub enum Ref {
    Number(i64),
    Text(String),
}

impl<'de> Deserialize<'de> for Ref {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Ref;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an integer")
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Ref, E> {
                Ok(Ref::Number(number))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Ref, E> {
                i64::try_from(number)
                    .map(Ref::Number)
                    .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &self))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Ref, E> {
                Ok(Ref::Text(text.to_owned()))
            }
        }
        d.deserialize_any(Visitor)
    }
}

/// JSON that Bluetick passes on without reading it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Json(pub Arc<RawValue>);

impl Json {
    #[inline]
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    pub fn from_text(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str::<Box<RawValue>>(text).map(|raw| Json(raw.into()))
    }

    /// Whether both have the same value, whatever the spaces and the order of keys.
    pub fn same_value(&self, other: &Json) -> bool {
        let value = |json: &Json| serde_json::from_str::<serde_json::Value>(json.as_str()).ok();
        self == other || value(self).is_some_and(|own| value(other) == Some(own))
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Json {}

// ---- from the client ----

/// Opens a session; the first frame, within the hello deadline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Ref>,
    pub token: String,
    pub device: DeviceId,
    /// The message_id up to which this device holds everything; absent on a new device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<MessageId>,
    /// The session before this one, if the client still has all that it acked there: set after a lost connection, not
    /// after a restart, which may have lost more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes: Option<SessionId>,
}

/// A fresh token for the running session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Auth {
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Ref>,
    pub token: String,
}

/// A message to send: `to` or `conversation_id`, and a body or an attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Send {
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub reference: Option<Ref>,
    /// Chosen by the client. The same id always means the same message; with other content it is refused.
    pub client_msg_id: ClientMsgId,
    /// The receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub to: Option<UserId>,
    /// Instead of `to`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub conversation_id: Option<ConversationId>,
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(example = "hello"))]
    pub body: String,
    /// An attachment uploaded before: `s3_ref`, and optionally `blurhash`, `thumbnail` and `voice`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::Attachment>, nullable = false))]
    pub attachment: Option<Json>,
    /// Anything else that the client wants to send along: an object of at most 4096 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>, nullable = false))]
    pub meta: Option<Json>,
    /// How far the sender had read when writing this: a reply implies read. Over HTTP, nothing counts as read
    /// without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, nullable = false))]
    pub seen_seq: Option<Seq>,
}

/// Delivered up to here, or read up to here: cumulative.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Ref>,
    pub conversation_id: ConversationId,
    pub seq: Seq,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InConversation {
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Ref>,
    pub conversation_id: ConversationId,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxQuery {
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Ref>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The opaque `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryQuery {
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Ref>,
    pub conversation_id: ConversationId,
    /// Messages after this seq, oldest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_seq: Option<Seq>,
    /// Messages before this seq: the page that ends there. Neither: the newest page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_seq: Option<Seq>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Ref>,
    /// Replaces the users that this session watched before.
    pub users: Vec<UserId>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ping {
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Ref>,
}

// ---- from the server ----

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Ref>,
    pub user_id: UserId,
    pub device: DeviceId,
    pub session_id: SessionId,
    pub server_time: u64,
    pub heartbeat_secs: u64,
    pub max_body_bytes: usize,
}

/// The position of a stored message: the single tick.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Sent {
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub reference: Option<Ref>,
    pub client_msg_id: ClientMsgId,
    pub conversation_id: ConversationId,
    /// The position in the conversation: 1, 2, 3 …
    #[cfg_attr(feature = "openapi", schema(value_type = u64, example = 1))]
    pub seq: Seq,
    pub message_id: MessageId,
    /// Milliseconds since 1970.
    pub ts: u64,
    /// Whether this `client_msg_id` was sent before. The answer is then the original one.
    pub duplicate: bool,
}

/// A message as its two members see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Message))]
pub struct MessageFrame {
    pub conversation_id: ConversationId,
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub seq: Seq,
    pub message_id: MessageId,
    pub client_msg_id: ClientMsgId,
    pub sender: UserId,
    pub receiver: UserId,
    pub body: String,
    /// Milliseconds since 1970.
    pub ts: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::Attachment>, nullable = false))]
    pub attachment: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>, nullable = false))]
    pub meta: Option<Json>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub conversation_id: ConversationId,
    pub last_seq: Seq,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaughtUp {
    pub cursor: MessageId,
    pub heads: Vec<Head>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reset {
    pub reason: String,
}

/// How far a member has received and read a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticks {
    pub conversation_id: ConversationId,
    /// The member whose boundaries these are.
    pub user_id: UserId,
    pub last_delivered_seq: Seq,
    pub last_read_seq: Seq,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Typing {
    pub conversation_id: ConversationId,
    pub user_id: UserId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    pub user_id: UserId,
    pub online: bool,
    /// When the user was last connected, in milliseconds since 1970; null if never, or if hidden.
    pub last_seen: Option<u64>,
}

/// How far a member has received and read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Boundaries {
    /// Messages up to here have the double tick.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub last_delivered_seq: Seq,
    /// Messages up to here have the blue tick.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub last_read_seq: Seq,
}

/// Who a user is, as far as the host application said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UserCard {
    pub user_id: UserId,
    pub name: Option<String>,
    pub avatar_url: Option<String>,
}

/// A conversation in the inbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InboxEntry {
    pub conversation_id: ConversationId,
    pub peer: UserCard,
    pub last_message_preview: String,
    /// Milliseconds since 1970.
    pub last_message_ts: u64,
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub last_seq: Seq,
    pub last_sender: UserId,
    /// Messages from the peer after the last one read.
    pub unread_count: u64,
    /// The peer's boundaries, for the ticks of one's own last message. Zeros where the last message is the peer's.
    pub peer_status: Boundaries,
}

/// A page of the inbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InboxPage {
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub reference: Option<Ref>,
    pub conversations: Vec<InboxEntry>,
    /// Give it as `before` for the next page; null at the end.
    pub next: Option<String>,
}

/// A page of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HistoryPage {
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub reference: Option<Ref>,
    pub conversation_id: ConversationId,
    /// In the order of `seq`.
    pub messages: Vec<MessageFrame>,
    /// The range of this page. A seq from `from_seq` to `to_seq` without a message is void.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub from_seq: Seq,
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub to_seq: Seq,
    /// The next page in the same direction: give it as `before_seq`, or as `after_seq` if that was asked; null at
    /// the end.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub next: Option<Seq>,
}

/// Both members' boundaries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StatusAnswer {
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub reference: Option<Ref>,
    pub conversation_id: ConversationId,
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub last_seq: Seq,
    pub unread_count: u64,
    /// The asking user's.
    pub own: Boundaries,
    /// The other member's: these make the ticks.
    pub peer: Boundaries,
}

/// The answer to requests that return nothing else, when they carried a `ref`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    #[serde(rename = "ref")]
    pub reference: Ref,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorFrame {
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Ref>,
    #[serde(flatten)]
    pub error: WireError,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bye {
    pub code: ErrorCode,
    pub reason: String,
    pub reconnect_after_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pong {
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Ref>,
    pub server_time: u64,
}

/// Everything a server may send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ServerFrame {
    Welcome(Welcome),
    Sent(Sent),
    Message(MessageFrame),
    CaughtUp(CaughtUp),
    Reset(Reset),
    Ticks(Ticks),
    Typing(Typing),
    Presence(Presence),
    Inbox(InboxPage),
    History(HistoryPage),
    Status(StatusAnswer),
    Done(Done),
    Error(ErrorFrame),
    Bye(Bye),
    Pong(Pong),
}

impl ServerFrame {
    /// The frame as it goes over the wire.
    pub fn to_text(&self) -> String {
        let text = match self {
            ServerFrame::Sent(sent) => return crate::write::sent(sent),
            ServerFrame::Ticks(ticks) => return crate::write::ticks(ticks),
            // Every field is a string, a number or JSON that was parsed before: writing them cannot fail.
            other => serde_json::to_string(other),
        };
        text.unwrap_or_else(|e| {
            let message = format!("this frame could not be written: {e}");
            let error = WireError::new(ErrorCode::Internal, message.replace(['"', '\\'], "'"));
            format!(r#"{{"type":"error","code":"internal","message":"{}"}}"#, error.message)
        })
    }
}

// ---- over HTTP only ----

/// One's own profile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Profile {
    /// At most 128 bytes.
    #[serde(default)]
    pub name: Option<String>,
    /// At most 1024 bytes.
    #[serde(default)]
    pub avatar_url: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    pub error: WireError,
}
