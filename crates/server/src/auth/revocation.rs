//! Revocation: looks up the user's `not_before` after a token was verified.
//!
//! A gateway of a cluster asks an app server. For HTTP requests it caches the answer for a few
//! seconds, during which a request of a user who was just revoked may still pass. Sessions, push
//! registrations and requests that were delayed do not use the cache.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use bluetick_chat::{
    App, is_revoked,
    session::{Identity, TokenCheck},
    token_revoked,
};
use bluetick_protocol::{ErrorCode, UserId, WireError};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The deadline of a lookup. A `hello` has five seconds in total.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);
/// The size of the cache. A full cache is cleared.
const CACHE_MAX_USERS: usize = 100_000;

pub struct RevocableTokens {
    tokens: Arc<dyn TokenCheck>,
    app: Arc<dyn App>,
    cache_ttl: Duration,
    cache: Mutex<HashMap<UserId, CachedRevocation>>,
}

struct CachedRevocation {
    not_before: Option<u64>,
    until: Instant,
}

/// Refuses a token that was revoked after it was verified.
pub async fn refuse_if_revoked(app: &dyn App, identity: &Identity) -> Result<(), WireError> {
    refuse_if_older(identity, look_up(app, &identity.user).await?)
}

fn refuse_if_older(identity: &Identity, not_before: Option<u64>) -> Result<(), WireError> {
    match is_revoked(identity.issued_at, not_before) {
        true => Err(token_revoked()),
        false => Ok(()),
    }
}

/// Without an answer the token is refused: nothing that it allows could be done either.
async fn look_up(app: &dyn App, user: &UserId) -> Result<Option<u64>, WireError> {
    let answer = tokio::time::timeout(LOOKUP_TIMEOUT, app.not_before(user.clone())).await;
    answer.unwrap_or_else(|_| {
        let why = "whether the token was revoked cannot be looked up right now";
        Err(WireError::new(ErrorCode::Unavailable, why).retry_after(1_000))
    })
}

impl RevocableTokens {
    /// With a `cache_ttl` of zero every check asks.
    pub fn new(tokens: Arc<dyn TokenCheck>, app: Arc<dyn App>, cache_ttl: Duration) -> RevocableTokens {
        RevocableTokens { tokens, app, cache_ttl, cache: Mutex::default() }
    }

    async fn not_before(&self, user: &UserId) -> Result<Option<u64>, WireError> {
        if self.cache_ttl.is_zero() {
            return look_up(&*self.app, user).await;
        }
        let now = Instant::now();
        if let Some(cached) = self.cache.lock().get(user).filter(|cached| now < cached.until) {
            return Ok(cached.not_before);
        }
        // Counted from before the lookup, because the answer may be as old as that.
        let until = now + self.cache_ttl;
        let not_before = look_up(&*self.app, user).await?;
        let mut cache = self.cache.lock();
        if cache.len() >= CACHE_MAX_USERS {
            cache.retain(|_, cached| now < cached.until);
            if cache.len() >= CACHE_MAX_USERS {
                cache.clear();
            }
        }
        cache.insert(user.clone(), CachedRevocation { not_before, until });
        Ok(not_before)
    }
}

#[async_trait]
impl TokenCheck for RevocableTokens {
    async fn check(&self, token: &str) -> Result<Identity, WireError> {
        let identity = self.tokens.check(token).await?;
        refuse_if_older(&identity, self.not_before(&identity.user).await?)?;
        Ok(identity)
    }
}
