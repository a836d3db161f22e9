//! The connection to Redis: made when it is first needed, made anew for ever after, and never waited for longer than
//! a call's deadline.
//!
//! A call that comes while an attempt is under way waits for it. Once an attempt has failed, calls fail at once, and
//! attempts go on in the background until one succeeds. A call is tried once: whether a lost one was done is not known,
//! and its caller knows best what to do then.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use ::redis::{
    Cmd, ErrorKind, FromRedisValue, IntoConnectionInfo, RedisError, RedisResult, ServerErrorKind, Value, cmd,
    from_redis_value,
};
use rand::{Rng, rngs::StdRng};
use tokio::sync::watch;

use super::{
    dial::{Dialer, Link},
    owed::Owed,
    scripts::{Call, Lua},
};
use crate::{Result, StoreError};

/// The first wait between two attempts, and the longest; each is shortened by up to a half at random, so that not all
/// nodes come at once.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The least time an attempt gets, however short the deadline of a call is.
const DIAL_AT_LEAST: Duration = Duration::from_secs(1);
/// Calls in a row that must fail before a cluster's client is replaced: it mends most things itself, and one shard that
/// is down must not take the others along.
const CLUSTER_FAILURES: u32 = 8;
/// Calls sent in one go; more are sent in turns.
const BATCH: usize = 1000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisMode {
    /// One server, or an address that always leads to the master.
    Single,
    /// The addresses are those of Sentinels; they name the master.
    Sentinel { master: String },
    /// The addresses are those of some of the cluster's nodes.
    Cluster,
}

#[derive(Clone)]
pub struct RedisConfig {
    /// `redis://user:password@host:port/db`, or `rediss://` for TLS.
    pub urls: Vec<String>,
    pub mode: RedisMode,
    /// What every key begins with, so that several deployments can share a server.
    pub prefix: String,
    /// No call takes longer.
    pub deadline: Duration,
}

impl RedisConfig {
    /// One server, with the usual prefix and deadline.
    pub fn new(url: impl Into<String>) -> Self {
        RedisConfig { urls: vec![url.into()], ..RedisConfig::default() }
    }

    /// The addresses without names and passwords.
    fn addresses(&self) -> String {
        let address = |url: &String| match url.as_str().into_connection_info() {
            Ok(info) => info.addr().to_string(),
            Err(_) => "(not an address)".to_owned(),
        };
        self.urls.iter().map(address).collect::<Vec<_>>().join(", ")
    }
}

impl Default for RedisConfig {
    fn default() -> Self {
        RedisConfig {
            urls: Vec::new(),
            mode: RedisMode::Single,
            prefix: "bluetick:".to_owned(),
            deadline: Duration::from_millis(500),
        }
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("addresses", &self.addresses())
            .field("mode", &self.mode)
            .field("prefix", &self.prefix)
            .field("deadline", &self.deadline)
            .finish()
    }
}

/// A handle on Redis. Cheap to clone.
#[derive(Clone)]
pub struct Redis {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    config: RedisConfig,
    name: String,
    dialer: Dialer,
    state: watch::Sender<State>,
    connections: AtomicU64,
    /// Calls that failed since the last one that did not.
    failures: AtomicU32,
    pub owed: Owed,
}

#[derive(Clone)]
enum State {
    /// Nobody has needed a connection yet.
    Idle,
    /// An attempt is under way, and it is not known that Redis is down: whoever comes waits for it.
    Connecting,
    /// The last attempt failed. Others follow, and nobody waits for them.
    Down(Arc<str>),
    Up {
        number: u64,
        link: Link,
    },
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis({})", self.inner.name)
    }
}

