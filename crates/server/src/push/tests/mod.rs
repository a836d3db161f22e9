//! Each provider against a server that speaks its protocol over HTTP/2 and TLS, and remembers what
//! it got.

mod apns;
mod fcm;
mod recorder;
mod webhook;
mod webpush;

use std::time::SystemTime;

use bluetick_chat::{About, NotificationKind};
use bluetick_protocol::{ConversationId, DeviceId, MessageId, PushContent, UserId};
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::Value;
use tempfile::TempDir;

use super::{config::WebhookConfig, payload::fit, *};
use crate::config::Secret;
use recorder::{Recorder, ScriptedReply};

const COLLAPSE_ID: &str = "abcdefghijklmnopqrstuvwxyz012345";
const MINUTE: Duration = Duration::from_secs(60);

/// A provider's server, and settings that trust it.
struct PushFixture {
    dir: TempDir,
    server: Recorder,
    config: PushSettings,
}

impl PushFixture {
    async fn new() -> PushFixture {
        let dir = tempfile::tempdir().unwrap();
        let server = Recorder::start().await;
        let ca_file = dir.path().join("ca.pem");
        std::fs::write(&ca_file, &server.ca_pem).unwrap();
        let config = PushSettings {
            content: PushContent::Preview,
            text: "New message".into(),
            delay_ms: 1_000,
            unacked_secs: 20,
            max_age_secs: 86_400,
            concurrency: 64,
            claim_secs: 60,
            ca_file: Some(ca_file),
            apns: None,
            fcm: None,
            webpush: None,
            webhook: None,
        };
        PushFixture { dir, server, config }
    }

    fn file(&self, name: &str, text: &str) -> std::path::PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn providers(&self) -> Providers {
        Providers::with_timeout(&self.config, MINUTE).unwrap()
    }
}

/// The result of a failed setup.
fn refused(config: &PushSettings) -> String {
    Providers::new(config).unwrap_err().to_string()
}

fn row(target: PushTarget) -> DeviceRow {
    DeviceRow {
        user_id: UserId::new("bob").unwrap(),
        device: DeviceId::new("phone").unwrap(),
        registration: PushRegistration { target, content: PushContent::Preview },
        registered_at: 5,
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64
}

fn about(sender: Option<&str>) -> Option<About> {
    Some(About {
        conversation_id: "alice~bob".parse::<ConversationId>().unwrap(),
        sender: sender.map(|sender| UserId::new(sender).unwrap()),
    })
}

fn notification(kind: NotificationKind) -> Notification {
    Notification {
        id: "4242".into(),
        collapse_id: COLLAPSE_ID.into(),
        kind,
        badge: 3,
        expires_at: now_ms() + 3_600_000,
    }
}

fn alert_saying(title: &str, body: &str) -> Notification {
    notification(NotificationKind::Alert {
        title: title.into(),
        body: Some(body.into()),
        message_id: MessageId(4242),
        seq: 7,
        about: about(Some("alice")),
    })
}

fn alert() -> Notification {
    alert_saying("Alice", "where are you?")
}

fn clear() -> Notification {
    notification(NotificationKind::Clear { seq: 7, about: about(None) })
}

/// Another kind of result than the one named fails the test, and shows itself.
macro_rules! assert_pushed {
    ($pushed:expr, $pattern:pat $(if $guard:expr)?) => {
        let pushed = $pushed;
        assert!(matches!(&pushed, $pattern $(if $guard)?), "{pushed:?} is not {}", stringify!($pattern));
    };
}
use assert_pushed;

/// The two parts of a JWT whose ES256 signature the public key confirms.
fn verified(token: &str, public_key: &str) -> (Value, Value) {
    let (message, signature) = token.rsplit_once('.').unwrap();
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, unbase64(public_key))
        .verify(message.as_bytes(), &unbase64(signature))
        .expect("the signature is of this key");
    parts(message)
}

