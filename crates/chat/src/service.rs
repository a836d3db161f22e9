//! An app server: the operations of [`App`] over a store, and the ways to reach sessions. It keeps no session.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bluetick_protocol::{
    ConversationId, DeviceId, Download, ErrorCode, HistoryPage, HistoryQuery, InboxPage, InboxQuery, Mute,
    Presence, Profile, PushDeviceCard, PushRegistration, S3Ref, Sent, Seq, Side, StatusAnswer, Upload,
    UploadRequest, UploadedParts, UserCard, UserId, WireError, limits,
};
use bluetick_store::{Clock, SessionEntry, Store};

use crate::{
    App, AppResult, Background, Debt, DebtsRequest, DeliveryObserver, Gateways, MessageRange, Plan,
    PlanRequest, ProfileRules, Push, RangeRequest, ReceiptRequest, SendBudget, SendRequest, SessionEvent,
    SettleRequest, Settled, Spawner, Uploads, fanout::Fanout, presence::TypingLimit,
};

#[derive(Debug, Clone)]
pub struct ChatConfig {
    pub max_body_bytes: usize,
    /// A hand-over not confirmed by then counts as refused (R12).
    pub hand_over_deadline: Duration,
    /// A request waits so long for hand-overs to be confirmed. A send that no session has accepted by then writes the
    /// pending row and is answered (R2).
    pub hand_over_hedge: Duration,
    /// How far before its cursor a device is read again (R6).
    pub resume_overlap: Duration,
    /// A cursor older than this gets a `reset`.
    pub resume_max_age: Duration,
    /// A cursor with more active conversations behind it gets a `reset`.
    pub resume_max_conversations: usize,
    /// How long a reader waits for a hole to be filled before it closes it (R8).
    pub hole_wait: Duration,
    /// Who sets names and avatars, and what they may be.
    pub profiles: ProfileRules,
}

impl Default for ChatConfig {
    fn default() -> Self {
        ChatConfig {
            max_body_bytes: limits::BODY_DEFAULT_MAX_BYTES,
            hand_over_deadline: Duration::from_secs(2),
            hand_over_hedge: Duration::from_millis(250),
            resume_overlap: Duration::from_secs(60),
            resume_max_age: Duration::from_secs(30 * 24 * 3600),
            resume_max_conversations: 5_000,
            hole_wait: Duration::from_millis(200),
            profiles: ProfileRules::default(),
        }
    }
}

pub struct ChatService {
    pub(crate) store: Store,
    pub(crate) fanout: Arc<Fanout>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: ChatConfig,
    pub(crate) budget: Arc<dyn SendBudget>,
    pub(crate) observer: Arc<DeliveryObserver>,
    /// Nothing where nobody is to be notified.
    pub(crate) push: Option<Arc<Push>>,
    /// Nothing where messages have no attachments.
    pub(crate) uploads: Option<Arc<dyn Uploads>>,
    pub(crate) typing: TypingLimit,
}

impl ChatService {
    pub fn new(
        store: Store,
        gateways: Arc<dyn Gateways>,
        clock: Arc<dyn Clock>,
        config: ChatConfig,
        budget: Arc<dyn SendBudget>,
    ) -> ChatService {
        let observer = Arc::new(DeliveryObserver::new(clock.clone()));
        let fanout = Fanout {
            sessions: store.sessions.clone(),
            gateways,
            observer: observer.clone(),
            background: Arc::default(),
            deadline: config.hand_over_deadline,
            hedge: config.hand_over_hedge.min(config.hand_over_deadline),
        };
        ChatService {
            store,
            fanout: Arc::new(fanout),
            clock,
            config,
            budget,
            observer,
            push: None,
            uploads: None,
            typing: TypingLimit::default(),
        }
    }

    /// Lets requests be answered before the hand-overs that they do not depend on are confirmed. Without it they wait
    /// for all of them, which is right where every session is in this process.
    pub fn with_spawner(mut self, spawner: Arc<dyn Spawner>) -> ChatService {
        Arc::make_mut(&mut self.fanout).set_spawner(spawner);
        self
    }

    /// What still runs after the answers, for a shutdown to wait for.
    pub fn background(&self) -> Arc<Background> {
        self.fanout.background.clone()
    }

    /// Notifies those whom no live session tells of a message (R14).
    pub fn with_push(mut self, push: Arc<Push>) -> ChatService {
        self.push = Some(push);
        self
    }

    /// Lets messages have attachments.
    pub fn with_uploads(mut self, uploads: Arc<dyn Uploads>) -> ChatService {
        self.uploads = Some(uploads);
        self
    }

    pub fn observer(&self) -> Arc<DeliveryObserver> {
        self.observer.clone()
    }

