//! The end of a session: what was started is finished, and what the device has not acked is written
//! down (R5).

use std::time::Duration;

use bluetick_protocol::{ErrorCode, UserId, WireError};
use futures_util::future::join;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::{Instant, sleep, timeout};

use super::{End, Session};
use crate::{
    DebtsRequest,
    session::{FrameSink, FrameSource, SessionHost},
    slot::ready,
};

/// How long each step of the end may take.
const STEP_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a closed session tries to write down its debts, and how long it waits between two
/// attempts at most.
const PAY_FOR: Duration = Duration::from_secs(120);
const PAY_WAIT_MAX: Duration = Duration::from_secs(5);

impl<R: FrameSource, W: FrameSink> Session<'_, R, W> {
    /// Refuses hand-overs, writes down the debts, then says `bye` (R5).
    pub(super) async fn finish(mut self: Box<Self>, end: End) {
        let host = self.host;
        let mut rng = StdRng::seed_from_u64(self.seed);
        // Requests of a user who was locked out are dropped, unless they were started.
        let locked_out = |why: &WireError| matches!(why.code, ErrorCode::TokenRevoked | ErrorCode::Erased);
        let locked_out = end.clone().filter(locked_out);
        if locked_out.is_some() {
            self.requests.clear();
        }
        // Everything that the client said before the end still counts.
        let _ = timeout(STEP_TIMEOUT * 2, self.finish_work()).await;
        if let Some(why) = locked_out {
            // A registration that was in flight may have displaced sessions of the same device. The
            // session store no longer has them, so nobody else can end them.
            let displaced = self.registration.take_displaced();
            let _ = timeout(STEP_TIMEOUT, host.app.end_sessions(displaced, why)).await;
        }
        let (debts, acked) =
            self.handle.with(|mailbox| (mailbox.delivery.close(), mailbox.delivery.acked_so_far()));
        if !acked.is_empty() {
            host.gateway.remember_held(&self.entry, acked);
        }
        let user = self.entry.user_id.clone();
        let left = timeout(STEP_TIMEOUT, host.registry.unregister(&user, self.entry.session_id)).await;
        let has_left = matches!(left, Ok(Ok(true)));
        if has_left {
            host.observer.unregistered(&self.entry);
        }
        let mut debts = DebtsRequest { user: user.clone(), debts, overdue: false };
        // Debts that cannot be written down now are tried again after the socket has gone.
        let _ = timeout(STEP_TIMEOUT, pay_once(host, &mut debts)).await;
        let code = end.as_ref().map_or("gone", |why| why.code.as_str());
        metrics::counter!("bluetick_sessions_ended_total", "code" => code).increment(1);
        if let Some(why) = end {
            let after_ms = host.reconnect_after_ms(&why, &mut rng);
            self.outbound.say_bye(&why, after_ms).await;
        }
        let must_tell = has_left && self.registration.has_planned();
        let session_id = self.entry.session_id;
        // The socket goes first: paying may take a while.
        drop(self);
        join(pay(host, rng, debts), tell_left(host, user, must_tell)).await;
        host.gateway.remove(session_id);
    }

    /// Finishes what was started and what waits: sends are stored and answered, receipts are
    /// stored, and a row whose messages are all acked is removed.
    async fn finish_work(&mut self) {
        self.requests.keep_sends();
        loop {
            self.start_request();
            self.start_receipts();
            if !self.requests.is_working() && !self.receipts.is_storing() {
                break;
            }
            tokio::select! {
                biased;
                answered = self.requests.answered() => self.outbound.push_all(answered.frames),
                stored = self.receipts.stored() => {
                    self.outbound.push_all(stored.frames);
                    self.take_acks(stored.acked);
                }
            }
        }
        // After a row is removed, the conversation must be read past it (R4), even if the client is
        // gone.
        self.finish_background().await;
        if let Some(action) = self.handle.with(|mailbox| mailbox.delivery.next_for_rows()) {
            self.start_action(action);
            self.finish_background().await;
        }
    }

    async fn finish_background(&mut self) {
        if self.background.is_some() {
            let completed = ready(&mut self.background).await;
            // The session ends already: a further reason changes nothing.
            let _ = self.take_completed(completed);
        }
    }
}

/// Tells watchers that the user is offline, unless a new session has come in the meantime. A
/// process that shuts down does not wait for one.
async fn tell_left(host: &SessionHost, user: UserId, must_tell: bool) {
    if !must_tell {
        return;
    }
    if !host.gateway.is_closing() {
        sleep(host.config.offline_after).await;
    }
    let _ = timeout(STEP_TIMEOUT, host.app.presence_changed(user, false)).await;
}

/// Writes the debts down. Those that could not be written stay in the request.
async fn pay_once(host: &SessionHost, request: &mut DebtsRequest) {
    if !request.debts.is_empty() {
        bluetick_store::failpoint::hit("close.owes");
        match host.app.pay_debts(request.clone()).await {
            Ok(left) => request.debts = left,
            Err(e) => {
                tracing::warn!(error = %e, "a closing session could not write down its debts; retrying")
            }
        }
    }
}

/// Goes on until all debts are written down: a device without a cursor has no other way to these
/// messages.
async fn pay(host: &SessionHost, mut rng: StdRng, mut request: DebtsRequest) {
    let give_up = Instant::now() + PAY_FOR;
    let mut wait = Duration::from_millis(50);
    while !request.debts.is_empty() && Instant::now() < give_up {
        sleep(wait.mul_f64(rng.random_range(1.0..1.5))).await;
        wait = (wait * 2).min(PAY_WAIT_MAX);
        pay_once(host, &mut request).await;
    }
}
