//! The seam between a gateway, which holds sockets and no data, and an app server, which holds data's rules and no
//! sockets. Requests are owned and serialisable, so that they can be called directly in one process or sent to any
//! app server when the roles are apart.

use std::{future::Ready, sync::Arc};

use async_trait::async_trait;
use bluetick_protocol::{
    ConversationId, DeviceId, Download, Head, HistoryPage, HistoryQuery, InboxPage, InboxQuery, MessageId,
    Mute, Presence, Profile, PushDeviceCard, PushRegistration, S3Ref, Send as SendFrame, Sent, Seq,
    SessionId, StatusAnswer, Ticks, Typing, Upload, UploadRequest, UploadedParts, UserCard, UserId,
    WireError, limits,
};
use bluetick_store::{Message, SessionEntry};
use futures_util::future::{BoxFuture, Either};
use serde::{Deserialize, Serialize};

pub type AppResult<T> = Result<T, WireError>;

/// Sends of one user, in the order they were written.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SendRequest {
    pub user: UserId,
    /// The session they came through, which is told `sent` and needs no copy.
    pub session: Option<SessionId>,
    pub sends: Vec<SendFrame>,
}

/// What a session that has just registered must deliver (R1, R6).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlanRequest {
    pub user: UserId,
    /// What the device said it holds; nothing for a new one.
    pub cursor: Option<MessageId>,
    /// Whether this is a session's first plan: it also wants the heads of conversations, for its `caught_up`.
    pub heads: bool,
    /// The rest of a plan whose `more` named this conversation: what no device has acked behind it, and nothing else.
    #[serde(default)]
    pub undelivered_after: Option<ConversationId>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    pub lanes: Vec<PlanLane>,
    /// The heads of the user's newest conversations, for the client to see what it lacks.
    pub heads: Vec<Head>,
    /// What a device may call its cursor once everything planned has reached it.
    pub cursor: MessageId,
    /// From where on conversations without a pending row are read.
    pub since: MessageId,
    /// Why the cursor could not be served, if it could not.
    pub reset: Option<String>,
    /// There are more conversations with messages that no device has acked: they come in a further plan, behind this
    /// conversation, once these lanes are drained.
    #[serde(default)]
    pub more: Option<ConversationId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanLane {
    pub conversation_id: ConversationId,
    /// Whether messages newer than `since` must be looked for, whatever the row says.
    pub resume: bool,
    /// The pending row, if there is one: drained in full from there. A lane with neither begins at the first message
    /// that no device has acked.
    pub row: Option<Seq>,
    pub last_seq: Seq,
}

/// Where a read of a conversation begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadFrom {
    Seq(Seq),
    /// At the first message newer than `since`, or at `at_most` if that comes before it.
    Since {
        since: MessageId,
        at_most: Seq,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RangeRequest {
    pub user: UserId,
    pub conversation_id: ConversationId,
    pub from: ReadFrom,
    pub max_messages: usize,
    /// Most bytes of bodies, beyond the first message.
    #[serde(default = "page_max_bytes")]
    pub max_bytes: usize,
}

/// What a process of an earlier version asks for.
fn page_max_bytes() -> usize {
    limits::PAGE_MAX_BYTES
}

/// Consecutive messages of a conversation, without holes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MessageRange {
    pub first_seq: Seq,
    /// Only what this user may see; the seqs between are void or withheld.
    pub messages: Vec<Arc<Message>>,
    /// The seq after the last one covered.
    pub next_seq: Seq,
    pub last_seq: Seq,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReceiptRequest {
    pub user: UserId,
    pub session: Option<SessionId>,
    pub conversation_id: ConversationId,
    pub seq: Seq,
    /// It was asked before, and nobody knows what came of it: what was stored then may not have been told.
    #[serde(default)]
    pub again: bool,
}

/// All that was drained for a row is acked: remove it (R4).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SettleRequest {
    pub user: UserId,
    pub conversation_id: ConversationId,
    /// The row's value as it was read.
    pub row: Seq,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// The row that is there now, if it was not the expected one.
    pub row: Option<Seq>,
    /// Read after the row was removed: what lies beyond the acked is still to be delivered.
    pub last_seq: Seq,
}

/// What a closing session had taken and not seen acked (R5).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DebtsRequest {
    pub user: UserId,
    pub debts: Vec<Debt>,
    /// The session goes on: its device has not acked in time, and counts as gone (R14).
    #[serde(default)]
    pub overdue: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Debt {
    pub conversation_id: ConversationId,
    /// A seq, unless the session ended before it was found where its reading begins.
    pub first_unacked: ReadFrom,
    pub row: Option<Seq>,
}

