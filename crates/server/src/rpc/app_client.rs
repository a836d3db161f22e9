//! The app servers as a gateway sees them: any of them answers any request, and one that fails is asked no more.
//!
//! A request goes to the less busy of two app servers drawn at random. If its outcome is unknown (the link broke, no
//! answer came), it goes to another while there is time. That is safe because every request may be done twice, and
//! even late:
//!
//! - `send`: the `client_msg_id` makes the second one a duplicate of the first, and runs delivery again (R9).
//! - `ack`, `read`: boundaries only grow (R10). The second one says that it is one, and tells what the first may have
//!   stored and not told.
//! - `pay_debts`: moves a row by compare-and-swap or notes a minimum (R3, R5), and wakes once more.
//! - `settle`: the first try may have removed the row. The second then finds none, or one that a sender wrote since,
//!   and says which; in both cases `last_seq` was read after the removal, so the session reads whatever lies beyond
//!   what it acked (R4), and takes on the row that is there. A first try that runs *late*, after the second was
//!   answered, removes a row only if it holds the same value again. Such a row covers a message that this device has
//!   acked; what came after it is in a live session's hands, or comes by its next look or by its cursor (R6).
//! - `watch`, `presence_changed`, profiles and blocks set a state; reads change nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bluetick_chat::{
    AdminCall, App, AppResult, Debt, DebtsRequest, MessageRange, Operator, Plan, PlanRequest, RangeRequest,
    ReceiptRequest, SendRequest, SettleRequest, Settled, TraceEvent,
};
use bluetick_protocol::{
    ConversationId, DeviceId, Download, ErrorCode, HistoryPage, HistoryQuery, InboxPage, InboxQuery, Json,
    Mute, Presence, Profile, PushDeviceCard, PushRegistration, S3Ref, Sent, Seq, StatusAnswer, Upload,
    UploadRequest, UploadedParts, UserCard, UserId, WireError,
};
use bluetick_store::SessionEntry;
use bytes::Bytes;
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::{
    desk::WRONG_ROLE,
    guard::Guard,
    link::{Link, LinkConfig, LinkError, Peer, Standing},
    wire::{DebtsLeft, Request},
};

#[derive(Debug, Clone)]
pub struct PoolConfig {
    pub link: LinkConfig,
    /// How long a request may take altogether, and how long one app server has for it.
    pub request: Duration,
    pub attempt: Duration,
    /// How long a request waits for an app server when none can be reached.
    pub wait_for_link: Duration,
    /// What an operator asks may take longer: it reads or erases all that there is of a user.
    pub operator: Duration,
}

impl Default for PoolConfig {
    fn default() -> Self {
        PoolConfig {
            link: LinkConfig::default(),
            request: Duration::from_secs(15),
            attempt: Duration::from_secs(8),
            wait_for_link: Duration::from_secs(2),
            operator: Duration::from_secs(110),
        }
    }
}

/// A request goes to so many app servers at most.
const ATTEMPTS: usize = 4;
/// How long others are preferred to an app server that could not do what it was asked.
const SHUNNED_FOR: Duration = Duration::from_secs(1);

/// The links to all app servers that are known.
pub struct AppServers {
    guard: Guard,
    config: PoolConfig,
    links: Mutex<BTreeMap<String, Arc<Link>>>,
    changed: Arc<Notify>,
    rng: Mutex<StdRng>,
    /// Those that could not do what they were asked a moment ago, and until when others are preferred: who fails at once is
    /// never busy.
    shunned: Mutex<BTreeMap<String, Instant>>,
}

impl AppServers {
    pub fn new(guard: Guard, config: PoolConfig) -> AppServers {
        let rng = Mutex::new(StdRng::seed_from_u64(rand::random::<u64>()));
        AppServers {
            guard,
            config,
            links: Mutex::default(),
            changed: Arc::new(Notify::new()),
            rng,
            shunned: Mutex::default(),
        }
    }

    /// Takes on those that are listed, and lets go of those that are not, unless they still work: whoever cannot say
    /// that it is there may be there all the same. Who was found in the directory must be whom its entry names; the
    /// configuration may use another name for a process than it has for itself.
    pub fn set(&self, found: &BTreeSet<String>, fixed: &BTreeSet<String>) {
        let mut links = self.links.lock();
        let is_listed = |address: &String| found.contains(address) || fixed.contains(address);
        links.retain(|address, link| {
            is_listed(address) || link.standing() == Standing::Up || link.in_flight() > 0
        });
        for address in found.union(fixed) {
            links.entry(address.clone()).or_insert_with(|| {
                let peer = match fixed.contains(address) {
                    true => Peer::configured(address),
                    false => Peer::named(address, address),
                };
                let (guard, config) = (self.guard.clone(), self.config.link.clone());
                Arc::new(Link::open(peer, guard, config, self.changed.clone()))
            });
        }
        metrics::gauge!("bluetick_app_servers")
            .set(links.values().filter(|link| link.is_up()).count() as f64);
    }

