//! The demo, for a server on one's own machine: tokens without a password, and the rows and steps
//! behind the pages.
//!
//! A request must carry the demo key, come from a loopback address, and name this machine as its
//! host. The key is random, new at every start, and part of the address that the server prints
//! (`http://127.0.0.1:8080/#demo=KEY`). A fragment never leaves the browser, so the page sends the
//! key in a header. A request for a token, rows or events without the key is answered as if there
//! were no demo. The page `/tour` is served without a key and holds no data; its presence shows
//! that a demo is on.

use axum::{
    Json,
    extract::{FromRequestParts, State},
    http::{HeaderMap, header, request::Parts},
    response::{IntoResponse as _, Redirect, Response},
};
use bluetick_protocol::{ErrorCode, UserId};
use rand::{TryRng as _, rngs::SysRng};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

use super::{
    AppState,
    assets::{self, StaticPage},
    error::ApiError,
    origin,
    request::{JsonBody, Params},
    unknown_path,
    watch::{self, Whom},
};
use crate::{
    auth::{self, keys_match},
    config::is_loopback_name,
    listen::PeerConnection,
};

const TOKEN_TTL: Duration = Duration::from_secs(12 * 3600);
/// The header with the demo key. A page of another site cannot set it without a preflight, which is
/// refused.
pub const KEY_HEADER: &str = "x-bluetick-demo";
const KEY_BYTES: usize = 16;

/// A demo that is on.
pub struct Demo {
    /// Signs its tokens.
    secret: Arc<str>,
    /// Admits requests to it.
    key: Arc<str>,
}

impl Demo {
    /// With a new key. None if the system gives no randomness: then there is no demo.
    pub fn with_fresh_key(secret: &str) -> Option<Demo> {
        let mut random = [0u8; KEY_BYTES];
        if let Err(error) = SysRng.try_fill_bytes(&mut random) {
            tracing::warn!(%error, "the demo is off: no random key can be made for it");
            return None;
        }
        Some(Demo { secret: secret.into(), key: auth::hex(&random).into() })
    }

    pub fn key(&self) -> &Arc<str> {
        &self.key
    }
}

/// `GET /`: the chat, or, where there is none, the page about the API.
pub async fn root(State(state): State<AppState>, headers: HeaderMap) -> Response {
    match state.config.chat_page_is_on() {
        true => assets::page(StaticPage::Chat, &state.config, &headers),
        false => Redirect::temporary("/v1/docs").into_response(),
    }
}

#[derive(Deserialize)]
pub struct TokenBody {
    user: UserId,
}

#[derive(Serialize)]
pub struct DemoToken {
    token: String,
    user: UserId,
    expires_in_secs: u64,
}

/// `POST /demo/token`: a token for any name.
pub async fn token(
    access: DemoAccess,
    State(state): State<AppState>,
    JsonBody(TokenBody { user }): JsonBody<TokenBody>,
) -> Result<Json<DemoToken>, ApiError> {
    let (secret, auth) = (&access.secret, &state.config.auth);
    let token = auth::mint_for(secret, &user, TOKEN_TTL, auth.audience.as_deref(), auth.issuer.as_deref())
        .map_err(|_| ApiError::new(ErrorCode::Internal, "the server met an error it did not expect"))?;
    Ok(Json(DemoToken { token, user, expires_in_secs: TOKEN_TTL.as_secs() }))
}

/// `GET /demo/events`: the steps of delivery for these users, each with the rows it wrote.
pub async fn events(
    _: DemoAccess,
    State(state): State<AppState>,
    Params(whom): Params<Whom>,
) -> Result<Response, ApiError> {
    watch::events_with_rows(&state, whom)
}

/// `GET /demo/rows`: the rows of these users.
pub async fn rows(
    _: DemoAccess,
    State(state): State<AppState>,
    Params(whom): Params<Whom>,
) -> Result<Response, ApiError> {
    watch::rows(&state, &whom).await
}

/// Proof that a request may use the demo. It could get a token for any name, so it may see any row.
/// Handlers extract it first, before anything else of the request is examined.
pub struct DemoAccess {
    secret: Arc<str>,
}

impl FromRequestParts<AppState> for DemoAccess {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let peer = parts.extensions.get::<PeerConnection>();
        let is_near = peer.is_some_and(|peer| peer.address.ip().to_canonical().is_loopback());
        match &state.demo {
            Some(demo) if is_near && has_key(demo, &parts.headers) && is_asked_locally(&parts.headers) => {
                Ok(DemoAccess { secret: demo.secret.clone() })
            }
            _ => Err(unknown_path().await),
        }
    }
}

fn has_key(demo: &Demo, headers: &HeaderMap) -> bool {
    let given = headers.get(KEY_HEADER).and_then(|key| key.to_str().ok()).unwrap_or_default();
    keys_match(given, &demo.key)
}

/// Refuses requests that name another host (DNS rebinding), or come from another site's page or
/// through a proxy. The key keeps these out while it is secret; this check holds even if it is not.
fn is_asked_locally(headers: &HeaderMap) -> bool {
    const PROXIED: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let named = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let page_is_ours = match headers.get(header::ORIGIN) {
        Some(origin) => origin.to_str().is_ok_and(|origin| origin::is_own(origin, headers)),
        // Without an `Origin`, browsers send `Sec-Fetch-Site`. Browsers too old for that are
        // refused.
        None => match headers.get("sec-fetch-site") {
            Some(site) => site == "same-origin" || site == "none",
            None => !headers
                .get(header::USER_AGENT)
                .is_some_and(|agent| agent.as_bytes().starts_with(b"Mozilla/")),
        },
    };
    is_loopback_name(named) && page_is_ours && !PROXIED.iter().any(|name| headers.contains_key(*name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    fn local(pairs: &[(&'static str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        is_asked_locally(&headers)
    }

    #[test]
    fn only_this_machine_by_its_own_name_is_local() {
        for host in ["localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "[::1]", "LocalHost:1"] {
            assert!(local(&[("host", host)]), "{host}");
        }
        for host in
            ["", "rebind.example:8080", "10.0.0.1", "localhost.evil.example", "127.0.0.1.evil.example:80"]
        {
            assert!(!local(&[("host", host)]), "{host}");
        }
        assert!(local(&[("host", "localhost:8080"), ("origin", "http://localhost:8080")]));
        assert!(!local(&[("host", "localhost:8080"), ("origin", "https://evil.example")]));
        assert!(!local(&[("host", "127.0.0.1:8080"), ("x-forwarded-for", "203.0.113.5")]));
        assert!(local(&[("host", "localhost:1"), ("sec-fetch-site", "same-origin")]));
        assert!(!local(&[("host", "localhost:1"), ("sec-fetch-site", "cross-site")]));
        assert!(!local(&[("host", "localhost:1"), ("user-agent", "Mozilla/5.0 (old)")]));
        assert!(local(&[("host", "localhost:1"), ("user-agent", "curl/8.0")]));
        assert!(!local(&[]));
    }
}
