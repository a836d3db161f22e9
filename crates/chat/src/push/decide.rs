//! One decision: whether a user's devices are notified of a message, and what they show
//! ([`R14`](crate::rules::Rule::R14)).

use std::{fmt::Write as _, sync::Arc, time::Duration};

use bluetick_protocol::{ConversationId, PushContent, PushProvider, Seq, Side, UserId};
use bluetick_store::{DeviceRow, Message, OwedPush, PageLimit, StatusRow};
use futures_util::future::join;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::{About, Notification, NotificationKind, Push, carry::RetryReason, queue::key};
use crate::{AppResult, profiles::shown_name, wire};

/// How many messages back the newest one of the peer is searched for.
const LOOK_BACK: usize = 32;
/// Most attempts to clear a notification.
const CLEAR_ATTEMPTS_MAX: u32 = 20;

/// The outcome of an owed notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decided {
    /// It is no longer owed; the reason, for metrics.
    Paid(&'static str),
    /// Some device could not be reached, so it stays owed.
    Later,
    /// A live session has the message and may still ack it: decide again after this time.
    Wait(Duration),
}

impl Push {
    /// Makes the decision, sends the notifications, and records what is left to do. `sure`: a live
    /// session that has not acked does not count.
    pub(super) async fn decide(&self, owed: &OwedPush, sure: bool) -> AppResult<Decided> {
        let decided = match owed.clear {
            true => self.decide_clear(owed).await?,
            false => self.decide_alert(owed, sure).await?,
        };
        let outcome = match decided {
            Decided::Paid(why) => {
                self.store.push_outbox.paid(owed).await.map_err(wire)?;
                why
            }
            Decided::Later => "later",
            Decided::Wait(wait) => {
                // Extends the claim, so that no other process decides it at the same time.
                let due_at = self.clock.now_ms() + (wait + self.config.claim_for).as_millis() as u64;
                let waits = OwedPush { due_at, ..owed.clone() };
                self.store.push_outbox.postpone(owed, &waits).await.map_err(wire)?;
                "waits"
            }
        };
        metrics::counter!("bluetick_push_decisions_total", "outcome" => outcome).increment(1);
        Ok(decided)
    }

    async fn decide_alert(&self, owed: &OwedPush, sure: bool) -> AppResult<Decided> {
        let (user, id) = (&owed.user_id, &owed.conversation_id);
        let unrecorded = self.unrecorded.lock().get(&key(owed)).copied();
        if let Some(seq) = unrecorded {
            self.store.status.raise_notified(user, id, seq).await.map_err(wire)?;
            self.unrecorded.lock().remove(&key(owed));
        }
        let (status, notified) = self.store.status.notified(user, id).await.map_err(wire)?;
        if let Some(why) = needless(owed, &status, notified) {
            return Ok(Decided::Paid(why));
        }
        let devices = self.devices_of(owed).await?;
        if devices.is_empty() {
            return Ok(Decided::Paid("no_device"));
        }
        let Some(side) = id.side_of(user) else { return Ok(Decided::Paid("nothing")) };
        let known = status.last_delivered_seq.max(if owed.devices.is_empty() { notified } else { 0 });
        let Some(message) = self.latest_from_peer(id, side, owed.seq, known).await? else {
            return Ok(Decided::Paid("nothing"));
        };
        let now = self.clock.now_ms();
        if now.saturating_sub(message.ts) > self.config.max_age.as_millis() as u64 {
            return Ok(Decided::Paid("expired"));
        }
        let sender = message.sender();
        let (muted, blocked) =
            join(self.store.users.muted(user, id), self.store.users.blocks(user, &sender)).await;
        if muted.map_err(wire)?.is_some_and(|mute| mute.until.is_none_or(|until| until > now)) {
            return Ok(Decided::Paid("muted"));
        }
        if blocked.map_err(wire)? {
            return Ok(Decided::Paid("blocked"));
        }
        if !sure && let Some(wait) = self.may_yet_be_acked(user, message.ts).await {
            return Ok(Decided::Wait(wait));
        }
        if let Some(closed) = self.all_closed(&devices) {
            // The rest of the content costs reads, so the routes are checked first.
            self.postpone(owed, owed.devices.clone(), closed, RetryReason::Nothing).await?;
            return Ok(Decided::Later);
        }
        let (badge, profile) =
            join(self.store.conversations.total_unread(user), self.store.users.profile(&sender)).await;
        let badge = badge.map_err(wire)?;
        let name = profile.map_err(wire)?.name.and_then(shown_name).unwrap_or_else(|| sender.to_string());
        let note = |device: &DeviceRow| self.alert(&message, &name, badge, device.registration.content);
        self.send_to(owed, devices, Some(message.seq), note).await
    }

    /// How long no device can be reached.
    fn all_closed(&self, devices: &[DeviceRow]) -> Option<Duration> {
        let closed = |device: &DeviceRow| self.routes.closed_for(&self.notifier.route(&device.registration)?);
        devices.iter().map(closed).min().flatten()
    }

