//! What was decided goes to the devices: by the way to each, with what the providers answer obeyed, and what could not be
//! sent written down for later.

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

/// What waited longer for room than this is looked at once more.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Notifications that were sent and could not be recorded, at most.
const UNRECORDED_MAX: usize = 10_000;
const RETRY_MIN: Duration = Duration::from_secs(2);
const RETRY_MAX: Duration = Duration::from_secs(600);

/// What one device made of it.
enum Reached {
    Done(bool),
    /// Not now, and after how long again.
    Later {
        after: Duration,
        tried: Tried,
    },
}

/// What was tried, as far as it says when to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tried {
    Nothing,
    /// The way was closed to all: it opens for all at once, and its pause grows by itself.
    Way,
    /// This device was not to be reached: it is tried less and less often.
    Device,
}

impl Push {
    /// Sends to each device what is made for it, and keeps owing it to those that could not be reached.
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
        let (mut left, mut waits, mut any, mut most) = (Vec::new(), Vec::new(), false, Tried::Nothing);
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
            // First who lacks it, then that others have it: the other way round a crash between loses it for the rest. If
            // nobody has it, it is owed to whichever devices there are by then.
            let nobody = owed.devices.is_empty() && left.len() == devices.len();
            // As soon as one of them may be tried: to ask a closed way again costs nothing.
            let after = waits.into_iter().min().unwrap_or_default();
            let tried = most.max(if any { Tried::Way } else { Tried::Nothing });
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

    /// Writes down that the devices were notified.
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
        // Who read it while it was on its way found nothing to clear. Either they see the boundary, or this sees theirs.
        let read = self.store.status.status(user, id).await.map_err(wire)?.last_read_seq;
        if any && read >= seq {
            let (user, conversation_id) = (user.clone(), id.clone());
            self.read_on(ReadOn { user, conversation_id, before: 0, read, session: None });
        }
        Ok(())
    }

    /// Owes the rest to the devices that are left: after a while, that grows with every try.
    pub(super) async fn postpone(
        &self,
        owed: &OwedPush,
        devices: Vec<DeviceId>,
        after: Duration,
        tried: Tried,
    ) -> AppResult<()> {
        let backoff = match tried {
            Tried::Device => (RETRY_MIN * 2u32.pow(owed.attempts.min(8))).min(RETRY_MAX),
            Tried::Way | Tried::Nothing => RETRY_MIN,
        };
        let spread = self.rng.lock().random_range(0.5..1.0);
        let wait = after.max(backoff.mul_f64(spread));
        let later = OwedPush {
            attempts: owed.attempts.saturating_add(u32::from(tried > Tried::Nothing)),
            devices,
            due_at: self.clock.now_ms() + wait.as_millis() as u64,
            ..owed.clone()
        };
        // If something later is owed by now, that goes to all devices anyway.
        self.store.push_outbox.postpone(owed, &later).await.map_err(wire)?;
        Ok(())
    }

    /// The same for what could not even be decided.
    pub(super) async fn put_off(&self, owed: &OwedPush) {
        if let Err(e) = self.postpone(owed, owed.devices.clone(), Duration::ZERO, Tried::Nothing).await {
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
        let leave = match self.routes.enter(&route).await {
            Ok(leave) => leave,
            Err(after) => return Reached::Later { after, tried: Tried::Nothing },
        };
        // What had to wait for room may have been acked, or replaced, meanwhile.
        if !owed.clear
            && decided.elapsed() > LOOK_AGAIN_AFTER
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
        let renewed = !self.obey(device, &answer).await;
        match answer {
            Pushed::Gone { .. } if renewed => Reached::Later { after: Duration::ZERO, tried: Tried::Device },
            Pushed::Accepted => {
                metrics::counter!("bluetick_push_sent_total", "provider" => provider).increment(1);
                Reached::Done(true)
            }
            Pushed::Gone { .. } | Pushed::Refused { .. } => Reached::Done(false),
            Pushed::NotThisDevice { after, .. } => {
                Reached::Later { after: after.unwrap_or_default(), tried: Tried::Device }
            }
            Pushed::Later { .. } | Pushed::Misconfigured { .. } => {
                let after = self.routes.closed_for(&route).unwrap_or_default();
                Reached::Later { after, tried: Tried::Way }
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

    /// Sends a notification to each of a user's devices now, and says what came of it.
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
