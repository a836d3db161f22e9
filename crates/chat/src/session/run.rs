//! The loop of a session. One task, no locks across awaits, no spawned futures: everything in
//! progress is in the [`Session`], and each turn of the loop takes whatever is ready first.
//!
//! What happens when Bob reconnects:
//!
//! 1. `hello.rs` reads his first frame. [`Session::open`] puts a mailbox for him into the gateway
//!    and queues `welcome`.
//! 2. [`Registration::next`] asks for a registration: `register.rs` writes the session's entry and
//!    then reads the plan, in this order (R1). [`Delivery::plan`] takes it on, and the session goes
//!    from registering to draining.
//! 3. [`Delivery::next`] says what to do, and `deliver.rs` does it: read the conversations of the
//!    plan, send their messages in one ordered stream, remove their pending rows once Bob has acked
//!    (R4), and send `caught_up` after the last of them.
//! 4. Then the session is live: messages handed over through the mailbox go straight out.
//! 5. `closing.rs` refuses hand-overs, writes down what Bob has not acked (R5), and says `bye`.

mod closing;
mod deliver;
mod register;
mod take_in;

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bluetick_protocol::{Hello, MessageId, ServerFrame, SessionId, Welcome, WireError};
use bluetick_store::SessionEntry;
use futures_util::future::BoxFuture;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::{Instant, Sleep, sleep_until};

use super::{
    FrameSink, FrameSource, Handle, Identity, SessionHost,
    delivery::{ActionOutcome, Delivery},
    outbound::{Outbound, WriteState},
    receipts::{ReceiptQueue, ReceiptsStored},
    registration::Registration,
    requests::{Answered, RequestQueue},
    timers::{Heartbeat, Timers, TokenLifetime},
};
use crate::slot::poll_slot;

use register::Completed;

/// Why a session ends; `None` if the client is gone, and there is nobody to say `bye` to.
type End = Option<WireError>;

struct Session<'a, R, W> {
    host: &'a SessionHost,
    /// Seeds the random numbers of the end: a generator would take more memory than the rest of an
    /// idle session.
    seed: u64,
    entry: SessionEntry,
    token: TokenLifetime,
    /// Where others put events for this session, and what is still to be delivered.
    handle: Arc<Handle>,
    source: R,
    outbound: Outbound<W>,
    requests: RequestQueue,
    receipts: ReceiptQueue,
    registration: Registration,
    timers: Timers,
    /// The reads of lanes in progress.
    reading: Option<BoxFuture<'static, ActionOutcome>>,
    /// The other operation in progress, for the registration or for delivery.
    background: Option<BoxFuture<'static, Completed>>,
}

/// What a turn of the loop begins with.
enum Ready {
    Answered(Answered),
    ReceiptsStored(ReceiptsStored),
    Read(ActionOutcome),
    Completed(Completed),
    /// Frames came from the client, or the last of them.
    Frames(Result<(), End>),
    /// Something is in the mailbox, a deadline has passed, or the socket has room again.
    Woken,
    /// The socket is closed.
    Gone,
}

impl SessionHost {
    /// The whole life of a connection. `seed` gives the session's id and its jitter.
    pub async fn run(&self, mut source: impl FrameSource, sink: impl FrameSink, seed: u64) {
        match self.hello(&mut source).await {
            None => {}
            Some(Err(error)) => {
                metrics::counter!("bluetick_errors_total", "code" => error.code.as_str()).increment(1);
                let after_ms = self.reconnect_after_ms(&error, &mut StdRng::seed_from_u64(seed));
                Outbound::new(sink).say_bye(&error, after_ms).await;
            }
            Some(Ok((hello, identity))) => {
                // Boxed, so that a connection that has not said hello stays small, and the end
                // takes no memory before it comes.
                let mut session = Box::new(Session::open(self, source, sink, seed, hello, identity));
                let Err(end) = Box::pin(session.run_until_end()).await;
                Box::pin(session.finish(end)).await;
            }
        }
    }

    fn reconnect_after_ms(&self, why: &WireError, rng: &mut StdRng) -> u64 {
        let spread = self.config.reconnect_spread.as_millis() as u64;
        let least = why.retry_after_ms.unwrap_or(100);
        least + rng.random_range(0..=spread.max(1))
    }
}

impl<'a, R: FrameSource, W: FrameSink> Session<'a, R, W> {
    fn open(host: &'a SessionHost, source: R, sink: W, seed: u64, hello: Hello, who: Identity) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let session_id = SessionId(rng.random());
        let (now, now_ms) = (Instant::now(), host.clock.now_ms());
        let token = TokenLifetime::new(&who, now);
        let entry = SessionEntry {
            user_id: who.user,
            device: hello.device,
            session_id,
            gateway: host.gateway.name().clone(),
            connected_at: now_ms,
        };
        let mut outbound = Outbound::new(sink);
        outbound.push(&ServerFrame::Welcome(Welcome {
            reference: hello.reference,
            user_id: entry.user_id.clone(),
            device: entry.device.clone(),
            session_id,
            server_time: now_ms,
            heartbeat_secs: host.config.heartbeat.as_secs().max(1),
            max_body_bytes: host.config.max_body_bytes,
        }));
        let held = host.gateway.held_by(&entry, hello.resumes);
        let delivery = Delivery::new(entry.user_id.clone(), session_id, host.config.window, held);
        let handle = Arc::new(Handle::new(delivery));
        host.gateway.insert(session_id, handle.clone());
        metrics::counter!("bluetick_sessions_opened_total").increment(1);
        Session {
            host,
            entry,
            token,
            handle,
            source,
            outbound,
            requests: RequestQueue::new(),
            receipts: ReceiptQueue::default(),
            registration: Registration::new(hello.cursor),
            timers: Timers::new(now, &host.config, rng.random_range(0.5..1.0)),
            reading: None,
            background: None,
            seed: rng.random(),
        }
    }

