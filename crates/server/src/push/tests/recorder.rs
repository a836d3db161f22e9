//! A provider for tests: HTTP/2 over TLS with a certificate of its own, which answers as it is told
//! and remembers what it was asked. It depends on nothing else here, so that tests of whole
//! processes can have it too.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, Version, body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_rustls::TlsAcceptor;

/// What waits for a request gives up after this: a failure of the test, never its measure.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Recorder {
    /// `https://localhost:port`, without a slash at the end.
    pub url: String,
    /// What a client must trust.
    pub ca_pem: String,
    shared: Arc<RecorderState>,
    accepting: tokio::task::JoinHandle<()>,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    pub method: String,
    /// With the query, if there is one.
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub http2: bool,
    /// Which of the server's connections it came by, from 0.
    pub connection: usize,
}

#[derive(Debug, Clone)]
pub struct ScriptedReply {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    delay: Duration,
    hang_up: bool,
}

struct RecorderState {
    requests: watch::Sender<Vec<RecordedRequest>>,
    scripts: Mutex<Vec<Script>>,
    connections: AtomicUsize,
    down: watch::Sender<bool>,
}

/// What is answered to paths that begin so: the next replies once each, then the lasting one.
struct Script {
    prefix: String,
    once: VecDeque<ScriptedReply>,
    lasting: Option<ScriptedReply>,
}

impl Recorder {
    /// Listens on a port of its own, and answers 200 to everything until told otherwise.
    pub async fn start() -> Recorder {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let mut tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(RecorderState {
            requests: watch::Sender::default(),
            scripts: Mutex::default(),
            connections: AtomicUsize::default(),
            down: watch::Sender::new(false),
        });
        let accepting = tokio::spawn(accept(listener, TlsAcceptor::from(Arc::new(tls)), shared.clone()));
        Recorder { url: format!("https://localhost:{port}"), ca_pem: made.cert.pem(), shared, accepting }
    }

    /// From now on, to paths that begin so. What was said for the same beginning before is
    /// forgotten.
    pub fn answer(&self, prefix: &str, reply: ScriptedReply) {
        self.script(prefix, |script| {
            script.once.clear();
            script.lasting = Some(reply);
        });
    }

    /// To the next request of such a path for which nothing else was said yet.
    pub fn answer_once(&self, prefix: &str, reply: ScriptedReply) {
        self.script(prefix, |script| script.once.push_back(reply));
    }

    fn script(&self, prefix: &str, change: impl FnOnce(&mut Script)) {
        let mut scripts = self.shared.scripts.lock();
        let at = scripts.iter().position(|script| script.prefix == prefix).unwrap_or_else(|| {
            scripts.push(Script { prefix: prefix.into(), once: VecDeque::new(), lasting: None });
            scripts.len() - 1
        });
        change(&mut scripts[at]);
    }

    /// While down, connections are closed, the open ones and new ones.
    pub fn set_down(&self, down: bool) {
        self.shared.down.send_replace(down);
    }

    /// What came to paths that begin so, oldest first.
    pub fn requests(&self, prefix: &str) -> Vec<RecordedRequest> {
        let all = self.shared.requests.borrow();
        all.iter().filter(|request| request.path.starts_with(prefix)).cloned().collect()
    }

    /// The same, once there are as many.
    pub async fn wait_for(&self, prefix: &str, count: usize) -> Vec<RecordedRequest> {
        let mut requests = self.shared.requests.subscribe();
        let enough =
            |all: &Vec<RecordedRequest>| all.iter().filter(|r| r.path.starts_with(prefix)).count() >= count;
        let waited = tokio::time::timeout(PATIENCE, requests.wait_for(enough)).await;
        assert!(waited.is_ok(), "{} of {count} requests to {prefix}", self.requests(prefix).len());
        self.requests(prefix)
    }

    pub fn forget(&self) {
        self.shared.requests.send_replace(Vec::new());
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.accepting.abort();
        self.set_down(true);
    }
}

impl RecordedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl ScriptedReply {
    pub fn status(status: u16) -> ScriptedReply {
        ScriptedReply {
            status,
            headers: Vec::new(),
            body: String::new(),
            delay: Duration::ZERO,
            hang_up: false,
        }
    }

    /// No answer: the request is broken off.
    pub fn hang_up() -> ScriptedReply {
        ScriptedReply { hang_up: true, ..ScriptedReply::status(500) }
    }

    pub fn body(self, body: impl ToString) -> ScriptedReply {
        ScriptedReply { body: body.to_string(), ..self }
    }

    pub fn header(mut self, name: &str, value: impl ToString) -> ScriptedReply {
        self.headers.push((name.into(), value.to_string()));
        self
    }

    pub fn after(self, delay: Duration) -> ScriptedReply {
        ScriptedReply { delay, ..self }
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<RecorderState>) {
    loop {
        let Ok((stream, _)): std::io::Result<(TcpStream, SocketAddr)> = listener.accept().await else {
            return;
        };
        let mut down = shared.down.subscribe();
        if *down.borrow_and_update() {
            continue;
        }
        let (acceptor, shared) = (acceptor.clone(), shared.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = serve(stream, acceptor, shared) => {}
                _ = down.wait_for(|down| *down) => {}
            }
        });
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, shared: Arc<RecorderState>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let connection = shared.connections.fetch_add(1, Ordering::SeqCst);
    let service = service_fn(move |request| respond(request, shared.clone(), connection));
    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    // A client that goes away is not this server's concern.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

async fn respond(
    request: Request<Incoming>,
    shared: Arc<RecorderState>,
    connection: usize,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes().to_vec();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let text = |value: &hyper::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    let (method, http2) = (head.method.to_string(), head.version == Version::HTTP_2);
    let reply = reply_to(&shared, &path);
    shared.requests.send_modify(|all| {
        all.push(RecordedRequest { method, path, headers, body, http2, connection });
    });
    if !reply.delay.is_zero() {
        tokio::time::sleep(reply.delay).await;
    }
    if reply.hang_up {
        return Err(std::io::Error::other("told to hang up"));
    }
    let mut response = Response::builder().status(reply.status);
    for (name, value) in &reply.headers {
        response = response.header(name, value);
    }
    response.body(Full::new(Bytes::from(reply.body))).map_err(std::io::Error::other)
}

/// The longest beginning that fits and has something to say.
fn reply_to(shared: &RecorderState, path: &str) -> ScriptedReply {
    let mut scripts = shared.scripts.lock();
    let fitting = scripts
        .iter_mut()
        .filter(|script| path.starts_with(&script.prefix))
        .filter(|script| !script.once.is_empty() || script.lasting.is_some())
        .max_by_key(|script| script.prefix.len());
    let said = fitting.and_then(|script| script.once.pop_front().or_else(|| script.lasting.clone()));
    said.unwrap_or_else(|| ScriptedReply::status(200))
}
