//! The connection to Redis: opened by the first call, reopened in the background for as long as
//! there is a handle, and never waited for beyond a call's deadline.
//!
//! ```text
//! Idle ──first call──▶ Connecting ──▶ Up ──lost──▶ Connecting
//!                          │                           │
//!                          └──attempt failed──▶ Down ◀─┘   Down ──attempt succeeded──▶ Up
//! ```
//!
//! A call that arrives in `Connecting` waits for the attempt. In `Down`, calls fail at once while
//! attempts go on with exponential backoff. A call is tried once: whether a lost call took effect
//! is unknown, and only its caller knows whether it may be repeated.
//! `docs/decisions/0030-redis-connection.md` says why this is not redis's `ConnectionManager`.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use ::redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use rand::{Rng, rngs::StdRng};
use tokio::sync::watch;

use super::{
    RedisConfig, RedisMode,
    dial::{Dialer, RedisLink},
    stale_inboxes::StaleInboxes,
};
use crate::{Result, StoreError};

/// The backoff between two attempts: doubled from the first to the longest, and shortened at random
/// by up to a half, so that nodes do not reconnect in step.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const LONGEST_BACKOFF: Duration = Duration::from_secs(1);
/// The least time an attempt gets, however short the deadline of a call is.
const DIAL_AT_LEAST: Duration = Duration::from_secs(1);
/// Consecutive failures before a cluster's client is replaced. The client repairs most faults
/// itself, and one shard that is down must not end the connections to the others.
const CLUSTER_FAILURES: u32 = 8;

/// A handle on Redis. Cheap to clone.
#[derive(Clone)]
pub struct Redis {
    pub(super) shared: Arc<RedisShared>,
}

/// What all clones of a handle share.
pub(super) struct RedisShared {
    pub config: RedisConfig,
    name: String,
    dialer: Dialer,
    state: watch::Sender<LinkState>,
    connections: AtomicU64,
    /// Failed calls since the last one that succeeded.
    failures: AtomicU32,
    pub stale_inboxes: StaleInboxes,
}

#[derive(Clone)]
enum LinkState {
    /// No call has needed a connection yet.
    Idle,
    /// An attempt is in progress, and Redis is not known to be down: calls wait for it.
    Connecting,
    /// The last attempt failed, for this reason. Calls fail at once; attempts go on.
    Down(Arc<str>),
    Up {
        number: u64,
        link: RedisLink,
    },
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis({})", self.shared.name)
    }
}

impl Redis {
    /// Checks the configuration. Touches no network: the first call does.
    pub fn new(config: RedisConfig) -> Result<Redis> {
        if config.prefix.contains(['{', '}']) {
            let why = "the prefix of Redis keys must not contain braces, because a cluster places keys by what is in \
                       braces; choose another prefix";
            return Err(StoreError::Unusable(why.to_owned()));
        }
        let dialer = Dialer::new(&config)?;
        let name = match &config.mode {
            RedisMode::Single => config.addresses(),
            RedisMode::Sentinel { master } => format!("{master} by Sentinels {}", config.addresses()),
            RedisMode::Cluster => format!("cluster {}", config.addresses()),
        };
        let shared = RedisShared {
            config,
            name,
            dialer,
            state: watch::Sender::new(LinkState::Idle),
            connections: AtomicU64::new(0),
            failures: AtomicU32::new(0),
            stale_inboxes: StaleInboxes::default(),
        };
        Ok(Redis { shared: Arc::new(shared) })
    }

    /// The addresses, without passwords.
    pub fn describe(&self) -> String {
        self.shared.name.clone()
    }
}

impl RedisShared {
    pub fn unavailable(&self, why: impl fmt::Display) -> StoreError {
        metrics::counter!("bluetick_redis_errors_total").increment(1);
        StoreError::unavailable(format!("Redis at {} ({why})", self.name))
    }

    /// Sends commands in one go and returns each one's own result, in order.
    pub async fn exchange(self: &Arc<Self>, commands: Vec<Cmd>) -> Result<Vec<RedisResult<Value>>> {
        let expected = commands.len();
        if expected == 0 {
            return Ok(Vec::new());
        }
        let work = |mut link: RedisLink| async move { link.exchange(commands).await };
        let (results, used) = self.with_link(work).await?;
        match results.iter().any(|result| matches!(result, Err(e) if ends_connection(e))) {
            true => self.failed(used),
            false => self.failures.store(0, Ordering::Relaxed),
        }
        match results.len() == expected {
            true => Ok(results),
            false => Err(self.unavailable("too few answers")),
        }
    }