    async fn run_until_end(&mut self) -> Result<Infallible, End> {
        let timer = sleep_until(self.timers.next_deadline(Instant::now(), &self.host.config));
        tokio::pin!(timer);
        loop {
            let now = Instant::now();
            self.run_timers(now);
            self.start_duty(now);
            let own_ticks_at = self.deliver(now)?;
            self.check_limits(now)?;
            self.start_requests(now);
            // Deadlines move with nearly every turn. A timer that fires too early costs one turn;
            // resetting it with each turn costs more.
            let wake_at = self.next_deadline(now, own_ticks_at);
            if wake_at < timer.deadline() || timer.is_elapsed() {
                timer.as_mut().reset(wake_at);
            }
            match poll_fn(|cx| self.poll_ready(cx, timer.as_mut())).await {
                Ready::Answered(answered) => self.take_answer(answered)?,
                Ready::ReceiptsStored(stored) => self.take_stored_receipts(stored),
                Ready::Read(outcome) => self.take_outcome(outcome),
                Ready::Completed(completed) => self.take_completed(completed)?,
                Ready::Frames(taken) => {
                    self.timers.heard(Instant::now());
                    taken?;
                    self.registration.heard();
                }
                Ready::Woken => {}
                Ready::Gone => return Err(None),
            }
        }
    }

    /// What is ready first. A turn of the loop is expensive, so what needs none is done here: above
    /// all writing.
    fn poll_ready(&mut self, cx: &mut Context<'_>, timer: Pin<&mut Sleep>) -> Poll<Ready> {
        // Events that this session causes for itself are found below: they need not wake it.
        self.handle.stay_awake();
        if let Poll::Ready(answered) = self.requests.poll_answered(cx) {
            return Poll::Ready(Ready::Answered(answered));
        }
        if let Poll::Ready(stored) = self.receipts.poll_stored(cx) {
            return Poll::Ready(Ready::ReceiptsStored(stored));
        }
        if let Poll::Ready(outcome) = poll_slot(&mut self.reading, cx) {
            return Poll::Ready(Ready::Read(outcome));
        }
        if let Poll::Ready(completed) = poll_slot(&mut self.background, cx) {
            return Poll::Ready(Ready::Completed(completed));
        }
        match self.outbound.poll_write(cx) {
            WriteState::Idle => {}
            WriteState::Room => return Poll::Ready(Ready::Woken),
            WriteState::Gone => return Poll::Ready(Ready::Gone),
        }
        if let Poll::Ready(taken) = self.poll_frames(cx) {
            return Poll::Ready(Ready::Frames(taken));
        }
        if self.handle.poll_woken(cx).is_ready() || timer.poll(cx).is_ready() {
            return Poll::Ready(Ready::Woken);
        }
        Poll::Pending
    }

    /// Does what is due by the time alone: the heartbeat, and the search for overdue acks.
    fn run_timers(&mut self, now: Instant) {
        if let Some(Heartbeat { must_reconcile, idle_for }) = self.timers.beat(now, &self.host.config) {
            self.outbound.ping();
            self.registration.heartbeat(must_reconcile);
            let idle_since = idle_for
                .map(|time| MessageId::at(self.host.clock.now_ms().saturating_sub(time.as_millis() as u64)));
            self.handle.with(|mailbox| mailbox.delivery.heartbeat(idle_since));
        }
        if self.timers.is_overdue_search_due(now) {
            self.find_overdue(now);
        }
    }

    /// Ends a session whose client is silent, does not ack or does not read, or whose token has
    /// expired.
    fn check_limits(&mut self, now: Instant) -> Result<(), End> {
        let config = &self.host.config;
        if self.outbound.note_waiting(now) {
            self.timers.excuse_backlog(now);
        }
        let why = self
            .timers
            .timed_out(now, config)
            .or_else(|| self.outbound.too_slow(now, config))
            .or_else(|| self.token.expired(now, &*self.host.clock, config.heartbeat));
        if why.is_some() { Err(why) } else { Ok(()) }
    }

    fn next_deadline(&self, now: Instant, own_ticks_at: Option<Instant>) -> Instant {
        let deadlines = [
            self.token.deadline(),
            self.outbound.deadline(&self.host.config),
            self.receipts.deadline(),
            self.requests.deadline(),
            self.registration.deadline(now),
            // With a frame before them they go out when that has.
            own_ticks_at.filter(|_| self.outbound.is_empty()),
        ];
        let first = self.timers.next_deadline(now, &self.host.config);
        deadlines.into_iter().flatten().fold(first, Instant::min)
    }
}
