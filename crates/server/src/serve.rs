//! The composition root: builds every part of the server, connects them, and shuts them down in
//! order.

mod info;
mod signals;

use std::{
    net::SocketAddr,
    os::unix::fs::DirBuilderExt as _,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use async_trait::async_trait;
use bluetick_chat::{
    Gateway, RequestBudget, SendBudget, Uploads,
    session::{Identity, SessionHost, TokenCheck},
};
use bluetick_protocol::{ErrorCode, WireError};
use bluetick_store::{Clock, Store, StoreError, SystemClock};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

#[cfg(feature = "cluster")]
use crate::limits::shared::SharedBuckets;
use crate::{
    attachments::ObjectUploads,
    auth::{self, AuthError, JwtCheck, RevocableTokens},
    backends::{self, Backends},
    config::{Config, ProfileSourceSetting},
    http::{self, AppState, Services, demo::Demo, in_flight::InFlightLimit},
    limits::{LocalBuckets, Rates},
    listen::Listener,
    memory, metrics, permissions,
    push::{Providers, PushError},
    roles::{Dependencies, ServerProcess},
    tls::{self, TlsError},
};
pub use info::ServeInfo;
use signals::Signals;

/// The deadlines of the shutdown phases. Their sum is below the 30 s that Kubernetes waits by
/// default.
const DRAIN_DEADLINE: Duration = Duration::from_secs(13);
/// More than the default of `sessions.hand_over_deadline_ms`, which bounds each hand-over.
const BACKGROUND_DEADLINE: Duration = Duration::from_secs(3);
const MOVING_DEADLINE: Duration = Duration::from_secs(3);
const NOTIFYING_DEADLINE: Duration = Duration::from_secs(3);
const CLOSE_DEADLINE: Duration = Duration::from_secs(4);
/// How long a gateway of a cluster caches, for HTTP requests, that a user's tokens are not revoked.
const REVOCATION_CACHE_TTL: Duration = Duration::from_secs(5);
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(5);
/// Housekeeping rounds between two sweeps of the rate limits.
const SWEEP_EVERY: u32 = 12;
/// So many sessions fewer make the allocator release memory at once.
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
        std::io::ErrorKind::AddrInUse => {
            "another program uses it: stop that program, or choose another address with --listen"
        }
        std::io::ErrorKind::PermissionDenied => {
            "ports below 1024 need privileges: choose another port with --listen"
        }
        _ => "choose another address with --listen",
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

    // Bind before opening the store: a second server started by mistake fails here, without
    // touching the data of the first.
    let (tcp, address, tls) = bind(&config).await?;
    let providers = providers(&config)?;
    // Keys and the server's address are written here even without a store, so it must be private.
    // Errors are ignored: the store reports them better.
    let _ = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&config.server.data_dir);
    permissions::warn_of_exposed_directories(&config);
    let backends = backends::open(&config, clock.clone()).await?;
    let registry = backends.sessions.clone();
    let (tokens, secret) = tokens(&config, clock.clone()).await?;
    let buckets = Arc::new(LocalBuckets::new(Rates::new(&config.limits)));
    let (budget, requests) = budgets(&config, &backends, buckets.clone(), &clock);
    let admin_key = auth::admin_key(&config)?;
    let uploads = uploads(&config, &backends, &admin_key, &clock);
    if let Some(uploads) = &uploads {
        uploads.begin_afresh().await;
    }
    let dependencies = Dependencies {
        clock: clock.clone(),
        budget,
        providers: providers.clone(),
        uploads: uploads.clone().map(|uploads| uploads as Arc<dyn Uploads>),
    };
    let process = ServerProcess::start(&config, backends, dependencies).await?;
    // In one process every check asks the store, which answers from memory. A session lives long,
    // so the token of a `hello` is never checked against a cached answer.
    let cache_ttl = if config.is_one_process() { Duration::ZERO } else { REVOCATION_CACHE_TTL };
    let revocable = |cache_ttl| RevocableTokens::new(tokens.clone(), process.app.clone(), cache_ttl);
    let (of_sessions, of_requests) = (Arc::new(revocable(Duration::ZERO)), Arc::new(revocable(cache_ttl)));
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
        in_flight: InFlightLimit::new(config.limits.requests_in_flight),
        draining: AtomicBool::new(false),
    });

    let (stop, stopping) = watch::channel(false);
    let scheme = if tls.is_some() { "https" } else { "http" };
    let router = http::router(state.clone());
    let listener =
        tokio::spawn(Listener::new(tcp, tls, config.limits.connections_per_address, router).run(stopping));
    let housekeeping = tokio::spawn(run_housekeeping(metrics, buckets, gateway.clone(), process.sweeper()));
    let demo_key = state.demo.as_ref().map(|demo| demo.key().clone());
    ready(ServeInfo::new(&config, format!("{scheme}://{address}"), process.cluster_address(), demo_key));

    let signal = signals.wait_and_guard().await;
    tracing::info!(signal, sessions = gateway.session_count(), "shutting down");
    let running = RunningServer { config, state, process, stop, listener, housekeeping };
    running.shut_down().await;
    Ok(())
}

