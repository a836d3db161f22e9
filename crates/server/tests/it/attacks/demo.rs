//! The demo gives tokens for any name. Somebody who reaches the port through a proxy on the same machine, or another user
//! of the machine, must not get one: without the key of this start there is nothing but its page.

use std::os::unix::fs::PermissionsExt as _;

use reqwest::Method;
use serde_json::{Value, json};

use crate::{harness::*, http::client};

/// Status, headers that tell something, and body of an answer.
async fn ask(
    server: &Server,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
) -> (u16, Vec<String>, String) {
    let mut request = client().request(method.clone(), server.http(path));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if method == Method::POST {
        request = request.json(&json!({"user": "alice"}));
    }
    let answer = request.send().await.unwrap();
    let told = ["allow", "www-authenticate", "content-type"]
        .map(|name| format!("{name}: {:?}", answer.headers().get(name)))
        .to_vec();
    (answer.status().as_u16(), told, answer.text().await.unwrap())
}

#[tokio::test]
async fn without_its_key_the_demo_does_not_exist() {
    let (server, without) = (Server::start(), Server::with(&[("BLUETICK_DEMO__ENABLED", "false")]));
    let key = server.demo_key();
    let wrong = "0".repeat(key.len());
    let paths = [
        (Method::POST, "/demo/token"),
        (Method::GET, "/demo/rows?users=alice"),
        (Method::GET, "/demo/events?users=alice"),
    ];
    for (method, path) in paths {
        // As a proxy with nothing but `proxy_pass` asks, as one that passes the client's Host on, and with guesses.
        for headers in [
            vec![],
            vec![("host", "localhost")],
            vec![("host", "127.0.0.1:8080"), ("user-agent", "curl/8.0")],
            vec![("x-bluetick-demo", "")],
            vec![("x-bluetick-demo", wrong.as_str())],
            vec![("x-bluetick-demo", &key[..key.len() - 1])],
            vec![("authorization", key.as_str())],
            vec![("cookie", key.as_str())],
        ] {
            for method in [method.clone(), Method::DELETE] {
                let refused = ask(&server, method.clone(), path, &headers).await;
                assert_eq!(refused.0, 404, "{method} {path} {headers:?}: {refused:?}");
                let off = ask(&without, method.clone(), path, &headers).await;
                assert_eq!(refused, off, "{method} {path}: it can be told that there is a demo");
            }
        }
        let admitted = client().request(method.clone(), server.http(path)).header("x-bluetick-demo", &key);
        let admitted = admitted.json(&json!({"user": "alice"})).send().await.unwrap();
        assert_eq!(admitted.status().as_u16(), 200, "{method} {path}");
    }
    // A body that cannot be read is no way to find out either.
    let unread = client().post(server.http("/demo/token")).body("not json").send().await.unwrap();
    assert_eq!(unread.status().as_u16(), 404);
}

/// The page is served to anybody, and tells that there is a demo; what it shows needs the key.
#[tokio::test]
async fn the_tour_is_a_page_without_data() {
    let (server, without) = (Server::start(), Server::with(&[("BLUETICK_DEMO__ENABLED", "false")]));
    let mut alice = server.connect("alice", "phone").await;
    alice.send("bob", "nobody else's business").await;
    let (status, _, page) = ask(&server, Method::GET, "/tour", &[]).await;
    assert_eq!(status, 200);
    let key = server.demo_key();
    assert!(!page.contains(&key) && !page.contains("nobody else's business"));
    assert_eq!(ask(&server, Method::GET, "/tour?users=alice", &[("x-bluetick-demo", &key)]).await.2, page);
    assert_eq!(ask(&without, Method::GET, "/tour", &[]).await.0, 404);
    assert_eq!(ask(&without, Method::GET, "/demo/rows?users=alice", &[]).await.0, 404);
}

#[tokio::test]
async fn the_key_alone_does_not_open_it_from_elsewhere() {
    let server = Server::start();
    let key = server.demo_key();
    for (header, value) in [
        ("host", "evil.example"),
        ("origin", "https://evil.example"),
        ("sec-fetch-site", "cross-site"),
        ("x-forwarded-for", "203.0.113.5"),
        ("forwarded", "for=203.0.113.5"),
    ] {
        let headers = [("x-bluetick-demo", key.as_str()), (header, value)];
        let (status, _, text) = ask(&server, Method::POST, "/demo/token", &headers).await;
        assert_eq!(status, 404, "{header}: {value}: {text}");
    }
}

#[tokio::test]
async fn every_start_has_a_key_of_its_own_which_only_the_owner_can_read() {
    let mut server = Server::start();
    let first = server.demo_key();
    assert!(first.len() >= 32 && first.bytes().all(|b| b.is_ascii_hexdigit()), "{first}");
    let file = server.data().join("demo.key");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    server.kill();
    server.restart();
    let second = server.demo_key();
    assert_ne!(first, second);
    let old = ask(&server, Method::POST, "/demo/token", &[("x-bluetick-demo", &first)]).await;
    assert_eq!(old.0, 404);
    let (status, _, text) = ask(&server, Method::POST, "/demo/token", &[("x-bluetick-demo", &second)]).await;
    assert_eq!(status, 200);
    let token = serde_json::from_str::<Value>(&text).unwrap()["token"].as_str().unwrap().to_owned();
    let person = Person::open(&server.url(), &token, "alice", "page", None).await;
    assert_eq!(person.welcome.user_id, user("alice"));
    assert_eq!(server.terminate(), Some(0));
    assert!(!file.exists(), "a key that opens nothing is not left behind");

    // Nor one of an earlier start, where there is no demo any more.
    std::fs::write(&file, first).unwrap();
    server.set("BLUETICK_DEMO__ENABLED", "false");
    server.restart();
    assert!(!file.exists());
}
