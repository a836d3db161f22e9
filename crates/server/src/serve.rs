//! The composition root: every part is made here, given to the others, and taken down in order.

use std::{
    fmt,
    net::SocketAddr,
    os::unix::fs::DirBuilderExt as _,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use async_trait::async_trait;
use bluetick_chat::{
    Gateway, RequestBudget, SendBudget, Uploads,
    session::{Identity, SessionHost, TokenCheck},
};
use bluetick_protocol::{ErrorCode, WireError};
use bluetick_store::{Clock, StoreError, SystemClock};
use serde_json::{Map, Value, json};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
};

#[cfg(feature = "cluster")]
use crate::limits::shared::SharedBuckets;
use crate::{
    attachments::ObjectUploads,
    auth::{self, AuthError, JwtCheck, RevocableTokens},
    backends::{self, Opened},
    chance,
    config::{Backend, Config, ProfileSourceSetting},
    http::{self, AppState, Services, demo::Demo, in_flight::InFlight},
    limits::{Buckets, Rates},
    listen::Listener,
    memory, metrics, permissions,
    push::{Providers, PushError},
    roles::{Means, Process},
    tls::{self, TlsError},
};

/// Sessions and requests have this long to end, then notifications, and the store the rest of the twenty seconds.
const DRAIN_DEADLINE: Duration = Duration::from_secs(13);
/// Above the default of `sessions.hand_over_deadline_ms`, which each hand-over in the background keeps.
const BACKGROUND_DEADLINE: Duration = Duration::from_secs(3);
const MOVING_DEADLINE: Duration = Duration::from_secs(3);
const NOTIFYING_DEADLINE: Duration = Duration::from_secs(3);
const CLOSE_DEADLINE: Duration = Duration::from_secs(4);
/// For how long a gateway of a cluster does not ask again whether a user's tokens were revoked, for
/// requests over HTTP.
const REVOCATION_KNOWN_FOR: Duration = Duration::from_secs(5);
const HOUSEKEEPING: Duration = Duration::from_secs(5);
const SWEEP_EVERY: u32 = 12;
const MANY_SESSIONS: usize = 500;

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{0}")]
    Auth(#[from] AuthError),
    #[error("{0}")]
    Tls(#[from] TlsError),
    #[error("{0}")]
    Push(#[from] PushError),
    #[cfg(feature = "cluster")]
    #[error("{0}")]
    Guard(#[from] crate::rpc::GuardError),
    #[error("cannot listen on {address}: {source}; {}", remedy(.source))]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("signals cannot be received: {0}")]
    Signals(std::io::Error),
    #[error("a part of the server failed to start: {0}")]
    Start(String),
}

fn remedy(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => "another program has it: stop that, or give another with --listen",
        std::io::ErrorKind::PermissionDenied => {
            "ports below 1024 need privileges: give another with --listen"
        }
        _ => "give another address with --listen",
    }
}

/// What a new user needs to know once the server runs.
#[derive(Debug, Clone)]
pub struct ServeInfo {
    pub url: String,
    pub data_dir: PathBuf,
    /// Which pages there are.
    pub chat: bool,
    pub admin: bool,
    /// Opens the demo, if there is one. It is part of the printed addresses; nothing else may tell it.
    pub demo_key: Option<Arc<str>>,
    /// Whether tokens are signed with the secret in the data directory.
    pub own_secret: bool,
    /// Where the other processes of the cluster reach this one.
    pub cluster: Option<String>,
    /// Whether people connect here, and whether their data are here.
    pub gateway: bool,
    pub has_data: bool,
    /// Which backend has the data; None in a process that asks others for them.
    pub store: Option<&'static str>,
}

impl ServeInfo {
    /// The same for programs, as fields of a line of the log. A log is read by more people than a terminal is, so the
    /// demo key is not among them; it is in the data directory.
    pub fn fields(&self) -> Map<String, Value> {
        let page = |is_there: bool, path: &str| is_there.then(|| format!("{}{path}", self.url));
        let fields = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "address": self.url,
            "store": self.store.unwrap_or("none"),
            "data_dir": self.data_dir.display().to_string(),
            "chat": page(self.chat, "/"),
            "tour": page(self.demo_key.is_some(), "/tour"),
            "admin": page(self.admin, "/admin"),
            "api": page(self.gateway, "/v1/docs"),
            "cluster": self.cluster,
            "demo": self.demo_key.is_some(),
        });
        match fields {
            Value::Object(fields) => fields.into_iter().filter(|(_, value)| !value.is_null()).collect(),
            _ => Map::new(),
        }
    }
}

