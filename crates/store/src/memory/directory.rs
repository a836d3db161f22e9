//! The directory in memory: the reference model, and the directory for tests of several nodes in
//! one process.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::{Clock, Directory, NodeRole, Result};

pub struct MemoryDirectory {
    clock: Arc<dyn Clock>,
    /// When each node's entry expires.
    nodes: Mutex<BTreeMap<(NodeRole, String), u64>>,
}

impl MemoryDirectory {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        MemoryDirectory { clock, nodes: Mutex::default() }
    }
}

#[async_trait]
impl Directory for MemoryDirectory {
    async fn announce(&self, role: NodeRole, address: &str, ttl: Duration) -> Result<()> {
        let until = self.clock.now_ms().saturating_add(ttl.as_millis() as u64);
        self.nodes.lock().insert((role, address.to_owned()), until);
        Ok(())
    }

    async fn withdraw(&self, role: NodeRole, address: &str) -> Result<()> {
        self.nodes.lock().remove(&(role, address.to_owned()));
        Ok(())
    }

    async fn members(&self, role: NodeRole) -> Result<Vec<String>> {
        let now = self.clock.now_ms();
        let mut nodes = self.nodes.lock();
        nodes.retain(|_, until| *until > now);
        Ok(nodes.keys().filter(|(listed, _)| *listed == role).map(|(_, address)| address.clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManualClock;

    #[tokio::test]
    async fn a_node_is_listed_until_it_withdraws_or_falls_silent() {
        let clock = Arc::new(ManualClock::new(1_000));
        let directory = MemoryDirectory::new(clock.clone());
        let ttl = Duration::from_millis(100);
        for address in ["b:1", "a:1"] {
            directory.announce(NodeRole::App, address, ttl).await.unwrap();
        }
        directory.announce(NodeRole::Gateway, "g:1", ttl).await.unwrap();
        assert_eq!(directory.members(NodeRole::App).await.unwrap(), ["a:1", "b:1"]);
        clock.advance(99);
        directory.announce(NodeRole::App, "b:1", ttl).await.unwrap();
        clock.advance(1);
        assert_eq!(directory.members(NodeRole::App).await.unwrap(), ["b:1"]);
        assert!(directory.members(NodeRole::Gateway).await.unwrap().is_empty());
        for _ in 0..2 {
            directory.withdraw(NodeRole::App, "b:1").await.unwrap();
        }
        assert!(directory.members(NodeRole::App).await.unwrap().is_empty());
    }
}
