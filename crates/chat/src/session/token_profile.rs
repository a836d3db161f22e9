//! Names and avatars that come from tokens: taken whenever a token is shown, stored when they differ.

use std::time::Duration;

use tokio::time::timeout;

use super::{Identity, SessionHost};
use crate::{App, Gateway};

/// Nobody waits longer for a profile to be stored. What was not stored is tried again with the next token.
const WITHIN: Duration = Duration::from_secs(2);

impl SessionHost {
    /// Hands on what a token says of its bearer, unless this gateway has handed on the same before.
    pub async fn take_token_profile(&self, identity: &Identity) {
        take_token_profile(&*self.app, &self.gateway, identity).await;
    }
}

pub(super) async fn take_token_profile(app: &dyn App, gateway: &Gateway, identity: &Identity) {
    let Some(profile) = identity.profile.as_ref() else { return };
    if gateway.knows_token_profile(&identity.user, profile, identity.issued_at) {
        return;
    }
    match timeout(WITHIN, app.token_profile(identity.user.clone(), profile.clone())).await {
        Ok(Ok(())) => gateway.remember_token_profile(&identity.user, profile, identity.issued_at),
        Ok(Err(error)) => tracing::debug!(%error, "the profile of a token could not be stored"),
        Err(_) => tracing::debug!("the profile of a token could not be stored in time"),
    }
}