impl fmt::Display for ServeInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServeInfo { url, data_dir, .. } = self;
        writeln!(f, "bluetick is listening on {url}")?;
        let fragment = self.demo_key.as_ref().map(|key| format!("#demo={key}")).unwrap_or_default();
        if self.chat {
            writeln!(f, "  chat in the browser   {url}/{fragment}")?;
        }
        if self.demo_key.is_some() {
            writeln!(f, "  what happens in it    {url}/tour{fragment}")?;
        }
        if self.admin {
            writeln!(f, "  for operators         {url}/admin")?;
        }
        if self.gateway {
            writeln!(f, "  the API               {url}/v1/docs")?;
        }
        if let Some(cluster) = &self.cluster {
            writeln!(f, "  the cluster finds it  {cluster}")?;
        }
        if self.own_secret {
            writeln!(f, "  a token for alice     bluetick token --user alice --data {}", data_dir.display())?;
        }
        match self.has_data {
            true => write!(f, "  data                  {}", data_dir.display()),
            false => write!(f, "  its keys              {}", data_dir.display()),
        }
    }
}

/// Serves until a signal ends it. `ready` is called once connections are accepted.
pub async fn serve(config: Config, ready: impl FnOnce(ServeInfo)) -> Result<(), ServeError> {
    tls::install_provider();
    let signals = Signals::listen()?;
    let metrics = metrics::install();
    metrics::register(&config);
    let config = Arc::new(config);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);

    // First the address, then the data: whoever starts a second server by mistake touches nothing of the first's.
    let address = config.server.listen;
    let listen_failed = |source| ServeError::Listen { address, source };
    let tcp = TcpListener::bind(address).await.map_err(listen_failed)?;
    let address = tcp.local_addr().map_err(listen_failed)?;
    let tls = match (&config.tls.cert_file, &config.tls.key_file) {
        (Some(cert), Some(key)) => Some(tls::acceptor(cert, key)?),
        _ => None,
    };
    if tls.is_none() && !config.listens_on_loopback() {
        tracing::warn!(%address, "connections are not encrypted here; a proxy in front should do it, or set [tls]");
    }

    let providers = providers(&config)?;
    // Keys and the address lie there even where no data do. Other users of the machine have no business with them, nor
    // with messages. What goes wrong here the store tells better.
    let _ = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&config.server.data_dir);
    permissions::warn_of_exposed_directories(&config);
    let opened = backends::open(&config, clock.clone()).await?;
    let registry = opened.sessions.clone();
    let (tokens, secret) = tokens(&config, clock.clone()).await?;
    let buckets = Arc::new(Buckets::new(Rates::new(&config.limits)));
    let (budget, requests) = budgets(&config, &opened, buckets.clone(), &clock);
    let admin_key = auth::admin_key(&config)?;
    let uploads = uploads(&config, &opened, &admin_key, &clock);
    if let Some(uploads) = &uploads {
        uploads.begin_afresh().await;
    }
    let means = Means {
        clock: clock.clone(),
        budget,
        providers: providers.clone(),
        uploads: uploads.clone().map(|uploads| uploads as Arc<dyn Uploads>),
    };
    let mut process = Process::start(&config, opened, means).await?;
    // In one process the store is asked for each token; it answers from memory. A session lasts, so
    // the token of a `hello` is always looked up.
    let known_for = if config.is_one_process() { Duration::ZERO } else { REVOCATION_KNOWN_FOR };
    let revocable = |known_for| RevocableTokens::new(tokens.clone(), process.app.clone(), known_for);
    let (of_sessions, of_requests) = (Arc::new(revocable(Duration::ZERO)), Arc::new(revocable(known_for)));
    let (gateway, store) = (process.gateway.clone(), process.store.clone());
    let sessions = Arc::new(SessionHost {
        app: process.app.clone(),
        registry,
        gateway: gateway.clone(),
        tokens: of_sessions,
        clock,
        config: config.session(),
        observer: process.observer.clone(),
        budget: requests,
    });
    let state = AppState::new(Services {
        app: process.app.clone(),
        operator: process.operator.clone(),
        readiness: process.readiness.clone(),
        store: store.clone(),
        providers,
        tokens: of_requests,
        sessions,
        config: config.clone(),
        uploads,
        admin_key: admin_key.into(),
        metrics: metrics.clone(),
        demo: secret.filter(|_| config.demo_is_on()).and_then(|secret| Demo::with_fresh_key(&secret)),
        in_flight: InFlight::new(config.limits.requests_in_flight),
        draining: AtomicBool::new(false),
    });

    let (stop, stopping) = watch::channel(false);
    let scheme = if tls.is_some() { "https" } else { "http" };
    let router = http::router(state.clone());
    let listener =
        tokio::spawn(Listener::new(tcp, tls, config.limits.connections_per_address, router).run(stopping));
    let housekeeping = tokio::spawn(keep_house(metrics, buckets, gateway.clone(), process.sweeper()));
    ready(ServeInfo {
        url: format!("{scheme}://{address}"),
        data_dir: config.server.data_dir.clone(),
        chat: config.is_gateway() && config.chat_page_is_on(),
        admin: config.pages.admin,
        demo_key: state.demo.as_ref().map(|demo| demo.key().clone()),
        own_secret: config.is_gateway() && !config.auth.is_configured(),
        cluster: process.cluster_address(),
        gateway: config.is_gateway(),
        has_data: config.is_app() && config.store.backend == Backend::Embedded,
        store: config.is_app().then_some(match config.store.backend {
            Backend::Embedded => "embedded",
            Backend::Dynamodb => "dynamodb",
        }),
    });

    let signal = signals.wait_and_guard().await;
    tracing::info!(signal, sessions = gateway.session_count(), "shutting down");
    state.begin_draining();
    process.withdraw().await;
    if config.cluster.listen.is_some() {
        // The port stays open meanwhile, so that a load balancer reads in /readyz that it should stop sending.
        gateway.drain(Duration::from_secs(config.cluster.drain_secs), chance::draw()).await;
    }
    stop.send_replace(true);
    gateway.shut_down();
    let ended = async {
        let sockets = async {
            gateway.empty().await;
            let _ = listener.await;
        };
        // Sessions that end here still ask other processes; who asks this one is sent elsewhere at once.
        tokio::join!(sockets, process.drain_calls());
    };
    if tokio::time::timeout(DRAIN_DEADLINE, ended).await.is_err() {
        tracing::warn!(sessions = gateway.session_count(), "not everything ended in time");
    }
    housekeeping.abort();
    if tokio::time::timeout(BACKGROUND_DEADLINE, process.finish_background()).await.is_err() {
        tracing::warn!("some hand-overs were not confirmed; their sessions find the messages in the store");
    }
    if tokio::time::timeout(NOTIFYING_DEADLINE, process.stop_notifying()).await.is_err() {
        tracing::warn!("some notifications were under way; they stay owed and may be sent twice");
    }
    if tokio::time::timeout(MOVING_DEADLINE, process.stop_moving()).await.is_err() {
        tracing::warn!("messages were being moved; the next start goes on with them");
    }
    drop(process);
    let Some(store) = store else {
        tracing::info!("stopped");
        return Ok(());
    };
    match tokio::time::timeout(CLOSE_DEADLINE, store.maintenance.close()).await {
        Ok(Ok(())) => tracing::info!("stopped"),
        // What was told to be sent is durable already; the next start replays the log.
        Ok(Err(error)) => tracing::error!(%error, "store did not close cleanly"),
        Err(_) => tracing::error!("store did not close in time"),
    }
    Ok(())
}

