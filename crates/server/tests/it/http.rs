//! The same over HTTP, for back ends and page loads.

use bluetick_protocol::*;
use serde_json::{Value, json};

use crate::harness::*;

/// HTTP calls of one user.
pub struct Api {
    client: reqwest::Client,
    base: String,
    token: String,
}

pub fn api(server: &Server, user: &str) -> Api {
    Api { client: client(), base: server.http(""), token: server.token(user) }
}

pub fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

impl Api {
    async fn call(&self, request: reqwest::RequestBuilder) -> (u16, Value) {
        let answer = request.bearer_auth(&self.token).send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.call(self.client.get(format!("{}{path}", self.base))).await
    }

    pub async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.call(self.client.post(format!("{}{path}", self.base)).json(&body)).await
    }

    pub async fn put(&self, path: &str, body: Value) -> (u16, Value) {
        self.call(self.client.put(format!("{}{path}", self.base)).json(&body)).await
    }

    pub async fn delete(&self, path: &str) -> (u16, Value) {
        self.call(self.client.delete(format!("{}{path}", self.base))).await
    }
}

#[tokio::test]
async fn a_back_end_sends_reads_and_pages_over_http() {
    let server = Server::start();
    let (alice, bob) = (api(&server, "alice"), api(&server, "bob"));
    let message = json!({"client_msg_id": "order-17", "to": "bob", "body": "your parcel is here"});
    let (status, sent) = alice.post("/v1/messages", message.clone()).await;
    assert_eq!(
        (status, sent["seq"].as_u64(), sent["duplicate"].as_bool()),
        (200, Some(1), Some(false)),
        "{sent}"
    );
    let (_, again) = alice.post("/v1/messages", message).await;
    assert_eq!((again["duplicate"].as_bool(), &again["message_id"]), (Some(true), &sent["message_id"]));

    let (_, inbox) = bob.get("/v1/inbox?limit=5").await;
    assert_eq!(inbox["conversations"][0]["unread_count"], 1, "{inbox}");
    let (_, page) = bob.get("/v1/conversations/alice~bob/messages").await;
    assert_eq!(page["messages"][0]["body"], "your parcel is here", "{page}");
    assert_eq!(bob.post("/v1/conversations/alice~bob/read", json!({"seq": 1})).await.0, 204);
    let (_, status) = alice.get("/v1/conversations/alice~bob/status").await;
    assert_eq!(status["peer"]["last_read_seq"], 1, "{status}");
    assert_eq!(bob.get("/v1/inbox").await.1["conversations"][0]["unread_count"], 0);
}

#[tokio::test]
async fn a_message_over_http_reaches_a_live_session() {
    let server = Server::start();
    let mut bob = server.connect("bob", "phone").await;
    let body = json!({"client_msg_id": "x", "to": "bob", "body": "ping"});
    assert_eq!(api(&server, "alice").post("/v1/messages", body).await.0, 200);
    assert_eq!(bob.message().await.body, "ping");
}

#[tokio::test]
async fn errors_say_what_is_wrong_in_json() {
    let server = Server::start();
    let alice = api(&server, "alice");
    let cases = [
        (alice.post("/v1/messages", json!({"to": "bob", "body": "x"})).await, 400, "bad_request"),
        (
            alice.post("/v1/messages", json!({"client_msg_id": "a", "to": "b~c", "body": "x"})).await,
            400,
            "invalid_id",
        ),
        (
            alice.post("/v1/messages", json!({"client_msg_id": "a", "to": "alice", "body": "x"})).await,
            400,
            "to_self",
        ),
        (
            alice.post("/v1/messages", json!({"client_msg_id": "a", "to": "bob", "body": ""})).await,
            400,
            "empty_body",
        ),
        (alice.get("/v1/conversations/bob~carol/messages").await, 404, "not_found"),
        (alice.get("/v1/conversations/nonsense/messages").await, 400, "invalid_id"),
        (alice.get("/v1/inbox?limit=0").await, 400, "bad_request"),
        (alice.get("/v1/inbox?before=junk").await, 400, "bad_request"),
        (alice.get("/v1/nowhere").await, 404, "not_found"),
        (alice.get("/v1/conversations/alice~bob/messages?limit=-1").await, 400, "bad_request"),
    ];
    for ((status, body), expected, code) in cases {
        assert_eq!((status, body["error"]["code"].as_str()), (expected, Some(code)), "{body}");
        assert!(body["error"]["message"].as_str().is_some_and(|m| m.len() > 5), "{body}");
    }
    let plain = client();
    let answer = plain.get(server.http("/v1/inbox")).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 401);
    let answer = plain
        .post(server.http("/v1/messages"))
        .bearer_auth(server.token("alice"))
        .body("{")
        .send()
        .await
        .unwrap();
    assert!(matches!(answer.status().as_u16(), 400 | 415));
    let answer =
        plain.get(server.http("/v1/messages")).bearer_auth(server.token("alice")).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 405);
    let huge = json!({"client_msg_id": "a", "to": "bob", "body": "x".repeat(300_000)});
    assert_eq!(alice.post("/v1/messages", huge).await.0, 413);
}

#[tokio::test]
async fn the_openapi_document_names_every_path_that_is_served() {
    let server = Server::start();
    let document: Value =
        client().get(server.http("/v1/openapi.json")).send().await.unwrap().json().await.unwrap();
    let paths = document["paths"].as_object().unwrap();
    for path in [
        "/v1/messages",
        "/v1/inbox",
        "/v1/conversations/{id}/messages",
        "/v1/conversations/{id}/status",
        "/v1/conversations/{id}/read",
        "/v1/me",
        "/v1/users/{id}",
        "/v1/blocks/{user}",
        "/healthz",
        "/readyz",
        "/metrics",
    ] {
        assert!(paths.contains_key(path), "{path} is not described");
    }
    let page = client().get(server.http("/v1/docs")).send().await.unwrap();
    assert!(page.headers().contains_key("content-security-policy"));
    assert!(page.text().await.unwrap().contains("/v1/inbox"));
}

#[tokio::test]
async fn health_readiness_and_metrics_answer() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    alice.send("bob", "hi").await;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(client().get(server.http(path)).send().await.unwrap().status().as_u16(), 200, "{path}");
    }
    let metrics = client().get(server.http("/metrics")).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("bluetick_connections"), "{metrics}");
}

#[tokio::test]
async fn a_server_without_demo_gives_no_tokens_away() {
    let server = Server::with(&[("BLUETICK_DEMO__ENABLED", "false")]);
    let answer =
        client().post(server.http("/demo/token")).json(&json!({"user": "alice"})).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 404);
    assert_eq!(ErrorCode::NotFound.http_status(), 404);
}
