mod fixture;
mod pages;
mod revocation;

use std::{convert::Infallible, future::ready, time::Duration};

use async_trait::async_trait;
use axum::{
    body::Body,
    http::{Method, Request as HttpRequest},
};
use bluetick_chat::{
    Admin, AppResult, ChatService, ClusterRequest, Gateway, Gateways, RemoteApp, Transport, Unlimited,
    session::{Identity, SessionConfig},
};
use bluetick_protocol::{Boundaries, PushDeviceCard, PushRegistration, S3Ref, UserId};
use bluetick_store::{Clock, SystemClock};
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::config::Overrides;
use fixture::*;

#[tokio::test]
async fn every_route_asks_the_app_what_the_request_says() {
    let f = fixture_that_notifies();
    for (method, path, body, status, asked) in [
        (
            "POST",
            "/v1/messages",
            Some(json!({"client_msg_id": "m1", "to": "bob", "body": "hi"})),
            200,
            "send alice Some(\"bob\") hi",
        ),
        ("GET", "/v1/inbox?limit=5&before=x%20y", None, 200, "inbox alice Some(5) Some(\"x y\")"),
        ("GET", "/v1/inbox", None, 200, "inbox alice None None"),
        (
            "GET",
            "/v1/conversations/alice~bob/messages?after_seq=3&limit=2",
            None,
            200,
            "history alice alice~bob Some(3) None Some(2)",
        ),
        (
            "GET",
            "/v1/conversations/alice%7Ebob/messages?before_seq=9",
            None,
            200,
            "history alice alice~bob None Some(9) None",
        ),
        ("GET", "/v1/conversations/alice~bob/status", None, 200, "status alice alice~bob"),
        ("POST", "/v1/conversations/alice~bob/read", Some(json!({"seq": 4})), 204, "read alice alice~bob 4"),
        ("GET", "/v1/me", None, 200, "profile alice"),
        ("PUT", "/v1/me", Some(json!({"name": "Alice"})), 200, "put_profile alice Some(\"Alice\")"),
        ("GET", "/v1/users/bob@example.org", None, 200, "user_card alice bob@example.org"),
        ("GET", "/v1/blocks", None, 200, "blocks alice"),
        ("PUT", "/v1/blocks/mallory", None, 204, "set_block alice mallory true"),
        ("DELETE", "/v1/blocks/mallory", None, 204, "set_block alice mallory false"),
        ("GET", "/v1/devices", None, 200, "push_devices alice"),
        (
            "PUT",
            "/v1/devices/web/push",
            Some(subscription("push.example")),
            200,
            "put_push alice web https://push.example/send/1",
        ),
        (
            "PUT",
            "/v1/devices/pager/push",
            Some(json!({"provider": "webhook", "token": "t-1", "content": "sender"})),
            200,
            "put_push alice pager t-1",
        ),
        ("DELETE", "/v1/devices/pager/push", None, 204, "delete_push alice pager"),
        ("PUT", "/v1/conversations/alice~bob/mute", None, 204, "mute alice alice~bob None"),
        ("PUT", "/v1/conversations/alice~bob/mute", Some(json!({})), 204, "mute alice alice~bob None"),
        (
            "PUT",
            "/v1/conversations/alice~bob/mute",
            Some(json!({"until": 5})),
            204,
            "mute alice alice~bob Some(5)",
        ),
        ("DELETE", "/v1/conversations/alice~bob/mute", None, 204, "unmute alice alice~bob"),
        ("GET", "/v1/mutes", None, 200, "mutes alice"),
        (
            "POST",
            "/v1/attachments",
            Some(json!({"name": "a.png", "mime": "image/png", "bytes": 5, "sha256": "00"})),
            200,
            "begin_upload alice a.png 5",
        ),
        (
            "POST",
            "/v1/attachments/00000000000100000000000000000000/complete",
            Some(json!({"etags": ["x"], "sha256": ["00"]})),
            204,
            "complete_upload alice 00000000000100000000000000000000 [\"x\"]",
        ),
        (
            "GET",
            "/v1/conversations/alice~bob/attachments/00000000000100000000000000000000",
            None,
            200,
            "download alice alice~bob 00000000000100000000000000000000",
        ),
    ] {
        let reply = f.as_alice(method, path, body).await;
        assert_eq!(reply.status, status, "{method} {path}: {}", reply.body);
        assert_eq!(f.app.last(), asked, "{method} {path}");
        assert_eq!(reply.header("cache-control"), "no-store");
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
    }
    let sent =
        f.as_alice("POST", "/v1/messages", Some(json!({"client_msg_id": "m", "to": "bob", "ref": 5}))).await;
    assert_eq!(sent.json()["message_id"], "7");
    assert_eq!(sent.json()["ref"], 5);
    assert_eq!(
        f.as_alice("GET", "/v1/blocks", None).await.json(),
        json!({"blocks": ["mallory"], "next": null})
    );
    assert_eq!(f.as_alice("GET", "/v1/devices", None).await.json(), json!({"devices": []}));
    assert_eq!(f.as_alice("GET", "/v1/mutes", None).await.json(), json!({"mutes": [], "next": null}));
}

