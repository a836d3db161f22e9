//! Processes that are not what they say: whoever can write to Redis, or sits between two others, gets neither the secret
//! nor a message.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use axum::http;
use bluetick_chat::{Gateways as _, HandOver, SessionEvent};
use bluetick_protocol::{ConversationId, DeviceId, SessionId, UserId};
use bluetick_store::{Clock, Directory as _, ManualClock, MemoryDirectory, NodeRole, SessionEntry};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc::Sender,
};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Code, Request, Response, Streaming, body::Body, client::Grpc, transport::Channel};
use tonic_prost::ProstCodec;

use super::{
    super::{
        AppServers, DirectoryEntries, PoolConfig, RemoteGateways, find_app_servers,
        listener::{STREAMS_PER_CONNECTION, UNPROVEN_MAX},
        proof::{self, Handshake, ProofSide, Prover},
        wire::{AnswerBatch, CallBatch, CallPart, NAME, NONCE, OPEN, PROOF},
    },
    *,
};
use crate::auth::hex;

const SECRET: &str = "a secret that is thirty-two bytes!";
/// Long enough for a link to be tried several times.
const A_WHILE: Duration = Duration::from_secs(1);

/// Accepts every link, proves whatever it is told to, and keeps all that it is sent.
#[derive(Clone, Default)]
struct Fake {
    /// Sent as the proof; nothing to send none.
    proof: Option<String>,
    name: String,
    headers: Arc<Mutex<Vec<http::HeaderMap>>>,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Fake {
    async fn listen(proof: Option<String>) -> (Fake, String) {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap().to_string();
        let fake = Fake { proof, name: format!("{address}#0123456789abcdef"), ..Fake::default() };
        let serving = tonic::transport::Server::builder()
            .serve_with_incoming(fake.clone(), TcpListenerStream::new(tcp));
        tokio::spawn(serving);
        (fake, address)
    }

    fn calls(&self) -> usize {
        self.headers.lock().len()
    }

    /// That it was sent nothing that it could use.
    fn learned_nothing(&self) {
        for headers in self.headers.lock().iter() {
            assert!(headers.get("authorization").is_none(), "{headers:?}");
            assert!(!format!("{headers:?}").contains(SECRET), "{headers:?}");
        }
        let heard = self.heard.lock();
        assert!(heard.is_empty(), "it was sent {:?}", String::from_utf8_lossy(&heard));
    }
}

impl tower::Service<http::Request<Body>> for Fake {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let fake = self.clone();
        Box::pin(async move {
            let (parts, mut body) = request.into_parts();
            fake.headers.lock().push(parts.headers);
            let heard = fake.heard.clone();
            tokio::spawn(async move {
                while let Some(Ok(frame)) = body.frame().await {
                    if let Ok(data) = frame.into_data() {
                        heard.lock().extend_from_slice(&data);
                    }
                }
            });
            // It goes on for ever, as a stream of answers would.
            let silence = http_body_util::StreamBody::new(futures_util::stream::pending::<
                Result<hyper::body::Frame<Bytes>, tonic::Status>,
            >());
            let mut response = http::Response::new(Body::new(silence));
            let headers = response.headers_mut();
            headers.insert("content-type", "application/grpc".parse().unwrap());
            headers.insert(NAME, fake.name.parse().unwrap());
            headers.insert(NONCE, hex(&proof::nonce().unwrap()).parse().unwrap());
            if let Some(proof) = &fake.proof {
                headers.insert(PROOF, proof.parse().unwrap());
            }
            Ok(response)
        })
    }
}

fn to(gateway: &str) -> SessionEntry {
    SessionEntry {
        user_id: UserId::new("bob").unwrap(),
        device: DeviceId::new("phone").unwrap(),
        session_id: SessionId(7),
        gateway: gateway.into(),
        connected_at: 1,
    }
}

fn wake() -> SessionEvent {
    SessionEvent::Wake { conversation_id: ConversationId::new("alice~bob").unwrap() }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(bluetick_store::SystemClock)
}

