//! Sends a decided notification to the devices, acts on the providers' answers, and records what
//! must be retried.

use std::time::Duration;

use bluetick_protocol::{DeviceId, ErrorCode, MessageId, Seq, UserId, WireError};
use bluetick_store::{DeviceRow, OwedPush};
use futures_util::future::join_all;
use rand::RngExt as _;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::{
    Notification, NotificationKind, Push, PushTested, Pushed, ReadOn,
    decide::{Decided, hex},
    queue::key,
};
use crate::{AppResult, wire};

/// A notification that waited longer than this for its route is checked again before it is sent.
const RECHECK_AFTER: Duration = Duration::from_secs(1);
/// Most notifications that were sent and could not be recorded.
const UNRECORDED_MAX: usize = 10_000;
const RETRY_MIN: Duration = Duration::from_secs(2);
const RETRY_MAX: Duration = Duration::from_secs(600);

/// The outcome for one device.
enum Reached {
    Done(bool),
    /// Retry after this time.
    Later {
        after: Duration,
        tried: RetryReason,
    },
}

/// Outcomes of an attempt that determine when to retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RetryReason {
    Nothing,
    /// The route was closed: it opens for all devices at once, and its pause grows by itself.
    Route,
    /// This device could not be reached: it is retried with backoff.
    Device,
}

impl Push {
    /// Sends the notification to each device, and keeps owing it to those that could not be
    /// reached.
    pub(super) async fn send_to(
        &self,
        owed: &OwedPush,
        devices: Vec<DeviceRow>,
        alert: Option<Seq>,
        note: impl Fn(&DeviceRow) -> Notification,
    ) -> AppResult<Decided> {
        let each = devices.iter().map(|device| {
            let note = note(device);
            async move { self.send_one(owed, device, &note).await }
        });
        let reached = join_all(each).await;
        let (mut left, mut waits, mut any, mut most) = (Vec::new(), Vec::new(), false, RetryReason::Nothing);
        for (device, reached) in devices.iter().zip(reached) {
            match reached {
                Reached::Done(accepted) => {
                    any |= accepted;
                    if let Some(seq) = alert.filter(|_| accepted) {
                        self.observer.pushed(&owed.user_id, &device.device, &owed.conversation_id, seq);
                    }
                }
                Reached::Later { after, tried } => {
                    most = most.max(tried);
                    waits.push(after);
                    left.push(device.device.clone());
                }
            }
        }
        let is_done = left.is_empty();
        if !is_done {
            // First records the devices that lack it, then that the others have it. In the other
            // order a crash in between loses it for the rest. If no device has it, it stays owed to
            // all devices registered then.
            let nobody = owed.devices.is_empty() && left.len() == devices.len();
            // Due as soon as one of them may be tried: asking a closed route costs nothing.
            let after = waits.into_iter().min().unwrap_or_default();
            let tried = most.max(if any { RetryReason::Route } else { RetryReason::Nothing });
            self.postpone(owed, if nobody { Vec::new() } else { left }, after, tried).await?;
        }
        if let Some(seq) = alert.filter(|_| any || is_done) {
            self.record(owed, seq, any).await?;
        }
        Ok(match is_done {
            true => Decided::Paid(if any { "sent" } else { "undeliverable" }),
            false => Decided::Later,
        })
    }

    /// Records that the devices were notified.
    async fn record(&self, owed: &OwedPush, seq: Seq, any: bool) -> AppResult<()> {
        let (user, id) = (&owed.user_id, &owed.conversation_id);
        if let Err(e) = self.store.status.raise_notified(user, id, seq).await {
            let mut unrecorded = self.unrecorded.lock();
            if unrecorded.len() >= UNRECORDED_MAX {
                unrecorded.pop_first();
            }
            unrecorded.insert(key(owed), seq);
            return Err(wire(e));
        }
        // A read while the notification was in flight found nothing to clear. Either that read sees
        // this boundary, or this sees that read.
        let read = self.store.status.status(user, id).await.map_err(wire)?.last_read_seq;
        if any && read >= seq {
            let (user, conversation_id) = (user.clone(), id.clone());
            self.read_on(ReadOn { user, conversation_id, before: 0, read, session: None });
        }
        Ok(())
    }

