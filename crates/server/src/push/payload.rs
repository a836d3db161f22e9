//! What all providers carry of a notification, and how it is made to fit and named.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bluetick_chat::{About, Notification, NotificationKind};
use bluetick_protocol::{ConversationId, MessageId, Seq, UserId};
use bluetick_store::{Clock as _, DeviceRow, SystemClock};
use ring::digest::{SHA256, digest};
use serde::Serialize;

/// Where the app goes when the notification is opened, or what it is to take away.
#[derive(Serialize)]
pub(super) struct Data<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message_id: Option<MessageId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) conversation_id: Option<&'a ConversationId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seq: Option<Seq>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sender: Option<&'a UserId>,
}

/// What the user sees of it.
#[derive(Clone, Copy)]
pub(super) struct AlertText<'a> {
    pub(super) title: &'a str,
    pub(super) body: Option<&'a str>,
}

pub(super) fn data(notification: &Notification) -> Data<'_> {
    let (kind, message_id, seq, about) = match &notification.kind {
        NotificationKind::Alert { message_id, seq, about, .. } => {
            ("message", Some(*message_id), Some(*seq), about.as_ref())
        }
        NotificationKind::Clear { seq, about } => ("clear", None, Some(*seq), about.as_ref()),
        NotificationKind::Test { .. } => ("test", None, None, None),
    };
    Data {
        kind,
        message_id,
        conversation_id: about.map(|About { conversation_id, .. }| conversation_id),
        seq,
        sender: about.and_then(|about| about.sender.as_ref()),
    }
}

/// Nothing where nothing is to be seen.
pub(super) fn shown(notification: &Notification) -> Option<AlertText<'_>> {
    match &notification.kind {
        NotificationKind::Alert { title, body, .. } => Some(AlertText { title, body: body.as_deref() }),
        NotificationKind::Test { title, body } => Some(AlertText { title, body: Some(body) }),
        NotificationKind::Clear { .. } => None,
    }
}

/// The collapse id: what the notification replaces at the provider and on the phone. A clearing
/// notification has its own id: it may arrive after the next message's notification, and must not
/// replace it.
pub(super) fn collapse_id(notification: &Notification) -> String {
    match &notification.kind {
        NotificationKind::Clear { .. } => {
            let hash = digest(&SHA256, format!("clear {}", notification.collapse_id).as_bytes());
            URL_SAFE_NO_PAD.encode(&hash.as_ref()[..24])
        }
        _ => notification.collapse_id.clone(),
    }
}

/// A UUID that is the same whenever the same notification goes to the same device, and never else.
pub(super) fn request_id(device: &DeviceRow, notification: &Notification) -> String {
    let name = [data(notification).kind, &notification.id, device.user_id.as_str(), device.device.as_str()];
    let hash = digest(&SHA256, name.join("\0").as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.as_ref()[..16]);
    // Version 8, which leaves the rest to us, and the variant of RFC 9562.
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// How long it is still worth delivering.
pub(super) fn seconds_left(notification: &Notification) -> u64 {
    notification.expires_at.saturating_sub(SystemClock.now_ms()) / 1_000
}

/// Writes with `write`, and again with less of what is shown until it has at most `limit` bytes.
pub(super) fn fit(limit: usize, shown: AlertText<'_>, write: impl Fn(AlertText<'_>) -> String) -> String {
    let (mut title, mut body) = (shown.title.to_owned(), shown.body.map(str::to_owned));
    loop {
        let text = write(AlertText { title: &title, body: body.as_deref() });
        // No character is shorter in JSON than it is in itself.
        let excess = text.len().saturating_sub(limit);
        let longer = match &mut body {
            Some(body) if body.len() > title.len() => body,
            _ => &mut title,
        };
        if excess == 0 || longer.is_empty() {
            return text;
        }
        cut(longer, excess);
    }
}

/// Truncates a text by at least `excess` bytes, at a character boundary, with an ellipsis.
fn cut(text: &mut String, excess: usize) {
    const SIGN: char = '…';
    let keep = text.len().saturating_sub(excess + SIGN.len_utf8());
    let keep = text.floor_char_boundary(keep);
    text.truncate(keep);
    if keep > 0 {
        text.push(SIGN);
    }
}
