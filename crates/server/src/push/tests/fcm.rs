//! Google's, with its token endpoint.

use std::sync::OnceLock;

use ring::signature::RSA_PKCS1_2048_8192_SHA256;
use rsa::{
    RsaPrivateKey,
    pkcs1::EncodeRsaPublicKey as _,
    pkcs8::{EncodePrivateKey as _, LineEnding},
};
use serde_json::json;

use super::*;
use crate::push::config::FcmConfig;

const SEND: &str = "/v1/projects/chat-1/messages:send";

/// PEM of the private half, DER of the public one. Made once: it takes a while.
fn pair() -> &'static (String, Vec<u8>) {
    static PAIR: OnceLock<(String, Vec<u8>)> = OnceLock::new();
    PAIR.get_or_init(|| {
        let key = RsaPrivateKey::new(&mut rsa::rand_core::OsRng, 2048).unwrap();
        let pem = key.to_pkcs8_pem(LineEnding::LF).unwrap().to_string();
        (pem, key.to_public_key().to_pkcs1_der().unwrap().as_bytes().to_vec())
    })
}

fn account(url: &str) -> Value {
    json!({
        "type": "service_account",
        "project_id": "chat-1",
        "private_key_id": "key-1",
        "private_key": pair().0,
        "client_email": "push@chat-1.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": format!("{url}/token"),
    })
}

async fn with_fcm() -> PushFixture {
    let mut fixture = PushFixture::new().await;
    let file = fixture.file("account.json", &account(&fixture.server.url).to_string());
    fixture.config.fcm = Some(FcmConfig { service_account_file: file, url: fixture.server.url.clone() });
    fixture.server.answer("/token", granted("access-1", 3_600));
    fixture
}

fn granted(token: &str, expires_in: u64) -> ScriptedReply {
    let body = json!({"access_token": token, "expires_in": expires_in, "token_type": "Bearer"});
    ScriptedReply::status(200).header("content-type", "application/json").body(body)
}

fn phone() -> DeviceRow {
    row(PushTarget::Fcm { token: "device-token".into() })
}

/// As FCM writes them: a general status, and its own code among the details.
fn refusal(status: u16, general: &str, own: Option<&str>) -> ScriptedReply {
    let kind = "type.googleapis.com/google.firebase.fcm.v1.FcmError";
    let details: Vec<_> = own.iter().map(|own| json!({"@type": kind, "errorCode": own})).collect();
    let message = "Requested entity was not found.";
    let error = json!({"code": status, "message": message, "status": general, "details": details});
    ScriptedReply::status(status).body(json!({ "error": error }))
}

