//! Tokens that count until their user is revoked: asks for `not_before` after a token was found good.
//!
//! A gateway of a cluster asks an app server, and keeps the answer for a few seconds: for so long an HTTP request of a
//! user who was revoked elsewhere may still pass. Sessions do not depend on that. A revocation ends them, and each asks
//! anew once it has registered.

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

/// How long the answer may take. A `hello` has five seconds in all.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Users of whom an answer is kept; beyond it all are asked for again.
const KNOWN_MAX: usize = 100_000;

pub struct RevocableTokens {
    tokens: Arc<dyn TokenCheck>,
    app: Arc<dyn App>,
    known_for: Duration,
    known: Mutex<HashMap<UserId, Known>>,
}

struct Known {
    not_before: Option<u64>,
    until: Instant,
}

impl RevocableTokens {
    pub fn new(tokens: Arc<dyn TokenCheck>, app: Arc<dyn App>, known_for: Duration) -> RevocableTokens {
        RevocableTokens { tokens, app, known_for, known: Mutex::default() }
    }

    /// Nobody is let in for want of an answer: without one, nothing that a token is for could be done either.
    async fn ask(&self, user: &UserId) -> Result<Option<u64>, WireError> {
        let answer = tokio::time::timeout(ANSWER_WITHIN, self.app.not_before(user.clone())).await;
        answer.unwrap_or_else(|_| {
            let why = "whether the token was revoked cannot be looked up right now";
            Err(WireError::new(ErrorCode::Unavailable, why).retry_after(1_000))
        })
    }

    async fn not_before(&self, user: &UserId) -> Result<Option<u64>, WireError> {
        if self.known_for.is_zero() {
            return self.ask(user).await;
        }
        let now = Instant::now();
        if let Some(known) = self.known.lock().get(user).filter(|known| now < known.until) {
            return Ok(known.not_before);
        }
        // Counted from before the question: what is answered may be as old as that.
        let until = now + self.known_for;
        let not_before = self.ask(user).await?;
        let mut known = self.known.lock();
        if known.len() >= KNOWN_MAX {
            known.retain(|_, known| now < known.until);
            if known.len() >= KNOWN_MAX {
                known.clear();
            }
        }
        known.insert(user.clone(), Known { not_before, until });
        Ok(not_before)
    }
}

#[async_trait]
impl TokenCheck for RevocableTokens {
    async fn check(&self, token: &str) -> Result<Identity, WireError> {
        let identity = self.tokens.check(token).await?;
        match is_revoked(identity.issued_at, self.not_before(&identity.user).await?) {
            true => Err(token_revoked()),
            false => Ok(identity),
        }
    }
}
