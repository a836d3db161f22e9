//! The interface between a gateway, which holds sockets and no data, and an app server, which holds data and no
//! sockets.
//!
//! [`App`] is what an app server does: one small trait for each file of this crate that implements operations. The
//! table below is the one definition of an operation. From it come the trait's method, the request between two
//! processes ([`ClusterRequest`]), its dispatch on the serving side ([`ClusterRequest::run_on`]) and the calling side
//! ([`RemoteApp`]).
//!
//! To add an operation, add a line to a trait of the table, implement the method for
//! [`ChatService`](crate::ChatService) in the file that the trait names, and add its text to the test
//! `every_request_keeps_its_text`.

#[macro_use]
mod operations;
mod hand_over;
mod remote;
mod requests;

use async_trait::async_trait;
use bluetick_protocol::{
    ConversationId, DeviceId, Download, HistoryPage, HistoryQuery, InboxPage, InboxQuery, Mute, Presence,
    Profile, PushDeviceCard, PushRegistration, S3Ref, Sent, Seq, StatusAnswer, Upload, UploadRequest,
    UploadedParts, UserCard, UserId, WireError,
};
use bluetick_store::SessionEntry;
use serde::{Deserialize, Serialize};

use crate::AdminCall;

pub use hand_over::{Gateways, HandOver, HandingOver, SessionEvent};
pub use remote::{RemoteApp, Transport, is_unavailable, unavailable};
pub use requests::*;

pub type AppResult<T> = Result<T, WireError>;

/// Everything that an app server does for gateways and HTTP handlers.
pub trait App:
    SendApi
    + PlanApi
    + RangeApi
    + SettleApi
    + ReceiptApi
    + InboxApi
    + HistoryApi
    + PresenceApi
    + SessionApi
    + RevocationApi
    + UserApi
    + PushApi
    + AttachmentApi
{
}

impl<T> App for T where
    T: SendApi
        + PlanApi
        + RangeApi
        + SettleApi
        + ReceiptApi
        + InboxApi
        + HistoryApi
        + PresenceApi
        + SessionApi
        + RevocationApi
        + UserApi
        + PushApi
        + AttachmentApi
{
}

/// Sends messages (`send.rs`). Not in the table, because each send of a request has a result of its own.
#[async_trait]
pub trait SendApi: Send + Sync {
    /// Stores the messages and delivers them. The answers are in the order of the sends.
    async fn send(&self, request: SendRequest) -> Vec<AppResult<Sent>>;
}

/// Ends sessions (`revocation.rs`). Not in the table, because there is no result: a session that cannot be reached
/// notices with its next heartbeat.
#[async_trait]
pub trait SessionApi: Send + Sync {
    /// Tells sessions to end, on any gateway, as far as they can be reached.
    async fn end_sessions(&self, sessions: Vec<SessionEntry>, why: WireError);
}