#[tokio::test]
async fn a_message_is_sent_as_google_wants_it() {
    let fixture = with_fcm().await;
    let providers = fixture.providers();
    assert_eq!(providers.route(&phone().registration).as_deref(), Some("fcm"));
    assert_eq!(providers.push(&phone(), &alert()).await, Pushed::Accepted);

    let asked = &fixture.server.requests("/token")[0];
    assert!(asked.http2 && asked.method == "POST");
    assert_eq!(asked.header("content-type"), Some("application/x-www-form-urlencoded"));
    let form = String::from_utf8(asked.body.clone()).unwrap();
    let assertion = form
        .strip_prefix("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=")
        .unwrap();
    let (message, signature) = assertion.rsplit_once('.').unwrap();
    UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &pair().1)
        .verify(message.as_bytes(), &unbase64(signature))
        .expect("the signature is of the account's key");
    let (header, claims) = parts(message);
    assert_eq!(header, json!({"alg": "RS256", "typ": "JWT", "kid": "key-1"}));
    assert_eq!(claims["iss"], "push@chat-1.iam.gserviceaccount.com");
    assert_eq!(claims["scope"], "https://www.googleapis.com/auth/firebase.messaging");
    assert_eq!(claims["aud"], format!("{}/token", fixture.server.url));
    assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 3_600);

    let request = &fixture.server.requests("/v1/")[0];
    assert!(request.http2);
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", SEND));
    assert_eq!(request.header("authorization"), Some("Bearer access-1"));
    let mut sent = request.json();
    let ttl = sent["message"]["android"]["ttl"].take();
    let seconds: u64 = ttl.as_str().unwrap().strip_suffix('s').unwrap().parse().unwrap();
    assert!((3_000..=3_600).contains(&seconds), "{ttl}");
    assert!(sent["message"]["apns"]["headers"]["apns-expiration"].take().is_string());
    assert_eq!(
        sent,
        json!({"message": {
            "token": "device-token",
            "notification": {"title": "Alice", "body": "where are you?"},
            "data": {
                "type": "message",
                "message_id": "4242",
                "conversation_id": "alice~bob",
                "seq": "7",
                "sender": "alice",
                "badge": "3",
                "tag": COLLAPSE_ID,
            },
            "android": {
                "collapse_key": COLLAPSE_ID,
                "priority": "HIGH",
                "ttl": null,
                "notification": {"tag": COLLAPSE_ID, "notification_count": 3},
            },
            "apns": {
                "headers": {"apns-collapse-id": COLLAPSE_ID, "apns-priority": "10", "apns-expiration": null},
                "payload": {"aps": {
                    "badge": 3, "sound": "default", "thread-id": COLLAPSE_ID, "mutable-content": 1,
                }},
            },
        }})
    );
}

#[tokio::test]
async fn what_was_read_elsewhere_is_data_only() {
    let fixture = with_fcm().await;
    assert_eq!(fixture.providers().push(&phone(), &clear()).await, Pushed::Accepted);
    let sent = fixture.server.requests("/v1/")[0].json()["message"].take();
    assert!(sent.get("notification").is_none() && sent["android"].get("notification").is_none());
    assert_eq!(sent["android"]["priority"], "NORMAL");
    assert_ne!(sent["android"]["collapse_key"], COLLAPSE_ID);
    assert_eq!(
        sent["data"],
        json!({"type": "clear", "conversation_id": "alice~bob", "seq": "7", "badge": "3", "tag": COLLAPSE_ID})
    );
}

#[tokio::test]
async fn a_long_name_is_cut_to_what_google_takes() {
    let fixture = with_fcm().await;
    let long = alert_saying(&"é".repeat(5_000), "where are you?");
    assert_eq!(fixture.providers().push(&phone(), &long).await, Pushed::Accepted);
    let request = &fixture.server.requests("/v1/")[0];
    assert!((4_000..=4_096).contains(&request.body.len()), "{}", request.body.len());
}

#[tokio::test]
async fn one_token_serves_all_until_it_is_about_to_expire() {
    let fixture = with_fcm().await;
    let providers = fixture.providers();
    let (phone, alert) = (phone(), alert());
    let pushes = (0..8).map(|_| providers.push(&phone, &alert));
    let pushed = futures_util::future::join_all(pushes).await;
    assert!(pushed.iter().all(|pushed| *pushed == Pushed::Accepted), "{pushed:?}");
    assert_eq!(fixture.server.requests("/token").len(), 1);

    let providers = fixture.providers();
    fixture.server.forget();
    fixture.server.answer("/token", granted("access-2", 59));
    for _ in 0..2 {
        assert_eq!(providers.push(&phone, &alert).await, Pushed::Accepted);
    }
    assert_eq!(fixture.server.requests("/token").len(), 2, "one that is about to expire is not used again");
}

