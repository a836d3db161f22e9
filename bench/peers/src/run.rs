//! The whole comparison: rounds over the servers, each started anew on an empty directory.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde::Serialize;

use crate::{
    bench::{Bench, Pairs},
    fsync::GroupFsync,
    peer::{Peer, Place},
    process::{self, Server},
    results::{Round, Stage},
    xmpp,
};

/// What a server puts off it does within this time after the last of its work, or begins to.
const REST: Duration = Duration::from_secs(6);
/// After the messages that were sent online a longer one: a device that comes back within a minute may be sent once more what
/// it sent in that minute itself, and that is no part of storing.
const REST_ONLINE: Duration = Duration::from_secs(65);
/// Longer than this nobody waits for it to be done.
const REST_MAX: Duration = Duration::from_secs(120);

/// How much is done in each stage.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Sizes {
    pub pairs: u32,
    pub in_flight: u32,
    pub body_bytes: u32,
    pub online_seconds: u64,
    /// Receivers who are away, and messages to each. The same for all servers: what a message costs depends on it.
    pub offline_pairs: u32,
    pub offline_messages: u32,
    pub idle_connections: u32,
    pub fsync_seconds: u64,
}

impl Sizes {
    pub const FULL: Sizes = Sizes {
        pairs: 200,
        in_flight: 8,
        body_bytes: 200,
        online_seconds: 8,
        offline_pairs: 1000,
        offline_messages: 30,
        idle_connections: 2000,
        fsync_seconds: 3,
    };

    pub const QUICK: Sizes = Sizes {
        online_seconds: 2,
        offline_pairs: 300,
        idle_connections: 500,
        fsync_seconds: 1,
        ..Sizes::FULL
    };

    /// So that servers which are compared are measured within a minute of each other.
    pub fn short(self) -> Sizes {
        Sizes { online_seconds: self.online_seconds.min(3), idle_connections: 0, ..self }
    }

    fn online_pairs(&self) -> Pairs {
        Pairs { pairs: self.pairs, in_flight: self.in_flight, body_bytes: self.body_bytes }
    }

    fn offline_pairs(&self) -> Pairs {
        Pairs { pairs: self.offline_pairs, ..self.online_pairs() }
    }

    fn users(&self) -> u32 {
        (2 * self.pairs.max(self.offline_pairs)).max(self.idle_connections)
    }
}

pub struct Plan {
    pub sizes: Sizes,
    pub rounds: u32,
    pub peers: Vec<Peer>,
    /// Only what can be measured in short: nothing on a server that was in use, and no idle connections.
    pub short: bool,
    /// XMPP messages go to one device of the receiver's, not to the receiver.
    pub full_addresses: bool,
    pub bluetick: PathBuf,
    /// Where the servers keep what they keep: on a disk, if the figures are to mean something.
    pub dir: PathBuf,
}

#[derive(Debug, Serialize)]
pub struct Measured {
    pub peer: Peer,
    pub version: Option<String>,
    pub rounds: Vec<Round>,
}

#[derive(Debug, Serialize)]
pub struct Comparison {
    pub sizes: Sizes,
    pub peers: Vec<Measured>,
    pub fsync: Vec<GroupFsync>,
}

pub fn run(plan: &Plan) -> Result<Comparison, String> {
    process::pin_myself()?;
    let fsync = group_fsync(plan)?;
    let versions = plan.peers.iter().map(|&peer| (peer, version(peer, &plan.bluetick)));
    let mut peers: Vec<Measured> =
        versions.map(|(peer, version)| Measured { peer, version, rounds: Vec::new() }).collect();
    for round in 0..plan.rounds as usize {
        // Each round begins with another, so that none has always the same before it.
        let order: Vec<usize> = (0..peers.len()).map(|at| (at + round) % peers.len()).collect();
        let mut done: Vec<Round> = peers.iter().map(|_| Round::default()).collect();
        for part in parts(plan.short) {
            for &at in &order {
                let peer = peers[at].peer;
                say(&format!("round {} of {}: {}", round + 1, plan.rounds, peer.name()));
                part.iter().for_each(|measure| measure(plan, peer, &mut done[at]));
            }
        }
        for (peer, done) in peers.iter_mut().zip(done) {
            done.complaints()
                .iter()
                .for_each(|complaint| say(&format!("  {}: {complaint}", peer.peer.name())));
            peer.rounds.push(done);
        }
    }
    Ok(Comparison { sizes: plan.sizes, peers, fsync })
}

/// Measures something of a server, and puts it down.
type Measure = fn(&Plan, Peer, &mut Round);

/// What is measured of one server after another. In short rounds each stage is a part of its own, so that servers are measured next to
/// each other.
///
/// Storing and draining are measured twice: on the server that was just in use online, and on one that holds nothing, because a
/// store may cost more the more it holds. What is put off is charged to what it was put off from: to the messages that were
/// sent online, and to those that were stored.
fn parts(short: bool) -> Vec<Vec<Measure>> {
    match short {
        true => vec![vec![in_use], vec![fresh]],
        false => vec![vec![in_use, fresh, idle]],
    }
}

