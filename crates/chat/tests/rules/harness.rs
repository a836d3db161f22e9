//! A server in miniature: the real node, gateways and sessions over a store in memory, with time
//! that the test controls.

mod client;
mod late_writers;
mod push;
mod steps;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bluetick_chat::{
    AppResult, ChatConfig, ChatService, Gateway, Gateways, HandOver, HandingOver, InboxApi, PushConfig,
    RequestBudget, SendApi, SendBudget, SendRequest, SessionEvent, Spawner, Unlimited,
    session::{Identity, SessionConfig, SessionHost, TokenCheck},
};
use bluetick_protocol::{
    ConversationId, DeviceId, InboxEntry, InboxQuery, MessageId, Send as SendFrame, Sent, Seq, SessionId,
    StatusAnswer, UserId, WireError,
};
use bluetick_sim::{Breach, Breaches};
pub use bluetick_store::testing::faults::StoreMethod;
use bluetick_store::{Clock, ManualClock, Memory, SessionEntry, Store, testing::faults::Faulty};
use futures_util::future::{BoxFuture, Either};
use parking_lot::Mutex;
use tokio::{
    task::{AbortHandle, JoinHandle},
    time::sleep,
};

pub use client::{Client, TestDevice, phone, tablet};
use late_writers::LateWriters;
pub use push::{Phones, PushService, later};
pub use steps::{Gate, PlannedFaults};

/// The settings of a test.
#[derive(Default)]
pub struct Setup {
    pub breaches: Breaches,
    pub session: SessionConfig,
    pub chat: ChatConfig,
    /// Notifies users whom no session reaches.
    pub push: Option<PushConfig>,
    /// `None` means unlimited.
    pub sends: Option<Arc<dyn SendBudget>>,
    pub requests: Option<Arc<dyn RequestBudget>>,
}

pub struct World {
    pub clock: Arc<ManualClock>,
    pub memory: Arc<Memory>,
    pub steps: Arc<PlannedFaults>,
    pub late_writers: Arc<LateWriters>,
    pub store: Store,
    pub node: Arc<ChatService>,
    pub phones: Arc<Phones>,
    pub service: Option<PushService>,
    gateways: Arc<GatewaysByName>,
    session: SessionConfig,
    requests: Arc<dyn RequestBudget>,
    breaches: Breaches,
    seeds: AtomicU64,
}

/// The gateways that are up, by name.
#[derive(Default)]
struct GatewaysByName {
    up: Mutex<BTreeMap<String, GatewayProcess>>,
    silent: Mutex<BTreeSet<String>>,
    /// The delay of hand-overs to a gateway.
    slow: Mutex<BTreeMap<String, Duration>>,
}

struct GatewayProcess {
    gateway: Arc<Gateway>,
    sessions: Vec<AbortHandle>,
}

impl GatewaysByName {
    fn reach(&self, to: &SessionEntry, event: SessionEvent) -> HandingOver {
        let gateway = self.up.lock().get(&*to.gateway).map(|process| process.gateway.clone());
        match gateway {
            Some(gateway) => gateway.hand_over(to, event),
            None => Either::Left(ready(HandOver::Refused)),
        }
    }
}

/// The gateways as the app server sees them.
struct ToGateways(Arc<GatewaysByName>);

impl Gateways for ToGateways {
    fn hand_over(&self, to: &SessionEntry, event: SessionEvent) -> HandingOver {
        let gateways = self.0.clone();
        if gateways.silent.lock().contains(&*to.gateway) {
            return Either::Right(Box::pin(std::future::pending()));
        }
        let delay = gateways.slow.lock().get(&*to.gateway).copied();
        let Some(delay) = delay else { return gateways.reach(to, event) };
        let to = to.clone();
        Either::Right(Box::pin(async move {
            sleep(delay).await;
            gateways.reach(&to, event).await
        }))
    }
}

/// Spawns the app server's background tasks.
pub struct TestSpawner;

impl Spawner for TestSpawner {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        spawn(task);
    }
}

/// The token is the user's id.
struct TestTokens;

#[async_trait]
impl TokenCheck for TestTokens {
    async fn check(&self, token: &str) -> Result<Identity, WireError> {
        Ok(Identity { user: user(token), expires_at: None, profile: None, issued_at: None })
    }
}

pub fn user(id: &str) -> UserId {
    UserId::new(id).unwrap()
}

pub fn conversation(id: &str) -> ConversationId {
    ConversationId::new(id).unwrap()
}

