//! The directory: which gateways and app servers are up, so that nodes find each other. A hint,
//! like the session store: a listed node may be gone, and an unlisted one announces itself again.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::Result;

/// The role that a node serves in. A process with both roles announces itself twice.
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
    /// Lists a node for the time of the TTL. A repeated call extends it.
    async fn announce(&self, role: NodeRole, address: &str, ttl: Duration) -> Result<()>;

    /// Removes a node before its TTL ends. Idempotent.
    async fn withdraw(&self, role: NodeRole, address: &str) -> Result<()>;

    /// The addresses of the nodes that are live, sorted.
    async fn members(&self, role: NodeRole) -> Result<Vec<String>>;
}
