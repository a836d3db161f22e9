//! One decision: whether somebody's devices are told of a message, and what they are told (R14).

use std::{fmt::Write as _, sync::Arc, time::Duration};

use bluetick_protocol::{
    ConversationId, DeviceId, ErrorCode, MessageId, PushContent, PushProvider, Seq, Side, UserId, WireError,
};
use bluetick_store::{DeviceRow, Message, OwedPush, PageLimit, StatusRow, preview_of};
use futures_util::future::{join, join_all};
use rand::RngExt as _;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::{About, Notification, NotificationKind, Push, PushTested, Pushed, ReadOn, queue::key};
use crate::{Answer, Step, wire};

/// Of what is owed, this many messages back one is looked for that the peer wrote.
const LOOK_BACK: usize = 32;
/// A clear is tried so often: then the user has long seen the app itself.
const CLEAR_ATTEMPTS_MAX: u32 = 20;
/// What waited longer for room than this is looked at once more.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Notifications that were sent and could not be recorded, at most.
const UNRECORDED_MAX: usize = 10_000;
const RETRY_MIN: Duration = Duration::from_secs(2);
const RETRY_MAX: Duration = Duration::from_secs(600);

/// What became of something that was owed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decided {
    /// It is owed no more; why, in a word.
    Paid(&'static str),
    /// Some device could not be reached: it stays owed.
    Later,
    /// A live session has it and may yet ack it: to be decided again after that long.
    Wait(Duration),
}

/// What one device made of it.
enum Reached {
    Done(bool),
    Later(Duration),
}

impl Push {
    /// Makes the decision, sends what it says, and writes down what is left of it. `sure`: a live session that has not
    /// acked is none.
    pub(super) async fn decide(&self, owed: &OwedPush, sure: bool) -> Answer<Decided> {
        let decided = match owed.clear {
            true => self.decide_clear(owed).await?,
            false => self.decide_alert(owed, sure).await?,
        };
        let outcome = match decided {
            Decided::Paid(why) => {
                self.store.push_outbox.paid(owed).await.map_err(wire)?;
                self.unrecorded.lock().remove(&key(owed));
                why
            }
            Decided::Later => "later",
            Decided::Wait(wait) => {
                // So long it is this process's; nobody else is to decide it at the same moment.
                let due_at = self.clock.now_ms() + (wait + self.config.claim_for).as_millis() as u64;
                let waits = OwedPush { due_at, ..owed.clone() };
                self.store.push_outbox.postpone(&waits).await.map_err(wire)?;
                "waits"
            }
        };
        metrics::counter!("bluetick_push_decisions_total", "outcome" => outcome).increment(1);
        Ok(decided)
    }

    async fn decide_alert(&self, owed: &OwedPush, sure: bool) -> Answer<Decided> {
        let (user, id) = (&owed.user_id, &owed.conversation_id);
        let unrecorded = self.unrecorded.lock().get(&key(owed)).copied();
        if let Some(seq) = unrecorded {
            self.store.status.raise_notified(user, id, seq).await.map_err(wire)?;
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
            // The rest of what it would show costs reads: not for nothing.
            self.postpone(owed, owed.devices.clone(), closed).await?;
            return Ok(Decided::Later);
        }
        let (badge, profile) =
            join(self.store.conversations.total_unread(user), self.store.users.profile(&sender)).await;
        let badge = badge.map_err(wire)?;
        let name = profile.map_err(wire)?.name.unwrap_or_else(|| sender.to_string());
        let note = |device: &DeviceRow| self.alert(&message, &name, badge, device.registration.content);
        self.send_to(owed, devices, Some(message.seq), note).await
    }

    /// For how long no device can be reached.
    fn all_closed(&self, devices: &[DeviceRow]) -> Option<Duration> {
        let closed = |device: &DeviceRow| self.routes.closed_for(&self.notifier.route(&device.registration)?);
        devices.iter().map(closed).min().flatten()
    }