/// Breaks some rules, and the half of R6 that finds what no device has acked: it would repair what is wrong with
/// a pending row, and so hide the breach.
pub fn rows_alone(breaches: impl IntoIterator<Item = Breach>) -> Breaches {
    Breaches::of(breaches.into_iter().chain([Breach::R6Undelivered]))
}

/// A send whose `client_msg_id` is its body.
pub fn message(to: &str, body: &str) -> SendFrame {
    SendFrame {
        reference: None,
        client_msg_id: body.parse().unwrap(),
        to: Some(user(to)),
        conversation_id: None,
        body: body.to_owned(),
        attachment: None,
        meta: None,
        seen_seq: None,
    }
}

// The tasks of a test are not part of the code under test.
#[allow(clippy::disallowed_methods)]
fn spawn<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(task)
}

impl World {
    pub fn new() -> World {
        World::with(Setup::default())
    }

    pub fn under(breaches: Breaches) -> World {
        World::with(Setup { breaches, ..Setup::default() })
    }

    pub fn with(setup: Setup) -> World {
        let clock = Arc::new(ManualClock::new(1_760_000_000_000));
        let memory = Arc::new(Memory::new(clock.clone()));
        let steps = Arc::new(PlannedFaults::default());
        let store = Store::from_memory(memory.clone(), clock.clone());
        let late_writers =
            Arc::new(LateWriters::new(store.clone(), memory.clone(), clock.clone(), steps.clone()));
        let store = Store {
            messages: Arc::new(Faulty::new(late_writers.clone(), steps.clone())),
            pending: Arc::new(Faulty::new(store.pending, steps.clone())),
            status: Arc::new(Faulty::new(store.status, steps.clone())),
            sessions: Arc::new(Faulty::new(store.sessions, steps.clone())),
            ..store
        };
        let gateways = Arc::new(GatewaysByName::default());
        let to_gateways = Arc::new(ToGateways(gateways.clone()));
        let sends = setup.sends.unwrap_or_else(|| Arc::new(Unlimited));
        let breaches = setup.breaches;
        let (seen, to_gateways) = (breaches.store(store.clone()), breaches.gateways(to_gateways));
        let node = ChatService::new(seen, to_gateways, clock.clone(), setup.chat, sends)
            .with_spawner(Arc::new(TestSpawner));
        let mut world = World {
            phones: Arc::default(),
            service: None,
            clock,
            memory,
            steps,
            late_writers,
            store,
            node: Arc::new(node),
            gateways,
            session: setup.session,
            requests: setup.requests.unwrap_or_else(|| Arc::new(Unlimited)),
            breaches,
            seeds: AtomicU64::new(1),
        };
        if let Some(config) = setup.push {
            world.session.unacked_after = Some(config.unacked);
            let service = world.service(config);
            world.node = service.node.clone();
            world.service = Some(service);
        }
        world
    }

    /// Connects a device. Its session runs when the test next waits.
    pub fn connect(&self, device: TestDevice) -> Client {
        let mut up = self.gateways.up.lock();
        let process = up.entry(device.gateway.clone()).or_insert_with(|| GatewayProcess {
            gateway: Arc::new(Gateway::new(&device.gateway)),
            sessions: Vec::new(),
        });
        let (app, registry) = self.breaches.sessions(self.node.clone(), self.store.sessions.clone());
        let host = SessionHost {
            app,
            registry,
            gateway: process.gateway.clone(),
            tokens: Arc::new(TestTokens),
            clock: self.clock.clone(),
            config: self.session.clone(),
            observer: self.node.observer(),
            budget: self.requests.clone(),
        };
        let seed = self.seeds.fetch_add(1, Ordering::Relaxed);
        let (source, sink, client) = Client::line(&device);
        let session = spawn(async move { host.run(source, sink, seed).await });
        process.sessions.push(session.abort_handle());
        client(session)
    }

    /// Connects a device and waits until it has nothing more to do.
    pub async fn connected(&self, device: TestDevice) -> Client {
        let client = self.connect(device);
        self.quiet().await;
        client
    }

    /// Ends a gateway's process: its sessions stop where they are, and nobody reaches it any more.
    pub async fn crash(&self, gateway: &str) {
        let crashed = self.gateways.up.lock().remove(gateway);
        for session in crashed.into_iter().flat_map(|process| process.sessions) {
            session.abort();
        }
        self.quiet().await;
    }

