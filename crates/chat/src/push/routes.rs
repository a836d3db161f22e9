//! The routes to the providers, each with a circuit breaker and an in-flight limit: not every
//! notification has to run into an outage, and one provider's outage does not delay another.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rand::RngExt as _;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use super::Pushed;

/// Consecutive failures that open the breaker of a route, if the provider does not ask for a pause.
const FAILURES_MAX: u32 = 3;
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long a notification goes back to the outbox if its route is full.
const BUSY: Duration = Duration::from_secs(2);

/// The health of one route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RouteHealth {
    /// The provider, and for Web Push the push service.
    #[cfg_attr(feature = "openapi", schema(example = "apns"))]
    pub route: String,
    /// The remaining pause.
    pub paused_ms: u64,
    /// The configuration error that the provider reports; nothing is delivered until it is fixed.
    pub misconfigured: Option<String>,
    /// Why the last notification failed, unless a later one was delivered.
    pub failing: Option<String>,
}

struct Route {
    limit: Arc<Semaphore>,
    /// How many wait for the in-flight limit.
    waiting: usize,
    failures: u32,
    /// After a pause one notification probes whether the route works again.
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

    /// Paused, or waiting for the probe.
    fn closed_for(&self, now: Instant) -> Option<Duration> {
        self.paused_for(now).or_else(|| self.probing.then_some(BUSY))
    }
}

/// A permit to send one notification.
pub(super) struct Leave {
    _permit: OwnedSemaphorePermit,
    /// This one is the probe after a pause.
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

    /// A permit to send one notification, or the time after which to try again. No more may wait
    /// than may be in flight, so that a slow route does not take all capacity.
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

    /// Returns a permit that was not used.
    pub(super) fn unused(&self, name: &str, probe: bool) {
        if probe {
            self.with(name, |route| route.probing = false);
        }
    }

    /// The remaining pause if every route that was used is closed.
    pub(super) fn all_closed_for(&self) -> Option<Duration> {
        let now = Instant::now();
        let routes = self.routes.lock();
        routes.values().map(|route| route.closed_for(now)).min().flatten()
    }

    /// The remaining pause of a route, if it is closed.
    pub(super) fn closed_for(&self, name: &str) -> Option<Duration> {
        self.with(name, |route| route.closed_for(Instant::now()))
    }

    /// Records the outcome of a notification.
    pub(super) fn heard(&self, name: &str, leave: &Leave, answer: &Pushed, rng: &mut impl rand::Rng) {
        let began = leave.began;
        self.with(name, |route| {
            route.probing &= !leave.probe;
            let (why, asked) = match answer {
                Pushed::Later { after, why } => (why, *after),
                Pushed::Misconfigured { why } => (why, None),
                Pushed::NotThisDevice { why, .. } => {
                    route.failing = Some(why.clone());
                    // The provider answered, so the route works.
                    if route.pause.is_none_or(|(since, _)| began >= since) {
                        (route.failures, route.pause) = (0, None);
                    }
                    return;
                }
                _ => {
                    // A notification sent before the pause does not end it.
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
            // A notification sent before the pause is no new failure.
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
                tracing::warn!(
                    route = name,
                    why,
                    "push route paused: the provider does not accept notifications"
                );
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