#[tokio::test]
async fn a_client_learns_by_whom_it_can_be_notified() {
    let reply = fixture().as_alice("GET", "/v1/push", None).await;
    let nobody = json!({"providers": [], "vapid_public_key": null, "content": "preview"});
    assert_eq!((reply.status, reply.json()), (200, nobody));
    let offer = fixture_that_notifies().as_alice("GET", "/v1/push", None).await.json();
    assert_eq!(offer["providers"], json!(["webpush", "webhook"]));
    assert_eq!(offer["vapid_public_key"].as_str().map(str::len), Some(87));
}

#[tokio::test]
async fn a_device_that_could_not_be_notified_is_told_why() {
    let f = fixture_that_notifies();
    let put = |body: Value| f.as_alice("PUT", "/v1/devices/phone/push", Some(body));
    for (body, status, code, why) in [
        (json!({"provider": "apns", "token": "ab01"}), 501, "unsupported", "[push.apns]"),
        (json!({"provider": "fcm", "token": "t"}), 501, "unsupported", "GET /v1/push"),
        (json!({"provider": "pigeon", "token": "t"}), 400, "bad_request", "webhook"),
        (json!({"token": "t"}), 400, "bad_request", "provider"),
        (json!({"provider": "webhook"}), 400, "bad_request", "token"),
        (json!({"provider": "webhook", "token": "a b"}), 400, "bad_request", "token"),
        (json!({"provider": "webhook", "token": "t", "content": "all"}), 400, "bad_request", "preview"),
        (subscription("evil.example"), 400, "bad_request", "push service"),
        (subscription("127.0.0.1"), 400, "bad_request", "push service"),
    ] {
        let reply = put(body.clone()).await;
        assert_eq!((reply.status, reply.error().as_str()), (status, code), "{body}: {}", reply.body);
        assert!(reply.body.contains(why), "{body}: {}", reply.body);
    }
    let mut http = subscription("push.example");
    http["subscription"]["endpoint"] = json!("http://push.example/send/1");
    assert_eq!(put(http).await.status, 400);
    let reply = f.as_alice("PUT", "/v1/devices/a%20b/push", Some(json!({}))).await;
    assert_eq!((reply.status, reply.error().as_str()), (400, "invalid_id"));
    assert!(f.app.asked.lock().is_empty(), "nothing of it reached the app");
    let body = json!({"provider": "webhook", "token": "t"});
    assert_eq!(fixture().as_alice("PUT", "/v1/devices/phone/push", Some(body)).await.status, 501);
}