    /// The side a user is on in a conversation that exists, or the one error for all others.
    pub(crate) async fn member_of(&self, user: &UserId, id: &ConversationId) -> AppResult<Side> {
        let side = id.side_of(user).ok_or_else(WireError::not_found)?;
        match self.store.messages.last_seq(id).await.map_err(crate::wire)? {
            0 => Err(WireError::not_found()),
            _ => Ok(side),
        }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> WireError {
        WireError::new(ErrorCode::BadRequest, message)
    }
}

#[async_trait]
impl App for ChatService {
    async fn send(&self, request: SendRequest) -> Vec<AppResult<Sent>> {
        self.send_all(request).await
    }

    async fn plan(&self, request: PlanRequest) -> AppResult<Plan> {
        self.make_plan(request).await
    }

    async fn read_range(&self, request: RangeRequest) -> AppResult<MessageRange> {
        self.range(request).await
    }

    async fn pending_row(&self, user: UserId, conversation: ConversationId) -> AppResult<Option<Seq>> {
        self.store.pending.pending_row(&user, &conversation).await.map_err(crate::wire)
    }

    async fn ack(&self, request: ReceiptRequest) -> AppResult<()> {
        self.take_ack(request).await
    }

    async fn read(&self, request: ReceiptRequest) -> AppResult<()> {
        self.take_read(request).await
    }

    async fn settle(&self, request: SettleRequest) -> AppResult<Settled> {
        self.settle_row(request).await
    }

    async fn pay_debts(&self, request: DebtsRequest) -> AppResult<Vec<Debt>> {
        Ok(self.take_debts(request).await)
    }

    async fn typing(&self, user: UserId, conversation: ConversationId) -> AppResult<()> {
        self.tell_typing(user, conversation).await
    }

    async fn inbox(&self, user: UserId, query: InboxQuery) -> AppResult<InboxPage> {
        self.inbox_page(user, query).await
    }

    async fn history(&self, user: UserId, query: HistoryQuery) -> AppResult<HistoryPage> {
        self.history_page(user, query).await
    }

    async fn status(&self, user: UserId, conversation: ConversationId) -> AppResult<StatusAnswer> {
        self.status_of(user, conversation).await
    }

    async fn watch(&self, watcher: SessionEntry, users: Vec<UserId>) -> AppResult<Vec<Presence>> {
        self.watch_users(watcher, users).await
    }

    async fn presence_changed(&self, user: UserId, online: bool) -> AppResult<()> {
        self.tell_presence(user, online).await
    }

    async fn end_sessions(&self, sessions: Vec<SessionEntry>, why: WireError) {
        self.fanout.hand_over_all(&sessions, &[], |_| SessionEvent::Close(why.clone())).await;
    }

    async fn not_before(&self, user: UserId) -> AppResult<Option<u64>> {
        self.store.users.not_before(&user).await.map_err(crate::wire)
    }

    async fn profile(&self, user: UserId) -> AppResult<UserCard> {
        self.card(user).await
    }

    async fn put_profile(&self, user: UserId, profile: Profile) -> AppResult<UserCard> {
        self.change_profile(user, profile).await
    }

    async fn token_profile(&self, user: UserId, profile: Profile) -> AppResult<()> {
        self.take_token_profile(user, profile).await
    }

    async fn user_card(&self, user: UserId, other: UserId) -> AppResult<UserCard> {
        self.card_for(user, other).await
    }

    async fn set_block(&self, user: UserId, other: UserId, blocked: bool) -> AppResult<()> {
        self.change_block(user, other, blocked).await
    }

    async fn blocks(&self, user: UserId) -> AppResult<Vec<UserId>> {
        self.store.users.blocked_by(&user).await.map_err(crate::wire)
    }

    async fn put_push(
        &self,
        user: UserId,
        device: DeviceId,
        registration: PushRegistration,
    ) -> AppResult<PushDeviceCard> {
        self.register_push(user, device, registration).await
    }

    async fn delete_push(&self, user: UserId, device: DeviceId) -> AppResult<()> {
        self.unregister_push(user, device).await
    }

    async fn push_devices(&self, user: UserId) -> AppResult<Vec<PushDeviceCard>> {
        self.push_devices_of(user).await
    }

    async fn mute(&self, user: UserId, mute: Mute) -> AppResult<()> {
        self.mute_conversation(user, mute).await
    }

    async fn unmute(&self, user: UserId, conversation: ConversationId) -> AppResult<()> {
        self.unmute_conversation(user, conversation).await
    }

    async fn mutes(&self, user: UserId) -> AppResult<Vec<Mute>> {
        self.mutes_of(user).await
    }

    async fn begin_upload(&self, user: UserId, request: UploadRequest) -> AppResult<Upload> {
        self.announce_upload(user, request).await
    }

    async fn complete_upload(&self, user: UserId, s3_ref: S3Ref, parts: UploadedParts) -> AppResult<()> {
        self.finish_upload(user, s3_ref, parts).await
    }

    async fn download(
        &self,
        user: UserId,
        conversation: ConversationId,
        s3_ref: S3Ref,
    ) -> AppResult<Download> {
        self.download_link(user, conversation, s3_ref).await
    }
}
