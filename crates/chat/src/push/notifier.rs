//! The interface between the push rules and the push providers.

use std::time::Duration;

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, MessageId, PushRegistration, Seq, UserId};
use bluetick_store::DeviceRow;
use serde::{Deserialize, Serialize};

/// A notification for a device. A retry differs at most in the badge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// The id of the message, or of the notification that it clears.
    pub id: String,
    /// Notifications with the same value replace each other on the phone: 32 characters of
    /// base64url, one per conversation.
    pub collapse_id: String,
    pub kind: NotificationKind,
    /// The user's total of unread messages.
    pub badge: u64,
    /// Expiry, in ms since 1970.
    pub expires_at: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotificationKind {
    /// Shown to the user.
    Alert {
        title: String,
        body: Option<String>,
        message_id: MessageId,
        seq: Seq,
        /// The conversation and the sender; `None` where a provider must not learn even that.
        about: Option<About>,
    },
    /// Silent: the conversation was read on another device up to `seq`.
    Clear { seq: Seq, about: Option<About> },
    /// An operator's test.
    Test { title: String, body: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    pub conversation_id: ConversationId,
    /// The sender; `None` for a clear.
    pub sender: Option<UserId>,
}

/// A provider's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pushed {
    Accepted,
    /// The token is invalid; since when, in ms since 1970, if the provider says.
    Gone {
        since: Option<u64>,
        why: String,
    },
    /// Try later: the route is closed for a while, or for as long as the provider says.
    Later {
        after: Option<Duration>,
        why: String,
    },
    /// The operator's key, certificate or address is wrong: nothing is delivered until that is
    /// fixed.
    Misconfigured {
        why: String,
    },
    /// Try later for this device only: it gets too many notifications, or its token belongs to
    /// another app or key.
    NotThisDevice {
        after: Option<Duration>,
        why: String,
    },
    /// This notification will never be accepted.
    Refused {
        why: String,
    },
}

#[async_trait]
pub trait Notifier: Send + Sync {
    /// The route to a device. Notifications on one route share its limit and its outages. `None`
    /// for a provider that is not configured.
    fn route(&self, registration: &PushRegistration) -> Option<String>;

    /// A secret of the app servers, so that no provider can identify a conversation by its collapse
    /// id.
    fn salt(&self) -> &[u8];

    /// Sends one notification once; the caller retries.
    async fn push(&self, device: &DeviceRow, notification: &Notification) -> Pushed;
}