fn parts(message: &str) -> (Value, Value) {
    let (header, claims) = message.split_once('.').unwrap();
    let read = |text: &str| serde_json::from_slice(&unbase64(text)).unwrap();
    (read(header), read(claims))
}

fn unbase64(text: &str) -> Vec<u8> {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    URL_SAFE_NO_PAD.decode(text).unwrap()
}

#[tokio::test]
async fn what_is_not_set_up_has_no_route() {
    let fixture = PushFixture::new().await;
    let providers = fixture.providers();
    let device = row(PushTarget::Fcm { token: "t".into() });
    assert_eq!(providers.route(&device.registration), None);
    assert!(providers.allows(&device.registration.target).unwrap_err().contains("fcm"));
    assert_pushed!(providers.push(&device, &alert()).await, Pushed::Misconfigured { .. });
    assert!(providers.check().await.is_empty());
    assert_eq!(providers.vapid_public_key(), None);
}

#[tokio::test]
async fn a_wrong_certificate_file_is_told() {
    let mut fixture = PushFixture::new().await;
    fixture.config.ca_file = Some(fixture.dir.path().join("none.pem"));
    assert!(refused(&fixture.config).contains("push.ca_file"));
    fixture.config.ca_file = Some(fixture.file("empty.pem", ""));
    assert!(refused(&fixture.config).contains("push.ca_file"));
}

/// A webhook is the plainest of the providers: what the client does for all of them is seen with
/// it.
async fn with_webhook() -> (PushFixture, DeviceRow) {
    let mut fixture = PushFixture::new().await;
    let secret: Secret = serde_json::from_str("\"0123456789abcdef0123456789abcdef\"").unwrap();
    let url = format!("{}/hook", fixture.server.url);
    fixture.config.webhook = Some(WebhookConfig { url, secret: Some(secret), secret_file: None });
    (fixture, row(PushTarget::Webhook { token: "secret-token".into() }))
}

#[tokio::test]
async fn a_connection_is_kept_and_shared() {
    let (fixture, device) = with_webhook().await;
    let providers = fixture.providers();
    for _ in 0..3 {
        assert_eq!(providers.push(&device, &alert()).await, Pushed::Accepted);
    }
    let requests = fixture.server.requests("/");
    assert_eq!(requests.iter().map(|r| r.connection).collect::<Vec<_>>(), [0, 0, 0]);
    assert!(requests.iter().all(|r| r.http2 && r.header("user-agent").unwrap().starts_with("bluetick/")));
}

#[tokio::test]
async fn a_server_that_is_down_slow_or_unknown_means_later() {
    let (mut fixture, device) = with_webhook().await;
    let why = |pushed: Pushed| match pushed {
        Pushed::Later { after: None, why } => why,
        other => panic!("{other:?}"),
    };
    let providers = fixture.providers();
    fixture.server.set_down(true);
    assert!(why(providers.push(&device, &alert()).await).contains("localhost"));
    fixture.server.set_down(false);
    assert_eq!(providers.push(&device, &alert()).await, Pushed::Accepted, "it is back");
    fixture.server.answer_once("/", ScriptedReply::hang_up());
    assert!(why(providers.push(&device, &alert()).await).contains("localhost"));

    fixture.server.answer("/", ScriptedReply::status(200).after(MINUTE));
    let hurried = Providers::with_timeout(&fixture.config, Duration::from_millis(100)).unwrap();
    let told = why(hurried.push(&device, &alert()).await);
    assert!(told.contains("localhost did not answer within 100ms"), "{told}");

    fixture.config.ca_file = None;
    let told = why(fixture.providers().push(&device, &alert()).await);
    assert!(told.contains("cannot be reached") && told.contains("certificate"), "{told}");
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    fixture.config.webhook.as_mut().unwrap().url = format!("http://127.0.0.1:{port}/path-secret");
    let told = why(fixture.providers().push(&device, &alert()).await);
    assert!(told.contains("127.0.0.1 cannot be reached") && !told.contains("path-secret"), "{told}");
}

