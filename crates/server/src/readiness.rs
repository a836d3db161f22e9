//! Whether this process can do its work now, and which backend is in the way if not: for `/readyz`, `doctor` and
//! the figures.

use std::{sync::Arc, time::Duration};

use bluetick_chat::{Push, RouteHealth};
use bluetick_protocol::UserId;
use bluetick_store::{Health, SessionStore, Store};

#[cfg(feature = "cluster")]
use crate::rpc::{AppServers, LinkStatus};

/// How long a backend may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(5);

pub struct Readiness {
    /// Of a process that has data.
    pub store: Option<Store>,
    /// Of a process that has no data. Where there are, the store says how its sessions are.
    pub sessions: Option<Arc<dyn SessionStore>>,
    /// Of a process that notifies devices.
    pub push: Option<Arc<Push>>,
    /// Of a process that has to ask others for data.
    #[cfg(feature = "cluster")]
    pub servers: Option<Arc<AppServers>>,
}

impl Readiness {
    /// How it stands. `refusing` says why no messages can be taken, `degraded` what else does not work as it should.
    pub async fn look(&self) -> Health {
        let Some(store) = &self.store else {
            let degraded = self.sessions().await;
            let refusing = self.no_app_server();
            return Health { backend: "app servers", refusing, degraded, ..Health::default() };
        };
        match tokio::time::timeout(PATIENCE, store.maintenance.health()).await {
            Ok(health) => health,
            Err(_) => {
                let refusing = Some("the store does not answer".to_owned());
                Health { backend: "store", refusing, ..Health::default() }
            }
        }
    }

    /// The ways by which notifications do not get through now. They wait and are tried again, so nothing is refused for it.
    pub fn failing_routes(&self) -> Vec<RouteHealth> {
        let mut routes = self.push.as_ref().map(|push| push.routes()).unwrap_or_default();
        routes.retain(|route| route.misconfigured.is_some() || route.failing.is_some());
        for route in &mut routes {
            // Anybody may ask: what was called and what it said stays in the log.
            route.failing = route.failing.as_ref().map(|_| "the log has what it answered".into());
        }
        routes
    }

    /// A session store that is down means that everybody is offline: messages queue, nothing fails (R12).
    async fn sessions(&self) -> Option<String> {
        let sessions = self.sessions.as_ref()?;
        // Nobody's, and looked up like any other: what is wrong with a real one is wrong with it.
        let probe = UserId::new("bluetick.readyz").ok()?;
        let why = match tokio::time::timeout(PATIENCE, sessions.lookup(&probe)).await {
            Ok(Ok(_)) => return None,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        Some(format!("session store: {why}; messages wait until their receivers connect again or look"))
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
