//! Pages, the demo, and which web origins may connect.

use super::*;

#[tokio::test]
async fn pages_run_only_what_is_theirs() {
    let f = fixture();
    let get =
        |path: &str| HttpRequest::get(path).header("host", "localhost:8080").body(Body::empty()).unwrap();
    let reply = f.call(get("/v1/docs")).await;
    let policy = reply.header("content-security-policy").to_owned();
    let nonce = policy.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap().to_owned();
    assert_eq!(nonce.len(), 32);
    assert!(reply.body.contains(&format!("<style nonce=\"{nonce}\">")));
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert!(!reply.body.contains("<script>") && !reply.body.contains("<style>"));
    let again = f.call(get("/v1/docs")).await;
    assert_ne!(again.header("content-security-policy"), policy, "a number is used once");

    for path in ["/", "/tour", "/admin"] {
        let reply = f.call(get(path)).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, "text/html; charset=utf-8"), "{path}");
        let policy = reply.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'; "), "{policy}");
        assert_eq!(policy.contains("ws://localhost:8080"), path != "/admin", "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert!(!reply.body.contains("<style") && !reply.body.contains("<script>"), "{path}");
    }
    let script = f.call(get("/assets/chat.js")).await;
    assert_eq!((script.status, script.header("content-type")), (200, "text/javascript; charset=utf-8"));
    let known = HttpRequest::get("/assets/chat.js").header("if-none-match", script.header("etag"));
    let again = f.call(known.body(Body::empty()).unwrap()).await;
    assert_eq!((again.status, again.body.len()), (304, 0));
    for other in
        ["none.js", "..%2f..%2fCargo.toml", "%2fproc%2fself%2fexe", "%2fetc%2fmtab", "admin.html", ".npmrc"]
    {
        assert_eq!(f.call(get(&format!("/assets/{other}"))).await.status, 404, "{other}");
    }

    let api = f.get("/healthz").await;
    assert!(api.header("content-security-policy").starts_with("default-src 'none'"));

    let without = fixture_with(|config| config.demo.enabled = crate::config::Switch::Off);
    let reply = without.get("/").await;
    assert_eq!((reply.status, reply.header("location")), (307, "/v1/docs"));
    let request = HttpRequest::post("/demo/token").body(Body::empty()).unwrap();
    assert_eq!(without.call(request).await.status, 404);
    assert_eq!(without.get("/tour").await.status, 404);
    let bare = fixture_with(|config| config.pages.admin = false);
    assert_eq!(bare.get("/admin").await.status, 404);
}

#[tokio::test]
async fn demo_tokens_are_not_for_who_comes_from_nowhere() {
    let f = fixture();
    let request = HttpRequest::post("/demo/token")
        .header("host", "localhost:8080")
        .header("content-type", "application/json")
        .body(Body::from(r#"{"user":"alice"}"#))
        .unwrap();
    // Without a connection there is no address that could be loopback.
    assert_eq!(f.call(request).await.status, 404);
}

#[tokio::test]
async fn listed_pages_may_read_answers_and_others_may_not() {
    let f = fixture_with(|config| config.limits.allowed_origins = vec!["https://app.example".into()]);
    let ask = |method: &'static str, origin: &'static str| {
        let request = HttpRequest::builder()
            .method(method)
            .uri("/v1/me")
            .header("origin", origin)
            .header("authorization", "Bearer alice")
            .header("access-control-request-method", "PUT");
        f.call(request.body(Body::empty()).unwrap())
    };
    let reply = ask("OPTIONS", "https://app.example").await;
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (204, "https://app.example"));
    assert!(reply.header("access-control-allow-headers").contains("authorization"));
    let reply = ask("GET", "https://app.example").await;
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, "https://app.example"));
    for method in ["OPTIONS", "GET"] {
        assert_eq!(ask(method, "https://evil.example").await.header("access-control-allow-origin"), "");
    }
}

#[tokio::test]
async fn a_socket_is_opened_by_a_handshake_from_an_allowed_page() {
    let f = fixture();
    let shake = |origin: Option<&'static str>| {
        let mut request = HttpRequest::get("/v1/ws")
            .header("host", "chat.example")
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        f.call(request.body(Body::empty()).unwrap())
    };
    assert_eq!(shake(None).await.status, 101);
    assert_eq!(shake(Some("https://chat.example")).await.status, 101);
    let reply = shake(Some("https://evil.example")).await;
    assert_eq!((reply.status, reply.error().as_str()), (403, "origin_refused"));
    let reply = f.get("/v1/ws").await;
    assert_eq!((reply.status, reply.header("upgrade")), (426, "websocket"));
    assert_eq!(reply.error(), "bad_request");
    f.state.begin_draining();
    let reply = shake(None).await;
    assert_eq!((reply.status, reply.error().as_str()), (503, "shutting_down"));
}
