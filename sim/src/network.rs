//! The network between gateways and app servers: requests to any app server that is up, and
//! hand-overs to the gateway that an entry names. Each may be lost on the way there or back, and a
//! request continues for a while after its caller is gone.

use std::{fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;
use bluetick_chat::{
    App, AppResult, ChatService, Debt, DebtsRequest, Gateway, Gateways, HandOver, HandingOver, MessageRange,
    Plan, PlanRequest, RangeRequest, ReceiptRequest, SendRequest, SessionEvent, SettleRequest, Settled,
    Spawner,
};
use bluetick_protocol::{
    ConversationId, DeviceId, Download, ErrorCode, HistoryPage, HistoryQuery, InboxPage, InboxQuery, Mute,
    Presence, Profile, PushDeviceCard, PushRegistration, S3Ref, Sent, Seq, StatusAnswer, Upload,
    UploadRequest, UploadedParts, UserCard, UserId, WireError,
};
use bluetick_store::SessionEntry;
use futures_util::future::{BoxFuture, Either};
use parking_lot::Mutex;
use rand::RngExt;
use tokio::{sync::oneshot, time::timeout};

use crate::{
    notices::NoticeRequest,
    process::Process,
    sim::{Sim, note},
};

/// A request that is not answered by then has failed for its caller.
const REQUEST_DEADLINE: Duration = Duration::from_secs(15);

/// How long after that the app server still works on it, as the real listener does.
const GRACE: Duration = Duration::from_secs(10);

/// An app server. It keeps no state, so a crash does not change it.
pub struct AppServer {
    pub process: Arc<Process>,
    pub node: Arc<ChatService>,
}

/// The app servers, as a gateway or a back end sees them.
pub struct Apps {
    pub sim: Arc<Sim>,
    /// The calling process; `None` for a back end.
    pub asker: Option<Arc<Process>>,
    pub servers: Arc<Vec<AppServer>>,
}

fn unavailable() -> WireError {
    WireError::new(ErrorCode::Unavailable, "the app server does not answer").retry_after(1_000)
}

impl Apps {
    async fn call<T: Send + Debug + 'static>(
        &self,
        what: impl FnOnce() -> String,
        call: impl FnOnce(Arc<ChatService>) -> BoxFuture<'static, T>,
    ) -> AppResult<T> {
        let sim = &self.sim;
        let what = if sim.is_traced() { what() } else { String::new() };
        let name = self.asker.as_ref().map_or("back end", |process| process.name()).to_owned();
        if let Some(asker) = &self.asker {
            asker.awake().await;
            asker.may_crash(sim).await;
        }
        let server = &self.servers[sim.draw(|rng| rng.random_range(0..self.servers.len()))];
        sim.hop().await;
        let cut_off = |process: &Arc<Process>| process.is_cut_off();
        if !server.process.is_up() || cut_off(&server.process) || self.asker.as_ref().is_some_and(cut_off) {
            tokio::time::sleep(Duration::from_millis(200)).await;
            note!(sim, "{name} → {}: {what}: no connection", server.process.name());
            return Err(unavailable());
        }
        note!(sim, "{name} → {}: {what}", server.process.name());
        let (answer, answered) = oneshot::channel();
        let working = NoticeRequest::begin(&sim.notices).run(call(server.node.clone()));
        server.process.spawn(async move {
            if let Ok(done) = timeout(REQUEST_DEADLINE + GRACE, working).await {
                let _ = answer.send(done);
            }
        });
        let answer = match timeout(REQUEST_DEADLINE, answered).await {
            Ok(Ok(answer)) => answer,
            _ => {
                note!(sim, "{name} ← {}: {what}: no answer", server.process.name());
                return Err(unavailable());
            }
        };
        if sim.strikes(sim.setup.lost_answer_rate) {
            sim.count(|f| f.lost_answers += 1);
            note!(sim, "{name} ← {}: {what}: the answer is lost", server.process.name());
            return Err(unavailable());
        }
        sim.hop().await;
        if let Some(asker) = &self.asker {
            asker.awake().await;
            asker.may_crash(sim).await;
        }
        note!(sim, "{name} ← {}: {what}: {answer:?}", server.process.name());
        Ok(answer)
    }
}

