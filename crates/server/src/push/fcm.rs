//! Firebase Cloud Messaging, HTTP v1: a service account's key gets an access token, which sends.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bluetick_chat::{Notification, Pushed};
use bluetick_protocol::PushProvider;
use bluetick_store::{Clock as _, SystemClock};
use ring::{
    rand::SystemRandom,
    signature::{RSA_PKCS1_SHA256, RsaKeyPair},
};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject as _};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::{
    PushError,
    config::{FcmConfig, guarded_url},
    http::{Http, ProviderResponse, word},
    payload::{AlertText, collapse_id, data, fit, seconds_left, shown},
};

const SCOPE: &str = "https://www.googleapis.com/auth/firebase.messaging";
const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// The longest that Google allows.
const GRANT_LIFE_SECS: u64 = 3_600;
/// A token is used until so long before its end.
const MARGIN_SECS: u64 = 60;
/// FCM limits only the part that the app receives. The rest is short and counted too, for
/// simplicity.
const MESSAGE_MAX_BYTES: usize = 4096;
/// What Google asks for where it says nothing with "too many".
const QUOTA_PAUSE: Duration = Duration::from_secs(60);
const LIFE_MAX_SECS: u64 = 28 * 86_400;

pub(super) struct Fcm {
    http: Http,
    url: String,
    account: ServiceAccount,
    key: RsaKeyPair,
    access: Mutex<Access>,
}

/// What is needed of the file that Google gives for a service account.
#[derive(Deserialize)]
struct ServiceAccount {
    project_id: String,
    private_key_id: Option<String>,
    private_key: String,
    client_email: String,
    token_uri: String,
}

/// Held while a token is fetched, so that all who need one share the fetch and its failure.
#[derive(Default)]
struct Access {
    token: Option<(Arc<str>, Instant)>,
    failure: Option<(Pushed, Instant)>,
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    expires_in: u64,
}

