//! Service discovery: processes announce themselves in the directory, and gateways poll it. The directory is a hint.
//! While it cannot be read, the known app servers stay in use.
//!
//! Anybody who can write to Redis can write into the directory. With a secret, each entry is therefore signed, and
//! unsigned or expired entries are ignored. With certificates and no secret, entries are not signed: the process must
//! then show a certificate for the host in the entry before anything is sent to it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bluetick_store::{Clock, Directory, NodeRole};
use parking_lot::Mutex;
use tokio::{task::AbortHandle, time::interval};

use super::{
    AppServers, Guard,
    proof::{Prover, from_hex},
};
use crate::{auth::hex, readiness::Readiness};

/// How long an entry is valid without renewal.
pub const TTL: Duration = Duration::from_secs(15);
/// How often a gateway polls the directory.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The largest clock difference of two processes. The directory lists an entry until it has expired by the reader's
/// clock. An entry is renewed every third of its TTL, so a reader's clock may be ahead by less than the rest. The signed
/// expiry limits how long a copied entry can be replayed.
const CLOCK_SKEW: Duration = Duration::from_secs(5);

/// Writes and reads the entries of the directory: `address`, or with a secret `address expiry proof`.
#[derive(Clone)]
pub struct DirectoryEntries {
    prover: Option<Prover>,
    clock: Arc<dyn Clock>,
}

impl DirectoryEntries {
    pub fn new(guard: &Guard, clock: Arc<dyn Clock>) -> DirectoryEntries {
        DirectoryEntries { prover: guard.prover().cloned(), clock }
    }

    pub(super) fn write(&self, role: NodeRole, address: &str) -> String {
        let Some(prover) = &self.prover else { return address.to_owned() };
        let expires_at = self.clock.now_ms().saturating_add(TTL.as_millis() as u64);
        format!("{address} {expires_at} {}", hex(&prover.sign_entry(role.as_str(), address, expires_at)))
    }

    /// The address in an entry, if the entry is valid.
    fn read<'a>(&self, role: NodeRole, entry: &'a str) -> Option<&'a str> {
        let mut parts = entry.split(' ');
        let address = parts.next()?;
        let Some(prover) = &self.prover else { return parts.next().is_none().then_some(address) };
        let (expires_at, proof) = (parts.next()?.parse().ok()?, from_hex(parts.next()?)?);
        let now = self.clock.now_ms().saturating_sub(CLOCK_SKEW.as_millis() as u64);
        let good = parts.next().is_none()
            && expires_at > now
            && prover.is_signed_entry(role.as_str(), address, expires_at, &proof);
        good.then_some(address)
    }

    /// The addresses in the valid entries, and the number of invalid ones.
    pub fn read_valid(&self, role: NodeRole, entries: &[String]) -> (BTreeSet<String>, usize) {
        let valid: Vec<&str> = entries.iter().filter_map(|entry| self.read(role, entry)).collect();
        let invalid = entries.len() - valid.len();
        (valid.into_iter().map(str::to_owned).collect(), invalid)
    }
}

/// Announces this process until it withdraws or is dropped.
pub struct Announcer {
    directory: Arc<dyn Directory>,
    /// The current entries of this process.
    made: Arc<Mutex<Vec<(NodeRole, String)>>>,
    task: AbortHandle,
}

impl Announcer {
    /// An app server whose store is unreachable does not announce itself, so that it gets no new links. Existing links
    /// stay.
    pub fn start(
        directory: Arc<dyn Directory>,
        entries: DirectoryEntries,
        roles: Vec<NodeRole>,
        address: String,
        readiness: Arc<Readiness>,
    ) -> Announcer {
        let made: Arc<Mutex<Vec<(NodeRole, String)>>> = Arc::default();
        let (own, kept) = (directory.clone(), made.clone());
        let task = tokio::spawn(async move {
            let mut every = interval(TTL / 3);
            let mut failed = false;
            loop {
                every.tick().await;
                let ready = !roles.contains(&NodeRole::App) || readiness.look().await.refusing.is_none();
                for role in roles.iter().filter(|role| ready || **role != NodeRole::App) {
                    let entry = entries.write(*role, &address);
                    // Noted first: a concurrent withdrawal must find it.
                    let before = note(&mut kept.lock(), *role, &entry);
                    match own.announce(*role, &entry, TTL).await {
                        Ok(()) => {
                            failed = false;
                            for old in before {
                                forget(&*own, &kept, *role, &old).await;
                            }
                        }
                        Err(error) if !failed => {
                            failed = true;
                            tracing::warn!(%error, "could not announce this process in the directory; retrying");
                        }
                        Err(_) => {}
                    }
                }
            }
        });
        Announcer { directory, made, task: task.abort_handle() }
    }

    /// Removes this process from the directory, so that it gets no new links.
    pub async fn withdraw(&self) {
        self.task.abort();
        let made = std::mem::take(&mut *self.made.lock());
        for (role, entry) in &made {
            let withdrawn = self.directory.withdraw(*role, entry);
            if !matches!(tokio::time::timeout(Duration::from_secs(2), withdrawn).await, Ok(Ok(()))) {
                tracing::warn!("could not remove this process from the directory; its entry will expire");
            }
        }
    }
}

/// Adds an entry to the current ones. Returns the earlier ones of this role, which it replaces.
fn note(made: &mut Vec<(NodeRole, String)>, role: NodeRole, entry: &str) -> Vec<String> {
    let before = made.iter().filter(|(of, old)| *of == role && old != entry).map(|(_, old)| old.clone());
    let before = before.collect();
    if !made.iter().any(|(of, old)| *of == role && old == entry) {
        made.push((role, entry.to_owned()));
    }
    before
}

/// Removes an entry that a newer one has replaced. If that fails, the entry expires.
async fn forget(directory: &dyn Directory, made: &Mutex<Vec<(NodeRole, String)>>, role: NodeRole, old: &str) {
    if directory.withdraw(role, old).await.is_ok() {
        made.lock().retain(|(of, entry)| *of != role || entry != old);
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Keeps links to the app servers of the directory and of the configuration. Never returns.
pub async fn find_app_servers(
    directory: Arc<dyn Directory>,
    entries: DirectoryEntries,
    mut fixed: BTreeSet<String>,
    own: String,
    servers: Arc<AppServers>,
) {
    // A process needs no link to itself.
    fixed.remove(&own);
    let mut every = interval(POLL_INTERVAL);
    let (mut failed, mut warned) = (false, false);
    servers.set(&BTreeSet::new(), &fixed);
    loop {
        every.tick().await;
        match directory.members(NodeRole::App).await {
            Ok(found) => {
                failed = false;
                let (mut valid, invalid) = entries.read_valid(NodeRole::App, &found);
                valid.remove(&own);
                servers.set(&valid, &fixed);
                if invalid > 0 {
                    metrics::counter!("bluetick_directory_refused_total").increment(invalid as u64);
                    if !warned {
                        warned = true;
                        tracing::warn!(
                            entries = invalid,
                            "ignored entries of the directory that are expired or not signed with this cluster's secret; \
                             check who else writes to this Redis, and that all processes have the same secret and version"
                        );
                    }
                }
            }
            Err(error) => {
                if !failed {
                    failed = true;
                    tracing::warn!(%error, "could not read the directory; the known app servers stay in use");
                }
            }
        }
    }
}
