//! The sections of the configuration file that need nothing but their keys. What each key means is
//! written in `config.default.toml`.

use std::{net::SocketAddr, path::PathBuf};

use bluetick_chat::{ProfileRules, ProfileSource};
use serde::Deserialize;

use super::{Backend, Role, Secret, Switch, values::listen_address};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSettings {
    #[serde(deserialize_with = "listen_address")]
    pub listen: SocketAddr,
    pub data_dir: PathBuf,
    pub roles: Vec<Role>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsSettings {
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthSettings {
    pub hs256_secret: Option<Secret>,
    pub hs256_secret_file: Option<PathBuf>,
    pub public_key_file: Option<PathBuf>,
    pub jwks_url: Option<String>,
    pub jwks_refresh_secs: u64,
    pub audience: Option<String>,
    pub issuer: Option<String>,
    pub leeway_secs: u64,
    pub require_exp: bool,
    pub max_age_secs: u64,
}

impl AuthSettings {
    /// Whether a key is configured. Without one, the server uses the secret in its data directory.
    pub fn is_configured(&self) -> bool {
        self.sources() > 0
    }

    pub(super) fn sources(&self) -> usize {
        usize::from(self.hs256_secret.is_some())
            + usize::from(self.hs256_secret_file.is_some())
            + usize::from(self.public_key_file.is_some())
            + usize::from(self.jwks_url.is_some())
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdminSettings {
    pub key: Option<Secret>,
    pub key_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitSettings {
    pub frame_max_bytes: usize,
    pub body_max_bytes: usize,
    pub sends_per_second: u32,
    pub send_burst: u32,
    pub send_bytes_per_second: u32,
    pub send_burst_bytes: u32,
    pub request_units_per_second: u32,
    pub request_burst_units: u32,
    pub profile_changes_per_minute: u32,
    pub max_sessions: usize,
    pub connections_per_address: u32,
    pub requests_in_flight: usize,
    pub hello_deadline_secs: u64,
    pub allowed_origins: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileSettings {
    pub source: ProfileSourceSetting,
    pub avatar_hosts: Vec<String>,
}

/// Who sets names and avatars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProfileSourceSetting {
    User,
    Token,
    Server,
}

impl ProfileSettings {
    pub fn rules(&self) -> ProfileRules {
        ProfileRules {
            source: match self.source {
                ProfileSourceSetting::User => ProfileSource::User,
                ProfileSourceSetting::Token => ProfileSource::Token,
                ProfileSourceSetting::Server => ProfileSource::Server,
            },
            avatar_hosts: self.avatar_hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionSettings {
    pub heartbeat_secs: u64,
    pub ttl_secs: u64,
    pub window_messages: usize,
    pub ack_timeout_secs: u64,
    pub write_timeout_secs: u64,
    pub min_read_bytes_per_sec: u64,
    pub reconnect_spread_secs: u64,
    pub hand_over_deadline_ms: u64,
    pub hand_over_hedge_ms: u64,
    pub overlap_secs: u64,
    pub resume_max_age_days: u64,
    pub resume_max_conversations: usize,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreSettings {
    pub backend: Backend,
    pub checkpoint_bytes: u64,
    pub cache_bytes: u64,
    pub free_space_floor_bytes: u64,
    pub idempotency_days: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSettings {
    pub format: LogFormat,
    pub filter: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageSettings {
    pub chat: Switch,
    pub admin: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DemoSettings {
    pub enabled: Switch,
}
