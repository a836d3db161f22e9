//! Tokens that count until their user is revoked: asks for `not_before` after a token was found
//! good.
//!
//! A gateway of a cluster asks an app server. For HTTP it keeps the answer for a few seconds: for
//! so long a request of a user who was revoked elsewhere may still pass. Sessions, devices that
//! register for notifications and requests that were held up do not depend on that: they ask anew.

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

/// Refuses a token that was good when it was checked, if it was revoked since.
pub async fn refuse_if_revoked(app: &dyn App, identity: &Identity) -> Result<(), WireError> {
    judge(identity, ask(app, &identity.user).await?)
}

fn judge(identity: &Identity, not_before: Option<u64>) -> Result<(), WireError> {
    match is_revoked(identity.issued_at, not_before) {
        true => Err(token_revoked()),
        false => Ok(()),
    }
}

/// Nobody is let in for want of an answer: without one, nothing that a token is for could be done
/// either.
async fn ask(app: &dyn App, user: &UserId) -> Result<Option<u64>, WireError> {
    let answer = tokio::time::timeout(ANSWER_WITHIN, app.not_before(user.clone())).await;
    answer.unwrap_or_else(|_| {
        let why = "whether the token was revoked cannot be looked up right now";
        Err(WireError::new(ErrorCode::Unavailable, why).retry_after(1_000))
    })
}

impl RevocableTokens {
    /// `known_for`: how long the answer about a user is kept; zero to ask every time.
    pub fn new(tokens: Arc<dyn TokenCheck>, app: Arc<dyn App>, known_for: Duration) -> RevocableTokens {
        RevocableTokens { tokens, app, known_for, known: Mutex::default() }
    }

    async fn not_before(&self, user: &UserId) -> Result<Option<u64>, WireError> {
        if self.known_for.is_zero() {
            return ask(&*self.app, user).await;
        }
        let now = Instant::now();
        if let Some(known) = self.known.lock().get(user).filter(|known| now < known.until) {
            return Ok(known.not_before);
        }
        // Counted from before the question: what is answered may be as old as that.
        let until = now + self.known_for;
        let not_before = ask(&*self.app, user).await?;
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
        judge(&identity, self.not_before(&identity.user).await?)?;
        Ok(identity)
    }
}
