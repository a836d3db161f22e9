//! The settings of a cluster: the roles of this process, how it reaches the others, and the
//! backends they share.

#[cfg(feature = "cluster")]
use std::time::Duration;
use std::{net::SocketAddr, path::PathBuf};

#[cfg(feature = "cluster")]
use bluetick_store::dynamo::DynamoConfig;
use serde::{Deserialize, Deserializer};

use super::{Config, Secret};

/// What a process does. One that is started without saying does both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Holds sockets and no data.
    Gateway,
    /// Holds the rules and no sockets.
    App,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterSettings {
    #[serde(default, deserialize_with = "optional_address")]
    pub listen: Option<SocketAddr>,
    pub advertise: Option<String>,
    pub secret: Option<Secret>,
    pub secret_file: Option<PathBuf>,
    pub ca_file: Option<PathBuf>,
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    pub allow_plaintext: bool,
    pub app_servers: Vec<String>,
    pub drain_secs: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    Embedded,
    Dynamodb,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "parsed in every build, used in a cluster"))]
pub struct DynamodbSettings {
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub table_prefix: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "parsed in every build, used in a cluster"))]
pub struct RedisSettings {
    pub urls: Vec<String>,
    pub mode: RedisMode,
    pub master: Option<String>,
    pub prefix: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RedisMode {
    Single,
    Sentinel,
    Cluster,
}

fn optional_address<'de, D: Deserializer<'de>>(d: D) -> Result<Option<SocketAddr>, D::Error> {
    super::values::listen_address(d).map(Some)
}

impl ClusterSettings {
    pub fn has_secret(&self) -> bool {
        self.secret.is_some() || self.secret_file.is_some()
    }

    pub fn has_certificates(&self) -> bool {
        self.ca_file.is_some() || self.cert_file.is_some() || self.key_file.is_some()
    }

    /// How others reach this process, given where it listens in fact.
    #[cfg(feature = "cluster")]
    pub fn advertised(&self, listening: SocketAddr) -> String {
        self.advertise.clone().unwrap_or_else(|| listening.to_string())
    }
}

#[cfg(feature = "cluster")]
impl Config {
    pub fn distributed_store(&self) -> bluetick_store::DistributedConfig {
        let DynamodbSettings { endpoint, region, table_prefix } = self.dynamodb.clone();
        bluetick_store::DistributedConfig {
            dynamo: DynamoConfig { endpoint, region, table_prefix, ..DynamoConfig::default() },
            redis: self.redis_server(),
            idempotency_window: Duration::from_secs(self.store.idempotency_days * 86_400),
            objects: None,
            cold_after: None,
        }
    }

    pub fn redis_server(&self) -> bluetick_store::RedisConfig {
        let RedisSettings { urls, mode, master, prefix } = self.redis.clone();
        let mode = match mode {
            RedisMode::Single => bluetick_store::RedisMode::Single,
            RedisMode::Sentinel => bluetick_store::RedisMode::Sentinel { master: master.unwrap_or_default() },
            RedisMode::Cluster => bluetick_store::RedisMode::Cluster,
        };
        bluetick_store::RedisConfig { urls, mode, prefix, ..bluetick_store::RedisConfig::default() }
    }
}

impl Config {
    pub fn is_gateway(&self) -> bool {
        self.server.roles.contains(&Role::Gateway)
    }

    pub fn is_app(&self) -> bool {
        self.server.roles.contains(&Role::App)
    }

    /// Whether nothing is shared with another process: what is called is always there.
    pub fn is_one_process(&self) -> bool {
        self.is_gateway()
            && self.is_app()
            && self.cluster.listen.is_none()
            && self.store.backend == Backend::Embedded
    }
}
