//! One server behind nginx and behind HAProxy, with the files of `deploy/` and TLS: everything that people use works through
//! them, and nothing else is reached.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::Arc,
};

use ring::digest;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};

use crate::{
    harness::*,
    http::client,
    reverse_proxy::{ReverseProxy, haproxy_with_tls, nginx_with_tls},
};

type StartProxy = fn(&Path, &str, &str) -> ReverseProxy;

/// A server, and the way to it through a proxy.
struct Site {
    server: Server,
    _proxy: ReverseProxy,
    /// `https://localhost:PORT`.
    url: String,
    client: reqwest::Client,
    /// The proxy's own, and what its certificate is checked with.
    address: SocketAddr,
    trusted: rustls::RootCertStore,
}

impl Site {
    fn start(proxy: StartProxy) -> Site {
        let server = Server::with(&[("BLUETICK_LIMITS__CONNECTIONS_PER_ADDRESS", "0")]);
        let dir = server.dir.path().join("proxy");
        std::fs::create_dir(&dir).unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        for (name, text) in
            [("tls.crt", cert.clone()), ("tls.key", key.clone()), ("tls.pem", format!("{cert}{key}"))]
        {
            std::fs::write(dir.join(name), text).unwrap();
        }
        let port = quiet_port();
        let proxy = proxy(&dir, &format!("127.0.0.1:{port}"), &server.address);
        let _ = rustls::crypto::ring::default_provider().install_default();
        let trusted = reqwest::Certificate::from_pem(cert.as_bytes()).unwrap();
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([trusted]);
        let address = ([127, 0, 0, 1], port).into();
        let client = client.resolve("localhost", address).build().unwrap();
        let mut trusted = rustls::RootCertStore::empty();
        trusted.add(made.cert.der().clone()).unwrap();
        Site { server, _proxy: proxy, url: format!("https://localhost:{port}"), client, address, trusted }
    }

