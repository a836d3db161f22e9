//! The pool of app servers as a gateway sees it: any of them can run any request.
//!
//! A request goes to the less busy of two app servers drawn at random. If its outcome is unknown (the link broke, or no
//! answer came), it is repeated on another one while there is time. That is safe because a request may run twice, and
//! the first attempt may even run late:
//!
//! - `send`: the `client_msg_id` makes the second attempt a duplicate of the first, which runs delivery again (R9).
//! - `ack`, `read`: boundaries only grow (R10). The second attempt is marked as repeated, and sends the ticks that the
//!   first one may have stored without sending.
//! - `pay_debts`: moves a row by compare-and-swap or notes a minimum (R3, R5), and wakes the sessions once more.
//! - `settle`: the first attempt may have removed the row. The second one then finds none, or one that a sender wrote
//!   since, and returns it. In both cases `last_seq` is read after the removal, so the session reads the messages
//!   beyond what it acked (R4) and takes the row over. A first attempt that runs *late*, after the second was answered,
//!   removes a row only if it has the same value again. Such a row covers a message that this device has acked; later
//!   messages are held by a live session, or are found by its next poll or through its cursor (R6).
//! - `watch` and `presence_changed` set a state that the session sets again; reads change nothing.
//! - Operations that are marked `last_write_wins` are not repeated: a late first attempt would undo a newer call.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bluetick_chat::{
    AdminCall, AppResult, ClusterRequest, Operator, TraceEvent, Transport, is_unavailable, unavailable,
};
use bluetick_protocol::{ConversationId, ErrorCode, Json, WireError};
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
    dispatcher::WRONG_ROLE,
    guard::Guard,
    link::{LinkConfig, LinkError, LinkPeer, LinkStatus, PeerLink},
};