#[tokio::test]
async fn bad_input_is_told_in_one_shape() {
    let f = fixture();
    let long_ref = json!({"client_msg_id": "m", "to": "bob", "body": "x", "ref": "r".repeat(65)});
    for (method, path, body, status, code) in [
        ("GET", "/v1/nothing", None, 404, "not_found"),
        ("GET", "/v1/conversations/bob~alice/messages", None, 400, "invalid_id"),
        ("GET", "/v1/conversations/x/status", None, 400, "invalid_id"),
        ("GET", "/v1/conversations/%ff/status", None, 400, "bad_request"),
        ("GET", "/v1/users/a%20b", None, 400, "invalid_id"),
        ("PUT", "/v1/blocks/%00", None, 400, "invalid_id"),
        ("GET", "/v1/inbox?limit=many", None, 400, "bad_request"),
        ("GET", "/v1/inbox?limit=-1", None, 400, "bad_request"),
        ("GET", "/v1/conversations/alice~bob/messages?after_seq=1e9", None, 400, "bad_request"),
        ("POST", "/v1/messages", Some(json!([])), 400, "bad_request"),
        ("POST", "/v1/messages", Some(json!({"client_msg_id": "m", "body": "x"})), 400, "bad_request"),
        (
            "POST",
            "/v1/messages",
            Some(json!({"client_msg_id": "m", "to": "", "body": "x"})),
            400,
            "invalid_id",
        ),
        ("POST", "/v1/messages", Some(long_ref), 400, "bad_request"),
        ("POST", "/v1/conversations/alice~bob/read", Some(json!({"seq": -1})), 400, "bad_request"),
        ("POST", "/v1/conversations/alice~bob/read", Some(json!({})), 400, "bad_request"),
        ("PUT", "/v1/conversations/alice~bob/mute", Some(json!({"until": "soon"})), 400, "bad_request"),
        ("PUT", "/v1/conversations/x/mute", None, 400, "invalid_id"),
        ("DELETE", "/v1/messages", None, 405, "bad_request"),
        ("PATCH", "/v1/me", None, 405, "bad_request"),
    ] {
        let reply = f.as_alice(method, path, body).await;
        assert_eq!(reply.status, status, "{method} {path}: {}", reply.body);
        assert_eq!(reply.error(), code, "{method} {path}: {}", reply.body);
    }
    assert!(f.app.asked.lock().is_empty(), "nothing of it reached the app");
    let reply = f.as_alice("DELETE", "/v1/messages", None).await;
    assert_eq!(reply.header("allow"), "POST");
}

#[tokio::test]
async fn bodies_must_be_json_of_a_bearable_length() {
    let f = fixture();
    let post = |kind: Option<&'static str>, body: String| {
        let mut request = HttpRequest::post("/v1/messages").header("authorization", "bearer alice");
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        f.call(request.body(Body::from(body)).unwrap())
    };
    let good = r#"{"client_msg_id":"m","to":"bob","body":"x"}"#.to_owned();
    assert_eq!(post(Some("application/json; charset=utf-8"), good.clone()).await.status, 200);
    for kind in [None, Some("text/plain"), Some("application/x-www-form-urlencoded")] {
        let reply = post(kind, good.clone()).await;
        assert_eq!((reply.status, reply.error().as_str()), (415, "bad_request"));
    }
    for bad in ["", "{", "nonsense", "{\"client_msg_id\":\"m\",}"] {
        let reply = post(Some("application/json"), bad.into()).await;
        assert_eq!((reply.status, reply.error().as_str()), (400, "not_json"), "{bad}");
    }
    let deep = "[".repeat(60_000);
    assert_eq!(post(Some("application/json"), deep).await.status, 400);
    let long = format!(r#"{{"client_msg_id":"m","to":"bob","body":"{}"}}"#, "x".repeat(131_072));
    let reply = post(Some("application/json"), long).await;
    assert_eq!((reply.status, reply.error().as_str()), (413, "frame_too_large"));
}

#[tokio::test]
async fn who_has_no_good_token_gets_nothing() {
    let f = fixture();
    for header in [
        None,
        Some("alice"),
        Some("Basic alice"),
        Some("Bearer "),
        Some("Bearer a b"),
        Some("Bearer expired"),
    ] {
        for (method, path) in [("GET", "/v1/me"), ("POST", "/v1/messages"), ("DELETE", "/v1/blocks/bob")] {
            let mut request = HttpRequest::builder().method(method).uri(path);
            if let Some(header) = header {
                request = request.header("authorization", header);
            }
            let reply = f.call(request.body(Body::empty()).unwrap()).await;
            assert_eq!(reply.status, 401, "{header:?} {path}");
            assert!(matches!(reply.error().as_str(), "unauthorized" | "token_expired"));
            assert_eq!(reply.header("www-authenticate"), "Bearer");
        }
    }
    assert!(f.app.asked.lock().is_empty());
}

