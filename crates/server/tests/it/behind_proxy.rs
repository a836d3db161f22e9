//! One server behind nginx and behind HAProxy, with the files of `deploy/` and TLS: everything that people use works through
//! them, and nothing else is reached.

use std::path::Path;

use ring::digest;
use serde_json::{Value, json};

use crate::{
    harness::*,
    http::client,
    reverse_proxy::{ReverseProxy, haproxy_with_tls, nginx_with_tls},
};

type Start = fn(&Path, &str, &str) -> ReverseProxy;

/// A server, and the way to it through a proxy.
struct Site {
    server: Server,
    _proxy: ReverseProxy,
    /// `https://localhost:PORT`.
    url: String,
    client: reqwest::Client,
}

impl Site {
    fn start(proxy: Start) -> Site {
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
        let client = client.resolve("localhost", ([127, 0, 0, 1], port).into()).build().unwrap();
        Site { server, _proxy: proxy, url: format!("https://localhost:{port}"), client }
    }

    async fn call(&self, token: &str, request: reqwest::RequestBuilder) -> Value {
        let answer = request.bearer_auth(token).send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{status} {text}");
        serde_json::from_str(&text).unwrap()
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
async fn attachments_pass(proxy: Start) {
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
async fn only_what_is_for_people_passes(proxy: Start) {
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
    for path in ["/admin", "/admin/v1/info", "/metrics", "/healthz", "/readyz", "/v1/../metrics"] {
        assert_eq!(site.status(path, &[("authorization", &bearer)]).await, 404, "{path}");
    }
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
