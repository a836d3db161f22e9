//! What the API exchanges, as the document shows it.

use utoipa::ToSchema;

/// A message to send; `to` or `conversation_id`, and a body or an attachment
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct Send {
    /// Chosen by the client, 1 to 64 visible ASCII characters; the same id always means the same message, and with
    /// other content it is refused
    #[schema(example = "c0ffee-1")]
    pub client_msg_id: String,
    /// The receiver's user id: 1 to 128 of `A–Z a–z 0–9 . _ - @ + | : =`
    #[schema(example = "bob", nullable = false)]
    pub to: Option<String>,
    /// Instead of `to`
    #[schema(nullable = false)]
    pub conversation_id: Option<String>,
    #[schema(example = "hello", nullable = false)]
    pub body: Option<String>,
    /// What was uploaded before: `s3_ref`, and optionally `blurhash`, `thumbnail` and `voice`
    #[schema(value_type = Option<Attachment>, nullable = false)]
    pub attachment: Option<Attachment>,
    /// Anything else the client wants carried: an object of at most 4096 bytes
    #[schema(value_type = Option<Object>, nullable = false)]
    pub meta: Option<()>,
    /// How far the sender had read when writing this: a reply implies read. Without it nothing counts as read
    #[schema(nullable = false)]
    pub seen_seq: Option<u64>,
}

/// What a message says of its attachment. A sender gives `s3_ref` and what follows `sha256`; the rest is the server's
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct Attachment {
    /// As it was given when the attachment was announced
    pub s3_ref: String,
    #[schema(required = false)]
    pub name: String,
    #[schema(required = false)]
    pub mime: String,
    #[schema(required = false)]
    pub bytes: u64,
    #[schema(required = false)]
    pub sha256: String,
    /// A few colours to show while a picture loads
    #[schema(nullable = false)]
    pub blurhash: Option<String>,
    /// The `s3_ref` of a small picture of it
    #[schema(nullable = false)]
    pub thumbnail: Option<String>,
    /// It was spoken for this message
    #[schema(required = false)]
    pub voice: bool,
}

/// What is about to be uploaded
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct UploadRequest {
    /// What the file is called, at most 255 bytes
    #[schema(example = "contract.pdf")]
    pub name: String,
    /// Its media type
    #[schema(example = "application/pdf")]
    pub mime: String,
    /// How long it is
    #[schema(minimum = 1)]
    pub bytes: u64,
    /// In hex
    pub sha256: String,
    /// How it is cut, if it is to be uploaded in parts; only where files are kept in a bucket
    #[schema(nullable = false)]
    pub parts: Option<UploadParts>,
}

/// Parts of one size, but for the last
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct UploadParts {
    /// At least 5 MiB
    pub bytes: u64,
    /// Of each part, in hex, in order; at most 1,000
    pub sha256: Vec<String>,
}

/// Where the bytes are put: by `upload`, or by all of `parts`
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct Upload {
    pub s3_ref: String,
    #[schema(nullable = false)]
    pub upload: Option<SignedRequest>,
    #[schema(required = false)]
    pub parts: Vec<SignedRequest>,
    /// Milliseconds since 1970
    pub expires_at: u64,
}

/// A request that is made as it is; it needs no token
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct SignedRequest {
    #[schema(example = "PUT")]
    pub method: String,
    pub url: String,
    /// Sent with it, as they are
    #[schema(required = false)]
    pub headers: std::collections::BTreeMap<String, String>,
}

/// What the store answered to each part, in order
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct UploadedParts {
    /// The header `ETag` of each answer
    pub etags: Vec<String>,
    /// As they were announced
    pub sha256: Vec<String>,
}

/// Where an attachment is read from
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct Download {
    pub url: String,
    /// Milliseconds since 1970
    pub expires_at: u64,
    pub name: String,
    pub mime: String,
    pub bytes: u64,
    pub sha256: String,
}

/// A stored message's place: the single tick
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct Sent {
    pub client_msg_id: String,
    #[schema(example = "alice~bob")]
    pub conversation_id: String,
    /// The position in the conversation: 1, 2, 3 …
    #[schema(example = 1)]
    pub seq: u64,
    /// A 64-bit number as a string
    #[schema(example = "252000000000000000")]
    pub message_id: String,
    /// Milliseconds since 1970
    pub ts: u64,
    /// Whether this `client_msg_id` had been sent before; the answer is then the original's
    pub duplicate: bool,
}

/// A message as its two members see it
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct Message {
    pub conversation_id: String,
    pub seq: u64,
    pub message_id: String,
    pub client_msg_id: String,
    pub sender: String,
    pub receiver: String,
    pub body: String,
    /// Milliseconds since 1970
    pub ts: u64,
    #[schema(value_type = Option<Attachment>, nullable = false)]
    pub attachment: Option<Attachment>,
    #[schema(value_type = Option<Object>, nullable = false)]
    pub meta: Option<()>,
}

/// How far a member has received and read
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct Boundaries {
    /// Messages up to here have the double tick
    pub last_delivered_seq: u64,
    /// Messages up to here have the blue tick
    pub last_read_seq: u64,
}

/// Who somebody is, as far as the host application said
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct UserCard {
    #[schema(example = "bob")]
    pub user_id: String,
    pub name: Option<String>,
    pub avatar_url: Option<String>,
}

/// One's own profile
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct Profile {
    /// At most 128 bytes
    pub name: Option<String>,
    /// At most 1024 bytes
    pub avatar_url: Option<String>,
}