#[tokio::test]
async fn a_token_that_is_not_taken_is_fetched_anew_once() {
    let fixture = with_fcm().await;
    let providers = fixture.providers();
    fixture.server.answer_once("/token", granted("access-0", 3_600));
    fixture.server.answer_once(SEND, refusal(401, "UNAUTHENTICATED", None));
    assert_eq!(providers.push(&phone(), &alert()).await, Pushed::Accepted);
    let shown: Vec<_> =
        fixture.server.requests(SEND).iter().map(|r| r.header("authorization").unwrap().to_owned()).collect();
    assert_eq!(shown, ["Bearer access-0", "Bearer access-1"]);

    fixture.server.forget();
    fixture.server.answer(SEND, refusal(401, "UNAUTHENTICATED", None));
    assert_pushed!(providers.push(&phone(), &alert()).await, Pushed::Misconfigured { .. });
    assert_eq!((fixture.server.requests(SEND).len(), fixture.server.requests("/token").len()), (2, 1));
}

#[tokio::test]
async fn the_token_endpoint_decides_too() {
    let fixture = with_fcm().await;
    let providers = fixture.providers();
    let answered = async |reply: ScriptedReply| {
        fixture.server.answer("/token", reply);
        providers.push(&phone(), &alert()).await
    };
    let refused = |status: u16, error: &str| ScriptedReply::status(status).body(json!({"error": error}));
    for (status, error) in [(400, "invalid_grant"), (401, "invalid_client")] {
        match answered(refused(status, error)).await {
            Pushed::Misconfigured { why } => {
                assert!(why.contains(error) && why.contains("push.fcm"), "{why}")
            }
            other => panic!("{other:?}"),
        }
    }
    let after = answered(ScriptedReply::status(503).header("retry-after", 9)).await;
    assert_pushed!(after, Pushed::Later { after: Some(wait), .. } if *wait == Duration::from_secs(9));
    assert_pushed!(answered(ScriptedReply::hang_up()).await, Pushed::Later { after: None, .. });
    assert_pushed!(answered(ScriptedReply::status(200).body("what?")).await, Pushed::Later { .. });
    assert!(fixture.server.requests("/v1/").is_empty());
    assert_eq!(answered(granted("access-1", 3_600)).await, Pushed::Accepted, "a failure is not kept");
}

#[tokio::test]
async fn who_waits_for_a_token_shares_the_failure() {
    let fixture = with_fcm().await;
    let providers = fixture.providers();
    fixture.server.answer("/token", ScriptedReply::status(503));
    let (phone, alert) = (phone(), alert());
    let pushed = futures_util::future::join_all((0..16).map(|_| providers.push(&phone, &alert))).await;
    assert!(pushed.iter().all(|pushed| matches!(pushed, Pushed::Later { .. })), "{pushed:?}");
    assert_eq!(fixture.server.requests("/token").len(), 1);
}

