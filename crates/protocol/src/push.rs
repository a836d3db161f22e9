//! Where a device is notified, and how much a notification shows. Over HTTP only.

use serde::{Deserialize, Serialize};

use crate::{ConversationId, DeviceId, limits};

/// Who carries a notification to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum PushProvider {
    Apns,
    Fcm,
    Webpush,
    Webhook,
}

impl PushProvider {
    pub const ALL: [PushProvider; 4] =
        [PushProvider::Apns, PushProvider::Fcm, PushProvider::Webpush, PushProvider::Webhook];

    pub fn as_str(self) -> &'static str {
        match self {
            PushProvider::Apns => "apns",
            PushProvider::Fcm => "fcm",
            PushProvider::Webpush => "webpush",
            PushProvider::Webhook => "webhook",
        }
    }
}

/// The address that a provider gave to a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "provider", rename_all = "lowercase")]
pub enum PushTarget {
    Apns {
        token: String,
        /// The app's bundle id, where the server's own is not it.
        #[serde(skip_serializing_if = "Option::is_none")]
        topic: Option<String>,
        /// The token is of a development build.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        sandbox: bool,
    },
    Fcm {
        token: String,
    },
    Webpush {
        subscription: PushSubscription,
    },
    /// Whatever the operator's endpoint knows the device by.
    Webhook {
        token: String,
    },
}

/// What a browser's `PushManager.subscribe` returns, unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PushSubscription {
    #[cfg_attr(
        feature = "openapi",
        schema(example = "https://updates.push.services.mozilla.com/wpush/v2/gAAAA")
    )]
    pub endpoint: String,
    pub keys: PushKeys,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PushKeys {
    pub p256dh: String,
    pub auth: String,
}

/// How much of a message a notification shows: the sender and how the message begins, the sender, or neither. The
/// least of what the server and the device allow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum PushContent {
    /// That there is a message, and nothing of whom or what.
    None,
    /// Who wrote it.
    Sender,
    /// Who wrote it, and how it begins.
    #[default]
    Preview,
}

/// A device's wish to be notified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RegistrationFields")]
pub struct PushRegistration {
    #[serde(flatten)]
    pub target: PushTarget,
    pub content: PushContent,
}

/// A device's address at its provider: `token`, or for `webpush` the `subscription`.
// Unknown fields are refused: a misspelt `content` would show what is to be hidden.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = PushRegistration))]
pub(crate) struct RegistrationFields {
    provider: PushProvider,
    /// What the provider gave the device; for `webhook` whatever the operator's endpoint knows it by.
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    token: Option<String>,
    /// For `apns`: the app's bundle id, where it is not the server's own.
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    topic: Option<String>,
    /// For `apns`: whether the token is of a development build.
    #[serde(default)]
    sandbox: bool,
    /// For `webpush`.
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    subscription: Option<PushSubscription>,
    /// The most that this device shows; `preview` without it.
    #[serde(default)]
    content: PushContent,
}

impl TryFrom<RegistrationFields> for PushRegistration {
    type Error = String;

    fn try_from(fields: RegistrationFields) -> Result<PushRegistration, String> {
        let RegistrationFields { provider, token, topic, sandbox, subscription, content } = fields;
        let is_apns = provider == PushProvider::Apns;
        let is_webpush = provider == PushProvider::Webpush;
        for (given, name, fits) in [
            (token.is_some(), "token", !is_webpush),
            (topic.is_some(), "topic", is_apns),
            (sandbox, "sandbox", is_apns),
            (subscription.is_some(), "subscription", is_webpush),
        ] {
            if given && !fits {
                return Err(format!("\"{name}\" is not for \"{}\"", provider.as_str()));
            }
        }
        let missing = |name: &str| format!("\"{name}\" is missing, which \"{}\" needs", provider.as_str());
        let token = || token.ok_or_else(|| missing("token"));
        let target = match provider {
            PushProvider::Apns => PushTarget::Apns { token: token()?, topic, sandbox },
            PushProvider::Fcm => PushTarget::Fcm { token: token()? },
            PushProvider::Webhook => PushTarget::Webhook { token: token()? },
            PushProvider::Webpush => {
                PushTarget::Webpush { subscription: subscription.ok_or_else(|| missing("subscription"))? }
            }
        };
        Ok(PushRegistration { target, content })
    }
}

impl PushTarget {
    pub fn provider(&self) -> PushProvider {
        match self {
            PushTarget::Apns { .. } => PushProvider::Apns,
            PushTarget::Fcm { .. } => PushProvider::Fcm,
            PushTarget::Webpush { .. } => PushProvider::Webpush,
            PushTarget::Webhook { .. } => PushProvider::Webhook,
        }
    }

    /// The one string that names the device at its provider: two users cannot both have it.
    pub fn address(&self) -> &str {
        match self {
            PushTarget::Apns { token, .. } | PushTarget::Fcm { token } | PushTarget::Webhook { token } => {
                token
            }
            PushTarget::Webpush { subscription } => &subscription.endpoint,
        }
    }