#[derive(Default, Deserialize)]
struct FcmError {
    #[serde(default)]
    error: FcmErrorBody,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FcmErrorBody {
    status: String,
    message: String,
    details: Vec<Detail>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Detail {
    error_code: Option<String>,
    field_violations: Vec<Violation>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Violation {
    field: String,
}

impl Fcm {
    pub(super) fn new(config: &FcmConfig, http: Http) -> Result<Fcm, PushError> {
        let path = &config.service_account_file;
        let refused =
            |why: String| PushError(format!("push.fcm.service_account_file: {}: {why}", path.display()));
        let text = fs::read(path).map_err(|e| refused(e.to_string()))?;
        let mut account: ServiceAccount = serde_json::from_slice(&text)
            .map_err(|e| refused(format!("this is not the JSON key of a service account: {e}")))?;
        guarded_url("token_uri", &account.token_uri).map_err(&refused)?;
        let pem = std::mem::take(&mut account.private_key);
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes())
            .ok()
            .and_then(|der| RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).ok())
            .ok_or_else(|| refused("its private_key is not an RSA key in PEM".into()))?;
        let base = config.url.trim_end_matches('/');
        let url = format!("{base}/v1/projects/{}/messages:send", account.project_id);
        Ok(Fcm { http, url, account, key, access: Mutex::default() })
    }

    pub(super) async fn push(&self, token: &str, notification: &Notification) -> Pushed {
        match self.send(&message(token, notification)).await {
            Ok(answer) => judge(&answer),
            Err(pushed) => pushed,
        }
    }

    /// Validates a message without sending it: if FCM objects only to its token, the account is
    /// right.
    pub(super) async fn check(&self) -> Result<String, String> {
        let nobody = json!({"validate_only": true, "message": {"token": "bluetick-check", "data": {}}});
        let pushed = match self.send(&nobody.to_string()).await {
            Ok(answer) => judge(&answer),
            Err(pushed) => pushed,
        };
        match pushed {
            Pushed::Accepted
            | Pushed::Gone { .. }
            | Pushed::NotThisDevice { .. }
            | Pushed::Refused { .. } => Ok(format!("FCM takes the key of {}", self.account.client_email)),
            Pushed::Later { why, .. } | Pushed::Misconfigured { why } => Err(why),
        }
    }

    /// Sends, and a second time with a new access token if the first one was not taken.
    async fn send(&self, message: &str) -> Result<ProviderResponse, Pushed> {
        let token = self.access_token(None).await?;
        let answer = self.send_with(&token, message).await?;
        // Google also answers 401 if the project lacks a key for Apple or for browsers.
        if answer.status != 401 || error_code(&failure(&answer)) == "THIRD_PARTY_AUTH_ERROR" {
            return Ok(answer);
        }
        let token = self.access_token(Some(&token)).await?;
        self.send_with(&token, message).await
    }

    async fn send_with(&self, token: &str, message: &str) -> Result<ProviderResponse, Pushed> {
        let request = self
            .http
            .post(&self.url)
            .bearer_auth(token)
            .header("content-type", "application/json")
            .body(message.to_owned());
        self.http.send(PushProvider::Fcm, request).await.map_err(|why| Pushed::Later { after: None, why })
    }

    /// The current token, or one other than `stale`. One caller fetches, and the others wait for
    /// its result.
    async fn access_token(&self, stale: Option<&str>) -> Result<Arc<str>, Pushed> {
        let asked = Instant::now();
        let mut access = self.access.lock().await;
        if let Some((token, until)) = &access.token
            && *until > Instant::now()
            && stale != Some(&**token)
        {
            return Ok(token.clone());
        }
        if let Some((failed, at)) = &access.failure
            && *at > asked
        {
            return Err(failed.clone());
        }
        match self.fetch().await {
            Ok(Granted { access_token, expires_in }) => {
                let token: Arc<str> = access_token.into();
                let until = Instant::now() + Duration::from_secs(expires_in.saturating_sub(MARGIN_SECS));
                *access = Access { token: Some((token.clone(), until)), failure: None };
                Ok(token)
            }
            Err(failed) => {
                *access = Access { token: None, failure: Some((failed.clone(), Instant::now())) };
                Err(failed)
            }
        }
    }

    async fn fetch(&self) -> Result<Granted, Pushed> {
        let grant = self.grant(SystemClock.now_ms() / 1_000).map_err(|why| Pushed::Misconfigured { why })?;
        let request = self
            .http
            .post(&self.account.token_uri)
            .form(&[("grant_type", GRANT_TYPE), ("assertion", &grant)]);
        let answer = self
            .http
            .send(PushProvider::Fcm, request)
            .await
            .map_err(|why| Pushed::Later { after: None, why })?;
        match answer.status.as_u16() {
            200 => serde_json::from_slice(&answer.body).map_err(|_| Pushed::Later {
                after: None,
                why: "Google's token endpoint answered without a token".into(),
            }),
            status @ (429 | 500..=599) => Err(Pushed::Later {
                after: answer.retry_after,
                why: format!("Google's token endpoint answered {status}"),
            }),
            status => {
                let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
                let error = word(body["error"].as_str().unwrap_or_default());
                let why = format!(
                    "Google's token endpoint answered {status} {error}: look at push.fcm.service_account_file and \
                     the clock"
                );
                Err(Pushed::Misconfigured { why })
            }
        }
    }

    /// The JWT assertion that requests a token (RFC 7523), signed by ring.
    fn grant(&self, now: u64) -> Result<String, String> {
        let ServiceAccount { private_key_id, client_email, token_uri, .. } = &self.account;
        let header = json!({"alg": "RS256", "typ": "JWT", "kid": private_key_id});
        let claims = json!({
            "iss": client_email,
            "scope": SCOPE,
            "aud": token_uri,
            "iat": now,
            "exp": now + GRANT_LIFE_SECS,
        });
        let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let message = format!("{}.{}", encode(&header), encode(&claims));
        let mut signature = vec![0; self.key.public().modulus_len()];
        self.key
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message.as_bytes(), &mut signature)
            .map_err(|_| "the private key of push.fcm.service_account_file cannot sign".to_owned())?;
        Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

fn message(token: &str, notification: &Notification) -> String {
    let mut facts = json!(data(notification));
    facts["badge"] = notification.badge.into();
    // By this the app finds what it is to take away.
    facts["tag"] = notification.collapse_id.as_str().into();
    // A project's devices may be Apple's too: what they need is beside what Android needs.
    let ttl = seconds_left(notification).min(LIFE_MAX_SECS);
    let collapse = collapse_id(notification);
    let headers = |priority: &str| {
        json!({
            "apns-collapse-id": collapse,
            "apns-priority": priority,
            "apns-expiration": (notification.expires_at / 1_000).max(1).to_string(),
        })
    };
    let Some(shown) = shown(notification) else {
        return json!({"message": {
            "token": token,
            "data": strings(&facts),
            // Without a collapse key: a phone that is off keeps four of them, which are for visible
            // notifications.
            "android": {"priority": "NORMAL", "ttl": format!("{ttl}s")},
            "apns": {
                "headers": headers("5"),
                "payload": {"aps": {"badge": notification.badge, "content-available": 1}},
            },
        }})
        .to_string();
    };
    fit(MESSAGE_MAX_BYTES, shown, |AlertText { title, body }| {
        let mut seen = json!({"title": title});
        if let Some(body) = body {
            seen["body"] = body.into();
        }
        json!({"message": {
            "token": token,
            "notification": seen,
            "data": strings(&facts),
            "android": {
                "collapse_key": collapse,
                "priority": "HIGH",
                "ttl": format!("{ttl}s"),
                "notification": {
                    "tag": collapse,
                    "notification_count": notification.badge.min(i32::MAX as u64),
                },
            },
            "apns": {
                "headers": headers("10"),
                "payload": {"aps": {
                    "badge": notification.badge,
                    "sound": "default",
                    "thread-id": notification.collapse_id,
                    "mutable-content": 1,
                }},
            },
        }})
        .to_string()
    })
}

/// FCM takes data as text only.
fn strings(facts: &Value) -> Value {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let facts = facts.as_object().into_iter().flatten();
    facts.map(|(key, value)| (key.clone(), Value::from(text(value)))).collect()
}

fn failure(answer: &ProviderResponse) -> FcmErrorBody {
    serde_json::from_slice::<FcmError>(&answer.body).unwrap_or_default().error
}

/// FCM's own code where there is one, and the general one otherwise.
fn error_code(failure: &FcmErrorBody) -> &str {
    let own = failure.details.iter().find_map(|detail| detail.error_code.as_deref());
    own.unwrap_or(&failure.status)
}

fn judge(answer: &ProviderResponse) -> Pushed {
    let failure = failure(answer);
    let code = error_code(&failure);
    let why = format!("FCM answered {} {}", answer.status.as_u16(), word(code));
    match (answer.status.as_u16(), code) {
        (200, _) => Pushed::Accepted,
        (_, "UNREGISTERED") | (404, "NOT_FOUND") => Pushed::Gone { since: None, why },
        (400, "INVALID_ARGUMENT") if names_the_token(&failure) => Pushed::Gone { since: None, why },
        // Of the key that an Apple device or a browser of the project would need.
        (_, "THIRD_PARTY_AUTH_ERROR") => Pushed::NotThisDevice {
            after: None,
            why: format!("{why}: the Firebase project has no key for this device's platform"),
        },
        (_, "SENDER_ID_MISMATCH") => Pushed::NotThisDevice {
            after: None,
            why: format!("{why}: the device's app is of another project than push.fcm.service_account_file"),
        },
        (401 | 403, _) => Pushed::Misconfigured {
            why: format!(
                "{why}: look at push.fcm.service_account_file, and whether the app is of its project"
            ),
        },
        // Not an answer of FCM's: every device would seem to be gone.
        (300..=399 | 404 | 405, _) => Pushed::Misconfigured { why: format!("{why}: look at push.fcm.url") },
        // Google does not say whether the device or the project exceeds its quota.
        (429, _) => Pushed::NotThisDevice { after: answer.retry_after.or(Some(QUOTA_PAUSE)), why },
        (500..=599, _) => Pushed::Later { after: answer.retry_after, why },
        _ => Pushed::Refused { why },
    }
}

/// Whether FCM objects to the device's token, and not to another part of the message.
fn names_the_token(failure: &FcmErrorBody) -> bool {
    let mut violations = failure.details.iter().flat_map(|detail| &detail.field_violations);
    violations.any(|violation| violation.field == "message.token")
        || failure.message.contains("registration token")
}
