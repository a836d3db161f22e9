//! Apple's.

use serde_json::json;

use super::*;
use crate::push::config::ApnsConfig;

const TOKEN: &str = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0";

/// Settings for Apple's server, and the public half of the key.
async fn with_apns() -> (PushFixture, String) {
    let mut fixture = PushFixture::new().await;
    let (pem, public) = make_vapid_key().unwrap();
    fixture.config.apns = Some(ApnsConfig {
        key_file: fixture.file("AuthKey.p8", &pem),
        key_id: "KEY1234567".into(),
        team_id: "TEAM123456".into(),
        topic: "org.example.app".into(),
        url: fixture.server.url.clone(),
        sandbox_url: format!("{}/sandbox/", fixture.server.url),
    });
    (fixture, public)
}

fn phone() -> DeviceRow {
    row(PushTarget::Apns { token: TOKEN.into(), topic: None, sandbox: false })
}

fn refusal(status: u16, reason: &str) -> ScriptedReply {
    ScriptedReply::status(status).body(json!({"reason": reason}))
}

#[tokio::test]
async fn a_message_is_sent_as_apple_wants_it() {
    let (fixture, public) = with_apns().await;
    let providers = fixture.providers();
    let (phone, alert) = (phone(), alert());
    assert_eq!(providers.route(&phone.registration).as_deref(), Some("apns"));
    assert_eq!(providers.allows(&phone.registration.target), Ok(()));
    assert_eq!(providers.push(&phone, &alert).await, Pushed::Accepted);

    let requests = fixture.server.requests("/");
    let [request] = &requests[..] else { panic!("{requests:?}") };
    assert!(request.http2);
    assert_eq!((request.method.as_str(), request.path.clone()), ("POST", format!("/3/device/{TOKEN}")));
    assert_eq!(request.header("apns-topic"), Some("org.example.app"));
    assert_eq!(request.header("apns-push-type"), Some("alert"));
    assert_eq!(request.header("apns-priority"), Some("10"));
    assert_eq!(request.header("apns-collapse-id"), Some(COLLAPSE_ID));
    assert_eq!(request.header("apns-expiration"), Some((alert.expires_at / 1_000).to_string().as_str()));
    assert_eq!(request.header("apns-id"), Some(payload::request_id(&phone, &alert).as_str()));
    assert_eq!(
        request.json(),
        json!({
            "aps": {
                "alert": {"title": "Alice", "body": "where are you?"},
                "badge": 3,
                "sound": "default",
                "thread-id": COLLAPSE_ID,
                "mutable-content": 1,
            },
            "bluetick": {
                "type": "message",
                "message_id": "4242",
                "conversation_id": "alice~bob",
                "seq": 7,
                "sender": "alice",
                "tag": COLLAPSE_ID,
            },
        })
    );
    let token = request.header("authorization").unwrap().strip_prefix("Bearer ").unwrap();
    let (header, claims) = verified(token, &public);
    assert_eq!((&header["alg"], &header["kid"]), (&json!("ES256"), &json!("KEY1234567")));
    assert_eq!(claims["iss"], "TEAM123456");
    assert!(now_ms() / 1_000 - claims["iat"].as_u64().unwrap() < 600);
}

#[tokio::test]
async fn sent_again_it_has_the_same_id_and_token() {
    let (fixture, _) = with_apns().await;
    let providers = fixture.providers();
    fixture.server.answer_once("/", ScriptedReply::status(503));
    assert_pushed!(providers.push(&phone(), &alert()).await, Pushed::Later { .. });
    let later = Notification { badge: 4, ..alert() };
    assert_eq!(providers.push(&phone(), &later).await, Pushed::Accepted);
    let requests = fixture.server.requests("/");
    for name in ["apns-id", "apns-collapse-id", "authorization"] {
        assert!(requests[0].header(name).is_some());
        assert_eq!(requests[0].header(name), requests[1].header(name), "{name}");
    }
}