    /// What is wrong with it, if anything is.
    pub fn check(&self) -> Result<(), &'static str> {
        let plain = |text: &str, max: usize| {
            !text.is_empty() && text.len() <= max && text.bytes().all(|b| b.is_ascii_graphic())
        };
        match self {
            PushTarget::Apns { token, topic, .. } => {
                if !plain(token, 200) || token.len() % 2 != 0 || !token.bytes().all(|b| b.is_ascii_hexdigit())
                {
                    return Err("\"token\" must be the device token as hexadecimal digits");
                }
                if topic.as_deref().is_some_and(|topic| !plain(topic, 255)) {
                    return Err("\"topic\" must be a bundle id");
                }
                Ok(())
            }
            PushTarget::Fcm { token } | PushTarget::Webhook { token } => {
                match plain(token, limits::PUSH_TOKEN_MAX_BYTES) {
                    true => Ok(()),
                    false => Err("\"token\" must be 1 to 1024 visible ASCII characters"),
                }
            }
            PushTarget::Webpush { subscription: PushSubscription { endpoint, keys } } => {
                if !plain(endpoint, 2048) || !endpoint.starts_with("https://") {
                    return Err("\"endpoint\" must be an https address of at most 2048 characters");
                }
                // 65 bytes of an uncompressed point and 16 of a secret, as base64url.
                let sized = |text: &str, bytes: usize| {
                    let text = text.trim_end_matches('=');
                    let known = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
                    text.len() == (bytes * 4).div_ceil(3) && text.bytes().all(known)
                };
                if !sized(&keys.p256dh, 65) || !sized(&keys.auth, 16) {
                    return Err(
                        "\"keys\" must hold the subscription's p256dh and auth as the browser gave them",
                    );
                }
                Ok(())
            }
        }
    }
}

/// A registered device, as its user sees it. Its token is not shown again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PushDeviceCard {
    pub device: DeviceId,
    pub provider: PushProvider,
    pub content: PushContent,
    /// Milliseconds since 1970.
    pub registered_at: u64,
}

/// A conversation that does not notify this user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Mute {
    pub conversation_id: ConversationId,
    /// Milliseconds since 1970; left out where it is for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub until: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> PushRegistration {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn registrations_are_read_as_clients_write_them() {
        let apns = read(
            r#"{"provider":"apns","token":"ab01","topic":"org.example.app","sandbox":true,"content":"none"}"#,
        );
        assert_eq!(apns.target.provider(), PushProvider::Apns);
        assert_eq!(apns.content, PushContent::None);
        let p256dh = "B".repeat(87);
        let auth = "a".repeat(22);
        let web = read(&format!(
            r#"{{"provider":"webpush","subscription":{{"endpoint":"https://push.example/x","expirationTime":null,"keys":{{"p256dh":"{p256dh}","auth":"{auth}"}}}}}}"#
        ));
        assert_eq!(web.target.check(), Ok(()));
        assert_eq!(web.target.address(), "https://push.example/x");
        assert_eq!(web.content, PushContent::Preview, "a device that does not say shows what it can");
        for kept in [apns, web] {
            assert_eq!(read(&serde_json::to_string(&kept).unwrap()), kept);
        }
    }

    #[test]
    fn what_no_provider_gives_is_refused() {
        let bad = [
            r#"{"provider":"apns","token":"not hex"}"#,
            r#"{"provider":"apns","token":"abc"}"#,
            r#"{"provider":"fcm","token":""}"#,
            r#"{"provider":"webhook","token":"with space"}"#,
            r#"{"provider":"webpush","subscription":{"endpoint":"http://push.example/x","keys":{"p256dh":"B","auth":"a"}}}"#,
            r#"{"provider":"webpush","subscription":{"endpoint":"https://push.example/x","keys":{"p256dh":"B","auth":"a"}}}"#,
        ];
        for text in bad {
            assert!(read(text).target.check().is_err(), "{text}");
        }
    }

    #[test]
    fn what_does_not_belong_there_is_refused_by_name() {
        for (text, why) in [
            (r#"{"provider":"webhook","token":"a","contnet":"none"}"#, "contnet"),
            (r#"{"provider":"fcm","token":"a","sandbox":true}"#, "\"sandbox\" is not for \"fcm\""),
            (r#"{"provider":"webpush","token":"a"}"#, "\"token\" is not for \"webpush\""),
            (r#"{"provider":"webpush"}"#, "\"subscription\" is missing"),
            (r#"{"provider":"apns"}"#, "\"token\" is missing"),
            (r#"{"token":"a"}"#, "provider"),
        ] {
            let error = serde_json::from_str::<PushRegistration>(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn the_least_content_wins() {
        assert!(PushContent::None < PushContent::Sender && PushContent::Sender < PushContent::Preview);
    }
}
