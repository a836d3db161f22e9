//! `devices`: PK user_id, SK device; the push registration of each device. A provider's token
//! belongs to one device of one user.

use async_trait::async_trait;
use bluetick_protocol::{DeviceId, PushRegistration, PushTarget, UserId};
use serde::{Deserialize, Serialize};

use crate::Result;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRow {
    pub user_id: UserId,
    pub device: DeviceId,
    pub registration: PushRegistration,
    /// In ms since 1970. Renewing a registration raises it.
    pub registered_at: u64,
}

impl DeviceRow {
    /// The key under which its token is unique. A provider's token is one device's everywhere. The
    /// token of a webhook may be guessed, so it is unique within its user only, and nobody can take
    /// it from another user.
    pub fn token_name(&self) -> String {
        let target = &self.registration.target;
        let provider = target.provider().as_str();
        match target {
            PushTarget::Apns { token, .. } => format!("{provider} {}", token.to_ascii_lowercase()),
            PushTarget::Webhook { token } => format!("{provider} {} {token}", self.user_id),
            PushTarget::Fcm { .. } | PushTarget::Webpush { .. } => format!("{provider} {}", target.address()),
        }
    }
}

#[async_trait]
pub trait Devices: Send + Sync {
    /// Registers a device, replacing its earlier registration. If another device had the token,
    /// that registration is removed, and its owner is returned.
    async fn register(&self, row: DeviceRow) -> Result<Option<(UserId, DeviceId)>>;

    /// Removes a registration; with `registered_at` only if it has not been renewed since. Returns
    /// whether it did.
    async fn unregister(&self, user: &UserId, device: &DeviceId, registered_at: Option<u64>) -> Result<bool>;

    /// A user's registrations, in order of device.
    async fn devices_of(&self, user: &UserId) -> Result<Vec<DeviceRow>>;
}