#[derive(Debug, Clone)]
pub struct PoolConfig {
    pub link: LinkConfig,
    /// The deadline of a request with all its attempts, and of one attempt.
    pub request: Duration,
    pub attempt: Duration,
    /// How long a request waits for a link when none is up.
    pub wait_for_link: Duration,
    /// The deadline of an operator's request, which may read or erase all data of a user.
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

/// The most attempts of a request.
const ATTEMPTS: usize = 4;
/// How long an app server is avoided after it answered `unavailable`.
const AVOID_FOR: Duration = Duration::from_secs(1);

/// The links to all app servers that are known.
pub struct AppServers {
    guard: Guard,
    config: PoolConfig,
    links: Mutex<BTreeMap<String, Arc<PeerLink>>>,
    changed: Arc<Notify>,
    rng: Mutex<StdRng>,
    /// App servers that answered `unavailable` a moment ago, and until when they are avoided. Without this they would be
    /// preferred: a server that fails at once is never busy.
    avoided: Mutex<BTreeMap<String, Instant>>,
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
            avoided: Mutex::default(),
        }
    }

    /// Opens links to the listed app servers, and closes those to unlisted ones unless they still work: a process that
    /// cannot announce itself may still serve. A process found in the directory must have the name of its entry; the
    /// configuration may use another name for a process than the process itself.
    pub fn set(&self, found: &BTreeSet<String>, fixed: &BTreeSet<String>) {
        let mut links = self.links.lock();
        let is_listed = |address: &String| found.contains(address) || fixed.contains(address);
        links.retain(|address, link| {
            is_listed(address) || link.status() == LinkStatus::Up || link.in_flight() > 0
        });
        for address in found.union(fixed) {
            links.entry(address.clone()).or_insert_with(|| {
                let peer = match fixed.contains(address) {
                    true => LinkPeer::configured(address),
                    false => LinkPeer::named(address, address),
                };
                let (guard, config) = (self.guard.clone(), self.config.link.clone());
                Arc::new(PeerLink::open(peer, guard, config, self.changed.clone()))
            });
        }
        metrics::gauge!("bluetick_app_servers")
            .set(links.values().filter(|link| link.is_up()).count() as f64);
    }

    /// The status of each link, for readiness checks.
    pub fn link_statuses(&self) -> Vec<(String, LinkStatus)> {
        self.links.lock().iter().map(|(address, link)| (address.clone(), link.status())).collect()
    }

    fn up(&self) -> Vec<Arc<PeerLink>> {
        self.links.lock().values().filter(|link| link.is_up()).cloned().collect()
    }

    /// The less busy of two drawn at random among those not tried yet.
    fn pick(&self, tried: &BTreeSet<String>) -> Option<Arc<PeerLink>> {
        let mut usable = self.up();
        usable.retain(|link| !tried.contains(link.address()));
        let avoided = {
            let mut avoided = self.avoided.lock();
            avoided.retain(|_, until| Instant::now() < *until);
            avoided.clone()
        };
        if usable.iter().any(|link| !avoided.contains_key(link.address())) {
            usable.retain(|link| !avoided.contains_key(link.address()));
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
    async fn next(&self, tried: &mut BTreeSet<String>, deadline: Instant) -> Option<Arc<PeerLink>> {
        let until = deadline.min(Instant::now() + self.config.wait_for_link);
        loop {
            let changed = self.changed.notified();
            if let Some(link) = self.pick(tried) {
                return Some(link);
            }
            if !tried.is_empty() && !self.up().is_empty() {
                // All that are up have failed once: start over after a short pause.
                tried.clear();
                let moment = Duration::from_millis(self.rng.lock().random_range(20..100));
                tokio::time::sleep(moment).await;
                continue;
            }
            timeout_at(until, changed).await.ok()?;
        }
    }

    /// Asks app servers in turn until one answers. A retryable answer is kept while one other server is asked.
    async fn ask<T: DeserializeOwned + Send>(
        &self,
        request: &ClusterRequest,
        (whole, attempt): (Duration, Duration),
        is_retryable: fn(&AppResult<T>) -> bool,
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
                    Ok(answer) if !is_retryable(&answer) => return answer,
                    Ok(Err(error)) if error.message == WRONG_ROLE => {
                        tracing::warn!(
                            peer = link.address(),
                            "the process is no app server any more; closing the link"
                        );
                        self.links.lock().remove(link.address());
                    }
                    // Its store is unreachable, perhaps only for this server: one other is asked.
                    Ok(answer) => {
                        self.avoided.lock().insert(link.address().to_owned(), Instant::now() + AVOID_FOR);
                        if last.is_some() {
                            return answer;
                        }
                        last = Some(answer);
                    }
                    Err(error) => {
                        tracing::warn!(%error, peer = link.address(), "could not read an answer; is the process of another version?");
                    }
                },
                // It may still be running, and would then undo a newer call.
                Err(LinkError::Unknown(why)) if !may_be_repeated(request) => {
                    tracing::warn!(%why, peer = link.address(), "the outcome of a call is unknown; not repeating it");
                    break;
                }
                Err(error) => {
                    tracing::debug!(%error, peer = link.address(), "asking another app server");
                    if let (LinkError::Unknown(_), Some(again)) = (&error, request.repeated()) {
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
}

impl Transport for AppServers {
    async fn call<T: DeserializeOwned + Send>(
        &self,
        request: ClusterRequest,
        is_retryable: fn(&AppResult<T>) -> bool,
    ) -> AppResult<T> {
        let times = (self.config.request, self.config.attempt);
        self.ask(&request, times, is_retryable).await
    }
}

/// Whether a call may be repeated while an earlier attempt may still be running. Not where the last write wins, and
/// not an operator's call, which may be what the process crashed of.
fn may_be_repeated(request: &ClusterRequest) -> bool {
    !request.is_last_write_wins() && !matches!(request, ClusterRequest::Admin(_))
}

fn written(request: &ClusterRequest) -> AppResult<Bytes> {
    serde_json::to_vec(request).map(Bytes::from).map_err(|error| {
        tracing::error!(%error, "could not write a request as JSON");
        WireError::new(ErrorCode::Internal, "the server met an error it did not expect")
    })
}

/// Runs an operator's calls in this process if it has the data, else on an app server. Each app server remembers its
/// own steps of a message, so a trace asks all of them.
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
                self.servers.ask(&ClusterRequest::Admin(call), (whole, whole), is_unavailable).await?
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
        let payload: Bytes =
            serde_json::to_vec(&ClusterRequest::Admin(AdminCall::Events(id, seq))).ok()?.into();
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
