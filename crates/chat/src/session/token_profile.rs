//! Names and avatars that come from tokens. Every accepted token is compared with what this gateway
//! last stored.

use std::time::Duration;

use tokio::time::timeout;

use super::{Identity, SessionHost};
use crate::{App, Gateway};

/// How long storing a profile may take. A profile that was not stored is tried again with the next
/// token.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

impl SessionHost {
    /// Stores the profile of a token, unless this gateway has stored the same before.
    pub async fn take_token_profile(&self, identity: &Identity) {
        take_token_profile(&*self.app, &self.gateway, identity).await;
    }
}

pub(super) async fn take_token_profile(app: &dyn App, gateway: &Gateway, identity: &Identity) {
    let Some(profile) = identity.profile.as_ref() else { return };
    if gateway.knows_token_profile(&identity.user, profile, identity.issued_at) {
        return;
    }
    match timeout(STORE_TIMEOUT, app.token_profile(identity.user.clone(), profile.clone())).await {
        Ok(Ok(())) => gateway.remember_token_profile(&identity.user, profile, identity.issued_at),
        Ok(Err(error)) => tracing::debug!(%error, "the profile of a token could not be stored"),
        Err(_) => tracing::debug!("the profile of a token could not be stored in time"),
    }
}