    /// Sends to each device what is made for it, and keeps owing it to those that could not be reached.
    async fn send_to(
        &self,
        owed: &OwedPush,
        devices: Vec<DeviceRow>,
        alert: Option<Seq>,
        note: impl Fn(&DeviceRow) -> Notification,
    ) -> Answer<Decided> {
        let each = devices.iter().map(|device| {
            let note = note(device);
            async move { self.send_one(owed, device, &note).await }
        });
        let reached = join_all(each).await;
        let (mut left, mut after, mut any) = (Vec::new(), Duration::ZERO, false);
        for (device, reached) in devices.iter().zip(reached) {
            match reached {
                Reached::Done(accepted) => {
                    any |= accepted;
                    if let Some(seq) = alert.filter(|_| accepted) {
                        let (id, at) = (&owed.conversation_id, self.clock.now_ms());
                        self.trace.note(id, seq, Step::Pushed, device.device.as_str(), at);
                    }
                }
                Reached::Later(wait) => {
                    after = after.max(wait);
                    left.push(device.device.clone());
                }
            }
        }
        let is_done = left.is_empty();
        if !is_done {
            // First who lacks it, then that others have it: the other way round a crash between loses it for the rest. If
            // nobody has it, it is owed to whichever devices there are by then.
            let nobody = owed.devices.is_empty() && left.len() == devices.len();
            self.postpone(owed, if nobody { Vec::new() } else { left }, after).await?;
        }
        if let Some(seq) = alert.filter(|_| any || is_done) {
            self.record(owed, seq, any).await?;
        }
        Ok(match is_done {
            true => Decided::Paid(if any { "sent" } else { "undeliverable" }),
            false => Decided::Later,
        })
    }

    /// Writes down that the devices were notified.
    async fn record(&self, owed: &OwedPush, seq: Seq, any: bool) -> Answer<()> {
        let (user, id) = (&owed.user_id, &owed.conversation_id);
        if let Err(e) = self.store.status.raise_notified(user, id, owed.seq).await {
            let mut unrecorded = self.unrecorded.lock();
            if unrecorded.len() < UNRECORDED_MAX {
                unrecorded.insert(key(owed), owed.seq);
            }
            return Err(wire(e));
        }
        // Who read it while it was on its way found nothing to clear. Either they see the boundary, or this sees theirs.
        let read = self.store.status.status(user, id).await.map_err(wire)?.last_read_seq;
        if any && read >= seq {
            let (user, conversation_id) = (user.clone(), id.clone());
            self.read_on(ReadOn { user, conversation_id, before: 0, read, session: None });
        }
        Ok(())
    }

    /// Owes the rest to the devices that are left, to be tried after a while that grows.
    async fn postpone(&self, owed: &OwedPush, devices: Vec<DeviceId>, after: Duration) -> Answer<()> {
        let backoff = (RETRY_MIN * 2u32.pow(owed.attempts.min(8))).min(RETRY_MAX);
        let spread = self.rng.lock().random_range(0.5..1.0);
        let wait = after.max(backoff.mul_f64(spread));
        let later = OwedPush {
            attempts: owed.attempts.saturating_add(1),
            devices,
            due_at: self.clock.now_ms() + wait.as_millis() as u64,
            ..owed.clone()
        };
        // If something later is owed by now, that goes to all devices anyway.
        self.store.push_outbox.postpone(&later).await.map_err(wire)?;
        Ok(())
    }

    /// The same for what could not even be decided.
    pub(super) async fn put_off(&self, owed: &OwedPush) {
        if let Err(e) = self.postpone(owed, owed.devices.clone(), Duration::ZERO).await {
            tracing::warn!(error = %e, "a notification waits until its claim is over");
        }
    }

    async fn send_one(&self, owed: &OwedPush, device: &DeviceRow, note: &Notification) -> Reached {
        let registration = &device.registration;
        let provider = registration.target.provider().as_str();
        let Some(route) = self.notifier.route(registration) else {
            // Nobody here can send it; the operator may set the provider up again for later ones.
            self.count_failure(provider, "not_configured");
            return Reached::Done(false);
        };
        let decided = Instant::now();
        let _room = match self.routes.enter(&route).await {
            Ok(room) => room,
            Err(closed) => return Reached::Later(closed),
        };
        let began = Instant::now();
        // What had to wait for room may have been acked, or replaced, meanwhile.
        if !owed.clear
            && began - decided > LOOK_AGAIN_AFTER
            && let Ok((status, notified)) =
                self.store.status.notified(&owed.user_id, &owed.conversation_id).await
            && (status.last_delivered_seq >= owed.seq || notified > owed.seq)
        {
            self.routes.left(&route);
            return Reached::Done(false);
        }
        let answer = self.notifier.push(device, note).await;
        self.routes.heard(&route, began, &answer, &mut *self.rng.lock());
        let renewed = !self.obey(device, &answer).await;
        match answer {
            Pushed::Gone { .. } if renewed => Reached::Later(Duration::ZERO),
            Pushed::Accepted => {
                metrics::counter!("bluetick_push_sent_total", "provider" => provider).increment(1);
                Reached::Done(true)
            }
            Pushed::Gone { .. } | Pushed::Refused { .. } => Reached::Done(false),
            Pushed::NotThisDevice { after, .. } => Reached::Later(after.unwrap_or_default()),
            Pushed::Later { .. } | Pushed::Misconfigured { .. } => {
                Reached::Later(self.routes.closed_for(&route).unwrap_or_default())
            }
        }
    }

