//! The demo: pages to chat and to look on, tokens for them without a password, and the rows behind them. The tokens and
//! rows are for who tries the server on their own machine, and for nobody else.

use axum::{
    Json,
    extract::{Extension, State},
    http::{HeaderMap, header},
    response::{IntoResponse as _, Redirect, Response},
};
use bluetick_protocol::{ErrorCode, UserId};
use serde::{Deserialize, Serialize};
use std::time::Duration;

use super::{
    AppState,
    assets::{self, Page},
    error::ApiError,
    origin,
    request::{JsonBody, Params},
    watch::{self, Whom},
};
use crate::{auth, config::is_loopback_name, listen::Peer};

const TOKEN_TTL: Duration = Duration::from_secs(12 * 3600);

/// `GET /`: the chat, or, where there is none, the page about the API.
pub async fn root(State(state): State<AppState>, headers: HeaderMap) -> Response {
    match state.config.chat_page_is_on() {
        true => assets::page(Page::Chat, &state.config, &headers),
        false => Redirect::temporary("/v1/docs").into_response(),
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
    let secret = at_this_machine(&state, peer, &headers)?;
    let auth = &state.config.auth;
    let token = auth::mint_for(secret, &user, TOKEN_TTL, auth.audience.as_deref(), auth.issuer.as_deref())
        .map_err(|_| ApiError::new(ErrorCode::Internal, "the server met an error it did not expect"))?;
    Ok(Json(Token { token, user, expires_in_secs: TOKEN_TTL.as_secs() }))
}

/// `GET /demo/events`: what the server does with the messages of these users, step by step, in slow motion if wanted.
pub async fn events(
    State(state): State<AppState>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    Params(whom): Params<Whom>,
) -> Result<Response, ApiError> {
    at_this_machine(&state, peer, &headers)?;
    watch::events(&state, &whom, watch::DEMO_WATCHERS)
}

/// `GET /demo/rows`: the rows of these users.
pub async fn rows(
    State(state): State<AppState>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    Params(whom): Params<Whom>,
) -> Result<Response, ApiError> {
    at_this_machine(&state, peer, &headers)?;
    watch::rows(&state, &whom).await
}

/// The demo's secret, for whoever sits at this machine. They could have a token for any name; so they may see any row.
fn at_this_machine<'a>(
    state: &'a AppState,
    peer: Option<Extension<Peer>>,
    headers: &HeaderMap,
) -> Result<&'a str, ApiError> {
    let near = peer.is_some_and(|Extension(peer)| peer.address.ip().to_canonical().is_loopback());
    let secret = state.demo_secret.as_deref().filter(|_| near && is_asked_locally(headers));
    secret.ok_or_else(|| {
        let why = "the demo is only for the machine it runs on, at http://localhost or http://127.0.0.1";
        ApiError::new(ErrorCode::NotFound, why)
    })
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
        // Without an origin, a browser still says whose page asks. One that is too old to say so is not listened to.
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
