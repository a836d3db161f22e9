//! Web Push (RFC 8030), with an encrypted payload (RFC 8291) and a VAPID key (RFC 8292).

use std::collections::HashMap;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bluetick_chat::{Notification, Pushed};
use bluetick_protocol::{PushProvider, PushSubscription};
use bluetick_store::{Clock as _, SystemClock};
use jsonwebtoken::{Algorithm, Header};
use parking_lot::Mutex;
use reqwest::{
    Url,
    header::{AUTHORIZATION, HeaderValue},
};
use serde::Serialize;
use serde_json::{Value, json};
use web_push_native::{Auth, p256::PublicKey};

use super::{
    PushError,
    config::WebPushConfig,
    http::{Http, ProviderResponse, word},
    keys::{SigningPair, read_p256},
    payload::{AlertText, collapse_id, data, fit, seconds_left, shown},
};

/// Push services take 4096 bytes encrypted; what is over leaves them room.
const PAYLOAD_MAX_BYTES: usize = 3_000;
/// At most 24 h are allowed, and clocks differ.
const SIGNATURE_LIFE_SECS: u64 = 12 * 3_600;
const SIGNATURE_MARGIN_SECS: u64 = 3_600;
/// Origins come from clients, who might make up names below an allowed one.
const ORIGINS_MAX: usize = 1_000;

pub(super) struct WebPush {
    http: Http,
    key: SigningPair,
    subject: String,
    hosts: Vec<String>,
    /// What is shown to each origin, and until when.
    signed: Mutex<HashMap<String, (HeaderValue, u64)>>,
}

#[derive(Serialize)]
struct VapidClaims<'a> {
    aud: &'a str,
    exp: u64,
    sub: &'a str,
}

impl WebPush {
    pub(super) fn new(config: &WebPushConfig, http: Http) -> Result<WebPush, PushError> {
        Ok(WebPush {
            http,
            key: read_p256("push.webpush.key_file", &config.key_file)?,
            subject: config.subject.clone(),
            hosts: config.hosts.clone(),
            signed: Mutex::default(),
        })
    }

    pub(super) fn public_key(&self) -> &str {
        &self.key.public
    }

    /// The push service of a subscription, as the configuration names it: a bounded set, whatever
    /// clients send. `None` if it is not allowed.
    pub(super) fn service(&self, subscription: &PushSubscription) -> Option<&str> {
        self.endpoint(subscription).map(|(_, service)| service)
    }

    pub(super) fn allows(&self, subscription: &PushSubscription) -> Result<(), String> {
        if self.endpoint(subscription).is_none() {
            return Err("\"endpoint\" is not at a push service that this server allows".into());
        }
        match recipient(subscription) {
            Some(_) => Ok(()),
            None => Err("\"keys\" are not those of a subscription".into()),
        }
    }

    /// The endpoint comes from a client. Without this list a client could make this server call any
    /// host.
    fn endpoint(&self, subscription: &PushSubscription) -> Option<(Url, &str)> {
        let url = Url::parse(&subscription.endpoint).ok()?;
        if url.scheme() != "https" || !url.username().is_empty() || url.password().is_some() {
            return None;
        }
        let host = match url.port() {
            Some(port) => format!("{}:{port}", url.host_str()?),
            None => url.host_str()?.to_owned(),
        };
        let allowed = self.hosts.iter().find(|allowed| match allowed.strip_prefix('*') {
            Some(ending) => host.len() > ending.len() && host.ends_with(ending),
            None => host == **allowed,
        });
        allowed.map(|service| (url, service.as_str()))
    }