#[tokio::test]
async fn an_entry_that_the_secret_did_not_sign_is_never_called() {
    let guard = Guard::by_secret(SECRET);
    let (fake, address) = Fake::listen(None).await;
    let (_listener, real) = listen(guard.clone(), Arc::new(Echo::default())).await;
    let directory = Arc::new(MemoryDirectory::new(clock()));
    let ours = DirectoryEntries::new(&guard, clock());
    let theirs = DirectoryEntries::new(&Guard::by_secret("a secret that somebody else has made up"), clock());
    let ttl = Duration::from_secs(60);
    let signed_for_another = ours.write(NodeRole::App, &real.to_string());
    let forged = [
        address.clone(),
        format!("{address} {} {}", u64::MAX, "00".repeat(32)),
        theirs.write(NodeRole::App, &address),
        // A gateway's entry is not an app server's, and another's signature is not for this address.
        ours.write(NodeRole::Gateway, &address),
        signed_for_another.replacen(&real.to_string(), &address, 1),
        "  ".to_owned(),
    ];
    for entry in &forged {
        directory.announce(NodeRole::App, entry, ttl).await.unwrap();
    }
    directory.announce(NodeRole::App, &signed_for_another, ttl).await.unwrap();
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let figures = recorder.handle();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let servers = Arc::new(AppServers::new(guard, PoolConfig::default()));
    let finding = find_app_servers(directory, ours, BTreeSet::new(), "own:1".into(), servers.clone());
    let watching = async {
        until("the real one is found", || !servers.link_statuses().is_empty()).await;
        tokio::time::sleep(A_WHILE).await;
        let found: Vec<_> = servers.link_statuses().into_iter().map(|(address, _)| address).collect();
        assert_eq!(found, [real.to_string()], "and nobody else");
    };
    tokio::select! {
        () = finding => unreachable!("it runs for ever"),
        () = watching => {}
    }
    assert_eq!(fake.calls(), 0);
    assert!(figures.render().contains("bluetick_directory_refused_total 6"), "{}", figures.render());
}

#[tokio::test]
async fn an_entry_is_good_for_as_long_as_it_says() {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    let guard = Guard::by_secret(SECRET);
    let entries = DirectoryEntries::new(&guard, clock.clone());
    let entry = [entries.write(NodeRole::App, "10.0.0.7:7070")];
    let is_believed = || entries.read_valid(NodeRole::App, &entry);
    assert_eq!(is_believed(), (BTreeSet::from(["10.0.0.7:7070".to_owned()]), 0));
    // Beyond its end and what clocks may differ by, somebody put a copy back.
    clock.advance((15 + 4) * 1000);
    assert_eq!(is_believed().1, 0);
    clock.advance(2_000);
    assert_eq!(is_believed(), (BTreeSet::new(), 1));
    // Without a secret nothing is signed: certificates say who is who.
    let plain = DirectoryEntries::new(&Guard::default(), clock);
    assert_eq!(plain.write(NodeRole::App, "a:1"), "a:1");
    assert_eq!(plain.read_valid(NodeRole::App, &["a:1".to_owned(), entry[0].clone()]).1, 1);
}

/// As a session's entry in Redis may name any gateway: the app server calls it, and says nothing.
#[tokio::test]
async fn a_gateway_that_proves_nothing_is_sent_nothing() {
    let made_up = Prover::new("a secret that somebody else has made up");
    let name = "127.0.0.1:1#0123456789abcdef";
    let nonce = proof::nonce().unwrap();
    let about = Handshake { caller: &nonce, listener: &nonce, name };
    let wrong = hex(&made_up.prove(ProofSide::Listener, &about));
    for proof in [None, Some(String::new()), Some("00".repeat(32)), Some(wrong), Some("zz".into())] {
        let (fake, _) = Fake::listen(proof).await;
        let guard = Guard::by_secret(SECRET);
        let gateways = RemoteGateways::new(None, guard, LinkConfig::default(), Duration::from_millis(300));
        for _ in 0..3 {
            assert_eq!(gateways.hand_over(&to(&fake.name), wake()).await, HandOver::Refused);
        }
        until("it was called", || fake.calls() > 0).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        fake.learned_nothing();
    }
}

