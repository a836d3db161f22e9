//! Hands events over to remote gateways. An entry of the session store names the gateway of a session.
//!
//! A gateway's name is its address and a random number of its start, `host:port#boot`, so that a later process at the
//! same address is not mistaken for it. Links are opened on demand and closed when idle. Every failure counts as a
//! refusal: the message takes the offline path (R12). Anybody who can write to Redis can write an entry, so nothing is
//! sent before the process at its address has proven that it knows the cluster's secret and has this name.

use std::{
    collections::BTreeMap,
    future::ready,
    sync::Arc,
    time::{Duration, Instant},
};

use bluetick_chat::{AppResult, ClusterRequest, Gateway, Gateways, HandOver, HandingOver, SessionEvent};
use bluetick_store::SessionEntry;
use bytes::Bytes;
use futures_util::future::Either;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    guard::Guard,
    link::{LinkConfig, LinkPeer, LinkStatus, PeerLink},
};

/// A link that was not used for this long is closed.
const IDLE: Duration = Duration::from_secs(120);
/// A link that is down is dropped after this long without use, so that links to dead gateways do not accumulate.
const DOWN: Duration = Duration::from_secs(10);

pub struct RemoteGateways {
    /// The sessions of this process, if it is a gateway too.
    own: Option<Arc<Gateway>>,
    guard: Guard,
    config: LinkConfig,
    deadline: Duration,
    links: Mutex<BTreeMap<String, CachedLink>>,
    changed: Arc<Notify>,
}

struct CachedLink {
    link: Arc<PeerLink>,
    at: Instant,
}

impl RemoteGateways {
    pub fn new(
        own: Option<Arc<Gateway>>,
        guard: Guard,
        config: LinkConfig,
        deadline: Duration,
    ) -> RemoteGateways {
        RemoteGateways {
            own,
            guard,
            config,
            deadline,
            links: Mutex::default(),
            changed: Arc::new(Notify::new()),
        }
    }

    /// The link to a gateway, by its full name: after a restart it is another gateway.
    fn link_to(&self, name: &str) -> Option<Arc<PeerLink>> {
        let (address, _boot) = name.split_once('#')?;
        let mut links = self.links.lock();
        if !links.contains_key(name) {
            links.retain(|_, used| used.is_wanted());
        }
        let used = links.entry(name.to_owned()).or_insert_with(|| CachedLink {
            link: Arc::new(PeerLink::open(
                LinkPeer::named(address, name),
                self.guard.clone(),
                self.config.clone(),
                self.changed.clone(),
            )),
            at: Instant::now(),
        });
        used.at = Instant::now();
        Some(used.link.clone())
    }

    /// Closes idle and dead links.
    pub fn sweep(&self) {
        self.links.lock().retain(|_, used| used.is_wanted());
    }

    #[cfg(test)]
    pub fn link_count(&self) -> usize {
        self.links.lock().len()
    }
}

impl CachedLink {
    fn is_wanted(&self) -> bool {
        let unused = self.at.elapsed();
        match self.link.status() {
            LinkStatus::Up | LinkStatus::Connecting => unused < IDLE,
            LinkStatus::Draining | LinkStatus::Down(_) => unused < DOWN,
        }
    }
}

impl Gateways for RemoteGateways {
    fn hand_over(&self, to: &SessionEntry, event: SessionEvent) -> HandingOver {
        if let Some(own) = &self.own
            && *own.name() == to.gateway
        {
            return own.hand_over(to, event);
        }
        let refused = || Either::Left(ready(HandOver::Refused));
        let Some(link) = self.link_to(&to.gateway) else { return refused() };
        let Ok(payload) = serde_json::to_vec(&ClusterRequest::HandOver(to.clone(), event)) else {
            return refused();
        };
        let deadline = tokio::time::Instant::now() + self.deadline;
        let gateway = to.gateway.clone();
        Either::Right(Box::pin(async move {
            match link.call(Bytes::from(payload), deadline).await {
                Ok(answer) => match serde_json::from_slice::<AppResult<HandOver>>(&answer) {
                    Ok(Ok(handed)) => handed,
                    // The process has another version or role; the session may still exist.
                    Ok(Err(_)) | Err(_) => HandOver::NotUnderstood,
                },
                Err(error) => {
                    tracing::debug!(%error, %gateway, "could not hand an event over");
                    HandOver::Refused
                }
            }
        }))
    }
}
