//! What a request over HTTP costs its user, by its route.

use axum::{
    extract::Query,
    http::{Method, Uri},
};
use bluetick_chat::units;
use serde::Deserialize;

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

#[derive(Deserialize)]
struct PageSize {
    limit: Option<u32>,
}

/// The page's size, read as the handlers read it: a name or a number may be percent-encoded. A
/// query that cannot be read is refused by the handler, so what it costs matters little.
fn limit(query: Option<&str>) -> Option<u32> {
    let uri = Uri::try_from(format!("/?{}", query?)).ok()?;
    Query::<PageSize>::try_from_uri(&uri).ok()?.limit
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
        let largest = get(history, Some("limit=200"));
        for written in ["limit=%32%30%30", "%6cimit=200", "limit=%2B200", "x=%26&limit=20%30", "&&limit=200"]
        {
            assert_eq!(get(history, Some(written)), largest, "{written}");
        }
        assert_eq!(get(history, Some("x=limit%3D200&ylimit=200")), get(history, None));
        assert!(get("/v1/me", None) < units_of(&Method::PUT, "/v1/me", None));
        assert!(units_of(&Method::DELETE, "/v1/anything/new", None) > 0);
    }
}
