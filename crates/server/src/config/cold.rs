//! When messages leave the hot rows for objects.

use std::time::Duration;

use bluetick_chat::MoverConfig;
use serde::Deserialize;

use super::Config;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColdSettings {
    pub enabled: bool,
    pub after_days: u64,
    pub every_secs: u64,
    pub messages_per_second: u32,
    pub cache_bytes: u64,
}

impl Config {
    pub fn mover(&self) -> MoverConfig {
        MoverConfig {
            after: Duration::from_secs(self.cold.after_days * 86_400),
            idempotency_window: Duration::from_secs(self.store.idempotency_days * 86_400),
            every: Duration::from_secs(self.cold.every_secs),
            messages_per_second: self.cold.messages_per_second,
            ..MoverConfig::default()
        }
    }
}