#[tokio::test]
async fn an_address_of_the_server_s_own_is_as_the_client_calls_it() {
    let announced = async |f: &Fixture, proto: &str| {
        let body = json!({"name": "a", "mime": "a/b", "bytes": 1, "sha256": "00"}).to_string();
        let request = HttpRequest::post("/v1/attachments")
            .header("host", "chat.example:8443")
            .header("x-forwarded-proto", proto)
            .header("authorization", "Bearer alice")
            .header("content-type", "application/json");
        let reply = f.call(request.body(Body::from(body)).unwrap()).await;
        reply.json()["upload"]["url"].as_str().unwrap().to_owned()
    };
    let f = fixture();
    assert_eq!(announced(&f, "http").await, "http://chat.example:8443/v1/blobs/x?expires=1");
    assert_eq!(announced(&f, "https, http").await, "https://chat.example:8443/v1/blobs/x?expires=1");
    let f = fixture_with(|config| config.attachments.public_url = Some("https://x.example/chat/".into()));
    assert_eq!(announced(&f, "http").await, "https://x.example/chat/v1/blobs/x?expires=1");
    let s3_ref = S3Ref::mint(1, [0; 10]);
    let found = f.as_alice("GET", &format!("/v1/conversations/alice~bob/attachments/{s3_ref}"), None).await;
    assert_eq!(found.json()["url"], "https://bucket.example/x", "a bucket's address is whole already");
}

#[tokio::test]
async fn errors_of_the_app_keep_their_code_and_say_when_to_come_back() {
    let f = fixture();
    for code in ErrorCode::ALL {
        *f.app.error.lock() = Some(WireError::new(*code, "for a reason").retry_after(1500));
        let reply = f.as_alice("GET", "/v1/me", None).await;
        assert_eq!(reply.status, code.http_status());
        assert_eq!(reply.error(), code.as_str());
        assert_eq!(reply.json()["error"]["retry_after_ms"], 1500);
        assert_eq!(reply.header("retry-after"), "2");
    }
}

#[tokio::test]
async fn the_document_and_the_routes_are_the_same() {
    let f = fixture();
    let document = f.get("/v1/openapi.json").await;
    assert_eq!(document.header("content-type"), "application/json");
    let mut described = 0;
    for (path, item) in document.json()["paths"].as_object().unwrap() {
        let path = path.replace("{id}", "alice~bob").replace("{user}", "bob").replace("{device}", "phone");
        for method in item.as_object().unwrap().keys() {
            let method: Method = method.to_uppercase().parse().unwrap();
            let request = HttpRequest::builder().method(&method).uri(&path).body(Body::empty()).unwrap();
            let reply = f.call(request).await;
            assert!(!matches!(reply.status, 404 | 405), "{method} {path} is described and not there");
            described += 1;
        }
    }
    assert_eq!(described, 25);
}

#[tokio::test]
async fn readiness_follows_the_store_and_the_shutdown() {
    let f = fixture();
    assert_eq!(f.get("/healthz").await.status, 200);
    let ready = f.get("/readyz").await;
    assert_eq!((ready.status, ready.json()["ready"].clone()), (200, json!(true)));
    f.state.begin_draining();
    let reply = f.get("/readyz").await;
    assert_eq!((reply.status, reply.json()["ready"].clone()), (503, json!(false)));
    assert!(reply.json()["reason"].as_str().unwrap().contains("going down"));
    assert_eq!(f.get("/healthz").await.status, 200, "a process that goes down is still alive");
}

#[tokio::test]
async fn figures_name_routes_and_never_users() {
    let f = fixture();
    f.as_alice("GET", "/v1/users/somebody-special", None).await;
    f.get("/v1/../wp-admin-special").await;
    let reply = f.get("/metrics").await;
    assert!(reply.header("content-type").starts_with("text/plain"));
    assert!(reply.body.contains("bluetick_connections 0"), "{}", reply.body);
    assert!(reply.body.contains("route=\"/v1/users/{id}\""), "{}", reply.body);
    assert!(!reply.body.contains("special"));
}