/// How much users may send and ask for: what this process allows, and what all of them together do.
fn budgets(
    config: &Config,
    opened: &Opened,
    buckets: Arc<Buckets>,
    clock: &Arc<dyn Clock>,
) -> (Arc<dyn SendBudget>, Arc<dyn RequestBudget>) {
    #[cfg(feature = "cluster")]
    if let Some(redis) = opened.redis.clone() {
        let rates = Rates::new(&config.limits);
        let shared = Arc::new(SharedBuckets::new(buckets, redis, clock.clone(), rates));
        return (shared.clone(), shared);
    }
    let _ = (config, opened, clock);
    (buckets.clone(), buckets)
}

/// Where attachments are kept, in a process that has data and an object store. What is there stays there, and may be
/// exported and erased, where no more are taken.
fn uploads(
    config: &Config,
    opened: &Opened,
    secret: &str,
    clock: &Arc<dyn Clock>,
) -> Option<Arc<ObjectUploads>> {
    let store = opened.store.as_ref()?;
    let objects = store.cold.objects.as_ref()?.objects().clone();
    Some(Arc::new(ObjectUploads::new(objects, secret, clock.clone(), &config.attachments)))
}

/// Those who carry notifications, if the operator has set up any.
fn providers(config: &Config) -> Result<Option<Arc<Providers>>, PushError> {
    if !config.push.is_configured() {
        return Ok(None);
    }
    let providers = Providers::new(&config.push)?;
    let names: Vec<&str> = providers.set_up().iter().map(|provider| provider.as_str()).collect();
    tracing::info!(providers = names.join(", "), "devices are notified");
    Ok(Some(Arc::new(providers)))
}

