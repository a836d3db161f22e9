//! `[push]`: the content and timing of notifications, and their providers. A provider is on if its
//! section exists.

use std::path::PathBuf;

use bluetick_protocol::PushContent;
use reqwest::Url;
use serde::Deserialize;

use crate::config::{HS256_MIN_BYTES, Secret, is_loopback_name};

/// The push services of the browsers there are.
pub const BROWSERS: [&str; 5] = [
    "fcm.googleapis.com",
    "*.push.services.mozilla.com",
    "*.notify.windows.com",
    "web.push.apple.com",
    "*.push.apple.com",
];
/// What FCM and Web Push keep a notification for, at most.
const AGE_MAX_SECS: u64 = 28 * 86_400;
const TEXT_MAX_BYTES: usize = 200;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PushSettings {
    pub content: PushContent,
    pub text: String,
    pub delay_ms: u64,
    pub unacked_secs: u64,
    pub max_age_secs: u64,
    pub concurrency: usize,
    pub claim_secs: u64,
    pub ca_file: Option<PathBuf>,
    pub apns: Option<ApnsConfig>,
    pub fcm: Option<FcmConfig>,
    pub webpush: Option<WebPushConfig>,
    pub webhook: Option<WebhookConfig>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApnsConfig {
    pub key_file: PathBuf,
    pub key_id: String,
    pub team_id: String,
    pub topic: String,
    #[serde(default = "apns_url")]
    pub url: String,
    #[serde(default = "apns_sandbox_url")]
    pub sandbox_url: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FcmConfig {
    pub service_account_file: PathBuf,
    #[serde(default = "fcm_url")]
    pub url: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebPushConfig {
    pub key_file: PathBuf,
    pub subject: String,
    #[serde(default = "browsers")]
    pub hosts: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookConfig {
    pub url: String,
    pub secret: Option<Secret>,
    pub secret_file: Option<PathBuf>,
}

fn apns_url() -> String {
    "https://api.push.apple.com".into()
}

fn apns_sandbox_url() -> String {
    "https://api.sandbox.push.apple.com".into()
}

fn fcm_url() -> String {
    "https://fcm.googleapis.com".into()
}

fn browsers() -> Vec<String> {
    BROWSERS.map(String::from).to_vec()
}

impl PushSettings {
    /// Whether anybody carries notifications at all.
    pub fn is_configured(&self) -> bool {
        self.apns.is_some() || self.fcm.is_some() || self.webpush.is_some() || self.webhook.is_some()
    }

    /// What is wrong with the settings alone, before any file is read.
    pub fn check(&self) -> Result<(), String> {
        for (key, value, least, most) in [
            ("push.delay_ms", self.delay_ms, 0, 60_000),
            ("push.unacked_secs", self.unacked_secs, 1, 3_600),
            ("push.max_age_secs", self.max_age_secs, 1, AGE_MAX_SECS),
            ("push.claim_secs", self.claim_secs, 1, 3_600),
            ("push.concurrency", self.concurrency as u64, 1, 1_000),
        ] {
            if !(least..=most).contains(&value) {
                return Err(format!("{key} must be from {least} to {most}, not {value}"));
            }
        }
        if self.text.trim().is_empty() || self.text.len() > TEXT_MAX_BYTES {
            return Err(format!("push.text must be 1 to {TEXT_MAX_BYTES} bytes of text"));
        }
        self.apns.as_ref().map_or(Ok(()), ApnsConfig::check)?;
        self.fcm.as_ref().map_or(Ok(()), FcmConfig::check)?;
        self.webpush.as_ref().map_or(Ok(()), WebPushConfig::check)?;
        self.webhook.as_ref().map_or(Ok(()), WebhookConfig::check)
    }
}

impl ApnsConfig {
    fn check(&self) -> Result<(), String> {
        for (key, value) in [
            ("push.apns.key_id", &self.key_id),
            ("push.apns.team_id", &self.team_id),
            ("push.apns.topic", &self.topic),
        ] {
            if value.is_empty() || !value.bytes().all(|b| b.is_ascii_graphic()) {
                return Err(format!("{key} must be as Apple gave it, without spaces"));
            }
        }
        guarded_url("push.apns.url", &self.url)?;
        guarded_url("push.apns.sandbox_url", &self.sandbox_url)?;
        Ok(())
    }
}

impl FcmConfig {
    fn check(&self) -> Result<(), String> {
        guarded_url("push.fcm.url", &self.url).map(drop)
    }
}

impl WebPushConfig {
    fn check(&self) -> Result<(), String> {
        // Apple refuses a subject with spaces or angle brackets, as if the key were wrong.
        let plain = self.subject.bytes().all(|b| b.is_ascii_graphic() && b != b'<' && b != b'>');
        let mail = self.subject.strip_prefix("mailto:").is_some_and(|address| address.contains('@'));
        if !plain || !(mail || self.subject.starts_with("https://")) {
            return Err(
                "push.webpush.subject must be mailto:you@example.org or an https address, where a push \
                        service can reach you"
                    .into(),
            );
        }
        for host in &self.hosts {
            let bare = host.strip_prefix("*.").unwrap_or(host);
            let named = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.:".contains(&b);
            if bare.is_empty() || !bare.bytes().all(named) {
                return Err(format!(
                    "push.webpush.hosts: {host:?} is not a host; write push.example.org or *.example.org"
                ));
            }
        }
        Ok(())
    }
}

impl WebhookConfig {
    fn check(&self) -> Result<(), String> {
        let url = parsed("push.webhook.url", &self.url)?;
        if !matches!(url.scheme(), "https" | "http") {
            return Err(
                "push.webhook.url must begin with https:// (or http://, within your own network)".into()
            );
        }
        match (&self.secret, &self.secret_file) {
            (None, None) => Err("push.webhook: set one of secret and secret_file".into()),
            (Some(_), Some(_)) => Err("push.webhook: set only one of secret and secret_file".into()),
            (Some(secret), None) if secret.expose().len() < HS256_MIN_BYTES => {
                Err(format!("push.webhook.secret must be at least {HS256_MIN_BYTES} bytes long"))
            }
            _ => Ok(()),
        }
    }
}

fn parsed(key: &str, text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|e| format!("{key} is not a URL: {e}"))?;
    match url.has_host() {
        true => Ok(url),
        false => Err(format!("{key} is not a URL with a host")),
    }
}

/// An address to which a key's signature goes: not in the clear beyond this machine.
pub(super) fn guarded_url(key: &str, text: &str) -> Result<Url, String> {
    let url = parsed(key, text)?;
    match url.scheme() {
        "https" => Ok(url),
        "http" if url.host_str().is_some_and(is_loopback_name) => Ok(url),
        _ => Err(format!("{key} must begin with https:// (http:// only for a loopback host)")),
    }
}
