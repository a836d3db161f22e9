//! Revocation of a user's tokens.
//!
//! A revocation is one number per user, `not_before`, in seconds like a token's `iat`: tokens
//! issued before it are refused. It is set to the second *after* the one in which the revocation
//! happens, so that no token that existed at that moment passes, nor one issued later in the same
//! second.
//!
//! `not_before` is written before the user's sessions are looked up and ended, and a session reads
//! it after it has registered. A session that connects at the same time therefore is found by the
//! revocation or reads it.

use std::time::Duration;

use async_trait::async_trait;
use bluetick_protocol::{ErrorCode, UserId, WireError};
use bluetick_store::SessionEntry;
use futures_util::future::join_all;

use crate::{Admin, AppResult, ChatService, HandOver, RevocationApi, SessionApi, SessionEvent, wire};

/// How long a revocation waits for one gateway to end a session.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Whether a token issued at this time is revoked. A token without an issue time is revoked by any
/// revocation.
pub fn is_revoked(issued_at: Option<u64>, not_before: Option<u64>) -> bool {
    not_before.is_some_and(|not_before| issued_at.is_none_or(|issued_at| issued_at < not_before))
}

pub fn token_revoked() -> WireError {
    WireError::new(ErrorCode::TokenRevoked, "the token was revoked; come back with one that was issued since")
}

#[async_trait]
impl RevocationApi for ChatService {
    async fn not_before(&self, user: UserId) -> AppResult<Option<u64>> {
        self.store.users.not_before(&user).await.map_err(wire)
    }
}

#[async_trait]
impl SessionApi for ChatService {
    async fn end_sessions(&self, sessions: Vec<SessionEntry>, why: WireError) {
        self.fanout.hand_over_all(&sessions, &[], |_| SessionEvent::Close(why.clone())).await;
    }
}

impl Admin {
    /// Refuses every existing token of the user. Returns the new `not_before`.
    pub(crate) async fn lock_out(&self, user: &UserId) -> AppResult<u64> {
        let not_before = self.clock.now_ms() / 1000 + 1;
        self.store.users.raise_not_before(user, not_before).await.map_err(wire)?;
        // An earlier revocation on a clock that was ahead may have set it higher.
        let kept = self.store.users.not_before(user).await.map_err(wire)?;
        Ok(kept.unwrap_or(not_before))
    }

    /// Tells the user's sessions to end, on every gateway. Returns how many accepted. The entries
    /// of the others are removed from the session store: such a session finds its entry gone at the
    /// next heartbeat, registers again, and then reads `not_before`.
    pub(crate) async fn end_sessions_of(&self, user: &UserId, why: WireError) -> AppResult<usize> {
        let (sessions, why) = (self.sessions(user).await?, &why);
        let told = join_all(sessions.iter().map(|session| async move {
            let handed = self.gateways.hand_over(session, SessionEvent::Close(why.clone()));
            let taken = tokio::time::timeout(END_WITHIN, handed).await == Ok(HandOver::Taken);
            if !taken {
                self.store.sessions.unregister(user, session.session_id).await.map_err(wire)?;
            }
            Ok::<bool, WireError>(taken)
        }));
        let told: Vec<bool> = told.await.into_iter().collect::<AppResult<_>>()?;
        Ok(told.into_iter().filter(|taken| *taken).count())
    }

    /// Removes the push registrations of the user's devices: a locked-out device must show nothing.
    pub(crate) async fn forget_push_devices(&self, user: &UserId) -> AppResult<usize> {
        let devices = self.devices(user).await?;
        for row in &devices {
            self.store.devices.unregister(user, &row.device, None).await.map_err(wire)?;
        }
        Ok(devices.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_counts_from_not_before_on() {
        assert!(!is_revoked(None, None));
        assert!(!is_revoked(Some(0), None));
        assert!(is_revoked(None, Some(7)), "a token that does not say when it was issued");
        assert!(is_revoked(Some(6), Some(7)));
        assert!(!is_revoked(Some(7), Some(7)));
    }
}