#[tokio::test]
async fn an_answer_without_end_is_not_read_to_its_end() {
    let (fixture, device) = with_webhook().await;
    fixture.server.answer("/", ScriptedReply::status(503).body("x".repeat(4 << 20)));
    assert_pushed!(fixture.providers().push(&device, &alert()).await, Pushed::Later { .. });
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (fixture, device) = with_webhook().await;
    let elsewhere = format!("{}/elsewhere", fixture.server.url);
    fixture.server.answer("/hook", ScriptedReply::status(307).header("location", elsewhere));
    assert_pushed!(fixture.providers().push(&device, &alert()).await, Pushed::Misconfigured { .. });
    assert!(fixture.server.requests("/elsewhere").is_empty());
}

#[test]
fn retry_after_is_seconds_or_a_date_and_has_a_bound() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let read = |text: &str| http::retry_after(text, now);
    assert_eq!(read("120"), Some(Duration::from_secs(120)));
    assert_eq!(read("0"), Some(Duration::ZERO));
    assert_eq!(read("86400"), Some(Duration::from_secs(3_600)));
    let date = |ahead: u64| httpdate::fmt_http_date(now + Duration::from_secs(ahead));
    assert_eq!(read(&date(90)), Some(Duration::from_secs(90)));
    assert_eq!(read(&date(90_000)), Some(Duration::from_secs(3_600)));
    assert_eq!(read("Thu, 01 Jan 1970 00:00:00 GMT"), Some(Duration::ZERO));
    assert_eq!(read("soon"), None);
    assert_eq!(read("-5"), None);
}

#[test]
fn what_is_shown_is_cut_at_a_character_until_it_fits() {
    let write = |shown: payload::AlertText<'_>| serde_json::json!([shown.title, shown.body]).to_string();
    let written =
        |limit, title: &str, body: Option<&str>| fit(limit, payload::AlertText { title, body }, write);
    assert_eq!(written(100, "Alice", Some("hi")), r#"["Alice","hi"]"#);
    let (name, text) = ("é".repeat(2_000), "😀".repeat(2_000));
    for limit in 100..140 {
        let cut = written(limit, &name, Some(&text));
        assert!(cut.len() <= limit && cut.len() + 16 > limit, "{} of {limit}", cut.len());
        assert!(cut.contains("…"), "{cut}");
    }
    assert!(
        written(200, &"\u{1}".repeat(500), None).len() <= 200,
        "escapes are longer than what they stand for"
    );
    assert_eq!(written(3, "Alice", Some("hi")), r#"["",""]"#, "there is no more to cut");
}

#[test]
fn a_request_has_the_same_id_for_the_same_device_and_notification_only() {
    let device = row(PushTarget::Fcm { token: "t".into() });
    let id = payload::request_id(&device, &alert());
    assert_eq!(id.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
    assert!(id.split('-').nth(2).unwrap().starts_with('8'));
    let renewed = DeviceRow { registered_at: 9, ..device.clone() };
    assert_eq!(payload::request_id(&renewed, &Notification { badge: 9, ..alert() }), id);
    let other_device = DeviceRow { device: DeviceId::new("tablet").unwrap(), ..device.clone() };
    let other_user = DeviceRow { user_id: UserId::new("bo").unwrap(), ..device.clone() };
    for other in [
        payload::request_id(&other_device, &alert()),
        payload::request_id(&other_user, &alert()),
        payload::request_id(&device, &clear()),
        payload::request_id(&device, &Notification { id: "4243".into(), ..alert() }),
    ] {
        assert_ne!(other, id);
    }
}

#[test]
fn what_clears_has_a_collapse_id_of_its_own_that_every_provider_takes() {
    let own = payload::collapse_id(&clear());
    assert_eq!(payload::collapse_id(&alert()), COLLAPSE_ID);
    assert_ne!(own, COLLAPSE_ID);
    assert_eq!(own.len(), 32);
    assert!(own.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
    assert_eq!(own, payload::collapse_id(&clear()));
}