    async fn decide_clear(&self, owed: &OwedPush) -> AppResult<Decided> {
        let user = &owed.user_id;
        let (_, notified) = self.store.status.notified(user, &owed.conversation_id).await.map_err(wire)?;
        if notified > owed.seq {
            return Ok(Decided::Paid("superseded"));
        }
        if owed.attempts >= CLEAR_ATTEMPTS_MAX {
            return Ok(Decided::Paid("expired"));
        }
        let mut devices = self.devices_of(owed).await?;
        // Browsers require every push to be shown and revoke the permission otherwise.
        devices.retain(|device| device.registration.target.provider() != PushProvider::Webpush);
        if devices.is_empty() {
            return Ok(Decided::Paid("no_device"));
        }
        if let Some(closed) = self.all_closed(&devices) {
            self.postpone(owed, owed.devices.clone(), closed, RetryReason::Nothing).await?;
            return Ok(Decided::Later);
        }
        let badge = self.store.conversations.total_unread(user).await.map_err(wire)?;
        let id = &owed.conversation_id;
        let note = |device: &DeviceRow| {
            let shown = self.config.content.min(device.registration.content);
            let about = About { conversation_id: id.clone(), sender: None };
            Notification {
                id: format!("{}-{}-read", self.collapse_id(id), owed.seq),
                collapse_id: self.collapse_id(id),
                kind: NotificationKind::Clear {
                    seq: owed.seq,
                    about: Some(about).filter(|_| shown > PushContent::None),
                },
                badge,
                expires_at: self.clock.now_ms() + self.config.max_age.as_millis() as u64,
            }
        };
        self.send_to(owed, devices, None, note).await
    }

    /// The registered devices that a notification is owed to.
    async fn devices_of(&self, owed: &OwedPush) -> AppResult<Vec<DeviceRow>> {
        let mut devices = self.store.devices.devices_of(&owed.user_id).await.map_err(wire)?;
        devices.retain(|device| owed.devices.is_empty() || owed.devices.contains(&device.device));
        Ok(devices)
    }

    /// The newest message of the peer that the user may see, up to a seq and after what they have
    /// acked or read.
    async fn latest_from_peer(
        &self,
        id: &ConversationId,
        side: Side,
        up_to: Seq,
        known: Seq,
    ) -> AppResult<Option<Arc<Message>>> {
        let limit = |messages| PageLimit { messages, ..PageLimit::messages(1) };
        let wanted = |m: &Arc<Message>| m.seq > known && m.from != side && m.visible_to(side);
        let exact = self.store.messages.read_from(id, up_to, limit(1)).await.map_err(wire)?;
        if let Some(message) = exact.into_iter().find(|m| m.seq == up_to && wanted(m)) {
            return Ok(Some(message));
        }
        let before = self.store.messages.read_before(id, up_to, limit(LOOK_BACK)).await.map_err(wire)?;
        Ok(before.into_iter().rev().find(wanted))
    }

    /// How much longer a live session may take to ack before it no longer counts.
    async fn may_yet_be_acked(&self, user: &UserId, ts: u64) -> Option<Duration> {
        let live = self.store.sessions.lookup(user).await.unwrap_or_default();
        let connected = live.iter().map(|session| session.connected_at).max()?;
        let unacked = self.config.unacked.as_millis() as u64;
        // A device that keeps reconnecting and never acks must not delay it forever.
        let end = connected.max(ts).min(ts + unacked) + unacked;
        let end = end.max(connected + 2 * self.config.delay.as_millis() as u64).min(ts + 3 * unacked);
        let left = end.saturating_sub(self.clock.now_ms());
        (left > 0).then(|| Duration::from_millis(left))
    }

    /// The same for all notifications of a conversation, short enough for every provider, and
    /// without anything that identifies the conversation to a provider.
    fn collapse_id(&self, id: &ConversationId) -> String {
        hex(&Sha256::new().chain_update(self.notifier.salt()).chain_update(id.as_str()).finalize())
    }

    fn alert(&self, message: &Message, name: &str, badge: u64, allowed: PushContent) -> Notification {
        let mut shown = self.config.content.min(allowed);
        if is_encrypted(message) {
            shown = shown.min(PushContent::Sender);
        }
        let id = &message.conversation_id;
        let (title, body) = match shown {
            PushContent::Preview => (name.to_owned(), Some(message.preview())),
            PushContent::Sender => (name.to_owned(), Some(self.config.text.clone())),
            PushContent::None => (self.config.text.clone(), None),
        };
        let about = About { conversation_id: id.clone(), sender: Some(message.sender()) };
        Notification {
            id: message.message_id.to_string(),
            collapse_id: self.collapse_id(id),
            kind: NotificationKind::Alert {
                title,
                body,
                message_id: message.message_id,
                seq: message.seq,
                about: Some(about).filter(|_| shown > PushContent::None),
            },
            badge,
            expires_at: message.ts + self.config.max_age.as_millis() as u64,
        }
    }
}

/// Whether the sender marked the body as encrypted.
fn is_encrypted(message: &Message) -> bool {
    #[derive(Deserialize)]
    struct EncryptionMark {
        #[serde(default)]
        encrypted: bool,
    }
    let meta = message.meta.as_ref().map(|meta| serde_json::from_str::<EncryptionMark>(meta.as_str()));
    // Any other value counts as yes, so that nothing is shown by mistake.
    meta.is_some_and(|meta| meta.map_or(true, |meta| meta.encrypted))
}

/// Why no notification is needed any more, if so.
fn needless(owed: &OwedPush, status: &StatusRow, notified: Seq) -> Option<&'static str> {
    if status.last_delivered_seq >= owed.seq {
        return Some("acked");
    }
    // It was sent before, or a later one replaced it. Devices that an earlier attempt could not
    // reach still need this one.
    let is_sent = notified > owed.seq || (notified == owed.seq && owed.devices.is_empty());
    is_sent.then_some("superseded")
}

pub(super) fn hex(digest: &[u8]) -> String {
    digest.iter().take(16).fold(String::with_capacity(32), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