/// What an app server does for gateways and HTTP handlers.
#[async_trait]
pub trait App: Send + Sync {
    async fn send(&self, request: SendRequest) -> Vec<AppResult<Sent>>;
    async fn plan(&self, request: PlanRequest) -> AppResult<Plan>;
    async fn read_range(&self, request: RangeRequest) -> AppResult<MessageRange>;
    async fn pending_row(&self, user: UserId, conversation: ConversationId) -> AppResult<Option<Seq>>;
    async fn ack(&self, request: ReceiptRequest) -> AppResult<()>;
    async fn read(&self, request: ReceiptRequest) -> AppResult<()>;
    async fn settle(&self, request: SettleRequest) -> AppResult<Settled>;
    /// Returns the debts that could not be paid.
    async fn pay_debts(&self, request: DebtsRequest) -> AppResult<Vec<Debt>>;
    async fn typing(&self, user: UserId, conversation: ConversationId) -> AppResult<()>;
    async fn inbox(&self, user: UserId, query: InboxQuery) -> AppResult<InboxPage>;
    async fn history(&self, user: UserId, query: HistoryQuery) -> AppResult<HistoryPage>;
    async fn status(&self, user: UserId, conversation: ConversationId) -> AppResult<StatusAnswer>;
    /// Sets whom a session watches, and tells how they are now.
    async fn watch(&self, watcher: SessionEntry, users: Vec<UserId>) -> AppResult<Vec<Presence>>;
    /// Tells the watchers that a user came or went.
    async fn presence_changed(&self, user: UserId, online: bool) -> AppResult<()>;
    /// Tells sessions that they end, wherever they are, as far as they can be reached.
    async fn end_sessions(&self, sessions: Vec<SessionEntry>, why: WireError);
    /// From when on the user's tokens count, in seconds since 1970; `None` where nothing was revoked.
    async fn not_before(&self, user: UserId) -> AppResult<Option<u64>>;
    async fn profile(&self, user: UserId) -> AppResult<UserCard>;
    async fn put_profile(&self, user: UserId, profile: Profile) -> AppResult<UserCard>;
    /// Takes the profile that the user's token carries, where profiles come from tokens.
    async fn token_profile(&self, user: UserId, profile: Profile) -> AppResult<()>;
    /// Another user's card: only of those who have written to one and do not block one.
    async fn user_card(&self, user: UserId, other: UserId) -> AppResult<UserCard>;
    async fn set_block(&self, user: UserId, other: UserId, blocked: bool) -> AppResult<()>;
    async fn blocks(&self, user: UserId) -> AppResult<Vec<UserId>>;
    async fn put_push(
        &self,
        user: UserId,
        device: DeviceId,
        registration: PushRegistration,
    ) -> AppResult<PushDeviceCard>;
    async fn delete_push(&self, user: UserId, device: DeviceId) -> AppResult<()>;
    async fn push_devices(&self, user: UserId) -> AppResult<Vec<PushDeviceCard>>;
    async fn mute(&self, user: UserId, mute: Mute) -> AppResult<()>;
    async fn unmute(&self, user: UserId, conversation: ConversationId) -> AppResult<()>;
    async fn mutes(&self, user: UserId) -> AppResult<Vec<Mute>>;
    async fn begin_upload(&self, user: UserId, request: UploadRequest) -> AppResult<Upload>;
    async fn complete_upload(&self, user: UserId, s3_ref: S3Ref, parts: UploadedParts) -> AppResult<()>;
    /// Only for members of a conversation whose messages refer to it.
    async fn download(
        &self,
        user: UserId,
        conversation: ConversationId,
        s3_ref: S3Ref,
    ) -> AppResult<Download>;
}

/// What an app server hands to a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum SessionEvent {
    /// Messages of one conversation, as they were sent; one that was sent again may be among them once more.
    Messages {
        messages: Arc<[Arc<Message>]>,
        /// A pending row was, or may have been, written for them: the session is to look for the row and settle it.
        row_written: bool,
        /// The session that sent them, which needs no copy.
        origin: Option<SessionId>,
    },
    /// A pending row was written for this conversation: look again (R2).
    Wake {
        conversation_id: ConversationId,
    },
    Ticks(Ticks),
    /// What the session's own ack came to: it is in no hurry to hear of it.
    OwnTicks(Ticks),
    Typing(Typing),
    Presence(Presence),
    /// End the session with this reason.
    Close(WireError),
}

/// Whether a gateway had the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandOver {
    Taken,
    /// No such session, or it is closing: a miss (R12).
    Refused,
    /// The gateway is of another version and does not know this event: a miss, and no reason to forget the session.
    NotUnderstood,
}

/// How an app server reaches the gateway that holds a session.
pub trait Gateways: Send + Sync {
    /// Hands an event to a session. An error or a missed deadline counts as refused.
    fn hand_over(&self, to: &SessionEntry, event: SessionEvent) -> HandingOver;
}

/// A session of this process answers at once. One of another process answers later; its future owns what it needs, so
/// that it can go on after the request that began it is answered.
pub type HandingOver = Either<Ready<HandOver>, BoxFuture<'static, HandOver>>;
