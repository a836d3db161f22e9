//! What may be attached to messages, and for how long addresses of it are good.

use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attachments {
    pub enabled: bool,
    pub max_bytes: u64,
    pub types: Vec<String>,
    pub upload_expires_secs: u64,
    pub download_expires_secs: u64,
    pub public_url: Option<String>,
}