    /// Does what a provider's answer asks for, beside the notification itself. Returns whether the registration that was
    /// used is still the one, or was rightly removed: not if it was renewed meanwhile.
    async fn obey(&self, device: &DeviceRow, answer: &Pushed) -> bool {
        let provider = device.registration.target.provider().as_str();
        let mut renewed = false;
        let reason = match answer {
            Pushed::Accepted => return true,
            Pushed::Gone { since, why } => {
                // Said of a registration that is newer than what the provider speaks of, it is not meant.
                if since.is_none_or(|since| since >= device.registered_at) {
                    let (user, at) = (&device.user_id, device.registered_at);
                    match self.store.devices.unregister(user, &device.device, Some(at)).await {
                        Ok(true) => {
                            tracing::info!(%user, device = %device.device, provider, why, "a device is notified no more");
                        }
                        Ok(false) => renewed = true,
                        Err(e) => tracing::warn!(error = %e, "a token that is gone could not be removed"),
                    }
                }
                "gone"
            }
            Pushed::Later { .. } => "later",
            Pushed::NotThisDevice { why, .. } => {
                tracing::warn!(provider, why, "a provider does not take notifications for a device");
                "not_this_device"
            }
            Pushed::Misconfigured { why } => {
                tracing::error!(
                    provider,
                    why,
                    "notifications cannot be sent: put the provider's settings right"
                );
                "misconfigured"
            }
            Pushed::Refused { why } => {
                tracing::warn!(provider, why, "a provider refused a notification");
                "refused"
            }
        };
        self.count_failure(provider, reason);
        !renewed
    }

    fn count_failure(&self, provider: &'static str, reason: &'static str) {
        metrics::counter!("bluetick_push_failed_total", "provider" => provider, "reason" => reason)
            .increment(1);
    }

