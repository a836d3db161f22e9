//! Whether a client connects again after its connection ended.

use std::time::Duration;

use bluetick_protocol::{Bye, ErrorCode};

/// What to do after a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reconnect {
    /// Connect again, no sooner than this. Add a random delay that grows with each failure.
    After(Duration),
    /// Stay offline until the user or the application decides otherwise. Two clients that reconnect
    /// after `replaced` would replace each other for ever.
    Never,
}

impl Reconnect {
    /// Decides by the server's `bye`, or its absence. A client that can get a new token reconnects
    /// after its token expired.
    pub fn after(bye: Option<&Bye>, can_refresh_token: bool) -> Reconnect {
        let Some(bye) = bye else {
            return Reconnect::After(Duration::ZERO);
        };
        match bye.code {
            ErrorCode::Replaced
            | ErrorCode::Unauthorized
            | ErrorCode::Erased
            | ErrorCode::TooManySessions => Reconnect::Never,
            ErrorCode::TokenExpired | ErrorCode::TokenRevoked if !can_refresh_token => Reconnect::Never,
            _ => Reconnect::After(Duration::from_millis(bye.reconnect_after_ms)),
        }
    }
}