#[async_trait]
impl App for Apps {
    async fn send(&self, request: SendRequest) -> Vec<AppResult<Sent>> {
        let count = request.sends.len();
        let ids: Vec<_> = request.sends.iter().map(|s| s.client_msg_id.clone()).collect();
        let what = || format!("send {}", ids.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(" "));
        let sent = self.call(what, |node| Box::pin(async move { node.send(request).await })).await;
        sent.unwrap_or_else(|e| (0..count).map(|_| Err(e.clone())).collect())
    }

    async fn plan(&self, request: PlanRequest) -> AppResult<Plan> {
        let what = format!("plan for {} since {:?}", request.user, request.cursor);
        self.call(|| what, |node| Box::pin(async move { node.plan(request).await })).await?
    }

    async fn read_range(&self, request: RangeRequest) -> AppResult<MessageRange> {
        let what = format!("range of {} for {}: {:?}", request.conversation_id, request.user, request.from);
        let call = self
            .call(|| what, |node| Box::pin(async move { node.read_range(request).await.map(ShortRange) }));
        Ok(call.await??.0)
    }

    async fn pending_row(&self, user: UserId, id: ConversationId) -> AppResult<Option<Seq>> {
        let what = format!("row {id} of {user}?");
        self.call(|| what, |node| Box::pin(async move { node.pending_row(user, id).await })).await?
    }

    async fn ack(&self, request: ReceiptRequest) -> AppResult<()> {
        let what = format!("{} acks {} {}", request.user, request.conversation_id, request.seq);
        self.call(|| what, |node| Box::pin(async move { node.ack(request).await })).await?
    }

    async fn read(&self, request: ReceiptRequest) -> AppResult<()> {
        let what = format!("{} reads {} {}", request.user, request.conversation_id, request.seq);
        self.call(|| what, |node| Box::pin(async move { node.read(request).await })).await?
    }

    async fn settle(&self, request: SettleRequest) -> AppResult<Settled> {
        let what = format!("settle {} of {} at {}", request.conversation_id, request.user, request.row);
        self.call(|| what, |node| Box::pin(async move { node.settle(request).await })).await?
    }

    async fn pay_debts(&self, request: DebtsRequest) -> AppResult<Vec<Debt>> {
        let what = format!("debts of {}: {:?}", request.user, request.debts);
        self.call(|| what, |node| Box::pin(async move { node.pay_debts(request).await })).await?
    }

    async fn typing(&self, user: UserId, id: ConversationId) -> AppResult<()> {
        self.call(|| "typing".into(), |node| Box::pin(async move { node.typing(user, id).await })).await?
    }

    async fn inbox(&self, user: UserId, query: InboxQuery) -> AppResult<InboxPage> {
        self.call(|| "inbox".into(), |node| Box::pin(async move { node.inbox(user, query).await })).await?
    }

    async fn history(&self, user: UserId, query: HistoryQuery) -> AppResult<HistoryPage> {
        let what = format!("history of {} for {user} after {:?}", query.conversation_id, query.after_seq);
        let call = self
            .call(|| what, |node| Box::pin(async move { node.history(user, query).await.map(ShortPage) }));
        Ok(call.await??.0)
    }

    async fn status(&self, user: UserId, id: ConversationId) -> AppResult<StatusAnswer> {
        self.call(|| "status".into(), |node| Box::pin(async move { node.status(user, id).await })).await?
    }

    async fn watch(&self, watcher: SessionEntry, users: Vec<UserId>) -> AppResult<Vec<Presence>> {
        self.call(|| "watch".into(), |node| Box::pin(async move { node.watch(watcher, users).await })).await?
    }

    async fn presence_changed(&self, user: UserId, online: bool) -> AppResult<()> {
        let what = format!("{user} is {}", if online { "online" } else { "offline" });
        self.call(|| what, |node| Box::pin(async move { node.presence_changed(user, online).await })).await?
    }

    async fn end_sessions(&self, sessions: Vec<SessionEntry>, why: WireError) {
        if !sessions.is_empty() {
            let what = format!("end {} sessions: {}", sessions.len(), why.code);
            let _ = self
                .call(|| what, |node| Box::pin(async move { node.end_sessions(sessions, why).await }))
                .await;
        }
    }

    /// Runs have no revocations.
    async fn not_before(&self, _: UserId) -> AppResult<Option<u64>> {
        Ok(None)
    }

