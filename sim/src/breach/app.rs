//! An app server as a gateway's sessions see it, with R1, R4, R5 or R6 broken.

use std::sync::Arc;

use async_trait::async_trait;
use bluetick_chat::{
    App, AppResult, Debt, DebtsRequest, MessageRange, Plan, PlanRequest, RangeRequest, ReceiptRequest,
    SendRequest, SettleRequest, Settled,
};
use bluetick_protocol::{
    ConversationId, DeviceId, Download, ErrorCode, HistoryPage, HistoryQuery, InboxPage, InboxQuery, Mute,
    Presence, Profile, PushDeviceCard, PushRegistration, S3Ref, Sent, Seq, StatusAnswer, Upload,
    UploadRequest, UploadedParts, UserCard, UserId, WireError,
};
use bluetick_store::SessionEntry;

use super::{Breach, Breaches, sessions::Deferred};

pub(super) struct BreachingApp {
    pub inner: Arc<dyn App>,
    pub breaches: Breaches,
    pub deferred: Arc<Deferred>,
}

impl BreachingApp {
    /// The pending rows alone, for a device that has a cursor (R6).
    async fn plan_without_cursor(&self, request: PlanRequest) -> AppResult<Plan> {
        let request = match request.cursor {
            Some(_) => PlanRequest { cursor: None, heads: false, ..request },
            None => request,
        };
        let plan = self.inner.plan(request).await?;
        Ok(Plan { heads: Vec::new(), ..plan })
    }

    /// What the session asked for before its plan was made (R1).
    async fn register_now(&self, user: UserId) {
        let ended = self.deferred.register(&user).await;
        if !ended.is_empty() {
            let replaced = WireError::new(ErrorCode::Replaced, "this device connected again");
            self.inner.end_sessions(ended, replaced).await;
        }
    }
}

#[async_trait]
impl App for BreachingApp {
    async fn plan(&self, request: PlanRequest) -> AppResult<Plan> {
        let user = request.user.clone();
        let plan = match self.breaches.contains(Breach::R6) {
            true => self.plan_without_cursor(request).await,
            false => self.inner.plan(request).await,
        };
        self.register_now(user).await;
        plan
    }

    async fn settle(&self, request: SettleRequest) -> AppResult<Settled> {
        let settled = self.inner.settle(request).await?;
        match self.breaches.contains(Breach::R4) {
            true => Ok(Settled { last_seq: 0, ..settled }),
            false => Ok(settled),
        }
    }

    async fn pay_debts(&self, request: DebtsRequest) -> AppResult<Vec<Debt>> {
        match self.breaches.contains(Breach::R5) {
            true => Ok(Vec::new()),
            false => self.inner.pay_debts(request).await,
        }
    }

    async fn send(&self, request: SendRequest) -> Vec<AppResult<Sent>> {
        self.inner.send(request).await
    }

    async fn read_range(&self, request: RangeRequest) -> AppResult<MessageRange> {
        self.inner.read_range(request).await
    }

    async fn pending_row(&self, user: UserId, conversation: ConversationId) -> AppResult<Option<Seq>> {
        self.inner.pending_row(user, conversation).await
    }

    async fn ack(&self, request: ReceiptRequest) -> AppResult<()> {
        self.inner.ack(request).await
    }

    async fn read(&self, request: ReceiptRequest) -> AppResult<()> {
        self.inner.read(request).await
    }

    async fn typing(&self, user: UserId, conversation: ConversationId) -> AppResult<()> {
        self.inner.typing(user, conversation).await
    }

    async fn inbox(&self, user: UserId, query: InboxQuery) -> AppResult<InboxPage> {
        self.inner.inbox(user, query).await
    }

    async fn history(&self, user: UserId, query: HistoryQuery) -> AppResult<HistoryPage> {
        self.inner.history(user, query).await
    }

    async fn status(&self, user: UserId, conversation: ConversationId) -> AppResult<StatusAnswer> {
        self.inner.status(user, conversation).await
    }

    async fn watch(&self, watcher: SessionEntry, users: Vec<UserId>) -> AppResult<Vec<Presence>> {
        self.inner.watch(watcher, users).await
    }

    async fn presence_changed(&self, user: UserId, online: bool) -> AppResult<()> {
        self.inner.presence_changed(user, online).await
    }

    async fn end_sessions(&self, sessions: Vec<SessionEntry>, why: WireError) {
        self.inner.end_sessions(sessions, why).await;
    }

    async fn not_before(&self, user: UserId) -> AppResult<Option<u64>> {
        self.inner.not_before(user).await
    }

    async fn profile(&self, user: UserId) -> AppResult<UserCard> {
        self.inner.profile(user).await
    }

    async fn put_profile(&self, user: UserId, profile: Profile) -> AppResult<UserCard> {
        self.inner.put_profile(user, profile).await
    }

    async fn token_profile(&self, user: UserId, profile: Profile) -> AppResult<()> {
        self.inner.token_profile(user, profile).await
    }

    async fn user_card(&self, user: UserId, other: UserId) -> AppResult<UserCard> {
        self.inner.user_card(user, other).await
    }

    async fn set_block(&self, user: UserId, other: UserId, blocked: bool) -> AppResult<()> {
        self.inner.set_block(user, other, blocked).await
    }

    async fn blocks(&self, user: UserId) -> AppResult<Vec<UserId>> {
        self.inner.blocks(user).await
    }

    async fn put_push(
        &self,
        user: UserId,
        device: DeviceId,
        registration: PushRegistration,
    ) -> AppResult<PushDeviceCard> {
        self.inner.put_push(user, device, registration).await
    }

    async fn delete_push(&self, user: UserId, device: DeviceId) -> AppResult<()> {
        self.inner.delete_push(user, device).await
    }

    async fn push_devices(&self, user: UserId) -> AppResult<Vec<PushDeviceCard>> {
        self.inner.push_devices(user).await
    }

    async fn mute(&self, user: UserId, mute: Mute) -> AppResult<()> {
        self.inner.mute(user, mute).await
    }

    async fn unmute(&self, user: UserId, conversation: ConversationId) -> AppResult<()> {
        self.inner.unmute(user, conversation).await
    }

    async fn mutes(&self, user: UserId) -> AppResult<Vec<Mute>> {
        self.inner.mutes(user).await
    }

    async fn begin_upload(&self, user: UserId, request: UploadRequest) -> AppResult<Upload> {
        self.inner.begin_upload(user, request).await
    }

    async fn complete_upload(&self, user: UserId, s3_ref: S3Ref, parts: UploadedParts) -> AppResult<()> {
        self.inner.complete_upload(user, s3_ref, parts).await
    }

    async fn download(&self, user: UserId, id: ConversationId, s3_ref: S3Ref) -> AppResult<Download> {
        self.inner.download(user, id, s3_ref).await
    }
}
