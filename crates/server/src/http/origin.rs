//! Which web pages may use this server: its own, and those that the configuration lists. Programs
//! send no `Origin`.

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use bluetick_protocol::ErrorCode;

use super::{AppState, error::ApiError};

/// Refuses a WebSocket from a page that is neither this server's nor listed. Browsers do not apply
/// CORS to WebSockets, so the server must check.
pub fn check_page(headers: &HeaderMap, allowed: &[String]) -> Result<(), ApiError> {
    let Some(origin) = headers.get(header::ORIGIN) else {
        return Ok(());
    };
    let Ok(origin) = origin.to_str() else {
        return Err(refused());
    };
    if is_listed(origin, allowed) || is_own(origin, headers) { Ok(()) } else { Err(refused()) }
}

fn refused() -> ApiError {
    ApiError::new(
        ErrorCode::OriginRefused,
        "this page's origin is not allowed; its server's operator can add it to limits.allowed_origins",
    )
}

fn is_listed(origin: &str, allowed: &[String]) -> bool {
    allowed.iter().any(|listed| listed == "*" || listed.eq_ignore_ascii_case(origin))
}

/// Whether the page came from the host that it now talks to.
pub fn is_own(origin: &str, headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else {
        return false;
    };
    let Some((scheme, authority)) = origin.split_once("://") else {
        return false;
    };
    let default_port = match scheme {
        "https" => ":443",
        "http" => ":80",
        _ => return false,
    };
    let bare =
        |authority: &str| authority.strip_suffix(default_port).unwrap_or(authority).to_ascii_lowercase();
    bare(authority) == bare(host)
}

/// Lets listed pages read the API's answers (CORS). Pages of the own host need no permission.
pub async fn share_with_listed(state: &AppState, request: Request, next: Next) -> Response {
    let allowed = &state.config.limits.allowed_origins;
    let origin = request.headers().get(header::ORIGIN).cloned();
    let listed = origin
        .filter(|_| request.uri().path().starts_with("/v1/"))
        .filter(|origin| origin.to_str().is_ok_and(|origin| is_listed(origin, allowed)));
    let asks_first = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let Some(origin) = listed else {
        return next.run(request).await;
    };
    let mut response =
        if asks_first { StatusCode::NO_CONTENT.into_response() } else { next.run(request).await };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    let fixed: &[(HeaderName, &'static str)] = match asks_first {
        true => &[
            (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PUT, DELETE"),
            (
                header::ACCESS_CONTROL_ALLOW_HEADERS,
                "authorization, content-type, range, if-range, if-none-match",
            ),
            (header::ACCESS_CONTROL_MAX_AGE, "600"),
        ],
        false => &[(
            header::ACCESS_CONTROL_EXPOSE_HEADERS,
            "retry-after, accept-ranges, content-disposition, content-range, etag",
        )],
    };
    for (name, value) in fixed {
        headers.insert(name.clone(), HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(origin: &str, host: &str, allowed: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
        headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
        let allowed: Vec<String> = allowed.iter().map(|s| s.to_string()).collect();
        check_page(&headers, &allowed).is_ok()
    }

    #[test]
    fn own_and_listed_pages_may_connect() {
        assert!(check_page(&HeaderMap::new(), &[]).is_ok(), "programs send no origin");
        assert!(verdict("http://localhost:8080", "localhost:8080", &[]));
        assert!(verdict("https://chat.example", "chat.example", &[]));
        assert!(verdict("https://chat.example", "Chat.Example:443", &[]));
        assert!(verdict("https://app.example", "chat.example", &["https://app.example"]));
        assert!(verdict("https://any.example", "chat.example", &["*"]));
        for (origin, host) in [
            ("https://evil.example", "chat.example"),
            ("http://localhost:3000", "localhost:8080"),
            ("https://chat.example.evil.example", "chat.example"),
            ("https://chat.example:444", "chat.example"),
            ("null", "chat.example"),
            ("file://", ""),
        ] {
            assert!(!verdict(origin, host, &["https://app.example"]), "{origin} {host}");
        }
    }
}
