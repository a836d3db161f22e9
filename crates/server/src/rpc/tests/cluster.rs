use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Poll},
};

use bluetick_chat::{
    AdminCall, Gateways as _, HandOver, ReceiptRequest, RemoteApp, SendApi as _, SendRequest, SessionEvent,
    Unlimited, UserApi as _,
    session::{
        FrameSink, FrameSource, Gone, Identity, Incoming, OutboundQueue, Outgoing, SessionHost, TokenCheck,
    },
};
use bluetick_protocol::{
    ClientMsgId, ConversationId, DeviceId, ErrorCode, Send as SendFrame, SessionId, UserId, WireError,
};
use bluetick_store::{Clock, Directory as _, MemoryDirectory, NodeRole, SessionEntry, Store, SystemClock};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    super::{AppServers, PoolConfig, RemoteGateways},
    *,
};
use crate::{
    backends::Backends,
    config::{Config, Overrides, Role},
    roles::{Dependencies, ServerProcess},
};

/// What the processes of a test share.
struct TestCluster {
    clock: Arc<dyn Clock>,
    store: Store,
    directory: Arc<MemoryDirectory>,
}

impl TestCluster {
    fn new() -> TestCluster {
        crate::tls::install_provider();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        TestCluster {
            store: Store::memory(clock.clone()),
            directory: Arc::new(MemoryDirectory::new(clock.clone())),
            clock,
        }
    }

    async fn start(&self, roles: &[Role]) -> (ServerProcess, Config) {
        let mut config = Config::load(None, Overrides::default()).unwrap();
        config.server.roles = roles.to_vec();
        config.cluster.listen = Some("127.0.0.1:0".parse().unwrap());
        let opened = Backends {
            store: roles.contains(&Role::App).then(|| self.store.clone()),
            sessions: self.store.sessions.clone(),
            directory: Some(self.directory.clone()),
            redis: None,
        };
        let means = Dependencies {
            clock: self.clock.clone(),
            budget: Arc::new(Unlimited),
            providers: None,
            uploads: None,
        };
        let process = ServerProcess::start(&config, opened, means).await.unwrap();
        (process, config)
    }

    async fn app_server(&self) -> ServerProcess {
        self.start(&[Role::App]).await.0
    }

    /// A gateway that has found its app servers.
    async fn gateway(&self) -> (ServerProcess, Arc<SessionHost>) {
        let (process, config) = self.start(&[Role::Gateway]).await;
        let host = Arc::new(SessionHost {
            app: process.app.clone(),
            registry: self.store.sessions.clone(),
            gateway: process.gateway.clone(),
            tokens: Arc::new(Names),
            clock: self.clock.clone(),
            config: config.session(),
            observer: process.observer.clone(),
            budget: Arc::new(Unlimited),
        });
        (process, host)
    }
}

