//! The end of a session: what it had begun is finished, what it owes is written down (R5).

use bluetick_protocol::UserId;
use futures_util::future::join;

use crate::slot::ready;

use super::*;

impl<R: FrameSource, W: FrameSink> Session<'_, R, W> {
    /// The end: refuse hand-overs first, pay the debts, then say `bye` (R5).
    pub(super) async fn finish(mut self: Box<Self>, end: End) {
        let host = self.host;
        let mut rng = StdRng::seed_from_u64(self.seed);
        // What somebody who was locked out has asked for and what was not begun is not done.
        let locked_out = |why: &WireError| matches!(why.code, ErrorCode::TokenRevoked | ErrorCode::Erased);
        let locked_out = end.clone().filter(locked_out);
        if locked_out.is_some() {
            self.requests.clear();
        }
        // What the client said before it left, or before it is told to leave, still counts.
        let _ = timeout(FAREWELL * 2, self.finish_requests()).await;
        if let Some(why) = locked_out {
            // A registration that was in flight may have displaced sessions of the same device. The session store no
            // longer has them, so nobody else can end them.
            let displaced = std::mem::take(&mut self.displaced);
            let _ = timeout(FAREWELL, host.app.end_sessions(displaced, why)).await;
        }
        let (debts, acked) = self.handle.with(|state| {
            state.open = false;
            (state.delivery.debts(), state.delivery.acked_so_far())
        });
        if !acked.is_empty() {
            host.gateway.remember_held(&self.entry, acked);
        }
        let user = self.entry.user_id.clone();
        let left = timeout(FAREWELL, host.registry.unregister(&user, self.entry.session_id)).await;
        if matches!(left, Ok(Ok(true))) {
            host.observer.unregistered(&self.entry);
        }
        let mut debts = DebtsRequest { user: user.clone(), debts, overdue: false };
        // What is not paid now is paid after the socket has gone.
        let _ = timeout(FAREWELL, pay_once(host, &mut debts)).await;
        if let Some(why) = end {
            metrics::counter!("bluetick_sessions_ended_total", "code" => why.code.as_str()).increment(1);
            let after = host.reconnect_after(&why, &mut rng);
            say_bye(&mut self.queue, &why, after);
            flush(&mut self.sink, &mut self.queue).await;
        } else {
            metrics::counter!("bluetick_sessions_ended_total", "code" => "gone").increment(1);
        }
        // The socket goes first: paying may take a while.
        let Session { entry, source, sink, opened, .. } = *self;
        drop((source, sink));
        let has_left = opened && matches!(left, Ok(Ok(true)));
        join(pay(host, rng, debts), tell_left(host, user, has_left)).await;
        host.gateway.remove(entry.session_id);
    }

    /// Brings to an end what was begun and what waits: a send that was read is stored and answered, a receipt is made
    /// durable, and a row whose messages are all acked goes.
    async fn finish_requests(&mut self) {
        self.requests.retain(|frame| matches!(frame, ClientFrame::Send(_)));
        loop {
            self.start_request();
            self.start_receipts();
            if self.working.is_none() && self.receipting.is_none() {
                break;
            }
            tokio::select! {
                biased;
                answered = ready(&mut self.working) => self.push_frames(answered.frames),
                Receipted { acked, frames, .. } = ready(&mut self.receipting) => {
                    self.push_frames(frames);
                    self.take_acks(acked);
                }
            }
        }
        // A row that is being removed must be read past (R4), whoever is gone meanwhile.
        self.finish_upkeep().await;
        if self.opened {
            (self.refresh_due, self.look_due, self.wants_rows) = (false, false, true);
            self.planned_up_to = None;
            self.watch_due = false;
            // A session that closes does not end the sessions whose place it took.
            self.gave_sign = false;
            self.announce_at = None;
            self.start_upkeep();
            self.finish_upkeep().await;
        }
    }

    async fn finish_upkeep(&mut self) {
        if self.upkeep.is_some() {
            let done = ready(&mut self.upkeep).await;
            self.take_upkeep(done);
        }
    }
}

/// Tells watchers that the user is gone, if no session has come in the meantime. Where the whole process ends nothing can
/// wait.
async fn tell_left(host: &SessionHost, user: UserId, has_left: bool) {
    if !has_left {
        return;
    }
    if !host.gateway.is_closing() {
        sleep(host.config.offline_after).await;
    }
    let _ = timeout(FAREWELL, host.app.presence_changed(user, false)).await;
}

/// Writes down what a session owes. What could not be paid is left.
async fn pay_once(host: &SessionHost, request: &mut DebtsRequest) {
    if !request.debts.is_empty() {
        bluetick_store::failpoint::hit("close.owes");
        match host.app.pay_debts(request.clone()).await {
            Ok(left) => request.debts = left,
            Err(e) => tracing::warn!(error = %e, "a closing session could not write what it owes"),
        }
    }
}

/// Goes on until all is paid: a device without a cursor has no other way to what its session took for it.
async fn pay(host: &SessionHost, mut rng: StdRng, mut request: DebtsRequest) {
    let give_up = Instant::now() + PAY_FOR;
    let mut wait = Duration::from_millis(50);
    while !request.debts.is_empty() && Instant::now() < give_up {
        sleep(wait.mul_f64(rng.random_range(1.0..1.5))).await;
        wait = (wait * 2).min(PAY_WAIT_MAX);
        pay_once(host, &mut request).await;
    }
}
