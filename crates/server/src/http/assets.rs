//! The pages inside the binary: the chat, the tour and the operator's page. Their sources are in
//! `web/`. A debug build reads the built files from disk, so that a page can change without
//! building the server.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    io::Write as _,
    sync::{LazyLock, Mutex, PoisonError},
};

use axum::{
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use bluetick_protocol::ErrorCode;
use flate2::{Compression, write::GzEncoder};
use rust_embed::Embed;

use super::{AppState, error::ApiError};
use crate::{auth::hex, config::Config};

#[derive(Embed)]
#[folder = "../../web/dist"]
struct Dist;

/// What a page shows besides its own files decides what its policy lets in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum StaticPage {
    Chat,
    Tour,
    Admin,
}

/// `GET /admin`: for anyone; what it shows needs the admin key.
pub async fn admin(State(state): State<AppState>, headers: HeaderMap) -> Response {
    page(StaticPage::Admin, &state.config, &headers)
}

/// `GET /tour`: where there is a demo.
pub async fn tour(State(state): State<AppState>, headers: HeaderMap) -> Response {
    page(StaticPage::Tour, &state.config, &headers)
}

/// `GET /assets/{name}`: scripts, styles and the icon. The client library is served to pages of
/// other origins too, because it is the same for everybody.
pub async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    // A debug build reads from disk, so only plain names are allowed. Pages have their own paths.
    let is_plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b));
    if !is_plain || name.starts_with('.') || name.ends_with(".html") {
        return no_such_part();
    }
    let mut response = file(&name, &headers);
    if name == "client.js" {
        let anyone = HeaderValue::from_static("*");
        response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, anyone);
    }
    response
}

fn no_such_part() -> Response {
    ApiError::new(ErrorCode::NotFound, "no page of this server has such a part").into_response()
}

pub fn page(page: StaticPage, config: &Config, headers: &HeaderMap) -> Response {
    let name = match page {
        StaticPage::Chat => "index.html",
        StaticPage::Tour => "tour.html",
        StaticPage::Admin => "admin.html",
    };
    let mut response = file(name, headers);
    if let Ok(policy) = HeaderValue::try_from(policy(page, config, headers)) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// Allows scripts of this server only, and no script from text. Other hosts: the bucket of
/// attachments and, on the chat page, those of avatars.
fn policy(page: StaticPage, config: &Config, headers: &HeaderMap) -> String {
    // In some browsers 'self' does not cover WebSockets, so the host is named if it is a plain
    // name.
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let sockets = if is_plain(host) { format!(" ws://{host} wss://{host}") } else { String::new() };
    let bucket = bucket(config);
    let sources = match page {
        StaticPage::Admin => "connect-src 'self'; img-src 'self' data:".to_owned(),
        StaticPage::Chat | StaticPage::Tour => {
            let pictures = if page == StaticPage::Chat { " https:" } else { "" };
            format!(
                "connect-src 'self'{sockets}{bucket}; img-src 'self' data: blob:{pictures}{bucket}; \
                 media-src 'self' blob:{bucket}"
            )
        }
    };
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; {sources}; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
}

/// The hosts of uploads and downloads other than this server, each after a space.
fn bucket(config: &Config) -> String {
    let objects = &config.objects;
    let Some(bucket) = objects.s3_bucket.as_deref() else { return String::new() };
    match (objects.s3_endpoint.as_deref().and_then(|endpoint| endpoint.split_once("://")), &objects.s3_region)
    {
        (Some((scheme @ ("http" | "https"), rest)), _) => {
            let host = rest.split('/').next().unwrap_or_default();
            match is_plain(host) {
                // The bucket's name may stand in front of the host's.
                true => format!(" {scheme}://{host} {scheme}://{bucket}.{host}"),
                false => String::new(),
            }
        }
        (_, Some(region)) => {
            format!(" https://s3.{region}.amazonaws.com https://{bucket}.s3.{region}.amazonaws.com")
        }
        // The region comes from the environment of the process.
        (_, None) => " https://*.amazonaws.com".to_owned(),
    }
}

fn is_plain(host: &str) -> bool {
    !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:[]_".contains(&b))
}

fn file(name: &str, headers: &HeaderMap) -> Response {
    let Some(found) = Dist::get(name) else { return no_such_part() };
    let hash = found.metadata.sha256_hash();
    // Weak: the same for what is packed and what is not.
    let tag = format!("\"{}\"", hex(&hash[..16]));
    let known = listed(headers, header::IF_NONE_MATCH);
    let is_known = known.iter().any(|one| *one == "*" || one.trim_start_matches("W/") == tag);
    let packs = listed(headers, header::ACCEPT_ENCODING).iter().any(|one| takes_gzip(one));
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false if packs => packed(hash, &found.data).into_response(),
        false => match found.data {
            Cow::Borrowed(data) => Bytes::from_static(data).into_response(),
            Cow::Owned(data) => Bytes::from(data).into_response(),
        },
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind(name)));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    // Kept, and asked about each time: a new server is a new page at once.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if packs && !is_known {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if let Ok(tag) = HeaderValue::try_from(format!("W/{tag}")) {
        headers.insert(header::ETAG, tag);
    }
    response
}

