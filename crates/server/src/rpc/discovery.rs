//! Who is there: processes say so in the directory, and gateways look. The directory is a hint. While it cannot be
//! read, whoever was known stays known.
//!
//! Whoever can write to Redis can write into the directory. With a secret, each entry is therefore signed with it, and
//! an entry that is not, or that has expired, is passed over. With certificates and no secret entries are not signed:
//! whoever is called must then show a certificate for the host in the entry before anything is sent.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bluetick_store::{Clock, Directory, NodeRole};
use parking_lot::Mutex;
use tokio::{task::AbortHandle, time::interval};

use super::{
    AppServers, Guard,
    proof::{Prover, from_hex},
};
use crate::{auth::hex, readiness::Readiness};

/// How long a process that says nothing more is believed to be there.
pub const TTL: Duration = Duration::from_secs(15);
/// How often a gateway looks for app servers.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What the clocks of two processes may differ by. The directory itself lists an entry until it has
/// expired by the reader's clock; it is made anew every third of its TTL, so that a clock which is
/// ahead by less than the rest of it does no harm. The expiry that is signed bounds for how long
/// somebody can put a copy of an old entry back.
const CLOCK_SKEW: Duration = Duration::from_secs(5);

/// How entries of the directory are written and read: `address`, or with a secret `address expiry proof`.
#[derive(Clone)]
pub struct Entries {
    prover: Option<Prover>,
    clock: Arc<dyn Clock>,
}

impl Entries {
    pub fn new(guard: &Guard, clock: Arc<dyn Clock>) -> Entries {
        Entries { prover: guard.prover().cloned(), clock }
    }

    pub(super) fn write(&self, role: NodeRole, address: &str) -> String {
        let Some(prover) = &self.prover else { return address.to_owned() };
        let expires_at = self.clock.now_ms().saturating_add(TTL.as_millis() as u64);
        format!("{address} {expires_at} {}", hex(&prover.sign_entry(role.as_str(), address, expires_at)))
    }

    /// The address in an entry, if it is to be believed.
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

    /// The addresses in the entries that are to be believed, and how many of the others there are.
    pub fn believe(&self, role: NodeRole, entries: &[String]) -> (BTreeSet<String>, usize) {
        let believed: Vec<&str> = entries.iter().filter_map(|entry| self.read(role, entry)).collect();
        let others = entries.len() - believed.len();
        (believed.into_iter().map(str::to_owned).collect(), others)
    }
}

/// Says that this process is there, until it withdraws or is dropped.
pub struct Announcer {
    directory: Arc<dyn Directory>,
    /// The entries that were made last.
    made: Arc<Mutex<Vec<(NodeRole, String)>>>,
    task: AbortHandle,
}

impl Announcer {
    /// An app server whose store does not answer says nothing: nobody new should come. Who has a link to it keeps it.
    pub fn start(
        directory: Arc<dyn Directory>,
        entries: Entries,
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
                    // Noted first: a withdrawal that comes in between must find it.
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
                            tracing::warn!(%error, "this process cannot say that it is there; trying on");
                        }
                        Err(_) => {}
                    }
                }
            }
        });
        Announcer { directory, made, task: task.abort_handle() }
    }

    /// Takes this process out of the directory, so that nobody new comes.
    pub async fn withdraw(&self) {
        self.task.abort();
        let made = std::mem::take(&mut *self.made.lock());
        for (role, entry) in &made {
            let withdrawn = self.directory.withdraw(*role, entry);
            if !matches!(tokio::time::timeout(Duration::from_secs(2), withdrawn).await, Ok(Ok(()))) {
                tracing::warn!(
                    "this process could not take itself out of the directory; its entry will expire"
                );
            }
        }
    }
}

/// Adds an entry to those that were made. Returns the earlier ones of this role, which it replaces.
fn note(made: &mut Vec<(NodeRole, String)>, role: NodeRole, entry: &str) -> Vec<String> {
    let before = made.iter().filter(|(of, old)| *of == role && old != entry).map(|(_, old)| old.clone());
    let before = before.collect();
    if !made.iter().any(|(of, old)| *of == role && old == entry) {
        made.push((role, entry.to_owned()));
    }
    before
}

/// Takes out an entry that a newer one has replaced. One that stays expires.
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

/// Keeps the links to the app servers that are listed, those of the configuration among them. Runs for ever.
pub async fn find_app_servers(
    directory: Arc<dyn Directory>,
    entries: Entries,
    mut fixed: BTreeSet<String>,
    own: String,
    servers: Arc<AppServers>,
) {
    // A process that is an app server itself has no need to call itself up.
    fixed.remove(&own);
    let mut every = interval(LOOK_EVERY);
    let (mut failed, mut warned) = (false, false);
    servers.set(&BTreeSet::new(), &fixed);
    loop {
        every.tick().await;
        match directory.members(NodeRole::App).await {
            Ok(found) => {
                failed = false;
                let (mut believed, others) = entries.believe(NodeRole::App, &found);
                believed.remove(&own);
                servers.set(&believed, &fixed);
                if others > 0 {
                    metrics::counter!("bluetick_directory_refused_total").increment(others as u64);
                    if !warned {
                        warned = true;
                        tracing::warn!(
                            entries = others,
                            "entries of the directory are passed over: they are not signed with this cluster's secret, or \
                             have expired. Somebody else writes to this Redis, or a process has another secret or is of \
                             another version"
                        );
                    }
                }
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
