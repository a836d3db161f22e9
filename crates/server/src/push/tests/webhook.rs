//! The operator's own endpoint.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::hmac;
use serde_json::json;

use super::{recorder::RecordedRequest, *};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// As a receiver does it, with the library of its choice: the key is what the secret stands for.
fn assert_signed(request: &RecordedRequest, key: &[u8]) {
    let (id, time) = (request.header("webhook-id").unwrap(), request.header("webhook-timestamp").unwrap());
    assert!(now_ms() / 1_000 - time.parse::<u64>().unwrap() < 600);
    let signed = [id.as_bytes(), b".", time.as_bytes(), b".", &request.body].concat();
    let signature = request.header("webhook-signature").unwrap().strip_prefix("v1,").unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::verify(&key, &signed, &STANDARD.decode(signature).unwrap())
        .expect("the signature is of this secret");
}

#[tokio::test]
async fn everything_is_told_and_signed() {
    let (fixture, device) = with_webhook().await;
    let providers = fixture.providers();
    let alert = alert();
    assert_eq!(providers.route(&device.registration).as_deref(), Some("webhook"));
    assert_eq!(providers.push(&device, &alert).await, Pushed::Accepted);
    let request = &fixture.server.requests("/")[0];
    assert!(request.http2);
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/hook"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_signed(request, SECRET.as_bytes());
    assert_eq!(
        request.json(),
        json!({
            "type": "message",
            "id": "4242",
            "user_id": "bob",
            "device": "phone",
            "token": "secret-token",
            "collapse_id": COLLAPSE_ID,
            "badge": 3,
            "title": "Alice",
            "body": "where are you?",
            "message_id": "4242",
            "conversation_id": "alice~bob",
            "seq": 7,
            "sender": "alice",
            "expires_at": alert.expires_at,
        })
    );
    assert_eq!(providers.push(&device, &clear()).await, Pushed::Accepted);
    let cleared = fixture.server.requests("/")[1].json();
    assert_eq!((&cleared["type"], &cleared["badge"]), (&json!("clear"), &json!(3)));
    assert!(cleared.get("title").is_none());
}

#[tokio::test]
async fn a_retry_has_the_same_id() {
    let (fixture, device) = with_webhook().await;
    let providers = fixture.providers();
    fixture.server.answer_once("/", ScriptedReply::status(502));
    assert_pushed!(providers.push(&device, &alert()).await, Pushed::Later { .. });
    assert_eq!(providers.push(&device, &alert()).await, Pushed::Accepted);
    assert_eq!(providers.push(&device, &clear()).await, Pushed::Accepted);
    let requests = fixture.server.requests("/");
    let ids: Vec<_> = requests.iter().map(|r| r.header("webhook-id").unwrap()).collect();
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[1], ids[2]);
}

#[tokio::test]
async fn a_secret_may_be_base64_or_in_a_file() {
    let (mut fixture, device) = with_webhook().await;
    let key = [7; 32];
    let text = format!("whsec_{}", STANDARD.encode(key));
    let file = fixture.file("secret", &format!("{text}\n"));
    let hook = fixture.config.webhook.as_mut().unwrap();
    (hook.secret, hook.secret_file) = (None, Some(file));
    assert_eq!(fixture.providers().push(&device, &alert()).await, Pushed::Accepted);
    assert_signed(&fixture.server.requests("/")[0], &key);

    let bad = fixture.file("bad", &format!("whsec_{}", "!".repeat(40)));
    fixture.config.webhook.as_mut().unwrap().secret_file = Some(bad);
    let why = refused(&fixture.config);
    assert!(why.contains("push.webhook.secret_file") && !why.contains('!'), "{why}");
}

#[tokio::test]
async fn every_answer_is_obeyed() {
    let (fixture, device) = with_webhook().await;
    let providers = fixture.providers();
    let answered = async |reply: ScriptedReply| {
        fixture.server.answer("/", reply);
        providers.push(&device, &alert()).await
    };
    for status in [200, 201, 202, 204] {
        assert_eq!(answered(ScriptedReply::status(status)).await, Pushed::Accepted);
    }
    assert_pushed!(answered(ScriptedReply::status(410)).await, Pushed::Gone { since: None, .. });
    assert_pushed!(answered(ScriptedReply::status(404)).await, Pushed::NotThisDevice { .. });
    for status in [408, 425, 429, 500, 502, 503, 504] {
        assert_pushed!(answered(ScriptedReply::status(status)).await, Pushed::Later { after: None, .. });
    }
    let after = answered(ScriptedReply::status(503).header("retry-after", 5)).await;
    assert_pushed!(after, Pushed::Later { after: Some(wait), .. } if *wait == Duration::from_secs(5));
    let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(86_400));
    let after = answered(ScriptedReply::status(429).header("retry-after", date)).await;
    assert_pushed!(after, Pushed::Later { after: Some(wait), .. } if *wait == Duration::from_secs(3_600));
    for status in [401, 403, 405] {
        assert_pushed!(answered(ScriptedReply::status(status)).await, Pushed::Misconfigured { .. });
    }
    for status in [400, 413, 422] {
        assert_pushed!(answered(ScriptedReply::status(status)).await, Pushed::Refused { .. });
    }
}

#[tokio::test]
async fn the_doctor_pings() {
    let (fixture, _) = with_webhook().await;
    let providers = fixture.providers();
    let found = providers.check().await;
    assert!(matches!(&found[..], [(PushProvider::Webhook, Ok(_))]), "{found:?}");
    let request = &fixture.server.requests("/")[0];
    assert_eq!(request.json(), json!({"type": "ping"}));
    assert_signed(request, SECRET.as_bytes());
    fixture.server.answer("/", ScriptedReply::status(401));
    let found = providers.check().await;
    assert!(matches!(&found[..], [(PushProvider::Webhook, Err(why))] if why.contains("401")), "{found:?}");
}

#[tokio::test]
async fn no_secret_is_shown() {
    let (fixture, _) = with_webhook().await;
    assert!(!format!("{:?}", fixture.config).contains(SECRET));
    assert_eq!(format!("{:?}", fixture.providers()), "{Webhook}");
}