/// Passes bytes on both ways.
async fn relay_to(target: SocketAddr) -> SocketAddr {
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut incoming, _)) = tcp.accept().await {
            tokio::spawn(async move {
                let mut outgoing = TcpStream::connect(target).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut incoming, &mut outgoing).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn a_process_in_between_cannot_pass_for_the_one_behind_it() {
    let guard = Guard::by_secret(SECRET);
    let echo = Arc::new(Echo::default());
    let (_listener, real) = listen(guard.clone(), echo.clone()).await;
    let relay = relay_to(real).await;
    // By an address that an entry names, and by the name of a gateway in one.
    for name in [relay.to_string(), format!("{relay}#test"), format!("{real}#another-boot")] {
        let peer = LinkPeer::named(&relay.to_string(), &name);
        let link = PeerLink::open(peer, guard.clone(), LinkConfig::default(), Arc::default());
        until("it is refused", || matches!(link.status(), LinkStatus::Down(_))).await;
        let LinkStatus::Down(why) = link.status() else { continue };
        assert!(why.contains("another process"), "{why}");
        assert!(link.call("a message".into(), within(A_WHILE)).await.is_err());
    }
    assert!(tokio::time::timeout(Duration::from_millis(300), echo.asked.notified()).await.is_err());
    // The name it has is proven, so the way does not matter.
    let peer = LinkPeer::named(&relay.to_string(), &format!("{real}#test"));
    let link = PeerLink::open(peer, guard, LinkConfig::default(), Arc::default());
    is_up(&link).await;
    assert_eq!(link.call("in".into(), within(SOON)).await.unwrap(), "in");
}

async fn connect(address: SocketAddr) -> Channel {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
    endpoint.connect().await.unwrap()
}

/// Opens a stream by hand, and says nothing on it yet.
async fn open(
    channel: Channel,
    nonce: Option<&proof::Nonce>,
) -> Result<(Sender<CallBatch>, Response<Streaming<AnswerBatch>>), Code> {
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.unwrap();
    let (calls, outgoing) = tokio::sync::mpsc::channel::<CallBatch>(2);
    let mut request = Request::new(ReceiverStream::new(outgoing));
    if let Some(nonce) = nonce {
        request.metadata_mut().insert(NONCE, hex(nonce).parse().unwrap());
    }
    let codec = ProstCodec::<CallBatch, AnswerBatch>::default();
    let path = http::uri::PathAndQuery::from_static(OPEN);
    let opened = grpc.streaming(request, path, codec).await.map_err(|status| status.code())?;
    Ok((calls, opened))
}

/// Opens a link by hand, and sends this as its first message. Gives how the listener takes it.
async fn open_with(
    address: SocketAddr,
    nonce: Option<&proof::Nonce>,
    first: impl Fn(&str, &proof::Nonce) -> CallBatch,
) -> Result<AnswerBatch, Code> {
    let (calls, opened) = open(connect(address).await, nonce).await?;
    let text = |key: &str| opened.metadata().get(key).unwrap().to_str().unwrap().to_owned();
    let theirs = proof::from_hex(&text(NONCE)).unwrap().try_into().unwrap();
    calls.send(first(&text(NAME), &theirs)).await.unwrap();
    let answer = opened.into_inner().message().await.map_err(|status| status.code())?;
    Ok(answer.unwrap_or_default())
}

#[tokio::test]
async fn nothing_that_a_caller_asks_is_done_before_its_proof() {
    let echo = Arc::new(Echo::default());
    let (_listener, address) = listen(Guard::by_secret(SECRET), echo.clone()).await;
    let prover = Prover::new(SECRET);
    let mine = proof::nonce().unwrap();
    let call = || vec![CallPart { id: 1, deadline_ms: 1_000, payload: "x".into(), more: false }];
    let proven = |side, name: &str, caller: &proof::Nonce, listener: &proof::Nonce| -> Bytes {
        prover.prove(side, &Handshake { caller, listener, name }).into()
    };
    let refused = Err(Code::Unauthenticated);
    let no_proof = open_with(address, Some(&mine), |_, _| CallBatch { calls: call(), proof: Bytes::new() });
    assert_eq!(no_proof.await, refused);
    // Of another handshake, of the other side, for another listener; and with calls that came before it was accepted.
    let replayed = open_with(address, Some(&mine), |name, _| CallBatch {
        calls: Vec::new(),
        proof: proven(ProofSide::Caller, name, &mine, &mine),
    });
    assert_eq!(replayed.await, refused);
    let reflected = open_with(address, Some(&mine), |name, theirs| CallBatch {
        calls: Vec::new(),
        proof: proven(ProofSide::Listener, name, &mine, theirs),
    });
    assert_eq!(reflected.await, refused);
    let for_another = open_with(address, Some(&mine), |_, theirs| CallBatch {
        calls: Vec::new(),
        proof: proven(ProofSide::Caller, "another:1#test", &mine, theirs),
    });
    assert_eq!(for_another.await, refused);
    let hasty = open_with(address, Some(&mine), |name, theirs| CallBatch {
        calls: call(),
        proof: proven(ProofSide::Caller, name, &mine, theirs),
    });
    assert_eq!(hasty.await, refused);
    assert_eq!(open_with(address, None, |_, _| CallBatch::default()).await, refused);
    assert!(tokio::time::timeout(Duration::from_millis(300), echo.asked.notified()).await.is_err());
    let good = open_with(address, Some(&mine), |name, theirs| CallBatch {
        calls: Vec::new(),
        proof: proven(ProofSide::Caller, name, &mine, theirs),
    });
    assert!(good.await.unwrap().accepted);
}

#[tokio::test]
async fn streams_that_prove_nothing_are_few_and_disturb_no_link() {
    let guard = Guard::by_secret(SECRET);
    let (_listener, address) = listen(guard.clone(), Arc::new(Echo::default())).await;
    let link = link_to(address, guard.clone(), LinkConfig::default());
    is_up(&link).await;
    let nonce = proof::nonce().unwrap();
    let mut held = Vec::new();
    let refused = 'opening: loop {
        assert!(held.len() < 4 * UNPROVEN_MAX, "nobody is turned away");
        let channel = connect(address).await;
        for _ in 0..STREAMS_PER_CONNECTION {
            match open(channel.clone(), Some(&nonce)).await {
                Ok(stream) => held.push(stream),
                Err(code) => break 'opening code,
            }
        }
    };
    assert_eq!(refused, Code::Unavailable);
    assert!(held.len() >= UNPROVEN_MAX, "{}", held.len());
    assert_eq!(link.call("in".into(), within(SOON)).await.unwrap(), "in");
    // They have run out of time, and somebody who proves to be one of us gets in again.
    let another = link_to(address, guard, LinkConfig::default());
    is_up(&another).await;
}

#[tokio::test]
async fn other_machines_are_not_called_in_clear_text() {
    let guard = Guard::by_secret(SECRET);
    for address in ["10.0.0.7:7070", "app-1:7070", "[2001:db8::1]:7070"] {
        let why = guard.endpoint(address).unwrap_err();
        assert!(why.contains("cluster.allow_plaintext"), "{why}");
    }
    for address in ["127.0.0.1:7070", "localhost:7070", "[::1]:7070"] {
        assert!(guard.endpoint(address).is_ok(), "{address}");
    }
    // A setting that allows clear text does not allow strangers.
    let mut config = crate::config::Config::load(None, Default::default()).unwrap();
    config.cluster.allow_plaintext = true;
    let why = Guard::from_config(&config.cluster).unwrap().endpoint("10.0.0.7:7070").unwrap_err();
    assert!(why.contains("cluster.secret_file"), "{why}");
    config.cluster.secret = Some(serde_json::from_value(SECRET.into()).unwrap());
    let guard = Guard::from_config(&config.cluster).unwrap();
    assert!(guard.endpoint("10.0.0.7:7070").is_ok());
}