/// The items of a header that is a list, over all of its lines.
fn listed(headers: &HeaderMap, name: HeaderName) -> Vec<&str> {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).collect()
}

/// Whether an item of `Accept-Encoding` asks for gzip: not with a weight of zero.
fn takes_gzip(item: &str) -> bool {
    let mut parts = item.split(';').map(str::trim);
    let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
    let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(Ok(1.0), str::parse::<f32>);
    named && weight.is_ok_and(|weight| weight > 0.0)
}

fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
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
        let chat = |config: &Config| policy(StaticPage::Chat, config, &at("chat.example:8080"));
        let own = chat(&config(None, None));
        assert!(own.contains(&format!("{here}; ")) && !own.contains("unsafe"), "{own}");
        let other = chat(&config(Some("b"), Some("https://s3.example.org")));
        assert!(
            other.contains(&format!("{here} https://s3.example.org https://b.s3.example.org; ")),
            "{other}"
        );
        let mut amazon = config(Some("b"), None);
        assert!(chat(&amazon).contains(&format!("{here} https://*.amazonaws.com; ")));
        amazon.objects.s3_region = Some("eu-west-1".into());
        assert!(chat(&amazon).contains(" https://b.s3.eu-west-1.amazonaws.com; img-src"));
        let forged = policy(StaticPage::Chat, &config(None, None), &at("evil; script-src *"));
        assert!(forged.contains("connect-src 'self'; ") && !forged.contains("evil"), "{forged}");
        // Who has the operator's key has nothing to do with other hosts.
        let admin = policy(StaticPage::Admin, &amazon, &at("chat.example:8080"));
        assert!(admin.contains("connect-src 'self'; img-src 'self' data:; base-uri"), "{admin}");
        assert!(!policy(StaticPage::Tour, &config(None, None), &at("localhost")).contains("https:"));
    }

    #[test]
    fn gzip_is_for_who_asks_for_it() {
        for asked in ["gzip", "GZIP", "gzip;q=0.5", "gzip; q=1"] {
            assert!(takes_gzip(asked), "{asked}");
        }
        for not in ["", "br", "gzip;q=0", "gzip; q=0.0", "gzip;q=x", "xgzip"] {
            assert!(!takes_gzip(not), "{not}");
        }
        let ask = |name: HeaderName, value: &str| {
            let headers = HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())]);
            file("client.js", &headers)
        };
        let packed = ask(header::ACCEPT_ENCODING, "br, gzip");
        assert_eq!(packed.headers()[header::CONTENT_ENCODING], "gzip");
        let plain = ask(header::ACCEPT_ENCODING, "br");
        assert!(!plain.headers().contains_key(header::CONTENT_ENCODING));
        assert_eq!(plain.headers()[header::VARY], "accept-encoding");
        let tag = plain.headers()[header::ETAG].to_str().unwrap().to_owned();
        for known in [tag.clone(), tag.replace("W/", ""), format!("\"x\", {tag}"), "*".to_owned()] {
            assert_eq!(ask(header::IF_NONE_MATCH, &known).status(), StatusCode::NOT_MODIFIED, "{known}");
        }
        assert_eq!(ask(header::IF_NONE_MATCH, "\"x\"").status(), StatusCode::OK);
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
