//! What a handler takes from a request, each with an error that says what is wrong.

use std::time::Duration;

use axum::{
    body::HttpBody as _,
    extract::{FromRequest, FromRequestParts, MatchedPath, OptionalFromRequest, Path, Query, Request},
    http::{HeaderMap, StatusCode, header, request::Parts},
};
use bluetick_chat::{Exhausted, rate_limited, session::Identity};
use bluetick_protocol::{ErrorCode, WireError};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::{AppState, costs, error::ApiError};
use crate::auth;

/// A body that trickles in holds memory; the head has its own deadline.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// A request that is held up for longer has its token checked again before anything is done. On a
/// cluster that is a call to an app server, so not every request makes it.
const STALE_AFTER: Duration = Duration::from_millis(100);

/// Whose token came with the request. What the request costs is taken from this user's budget.
pub struct Bearer(pub Identity);

impl FromRequestParts<AppState> for Bearer {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let Some(token) = bearer(&parts.headers) else {
            return Err(ApiError::new(
                ErrorCode::Unauthorized,
                "a token is needed: send it in the header \"Authorization: Bearer …\"",
            ));
        };
        // Counted from before the check: its answer may be as old as that.
        let mut at = Instant::now();
        let identity = state.tokens.check(token).await?;
        let route = parts.extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str);
        let units = costs::units_of(&parts.method, route, parts.uri.query());
        if let Err(ms) = state.sessions.budget.take(&identity.user, units) {
            return Err(rate_limited(Exhausted::Requests, ms).into());
        }
        state.in_flight.enter(parts, &identity.user).await?;
        // It may have waited for its place for seconds.
        if at.elapsed() > STALE_AFTER {
            at = Instant::now();
            auth::refuse_if_revoked(&*state.app, &identity).await?;
        }
        state.sessions.take_token_profile(&identity).await;
        parts.extensions.insert(Checked { identity: identity.clone(), at });
        Ok(Bearer(identity))
    }
}

/// Whom a request's token named, and when that was found out. Left by [`Bearer`] for [`JsonBody`].
#[derive(Clone)]
struct Checked {
    identity: Identity,
    at: Instant,
}

impl Checked {
    /// Refuses a request whose token was revoked while its body arrived. An embedded store is asked
    /// every time: it answers from memory.
    async fn refuse_if_revoked(&self, state: &AppState) -> Result<(), ApiError> {
        if state.config.is_one_process() || self.at.elapsed() > STALE_AFTER {
            auth::refuse_if_revoked(&*state.app, &self.identity).await?;
        }
        Ok(())
    }
}

/// The token in the `Authorization` header.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}

/// A JSON body of at most `limits.frame_max_bytes`.
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<AppState> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, ApiError> {
        if !is_json(request.headers()) {
            let error =
                WireError::new(ErrorCode::BadRequest, "send the body as \"Content-Type: application/json\"");
            return Err(ApiError::with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE, error));
        }
        let most = state.config.limits.frame_max_bytes;
        let checked = request.extensions().get::<Checked>().cloned();
        let body =
            match tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(request.into_body(), most)).await {
                Ok(Ok(body)) => body,
                Ok(Err(error)) if is_too_long(&error) => {
                    return Err(ApiError::new(
                        ErrorCode::FrameTooLarge,
                        format!("the body is longer than {most} bytes"),
                    ));
                }
                Ok(Err(_)) => {
                    return Err(ApiError::new(ErrorCode::BadRequest, "the body did not arrive whole"));
                }
                Err(_) => {
                    let error = WireError::new(ErrorCode::BadRequest, "the body did not arrive in time");
                    return Err(ApiError::with_status(StatusCode::REQUEST_TIMEOUT, error));
                }
            };
        if let Some(checked) = checked {
            checked.refuse_if_revoked(state).await?;
        }
        parse(&body).map(JsonBody).map_err(ApiError::from)
    }
}

/// A body that may be left out; one that is there must be good.
impl<T: DeserializeOwned> OptionalFromRequest<AppState> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> Result<Option<Self>, ApiError> {
        match request.body().is_end_stream() {
            true => Ok(None),
            false => <Self as FromRequest<AppState>>::from_request(request, state).await.map(Some),
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

fn is_too_long(error: &axum::Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if error.to_string() == "length limit exceeded" {
            return true;
        }
        cause = error.source();
    }
    false
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, WireError> {
    serde_json::from_slice(body).map_err(|error| {
        let text = error.to_string();
        if !error.is_data() {
            return WireError::new(ErrorCode::NotJson, format!("the body is not JSON: {text}"));
        }
        let plain = text.rfind(" at line ").map_or(text.as_str(), |at| &text[..at]);
        match plain.strip_prefix("invalid id: ") {
            Some(why) => WireError::new(ErrorCode::InvalidId, why),
            None => WireError::new(ErrorCode::BadRequest, plain),
        }
    })
}

/// The part of the path in braces, as an id.
pub struct PathId<T>(pub T);

impl<T, S> FromRequestParts<S> for PathId<T>
where
    T: std::str::FromStr,
    ApiError: From<T::Err>,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|rejection| ApiError::new(ErrorCode::BadRequest, rejection.body_text()))?;
        Ok(PathId(text.parse()?))
    }
}

/// The query string.
pub struct Params<T>(pub T);

impl<T, S> FromRequestParts<S> for Params<T>
where
    T: DeserializeOwned,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(params)) => Ok(Params(params)),
            Err(rejection) => Err(ApiError::new(ErrorCode::BadRequest, rejection.body_text())),
        }
    }
}
