//! The process dies at every point between two durable steps, and at random moments under load: nobody loses a message
//! that was confirmed.

use std::{
    collections::BTreeSet, os::unix::process::ExitStatusExt, path::Path, process::Command, time::Duration,
};

use bluetick_store::failpoint;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::Instant;

use crate::{harness::*, town::Town};

/// At which pass of a point to die: late where passes are many, so that there is something to lose.
fn nth(point: &str) -> u32 {
    match point {
        "log.half_a_group" | "log.group_written" | "log.group_synced" | "commit.published" => 40,
        "send.committed" | "deliver.handed_over" => 60,
        "ack.stored" => 30,
        "checkpoint.half_a_run" => 100,
        "settle.row_removed" => 2,
        "close.owes" | "close.row_moved" | "deliver.row_written" => 3,
        _ => 1,
    }
}

/// Points that are passed only after a crash elsewhere has left something behind.
fn dies_first_at(point: &str) -> Option<&'static str> {
    match point {
        // Half a group is a tail to cut.
        "log.tail_cut" => Some("log.half_a_group:10"),
        // A checkpoint whose segments were not dropped leaves two to drop after the next.
        "log.segment_dropped" => Some("checkpoint.marked"),
        _ => None,
    }
}

fn points(kinds: &[&str]) -> Vec<&'static str> {
    let of_kind = |point: &&&str| kinds.contains(&point.split('.').next().unwrap());
    failpoint::ALL.iter().filter(of_kind).copied().collect()
}

const FIRST_START: &[&str] = &["first_start"];
const STORE: &[&str] = &["log", "commit", "checkpoint"];
const RULES: &[&str] = &["send", "deliver", "ack", "settle", "close", "erase"];
const RESTORE: &[&str] = &["restore"];
/// Walked in `cold.rs`.
const COLD: &[&str] = &["cold"];

impl Town {
    /// Starts a server, with checkpoints every few dozen messages, and everybody who lives there.
    fn found() -> Town {
        let mut server = Server::prepared(&[
            ("BLUETICK_LIMITS__SENDS_PER_SECOND", "0"),
            ("BLUETICK_LIMITS__REQUEST_UNITS_PER_SECOND", "0"),
            ("BLUETICK_STORE__CHECKPOINT_BYTES", "40000"),
            // The mover makes checkpoints of its own, at other times than those that are counted here.
            ("BLUETICK_COLD__ENABLED", "false"),
            // A crash is noticed at once; being told to wait would only make the tests long.
            ("BLUETICK_SESSIONS__RECONNECT_SPREAD_SECS", "0"),
        ]);
        server.restart();
        Town::found_in(server)
    }