#[tokio::test]
async fn every_answer_is_obeyed() {
    let fixture = with_fcm().await;
    let providers = fixture.providers();
    let answered = async |reply: ScriptedReply| {
        fixture.server.answer(SEND, reply);
        providers.push(&phone(), &alert()).await
    };
    assert_pushed!(answered(refusal(404, "NOT_FOUND", Some("UNREGISTERED"))).await, Pushed::Gone { .. });
    assert_pushed!(answered(refusal(404, "NOT_FOUND", None)).await, Pushed::Gone { .. });
    let by_field = json!({"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "Invalid value",
        "details": [{"@type": "type.googleapis.com/google.rpc.BadRequest",
            "fieldViolations": [{"field": "message.token", "description": "Invalid registration token"}]}]}});
    assert_pushed!(answered(ScriptedReply::status(400).body(by_field)).await, Pushed::Gone { .. });
    let by_text = json!({"error": {"code": 400, "status": "INVALID_ARGUMENT",
        "message": "The registration token is not a valid FCM registration token",
        "details": [{"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError",
            "errorCode": "INVALID_ARGUMENT"}]}});
    assert_pushed!(answered(ScriptedReply::status(400).body(by_text)).await, Pushed::Gone { .. });
    let ours = json!({"error": {"code": 400, "status": "INVALID_ARGUMENT",
        "message": "Invalid value at 'message.data[0].value' (TYPE_STRING), 12",
        "details": [{"@type": "type.googleapis.com/google.rpc.BadRequest",
            "fieldViolations": [{"field": "message.data[0].value", "description": "Invalid value"}]}]}});
    assert_pushed!(answered(ScriptedReply::status(400).body(ours)).await, Pushed::Refused { .. });

    let mismatch = refusal(403, "PERMISSION_DENIED", Some("SENDER_ID_MISMATCH"));
    assert_pushed!(answered(mismatch).await, Pushed::NotThisDevice { .. });
    assert_pushed!(answered(refusal(403, "PERMISSION_DENIED", None)).await, Pushed::Misconfigured { .. });
    let nowhere = ScriptedReply::status(404).body("<html>not here</html>");
    assert_pushed!(answered(nowhere).await, Pushed::Misconfigured { .. });

    let quota = refusal(429, "RESOURCE_EXHAUSTED", Some("QUOTA_EXCEEDED"));
    let after = answered(quota.clone()).await;
    assert_pushed!(after, Pushed::NotThisDevice { after: Some(wait), .. } if *wait == MINUTE);
    let after = answered(quota.header("retry-after", 7)).await;
    assert_pushed!(after, Pushed::NotThisDevice { after: Some(wait), .. } if *wait == Duration::from_secs(7));
    for (status, code) in [(503, "UNAVAILABLE"), (500, "INTERNAL"), (502, "")] {
        assert_pushed!(answered(refusal(status, code, Some(code))).await, Pushed::Later { after: None, .. });
    }

    fixture.server.forget();
    let third_party = refusal(401, "UNAUTHENTICATED", Some("THIRD_PARTY_AUTH_ERROR"));
    assert_pushed!(answered(third_party).await, Pushed::NotThisDevice { .. });
    assert!(fixture.server.requests("/token").is_empty(), "no new token helps");
}

#[tokio::test]
async fn the_doctor_has_a_message_looked_at() {
    let fixture = with_fcm().await;
    fixture.server.answer(SEND, refusal(400, "INVALID_ARGUMENT", Some("INVALID_ARGUMENT")));
    let found = fixture.providers().check().await;
    assert!(matches!(&found[..], [(PushProvider::Fcm, Ok(_))]), "{found:?}");
    assert_eq!(fixture.server.requests(SEND)[0].json()["validate_only"], true);
    fixture.server.answer(SEND, refusal(403, "PERMISSION_DENIED", None));
    let found = fixture.providers().check().await;
    assert!(matches!(&found[..], [(PushProvider::Fcm, Err(_))]), "{found:?}");
    fixture.server.answer("/token", ScriptedReply::status(400).body(json!({"error": "invalid_grant"})));
    let found = fixture.providers().check().await;
    let [(PushProvider::Fcm, Err(why))] = &found[..] else { panic!("{found:?}") };
    assert!(why.contains("invalid_grant"), "{why}");
}

#[tokio::test]
async fn an_account_that_is_none_is_told_by_its_setting() {
    let mut fixture = with_fcm().await;
    assert_eq!(format!("{:?}", fixture.providers()), "{Fcm}");
    let whole = account(&fixture.server.url);
    let without = |key: &str| {
        let mut account = whole.clone();
        account.as_object_mut().unwrap().remove(key);
        account.to_string()
    };
    let with = |key: &str, value: &str| {
        let mut account = whole.clone();
        account[key] = value.into();
        account.to_string()
    };
    for (text, needle) in [
        ("{".to_owned(), "service account"),
        (without("client_email"), "client_email"),
        (without("project_id"), "project_id"),
        (with("token_uri", "http://token.example/"), "token_uri"),
        (with("private_key", "s3cret"), "private_key"),
    ] {
        fixture.config.fcm.as_mut().unwrap().service_account_file = fixture.file("bad.json", &text);
        let why = refused(&fixture.config);
        assert!(why.contains("push.fcm.service_account_file") && why.contains(needle), "{why}");
        assert!(!why.contains("s3cret") && !why.contains("BEGIN"), "{why}");
    }
}