    async fn decide_clear(&self, owed: &OwedPush) -> Answer<Decided> {
        let user = &owed.user_id;
        let (_, notified) = self.store.status.notified(user, &owed.conversation_id).await.map_err(wire)?;
        if notified > owed.seq {
            return Ok(Decided::Paid("superseded"));
        }
        if owed.attempts >= CLEAR_ATTEMPTS_MAX {
            return Ok(Decided::Paid("expired"));
        }
        let mut devices = self.devices_of(owed).await?;
        // Browsers want everything that is pushed to be shown, and take the permission away from who does otherwise.
        devices.retain(|device| device.registration.target.provider() != PushProvider::Webpush);
        if devices.is_empty() {
            return Ok(Decided::Paid("no_device"));
        }
        if let Some(closed) = self.all_closed(&devices) {
            self.postpone(owed, owed.devices.clone(), closed).await?;
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

    /// The devices that a notification is owed to, of those that there are now.
    async fn devices_of(&self, owed: &OwedPush) -> Answer<Vec<DeviceRow>> {
        let mut devices = self.store.devices.devices_of(&owed.user_id).await.map_err(wire)?;
        devices.retain(|device| owed.devices.is_empty() || owed.devices.contains(&device.device));
        Ok(devices)
    }

    /// The newest message of the peer's that a user may see, up to a seq and after what they know.
    async fn latest_from_peer(
        &self,
        id: &ConversationId,
        side: Side,
        up_to: Seq,
        known: Seq,
    ) -> Answer<Option<Arc<Message>>> {
        let limit = |messages| PageLimit { messages, ..PageLimit::messages(1) };
        let wanted = |m: &Arc<Message>| m.seq > known && m.from != side && m.visible_to(side);
        let exact = self.store.messages.read_from(id, up_to, limit(1)).await.map_err(wire)?;
        if let Some(message) = exact.into_iter().find(|m| m.seq == up_to && wanted(m)) {
            return Ok(Some(message));
        }
        let before = self.store.messages.read_before(id, up_to, limit(LOOK_BACK)).await.map_err(wire)?;
        Ok(before.into_iter().rev().find(wanted))
    }

    /// How long a live session still has to ack a message before it no longer counts.
    async fn may_yet_be_acked(&self, user: &UserId, ts: u64) -> Option<Duration> {
        let live = self.store.sessions.lookup(user).await.unwrap_or_default();
        let connected = live.iter().map(|session| session.connected_at).max()?;
        let unacked = self.config.unacked.as_millis() as u64;
        // A device that comes back again and again and never acks does not put it off for ever.
        let end = connected.max(ts).min(ts + unacked) + unacked;
        let end = end.max(connected + 2 * self.config.delay.as_millis() as u64);
        let left = end.saturating_sub(self.clock.now_ms());
        (left > 0).then(|| Duration::from_millis(left))
    }

    /// The same for all notifications of a conversation, short enough for every provider, and nothing that tells a
    /// provider whose conversation it is.
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
            PushContent::Preview => (name.to_owned(), Some(preview_of(&message.body))),
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

    /// Sends a notification to each of a user's devices now, and says what came of it.
    pub async fn test(&self, user: &UserId) -> Answer<Vec<PushTested>> {
        let devices = self.store.devices.devices_of(user).await.map_err(wire)?;
        if devices.is_empty() {
            let why = format!("{user} has no device that is to be notified: none was registered");
            return Err(WireError::new(ErrorCode::NotFound, why));
        }
        let badge = self.store.conversations.total_unread(user).await.map_err(wire)?;
        let now = self.clock.now_ms();
        let note = Notification {
            id: MessageId::at(now).to_string(),
            collapse_id: hex(&Sha256::digest("bluetick push test")),
            kind: NotificationKind::Test {
                title: "Bluetick".into(),
                body: "Notifications reach this device.".into(),
            },
            badge,
            expires_at: now + 3_600_000,
        };
        let each = devices.into_iter().map(|device| async {
            let answer = match self.notifier.route(&device.registration) {
                Some(_) => self.notifier.push(&device, &note).await,
                None => Pushed::Misconfigured { why: "this provider is not set up here".into() },
            };
            if matches!(answer, Pushed::Gone { .. }) {
                self.obey(&device, &answer).await;
            }
            let said = match &answer {
                Pushed::Accepted => "accepted".to_owned(),
                Pushed::Gone { why, .. } => format!("the token is gone: {why}"),
                Pushed::Later { why, .. } => format!("not now: {why}"),
                Pushed::NotThisDevice { why, .. } => format!("not for this device: {why}"),
                Pushed::Misconfigured { why } => format!("misconfigured: {why}"),
                Pushed::Refused { why } => format!("refused: {why}"),
            };
            PushTested {
                device: device.device,
                provider: device.registration.target.provider(),
                accepted: answer == Pushed::Accepted,
                answer: said,
            }
        });
        Ok(join_all(each).await)
    }
}

/// Whether the sender says that the body is not for the server to read.
fn is_encrypted(message: &Message) -> bool {
    #[derive(Deserialize)]
    struct Meta {
        #[serde(default)]
        encrypted: bool,
    }
    let meta = message.meta.as_ref().map(|meta| serde_json::from_str::<Meta>(meta.as_str()));
    // Something else under that name is taken for a yes: nothing is shown by mistake.
    meta.is_some_and(|meta| meta.map_or(true, |meta| meta.encrypted))
}

/// Why nobody need be notified any more, if so.
fn needless(owed: &OwedPush, status: &StatusRow, notified: Seq) -> Option<&'static str> {
    if status.last_delivered_seq >= owed.seq {
        return Some("acked");
    }
    // Sent already, by whoever had it before, or replaced by a later one that was. Devices that are left over from a try
    // still wait for this very one.
    let is_sent = notified > owed.seq || (notified == owed.seq && owed.devices.is_empty());
    is_sent.then_some("superseded")
}

fn hex(digest: &[u8]) -> String {
    digest.iter().take(16).fold(String::with_capacity(32), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