    /// Keeps owing the notification to the remaining devices, with exponential backoff.
    pub(super) async fn postpone(
        &self,
        owed: &OwedPush,
        devices: Vec<DeviceId>,
        after: Duration,
        tried: RetryReason,
    ) -> AppResult<()> {
        let backoff = match tried {
            RetryReason::Device => (RETRY_MIN * 2u32.pow(owed.attempts.min(8))).min(RETRY_MAX),
            RetryReason::Route | RetryReason::Nothing => RETRY_MIN,
        };
        let spread = self.rng.lock().random_range(0.5..1.0);
        let wait = after.max(backoff.mul_f64(spread));
        let later = OwedPush {
            attempts: owed.attempts.saturating_add(u32::from(tried > RetryReason::Nothing)),
            devices,
            due_at: self.clock.now_ms() + wait.as_millis() as u64,
            ..owed.clone()
        };
        // A later notification, if one is owed by now, goes to all devices anyway.
        self.store.push_outbox.postpone(owed, &later).await.map_err(wire)?;
        Ok(())
    }

    /// The same for a notification that could not be decided.
    pub(super) async fn put_off(&self, owed: &OwedPush) {
        if let Err(e) = self.postpone(owed, owed.devices.clone(), Duration::ZERO, RetryReason::Nothing).await
        {
            tracing::warn!(error = %e, "push outbox not updated; the notification is retried when its claim expires");
        }
    }

    async fn send_one(&self, owed: &OwedPush, device: &DeviceRow, note: &Notification) -> Reached {
        let registration = &device.registration;
        let provider = registration.target.provider().as_str();
        let Some(route) = self.notifier.route(registration) else {
            // No provider is configured for it; the operator may configure one for later
            // notifications.
            self.count_failure(provider, "not_configured");
            return Reached::Done(false);
        };
        let decided = Instant::now();
        let leave = match self.routes.enter(&route).await {
            Ok(leave) => leave,
            Err(after) => return Reached::Later { after, tried: RetryReason::Nothing },
        };
        // While it waited it may have been acked or replaced.
        if !owed.clear
            && decided.elapsed() > RECHECK_AFTER
            && let Ok((status, notified)) =
                self.store.status.notified(&owed.user_id, &owed.conversation_id).await
            && (status.last_delivered_seq >= owed.seq || notified > owed.seq)
        {
            self.routes.unused(&route, leave.probe);
            return Reached::Done(false);
        }
        let answer = self.notifier.push(device, note).await;
        self.routes.heard(&route, &leave, &answer, &mut *self.rng.lock());
        drop(leave);
        let renewed = !self.apply_answer(device, &answer).await;
        match answer {
            Pushed::Gone { .. } if renewed => {
                Reached::Later { after: Duration::ZERO, tried: RetryReason::Device }
            }
            Pushed::Accepted => {
                metrics::counter!("bluetick_push_sent_total", "provider" => provider).increment(1);
                Reached::Done(true)
            }
            Pushed::Gone { .. } | Pushed::Refused { .. } => Reached::Done(false),
            Pushed::NotThisDevice { after, .. } => {
                Reached::Later { after: after.unwrap_or_default(), tried: RetryReason::Device }
            }
            Pushed::Later { .. } | Pushed::Misconfigured { .. } => {
                let after = self.routes.closed_for(&route).unwrap_or_default();
                Reached::Later { after, tried: RetryReason::Route }
            }
        }
    }

    /// Acts on a provider's answer. Returns false if the registration was renewed meanwhile, so
    /// that the answer does not apply to it.
    async fn apply_answer(&self, device: &DeviceRow, answer: &Pushed) -> bool {
        let provider = device.registration.target.provider().as_str();
        let mut renewed = false;
        let reason = match answer {
            Pushed::Accepted => return true,
            Pushed::Gone { since, why } => {
                // The answer does not apply to a registration that is newer than the provider's
                // information.
                if since.is_none_or(|since| since >= device.registered_at) {
                    let (user, at) = (&device.user_id, device.registered_at);
                    match self.store.devices.unregister(user, &device.device, Some(at)).await {
                        Ok(true) => {
                            tracing::info!(%user, device = %device.device, provider, why, "push registration removed: the provider no longer accepts its token");
                        }
                        Ok(false) => renewed = true,
                        Err(e) => {
                            tracing::warn!(error = %e, "invalid push token not removed; it will be tried again")
                        }
                    }
                }
                "gone"
            }
            Pushed::Later { .. } => "later",
            Pushed::NotThisDevice { why, .. } => {
                tracing::warn!(
                    provider,
                    why,
                    "push provider rejects notifications for one device; check its app and key"
                );
                "not_this_device"
            }
            Pushed::Misconfigured { why } => {
                tracing::error!(provider, why, "push provider misconfigured; correct its settings");
                "misconfigured"
            }
            Pushed::Refused { why } => {
                tracing::warn!(provider, why, "push provider refused a notification");
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

    /// Sends a test notification to each of a user's devices and reports the answers.
    pub async fn test(&self, user: &UserId) -> AppResult<Vec<PushTested>> {
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
                self.apply_answer(&device, &answer).await;
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
