//! Whether this process can take messages, and which backend prevents it: for `/readyz`, `doctor`
//! and the metrics.

use std::{sync::Arc, time::Duration};

use bluetick_chat::{Push, RouteHealth};
use bluetick_protocol::UserId;
use bluetick_store::{Health, SessionStore, Store};

#[cfg(feature = "cluster")]
use crate::rpc::{AppServers, LinkStatus};

/// The deadline of a backend's health check.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

pub struct Readiness {
    /// `None` in a gateway without a store.
    pub store: Option<Store>,
    /// The session store of a gateway. With a store, the store reports on its own session store.
    pub sessions: Option<Arc<dyn SessionStore>>,
    /// `None` without push providers.
    pub push: Option<Arc<Push>>,
    /// The app servers that a gateway calls.
    #[cfg(feature = "cluster")]
    pub servers: Option<Arc<AppServers>>,
}

impl Readiness {
    /// Checks the backends. `refusing` says why messages are refused, `degraded` which other part
    /// does not work.
    pub async fn look(&self) -> Health {
        let Some(store) = &self.store else {
            let degraded = self.sessions().await;
            let refusing = self.no_app_server();
            return Health { backend: "app servers", refusing, degraded, ..Health::default() };
        };
        match tokio::time::timeout(PROBE_TIMEOUT, store.maintenance.health()).await {
            Ok(health) => health,
            Err(_) => {
                let refusing = Some("the store does not answer".to_owned());
                Health { backend: "store", refusing, ..Health::default() }
            }
        }
    }

    /// The push routes that fail now. Their notifications are retried, so messages are still taken.
    pub fn failing_routes(&self) -> Vec<RouteHealth> {
        let mut routes = self.push.as_ref().map(|push| push.routes()).unwrap_or_default();
        routes.retain(|route| route.misconfigured.is_some() || route.failing.is_some());
        for route in &mut routes {
            // /readyz needs no key, so details of the provider stay in the log.
            route.failing = route.failing.as_ref().map(|_| "see the log for the provider's answer".into());
        }
        routes
    }

    /// Without the session store every user counts as offline: messages queue, nothing fails (R12).
    async fn sessions(&self) -> Option<String> {
        let sessions = self.sessions.as_ref()?;
        // A user that does not exist, looked up like any other.
        let probe = UserId::new("bluetick.readyz").ok()?;
        let why = match tokio::time::timeout(PROBE_TIMEOUT, sessions.lookup(&probe)).await {
            Ok(Ok(_)) => return None,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        Some(format!("session store: {why}; messages wait until their receivers reconnect or reconcile"))
    }

    #[cfg(not(feature = "cluster"))]
    fn no_app_server(&self) -> Option<String> {
        Some("this process has no store".into())
    }

    #[cfg(feature = "cluster")]
    fn no_app_server(&self) -> Option<String> {
        let link_statuses = self.servers.as_ref().map(|servers| servers.link_statuses()).unwrap_or_default();
        if link_statuses.iter().any(|(_, status)| *status == LinkStatus::Up) {
            return None;
        }
        if link_statuses.is_empty() {
            return Some(
                "no app server is known: none is announced, and cluster.app_servers names none".into(),
            );
        }
        let told = link_statuses.into_iter().map(|(address, status)| match status {
            LinkStatus::Down(why) => why,
            LinkStatus::Draining => format!("{address}: going down"),
            LinkStatus::Connecting | LinkStatus::Up => format!("{address}: connecting"),
        });
        Some(format!("no app server can be reached ({})", told.collect::<Vec<_>>().join("; ")))
    }
}
