//! The store and the other backends, opened as a server would open them.

#[cfg(feature = "cluster")]
use std::collections::BTreeSet;
use std::sync::Arc;

use bluetick_store::{NodeRole, Store, SystemClock};

use super::Findings;
use crate::{backends, cli::target::ResolvedTarget, config::Config};

/// Opens the store. Runs only if no server answered, because a server locks it.
pub(super) async fn check_store(place: &ResolvedTarget, findings: &mut Findings) {
    if !place.config.is_one_process() {
        return check_shared(&place.config, findings).await;
    }
    if !place.holds_store() {
        return;
    }
    let opened = place
        .config
        .embedded_store_with_objects()
        .and_then(|config| Store::embedded(config, Arc::new(SystemClock)));
    let store = match opened {
        Ok(store) => store,
        Err(e) => return findings.fail("store", e.to_string()),
    };
    let health = store.maintenance.health().await;
    report_space(health.free_bytes, &place.config, findings);
    match store.maintenance.close().await {
        Ok(()) => findings.ok("store", "its format is known, it opens and closes well, nobody else holds it"),
        Err(e) => findings.fail("store", format!("it opens, but does not close: {e}")),
    }
}

/// Checks the backends that the processes of a cluster share.
pub(super) async fn check_shared(config: &Config, findings: &mut Findings) {
    let opened = match backends::open(config, Arc::new(SystemClock)).await {
        Ok(opened) => opened,
        Err(e) => return findings.fail("store", e.to_string()),
    };
    if let Some(store) = &opened.store {
        let health = store.maintenance.health().await;
        match health.refusing {
            None => findings.ok("store", format!("{} answers", health.backend)),
            Some(why) => findings.fail("store", why),
        }
        check_tables(config, findings).await;
    }
    let Some(directory) = &opened.directory else { return };
    let announced = match directory.members(NodeRole::App).await {
        Ok(announced) => {
            findings.ok("session store", "redis answers");
            announced
        }
        Err(e) => {
            let why = format!("{e}; while it is down everybody counts as offline, and messages wait");
            findings.fail("session store", why);
            Vec::new()
        }
    };
    if config.is_gateway() && !config.is_app() {
        check_app_servers(config, announced, findings).await;
    }
}

#[cfg(not(feature = "cluster"))]
pub(super) async fn check_tables(_: &Config, _: &mut Findings) {}

#[cfg(feature = "cluster")]
pub(super) async fn check_tables(config: &Config, findings: &mut Findings) {
    use bluetick_store::dynamo::{Dynamo, check_tables, probe_operations};

    use crate::cli::tables::is_needed_and_lacking;

    let dynamo = match Dynamo::new(config.distributed_store().dynamo).await {
        Ok(dynamo) => dynamo,
        Err(e) => return findings.fail("tables", format!("cannot be looked at: {e}")),
    };
    match check_tables(&dynamo).await {
        Ok(found) => {
            let wrong: Vec<_> = found.iter().filter(|f| f.wrong).map(|f| f.to_string()).collect();
            match wrong.is_empty() {
                true => findings.ok("tables", "are as they should be"),
                false => return findings.fail("tables", wrong.join("; ")),
            }
        }
        Err(e) => return findings.fail("tables", format!("cannot be looked at: {e}")),
    }
    let probed = probe_operations(&dynamo).await;
    for one in probed.iter().filter(|one| one.lacking.is_some()) {
        match is_needed_and_lacking(one) {
            true => findings.fail("operations", one.to_string()),
            false => findings.warn("operations", one.to_string()),
        }
    }
    if !probed.iter().any(is_needed_and_lacking) {
        findings.ok("operations", "the endpoint has all that a server needs");
    }
}

#[cfg(not(feature = "cluster"))]
pub(super) async fn check_app_servers(_: &Config, _: Vec<String>, _: &mut Findings) {}

#[cfg(feature = "cluster")]
pub(super) async fn check_app_servers(config: &Config, announced: Vec<String>, findings: &mut Findings) {
    use crate::rpc::{AppServers, DirectoryEntries, Guard, LinkStatus, PoolConfig};

    let guard = match Guard::from_config(&config.cluster) {
        Ok(guard) => guard,
        Err(e) => return findings.fail("app servers", e.to_string()),
    };
    let entries = DirectoryEntries::new(&guard, Arc::new(SystemClock));
    let (believed, others) = entries.read_valid(NodeRole::App, &announced);
    if others > 0 {
        findings.warn(
            "app servers",
            format!(
                "{others} entries in Redis are ignored: they are not signed with this process's cluster.secret, or have \
                 expired"
            ),
        );
    }
    let fixed: BTreeSet<String> = config.cluster.app_servers.iter().cloned().collect();
    if believed.is_empty() && fixed.is_empty() {
        let why = "none is announced, and cluster.app_servers names none; start one with roles = [\"app\"]";
        return findings.fail("app servers", why);
    }
    let servers = AppServers::new(guard, PoolConfig::default());
    servers.set(&believed, &fixed);
    for _ in 0..20 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        if servers.link_statuses().iter().all(|(_, standing)| *standing != LinkStatus::Connecting) {
            break;
        }
    }
    for (address, standing) in servers.link_statuses() {
        match standing {
            LinkStatus::Up => findings.ok("app servers", format!("{address} answers")),
            LinkStatus::Draining => findings.warn("app servers", format!("{address} is going down")),
            LinkStatus::Connecting => findings.fail("app servers", format!("{address} does not answer")),
            LinkStatus::Down(why) => findings.fail("app servers", why),
        }
    }
}

pub(super) fn report_space(free: Option<u64>, config: &Config, findings: &mut Findings) {
    let floor = config.store.free_space_floor_bytes;
    let mib = |bytes: u64| bytes / (1024 * 1024);
    match free {
        None => findings.warn("free space", "the file system does not say"),
        Some(free) if free < floor => findings.fail(
            "free space",
            format!(
                "{} MiB, below the floor of {} MiB: messages are refused; make room",
                mib(free),
                mib(floor)
            ),
        ),
        Some(free) if free < floor.saturating_mul(4) => findings.warn(
            "free space",
            format!("{} MiB; below {} MiB messages will be refused; make room", mib(free), mib(floor)),
        ),
        Some(free) => findings.ok("free space", format!("{} MiB", mib(free))),
    }
}