async fn bind(config: &Config) -> Result<(TcpListener, SocketAddr, Option<TlsAcceptor>), ServeError> {
    let address = config.server.listen;
    let listen_failed = |source| ServeError::Listen { address, source };
    let tcp = TcpListener::bind(address).await.map_err(listen_failed)?;
    let address = tcp.local_addr().map_err(listen_failed)?;
    let tls = match (&config.tls.cert_file, &config.tls.key_file) {
        (Some(cert), Some(key)) => Some(tls::acceptor(cert, key)?),
        _ => None,
    };
    if tls.is_none() && !config.listens_on_loopback() {
        tracing::warn!(%address, "connections are not encrypted; put a TLS proxy in front, or set [tls]");
    }
    Ok((tcp, address, tls))
}

/// What a shutdown takes down, in order.
struct RunningServer {
    config: Arc<Config>,
    state: AppState,
    process: ServerProcess,
    /// Turns true when the listener is to stop accepting.
    stop: watch::Sender<bool>,
    listener: JoinHandle<()>,
    housekeeping: JoinHandle<()>,
}

impl RunningServer {
    async fn shut_down(mut self) {
        self.state.begin_draining();
        self.process.withdraw().await;
        self.end_sessions().await;
        self.housekeeping.abort();
        self.finish_background_work().await;
        let store = self.process.store.clone();
        drop(self.process);
        match store {
            Some(store) => close(&store).await,
            None => tracing::info!("stopped"),
        }
    }

    /// Ends sessions, HTTP requests and calls from other processes.
    async fn end_sessions(&mut self) {
        let RunningServer { config, process, stop, listener, .. } = self;
        let gateway = process.gateway.clone();
        if config.cluster.listen.is_some() {
            // The port stays open meanwhile, so that load balancers see /readyz fail.
            let drain = Duration::from_secs(config.cluster.drain_secs);
            gateway.drain(drain, rand::random()).await;
        }
        stop.send_replace(true);
        gateway.shut_down();
        let sockets = async {
            gateway.empty().await;
            let _ = listener.await;
        };
        // Sessions that end now still call other processes. Calls from others are refused at once.
        let ended = async { tokio::join!(sockets, process.drain_calls()) };
        if tokio::time::timeout(DRAIN_DEADLINE, ended).await.is_err() {
            let sessions = gateway.session_count();
            tracing::warn!(sessions, "sessions or requests did not end in time");
        }
    }

    async fn finish_background_work(&mut self) {
        let process = &mut self.process;
        if tokio::time::timeout(BACKGROUND_DEADLINE, process.finish_background()).await.is_err() {
            tracing::warn!(
                "hand-overs were not confirmed in time; their sessions read the messages from the store"
            );
        }
        if tokio::time::timeout(NOTIFYING_DEADLINE, process.stop_notifying()).await.is_err() {
            tracing::warn!("notifications were in flight; they stay in the outbox and may be sent twice");
        }
        if tokio::time::timeout(MOVING_DEADLINE, process.stop_moving()).await.is_err() {
            tracing::warn!("the mover did not stop in time; the next start continues its run");
        }
    }
}