operations! {
    /// A request from one process of a cluster to another. The answer is the JSON of an `AppResult<T>`.
    ///
    /// Names and shapes are the wire format: processes of two versions must understand each other.
    pub enum ClusterRequest {
        /// [`SendApi::send`].
        Send(SendRequest),
        /// [`SessionApi::end_sessions`].
        EndSessions(Vec<SessionEntry>, WireError),
        /// [`Gateways::hand_over`]: for a gateway, not for an app server.
        HandOver(SessionEntry, SessionEvent),
        /// [`Operator::run`](crate::Operator::run).
        Admin(AdminCall),
    }

    /// Finds what a session must deliver (`plan.rs`).
    pub trait PlanApi {
        /// Lists the conversations that a session has to read after it registered.
        async fn plan(&self, request: PlanRequest) -> AppResult<Plan> => Plan;
    }

    /// Reads messages for delivery (`range.rs`).
    pub trait RangeApi {
        /// Reads consecutive messages of a conversation, without holes.
        async fn read_range(&self, request: RangeRequest) -> AppResult<MessageRange> => ReadRange;
    }

    /// Reads, removes and moves pending rows (`settle.rs`).
    pub trait SettleApi {
        /// The first seq of the conversation that is pending for the user.
        async fn pending_row(&self, user: UserId, conversation: ConversationId) -> AppResult<Option<Seq>>
            => PendingRow;
        /// Removes a pending row whose messages are all acked.
        async fn settle(&self, request: SettleRequest) -> AppResult<Settled> => Settle;
        /// Writes the pending rows of a session that ends. Returns the debts that could not be paid.
        async fn pay_debts(&self, request: DebtsRequest) -> AppResult<Vec<Debt>> => PayDebts;
    }

    /// Takes receipts (`ack.rs`).
    pub trait ReceiptApi {
        /// A device holds everything up to this seq: the double tick.
        async fn ack(&self, request: ReceiptRequest) -> AppResult<()> => Ack;
        /// The user has seen everything up to this seq: the blue tick.
        async fn read(&self, request: ReceiptRequest) -> AppResult<()> => Read;
    }

    /// Shows conversations (`inbox.rs`).
    pub trait InboxApi {
        async fn inbox(&self, user: UserId, query: InboxQuery) -> AppResult<InboxPage> => Inbox;
        async fn status(&self, user: UserId, conversation: ConversationId) -> AppResult<StatusAnswer>
            => Status;
    }

    /// Shows messages (`history.rs`).
    pub trait HistoryApi {
        async fn history(&self, user: UserId, query: HistoryQuery) -> AppResult<HistoryPage> => History;
    }

    /// Who is online and who is typing (`presence.rs`).
    pub trait PresenceApi {
        async fn typing(&self, user: UserId, conversation: ConversationId) -> AppResult<()> => Typing;
        /// Sets which users a session watches, and returns their current presence.
        async fn watch(&self, watcher: SessionEntry, users: Vec<UserId>) -> AppResult<Vec<Presence>>
            => Watch;
        /// Tells the watchers that a user came online or went offline.
        async fn presence_changed(&self, user: UserId, online: bool) -> AppResult<()> => PresenceChanged;
    }

    /// Which tokens are valid (`revocation.rs`).
    pub trait RevocationApi {
        /// Tokens of the user issued before this time, in seconds since 1970, are revoked; `None` where none is.
        async fn not_before(&self, user: UserId) -> AppResult<Option<u64>> => NotBefore;
    }

    /// Profiles and blocks (`users.rs`).
    pub trait UserApi {
        /// The user's own profile.
        async fn profile(&self, user: UserId) -> AppResult<UserCard> => Profile;
        async fn put_profile(&self, user: UserId, profile: Profile) -> AppResult<UserCard>
            => PutProfile(last_write_wins);
        /// Stores the profile that the user's token carries, where profiles come from tokens.
        async fn token_profile(&self, user: UserId, profile: Profile) -> AppResult<()>
            => TokenProfile(last_write_wins);
        /// Another user's profile, if that user has written to this one and does not block this one.
        async fn user_card(&self, user: UserId, other: UserId) -> AppResult<UserCard> => UserCard;
        async fn set_block(&self, user: UserId, other: UserId, blocked: bool) -> AppResult<()>
            => SetBlock(last_write_wins);
        async fn blocks(&self, user: UserId) -> AppResult<Vec<UserId>> => Blocks;
    }

    /// Where a user is notified, and which conversations are muted (`devices.rs`).
    pub trait PushApi {
        async fn put_push(&self, user: UserId, device: DeviceId, registration: PushRegistration)
            -> AppResult<PushDeviceCard> => PutPush(last_write_wins);
        async fn delete_push(&self, user: UserId, device: DeviceId) -> AppResult<()>
            => DeletePush(last_write_wins);
        async fn push_devices(&self, user: UserId) -> AppResult<Vec<PushDeviceCard>> => PushDevices;
        async fn mute(&self, user: UserId, mute: Mute) -> AppResult<()> => Mute(last_write_wins);
        async fn unmute(&self, user: UserId, conversation: ConversationId) -> AppResult<()>
            => Unmute(last_write_wins);
        async fn mutes(&self, user: UserId) -> AppResult<Vec<Mute>> => Mutes;
    }

    /// Uploads and downloads (`attachments.rs`).
    pub trait AttachmentApi {
        /// Announces an upload, and returns where its bytes go.
        async fn begin_upload(&self, user: UserId, request: UploadRequest) -> AppResult<Upload>
            => BeginUpload;
        /// Joins the parts of an upload.
        async fn complete_upload(&self, user: UserId, s3_ref: S3Ref, parts: UploadedParts) -> AppResult<()>
            => CompleteUpload;
        /// Where the bytes are read from: only for members of a conversation with a message that refers to them.
        async fn download(&self, user: UserId, conversation: ConversationId, s3_ref: S3Ref)
            -> AppResult<Download> => Download;
    }
}

impl ClusterRequest {
    /// Runs the request on an app server and returns the JSON of its `AppResult<T>`; `None` for a request that is not
    /// for an app server.
    pub async fn run_on(self, app: &dyn App) -> Option<Vec<u8>> {
        match self {
            ClusterRequest::Send(request) => Some(remote::to_json(&Ok(app.send(request).await))),
            ClusterRequest::EndSessions(sessions, why) => {
                app.end_sessions(sessions, why).await;
                Some(remote::to_json(&Ok(())))
            }
            ClusterRequest::HandOver(..) | ClusterRequest::Admin(_) => None,
            operation => operation.run_operation(app).await,
        }
    }

    /// The request as it is repeated after an unknown outcome, where that differs from the first attempt.
    pub fn repeated(&self) -> Option<ClusterRequest> {
        match self {
            ClusterRequest::Ack(receipt) => Some(ClusterRequest::Ack(receipt.repeated())),
            ClusterRequest::Read(receipt) => Some(ClusterRequest::Read(receipt.repeated())),
            _ => None,
        }
    }
}
