//! The push providers, each with its own protocol. This module sends one notification once; `chat`
//! decides when, to whom and how often.

mod apns;
mod config;
mod fcm;
mod http;
mod keys;
mod payload;
#[cfg(test)]
mod tests;
mod webhook;
mod webpush;

use std::{fmt, fs, time::Duration};

use async_trait::async_trait;
use bluetick_chat::{Notification, Notifier, Pushed};
use bluetick_protocol::{PushProvider, PushRegistration, PushTarget};
use bluetick_store::DeviceRow;

pub use config::PushSettings;
pub use keys::make_vapid_key;

use self::{
    apns::Apns,
    fcm::Fcm,
    http::{Http, Speaks},
    webhook::Webhook,
    webpush::WebPush,
};

/// A provider that does not answer in this time is tried again later.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the providers cannot be set up: the sentence names the key in `[push]`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PushError(String);

/// The providers that this server has set up.
pub struct Providers {
    apns: Option<Apns>,
    fcm: Option<Fcm>,
    webpush: Option<WebPush>,
    webhook: Option<Webhook>,
    salt: Vec<u8>,
}

impl Providers {
    /// Reads the keys of what is set up.
    pub fn new(config: &PushSettings) -> Result<Providers, PushError> {
        Providers::with_timeout(config, REQUEST_TIMEOUT)
    }

    fn with_timeout(config: &PushSettings, timeout: Duration) -> Result<Providers, PushError> {
        config.check().map_err(PushError)?;
        let ca_file = config.ca_file.as_deref();
        let http = Http::new(ca_file, timeout, Speaks::Either)?;
        let http2 = Http::new(ca_file, timeout, Speaks::Http2)?;
        Ok(Providers {
            apns: config.apns.as_ref().map(|apns| Apns::new(apns, http2.clone())).transpose()?,
            fcm: config.fcm.as_ref().map(|fcm| Fcm::new(fcm, http2)).transpose()?,
            webpush: config.webpush.as_ref().map(|web| WebPush::new(web, http.clone())).transpose()?,
            webhook: config.webhook.as_ref().map(|hook| Webhook::new(hook, http)).transpose()?,
            // Last: what is wrong with a key was said better before.
            salt: salt(config)?,
        })
    }

    /// The providers there are, in the order of their names.
    pub fn set_up(&self) -> Vec<PushProvider> {
        PushProvider::ALL.into_iter().filter(|provider| self.is_set_up(*provider)).collect()
    }

    fn is_set_up(&self, provider: PushProvider) -> bool {
        match provider {
            PushProvider::Apns => self.apns.is_some(),
            PushProvider::Fcm => self.fcm.is_some(),
            PushProvider::Webpush => self.webpush.is_some(),
            PushProvider::Webhook => self.webhook.is_some(),
        }
    }

    /// Whether a device may register with this target: its provider is configured, and this server
    /// may call an address that the client chose. The error is for the client.
    pub fn allows(&self, target: &PushTarget) -> Result<(), String> {
        let provider = target.provider();
        if !self.is_set_up(provider) {
            return Err(format!("this server has not set up \"{}\"", provider.as_str()));
        }
        match (target, &self.webpush) {
            (PushTarget::Webpush { subscription }, Some(webpush)) => webpush.allows(subscription),
            _ => Ok(()),
        }
    }

    /// What a browser's `PushManager.subscribe` wants as `applicationServerKey`.
    pub fn vapid_public_key(&self) -> Option<&str> {
        self.webpush.as_ref().map(WebPush::public_key)
    }

    /// Asks each provider whether it accepts our credentials. No device is notified.
    pub async fn check(&self) -> Vec<(PushProvider, Result<String, String>)> {
        let mut found = Vec::new();
        if let Some(apns) = &self.apns {
            found.push((PushProvider::Apns, apns.check().await));
        }
        if let Some(fcm) = &self.fcm {
            found.push((PushProvider::Fcm, fcm.check().await));
        }
        if let Some(webpush) = &self.webpush {
            found.push((PushProvider::Webpush, Ok(format!("the public key is {}", webpush.public_key()))));
        }
        if let Some(webhook) = &self.webhook {
            found.push((PushProvider::Webhook, webhook.check().await));
        }
        found
    }
}

/// Made from the first key there is: all app servers have it, and nobody else.
fn salt(config: &PushSettings) -> Result<Vec<u8>, PushError> {
    let files = [
        config.webpush.as_ref().map(|webpush| &webpush.key_file),
        config.apns.as_ref().map(|apns| &apns.key_file),
        config.fcm.as_ref().map(|fcm| &fcm.service_account_file),
        config.webhook.as_ref().and_then(|webhook| webhook.secret_file.as_ref()),
    ];
    let secret = config.webhook.as_ref().and_then(|webhook| webhook.secret.as_ref());
    let bytes = match files.into_iter().flatten().next() {
        Some(path) => {
            fs::read(path).map_err(|e| PushError(format!("cannot read {}: {e}", path.display())))?
        }
        None => secret.map(|secret| secret.expose().as_bytes().to_vec()).unwrap_or_default(),
    };
    Ok(ring::digest::digest(&ring::digest::SHA256, &bytes).as_ref().to_vec())
}

/// Keys are behind it: only which providers there are is shown.
impl fmt::Debug for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.set_up()).finish()
    }
}

#[async_trait]
impl Notifier for Providers {
    fn route(&self, registration: &PushRegistration) -> Option<String> {
        let provider = registration.target.provider();
        match &registration.target {
            // A key may be of one environment only.
            PushTarget::Apns { sandbox: true, .. } => self.apns.as_ref().map(|_| "apns sandbox".to_owned()),
            // Each push service has limits and outages of its own.
            PushTarget::Webpush { subscription } => {
                let service = self.webpush.as_ref()?.service(subscription)?;
                Some(format!("{} {service}", provider.as_str()))
            }
            _ => self.is_set_up(provider).then(|| provider.as_str().to_owned()),
        }
    }

    fn salt(&self) -> &[u8] {
        &self.salt
    }

    async fn push(&self, device: &DeviceRow, notification: &Notification) -> Pushed {
        let target = &device.registration.target;
        let pushed = match target {
            PushTarget::Apns { token, topic, sandbox } => match &self.apns {
                Some(apns) => {
                    let to = apns::ApnsTarget { token, topic: topic.as_deref(), sandbox: *sandbox };
                    Some(apns.push(device, to, notification).await)
                }
                None => None,
            },
            PushTarget::Fcm { token } => match &self.fcm {
                Some(fcm) => Some(fcm.push(token, notification).await),
                None => None,
            },
            PushTarget::Webpush { subscription } => match &self.webpush {
                Some(webpush) => Some(webpush.push(subscription, notification).await),
                None => None,
            },
            PushTarget::Webhook { token } => match &self.webhook {
                Some(webhook) => Some(webhook.push(device, token, notification).await),
                None => None,
            },
        };
        pushed.unwrap_or_else(|| Pushed::Misconfigured {
            why: format!("this server has not set up \"{}\"", target.provider().as_str()),
        })
    }
}
