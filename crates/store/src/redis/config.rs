//! The configuration: where Redis is, and the deadline of a call.

use std::{fmt, time::Duration};

use ::redis::IntoConnectionInfo;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisMode {
    /// One server, or an address that always leads to the master.
    Single,
    /// The addresses are those of Sentinels; they name the master.
    Sentinel { master: String },
    /// The addresses are those of some of the cluster's nodes.
    Cluster,
}

#[derive(Clone)]
pub struct RedisConfig {
    /// `redis://user:password@host:port/db`, or `rediss://` for TLS.
    pub urls: Vec<String>,
    pub mode: RedisMode,
    /// The prefix of every key, so that several deployments can share a server.
    pub prefix: String,
    /// The longest that a call may take.
    pub deadline: Duration,
}

impl RedisConfig {
    /// One server, with the usual prefix and deadline.
    pub fn new(url: impl Into<String>) -> Self {
        RedisConfig { urls: vec![url.into()], ..RedisConfig::default() }
    }

    /// The addresses without names and passwords.
    pub(super) fn addresses(&self) -> String {
        let address = |url: &String| match url.as_str().into_connection_info() {
            Ok(info) => info.addr().to_string(),
            Err(_) => "(not an address)".to_owned(),
        };
        self.urls.iter().map(address).collect::<Vec<_>>().join(", ")
    }
}

impl Default for RedisConfig {
    fn default() -> Self {
        RedisConfig {
            urls: Vec::new(),
            mode: RedisMode::Single,
            prefix: "bluetick:".to_owned(),
            deadline: Duration::from_millis(500),
        }
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("addresses", &self.addresses())
            .field("mode", &self.mode)
            .field("prefix", &self.prefix)
            .field("deadline", &self.deadline)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Redis;

    #[test]
    fn no_password_is_shown() {
        let mut config = RedisConfig::new("redis://bluetick:hunter2@redis.example:6380/3");
        assert!(!format!("{config:?}").contains("hunter2"));
        let redis = Redis::new(config.clone()).unwrap();
        assert_eq!(redis.describe(), "redis.example:6380");
        config.mode = RedisMode::Sentinel { master: "main".into() };
        assert_eq!(Redis::new(config.clone()).unwrap().describe(), "main by Sentinels redis.example:6380");
        config.urls.push("hunter2".into());
        assert!(!format!("{config:?}").contains("hunter2"));
        assert!(!Redis::new(config).unwrap_err().to_string().contains("hunter2"));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let refused = |change: fn(&mut RedisConfig)| {
            let mut config = RedisConfig::new("redis://127.0.0.1:1");
            change(&mut config);
            Redis::new(config).is_err()
        };
        assert!(!refused(|_| ()));
        assert!(refused(|config| config.prefix = "a{b}".into()));
        assert!(refused(|config| config.urls.clear()));
        assert!(refused(|config| config.urls.push("redis://127.0.0.1:2".into())));
        assert!(refused(|config| config.urls[0] = "http://127.0.0.1".into()));
    }
}