/// A conversation in the inbox
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct InboxEntry {
    #[schema(example = "alice~bob")]
    pub conversation_id: String,
    pub peer: UserCard,
    pub last_message_preview: String,
    /// Milliseconds since 1970
    pub last_message_ts: u64,
    pub last_seq: u64,
    pub last_sender: String,
    /// Messages of the peer's after what was read
    pub unread_count: u64,
    /// The peer's boundaries, for the ticks of one's own last message
    pub peer_status: Boundaries,
}

/// A page of the inbox
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct InboxPage {
    pub conversations: Vec<InboxEntry>,
    /// Give it as `before` for the next page; null at the end
    pub next: Option<String>,
}

/// A page of a conversation
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct HistoryPage {
    pub conversation_id: String,
    /// In the order of `seq`
    pub messages: Vec<Message>,
    /// The range this page covers; a position inside it without a message is void
    pub from_seq: u64,
    pub to_seq: u64,
    /// The next page in the same direction; null at the end
    pub next: Option<u64>,
}

/// Both members' boundaries
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct StatusAnswer {
    pub conversation_id: String,
    pub last_seq: u64,
    pub unread_count: u64,
    /// The asking user's
    pub own: Boundaries,
    /// The other member's: these make the ticks
    pub peer: Boundaries,
}

/// Read up to here
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct ReadBody {
    #[schema(example = 3)]
    pub seq: u64,
}

#[derive(ToSchema)]
#[allow(dead_code)]
pub struct Blocks {
    pub blocks: Vec<String>,
    /// Where the next page begins, as `after`; null at the end
    pub next: Option<String>,
}

/// Who carries a notification to a device
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[allow(dead_code)]
pub enum PushProvider {
    Apns,
    Fcm,
    Webpush,
    Webhook,
}

/// How much a notification shows: the sender and how the message begins, the sender, or neither
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[allow(dead_code)]
pub enum PushContent {
    Preview,
    Sender,
    None,
}

/// By whom this server notifies
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct PushOffer {
    /// Empty where nobody is notified
    pub providers: Vec<PushProvider>,
    /// The `applicationServerKey` for a browser's `PushManager.subscribe`; null without Web Push
    pub vapid_public_key: Option<String>,
    /// The most that any notification of this server shows
    pub content: PushContent,
}

/// A device's address at its provider; `token`, or for `webpush` the `subscription`
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct PushRegistration {
    pub provider: PushProvider,
    /// What the provider gave the device; for `webhook` whatever the operator's endpoint knows it by
    #[schema(nullable = false)]
    pub token: Option<String>,
    /// Of `apns`: the app's bundle id, where it is not the server's own
    #[schema(nullable = false)]
    pub topic: Option<String>,
    /// Of `apns`: whether the token is of a development build
    #[schema(nullable = false)]
    pub sandbox: Option<bool>,
    /// Of `webpush`
    #[schema(nullable = false)]
    pub subscription: Option<PushSubscription>,
    /// The most that this device wants to show; `preview` without it
    #[schema(nullable = false)]
    pub content: Option<PushContent>,
}

/// What a browser's `PushManager.subscribe` gives, as it gives it
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct PushSubscription {
    #[schema(example = "https://updates.push.services.mozilla.com/wpush/v2/gAAAA")]
    pub endpoint: String,
    pub keys: PushKeys,
}

#[derive(ToSchema)]
#[allow(dead_code)]
pub struct PushKeys {
    pub p256dh: String,
    pub auth: String,
}

/// A registered device. Its token is not shown again
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct PushDeviceCard {
    #[schema(example = "phone-7f3a")]
    pub device: String,
    pub provider: PushProvider,
    pub content: PushContent,
    /// Milliseconds since 1970
    pub registered_at: u64,
}

#[derive(ToSchema)]
#[allow(dead_code)]
pub struct PushDevices {
    pub devices: Vec<PushDeviceCard>,
}

/// Until when
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct MuteBody {
    /// Milliseconds since 1970; for ever without it
    #[schema(nullable = false)]
    pub until: Option<u64>,
}

/// A conversation that notifies nobody on this side
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct Mute {
    #[schema(example = "alice~bob")]
    pub conversation_id: String,
    /// Milliseconds since 1970; left out where it is for ever
    #[schema(nullable = false)]
    pub until: Option<u64>,
}

#[derive(ToSchema)]
#[allow(dead_code)]
pub struct Mutes {
    pub mutes: Vec<Mute>,
    /// Where the next page begins, as `after`; null at the end
    pub next: Option<String>,
}

#[derive(ToSchema)]
#[allow(dead_code)]
pub struct Alive {
    pub status: String,
}

/// Whether messages can be taken
#[derive(ToSchema)]
#[allow(dead_code)]
pub struct Readiness {
    pub ready: bool,
    /// Why not; null when ready
    pub reason: Option<String>,
    pub store: StoreHealth,
    /// Ways to devices by which notifications do not get through now; empty where all is well
    pub push: Vec<RouteHealth>,
}

#[derive(ToSchema)]
#[allow(dead_code)]
pub struct RouteHealth {
    /// The provider, and of Web Push the push service
    #[schema(example = "apns")]
    pub route: String,
    /// Nothing is tried for that much longer
    pub paused_ms: u64,
    /// The operator's own error, as the provider sees it
    pub misconfigured: Option<String>,
    /// Why the last notification did not get through
    pub failing: Option<String>,
}

#[derive(ToSchema)]
#[allow(dead_code)]
pub struct StoreHealth {
    pub backend: String,
    /// Why no messages are taken
    pub refusing: Option<String>,
    /// What does not work as it should while messages are taken all the same
    pub degraded: Option<String>,
    pub free_bytes: Option<u64>,
    pub log_bytes: u64,
    pub unflushed_messages: u64,
}
