//! Apple's push service: HTTP/2, and a token signed with the team's key.

use std::sync::Arc;

use bluetick_chat::{Notification, Pushed};
use bluetick_protocol::PushProvider;
use bluetick_store::{Clock as _, DeviceRow, SystemClock};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    PushError,
    config::ApnsConfig,
    http::{Http, ProviderResponse, word},
    keys::read_p256,
    payload::{AlertText, collapse_id, data, fit, request_id, shown},
};

const PAYLOAD_MAX_BYTES: usize = 4096;
/// Apple wants a token to be used for at least 20 minutes and at most 60.
const TOKEN_LIFE_SECS: u64 = 40 * 60;
/// The minimum time between two provider tokens. Apple refuses more frequent ones, and closes the
/// connection.
const RENEW_EVERY_SECS: u64 = 20 * 60;

pub(super) struct Apns {
    http: Http,
    url: String,
    sandbox_url: String,
    topic: String,
    signer: Signer,
}

#[derive(Clone, Copy)]
pub(super) struct ApnsTarget<'a> {
    pub(super) token: &'a str,
    /// The app's, where it is not the one in the configuration.
    pub(super) topic: Option<&'a str>,
    pub(super) sandbox: bool,
}

#[derive(Default, Deserialize)]
struct Reason {
    #[serde(default)]
    reason: String,
    /// Since when the token is not valid, in ms since 1970.
    timestamp: Option<u64>,
}

impl Apns {
    pub(super) fn new(config: &ApnsConfig, http: Http) -> Result<Apns, PushError> {
        let key = read_p256("push.apns.key_file", &config.key_file)?.private;
        Ok(Apns {
            http,
            url: config.url.trim_end_matches('/').to_owned(),
            sandbox_url: config.sandbox_url.trim_end_matches('/').to_owned(),
            topic: config.topic.clone(),
            signer: Signer {
                key,
                key_id: config.key_id.clone(),
                team_id: config.team_id.clone(),
                current: Mutex::default(),
            },
        })
    }

    pub(super) async fn push(
        &self,
        device: &DeviceRow,
        to: ApnsTarget<'_>,
        notification: &Notification,
    ) -> Pushed {
        let request = ApnsRequest {
            id: request_id(device, notification),
            collapse_id: collapse_id(notification),
            // 0 would mean: now or never.
            expiration: (notification.expires_at / 1_000).max(1),
            priority: if shown(notification).is_some() { 10 } else { 5 },
            payload: payload(notification),
        };
        match self.send(to, &request).await {
            Ok(answer) => judge(&answer, to.topic.is_some()),
            Err(why) => Pushed::Later { after: None, why },
        }
    }

    /// A device token that does not exist: if Apple objects only to it, the key and the topic are
    /// right.
    pub(super) async fn check(&self) -> Result<String, String> {
        let nobody = ApnsTarget { token: &"0".repeat(64), topic: None, sandbox: false };
        let request = ApnsRequest {
            id: "00000000-0000-8000-8000-000000000000".into(),
            collapse_id: "check".into(),
            expiration: 1,
            priority: 5,
            payload: json!({"aps": {"badge": 0}}).to_string(),
        };
        let answer = self.send(nobody, &request).await?;
        match judge(&answer, false) {
            Pushed::Accepted | Pushed::Gone { .. } => {
                Ok(format!("APNs takes the key {}", self.signer.key_id))
            }
            Pushed::Later { why, .. }
            | Pushed::NotThisDevice { why, .. }
            | Pushed::Misconfigured { why }
            | Pushed::Refused { why } => Err(why),
        }
    }

    /// Sends, and a second time with a new token if the first one was too old.
    async fn send(&self, to: ApnsTarget<'_>, request: &ApnsRequest) -> Result<ProviderResponse, String> {
        let token = self.signer.token(SystemClock.now_ms() / 1_000)?;
        let answer = self.send_with(&token, to, request).await?;
        if answer.status != 403 || reason(&answer).reason != "ExpiredProviderToken" {
            return Ok(answer);
        }
        match self.signer.renewed(&token, SystemClock.now_ms() / 1_000)? {
            Some(renewed) => self.send_with(&renewed, to, request).await,
            None => Ok(answer),
        }
    }

    async fn send_with(
        &self,
        token: &str,
        to: ApnsTarget<'_>,
        request: &ApnsRequest,
    ) -> Result<ProviderResponse, String> {
        let base = if to.sandbox { &self.sandbox_url } else { &self.url };
        let request = self
            .http
            .post(&format!("{base}/3/device/{}", to.token))
            .bearer_auth(token)
            .header("apns-topic", to.topic.unwrap_or(&self.topic))
            .header("apns-push-type", "alert")
            .header("apns-priority", request.priority)
            .header("apns-expiration", request.expiration)
            .header("apns-collapse-id", &request.collapse_id)
            .header("apns-id", &request.id)
            .header("content-type", "application/json")
            .body(request.payload.clone());
        self.http.send(PushProvider::Apns, request).await
    }
}

struct ApnsRequest {
    id: String,
    collapse_id: String,
    expiration: u64,
    priority: u64,
    payload: String,
}