    /// How each stands, for whoever asks whether this gateway is ready.
    pub fn standings(&self) -> Vec<(String, Standing)> {
        self.links.lock().iter().map(|(address, link)| (address.clone(), link.standing())).collect()
    }

    fn up(&self) -> Vec<Arc<Link>> {
        self.links.lock().values().filter(|link| link.is_up()).cloned().collect()
    }

    /// The less busy of two drawn at random among those not tried yet.
    fn pick(&self, tried: &BTreeSet<String>) -> Option<Arc<Link>> {
        let mut usable = self.up();
        usable.retain(|link| !tried.contains(link.address()));
        let shunned = {
            let mut shunned = self.shunned.lock();
            shunned.retain(|_, until| Instant::now() < *until);
            shunned.clone()
        };
        if usable.iter().any(|link| !shunned.contains_key(link.address())) {
            usable.retain(|link| !shunned.contains_key(link.address()));
        }
        let mut draw = || {
            let count = usable.len();
            (count > 0).then(|| usable.swap_remove(self.rng.lock().random_range(0..count)))
        };
        match (draw(), draw()) {
            (Some(one), Some(other)) => Some(if other.in_flight() < one.in_flight() { other } else { one }),
            (one, _) => one,
        }
    }

    /// Waits for an app server that is not in `tried`, or, where all were tried, for any.
    async fn next(&self, tried: &mut BTreeSet<String>, deadline: Instant) -> Option<Arc<Link>> {
        let until = deadline.min(Instant::now() + self.config.wait_for_link);
        loop {
            let changed = self.changed.notified();
            if let Some(link) = self.pick(tried) {
                return Some(link);
            }
            if !tried.is_empty() && !self.up().is_empty() {
                // All that are up have failed once. A moment, and from the beginning.
                tried.clear();
                let moment = Duration::from_millis(self.rng.lock().random_range(20..100));
                tokio::time::sleep(moment).await;
                continue;
            }
            timeout_at(until, changed).await.ok()?;
        }
    }