/// How tokens are checked, and the secret they are signed with, if it is known here.
async fn tokens(
    config: &Config,
    clock: Arc<dyn Clock>,
) -> Result<(Arc<dyn TokenCheck>, Option<String>), ServeError> {
    if !config.is_gateway() {
        return Ok((Arc::new(Nobody), None));
    }
    let secret = match auth::signing_secret(config) {
        Ok(secret) => Some(secret),
        Err(AuthError::NoSecret) => None,
        Err(error) => return Err(error.into()),
    };
    let tokens = JwtCheck::from_config(&config.auth, secret.as_deref(), clock).await?;
    let tokens = tokens.with_profiles(config.profiles.source == ProfileSourceSetting::Token);
    Ok((Arc::new(tokens), secret))
}

/// An app server has no users of its own: nobody connects to it.
struct Nobody;

#[async_trait]
impl TokenCheck for Nobody {
    async fn check(&self, _token: &str) -> Result<Identity, WireError> {
        Err(WireError::new(ErrorCode::Unsupported, "this process is an app server; connect to a gateway"))
    }
}

async fn keep_house(
    metrics: metrics_exporter_prometheus::PrometheusHandle,
    buckets: Arc<Buckets>,
    gateway: Arc<Gateway>,
    sweep: impl Fn(),
) {
    let mut most_sessions = 0;
    let mut every = tokio::time::interval(HOUSEKEEPING);
    for round in 1u32.. {
        every.tick().await;
        metrics.run_upkeep();
        sweep();
        // Once a minute in any case, and soon after many sessions have gone.
        let sessions = gateway.session_count();
        most_sessions = most_sessions.max(sessions);
        if round.is_multiple_of(SWEEP_EVERY) || sessions + MANY_SESSIONS <= most_sessions {
            most_sessions = sessions;
            tokio::task::spawn_blocking(memory::give_back);
        }
        if round.is_multiple_of(SWEEP_EVERY) {
            buckets.sweep();
        }
    }
}

struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen() -> Result<Self, ServeError> {
        let listen = |kind| signal(kind).map_err(ServeError::Signals);
        Ok(Signals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// The first signal asks to end; a second one will not wait. Nothing that was acknowledged is lost by it.
    async fn wait_and_guard(mut self) -> &'static str {
        let first = self.next().await;
        tokio::spawn(async move {
            let second = self.next().await;
            tracing::warn!(signal = second, "exiting at once");
            std::process::exit(130);
        });
        first
    }
}