    /// Everybody is at work until so many more messages are confirmed.
    async fn work_until_told(&mut self, more: usize) {
        let enough = self.told_so_far() + more;
        self.begin_work().await;
        let until = Instant::now() + SOON;
        while self.told_so_far() < enough {
            assert!(Instant::now() < until, "nothing is confirmed any more");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Ends the server as a crash does.
    async fn crash(&mut self) {
        if self.server.is_running() {
            self.server.kill();
        }
        self.end_work().await;
    }

    /// Starts the server again, lets everything come to rest, and compares what everybody has and knows.
    async fn recover_and_check(&mut self, after: &str) {
        self.server.restart();
        self.check(after).await;
    }

    /// The same, with every conversation from its first message on.
    async fn recover_and_check_all(&mut self, after: &str) {
        self.server.restart();
        self.check_all(after).await;
    }

    /// Starts the server again so that it dies at a failpoint, and works until it does.
    async fn die_at(&mut self, failpoint: &str) {
        self.crash().await;
        if self.server.start_armed(failpoint) {
            self.begin_work().await;
        }
        let ended = self.server.ended(SOON * 2).await;
        self.end_work().await;
        let signal = ended.unwrap_or_else(|| panic!("{failpoint} was never passed")).signal();
        assert_eq!(signal, Some(9), "{failpoint}: the process ended otherwise: {ended:?}");
    }
}

async fn die_at_each_of(kinds: &[&str]) {
    let mut town = Town::found();
    town.work_until_told(30).await;
    let points = points(kinds);
    assert!(!points.is_empty());
    for point in &points {
        if let Some(first) = dies_first_at(point) {
            town.die_at(first).await;
        }
        town.die_at(&format!("{point}:{}", nth(point))).await;
        town.recover_and_check(point).await;
    }
    town.crash().await;
    town.recover_and_check_all("all of them").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_every_point_of_the_store_loses_nothing() {
    die_at_each_of(STORE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_every_step_of_the_rules_loses_nothing() {
    die_at_each_of(RULES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_kills_under_load_lose_no_acked_message() {
    let mut random = StdRng::seed_from_u64(10);
    let mut town = Town::found();
    for round in 1..=10 {
        town.work_until_told(random.random_range(5..150)).await;
        // Anywhere in what goes on: a few groups and about one checkpoint fit into this.
        tokio::time::sleep(Duration::from_micros(random.random_range(0..30_000))).await;
        town.crash().await;
        // Sometimes the people go on at once, and everything is looked at later.
        match round % 3 {
            0 => town.recover_and_check(&format!("kill {round}")).await,
            _ => town.server.restart(),
        }
    }
    town.crash().await;
    town.recover_and_check_all("ten kills").await;
}

#[tokio::test]
async fn a_crash_at_every_point_of_a_first_start_leaves_a_directory_that_starts() {
    for point in points(FIRST_START) {
        let mut server = Server::prepared(&[]);
        assert!(!server.start_armed(point), "{point}: died before it listened");
        let signal = server.ended(SOON).await.unwrap().signal();
        assert_eq!(signal, Some(9), "{point}");
        server.restart();
        let mut alice = server.connect("alice", "phone").await;
        assert_eq!(alice.send("bob", point).await.seq, 1, "{point}");
        server.kill();
        server.restart();
        let mut bob = server.open("bob", "phone", None).await;
        assert_eq!(bodies(&bob.caught_up().await.0), [point]);
    }
}

#[tokio::test]
async fn a_crash_of_a_restore_leaves_no_store_or_the_whole_one() {
    let mut server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    for n in 1..=20 {
        alice.send("bob", &format!("{n}")).await;
    }
    let file = server.dir.path().join("backup");
    assert!(server.run(&["backup", file.to_str().unwrap()]).status.success());
    server.kill();
    let whole = std::mem::replace(&mut server, Server::prepared(&[]));

    for point in points(RESTORE) {
        let mut server = Server::prepared(&[]);
        // Keys that were there before, as when a broken store was moved away.
        std::fs::create_dir(server.data()).unwrap();
        std::fs::copy(whole.data().join("jwt.secret"), server.data().join("jwt.secret")).unwrap();
        let restore = |failpoint: Option<&str>| {
            let mut command = Command::new(binary());
            command.arg("restore").arg(&file).arg("--data").arg(server.data());
            command.envs(failpoint.map(|point| ("BLUETICK_FAILPOINT", point)));
            command.output().unwrap().status
        };
        assert_eq!(restore(Some(point)).signal(), Some(9), "{point}");
        // Either nothing is there and it can be restored, or all of it is and a second restore is refused.
        let again = restore(None).success();
        assert_eq!(again, point == "restore.filled", "{point}");
        server.restart();
        let mut bob = server.open("bob", "phone", None).await;
        assert_eq!(bob.caught_up().await.0.len(), 20, "{point}");
    }
}

#[test]
fn every_failpoint_is_walked_and_every_one_in_the_code_is_listed() {
    let walked: BTreeSet<_> =
        [FIRST_START, STORE, RULES, RESTORE, COLD].iter().flat_map(|k| points(k)).collect();
    assert_eq!(walked, failpoint::ALL.iter().copied().collect(), "a test walks each");
    let mut in_code = BTreeSet::new();
    for krate in ["store", "chat", "server"] {
        let sources = Path::new("..").join(krate).join("src");
        collect_hits(&sources, &mut in_code);
    }
    let listed: BTreeSet<_> = failpoint::ALL.iter().map(|point| (*point).to_owned()).collect();
    assert_eq!(in_code, listed, "those in the code are those in the list");
}

fn collect_hits(dir: &Path, hits: &mut BTreeSet<String>) {
    for item in std::fs::read_dir(dir).unwrap() {
        let path = item.unwrap().path();
        if path.is_dir() {
            collect_hits(&path, hits);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            for call in ["failpoint::hit(\"", "failpoint::hit_after(\""] {
                let names = text.split(call).skip(1).filter_map(|rest| rest.split('"').next());
                hits.extend(names.map(str::to_owned));
            }
        }
    }
}

#[test]
fn an_unknown_failpoint_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(binary())
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(dir.path().join("data"))
        .env("BLUETICK_FAILPOINT", "log.nowhere")
        .output()
        .unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{why}");
    assert!(why.contains("BLUETICK_FAILPOINT") && why.contains("log.nowhere"), "{why}");
    assert!(!dir.path().join("data").exists(), "nothing was begun");
}