    async fn profile(&self, user: UserId) -> AppResult<UserCard> {
        self.call(|| "profile".into(), |node| Box::pin(async move { node.profile(user).await })).await?
    }

    async fn put_profile(&self, user: UserId, profile: Profile) -> AppResult<UserCard> {
        let call = |node: Arc<ChatService>| -> BoxFuture<'static, _> {
            Box::pin(async move { node.put_profile(user, profile).await })
        };
        self.call(|| "put profile".into(), call).await?
    }

    async fn token_profile(&self, user: UserId, profile: Profile) -> AppResult<()> {
        let call = |node: Arc<ChatService>| -> BoxFuture<'static, _> {
            Box::pin(async move { node.token_profile(user, profile).await })
        };
        self.call(|| "token profile".into(), call).await?
    }

    async fn user_card(&self, user: UserId, other: UserId) -> AppResult<UserCard> {
        self.call(|| "card".into(), |node| Box::pin(async move { node.user_card(user, other).await })).await?
    }

    async fn set_block(&self, user: UserId, other: UserId, blocked: bool) -> AppResult<()> {
        let call = |node: Arc<ChatService>| -> BoxFuture<'static, _> {
            Box::pin(async move { node.set_block(user, other, blocked).await })
        };
        self.call(|| "block".into(), call).await?
    }

    async fn blocks(&self, user: UserId) -> AppResult<Vec<UserId>> {
        self.call(|| "blocks".into(), |node| Box::pin(async move { node.blocks(user).await })).await?
    }

    async fn put_push(
        &self,
        user: UserId,
        device: DeviceId,
        registration: PushRegistration,
    ) -> AppResult<PushDeviceCard> {
        let call = |node: Arc<ChatService>| -> BoxFuture<'static, _> {
            Box::pin(async move { node.put_push(user, device, registration).await })
        };
        self.call(|| "register a device".into(), call).await?
    }

    async fn delete_push(&self, user: UserId, device: DeviceId) -> AppResult<()> {
        let call = |node: Arc<ChatService>| -> BoxFuture<'static, _> {
            Box::pin(async move { node.delete_push(user, device).await })
        };
        self.call(|| "unregister a device".into(), call).await?
    }

    async fn push_devices(&self, user: UserId) -> AppResult<Vec<PushDeviceCard>> {
        self.call(|| "devices".into(), |node| Box::pin(async move { node.push_devices(user).await })).await?
    }

    async fn mute(&self, user: UserId, mute: Mute) -> AppResult<()> {
        self.call(|| "mute".into(), |node| Box::pin(async move { node.mute(user, mute).await })).await?
    }

    async fn unmute(&self, user: UserId, conversation: ConversationId) -> AppResult<()> {
        self.call(|| "unmute".into(), |node| Box::pin(async move { node.unmute(user, conversation).await }))
            .await?
    }

    async fn mutes(&self, user: UserId) -> AppResult<Vec<Mute>> {
        self.call(|| "mutes".into(), |node| Box::pin(async move { node.mutes(user).await })).await?
    }

    async fn begin_upload(&self, user: UserId, request: UploadRequest) -> AppResult<Upload> {
        let call = |node: Arc<ChatService>| -> BoxFuture<'static, _> {
            Box::pin(async move { node.begin_upload(user, request).await })
        };
        self.call(|| "begin upload".into(), call).await?
    }

    async fn complete_upload(&self, user: UserId, s3_ref: S3Ref, parts: UploadedParts) -> AppResult<()> {
        let call = |node: Arc<ChatService>| -> BoxFuture<'static, _> {
            Box::pin(async move { node.complete_upload(user, s3_ref, parts).await })
        };
        self.call(|| "complete upload".into(), call).await?
    }

    async fn download(&self, user: UserId, id: ConversationId, s3_ref: S3Ref) -> AppResult<Download> {
        let call = |node: Arc<ChatService>| -> BoxFuture<'static, _> {
            Box::pin(async move { node.download(user, id, s3_ref).await })
        };
        self.call(|| "download".into(), call).await?
    }
}

struct ShortRange(MessageRange);

impl Debug for ShortRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let MessageRange { first_seq, messages, next_seq, last_seq } = &self.0;
        let seqs: Vec<_> = messages.iter().map(|m| m.seq).collect();
        write!(f, "{first_seq}..{next_seq} of {last_seq}: {seqs:?}")
    }
}