    /// Asks until somebody answers. `settled` says whether an answer is one to come back with, or another app server
    /// might do better.
    async fn ask<T: DeserializeOwned + Send>(
        &self,
        request: &Request,
        (whole, attempt): (Duration, Duration),
        settled: impl Fn(&AppResult<T>) -> bool,
    ) -> AppResult<T> {
        let mut payload = written(request)?;
        let deadline = Instant::now() + whole;
        let mut tried = BTreeSet::new();
        let mut last = None;
        for round in 0..ATTEMPTS {
            let Some(link) = self.next(&mut tried, deadline).await else { break };
            tried.insert(link.address().to_owned());
            if round > 0 {
                metrics::counter!("bluetick_rpc_retries_total").increment(1);
            }
            match link.call(payload.clone(), deadline.min(Instant::now() + attempt)).await {
                Ok(answer) => match serde_json::from_slice::<AppResult<T>>(&answer) {
                    Ok(answer) if settled(&answer) => return answer,
                    Ok(Err(error)) if error.message == WRONG_ROLE => {
                        tracing::warn!(peer = link.address(), "this is not an app server any more");
                        self.links.lock().remove(link.address());
                    }
                    // Its store is out of reach, perhaps only for it: one other is asked, and for a while others first.
                    Ok(answer) => {
                        self.shunned.lock().insert(link.address().to_owned(), Instant::now() + SHUNNED_FOR);
                        if last.is_some() {
                            return answer;
                        }
                        last = Some(answer);
                    }
                    Err(error) => {
                        tracing::warn!(%error, peer = link.address(), "an answer is not understood");
                    }
                },
                // It may be under way still, and would then undo what comes after it.
                Err(LinkError::Unknown(why)) if !may_come_late(request) => {
                    tracing::warn!(%why, peer = link.address(), "the outcome of a call is not known");
                    break;
                }
                Err(error) => {
                    tracing::debug!(%error, peer = link.address(), "asking another app server");
                    if let (LinkError::Unknown(_), Some(again)) = (&error, request.again()) {
                        payload = written(&again)?;
                    }
                }
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        last.unwrap_or_else(|| Err(unavailable()))
    }

    async fn request<T: DeserializeOwned + Send>(&self, request: Request) -> AppResult<T> {
        let times = (self.config.request, self.config.attempt);
        self.ask(&request, times, |answer| !is_unavailable(answer)).await
    }
}

/// Whether a call may be done again while an earlier try of it may still be under way. What the last writer decides may
/// not; nor may an operator's call, which may be what the process died of.
fn may_come_late(request: &Request) -> bool {
    !matches!(
        request,
        Request::SetBlock(..)
            | Request::PutProfile(..)
            | Request::TokenProfile(..)
            | Request::PutPush(..)
            | Request::DeletePush(..)
            | Request::Mute(..)
            | Request::Unmute(..)
            | Request::Admin(_)
    )
}

fn written(request: &Request) -> AppResult<Bytes> {
    serde_json::to_vec(request).map(Bytes::from).map_err(|error| {
        tracing::error!(%error, "a request cannot be written");
        WireError::new(ErrorCode::Internal, "the server met an error it did not expect")
    })
}

fn is_unavailable<T>(answer: &AppResult<T>) -> bool {
    matches!(answer, Err(e) if e.code == ErrorCode::Unavailable)
}

fn unavailable() -> WireError {
    WireError::new(ErrorCode::Unavailable, "the server cannot do this right now; try again")
        .retry_after(1_000)
}

/// The rules, wherever they run.
pub struct RemoteApp(pub Arc<AppServers>);

#[async_trait]
impl App for RemoteApp {
    async fn send(&self, request: SendRequest) -> Vec<AppResult<Sent>> {
        let count = request.sends.len();
        let times = (self.0.config.request, self.0.config.attempt);
        let settled = |answer: &AppResult<Vec<AppResult<Sent>>>| match answer {
            Ok(sent) => !sent.iter().all(is_unavailable),
            Err(e) => e.code != ErrorCode::Unavailable,
        };
        match self.0.ask(&Request::Send(request), times, settled).await {
            Ok(answers) if answers.len() == count => answers,
            Ok(_) => vec![Err(unavailable()); count],
            Err(e) => vec![Err(e); count],
        }
    }

    async fn plan(&self, request: PlanRequest) -> AppResult<Plan> {
        self.0.request(Request::Plan(request)).await
    }

    async fn read_range(&self, request: RangeRequest) -> AppResult<MessageRange> {
        self.0.request(Request::ReadRange(request)).await
    }

    async fn pending_row(&self, user: UserId, conversation: ConversationId) -> AppResult<Option<Seq>> {
        self.0.request(Request::PendingRow(user, conversation)).await
    }

    async fn ack(&self, request: ReceiptRequest) -> AppResult<()> {
        self.0.request(Request::Ack(request)).await
    }

    async fn read(&self, request: ReceiptRequest) -> AppResult<()> {
        self.0.request(Request::Read(request)).await
    }

    async fn settle(&self, request: SettleRequest) -> AppResult<Settled> {
        self.0.request(Request::Settle(request)).await
    }

    async fn pay_debts(&self, request: DebtsRequest) -> AppResult<Vec<Debt>> {
        self.0.request::<DebtsLeft>(Request::PayDebts(request)).await
    }

    async fn typing(&self, user: UserId, conversation: ConversationId) -> AppResult<()> {
        self.0.request(Request::Typing(user, conversation)).await
    }

    async fn inbox(&self, user: UserId, query: InboxQuery) -> AppResult<InboxPage> {
        self.0.request(Request::Inbox(user, query)).await
    }

    async fn history(&self, user: UserId, query: HistoryQuery) -> AppResult<HistoryPage> {
        self.0.request(Request::History(user, query)).await
    }

    async fn status(&self, user: UserId, conversation: ConversationId) -> AppResult<StatusAnswer> {
        self.0.request(Request::Status(user, conversation)).await
    }

    async fn watch(&self, watcher: SessionEntry, users: Vec<UserId>) -> AppResult<Vec<Presence>> {
        self.0.request(Request::Watch(watcher, users)).await
    }

    async fn presence_changed(&self, user: UserId, online: bool) -> AppResult<()> {
        self.0.request(Request::PresenceChanged(user, online)).await
    }

    async fn end_sessions(&self, sessions: Vec<SessionEntry>, why: WireError) {
        if sessions.is_empty() {
            return;
        }
        if let Err(error) = self.0.request::<()>(Request::EndSessions(sessions, why)).await {
            // They find out by themselves that they were replaced, with their next heartbeat.
            tracing::debug!(%error, "sessions could not be told that they end");
        }
    }

    async fn not_before(&self, user: UserId) -> AppResult<Option<u64>> {
        self.0.request(Request::NotBefore(user)).await
    }

    async fn profile(&self, user: UserId) -> AppResult<UserCard> {
        self.0.request(Request::Profile(user)).await
    }

    async fn put_profile(&self, user: UserId, profile: Profile) -> AppResult<UserCard> {
        self.0.request(Request::PutProfile(user, profile)).await
    }

    async fn token_profile(&self, user: UserId, profile: Profile) -> AppResult<()> {
        self.0.request(Request::TokenProfile(user, profile)).await
    }

    async fn user_card(&self, user: UserId, other: UserId) -> AppResult<UserCard> {
        self.0.request(Request::UserCard(user, other)).await
    }

    async fn set_block(&self, user: UserId, other: UserId, blocked: bool) -> AppResult<()> {
        self.0.request(Request::SetBlock(user, other, blocked)).await
    }

    async fn blocks(&self, user: UserId) -> AppResult<Vec<UserId>> {
        self.0.request(Request::Blocks(user)).await
    }

    async fn put_push(
        &self,
        user: UserId,
        device: DeviceId,
        registration: PushRegistration,
    ) -> AppResult<PushDeviceCard> {
        self.0.request(Request::PutPush(user, device, registration)).await
    }

    async fn delete_push(&self, user: UserId, device: DeviceId) -> AppResult<()> {
        self.0.request(Request::DeletePush(user, device)).await
    }

    async fn push_devices(&self, user: UserId) -> AppResult<Vec<PushDeviceCard>> {
        self.0.request(Request::PushDevices(user)).await
    }

    async fn mute(&self, user: UserId, mute: Mute) -> AppResult<()> {
        self.0.request(Request::Mute(user, mute)).await
    }

    async fn unmute(&self, user: UserId, conversation: ConversationId) -> AppResult<()> {
        self.0.request(Request::Unmute(user, conversation)).await
    }

    async fn mutes(&self, user: UserId) -> AppResult<Vec<Mute>> {
        self.0.request(Request::Mutes(user)).await
    }

    async fn begin_upload(&self, user: UserId, request: UploadRequest) -> AppResult<Upload> {
        self.0.request(Request::BeginUpload(user, request)).await
    }

    async fn complete_upload(&self, user: UserId, s3_ref: S3Ref, parts: UploadedParts) -> AppResult<()> {
        self.0.request(Request::CompleteUpload(user, s3_ref, parts)).await
    }

    async fn download(
        &self,
        user: UserId,
        conversation: ConversationId,
        s3_ref: S3Ref,
    ) -> AppResult<Download> {
        self.0.request(Request::Download(user, conversation, s3_ref)).await
    }
}

/// What an operator asks, done here if there is data, else at an app server. The steps of a message are with
/// whichever app servers took them: all are asked.
pub struct ClusterOperator {
    pub own: Option<Arc<dyn Operator>>,
    /// All but this process.
    pub servers: Arc<AppServers>,
}

#[async_trait]
impl Operator for ClusterOperator {
    async fn run(&self, call: AdminCall) -> AppResult<Json> {
        let traced = matches!(call, AdminCall::Trace(..) | AdminCall::TraceId(_));
        let answer = match &self.own {
            Some(own) => own.run(call).await?,
            None => {
                let whole = self.servers.config.operator;
                self.servers
                    .ask(&Request::Admin(call), (whole, whole), |a: &AppResult<Json>| !is_unavailable(a))
                    .await?
            }
        };
        if !traced {
            return Ok(answer);
        }
        Ok(self.with_all_steps(&answer).await.unwrap_or(answer))
    }
}

impl ClusterOperator {
    async fn with_all_steps(&self, report: &Json) -> Option<Json> {
        let mut report: Value = serde_json::from_str(report.as_str()).ok()?;
        let id: ConversationId = serde_json::from_value(report["conversation_id"].clone()).ok()?;
        let seq = report["seq"].as_u64()?;
        let mut events: Vec<TraceEvent> = serde_json::from_value(report["events"].take()).ok()?;
        let payload: Bytes = serde_json::to_vec(&Request::Admin(AdminCall::Events(id, seq))).ok()?.into();
        let deadline = Instant::now() + self.servers.config.attempt;
        let asked = self.servers.up().into_iter().map(|link| {
            let payload = payload.clone();
            async move { link.call(payload, deadline).await.ok() }
        });
        for answer in futures_util::future::join_all(asked).await.into_iter().flatten() {
            if let Ok(Ok(steps)) = serde_json::from_slice::<AppResult<Vec<TraceEvent>>>(&answer) {
                events.extend(steps.into_iter().filter(|step| !events.contains(step)).collect::<Vec<_>>());
            }
        }
        events.sort_by_key(|event| event.at);
        report["events"] = serde_json::to_value(events).ok()?;
        Json::from_text(&report.to_string()).ok()
    }
}
