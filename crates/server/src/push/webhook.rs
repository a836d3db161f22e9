//! The operator's own endpoint, for everything else: JSON, signed as Standard Webhooks are.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bluetick_chat::{Notification, Pushed};
use bluetick_protocol::PushProvider;
use bluetick_store::{Clock as _, DeviceRow, SystemClock};
use ring::hmac;
use serde_json::{Value, json};

use super::{
    PushError,
    config::WebhookConfig,
    http::{Http, ProviderResponse},
    payload::{data, request_id, shown},
};

/// What Standard Webhooks want at least.
const SECRET_MIN_BYTES: usize = 24;

pub(super) struct Webhook {
    http: Http,
    url: String,
    key: hmac::Key,
}

impl Webhook {
    pub(super) fn new(config: &WebhookConfig, http: Http) -> Result<Webhook, PushError> {
        let (setting, secret) = match (&config.secret, &config.secret_file) {
            (Some(secret), _) => ("push.webhook.secret", secret.expose().to_owned()),
            (None, Some(path)) => {
                let setting = "push.webhook.secret_file";
                let refused = |e| PushError(format!("{setting}: cannot read {}: {e}", path.display()));
                (setting, std::fs::read_to_string(path).map_err(refused)?.trim().to_owned())
            }
            (None, None) => return Err(PushError("push.webhook: set one of secret and secret_file".into())),
        };
        let bytes = match secret.strip_prefix("whsec_") {
            Some(encoded) => STANDARD
                .decode(encoded)
                .map_err(|_| PushError(format!("{setting}: what follows whsec_ must be base64")))?,
            None => secret.into_bytes(),
        };
        if bytes.len() < SECRET_MIN_BYTES {
            let why = "it must have at least 24 bytes; `openssl rand -hex 32` makes one";
            return Err(PushError(format!("{setting}: {why}")));
        }
        Ok(Webhook { http, url: config.url.clone(), key: hmac::Key::new(hmac::HMAC_SHA256, &bytes) })
    }

    pub(super) async fn push(&self, device: &DeviceRow, token: &str, notification: &Notification) -> Pushed {
        let id = request_id(device, notification);
        match self.send(&id, body(device, token, notification)).await {
            Ok(answer) => judge(&answer),
            Err(why) => Pushed::Later { after: None, why },
        }
    }

    pub(super) async fn check(&self) -> Result<String, String> {
        let id = format!("ping-{}", SystemClock.now_ms());
        let answer = self.send(&id, json!({"type": "ping"}).to_string()).await?;
        match answer.status.is_success() {
            true => Ok("the endpoint answers a signed ping".into()),
            false => Err(format!("the endpoint answered {} to a signed ping", answer.status.as_u16())),
        }
    }

    /// The id is the same for every attempt, so that the endpoint can deduplicate; the timestamp is
    /// that of the attempt.
    async fn send(&self, id: &str, body: String) -> Result<ProviderResponse, String> {
        let timestamp = SystemClock.now_ms() / 1_000;
        let signed = hmac::sign(&self.key, format!("{id}.{timestamp}.{body}").as_bytes());
        let request = self
            .http
            .post(&self.url)
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", format!("v1,{}", STANDARD.encode(signed)))
            .header("content-type", "application/json")
            .body(body);
        self.http.send(PushProvider::Webhook, request).await
    }
}

fn body(device: &DeviceRow, token: &str, notification: &Notification) -> String {
    let mut all = json!(data(notification));
    for (key, value) in [
        ("id", Value::from(notification.id.as_str())),
        ("user_id", device.user_id.as_str().into()),
        ("device", device.device.as_str().into()),
        ("token", token.into()),
        ("collapse_id", notification.collapse_id.as_str().into()),
        ("badge", notification.badge.into()),
        ("expires_at", notification.expires_at.into()),
    ] {
        all[key] = value;
    }
    if let Some(shown) = shown(notification) {
        all["title"] = shown.title.into();
        if let Some(body) = shown.body {
            all["body"] = body.into();
        }
    }
    all.to_string()
}

fn judge(answer: &ProviderResponse) -> Pushed {
    let why = format!("the webhook answered {}", answer.status.as_u16());
    match answer.status.as_u16() {
        200..=299 => Pushed::Accepted,
        410 => Pushed::Gone { since: None, why },
        404 => Pushed::NotThisDevice { after: None, why: format!("{why}: does push.webhook.url exist?") },
        408 | 425 | 429 | 500..=599 => Pushed::Later { after: answer.retry_after, why },
        300..=399 | 401 | 403 | 405 => Pushed::Misconfigured { why: format!("{why}: look at push.webhook") },
        _ => Pushed::Refused { why },
    }
}