impl Redis {
    /// Fails only if the configuration cannot be used, and touches no network: the first call does.
    pub fn new(config: RedisConfig) -> Result<Redis> {
        if config.prefix.contains(['{', '}']) {
            let why =
                "the prefix of Redis's keys must not hold braces: they decide where a cluster keeps a key";
            return Err(StoreError::Unusable(why.to_owned()));
        }
        let dialer = Dialer::new(&config)?;
        let name = match &config.mode {
            RedisMode::Single => config.addresses(),
            RedisMode::Sentinel { master } => format!("{master} by Sentinels {}", config.addresses()),
            RedisMode::Cluster => format!("cluster {}", config.addresses()),
        };
        let inner = Inner {
            config,
            name,
            dialer,
            state: watch::Sender::new(State::Idle),
            connections: AtomicU64::new(0),
            failures: AtomicU32::new(0),
            owed: Owed::default(),
        };
        Ok(Redis { inner: Arc::new(inner) })
    }

    /// Where it is, without passwords.
    pub fn describe(&self) -> String {
        self.inner.name.clone()
    }

    /// Whether it answers.
    pub async fn ping(&self) -> Result<()> {
        // With a key, so that it says something of a cluster that has lost its slots, too.
        self.query::<Value>(cmd("EXISTS").arg(self.key("seq", "ping")).take()).await.map(drop)
    }

    /// A key of a kind, with the id as its hash tag.
    pub(super) fn key(&self, kind: &str, id: &str) -> String {
        format!("{}{kind}:{{{id}}}", self.inner.config.prefix)
    }

    pub(super) async fn query<T: FromRedisValue>(&self, command: Cmd) -> Result<T> {
        let results = self.inner.exchange(vec![command]).await?;
        self.inner.one(results)
    }

    /// Each command's own result, in order.
    pub(super) async fn query_each<T: FromRedisValue>(&self, commands: Vec<Cmd>) -> Result<Vec<T>> {
        let mut answers = Vec::with_capacity(commands.len());
        let mut commands = commands.into_iter().peekable();
        while commands.peek().is_some() {
            for result in self.inner.exchange(commands.by_ref().take(BATCH).collect()).await? {
                answers.push(self.inner.read(result)?);
            }
        }
        Ok(answers)
    }

    pub(super) async fn eval<T: FromRedisValue>(&self, lua: &Lua, call: Call) -> Result<T> {
        let results = self.inner.eval_batch(lua, &[call]).await?;
        self.inner.one(results)
    }

    /// Runs one script many times, in as few round trips as there are batches.
    pub(super) async fn eval_each<T: FromRedisValue>(&self, lua: &Lua, calls: &[Call]) -> Result<Vec<T>> {
        let mut answers = Vec::with_capacity(calls.len());
        for batch in calls.chunks(BATCH) {
            for result in self.inner.eval_batch(lua, batch).await? {
                answers.push(self.inner.read(result)?);
            }
        }
        Ok(answers)
    }