/// A clearing notification sets the badge and wakes the app, which removes the notification.
/// Apple's type "background" is only for waking: with a badge, which the phone sets even if the app
/// is not running, the type is "alert".
fn payload(notification: &Notification) -> String {
    let mut about = json!(data(notification));
    // By this the app finds what it is to take away.
    about["tag"] = notification.collapse_id.as_str().into();
    let write = |aps: Value| json!({"aps": aps, "bluetick": about}).to_string();
    match shown(notification) {
        None => write(json!({"badge": notification.badge, "content-available": 1})),
        Some(shown) => fit(PAYLOAD_MAX_BYTES, shown, |AlertText { title, body }| {
            let mut alert = json!({"title": title});
            if let Some(body) = body {
                alert["body"] = body.into();
            }
            write(json!({
                "alert": alert,
                "badge": notification.badge,
                "sound": "default",
                "thread-id": notification.collapse_id,
                "mutable-content": 1,
            }))
        }),
    }
}

fn reason(answer: &ProviderResponse) -> Reason {
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

/// A topic that the device named is the device's mistake, and no reason to doubt the operator's.
fn judge(answer: &ProviderResponse, own_topic: bool) -> Pushed {
    let Reason { reason, timestamp } = reason(answer);
    let why = format!("APNs answered {} {}", answer.status.as_u16(), word(&reason));
    match (answer.status.as_u16(), reason.as_str()) {
        (200, _) => Pushed::Accepted,
        (410, _) => Pushed::Gone { since: timestamp, why },
        (400, "BadDeviceToken") => Pushed::Gone { since: None, why },
        (400, "DeviceTokenNotForTopic" | "TopicDisallowed" | "BadTopic" | "MissingTopic") => {
            match own_topic {
                true => Pushed::Refused { why },
                false => Pushed::NotThisDevice {
                    after: None,
                    why: format!("{why}: look at push.apns.topic and the key, or at the device's token"),
                },
            }
        }
        (403, "ExpiredProviderToken") => {
            Pushed::Misconfigured { why: format!("{why} to a new token: is the clock right?") }
        }
        (429, "TooManyProviderTokenUpdates") => {
            Pushed::Misconfigured { why: format!("{why}: is the clock right?") }
        }
        (403, _) => Pushed::Misconfigured { why: format!("{why}: look at push.apns") },
        (300..=399 | 404 | 405, _) => Pushed::Misconfigured { why: format!("{why}: look at push.apns.url") },
        // By this Apple speaks of one device that gets too many.
        (429, "TooManyRequests") => Pushed::NotThisDevice { after: answer.retry_after, why },
        (400, "IdleTimeout") => Pushed::Later { after: None, why },
        (429 | 500..=599, _) => Pushed::Later { after: answer.retry_after, why },
        _ => Pushed::Refused { why },
    }
}

/// The token that all requests show, until it is due to be made anew.
struct Signer {
    key: EncodingKey,
    key_id: String,
    team_id: String,
    current: Mutex<Option<Current>>,
}

struct Current {
    token: Arc<str>,
    made: u64,
    /// Made because Apple called the one before it expired.
    in_place: bool,
}

#[derive(Serialize)]
struct ApnsClaims<'a> {
    iss: &'a str,
    iat: u64,
}

impl Signer {
    fn token(&self, now: u64) -> Result<Arc<str>, String> {
        let mut current = self.current.lock();
        match &*current {
            // A clock that was set back makes one from the future, which Apple would refuse.
            Some(Current { token, made, .. }) if (*made..*made + TOKEN_LIFE_SECS).contains(&now) => {
                Ok(token.clone())
            }
            _ => Ok(current.insert(self.sign(now, false)?).token.clone()),
        }
    }

    /// A token other than `stale`: the one that another task has made meanwhile, or a new one if
    /// allowed.
    fn renewed(&self, stale: &str, now: u64) -> Result<Option<Arc<str>>, String> {
        let mut current = self.current.lock();
        match &*current {
            Some(other) if *other.token != *stale => Ok(Some(other.token.clone())),
            Some(same) if same.in_place && now.abs_diff(same.made) < RENEW_EVERY_SECS => Ok(None),
            _ => Ok(Some(current.insert(self.sign(now, true)?).token.clone())),
        }
    }

    fn sign(&self, now: u64, in_place: bool) -> Result<Current, String> {
        let header = Header { kid: Some(self.key_id.clone()), ..Header::new(Algorithm::ES256) };
        let claims = ApnsClaims { iss: &self.team_id, iat: now };
        let token = jsonwebtoken::encode(&header, &claims, &self.key)
            .map_err(|e| format!("the key of push.apns.key_file cannot sign: {e}"))?;
        Ok(Current { token: token.into(), made: now, in_place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_used_for_forty_minutes() {
        let (pem, _) = crate::push::make_vapid_key().unwrap();
        let key = EncodingKey::from_ec_pem(pem.as_bytes()).unwrap();
        let signer = Signer { key, key_id: "K".into(), team_id: "T".into(), current: Mutex::default() };
        let first = signer.token(10_000).unwrap();
        assert_eq!(signer.token(10_000 + TOKEN_LIFE_SECS - 1).unwrap(), first);
        let second = signer.token(10_000 + TOKEN_LIFE_SECS).unwrap();
        assert_ne!(second, first);
        assert_ne!(signer.token(9_000).unwrap(), second, "the clock was set back");

        let third = signer.token(9_000).unwrap();
        assert_eq!(
            signer.renewed(&first, 9_001).unwrap().as_ref(),
            Some(&third),
            "another made it meanwhile"
        );
        let fourth = signer.renewed(&third, 9_001).unwrap().unwrap();
        assert_ne!(fourth, third);
        assert_eq!(signer.renewed(&fourth, 9_002).unwrap(), None, "not again so soon");
        assert!(signer.renewed(&fourth, 9_001 + RENEW_EVERY_SECS).unwrap().is_some());
    }
}