/// Closes the store. A failure loses nothing that was confirmed: the next start replays the log.
async fn close(store: &Store) {
    match tokio::time::timeout(CLOSE_DEADLINE, store.maintenance.close()).await {
        Ok(Ok(())) => tracing::info!("stopped"),
        Ok(Err(error)) => tracing::error!(%error, "store did not close cleanly"),
        Err(_) => tracing::error!("store did not close in time"),
    }
}

/// The rate limits: of this process alone, or shared by all processes through Redis.
fn budgets(
    config: &Config,
    backends: &Backends,
    buckets: Arc<LocalBuckets>,
    clock: &Arc<dyn Clock>,
) -> (Arc<dyn SendBudget>, Arc<dyn RequestBudget>) {
    #[cfg(feature = "cluster")]
    if let Some(redis) = backends.redis.clone() {
        let rates = Rates::new(&config.limits);
        let shared = Arc::new(SharedBuckets::new(buckets, redis, clock.clone(), rates));
        return (shared.clone(), shared);
    }
    let _ = (config, backends, clock);
    (buckets.clone(), buckets)
}

/// The attachments of a process with a store and an object store. It exists even where attachments
/// are disabled, because those that are there can still be exported and erased.
fn uploads(
    config: &Config,
    backends: &Backends,
    secret: &str,
    clock: &Arc<dyn Clock>,
) -> Option<Arc<ObjectUploads>> {
    let store = backends.store.as_ref()?;
    let objects = store.cold.objects.as_ref()?.objects().clone();
    Some(Arc::new(ObjectUploads::new(objects, secret, clock.clone(), &config.attachments)))
}

/// The push providers, if any are configured.
fn providers(config: &Config) -> Result<Option<Arc<Providers>>, PushError> {
    if !config.push.is_configured() {
        return Ok(None);
    }
    let providers = Providers::new(&config.push)?;
    let names: Vec<&str> = providers.set_up().iter().map(|provider| provider.as_str()).collect();
    tracing::info!(providers = names.join(", "), "push notifications are on");
    Ok(Some(Arc::new(providers)))
}

/// The token check, and the signing secret if this process knows it.
async fn tokens(
    config: &Config,
    clock: Arc<dyn Clock>,
) -> Result<(Arc<dyn TokenCheck>, Option<String>), ServeError> {
    if !config.is_gateway() {
        return Ok((Arc::new(RefuseAllTokens), None));
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

/// Refuses every token: clients do not connect to an app server.
struct RefuseAllTokens;

#[async_trait]
impl TokenCheck for RefuseAllTokens {
    async fn check(&self, _token: &str) -> Result<Identity, WireError> {
        Err(WireError::new(ErrorCode::Unsupported, "this process is an app server; connect to a gateway"))
    }
}

/// Upkeep of metrics, rate limits, links and memory.
async fn run_housekeeping(
    metrics: metrics_exporter_prometheus::PrometheusHandle,
    buckets: Arc<LocalBuckets>,
    gateway: Arc<Gateway>,
    sweep: impl Fn(),
) {
    let mut most_sessions = 0;
    let mut every = tokio::time::interval(HOUSEKEEPING_INTERVAL);
    for round in 1u32.. {
        every.tick().await;
        metrics.run_upkeep();
        sweep();
        // Every minute, and soon after many sessions have closed.
        let sessions = gateway.session_count();
        most_sessions = most_sessions.max(sessions);
        if round.is_multiple_of(SWEEP_EVERY) || sessions + MANY_SESSIONS <= most_sessions {
            most_sessions = sessions;
            tokio::task::spawn_blocking(memory::release_free_memory);
        }
        if round.is_multiple_of(SWEEP_EVERY) {
            buckets.sweep();
        }
    }
}