#[tokio::test]
async fn what_was_read_elsewhere_sets_the_badge_in_silence() {
    let (fixture, _) = with_apns().await;
    assert_eq!(fixture.providers().push(&phone(), &clear()).await, Pushed::Accepted);
    let request = &fixture.server.requests("/")[0];
    assert_eq!(request.header("apns-priority"), Some("5"));
    assert_ne!(request.header("apns-collapse-id"), Some(COLLAPSE_ID));
    assert_eq!(
        request.json(),
        json!({
            "aps": {"badge": 3, "content-available": 1},
            "bluetick": {"type": "clear", "conversation_id": "alice~bob", "seq": 7, "tag": COLLAPSE_ID},
        })
    );
}

#[tokio::test]
async fn where_nothing_may_be_known_nothing_is_said() {
    let (fixture, _) = with_apns().await;
    let quiet = notification(NotificationKind::Alert {
        title: "New message".into(),
        body: None,
        message_id: MessageId(4242),
        seq: 7,
        about: None,
    });
    assert_eq!(fixture.providers().push(&phone(), &quiet).await, Pushed::Accepted);
    let sent = fixture.server.requests("/")[0].json();
    assert_eq!(sent["aps"]["alert"], json!({"title": "New message"}));
    assert_eq!(
        sent["bluetick"],
        json!({"type": "message", "message_id": "4242", "seq": 7, "tag": COLLAPSE_ID})
    );
}

#[tokio::test]
async fn a_development_build_and_another_app_have_their_own_ways() {
    let (fixture, _) = with_apns().await;
    let topic = Some("org.example.other".to_owned());
    let phone = row(PushTarget::Apns { token: TOKEN.into(), topic, sandbox: true });
    assert_eq!(fixture.providers().push(&phone, &alert()).await, Pushed::Accepted);
    let request = &fixture.server.requests("/")[0];
    assert_eq!(request.path, format!("/sandbox/3/device/{TOKEN}"));
    assert_eq!(request.header("apns-topic"), Some("org.example.other"));

    let providers = fixture.providers();
    fixture.server.answer("/", refusal(400, "TopicDisallowed"));
    assert_pushed!(providers.push(&phone, &alert()).await, Pushed::Refused { .. });
    assert_pushed!(providers.push(&self::phone(), &alert()).await, Pushed::NotThisDevice { .. });
}

#[tokio::test]
async fn a_long_name_is_cut_to_what_apple_takes() {
    let (fixture, _) = with_apns().await;
    let long = alert_saying(&"é".repeat(5_000), "where are you?");
    assert_eq!(fixture.providers().push(&phone(), &long).await, Pushed::Accepted);
    let request = &fixture.server.requests("/")[0];
    assert!((4_000..=4_096).contains(&request.body.len()), "{}", request.body.len());
    assert_eq!(request.json()["aps"]["alert"]["body"], "where are you?");
}

