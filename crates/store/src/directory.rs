//! The directory: which gateways and app servers there are right now, for nodes that look for one another. A hint
//! like the session store: a node that is listed may be gone, and one that is not listed announces itself again.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::Result;

/// What a node is asked for. A process that is both announces itself as both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeRole {
    Gateway,
    App,
}

impl NodeRole {
    pub fn as_str(self) -> &'static str {
        match self {
            NodeRole::Gateway => "gateway",
            NodeRole::App => "app",
        }
    }
}

#[async_trait]
pub trait Directory: Send + Sync {
    /// Says that a node serves at an address, for the time of the TTL. Said again, it counts from then.
    async fn announce(&self, role: NodeRole, address: &str, ttl: Duration) -> Result<()>;

    /// Takes a node out before its TTL does. Doing it twice is harmless.
    async fn withdraw(&self, role: NodeRole, address: &str) -> Result<()>;

    /// The addresses of the nodes that are live, sorted.
    async fn members(&self, role: NodeRole) -> Result<Vec<String>>;
}