fn in_use(plan: &Plan, peer: Peer, round: &mut Round) {
    let used = with_server(plan, peer, |server, place| {
        let goes_on = peer.stores() && !plan.short;
        let online = online(plan, peer, server, place)?;
        round.online =
            Some(online.with_put_off(server.tree().rest(if goes_on { REST_ONLINE } else { REST }, REST_MAX)));
        if goes_on {
            let (store, drain) = offline(plan, peer, server, place)?;
            (round.store, round.drain) = (Some(store), Some(drain));
        }
        Ok(())
    });
    round.failures.extend(used.err());
}

fn fresh(plan: &Plan, peer: Peer, round: &mut Round) {
    if peer.stores() {
        let fresh = with_server(plan, peer, |server, place| offline(plan, peer, server, place));
        round.failures.extend(fresh.as_ref().err().map(|why| format!("on a fresh server: {why}")));
        (round.fresh_store, round.fresh_drain) = fresh.ok().unzip();
    }
}

fn idle(plan: &Plan, peer: Peer, round: &mut Round) {
    let connections = plan.sizes.idle_connections;
    let idle = with_server(plan, peer, |server, place| match peer.speaks_xmpp() {
        true => block_on(xmpp::idle(target(server), connections)),
        false => bench(plan, server, &place.bluetick_config()).idle(connections),
    });
    round.failures.extend(idle.as_ref().err().map(|why| format!("idle: {why}")));
    round.idle_bytes_per_connection = idle.ok();
}

/// Starts the server in a directory that is removed behind it.
fn with_server<T>(
    plan: &Plan,
    peer: Peer,
    work: impl FnOnce(&Server, &Place<'_>) -> Result<T, String>,
) -> Result<T, String> {
    let dir = tempfile::Builder::new().prefix("bluetick-peers-").tempdir_in(&plan.dir);
    let dir = dir.map_err(|e| format!("{}: {e}", plan.dir.display()))?;
    let place = Place { dir: dir.path(), bluetick: &plan.bluetick, users: plan.sizes.users() };
    let mut server = peer.start(&place)?;
    let done = work(&server, &place);
    match server.is_running() {
        true => done,
        false => Err(format!("{} ended under load; {}", peer.name(), server.log_end())),
    }
}

fn online(plan: &Plan, peer: Peer, server: &Server, place: &Place<'_>) -> Result<Stage, String> {
    let Sizes { pairs, in_flight, body_bytes, online_seconds, .. } = plan.sizes;
    if !peer.speaks_xmpp() {
        return bench(plan, server, &place.bluetick_config())
            .online(plan.sizes.online_pairs(), online_seconds);
    }
    let work = xmpp::OnlinePlan {
        pairs,
        in_flight: in_flight as usize,
        body_bytes: body_bytes as usize,
        full_addresses: plan.full_addresses,
        duration: Duration::from_secs(online_seconds),
    };
    block_on(xmpp::online(target(server), work))
}

/// First to those who are away, then to the same who come back.
fn offline(plan: &Plan, peer: Peer, server: &Server, place: &Place<'_>) -> Result<(Stage, Stage), String> {
    let Sizes { offline_pairs, offline_messages, body_bytes, .. } = plan.sizes;
    if !peer.speaks_xmpp() {
        let config = place.bluetick_config();
        let bench = bench(plan, server, &config);
        let (store, drain) = bench.offline(plan.sizes.offline_pairs(), offline_messages)?;
        return Ok((store.with_put_off(server.tree().rest(REST, REST_MAX)), drain));
    }
    let (pairs, messages, body_bytes) = (offline_pairs, offline_messages, body_bytes as usize);
    let work = xmpp::OfflinePlan { pairs, messages, body_bytes };
    let store = block_on(xmpp::store(target(server), work))?;
    let drain = block_on(xmpp::drain(target(server), work))?;
    Ok((store.with_put_off(server.tree().rest(REST, REST_MAX)), drain))
}

fn bench<'a>(plan: &'a Plan, server: &'a Server, config: &'a Path) -> Bench<'a> {
    Bench { bluetick: &plan.bluetick, config, server }
}

fn target(server: &Server) -> xmpp::Target {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port));
    xmpp::Target { address, tree: server.tree() }
}

fn block_on<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| e.to_string())?.block_on(work)
}

/// In a process of its own, on the servers' core.
fn group_fsync(plan: &Plan) -> Result<Vec<GroupFsync>, String> {
    say("raw group fsync");
    let myself = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut fsync = Command::new(myself);
    fsync
        .args(["fsync", "--json", "--seconds", &plan.sizes.fsync_seconds.to_string(), "--dir"])
        .arg(&plan.dir);
    let done = process::pinned(&fsync, process::SERVER_CORE).output().map_err(|e| e.to_string())?;
    serde_json::from_slice(&done.stdout)
        .map_err(|_| format!("raw group fsync failed: {}", String::from_utf8_lossy(&done.stderr)))
}

fn version(peer: Peer, bluetick: &Path) -> Option<String> {
    let output = |command: &mut Command| {
        let done = command.output().ok().filter(|done| done.status.success())?;
        Some(String::from_utf8_lossy(&done.stdout).trim().to_owned())
    };
    let package = |name: &str| output(Command::new("dpkg-query").args(["-W", "-f", "${Version}", name]));
    match peer {
        Peer::Bluetick => {
            output(Command::new(bluetick).arg("--version"))?.split(' ').nth(1).map(str::to_owned)
        }
        Peer::Ejabberd => package("ejabberd"),
        Peer::Prosody => package("prosody"),
        Peer::Forwarder => None,
    }
}

pub fn say(text: &str) {
    eprintln!("{text}");
}
