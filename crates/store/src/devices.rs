//! `devices`: PK user_id, SK device; where each is notified. A provider's token belongs to one device of one user.

use async_trait::async_trait;
use bluetick_protocol::{DeviceId, PushRegistration, PushTarget, UserId};
use serde::{Deserialize, Serialize};

use crate::Result;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRow {
    pub user_id: UserId,
    pub device: DeviceId,
    pub registration: PushRegistration,
    /// In ms since 1970. A registration that is renewed has a later one.
    pub registered_at: u64,
}

impl DeviceRow {
    /// Names its token among all of them. What a provider gives is one device's; what an operator's own endpoint knows a
    /// device by may be guessed, so nobody takes it from another user.
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
    /// Registers a device, in place of what it had registered before. A token that another device has, of this user or
    /// of another, is taken from it: returns whose it was.
    async fn register(&self, row: DeviceRow) -> Result<Option<(UserId, DeviceId)>>;

    /// Removes a registration; with `registered_at` only if it has not been renewed since. Returns whether it did.
    async fn unregister(&self, user: &UserId, device: &DeviceId, registered_at: Option<u64>) -> Result<bool>;

    /// A user's registrations, in order of device.
    async fn devices_of(&self, user: &UserId) -> Result<Vec<DeviceRow>>;
}
