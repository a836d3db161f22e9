//! The ways to the providers. A way that fails is left alone for a while: one outage must not be met by every
//! notification in turn, nor one provider's outage hold up another.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rand::RngExt as _;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use super::Pushed;

/// Failures in a row, without the provider asking for a pause, after which a way is closed for a while.
const FAILURES_MAX: u32 = 3;
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long what finds a way full goes back to the outbox.
const BUSY: Duration = Duration::from_secs(2);

/// How it stands with one way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RouteHealth {
    /// The provider, and for Web Push the push service.
    #[cfg_attr(feature = "openapi", schema(example = "apns"))]
    pub route: String,
    /// Nothing is tried for that much longer.
    pub paused_ms: u64,
    /// The operator's own error, as the provider sees it; nothing gets through until it is put right.
    pub misconfigured: Option<String>,
    /// Why the last notification did not get through, unless a later one did.
    pub failing: Option<String>,
}

struct Route {
    limit: Arc<Semaphore>,
    /// How many wait for room.
    waiting: usize,
    failures: u32,
    /// After a pause one goes first, to see whether it is over.
    probing: bool,
    /// When the pause began, and when it ends.
    pause: Option<(Instant, Instant)>,
    misconfigured: Option<String>,
    failing: Option<String>,
}

impl Route {
    fn paused_for(&self, now: Instant) -> Option<Duration> {
        self.pause.map(|(_, end)| end.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    /// Paused, or about to be found open again by the one that goes first.
    fn closed_for(&self, now: Instant) -> Option<Duration> {
        self.paused_for(now).or_else(|| self.probing.then_some(BUSY))
    }
}

/// Leave to send one notification.
pub(super) struct Leave {
    _permit: OwnedSemaphorePermit,
    /// It goes first, to see whether a way is open again.
    pub(super) probe: bool,
    began: Instant,
}

pub(super) struct Routes {
    concurrency: usize,
    routes: Mutex<BTreeMap<String, Route>>,
}

impl Routes {
    pub(super) fn new(concurrency: usize) -> Routes {
        Routes { concurrency: concurrency.max(1), routes: Mutex::default() }
    }

    fn with<T>(&self, name: &str, work: impl FnOnce(&mut Route) -> T) -> T {
        let mut routes = self.routes.lock();
        let fresh = || Route {
            limit: Arc::new(Semaphore::new(self.concurrency)),
            waiting: 0,
            failures: 0,
            probing: false,
            pause: None,
            misconfigured: None,
            failing: None,
        };
        work(routes.entry(name.to_owned()).or_insert_with(fresh))
    }

    /// Leave to send one, when there is room; or after how long to come again. As many may wait as may go at once: what
    /// is slow must not take up everything there is.
    pub(super) async fn enter(&self, name: &str) -> Result<Leave, Duration> {
        if let Some(closed) = self.closed_for(name) {
            return Err(closed);
        }
        let (limit, probe) = self.with(name, |route| {
            if route.waiting >= self.concurrency {
                return Err(BUSY);
            }
            route.probing = route.failures >= FAILURES_MAX;
            route.waiting += 1;
            Ok((route.limit.clone(), route.probing))
        })?;
        // Never closed, so it never fails.
        let permit = limit.acquire_owned().await.map_err(|_| BUSY);
        let paused = self.with(name, |route| {
            route.waiting = route.waiting.saturating_sub(1);
            route.paused_for(Instant::now())
        });
        match (permit, paused) {
            (Ok(permit), None) => Ok(Leave { _permit: permit, probe, began: Instant::now() }),
            (Err(wait), _) | (_, Some(wait)) => {
                self.unused(name, probe);
                Err(wait)
            }
        }
    }

    /// Leave that was not used after all.
    pub(super) fn unused(&self, name: &str, probe: bool) {
        if probe {
            self.with(name, |route| route.probing = false);
        }
    }

    /// For how much longer every way that was ever used is closed.
    pub(super) fn all_closed_for(&self) -> Option<Duration> {
        let now = Instant::now();
        let routes = self.routes.lock();
        routes.values().map(|route| route.closed_for(now)).min().flatten()
    }

    /// For how much longer a way is closed, if it is.
    pub(super) fn closed_for(&self, name: &str) -> Option<Duration> {
        self.with(name, |route| route.closed_for(Instant::now()))
    }

    /// Takes note of what came of a notification.
    pub(super) fn heard(&self, name: &str, leave: &Leave, answer: &Pushed, rng: &mut impl rand::Rng) {
        let began = leave.began;
        self.with(name, |route| {
            route.probing &= !leave.probe;
            let (why, asked) = match answer {
                Pushed::Later { after, why } => (why, *after),
                Pushed::Misconfigured { why } => (why, None),
                Pushed::NotThisDevice { why, .. } => {
                    route.failing = Some(why.clone());
                    // It answers, if not what one would like.
                    if route.pause.is_none_or(|(since, _)| began >= since) {
                        (route.failures, route.pause) = (0, None);
                    }
                    return;
                }
                _ => {
                    // What set out before a pause was asked for does not end it.
                    if route.pause.is_none_or(|(since, _)| began >= since) {
                        (route.failures, route.pause, route.failing) = (0, None, None);
                        if answer == &Pushed::Accepted {
                            route.misconfigured = None;
                        }
                    }
                    return;
                }
            };
            route.failing = Some(why.clone());
            if let Pushed::Misconfigured { why } = answer {
                route.misconfigured = Some(why.clone());
            }
            // What set out before the pause says nothing new.
            if route.pause.is_some_and(|(since, _)| began < since) {
                return;
            }
            route.failures += 1;
            if asked.is_some() || route.failures >= FAILURES_MAX {
                let exponent = route.failures.saturating_sub(FAILURES_MAX).min(6);
                let pause =
                    (PAUSE_MIN * 2u32.pow(exponent)).min(PAUSE_MAX).mul_f64(rng.random_range(0.7..1.0));
                let now = Instant::now();
                route.pause = Some((now, now + asked.unwrap_or(pause)));
                tracing::warn!(route = name, why, "notifications wait: the provider does not take them");
            }
        });
        if matches!(answer, Pushed::NotThisDevice { .. }) {
            return;
        }
        let open = !matches!(answer, Pushed::Later { .. } | Pushed::Misconfigured { .. });
        metrics::gauge!("bluetick_push_route_ok", "route" => name.to_owned()).set(f64::from(u8::from(open)));
    }

    pub(super) fn health(&self) -> Vec<RouteHealth> {
        let now = Instant::now();
        let routes = self.routes.lock();
        let health = routes.iter().map(|(name, route)| RouteHealth {
            route: name.clone(),
            paused_ms: route.paused_for(now).map_or(0, |left| left.as_millis() as u64),
            misconfigured: route.misconfigured.clone(),
            failing: route.failing.clone(),
        });
        health.collect()
    }
}