    pub(super) async fn push(&self, subscription: &PushSubscription, notification: &Notification) -> Pushed {
        let Some((url, service)) = self.endpoint(subscription) else {
            let why = "push.webpush.hosts does not allow the host of this subscription".into();
            return Pushed::NotThisDevice { after: None, why };
        };
        let Some((key, auth)) = recipient(subscription) else {
            return Pushed::Gone { since: None, why: "its keys are not those of a subscription".into() };
        };
        let Ok(encrypted) = web_push_native::encrypt(payload(notification).into_bytes(), &key, &auth) else {
            return Pushed::Refused { why: "it cannot be encrypted for this subscription".into() };
        };
        let origin = url.origin().ascii_serialization();
        let signed = match self.signature(&origin, SystemClock.now_ms() / 1_000) {
            Ok(signed) => signed,
            Err(why) => return Pushed::Misconfigured { why },
        };
        let request = self
            .http
            .post(url.as_str())
            .header(AUTHORIZATION, signed)
            .header("ttl", seconds_left(notification))
            .header("urgency", if shown(notification).is_some() { "high" } else { "normal" })
            .header("topic", collapse_id(notification))
            .header("content-encoding", "aes128gcm")
            .header("content-type", "application/octet-stream")
            .body(encrypted);
        match self.http.send(PushProvider::Webpush, request).await {
            Ok(answer) => judge(service, &answer),
            Err(why) => Pushed::Later { after: None, why },
        }
    }

    /// Signed once and shown to an origin for hours.
    fn signature(&self, origin: &str, now: u64) -> Result<HeaderValue, String> {
        let mut signed = self.signed.lock();
        if let Some((header, until)) = signed.get(origin)
            && (now + SIGNATURE_MARGIN_SECS..=now + SIGNATURE_LIFE_SECS).contains(until)
        {
            return Ok(header.clone());
        }
        if signed.len() >= ORIGINS_MAX {
            signed.clear();
        }
        let until = now + SIGNATURE_LIFE_SECS;
        let claims = VapidClaims { aud: origin, exp: until, sub: &self.subject };
        let unable = |why: String| format!("the key of push.webpush.key_file cannot sign: {why}");
        let token = jsonwebtoken::encode(&Header::new(Algorithm::ES256), &claims, &self.key.private)
            .map_err(|e| unable(e.to_string()))?;
        let mut header = HeaderValue::from_str(&format!("vapid t={token}, k={}", self.key.public))
            .map_err(|e| unable(e.to_string()))?;
        header.set_sensitive(true);
        signed.insert(origin.to_owned(), (header.clone(), until));
        Ok(header)
    }
}

/// The key and the secret that a payload is encrypted with; `None` if they are invalid.
fn recipient(subscription: &PushSubscription) -> Option<(PublicKey, Auth)> {
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok();
    let key = PublicKey::from_sec1_bytes(&decode(&subscription.keys.p256dh)?).ok()?;
    let auth: [u8; 16] = decode(&subscription.keys.auth)?.try_into().ok()?;
    Some((key, auth.into()))
}

/// What the page's service worker gets.
fn payload(notification: &Notification) -> String {
    let mut facts = json!(data(notification));
    facts["badge"] = notification.badge.into();
    facts["tag"] = notification.collapse_id.as_str().into();
    match shown(notification) {
        None => facts.to_string(),
        Some(shown) => fit(PAYLOAD_MAX_BYTES, shown, |AlertText { title, body }| {
            let mut all = facts.clone();
            all["title"] = title.into();
            if let Some(body) = body {
                all["body"] = body.into();
            }
            all.to_string()
        }),
    }
}

fn judge(host: &str, answer: &ProviderResponse) -> Pushed {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let reason = body["reason"].as_str().or(body["message"].as_str()).unwrap_or_default();
    let why = format!("{host} answered {} {}", answer.status.as_u16(), word(reason));
    match (answer.status.as_u16(), reason) {
        (200..=299, _) => Pushed::Accepted,
        (404 | 410, _) => Pushed::Gone { since: None, why },
        // Apple's word for a subscription of another key comes with 400.
        (401 | 403, _) | (400, "VapidPkHashMismatch") => Pushed::NotThisDevice {
            after: None,
            why: format!(
                "{why}: look at push.webpush.key_file (is the subscription of another key?) and subject"
            ),
        },
        // By 406 Microsoft tells of too many.
        (300..=399 | 406 | 429 | 500..=599, _) => Pushed::Later { after: answer.retry_after, why },
        _ => Pushed::Refused { why },
    }
}
