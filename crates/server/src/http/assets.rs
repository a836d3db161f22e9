//! The pages that are built into the binary: the chat, the tour and the operator's page. Their sources are in `web/`; a
//! debug build reads what was built of them from the disk, so that a page is changed without building the server.

use std::{
    collections::BTreeMap,
    io::Write as _,
    sync::{LazyLock, Mutex, PoisonError},
};

use axum::{
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use bluetick_protocol::ErrorCode;
use flate2::{Compression, write::GzEncoder};
use rust_embed::Embed;

use super::{AppState, error::ApiError};
use crate::config::Config;

#[derive(Embed)]
#[folder = "../../web/dist"]
struct Dist;

/// `GET /admin`: for anyone; what it shows needs the admin key.
pub async fn admin(State(state): State<AppState>, headers: HeaderMap) -> Response {
    page("admin.html", &state.config, &headers)
}

/// `GET /tour`: where there is a demo.
pub async fn tour(State(state): State<AppState>, headers: HeaderMap) -> Response {
    page("tour.html", &state.config, &headers)
}

/// `GET /assets/{name}`: scripts, styles and the icon. The client library is there too, for pages of other origins as
/// well: it is the same for everybody.
pub async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    let mut response = file(&name, &headers);
    if name == "client.js" {
        let anyone = HeaderValue::from_static("*");
        response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, anyone);
    }
    response
}

/// A page with scripts that talk to this server, and to the bucket that attachments are in.
pub fn page(name: &str, config: &Config, headers: &HeaderMap) -> Response {
    let mut response = file(name, headers);
    if let Ok(policy) = HeaderValue::try_from(policy(config, headers)) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// Lets run what this server serves, and nothing that found its way into a page. No script can be made from text.
fn policy(config: &Config, headers: &HeaderMap) -> String {
    // Not every browser takes 'self' to cover WebSockets, so the host is named, if it is a plain name.
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let sockets = if is_plain(host) { format!(" ws://{host} wss://{host}") } else { String::new() };
    let bucket = bucket(config);
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'{sockets}{bucket}; img-src 'self' \
         data: blob: https:{bucket}; media-src 'self' blob:{bucket}; manifest-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
}

/// Where uploads and downloads of attachments go if not to this server, each with a space before it.
fn bucket(config: &Config) -> String {
    if config.objects.s3_bucket.is_none() {
        return String::new();
    }
    match config.objects.s3_endpoint.as_deref().and_then(|endpoint| endpoint.split_once("://")) {
        Some((scheme @ ("http" | "https"), rest)) => {
            let host = rest.split('/').next().unwrap_or_default();
            match is_plain(host) {
                // The bucket's name may stand in front of the host's.
                true => format!(" {scheme}://{host} {scheme}://*.{host}"),
                false => String::new(),
            }
        }
        _ => " https://*.amazonaws.com".to_owned(),
    }
}

fn is_plain(host: &str) -> bool {
    !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:[]_".contains(&b))
}

fn file(name: &str, headers: &HeaderMap) -> Response {
    let Some(found) = Dist::get(name) else {
        return ApiError::new(ErrorCode::NotFound, "no page of this server has such a part").into_response();
    };
    let hash = found.metadata.sha256_hash();
    let tag = hash[..16].iter().fold(String::from("\""), |tag, byte| tag + &format!("{byte:02x}")) + "\"";
    let known = headers.get(header::IF_NONE_MATCH).and_then(|given| given.to_str().ok());
    let is_known = known.is_some_and(|given| given.split(',').any(|one| one.trim() == tag));
    let packs = headers.get(header::ACCEPT_ENCODING).and_then(|given| given.to_str().ok());
    let packs = packs.is_some_and(|given| {
        given.split(',').any(|one| matches!(one.trim().split(';').next(), Some("gzip")))
    });
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false if packs => Bytes::clone(&packed(hash, &found.data)).into_response(),
        false => Bytes::from(found.data.into_owned()).into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind(name)));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    // Kept, and asked about each time: a new server is a new page at once.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if packs && !is_known {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if let Ok(tag) = HeaderValue::try_from(tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("webmanifest") => "application/manifest+json",
        _ => "application/octet-stream",
    }
}

/// Packed once for each content; there are as many as there are files.
fn packed(hash: [u8; 32], data: &[u8]) -> Bytes {
    static PACKED: LazyLock<Mutex<BTreeMap<[u8; 32], Bytes>>> = LazyLock::new(Mutex::default);
    let mut packed = PACKED.lock().unwrap_or_else(PoisonError::into_inner);
    let pack = || {
        let mut gzip = GzEncoder::new(Vec::with_capacity(data.len() / 3), Compression::best());
        // Writing to memory does not fail.
        let _ = gzip.write_all(data);
        Bytes::from(gzip.finish().unwrap_or_default())
    };
    packed.entry(hash).or_insert_with(pack).clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;

    fn config(bucket: Option<&str>, endpoint: Option<&str>) -> Config {
        let mut config = Config::load(None, Overrides::default()).unwrap();
        config.objects.s3_bucket = bucket.map(str::to_owned);
        config.objects.s3_endpoint = endpoint.map(str::to_owned);
        config
    }

    #[test]
    fn the_policy_names_this_host_and_the_bucket_and_nobody_else() {
        let at = |host| HeaderMap::from_iter([(header::HOST, HeaderValue::from_static(host))]);
        let here = "connect-src 'self' ws://chat.example:8080 wss://chat.example:8080";
        let own = policy(&config(None, None), &at("chat.example:8080"));
        assert!(own.contains(&format!("{here}; ")) && !own.contains("unsafe"), "{own}");
        let other = policy(&config(Some("b"), Some("https://s3.example.org")), &at("chat.example:8080"));
        assert!(
            other.contains(&format!("{here} https://s3.example.org https://*.s3.example.org; ")),
            "{other}"
        );
        let amazon = policy(&config(Some("b"), None), &at("chat.example:8080"));
        assert!(amazon.contains(&format!("{here} https://*.amazonaws.com; ")), "{amazon}");
        let forged = policy(&config(None, None), &at("evil; script-src *"));
        assert!(forged.contains("connect-src 'self'; ") && !forged.contains("evil"), "{forged}");
    }

    #[test]
    fn every_part_that_a_page_names_is_there() {
        for page in ["index.html", "tour.html", "admin.html"] {
            let html = Dist::get(page).unwrap_or_else(|| panic!("{page} is not built: npm run build -w web"));
            let html = std::str::from_utf8(&html.data).unwrap().to_owned();
            for part in html.split("/assets/").skip(1) {
                let name = part.split(['"', '\'', '>', ' ']).next().unwrap();
                assert!(Dist::get(name).is_some(), "{page} names {name}");
            }
            for outside in ["http://", "https://", "style=", "onclick", "javascript:"] {
                assert!(!html.contains(outside), "{page}: {outside}");
            }
        }
        assert!(Dist::get("client.js").is_some());
    }
}