struct ShortPage(HistoryPage);

impl Debug for ShortPage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seqs: Vec<_> = self.0.messages.iter().map(|m| m.seq).collect();
        write!(f, "{}..={}: {seqs:?}", self.0.from_seq, self.0.to_seq)
    }
}

/// A gateway's process. After a crash another one of the same name starts without sessions.
pub struct GatewayServer {
    pub process: Arc<Process>,
    /// The current gateway, and the number of crashes before it started.
    current: Mutex<(u64, Arc<Gateway>)>,
}

impl GatewayServer {
    pub fn new(process: Arc<Process>) -> GatewayServer {
        let gateway = Arc::new(Gateway::new(process.name()));
        GatewayServer { process, current: Mutex::new((0, gateway)) }
    }

    /// The current gateway. Nothing survives a crash.
    pub fn gateway(&self) -> Arc<Gateway> {
        let mut current = self.current.lock();
        if current.0 != self.process.crashes() {
            *current = (self.process.crashes(), Arc::new(Gateway::new(self.process.name())));
        }
        current.1.clone()
    }
}

/// The gateways, as an app server sees them.
#[derive(Clone)]
pub struct GatewaysOf {
    pub sim: Arc<Sim>,
    pub asker: Arc<Process>,
    pub servers: Arc<Vec<GatewayServer>>,
}

impl Gateways for GatewaysOf {
    fn hand_over(&self, to: &SessionEntry, event: SessionEvent) -> HandingOver {
        let (gateways, to) = (self.clone(), to.clone());
        let notice = self.sim.notices.begin(&self.asker, &to, &event);
        Either::Right(Box::pin(async move { gateways.reach(&to, event, notice).await }))
    }
}

impl GatewaysOf {
    async fn reach(&self, to: &SessionEntry, event: SessionEvent, notice: Option<u64>) -> HandOver {
        let sim = &self.sim;
        let what = if sim.is_traced() {
            format!("{} → {} {} {}: {}", self.asker.name(), to.gateway, to.user_id, to.device, short(&event))
        } else {
            String::new()
        };
        self.asker.awake().await;
        sim.hop().await;
        self.asker.may_crash(sim).await;
        let Some(server) = self.servers.iter().find(|server| *server.process.name() == *to.gateway) else {
            return HandOver::Refused;
        };
        if self.asker.is_cut_off() || server.process.is_cut_off() {
            note!(sim, "{what}: cut off");
            return std::future::pending().await;
        }
        server.process.awake().await;
        if !server.process.is_up() {
            note!(sim, "{what}: down");
            sim.notices.arrived(notice, false);
            return HandOver::Refused;
        }
        let outcome = server.gateway().hand_over(to, event).await;
        note!(sim, "{what}: {outcome:?}");
        sim.notices.arrived(notice, outcome == HandOver::Taken);
        if sim.strikes(sim.setup.lost_answer_rate) {
            sim.count(|f| f.lost_answers += 1);
            note!(sim, "{what}: the answer is lost");
            return std::future::pending().await;
        }
        sim.hop().await;
        self.asker.may_crash(sim).await;
        outcome
    }
}

/// The background work of an app server. It ends with the process.
pub struct AppBackground(pub Arc<Process>);

impl Spawner for AppBackground {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }
}

fn short(event: &SessionEvent) -> String {
    match event {
        SessionEvent::Messages { messages, row_written, .. } => {
            let row = if *row_written { " with a row" } else { "" };
            let id = messages.first().map(|message| message.conversation_id.as_str()).unwrap_or_default();
            let seqs: Vec<_> = messages.iter().map(|message| message.seq).collect();
            format!("messages {id} {seqs:?}{row}")
        }
        SessionEvent::Wake { conversation_id } => format!("wake {conversation_id}"),
        SessionEvent::Ticks(t) | SessionEvent::OwnTicks(t) => format!(
            "ticks of {} in {}: {}/{}",
            t.user_id, t.conversation_id, t.last_delivered_seq, t.last_read_seq
        ),
        SessionEvent::Close(why) => format!("close: {}", why.code),
        SessionEvent::Typing(_) => "typing".into(),
        SessionEvent::Presence(_) => "presence".into(),
    }
}
