//! Who is there: processes say so in the directory, and gateways look. The directory is a hint. While it cannot be
//! read, whoever was known stays known.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bluetick_store::{Directory, NodeRole};
use tokio::{task::AbortHandle, time::interval};

use super::AppServers;
use crate::readiness::Readiness;

/// How long a process that says nothing more is believed to be there.
pub const TTL: Duration = Duration::from_secs(15);
/// How often a gateway looks for app servers.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Says that this process is there, until it withdraws or is dropped.
pub struct Announcer {
    directory: Arc<dyn Directory>,
    roles: Vec<NodeRole>,
    address: String,
    task: AbortHandle,
}

impl Announcer {
    /// An app server whose store does not answer says nothing: nobody new should come. Who has a link to it keeps it.
    pub fn start(
        directory: Arc<dyn Directory>,
        roles: Vec<NodeRole>,
        address: String,
        readiness: Arc<Readiness>,
    ) -> Announcer {
        let (own, listed, said) = (directory.clone(), roles.clone(), address.clone());
        let task = tokio::spawn(async move {
            let mut every = interval(TTL / 3);
            let mut failed = false;
            loop {
                every.tick().await;
                let ready = !listed.contains(&NodeRole::App) || readiness.look().await.refusing.is_none();
                for role in listed.iter().filter(|role| ready || **role != NodeRole::App) {
                    match own.announce(*role, &said, TTL).await {
                        Ok(()) => failed = false,
                        Err(error) if !failed => {
                            failed = true;
                            tracing::warn!(%error, "this process cannot say that it is there; trying on");
                        }
                        Err(_) => {}
                    }
                }
            }
        });
        Announcer { directory, roles, address, task: task.abort_handle() }
    }

    /// Takes this process out of the directory, so that nobody new comes.
    pub async fn withdraw(&self) {
        self.task.abort();
        for role in &self.roles {
            let withdrawn = self.directory.withdraw(*role, &self.address);
            if !matches!(tokio::time::timeout(Duration::from_secs(2), withdrawn).await, Ok(Ok(()))) {
                tracing::warn!(
                    "this process could not take itself out of the directory; its entry will expire"
                );
            }
        }
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Keeps the links to the app servers that are listed, those of the configuration among them. Runs for ever.
pub async fn find_app_servers(
    directory: Arc<dyn Directory>,
    mut fixed: BTreeSet<String>,
    own: String,
    servers: Arc<AppServers>,
) {
    // A process that is an app server itself has no need to call itself up.
    fixed.remove(&own);
    let mut every = interval(LOOK_EVERY);
    let mut failed = false;
    servers.set(&fixed);
    loop {
        every.tick().await;
        match directory.members(NodeRole::App).await {
            Ok(found) => {
                failed = false;
                let others = found.into_iter().filter(|address| *address != own);
                servers.set(&others.chain(fixed.iter().cloned()).collect());
            }
            Err(error) => {
                if !failed {
                    failed = true;
                    tracing::warn!(%error, "the directory does not answer; the app servers known so far stay in use");
                }
            }
        }
    }
}