#[tokio::test]
async fn every_answer_is_obeyed() {
    let (fixture, _) = with_apns().await;
    let providers = fixture.providers();
    let answered = async |reply: ScriptedReply| {
        fixture.server.answer("/", reply);
        providers.push(&phone(), &alert()).await
    };
    for reason in ["Unregistered", "ExpiredToken"] {
        let gone =
            ScriptedReply::status(410).body(json!({"reason": reason, "timestamp": 1_700_000_000_123_u64}));
        assert_pushed!(answered(gone).await, Pushed::Gone { since: Some(1_700_000_000_123), .. });
    }
    assert_pushed!(answered(refusal(400, "BadDeviceToken")).await, Pushed::Gone { since: None, .. });
    for (status, reason) in [
        (403, "InvalidProviderToken"),
        (403, "MissingProviderToken"),
        (403, "BadCertificate"),
        (403, "BadEnvironmentKeyInToken"),
        (404, "BadPath"),
        (429, "TooManyProviderTokenUpdates"),
    ] {
        match answered(refusal(status, reason)).await {
            Pushed::Misconfigured { why } => assert!(why.contains(reason), "{why}"),
            other => panic!("{reason}: {other:?}"),
        }
    }
    // Of one device these tell, which must not hold up the others.
    for (status, reason) in [
        (400, "DeviceTokenNotForTopic"),
        (400, "TopicDisallowed"),
        (400, "BadTopic"),
        (400, "MissingTopic"),
        (429, "TooManyRequests"),
    ] {
        assert_pushed!(answered(refusal(status, reason)).await, Pushed::NotThisDevice { after: None, .. });
    }
    for (status, reason) in [(400, "IdleTimeout"), (500, "InternalServerError"), (503, "ServiceUnavailable")]
    {
        assert_pushed!(answered(refusal(status, reason)).await, Pushed::Later { after: None, .. });
    }
    let after = answered(refusal(429, "TooManyRequests").header("retry-after", 17)).await;
    assert_pushed!(after, Pushed::NotThisDevice { after: Some(wait), .. } if *wait == Duration::from_secs(17));
    for (status, reason) in [(400, "BadCollapseId"), (400, "PayloadEmpty"), (413, "PayloadTooLarge")] {
        assert_pushed!(answered(refusal(status, reason)).await, Pushed::Refused { .. });
    }
    assert_pushed!(answered(ScriptedReply::status(400).body("not JSON")).await, Pushed::Refused { .. });
}

#[tokio::test]
async fn an_expired_token_is_made_anew_once() {
    let (fixture, public) = with_apns().await;
    let providers = fixture.providers();
    fixture.server.answer_once("/", refusal(403, "ExpiredProviderToken"));
    assert_eq!(providers.push(&phone(), &alert()).await, Pushed::Accepted);
    let requests = fixture.server.requests("/");
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].header("apns-id"), requests[1].header("apns-id"));
    let token = requests[1].header("authorization").unwrap().strip_prefix("Bearer ").unwrap();
    verified(token, &public);

    // A server whose clock is wrong does not ask for tokens without end.
    fixture.server.forget();
    fixture.server.answer("/", refusal(403, "ExpiredProviderToken"));
    assert_pushed!(providers.push(&phone(), &alert()).await, Pushed::Misconfigured { .. });
    assert_eq!(fixture.server.requests("/").len(), 1);
}

#[tokio::test]
async fn the_doctor_asks_for_a_device_that_is_not_there() {
    let (fixture, _) = with_apns().await;
    fixture.server.answer("/", refusal(400, "BadDeviceToken"));
    let found = fixture.providers().check().await;
    assert!(matches!(&found[..], [(PushProvider::Apns, Ok(_))]), "{found:?}");
    assert_eq!(fixture.server.requests("/")[0].path, format!("/3/device/{}", "0".repeat(64)));
    fixture.server.answer("/", refusal(403, "InvalidProviderToken"));
    let found = fixture.providers().check().await;
    let [(PushProvider::Apns, Err(why))] = &found[..] else { panic!("{found:?}") };
    assert!(why.contains("InvalidProviderToken") && why.contains("push.apns"), "{why}");
}

#[tokio::test]
async fn a_key_that_is_none_is_told_by_its_setting() {
    let (mut fixture, _) = with_apns().await;
    let providers = fixture.providers();
    assert_eq!(format!("{providers:?}"), "{Apns}");
    let bad = fixture.file("bad.p8", "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n");
    fixture.config.apns.as_mut().unwrap().key_file = bad;
    let why = refused(&fixture.config);
    assert!(why.contains("push.apns.key_file") && why.contains("bad.p8") && !why.contains("c2Vj"), "{why}");
    fixture.config.apns.as_mut().unwrap().key_file = "/nowhere/key.p8".into();
    assert!(refused(&fixture.config).contains("/nowhere/key.p8"));
}
