//! A cluster with people in it: the town with its devices of all kinds, and pairs of real clients.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{deployment::Cluster, harness::*, pairs::ChatPairs, town::Town};

pub struct FaultScenario {
    pub town: Town,
    pairs: ChatPairs,
}

/// Short, so that a test sees what takes a minute in life: an entry of a session expires, a dead peer is noticed.
const SHORT_LIVES: &[(&str, &str)] = &[
    ("BLUETICK_LIMITS__SENDS_PER_SECOND", "0"),
    ("BLUETICK_SESSIONS__HEARTBEAT_SECS", "1"),
    ("BLUETICK_SESSIONS__TTL_SECS", "4"),
    ("BLUETICK_SESSIONS__RECONNECT_SPREAD_SECS", "0"),
];

/// A server for such a test, not running yet.
pub fn prepared() -> Server {
    Server::prepared(SHORT_LIVES)
}

impl FaultScenario {
    /// Starts the server, and everybody begins to write.
    pub async fn begin(mut server: Server, seed: u64) -> FaultScenario {
        // Where processes stand still, ids may be as late as in life.
        server.set("BLUETICK_SESSIONS__OVERLAP_SECS", "60");
        server.restart();
        let pairs = ChatPairs::settle_in(&server, 3, seed);
        let town = Town::found_in(server);
        pairs.work(true);
        town.begin_work().await;
        let scene = FaultScenario { town, pairs };
        scene.goes_on("at the beginning").await;
        scene
    }

    pub fn cluster(&mut self) -> &mut Cluster {
        self.town.server.deployment.cluster()
    }

    pub fn told(&self) -> usize {
        self.town.told_so_far() + self.pairs.told_so_far()
    }

    /// Waits until messages are confirmed again, or still.
    pub async fn goes_on(&self, what: &str) {
        let (enough, until) = (self.told() + 30, Instant::now() + SOON * 3);
        while self.told() < enough {
            assert!(Instant::now() < until, "{what}: nothing is confirmed any more");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Everybody stops writing, and all of it is compared.
    pub async fn end(mut self, after: &str) {
        self.pairs.work(false);
        self.town.end_work().await;
        self.pairs.check_all(&self.town.server, after).await;
        self.town.check_all(after).await;
    }
}
