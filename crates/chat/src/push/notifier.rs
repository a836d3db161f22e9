//! The one seam between the rules of notifying and those who carry notifications.

use std::time::Duration;

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, MessageId, PushRegistration, Seq, UserId};
use bluetick_store::DeviceRow;
use serde::{Deserialize, Serialize};

/// What goes to a device. Sent again, it is the same in everything but the badge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// Names it: the id of the message, or of what it clears.
    pub id: String,
    /// Names what it replaces on the phone: 32 characters of base64url, the same for all of a conversation.
    pub collapse_id: String,
    pub kind: NotificationKind,
    /// The user's total of unread messages.
    pub badge: u64,
    /// Nothing is worth delivering after that, in ms since 1970.
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
        /// Where the message is and who wrote it; nothing where not even that may be known to a provider.
        about: Option<About>,
    },
    /// Shown to nobody: what was notified of a conversation has been read on another device, up to `seq`.
    Clear { seq: Seq, about: Option<About> },
    /// Asked for by an operator, to see that the way is open.
    Test { title: String, body: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    pub conversation_id: ConversationId,
    /// Who wrote it; nobody where something was read.
    pub sender: Option<UserId>,
}

/// What a provider made of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pushed {
    Accepted,
    /// The token is of no use any more; since when, in ms since 1970, if the provider says.
    Gone {
        since: Option<u64>,
        why: String,
    },
    /// Not now: the way is closed for a while, or for so long if the provider says.
    Later {
        after: Option<Duration>,
        why: String,
    },
    /// The operator's key, certificate or address is wrong: nothing gets through until that is put right.
    Misconfigured {
        why: String,
    },
    /// Not now for this device, and that says nothing of others on the same way: it gets too many, or its token is of
    /// another app or key than the server's.
    NotThisDevice {
        after: Option<Duration>,
        why: String,
    },
    /// This one will never be taken.
    Refused {
        why: String,
    },
}

#[async_trait]
pub trait Notifier: Send + Sync {
    /// The way to a device: what goes the same way shares its limit and its outages. Nothing for a provider that this
    /// server has not set up.
    fn route(&self, registration: &PushRegistration) -> Option<String>;

    /// Known to all app servers and to nobody else, so that no provider can tell a conversation by its collapse id.
    fn salt(&self) -> &[u8];

    /// Sends one notification, once; the caller tries again.
    async fn push(&self, device: &DeviceRow, notification: &Notification) -> Pushed;
}
