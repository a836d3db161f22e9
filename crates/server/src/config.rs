//! The server's settings.
//!
//! Four layers, later ones win: the defaults in the binary (`config.default.toml`), the
//! configuration file, the environment, the command line. The result is checked as a whole before
//! anything starts.

mod attachments;
mod check;
mod cluster;
mod cold;
mod defaults;
mod derived;
mod layers;
mod objects;
mod sections;
#[cfg(test)]
mod tests;
mod values;
mod variables;

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::push::PushSettings;

pub use attachments::AttachmentSettings;
pub use cluster::{Backend, ClusterSettings, DynamodbSettings, RedisMode, RedisSettings, Role};
pub use cold::ColdSettings;
pub use defaults::PrintedSettings;
pub use objects::ObjectSettings;
pub use sections::*;
pub use values::{Secret, Switch, is_loopback_name};

/// An HMAC key shorter than its hash is weaker than the signature it makes (RFC 7518, 3.2).
pub const HS256_MIN_BYTES: usize = 32;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub server: ServerSettings,
    pub tls: TlsSettings,
    pub auth: AuthSettings,
    pub admin: AdminSettings,
    pub limits: LimitSettings,
    pub profiles: ProfileSettings,
    pub sessions: SessionSettings,
    pub cluster: ClusterSettings,
    pub store: StoreSettings,
    #[cfg_attr(
        not(feature = "cluster"),
        expect(dead_code, reason = "parsed in every build, used in a cluster")
    )]
    pub dynamodb: DynamodbSettings,
    pub redis: RedisSettings,
    pub objects: ObjectSettings,
    pub cold: ColdSettings,
    pub attachments: AttachmentSettings,
    pub push: PushSettings,
    pub log: LogSettings,
    pub pages: PageSettings,
    pub demo: DemoSettings,
}

/// Settings from the command line, which win over all others.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    pub data: Option<PathBuf>,
    pub listen: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration file {path}: {why}")]
    Unreadable { path: String, why: String },
    #[error("unknown key {key} in {place}; {known}")]
    UnknownKey { key: String, place: String, known: String },
    #[error("{name} in the environment is not a setting; {hint}")]
    UnknownVariable { name: String, hint: String },
    #[error("{key} in {place}: {why}")]
    BadValue { key: String, place: String, why: String },
    #[error("{0}")]
    Syntax(String),
    #[error("{0}")]
    Contradiction(String),
}

impl Config {
    /// Reads all layers and checks the result. Without a path there is no configuration file.
    pub fn load(path: Option<&Path>, overrides: Overrides) -> Result<Config, ConfigError> {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Config::load_with(path, variables, overrides)
    }

    fn load_with(
        path: Option<&Path>,
        variables: impl Iterator<Item = (String, String)>,
        overrides: Overrides,
    ) -> Result<Config, ConfigError> {
        let config: Config = layers::merge(path, variables, overrides)?;
        config.check()?;
        Ok(config)
    }
}