async fn is_ready(process: &ServerProcess) {
    let end = within(SOON);
    while let Some(why) = process.readiness.look().await.refusing {
        assert!(Instant::now() < end, "{why}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Takes a user's name for their token.
struct Names;

#[async_trait]
impl TokenCheck for Names {
    async fn check(&self, token: &str) -> Result<Identity, WireError> {
        match UserId::new(token) {
            Ok(user) => Ok(Identity { user, expires_at: None, profile: None, issued_at: None }),
            Err(e) => Err(WireError::new(ErrorCode::Unauthorized, e.to_string())),
        }
    }
}

struct ChannelSource(mpsc::UnboundedReceiver<String>);
struct ChannelSink(mpsc::UnboundedSender<Value>);

impl FrameSource for ChannelSource {
    type Text = String;

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Incoming<String>> {
        self.0.poll_recv(cx).map(|text| text.map_or(Incoming::Closed, Incoming::Text))
    }
}

impl FrameSink for ChannelSink {
    fn poll_write(&mut self, _: &mut Context<'_>, queue: &mut OutboundQueue) -> Poll<Result<(), Gone>> {
        while let Some(out) = queue.pop_front() {
            if let Outgoing::Text(text) = out {
                let _ = self.0.send(serde_json::from_str(&text).unwrap());
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// A device at a gateway.
struct ClusterDevice {
    say: mpsc::UnboundedSender<String>,
    heard: mpsc::UnboundedReceiver<Value>,
}

impl ClusterDevice {
    async fn connect(host: &Arc<SessionHost>, user: &str, seed: u64) -> ClusterDevice {
        let (say, said) = mpsc::unbounded_channel();
        let (tell, heard) = mpsc::unbounded_channel();
        let host = host.clone();
        tokio::spawn(async move { host.run(ChannelSource(said), ChannelSink(tell), seed).await });
        let mut device = ClusterDevice { say, heard };
        device.say(json!({"type": "hello", "token": user, "device": format!("d{seed}")}));
        device.hear("caught_up").await;
        device
    }

    fn say(&self, frame: Value) {
        let _ = self.say.send(frame.to_string());
    }

    async fn hear(&mut self, kind: &str) -> Value {
        let heard = async {
            loop {
                let frame = self.heard.recv().await.expect("the session lives");
                if frame["type"] == kind {
                    return frame;
                }
            }
        };
        tokio::time::timeout(SOON, heard).await.unwrap_or_else(|_| panic!("no {kind}"))
    }
}

fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

fn send(id: &str) -> SendRequest {
    let frame = SendFrame {
        reference: None,
        client_msg_id: ClientMsgId::new(id).unwrap(),
        to: Some(user("bob")),
        conversation_id: None,
        body: id.to_owned(),
        attachment: None,
        meta: Some(bluetick_protocol::Json::from_text(r#"{"a": [1, 2]}"#).unwrap()),
        seen_seq: None,
    };
    SendRequest { user: user("alice"), session: None, sends: vec![frame] }
}

fn entry(gateway: &str) -> SessionEntry {
    SessionEntry {
        user_id: user("bob"),
        device: DeviceId::new("phone").unwrap(),
        session_id: SessionId(7),
        gateway: gateway.into(),
        connected_at: 1,
    }
}

#[tokio::test]
async fn people_at_two_gateways_talk_through_two_app_servers() {
    let world = TestCluster::new();
    let _apps = (world.app_server().await, world.app_server().await);
    let ((one, here), (two, there)) = (world.gateway().await, world.gateway().await);
    is_ready(&one).await;
    is_ready(&two).await;
    let mut alice = ClusterDevice::connect(&here, "alice", 1).await;
    let mut bob = ClusterDevice::connect(&there, "bob", 2).await;
    for n in 1..=20u64 {
        alice.say(json!({"type": "send", "ref": n, "client_msg_id": format!("m{n}"), "to": "bob",
            "body": format!("hi {n}"), "meta": {"n": n}}));
        assert_eq!(alice.hear("sent").await["seq"], n);
        let message = bob.hear("message").await;
        assert_eq!((&message["seq"], &message["meta"]["n"]), (&json!(n), &json!(n)));
        bob.say(json!({"type": "read", "conversation_id": "alice~bob", "seq": n}));
        let ticks = alice.hear("ticks").await;
        assert_eq!((&ticks["user_id"], &ticks["last_read_seq"]), (&json!("bob"), &json!(n)));
    }
    assert!(world.store.pending.pending_of(&user("bob")).await.unwrap().is_empty(), "all was handed over");
    alice.say(json!({"type": "inbox", "ref": "i", "limit": 5}));
    assert_eq!(alice.hear("inbox").await["conversations"][0]["peer_status"]["last_read_seq"], 20);
}

#[tokio::test]
async fn a_process_with_both_roles_hands_over_to_itself_and_to_others() {
    let world = TestCluster::new();
    let (one, _) = world.start(&[Role::Gateway, Role::App]).await;
    let (_two, there) = world.gateway().await;
    is_ready(&one).await;
    let mut bob = ClusterDevice::connect(&there, "bob", 1).await;
    let sent = one.app.send(send("m1")).await.remove(0).unwrap();
    assert_eq!(bob.hear("message").await["seq"], sent.seq);
    assert!(one.gateway.name().starts_with(&format!("{}#", one.cluster_address().unwrap())));
}

/// An app server that takes calls and never answers.
#[derive(Default)]
struct Silent {
    asked: AtomicUsize,
}

#[async_trait]
impl Dispatcher for Silent {
    async fn dispatch(&self, _: Bytes) -> Bytes {
        self.asked.fetch_add(1, Ordering::SeqCst);
        std::future::pending().await
    }
}

#[tokio::test]
async fn an_app_server_that_dies_with_a_request_is_replaced_by_another() {
    let world = TestCluster::new();
    let good = world.app_server().await;
    let silent = Arc::new(Silent::default());
    let (dying, address) = listen(Guard::default(), silent.clone()).await;
    let servers = Arc::new(AppServers::new(Guard::default(), PoolConfig::default()));
    servers.set(&BTreeSet::from([good.cluster_address().unwrap(), address.to_string()]), &BTreeSet::new());
    until("both are up", || servers.link_statuses().iter().all(|(_, s)| *s == LinkStatus::Up)).await;
    let app = Arc::new(RemoteApp(servers));
    let began = Instant::now();
    let sends = (0..10).map(|n| {
        let app = app.clone();
        async move { app.send(send(&format!("m{n}"))).await.remove(0) }
    });
    let (answers, ()) = tokio::join!(futures_util::future::join_all(sends), async {
        until("the silent one has some", || silent.asked.load(Ordering::SeqCst) > 0).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(dying);
    });
    let mut seqs: Vec<_> = answers.into_iter().map(|answer| answer.unwrap().seq).collect();
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=10).collect::<Vec<_>>(), "each was sent, once");
    assert!(began.elapsed() < Duration::from_secs(5), "by the broken link, not by a deadline");
}

#[tokio::test]
async fn one_that_hangs_costs_its_time_and_none_left_is_unavailable() {
    let world = TestCluster::new();
    let good = world.app_server().await;
    let (hanging, address) = listen(Guard::default(), Arc::new(Silent::default())).await;
    let config = PoolConfig {
        attempt: Duration::from_millis(200),
        wait_for_link: Duration::from_millis(300),
        ..PoolConfig::default()
    };
    let servers = Arc::new(AppServers::new(Guard::default(), config));
    servers.set(&BTreeSet::from([good.cluster_address().unwrap(), address.to_string()]), &BTreeSet::new());
    until("both are up", || servers.link_statuses().iter().all(|(_, s)| *s == LinkStatus::Up)).await;
    let app = RemoteApp(servers);
    for n in 0..8 {
        app.send(send(&format!("m{n}"))).await.remove(0).unwrap();
    }
    drop((good, hanging));
    let error = app.blocks(user("alice")).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Unavailable);
    assert!(error.retry_after_ms.is_some_and(|ms| ms > 0));
    assert_eq!(app.send(send("late")).await.remove(0).unwrap_err().code, ErrorCode::Unavailable);
}

#[tokio::test]
async fn an_app_server_that_goes_down_is_left_before_it_is_gone() {
    let world = TestCluster::new();
    let (mut leaving, staying) = (world.app_server().await, world.app_server().await);
    let (gateway, _) = world.gateway().await;
    is_ready(&gateway).await;
    let working = async {
        for n in 0..200 {
            gateway.app.send(send(&format!("m{n}"))).await.remove(0).unwrap();
        }
    };
    let going = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        leaving.withdraw().await;
        let left = world.directory.members(NodeRole::App).await.unwrap();
        assert_eq!(left, [staying.cluster_address().unwrap()]);
        tokio::time::timeout(SOON, leaving.drain_calls()).await.expect("its links are let go of");
    };
    tokio::join!(working, going);
    drop(leaving);
    gateway.app.send(send("after")).await.remove(0).unwrap();
    assert_eq!(gateway.readiness.look().await.refusing, None);
    drop(staying);
    let end = within(SOON);
    while gateway.readiness.look().await.refusing.is_none_or(|why| !why.contains("no app server")) {
        assert!(Instant::now() < end, "a gateway without app servers is not ready");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_session_that_is_not_there_is_refused_fast() {
    let world = TestCluster::new();
    let (gateway, host) = world.gateway().await;
    let address = gateway.cluster_address().unwrap();
    let gateways = RemoteGateways::new(None, Guard::default(), LinkConfig::default(), Duration::from_secs(2));
    let wake = || SessionEvent::Wake { conversation_id: ConversationId::new("alice~bob").unwrap() };
    let began = Instant::now();
    for stale in [
        // An earlier process at the same address, another port where nobody listens, and what is no name at all.
        format!("{address}#0123456789abcdef"),
        "127.0.0.1:1#0123456789abcdef".to_owned(),
        "local".to_owned(),
        gateway.gateway.name().to_string(),
    ] {
        assert_eq!(gateways.hand_over(&entry(&stale), wake()).await, HandOver::Refused, "{stale}");
    }
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(gateways.link_count(), 3);

    // The same, with a session that is there.
    let _app = world.app_server().await;
    is_ready(&gateway).await;
    let _bob = ClusterDevice::connect(&host, "bob", 3).await;
    let live = world.store.sessions.lookup(&user("bob")).await.unwrap().remove(0);
    assert_eq!(gateways.hand_over(&live, wake()).await, HandOver::Taken);
    let renamed = SessionEntry { gateway: format!("{address}#0123456789abcdef").into(), ..live };
    assert_eq!(gateways.hand_over(&renamed, wake()).await, HandOver::Refused);
}

#[tokio::test]
async fn an_operator_asks_a_gateway_and_hears_of_every_app_server() {
    let world = TestCluster::new();
    let (one, two) = (world.app_server().await, world.app_server().await);
    let (gateway, _) = world.gateway().await;
    is_ready(&gateway).await;
    // Stored through one, read through the other: each remembers its own steps.
    let seq = one.app.send(send("m1")).await.remove(0).unwrap().seq;
    let id = ConversationId::new("alice~bob").unwrap();
    let receipt =
        ReceiptRequest { user: user("bob"), session: None, conversation_id: id.clone(), seq, again: false };
    two.app.read(receipt).await.unwrap();

    let run = async |call: AdminCall| -> Value {
        serde_json::from_str(gateway.operator.run(call).await.unwrap().as_str()).unwrap()
    };
    assert_eq!(run(AdminCall::Pending(user("bob"))).await[0]["first_undelivered_seq"], 1);
    assert_eq!(run(AdminCall::Export(user("bob"))).await["messages"][0]["meta"]["a"], json!([1, 2]));
    let end = within(SOON);
    loop {
        let report = run(AdminCall::Trace(id.clone(), seq)).await;
        assert_eq!((&report["tick"], &report["sender"]), (&json!("blue"), &json!("alice")));
        let steps: Vec<_> = report["events"].as_array().unwrap().iter().map(|e| e["step"].clone()).collect();
        if steps == ["stored", "pending_row", "read"] {
            break;
        }
        // The second link may not be up yet.
        assert!(Instant::now() < end, "{steps:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let unknown = gateway.operator.run(AdminCall::Trace(id, 9)).await.unwrap_err();
    assert_eq!(unknown.code, ErrorCode::NotFound);
}

#[tokio::test]
async fn sessions_leave_a_gateway_one_after_another() {
    let world = TestCluster::new();
    let _app = world.app_server().await;
    let (gateway, host) = world.gateway().await;
    is_ready(&gateway).await;
    let mut devices = Vec::new();
    for n in 0..40 {
        devices.push(ClusterDevice::connect(&host, &format!("u{n}"), n).await);
    }
    assert_eq!(gateway.gateway.session_count(), 40);
    let began = Instant::now();
    let leaving = devices.iter_mut().map(|device| async move {
        let bye = device.hear("bye").await;
        assert_eq!(bye["code"], "shutting_down");
        (began.elapsed(), bye["reconnect_after_ms"].as_u64().unwrap())
    });
    let over = Duration::from_secs(2);
    let (left, ()) = tokio::join!(futures_util::future::join_all(leaving), gateway.gateway.drain(over, 7));
    let mut times: Vec<Duration> = left.iter().map(|(at, _)| *at).collect();
    times.sort();
    assert!(times[10] > over / 8 && times[30] < over, "{times:?}");
    assert!(times[39] > over / 2 && times[39] < over + Duration::from_secs(1), "{times:?}");
    let after: BTreeSet<u64> = left.iter().map(|(_, after)| *after).collect();
    assert!(after.len() > 30, "each has a time of its own: {after:?}");
    tokio::time::timeout(SOON, gateway.gateway.empty()).await.unwrap();
}
