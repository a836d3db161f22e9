//! The gateways as an app server sees them: an entry of the session store names one, and it has the session or not.
//!
//! A gateway's name is its address and a number drawn at its start, `host:port#boot`, so that a process that came
//! after it at the same address is not taken for it. Links are made when they are needed and dropped when they are
//! not. Whatever goes wrong on the way is a refusal: the message takes the offline path (R12). An entry may have been
//! written by anybody who can write to Redis, so nothing is sent before the process at its address has proven that it
//! knows the cluster's secret and has this name.

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
    link::{Link, LinkConfig, Peer, Standing},
};

/// A link over which nothing was handed for so long is closed.
const IDLE: Duration = Duration::from_secs(120);
/// A gateway that cannot be reached is forgotten after this long, so that dead ones do not gather.
const DOWN: Duration = Duration::from_secs(10);

pub struct RemoteGateways {
    /// The sessions of this process, if it is a gateway too.
    own: Option<Arc<Gateway>>,
    guard: Guard,
    config: LinkConfig,
    deadline: Duration,
    links: Mutex<BTreeMap<String, Used>>,
    changed: Arc<Notify>,
}

struct Used {
    link: Arc<Link>,
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

    /// The link to a gateway, by its whole name: one that was started anew is another gateway.
    fn link_to(&self, name: &str) -> Option<Arc<Link>> {
        let (address, _boot) = name.split_once('#')?;
        let mut links = self.links.lock();
        if !links.contains_key(name) {
            links.retain(|_, used| used.is_wanted());
        }
        let used = links.entry(name.to_owned()).or_insert_with(|| Used {
            link: Arc::new(Link::open(
                Peer::named(address, name),
                self.guard.clone(),
                self.config.clone(),
                self.changed.clone(),
            )),
            at: Instant::now(),
        });
        used.at = Instant::now();
        Some(used.link.clone())
    }

    /// Closes what nobody needs.
    pub fn sweep(&self) {
        self.links.lock().retain(|_, used| used.is_wanted());
    }

    #[cfg(test)]
    pub fn link_count(&self) -> usize {
        self.links.lock().len()
    }
}

impl Used {
    fn is_wanted(&self) -> bool {
        let unused = self.at.elapsed();
        match self.link.standing() {
            Standing::Up | Standing::Connecting => unused < IDLE,
            Standing::Draining | Standing::Down(_) => unused < DOWN,
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
                    // Of another version, or of another role. The session may be well there.
                    Ok(Err(_)) | Err(_) => HandOver::NotUnderstood,
                },
                Err(error) => {
                    tracing::debug!(%error, %gateway, "not handed over");
                    HandOver::Refused
                }
            }
        }))
    }
}
