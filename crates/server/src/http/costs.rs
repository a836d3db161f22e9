//! What a request over HTTP costs its user, by its route.

use axum::http::Method;
use bluetick_chat::units;

pub fn units_of(method: &Method, route: &str, query: Option<&str>) -> u32 {
    match (method.as_str(), route) {
        // The send itself is taken from the budget of sends; this is for the request around it.
        ("POST", "/v1/messages") | ("POST", "/v1/conversations/{id}/read") => units::LOOKUP,
        ("GET", "/v1/inbox") => units::inbox(limit(query)),
        ("GET", "/v1/conversations/{id}/messages") => units::history(limit(query)),
        ("PUT", "/v1/me") => units::PROFILE,
        ("POST", "/v1/attachments" | "/v1/attachments/{s3_ref}/complete") => units::UPLOAD,
        ("GET", "/v1/blocks" | "/v1/devices" | "/v1/mutes") => units::LIST,
        ("GET", _) => units::LOOKUP,
        _ => units::CHANGE,
    }
}

/// The page's size, if it is a number; whether it is a good one the handler says.
fn limit(query: Option<&str>) -> Option<u32> {
    query?.split('&').find_map(|pair| pair.strip_prefix("limit=")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_costs_by_its_size() {
        let get = |route: &str, query: Option<&str>| units_of(&Method::GET, route, query);
        let history = "/v1/conversations/{id}/messages";
        assert_eq!(get(history, None), get(history, Some("limit=50")));
        assert!(get(history, Some("before_seq=9&limit=200")) > get(history, None));
        assert_eq!(get(history, Some("limit=999999999")), get(history, Some("limit=200")));
        assert_eq!(get("/v1/inbox", Some("limit=x")), get("/v1/inbox", Some("limit=20")));
        assert!(get("/v1/me", None) < units_of(&Method::PUT, "/v1/me", None));
        assert!(units_of(&Method::DELETE, "/v1/anything/new", None) > 0);
    }
}
