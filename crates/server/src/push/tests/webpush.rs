//! Browsers', and what a browser reads.

use bluetick_protocol::{PushKeys, PushSubscription};
use p256::{
    PublicKey, SecretKey,
    ecdh::diffie_hellman,
    elliptic_curve::{rand_core::OsRng, sec1::ToEncodedPoint as _},
};
use ring::{
    aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, KeyType, Salt},
};
use serde_json::json;

use super::*;
use crate::push::config::{BROWSERS, WebPushConfig};

const SUBJECT: &str = "mailto:ops@example.org";
const AUTH: [u8; 16] = *b"0123456789abcdef";

/// A browser that has subscribed.
struct Browser {
    secret: SecretKey,
    device: DeviceRow,
}

impl Browser {
    fn at(endpoint: &str) -> Browser {
        let secret = SecretKey::random(&mut OsRng);
        let keys = PushKeys { p256dh: base64(&point(&secret.public_key())), auth: base64(&AUTH) };
        let subscription = PushSubscription { endpoint: endpoint.into(), keys };
        Browser { secret, device: row(PushTarget::Webpush { subscription }) }
    }

    /// RFC 8291 and RFC 8188 from the receiver's side, by another library than the one that
    /// encrypts.
    fn decrypt(&self, body: &[u8]) -> Value {
        let (salt, rest) = body.split_at(16);
        let (record_size, rest) = rest.split_at(4);
        let (key_length, rest) = rest.split_first().unwrap();
        let (sender, record) = rest.split_at(usize::from(*key_length));
        assert!(record.len() <= u32::from_be_bytes(record_size.try_into().unwrap()) as usize, "one record");
        let public = PublicKey::from_sec1_bytes(sender).unwrap();
        let shared = diffie_hellman(self.secret.to_nonzero_scalar(), public.as_affine());
        let info = [b"WebPush: info\0", &point(&self.secret.public_key())[..], sender].concat();
        let input = derive(&AUTH, shared.raw_secret_bytes(), &info, 32);
        let key = derive(salt, &input, b"Content-Encoding: aes128gcm\0", 16);
        let nonce = derive(salt, &input, b"Content-Encoding: nonce\0", 12);
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).unwrap());
        let nonce = Nonce::try_assume_unique_for_key(&nonce).unwrap();
        let mut record = record.to_vec();
        let plain = key.open_in_place(nonce, Aad::empty(), &mut record).expect("it is for this browser");
        let end = plain.iter().rposition(|byte| *byte != 0).unwrap();
        assert_eq!(plain[end], 2, "the last record");
        serde_json::from_slice(&plain[..end]).unwrap()
    }
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn derive(salt: &[u8], input: &[u8], info: &[u8], length: usize) -> Vec<u8> {
    let mut out = vec![0; length];
    let key = Salt::new(HKDF_SHA256, salt).extract(input);
    key.expand(&[info], Length(length)).unwrap().fill(&mut out).unwrap();
    out
}

fn point(key: &PublicKey) -> Vec<u8> {
    key.to_encoded_point(false).as_bytes().to_vec()
}

