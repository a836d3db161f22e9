//! What may be attached to messages, and for how long addresses of it are good.

use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachmentSettings {
    pub enabled: bool,
    pub max_bytes: u64,
    pub user_bytes_per_day: u64,
    pub user_bytes_total: u64,
    pub upload_free_space_floor_bytes: u64,
    pub uploads_per_user: usize,
    pub uploads_at_once: usize,
    pub upload_min_bytes_per_second: u64,
    pub upload_rate_window_secs: u64,
    pub types: Vec<String>,
    pub upload_expires_secs: u64,
    pub download_expires_secs: u64,
    pub public_url: Option<String>,
}