    /// Deletes every key that begins with the prefix and `kind`, on every master, and nothing else.
    pub(super) async fn delete_all(&self, kind: &str) -> Result<()> {
        let inner = &self.inner;
        let pattern = format!("{}*", escaped(&format!("{}{kind}", inner.config.prefix)));
        let masters = |mut link: Link| async move { link.masters().await };
        for place in inner.with_link(masters).await?.0 {
            let mut cursor = 0u64;
            loop {
                let mut scan = cmd("SCAN");
                scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(BATCH);
                let (page, _) = inner.with_link(|mut link| async move { link.at(place, scan).await }).await?;
                let (next, keys): (u64, Vec<String>) = inner.read(Ok(page))?;
                let unlink = keys.iter().map(|key| cmd("UNLINK").arg(key).take()).collect();
                self.query_each::<Value>(unlink).await?;
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Forgets all that was derived from rows: the tables were filled by other means. Sessions stay.
    pub async fn forget_rows(&self) -> Result<()> {
        for kind in ["seq:", "inbox:", "block:"] {
            self.delete_all(kind).await?;
        }
        Ok(())
    }
}

/// A text as a pattern that means nothing but itself.
fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '^' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

impl Inner {
    fn unavailable(&self, why: impl fmt::Display) -> StoreError {
        metrics::counter!("bluetick_redis_errors_total").increment(1);
        StoreError::unavailable(format!("Redis at {} ({why})", self.name))
    }

    fn read<T: FromRedisValue>(&self, result: RedisResult<Value>) -> Result<T> {
        let value = result.map_err(|e| self.unavailable(e))?;
        from_redis_value(value).map_err(|e| self.unavailable(format_args!("an answer of another kind: {e}")))
    }

    fn one<T: FromRedisValue>(&self, mut results: Vec<RedisResult<Value>>) -> Result<T> {
        match results.pop() {
            Some(result) => self.read(result),
            None => Err(self.unavailable("no answer")),
        }
    }

    /// By hash first; those that the server does not know once more with their text.
    async fn eval_batch(self: &Arc<Self>, lua: &Lua, calls: &[Call]) -> Result<Vec<RedisResult<Value>>> {
        let by_hash = calls.iter().map(|call| call.by_hash(lua)).collect();
        let mut results = self.exchange(by_hash).await?;
        let unknown: Vec<_> = (0..results.len())
            .filter(|n| matches!(&results[*n], Err(e) if is_server_error(e, ServerErrorKind::NoScript)))
            .collect();
        if !unknown.is_empty() {
            let by_text = unknown.iter().map(|n| calls[*n].by_text(lua)).collect();
            for (n, result) in unknown.into_iter().zip(self.exchange(by_text).await?) {
                results[n] = result;
            }
        }
        Ok(results)
    }

    async fn exchange(self: &Arc<Self>, commands: Vec<Cmd>) -> Result<Vec<RedisResult<Value>>> {
        let expected = commands.len();
        if expected == 0 {
            return Ok(Vec::new());
        }
        let work = |mut link: Link| async move { link.exchange(commands).await };
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

    /// Does something over the connection before the deadline, and says which connection that was.
    async fn with_link<T, F>(self: &Arc<Self>, work: impl FnOnce(Link) -> F) -> Result<(T, Used)>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let mut used = None;
        let tried = tokio::time::timeout(self.config.deadline, async {
            let (number, link) = self.link().await.map_err(|why| self.unavailable(why))?;
            let this = *used.insert(Used { number, in_cluster: link.is_cluster() });
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
                // A server that is silent for so long may be gone without a word: a new connection will show it.
                if let Some(used) = used {
                    self.failed(used);
                }
                Err(self
                    .unavailable(format_args!("no answer within {} ms", self.config.deadline.as_millis())))
            }
        }
    }

    /// The connection, if there is one or one is about to be; or why not.
    async fn link(self: &Arc<Self>) -> Result<(u64, Link), Arc<str>> {
        let mut states = self.state.subscribe();
        loop {
            let state = states.borrow_and_update().clone();
            match state {
                State::Up { number, link } => return Ok((number, link)),
                State::Down(why) => return Err(why),
                State::Idle => self.reconnect(None),
                State::Connecting => {}
            }
            if states.changed().await.is_err() {
                return Err("the handle is closed".into());
            }
        }
    }

    fn failed(self: &Arc<Self>, used: Used) {
        if used.in_cluster {
            let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
            if failures < CLUSTER_FAILURES {
                return;
            }
            self.failures.store(0, Ordering::Relaxed);
        }
        self.reconnect(Some(used.number));
    }

    /// Begins to connect, if nobody has yet; or again, if the connection that was lost is the one in use.
    fn reconnect(self: &Arc<Self>, lost: Option<u64>) {
        let begun = self.state.send_if_modified(|state| {
            let due = match state {
                State::Idle => true,
                State::Up { number, .. } => Some(*number) == lost,
                State::Connecting | State::Down(_) => false,
            };
            if due {
                *state = State::Connecting;
            }
            due
        });
        if begun {
            tokio::spawn(keep_dialling(Arc::downgrade(self)));
        }
    }

    async fn dial(self: &Arc<Self>) -> Result<(u64, Link), String> {
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        let closed = {
            let inner = Arc::downgrade(self);
            move || {
                if let Some(inner) = inner.upgrade() {
                    inner.reconnect(Some(number));
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

/// Which connection a call went over.
#[derive(Clone, Copy)]
struct Used {
    number: u64,
    in_cluster: bool,
}

/// Tries until there is a connection, or nobody is left who wants one.
async fn keep_dialling(inner: Weak<Inner>) {
    let mut wait = FIRST_WAIT;
    loop {
        let Some(inner) = inner.upgrade() else { return };
        match inner.dial().await {
            Ok((number, link)) => {
                metrics::counter!("bluetick_redis_connections_total").increment(1);
                tracing::info!(redis = %inner.name, "connected to redis");
                inner.failures.store(0, Ordering::Relaxed);
                inner.state.send_replace(State::Up { number, link });
                return;
            }
            Err(why) => {
                if !matches!(*inner.state.borrow(), State::Down(_)) {
                    tracing::warn!(redis = %inner.name, %why, "redis is out of reach; trying on");
                }
                inner.state.send_replace(State::Down(why.into()));
            }
        }
        drop(inner);
        tokio::time::sleep(shortened(wait)).await;
        wait = (2 * wait).min(LONGEST_WAIT);
    }
}

/// Between a half and the whole of a time.
pub(super) fn shortened(wait: Duration) -> Duration {
    wait.mul_f64(1.0 - 0.5 * (random() as f64 / u64::MAX as f64))
}

pub(super) fn random() -> u64 {
    let mut rng: StdRng = rand::make_rng();
    rng.next_u64()
}

fn is_server_error(e: &RedisError, kind: ServerErrorKind) -> bool {
    e.kind() == ErrorKind::Server(kind)
}

/// Whether an error says that this connection, or the server behind it, is of no use now: a master that became a
/// replica answers READONLY, and another one has to be found.
fn ends_connection(e: &RedisError) -> bool {
    use ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, ReadOnly};
    let by_server = [BusyLoading, ClusterDown, MasterDown, ReadOnly];
    e.is_io_error()
        || e.is_unrecoverable_error()
        || by_server.into_iter().any(|kind| is_server_error(e, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        let mut config = RedisConfig::new("redis://bluetick:hunter2@redis.example:6380/3");
        assert!(!format!("{config:?}").contains("hunter2"));
        let redis = Redis::new(config.clone()).unwrap();
        assert_eq!(redis.describe(), "redis.example:6380");
        config.mode = RedisMode::Sentinel { master: "main".into() };
        assert_eq!(Redis::new(config.clone()).unwrap().describe(), "main by Sentinels redis.example:6380");
        config.urls.push("hunter2".into());
        assert!(!format!("{config:?}").contains("hunter2"));
        assert!(!Redis::new(config).unwrap_err().to_string().contains("hunter2"));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let refused = |change: fn(&mut RedisConfig)| {
            let mut config = RedisConfig::new("redis://127.0.0.1:1");
            change(&mut config);
            Redis::new(config).is_err()
        };
        assert!(!refused(|_| ()));
        assert!(refused(|config| config.prefix = "a{b}".into()));
        assert!(refused(|config| config.urls.clear()));
        assert!(refused(|config| config.urls.push("redis://127.0.0.1:2".into())));
        assert!(refused(|config| config.urls[0] = "http://127.0.0.1".into()));
    }

    #[test]
    fn a_pattern_means_nothing_but_the_prefix() {
        assert_eq!(escaped("a*b?[c]\\:"), "a\\*b\\?\\[c\\]\\\\:");
    }

    #[test]
    fn waits_differ() {
        let wait = Duration::from_millis(100);
        for _ in 0..100 {
            assert!((wait / 2..=wait).contains(&shortened(wait)));
        }
    }
}