fn base64(bytes: &[u8]) -> String {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Settings that allow the server here, and a browser that has subscribed at it.
async fn with_webpush() -> (PushFixture, Browser) {
    let mut fixture = PushFixture::new().await;
    let (pem, _) = make_vapid_key().unwrap();
    let host = fixture.server.url.strip_prefix("https://").unwrap().to_owned();
    fixture.config.webpush = Some(WebPushConfig {
        key_file: fixture.file("vapid.pem", &pem),
        subject: SUBJECT.into(),
        hosts: vec![host, "*.push.example".into()],
    });
    let browser = Browser::at(&format!("{}/push/abc?x=1", fixture.server.url));
    (fixture, browser)
}

#[tokio::test]
async fn a_browser_can_read_what_is_sent_and_nobody_else() {
    let (fixture, browser) = with_webpush().await;
    let providers = fixture.providers();
    let origin = &fixture.server.url;
    let route = providers.route(&browser.device.registration);
    assert_eq!(route, Some(format!("webpush {}", origin.strip_prefix("https://").unwrap())));
    assert_eq!(providers.allows(&browser.device.registration.target), Ok(()));
    fixture.server.answer("/", ScriptedReply::status(201));
    assert_eq!(providers.push(&browser.device, &alert()).await, Pushed::Accepted);

    let request = &fixture.server.requests("/")[0];
    assert!(request.http2);
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/push/abc?x=1"));
    assert_eq!(request.header("content-encoding"), Some("aes128gcm"));
    assert_eq!(request.header("urgency"), Some("high"));
    assert_eq!(request.header("topic"), Some(COLLAPSE_ID));
    let ttl: u64 = request.header("ttl").unwrap().parse().unwrap();
    assert!((3_000..=3_600).contains(&ttl), "{ttl}");
    assert_eq!(
        browser.decrypt(&request.body),
        json!({
            "type": "message",
            "title": "Alice",
            "body": "where are you?",
            "badge": 3,
            "message_id": "4242",
            "conversation_id": "alice~bob",
            "seq": 7,
            "sender": "alice",
            "tag": COLLAPSE_ID,
        })
    );

    let shown = request.header("authorization").unwrap().strip_prefix("vapid t=").unwrap();
    let (token, key) = shown.split_once(", k=").unwrap();
    assert_eq!(Some(key), providers.vapid_public_key());
    let (header, claims) = verified(token, key);
    assert_eq!(header["alg"], "ES256");
    assert_eq!((&claims["aud"], &claims["sub"]), (&json!(origin), &json!(SUBJECT)));
    let ahead = claims["exp"].as_u64().unwrap() - now_ms() / 1_000;
    assert!((3_600..86_400).contains(&ahead), "{ahead}");
}

#[tokio::test]
async fn each_time_it_is_encrypted_anew_and_signed_once() {
    let (fixture, browser) = with_webpush().await;
    let providers = fixture.providers();
    for _ in 0..2 {
        assert_eq!(providers.push(&browser.device, &alert()).await, Pushed::Accepted);
    }
    let requests = fixture.server.requests("/");
    assert_ne!(requests[0].body, requests[1].body);
    assert_eq!(requests[0].header("authorization"), requests[1].header("authorization"));
}

#[tokio::test]
async fn what_was_read_elsewhere_has_a_topic_of_its_own() {
    let (fixture, browser) = with_webpush().await;
    assert_eq!(fixture.providers().push(&browser.device, &clear()).await, Pushed::Accepted);
    let request = &fixture.server.requests("/")[0];
    assert_eq!(request.header("urgency"), Some("normal"));
    assert!(request.header("topic").is_some_and(|topic| topic != COLLAPSE_ID && topic.len() <= 32));
    assert_eq!(
        browser.decrypt(&request.body),
        json!({"type": "clear", "conversation_id": "alice~bob", "seq": 7, "badge": 3, "tag": COLLAPSE_ID}),
        "the tag says which notification to take away"
    );
}

#[tokio::test]
async fn a_long_name_is_cut_to_what_push_services_take() {
    let (fixture, browser) = with_webpush().await;
    let long = alert_saying(&"é".repeat(5_000), "where are you?");
    assert_eq!(fixture.providers().push(&browser.device, &long).await, Pushed::Accepted);
    let request = &fixture.server.requests("/")[0];
    assert!((2_900..3_200).contains(&request.body.len()), "{}", request.body.len());
    assert_eq!(browser.decrypt(&request.body)["body"], "where are you?");
}

#[tokio::test]
async fn only_push_services_are_called() {
    let (fixture, browser) = with_webpush().await;
    let providers = fixture.providers();
    let port = fixture.server.url.rsplit_once(':').unwrap().1;
    for endpoint in [
        "https://internal.example/x".to_owned(),
        "https://push.example/x".to_owned(),
        "https://evilpush.example/x".to_owned(),
        "https://a.push.example.evil.example/x".to_owned(),
        "https://a.push.example:8443/x".to_owned(),
        "http://a.push.example/x".to_owned(),
        "https://user@a.push.example/x".to_owned(),
        "https://169.254.169.254/latest".to_owned(),
        format!("https://127.0.0.1:{port}/x"),
        "https://localhost/x".to_owned(),
        "nonsense".to_owned(),
    ] {
        let other = Browser::at(&endpoint).device;
        assert_eq!(providers.route(&other.registration), None, "{endpoint}");
        let why = providers.allows(&other.registration.target).unwrap_err();
        assert!(why.contains("endpoint"), "{why}");
        assert_pushed!(providers.push(&other, &alert()).await, Pushed::NotThisDevice { .. });
    }
    assert!(fixture.server.requests("/").is_empty());
    let allowed = Browser::at("https://A.Push.Example:443/x").device;
    assert_eq!(providers.route(&allowed.registration).as_deref(), Some("webpush *.push.example"));

    let mut spoilt = browser.device.clone();
    if let PushTarget::Webpush { subscription } = &mut spoilt.registration.target {
        subscription.keys.p256dh = base64(&[4; 65]);
    }
    assert!(providers.allows(&spoilt.registration.target).unwrap_err().contains("keys"));
    assert_pushed!(providers.push(&spoilt, &alert()).await, Pushed::Gone { .. });
}

#[tokio::test]
async fn the_browsers_of_today_are_allowed_without_being_named() {
    let (mut fixture, _) = with_webpush().await;
    fixture.config.webpush.as_mut().unwrap().hosts = BROWSERS.map(String::from).to_vec();
    let providers = fixture.providers();
    for endpoint in [
        "https://fcm.googleapis.com/fcm/send/abc",
        "https://updates.push.services.mozilla.com/wpush/v2/abc",
        "https://wns2-par02p.notify.windows.com/w/?token=abc",
        "https://web.push.apple.com/abc",
    ] {
        assert_eq!(providers.allows(&Browser::at(endpoint).device.registration.target), Ok(()), "{endpoint}");
    }
}

#[tokio::test]
async fn every_answer_is_obeyed() {
    let (fixture, browser) = with_webpush().await;
    let providers = fixture.providers();
    let answered = async |reply: ScriptedReply| {
        fixture.server.answer("/", reply);
        providers.push(&browser.device, &alert()).await
    };
    for status in [200, 201, 202] {
        assert_eq!(answered(ScriptedReply::status(status)).await, Pushed::Accepted);
    }
    for status in [404, 410] {
        assert_pushed!(answered(ScriptedReply::status(status)).await, Pushed::Gone { .. });
    }
    for status in [406, 429, 500, 503] {
        assert_pushed!(answered(ScriptedReply::status(status)).await, Pushed::Later { after: None, .. });
    }
    let after = answered(ScriptedReply::status(429).header("retry-after", 30)).await;
    assert_pushed!(after, Pushed::Later { after: Some(wait), .. } if *wait == Duration::from_secs(30));
    for status in [401, 403] {
        let reply = ScriptedReply::status(status).body(json!({"reason": "BadJwtToken"}));
        assert_pushed!(answered(reply).await, Pushed::NotThisDevice { why, .. } if why.contains("BadJwtToken"));
    }
    let other_key = ScriptedReply::status(400).body(json!({"reason": "VapidPkHashMismatch"}));
    assert_pushed!(answered(other_key).await, Pushed::NotThisDevice { .. });
    for status in [400, 413] {
        assert_pushed!(answered(ScriptedReply::status(status)).await, Pushed::Refused { .. });
    }
}

#[tokio::test]
async fn keys_are_read_as_openssl_and_we_write_them() {
    let (mut fixture, browser) = with_webpush().await;
    let secret = SecretKey::random(&mut OsRng);
    let public = base64(&point(&secret.public_key()));
    let sec1 = secret.to_sec1_pem(p256::pkcs8::LineEnding::LF).unwrap();
    // What `openssl ecparam -genkey` writes before the key.
    let parameters = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";
    let file = fixture.file("sec1.pem", &format!("{parameters}{}", sec1.as_str()));
    fixture.config.webpush.as_mut().unwrap().key_file = file;
    let providers = fixture.providers();
    assert_eq!(providers.vapid_public_key(), Some(public.as_str()));
    assert_eq!(providers.push(&browser.device, &alert()).await, Pushed::Accepted);
    let request = &fixture.server.requests("/")[0];
    let (token, _) = request.header("authorization").unwrap().split_once(", k=").unwrap();
    verified(token.strip_prefix("vapid t=").unwrap(), &public);

    let found = providers.check().await;
    assert_eq!(found, [(PushProvider::Webpush, Ok(format!("the public key is {public}")))]);
    assert_eq!(format!("{providers:?}"), "{Webpush}");
    fixture.config.webpush.as_mut().unwrap().key_file = fixture.file("bad.pem", "nonsense");
    let why = refused(&fixture.config);
    assert!(why.contains("push.webpush.key_file") && !why.contains("nonsense"), "{why}");
}