    /// Shuts a gateway down gracefully.
    pub fn shut_down(&self, gateway: &str) {
        if let Some(process) = self.gateways.up.lock().get(gateway) {
            process.gateway.shut_down();
        }
    }

    /// Hand-overs to this gateway get no answer.
    pub fn silence(&self, gateway: &str) {
        self.gateways.silent.lock().insert(gateway.to_owned());
    }

    pub fn unsilence(&self, gateway: &str) {
        self.gateways.silent.lock().remove(gateway);
    }

    /// Hand-overs to this gateway arrive late, and so do its answers.
    pub fn slow_down(&self, gateway: &str, by: Duration) {
        self.gateways.slow.lock().insert(gateway.to_owned(), by);
    }

    /// Waits until every task waits for time or for the test. The wall clock does not move.
    pub async fn quiet(&self) {
        sleep(Duration::from_millis(1)).await;
    }

    /// Lets time pass, on the wall and in the runtime.
    pub async fn pass(&self, time: Duration) {
        let step = Duration::from_millis(100);
        for _ in 0..time.as_millis().div_ceil(step.as_millis()) {
            self.clock.advance(step.as_millis() as u64);
            sleep(step).await;
        }
        self.quiet().await;
    }

    pub async fn send_frame(&self, from: &str, frame: SendFrame) -> AppResult<Sent> {
        let request = SendRequest { user: user(from), session: None, sends: vec![frame] };
        self.node.send(request).await.remove(0)
    }

    pub async fn try_send(&self, from: &str, to: &str, body: &str) -> AppResult<Sent> {
        self.send_frame(from, message(to, body)).await
    }

    /// Sends as a back end does, without a session. A millisecond passes, so that ids follow the
    /// order of sends.
    pub async fn send(&self, from: &str, to: &str, body: &str) -> Seq {
        self.clock.advance(1);
        self.try_send(from, to, body).await.unwrap().seq
    }

    /// The same in a task of its own, which can be stopped at a step or aborted.
    pub fn sending(&self, from: &str, to: &str, body: &str) -> JoinHandle<AppResult<Sent>> {
        let request = SendRequest { user: user(from), session: None, sends: vec![message(to, body)] };
        let node = self.node.clone();
        spawn(async move { node.send(request).await.remove(0) })
    }

    /// Registers an entry that no gateway knows, as a crashed process leaves one.
    pub async fn leave_stale_entry(&self, of: &str) {
        let entry = SessionEntry {
            user_id: user(of),
            device: DeviceId::new("old").unwrap(),
            session_id: SessionId(99),
            gateway: "gone".into(),
            connected_at: self.clock.now_ms(),
        };
        self.store.sessions.register(&entry, self.session.ttl, 10).await.unwrap();
    }

    /// Deletes every entry, like a restart of the session store.
    pub async fn flush_registry(&self) {
        self.store.sessions.flush().await.unwrap();
    }

    /// Bob's session has drained and acked a row, and is held before it removes it; the registry
    /// has lost him. A sender finds the row, so it writes nothing, and finds no session.
    pub async fn bobs_row_is_relied_on(&self) -> (Client, Gate) {
        self.send("alice", "bob", "drained").await;
        let mut settling = self.steps.stop_before(StoreMethod::Settle, "bob");
        let bob = self.connect(phone("bob"));
        settling.reached().await;
        self.flush_registry().await;
        self.send("alice", "bob", "relies-on-the-row").await;
        (bob, settling)
    }

    pub async fn registered(&self, of: &str) -> Vec<String> {
        let entries = self.store.sessions.lookup(&user(of)).await.unwrap();
        entries.iter().map(|entry| entry.device.to_string()).collect()
    }

    pub async fn row(&self, of: &str, id: &str) -> Option<Seq> {
        self.store.pending.pending_row(&user(of), &conversation(id)).await.unwrap()
    }

    pub async fn status(&self, of: &str, id: &str) -> StatusAnswer {
        self.node.status(user(of), conversation(id)).await.unwrap()
    }

    pub async fn inbox(&self, of: &str) -> Vec<InboxEntry> {
        self.node.inbox(user(of), InboxQuery::default()).await.unwrap().conversations
    }

    pub async fn unread(&self, of: &str, id: &str) -> u64 {
        let inbox = self.inbox(of).await;
        inbox.iter().find(|entry| entry.conversation_id.as_str() == id).map_or(0, |entry| entry.unread_count)
    }

    /// The cursor of a device that held everything until now.
    pub fn cursor_now(&self) -> MessageId {
        MessageId::at(self.clock.now_ms())
    }
}
