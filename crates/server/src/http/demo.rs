//! The demo: a page to chat on, and tokens for it without a password. Both exist for who tries the server on their
//! own machine, and the tokens for nobody else.

use axum::{
    Json,
    extract::{Extension, State},
    http::{HeaderMap, header},
    response::{IntoResponse as _, Redirect, Response},
};
use bluetick_protocol::{ErrorCode, UserId};
use serde::{Deserialize, Serialize};
use std::time::Duration;

use super::{AppState, error::ApiError, origin, page, request::JsonBody};
use crate::{auth, config::is_loopback_name, listen::Peer};

pub const DEMO_PAGE: &str = include_str!("../demo.html");

const TOKEN_TTL: Duration = Duration::from_secs(12 * 3600);

/// `GET /`: the demo page, or, where there is none, the page about the API.
pub async fn root(State(state): State<AppState>, headers: HeaderMap) -> Response {
    match state.demo_secret {
        Some(_) => page::live(DEMO_PAGE, &headers),
        None => Redirect::temporary("/v1/docs").into_response(),
    }
}

#[derive(Deserialize)]
pub struct TokenBody {
    user: UserId,
}

#[derive(Serialize)]
pub struct Token {
    token: String,
    user: UserId,
    expires_in_secs: u64,
}

/// `POST /demo/token`: a token for any name, to whoever sits at this machine.
pub async fn token(
    State(state): State<AppState>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    JsonBody(TokenBody { user }): JsonBody<TokenBody>,
) -> Result<Json<Token>, ApiError> {
    let near = peer.is_some_and(|Extension(peer)| peer.address.ip().to_canonical().is_loopback());
    let Some(secret) = state.demo_secret.as_ref().filter(|_| near && is_asked_locally(&headers)) else {
        return Err(ApiError::new(
            ErrorCode::NotFound,
            "the demo gives tokens only on the machine it runs on, at http://localhost or http://127.0.0.1",
        ));
    };
    let auth = &state.config.auth;
    let token = auth::mint_for(secret, &user, TOKEN_TTL, auth.audience.as_deref(), auth.issuer.as_deref())
        .map_err(|_| ApiError::new(ErrorCode::Internal, "the server met an error it did not expect"))?;
    Ok(Json(Token { token, user, expires_in_secs: TOKEN_TTL.as_secs() }))
}

/// A loopback peer is not enough: a name of somebody else's may resolve to this machine (DNS rebinding), another
/// site's page may post here, and a proxy on this machine may be asking for the world.
fn is_asked_locally(headers: &HeaderMap) -> bool {
    const PROXIED: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let named = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let page_is_ours = match headers.get(header::ORIGIN) {
        Some(origin) => origin.to_str().is_ok_and(|origin| origin::is_own(origin, headers)),
        None => true,
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
        assert!(!local(&[]));
    }
}