    async fn call(&self, token: &str, request: reqwest::RequestBuilder) -> Value {
        let answer = request.bearer_auth(token).send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Status and body at a path that is sent as it stands: an HTTP client would normalise it.
    fn raw(&self, path: &str, authorization: &str) -> (u16, String) {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_root_certificates(self.trusted.clone()).with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        let mut stream = rustls::StreamOwned::new(connection, socket);
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {authorization}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // Not every proxy says goodbye before it closes; what came is what counts.
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{path}: {answer:?}"));
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    async fn status(&self, path: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = self.client.get(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap().status().as_u16()
    }
}

/// A file of several megabytes goes up and down at the addresses that the server gives, which begin as the client's own.
async fn attachments_pass(proxy: StartProxy) {
    let site = Site::start(proxy);
    let (alice, bob) = (site.server.token("alice"), site.server.token("bob"));
    let bytes: Vec<u8> = (0..5_000_000u32).map(|n| (n % 251) as u8).collect();
    let sha256: String =
        digest::digest(&digest::SHA256, &bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let about = json!({"name": "film.mp4", "mime": "video/mp4", "bytes": bytes.len(), "sha256": sha256});
    let announce = site.client.post(format!("{}/v1/attachments", site.url)).json(&about);
    let upload = site.call(&alice, announce).await;
    let address = upload["upload"]["url"].as_str().unwrap();
    assert!(address.starts_with(&format!("{}/v1/blobs/", site.url)), "{address}");
    let put = site.client.put(address).body(bytes.clone()).send().await.unwrap();
    assert_eq!(put.status().as_u16(), 201, "{}", put.text().await.unwrap());
    let message =
        json!({"client_msg_id": fresh_id(), "to": "bob", "attachment": {"s3_ref": upload["s3_ref"]}});
    site.call(&alice, site.client.post(format!("{}/v1/messages", site.url)).json(&message)).await;
    let s3_ref = upload["s3_ref"].as_str().unwrap();
    let asked = format!("{}/v1/conversations/alice~bob/attachments/{s3_ref}", site.url);
    let link = site.call(&bob, site.client.get(asked)).await;
    let address = link["url"].as_str().unwrap();
    assert!(address.starts_with(&format!("{}/v1/blobs/", site.url)), "{address}");
    let got = site.client.get(address).send().await.unwrap();
    assert_eq!(got.status().as_u16(), 200);
    assert!(got.bytes().await.unwrap() == bytes, "the bytes are the same");
}

/// What is for people is passed on, WebSockets included; what is for operators, and the demo, is not.
async fn only_what_is_for_people_passes(proxy: StartProxy) {
    let site = Site::start(proxy);
    let upgrade = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA=="),
    ];
    assert_eq!(site.status("/v1/ws", &upgrade).await, 101);
    for path in ["/", "/assets/chat.js", "/v1/docs", "/v1/openapi.json"] {
        assert_eq!(site.status(path, &[]).await, 200, "{path}");
    }
    let admin_key = std::fs::read_to_string(site.server.data().join("admin.key")).unwrap();
    let bearer = format!("Bearer {}", admin_key.trim());
    for path in ["/admin", "/admin/v1/info", "/metrics", "/healthz", "/readyz"] {
        assert_eq!(site.status(path, &[("authorization", &bearer)]).await, 404, "{path}");
    }
    // A proxy may decide on another path than it passes on. What leads above the root it may also
    // answer with 400.
    for path in [
        "/v1/../metrics",
        "/v1/./../metrics",
        "/v1//../../metrics",
        "/v1/%2e%2e/metrics",
        "/v1/..%2fmetrics",
        "/v1/..%2Fadmin%2Fv1%2Finfo",
        "/assets/..%2f..%2fmetrics",
        "//metrics",
        "/metrics/..%2fv1%2fdocs",
        "/admin/v1/trace/..%2f..%2f..%2fv1%2fx",
        "/admin/v1/users/..%2F..%2F..%2F..%2Fv1%2Fdocs/sessions",
        "/admin%2fv1%2finfo",
        "/demo/../v1/docs",
    ] {
        let (status, body) = site.raw(path, &bearer);
        assert!(matches!(status, 400 | 404), "{path}: {status} {body}");
        // The server's own words would say that it was asked.
        let reached =
            !path.starts_with("/v1/") && !path.starts_with("/assets/") && body.contains("\"error\"");
        assert!(!reached, "{path}: {body}");
    }
    let (status, body) = site.raw("/v1/openapi.json?x=/../metrics", &bearer);
    assert_eq!(status, 200, "a path by hand can pass: {body}");
    assert_eq!(site.raw("/?x=1", &bearer).0, 200);
    // Not even with the key, which somebody may have pasted into a chat.
    let key = site.server.demo_key();
    for path in ["/tour", "/demo/rows?users=alice", "/demo/events?users=alice"] {
        for host in ["localhost", "127.0.0.1:8080"] {
            let headers = [("host", host), ("x-bluetick-demo", key.as_str())];
            assert_eq!(site.status(path, &headers).await, 404, "{path} {host}");
        }
    }
    let token = site.client.post(format!("{}/demo/token", site.url)).json(&json!({"user": "alice"}));
    let token = token.header("host", "localhost").header("x-bluetick-demo", &key);
    assert_eq!(token.send().await.unwrap().status().as_u16(), 404);
    let near = client().get(site.server.http("/metrics")).send().await.unwrap();
    assert_eq!(near.status().as_u16(), 200, "operators ask the server itself");
}

#[tokio::test]
async fn attachments_pass_through_nginx() {
    attachments_pass(nginx_with_tls).await;
}

#[tokio::test]
async fn attachments_pass_through_haproxy() {
    attachments_pass(haproxy_with_tls).await;
}

#[tokio::test]
async fn only_what_is_for_people_passes_through_nginx() {
    only_what_is_for_people_passes(nginx_with_tls).await;
}

#[tokio::test]
async fn only_what_is_for_people_passes_through_haproxy() {
    only_what_is_for_people_passes(haproxy_with_tls).await;
}

/// There is one file for each proxy; a second copy in a document would drift from it.
#[test]
fn the_documents_name_the_files_and_copy_nothing_of_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/operations.md")).unwrap();
    for link in ["(../deploy/nginx.conf)", "(../deploy/haproxy.cfg)"] {
        assert!(page.contains(link), "docs/operations.md does not name {link}");
    }
    for copied in ["proxy_pass", "proxy_set_header", "client_max_body_size", "http-request set-header"] {
        for page in ["docs/operations.md", "README.md", "deploy/README.md"] {
            let text = std::fs::read_to_string(root.join(page)).unwrap();
            assert!(!text.contains(copied), "{page} has {copied}: it belongs into deploy/ only");
        }
    }
}