    /// Runs `work` on the connection within the deadline, and returns which connection that was.
    pub async fn with_link<T, F>(self: &Arc<Self>, work: impl FnOnce(RedisLink) -> F) -> Result<(T, UsedLink)>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let mut used = None;
        let tried = tokio::time::timeout(self.config.deadline, async {
            let (number, link) = self.link().await.map_err(|why| self.unavailable(why))?;
            let this = *used.insert(UsedLink { number, in_cluster: link.is_cluster() });
            match work(link).await {
                Ok(done) => Ok((done, this)),
                Err(e) => {
                    if ends_connection(&e) {
                        self.failed(this);
                    }
                    Err(self.unavailable(e))
                }
            }
        });
        match tried.await {
            Ok(tried) => tried,
            Err(_) => {
                // The server may be gone without having closed the connection: only a new
                // connection shows it.
                if let Some(used) = used {
                    self.failed(used);
                }
                Err(self
                    .unavailable(format_args!("no answer within {} ms", self.config.deadline.as_millis())))
            }
        }
    }

    /// The connection, once the attempt in progress has ended; or the reason why there is none.
    async fn link(self: &Arc<Self>) -> Result<(u64, RedisLink), Arc<str>> {
        let mut states = self.state.subscribe();
        loop {
            let state = states.borrow_and_update().clone();
            match state {
                LinkState::Up { number, link } => return Ok((number, link)),
                LinkState::Down(why) => return Err(why),
                LinkState::Idle => self.reconnect(None),
                LinkState::Connecting => {}
            }
            if states.changed().await.is_err() {
                return Err("the handle is closed".into());
            }
        }
    }

    fn failed(self: &Arc<Self>, used: UsedLink) {
        if used.in_cluster {
            let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
            if failures < CLUSTER_FAILURES {
                return;
            }
            self.failures.store(0, Ordering::Relaxed);
        }
        self.reconnect(Some(used.number));
    }

    /// Starts to connect if no attempt has been made yet, or if `lost` is the connection in use.
    fn reconnect(self: &Arc<Self>, lost: Option<u64>) {
        let begun = self.state.send_if_modified(|state| {
            let due = match state {
                LinkState::Idle => true,
                LinkState::Up { number, .. } => Some(*number) == lost,
                LinkState::Connecting | LinkState::Down(_) => false,
            };
            if due {
                *state = LinkState::Connecting;
            }
            due
        });
        if begun {
            tokio::spawn(keep_dialling(Arc::downgrade(self)));
        }
    }

    async fn dial(self: &Arc<Self>) -> Result<(u64, RedisLink), String> {
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        let closed = {
            let shared = Arc::downgrade(self);
            move || {
                if let Some(shared) = shared.upgrade() {
                    shared.reconnect(Some(number));
                }
            }
        };
        let time = self.config.deadline.max(DIAL_AT_LEAST);
        match tokio::time::timeout(time, self.dialer.dial(time, closed)).await {
            Ok(Ok(link)) => Ok((number, link)),
            Ok(Err(e)) => Err(e.to_string()),
            Err(_) => Err(format!("no connection within {} ms", time.as_millis())),
        }
    }
}

/// The connection that a call used.
#[derive(Clone, Copy)]
pub(super) struct UsedLink {
    number: u64,
    in_cluster: bool,
}

/// Tries until there is a connection, or no handle is left.
async fn keep_dialling(shared: Weak<RedisShared>) {
    let mut backoff = FIRST_BACKOFF;
    loop {
        let Some(shared) = shared.upgrade() else { return };
        match shared.dial().await {
            Ok((number, link)) => {
                metrics::counter!("bluetick_redis_connections_total").increment(1);
                tracing::info!(redis = %shared.name, "connected to redis");
                shared.failures.store(0, Ordering::Relaxed);
                shared.state.send_replace(LinkState::Up { number, link });
                return;
            }
            Err(why) => {
                if !matches!(*shared.state.borrow(), LinkState::Down(_)) {
                    tracing::warn!(
                        redis = %shared.name, %why,
                        "redis is unreachable; retrying in the background, check the address and the server"
                    );
                }
                shared.state.send_replace(LinkState::Down(why.into()));
            }
        }
        drop(shared);
        tokio::time::sleep(with_jitter(backoff)).await;
        backoff = (2 * backoff).min(LONGEST_BACKOFF);
    }
}

/// Between a half and the whole of a time.
pub(super) fn with_jitter(wait: Duration) -> Duration {
    wait.mul_f64(1.0 - 0.5 * (random() as f64 / u64::MAX as f64))
}

pub(super) fn random() -> u64 {
    let mut rng: StdRng = rand::make_rng();
    rng.next_u64()
}

/// Whether an error says that this connection, or the server behind it, is unusable for now. A
/// master that became a replica answers READONLY: then the new master has to be found.
fn ends_connection(e: &RedisError) -> bool {
    use ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, ReadOnly};
    let by_server = [BusyLoading, ClusterDown, MasterDown, ReadOnly];
    e.is_io_error()
        || e.is_unrecoverable_error()
        || by_server.into_iter().any(|kind| e.kind() == ErrorKind::Server(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_differ() {
        let wait = Duration::from_millis(100);
        for _ in 0..100 {
            assert!((wait / 2..=wait).contains(&with_jitter(wait)));
        }
    }
}
