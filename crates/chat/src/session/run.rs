//! The loop of a session. One task, no locks across awaits, no futures behind its back: what is under way is in the
//! `Session`, and each turn of the loop takes whichever is ready first.

mod closing;
mod upkeep;

use std::{
    collections::VecDeque,
    future::{Future, poll_fn, ready},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bluetick_protocol::{
    Bye, ClientFrame, ConversationId, ErrorCode, Hello, MessageId, Reset, Seq, ServerFrame, SessionId, Watch,
    Welcome, WireError, decode, limits,
};
use bluetick_store::SessionEntry;
use futures_util::future::{BoxFuture, join_all};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};

use super::{
    FrameSink, FrameSource, Handle, Identity, Incoming, OutboundQueue, Outgoing, SessionHost,
    delivery::{Delivery, Out},
    encode::message_text,
    hello::{not_text, too_large},
    outbound::WriteProgress,
    requests::{Answered, Receipted, Receipts, error_frame},
};
use crate::{
    AppResult, Debt, DebtsRequest, Exhausted, MessageRange, Plan, PlanRequest, RangeRequest, SettleRequest,
    Settled, budget::units_of, rate_limited, slot::poll_slot, units,
};

use upkeep::Upkeep;

/// Frames that wait for the socket; beyond it nothing more is taken from the window.
const OUT_MAX: usize = 64;
/// Texts that are taken from a socket before they are worked on: at a time, and in all.
const INCOMING_BYTES: usize = 256 * 1024;
/// How soon something that failed is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// How long the end of a session may take over each of its steps.
const FAREWELL: Duration = Duration::from_secs(2);
/// For how long a session that ended tries to write down what it owes, and how long it waits in between at most.
const PAY_FOR: Duration = Duration::from_secs(120);
const PAY_WAIT_MAX: Duration = Duration::from_secs(5);
/// For how long nothing is read at most after a request that was beyond its budget.
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// How long receipts wait at most for their budget: far less than an ack may take.
const RECEIPTS_WAIT_MAX: Duration = Duration::from_secs(1);

/// What a turn of the loop begins with.
enum Ready {
    Answered(Answered),
    Receipted(Receipted),
    Read(Vec<RangeRead>),
    Upkept(Upkeep),
    /// Frames were taken in, or the last one that this session looks at.
    Frames(Result<(), End>),
    /// Something was left for the session, or it is time for something.
    Look,
    /// The socket is.
    Gone,
}

type RangeRead = (ConversationId, AppResult<MessageRange>);
/// Why a session ends; nothing where the client is gone, and nobody is left to say `bye` to.
type End = Option<WireError>;

struct Session<'a, R, W> {
    host: &'a SessionHost,
    source: R,
    sink: W,
    /// For what is left to chance at the end: a generator would take more room than all that is known of a quiet session.
    seed: u64,
    entry: SessionEntry,
    handle: Arc<Handle>,
    cursor: Option<MessageId>,
    expires_at: Option<u64>,
    issued_at: Option<u64>,
    /// When to look next whether the token has expired.
    expiry_at: Option<Instant>,
    /// Whom this session watches: to be said again when it had to register anew.
    watched: Option<Watch>,
    /// Its watches went with an entry of the session store, and must be put there again.
    watch_due: bool,
    queue: OutboundQueue,
    own_ticks_at: Option<Instant>,
    /// It was told that it has caught up.
    caught_up: bool,
    requests: VecDeque<ClientFrame>,
    receipts: Receipts,
    /// When to try those again that failed.
    receipts_at: Option<Instant>,
    /// How many sends go together.
    batch_max: usize,
    working: Option<BoxFuture<'static, Answered>>,
    receipting: Option<BoxFuture<'static, Receipted>>,
    reading: Option<BoxFuture<'static, Vec<RangeRead>>>,
    upkeep: Option<BoxFuture<'static, Upkeep>>,
    /// What is to be delivered asks for reads, or for something to be done about rows.
    wants_reads: bool,
    wants_rows: bool,
    /// The plan goes on behind this conversation, and what was planned before is drained.
    planned_up_to: Option<ConversationId>,
    opened: bool,
    registered: bool,
    /// When the client was asked for a sign of life, because the session store has, or had, another session of this
    /// device: one of the two has nobody behind it.
    asked_at: Option<Instant>,
    /// It gave one since.
    gave_sign: bool,
    /// Sessions of the device whose place this one took, and that have not been told so yet.
    displaced: Vec<SessionEntry>,
    refresh_due: bool,
    look_due: bool,
    retry_at: Option<Instant>,
    next_beat: Instant,
    last_heard: Instant,
    /// Up to when nothing can have been missed, by the wall clock: when the last plan that was taken on was asked for.
    planned_ms: u64,
    next_look: Instant,
    last_activity: Instant,
    /// Since when nothing was acked of a window that holds something.
    unacked_since: Option<Instant>,
    /// Conversations whose ticks may have moved while nobody found this session.
    ticks_due: Vec<ConversationId>,
    /// When to look for messages whose acks are overdue, and those that were found and are to be told of (R14).
    overdue_at: Option<Instant>,
    overdue: Vec<Debt>,
    progress: WriteProgress,
    /// The socket has taken frames that it has not written yet.
    unflushed: bool,
    /// When watchers are to hear that this session is there.
    announce_at: Option<Instant>,
    announced: bool,
    /// Nothing is read from the socket before: the last request was beyond its budget.
    paused_until: Option<Instant>,
    /// Something waits for room in the queue, or for the queue to be empty: to be looked at when the socket has taken all.
    held_back: bool,
}

impl SessionHost {
    /// The whole life of a connection. `seed` gives the session's id and its jitter.
    pub async fn run(&self, mut source: impl FrameSource, mut sink: impl FrameSink, seed: u64) {
        match self.hello(&mut source).await {
            None => {}
            Some(Err(error)) => {
                metrics::counter!("bluetick_errors_total", "code" => error.code.as_str()).increment(1);
                let mut queue = OutboundQueue::default();
                let mut rng = StdRng::seed_from_u64(seed);
                say_bye(&mut queue, &error, self.reconnect_after(&error, &mut rng));
                flush(&mut sink, &mut queue).await;
            }
            Some(Ok((hello, identity))) => {
                // Boxed, so that a connection that has not said hello stays small, and what happens at the end takes no room
                // before.
                let mut session = Box::new(Session::open(self, source, sink, seed, hello, identity));
                let end = Box::pin(session.turn_until_end()).await;
                Box::pin(session.finish(end)).await;
            }
        }
    }

    fn reconnect_after(&self, why: &WireError, rng: &mut StdRng) -> u64 {
        let spread = self.config.reconnect_spread.as_millis() as u64;
        let least = why.retry_after_ms.unwrap_or(100);
        least + rng.random_range(0..=spread.max(1))
    }
}

fn unreadable() -> WireError {
    WireError::new(
        ErrorCode::Unavailable,
        "a conversation cannot be read right now; reconnect for the others",
    )
}

fn say_bye(queue: &mut OutboundQueue, why: &WireError, reconnect_after_ms: u64) {
    let bye = Bye { code: why.code, reason: why.message.clone(), reconnect_after_ms };
    queue.push_back(Outgoing::Text(ServerFrame::Bye(bye).to_text()));
    queue.push_back(Outgoing::Close(why.code.close_code(), why.code.to_string()));
}

async fn flush(sink: &mut impl FrameSink, queue: &mut OutboundQueue) {
    let _ = timeout(FAREWELL, poll_fn(|cx| sink.poll_write(cx, queue))).await;
}

impl<'a, R: FrameSource, W: FrameSink> Session<'a, R, W> {
    fn open(host: &'a SessionHost, source: R, sink: W, seed: u64, hello: Hello, who: Identity) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let session_id = SessionId(rng.random());
        let now_ms = host.clock.now_ms();
        let entry = SessionEntry {
            user_id: who.user,
            device: hello.device,
            session_id,
            gateway: host.gateway.name().clone(),
            connected_at: now_ms,
        };
        let welcome = ServerFrame::Welcome(Welcome {
            reference: hello.reference,
            user_id: entry.user_id.clone(),
            device: entry.device.clone(),
            session_id,
            server_time: now_ms,
            heartbeat_secs: host.config.heartbeat.as_secs().max(1),
            max_body_bytes: host.config.max_body_bytes,
        });
        let mut delivery = Delivery::new(entry.user_id.clone(), session_id, host.config.window);
        delivery.resume(host.gateway.held_by(&entry, hello.resumes));
        let handle = Arc::new(Handle::new(delivery));
        host.gateway.insert(session_id, handle.clone());
        metrics::counter!("bluetick_sessions_opened_total").increment(1);
        let now = Instant::now();
        Session {
            host,
            source,
            sink,
            entry,
            handle,
            cursor: hello.cursor,
            expires_at: who.expires_at,
            issued_at: who.issued_at,
            expiry_at: who.expires_at.map(|_| now),
            watched: None,
            watch_due: false,
            queue: Outgoing::Text(welcome.to_text()).into(),
            own_ticks_at: None,
            caught_up: false,
            requests: VecDeque::new(),
            receipts: Receipts::default(),
            receipts_at: None,
            batch_max: limits::REQUESTS_AHEAD_MAX,
            working: None,
            receipting: None,
            reading: None,
            upkeep: None,
            wants_reads: false,
            wants_rows: false,
            planned_up_to: None,
            opened: false,
            registered: false,
            asked_at: None,
            gave_sign: false,
            displaced: Vec::new(),
            refresh_due: false,
            look_due: false,
            retry_at: None,
            // Spread, so that sessions which came together do not beat together.
            next_beat: now + host.config.heartbeat.mul_f64(rng.random_range(0.5..1.0)),
            last_heard: now,
            planned_ms: now_ms,
            next_look: now + host.config.look_every,
            last_activity: now,
            unacked_since: None,
            ticks_due: Vec::new(),
            overdue_at: None,
            overdue: Vec::new(),
            progress: WriteProgress::default(),
            unflushed: false,
            announce_at: None,
            announced: false,
            paused_until: None,
            held_back: false,
            seed: rng.random(),
        }
    }

    /// Runs until the session must end.
    async fn turn_until_end(&mut self) -> End {
        let timer = sleep_until(self.next_beat);
        tokio::pin!(timer);
        loop {
            let now = Instant::now();
            if let Some(why) = self.gather(now) {
                return Some(why);
            }
            if let Some(why) = self.check_time(now) {
                return Some(why);
            }
            self.start_work(now);
            // Deadlines move on with nearly every turn. A timer that fires too early costs a turn; one that follows each
            // of them costs more.
            let wake_at = self.next_deadline(now);
            if wake_at < timer.deadline() || timer.is_elapsed() {
                timer.as_mut().reset(wake_at);
            }
            match poll_fn(|cx| self.poll_ready(cx, timer.as_mut())).await {
                Ready::Answered(answered) => {
                    if answered.sends {
                        self.adapt_batch(&answered.frames);
                    }
                    self.pause_if_limited(&answered.frames);
                    self.push_frames(answered.frames);
                    if let Some(identity) = answered.identity {
                        self.expires_at = identity.expires_at;
                        self.issued_at = identity.issued_at;
                        self.expiry_at = identity.expires_at.map(|_| now);
                    }
                    if answered.end.is_some() {
                        return answered.end;
                    }
                }
                Ready::Receipted(Receipted { acked, frames, failed }) => {
                    self.push_frames(frames);
                    if self.take_acks(acked) {
                        self.unacked_since = None;
                    }
                    if !failed.is_empty() {
                        self.receipts.put_back(failed);
                        self.receipts_at = Some(Instant::now() + RETRY);
                        // Acks that came and could not be stored are not the client's fault.
                        self.unacked_since = self.unacked_since.map(|_| Instant::now());
                    }
                }
                Ready::Read(reads) => self.take_reads(reads),
                Ready::Upkept(done) => {
                    if let Some(why) = self.take_upkeep(done) {
                        return Some(why);
                    }
                }
                Ready::Frames(taken) => {
                    self.last_heard = Instant::now();
                    if let Err(end) = taken {
                        return end;
                    }
                    if self.asked_at.is_some() && !self.gave_sign {
                        self.gave_sign = true;
                        self.refresh_due |= !self.registered;
                    }
                }
                Ready::Look => {}
                Ready::Gone => return None,
            }
        }
    }

    /// What is ready first. Each turn costs, so what leaves nothing to look at again is done here and ends none: above
    /// all the writing.
    fn poll_ready(&mut self, cx: &mut Context<'_>, timer: Pin<&mut Sleep>) -> Poll<Ready> {
        // What this session leaves for itself is found below: it need not be woken for it.
        self.handle.stay_awake();
        if let Poll::Ready(answered) = poll_slot(&mut self.working, cx) {
            return Poll::Ready(Ready::Answered(answered));
        }
        if let Poll::Ready(receipted) = poll_slot(&mut self.receipting, cx) {
            return Poll::Ready(Ready::Receipted(receipted));
        }
        if let Poll::Ready(reads) = poll_slot(&mut self.reading, cx) {
            return Poll::Ready(Ready::Read(reads));
        }
        if let Poll::Ready(done) = poll_slot(&mut self.upkeep, cx) {
            return Poll::Ready(Ready::Upkept(done));
        }
        if (!self.queue.is_empty() || self.unflushed)
            && let Some(ready) = self.write(cx)
        {
            return Poll::Ready(ready);
        }
        if let Poll::Ready(taken) = self.poll_frames(cx) {
            return Poll::Ready(Ready::Frames(taken));
        }
        if self.handle.poll_woken(cx).is_ready() || timer.poll(cx).is_ready() {
            return Poll::Ready(Ready::Look);
        }
        Poll::Pending
    }

    /// Writes what waits for the socket. Returns what there is to do then, if anything is.
    fn write(&mut self, cx: &mut Context<'_>) -> Option<Ready> {
        let (frames, bytes) = (self.queue.len(), self.waiting_bytes());
        let written = self.sink.poll_write(cx, &mut self.queue);
        self.unflushed = written.is_pending();
        match written {
            Poll::Ready(Err(_)) => Some(Ready::Gone),
            Poll::Ready(Ok(())) => {
                self.progress.took_all();
                self.held_back.then_some(Ready::Look)
            }
            Poll::Pending => {
                let taken = bytes.saturating_sub(self.waiting_bytes());
                if self.queue.len() < frames || taken > 0 {
                    self.progress.took(taken, Instant::now());
                }
                None
            }
        }
    }

    /// Encoded bytes that the socket has not taken.
    fn waiting_bytes(&self) -> usize {
        self.queue.bytes() + self.sink.unsent_bytes()
    }

    /// Whether a request may be started. Above the high-water mark none is: a client that does not read the answers
    /// gets no more of them.
    fn is_below_high_water(&self) -> bool {
        self.queue.len() < OUT_MAX && self.waiting_bytes() < limits::OUTBOUND_HIGH_WATER_BYTES
    }

    /// How many more frames are read from the socket. Above the high-water mark requests wait here until this is 0, so
    /// that acks and pongs among them still count; behind that many requests they wait in the socket. A client gets out
    /// of it by reading, and by nothing else.
    fn accepts(&self) -> usize {
        let waiting = self.requests.len() + self.receipts.len();
        if self.paused_until.is_some() {
            return 0;
        }
        let is_full = self.queue.len() >= 2 * OUT_MAX || self.requests_bytes() >= INCOMING_BYTES;
        if is_full { 0 } else { limits::REQUESTS_AHEAD_MAX.saturating_sub(waiting) }
    }

    /// About how much memory the requests take that wait. Only sends can be large.
    fn requests_bytes(&self) -> usize {
        let bytes = |frame: &ClientFrame| match frame {
            ClientFrame::Send(send) => send.body.len() + send.meta.as_ref().map_or(0, |m| m.as_str().len()),
            ClientFrame::Watch(watch) => watch.users.len() * limits::USER_ID_MAX_BYTES,
            _ => 0,
        };
        self.requests.iter().map(bytes).sum()
    }

    /// Takes in the frames that are there, so that work on them begins with all of them. Ready if there was one.
    fn poll_frames(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        let (most, mut taken, mut bytes) = (self.accepts(), 0, 0);
        while taken < most && bytes < INCOMING_BYTES {
            let Poll::Ready(incoming) = self.source.poll_next(cx) else { break };
            taken += 1;
            match incoming {
                Incoming::Text(text) => {
                    bytes += text.as_ref().len();
                    self.take_frame(text.as_ref())?;
                }
                Incoming::Alive => {}
                Incoming::Binary => return Poll::Ready(Err(Some(not_text()))),
                Incoming::TooLarge => return Poll::Ready(Err(Some(too_large()))),
                Incoming::Closed => return Poll::Ready(Err(None)),
            }
        }
        if taken > 0 { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Takes what others left for this session, and what may go out, to the socket's queue.
    fn gather(&mut self, now: Instant) -> Option<WireError> {
        self.paused_until = self.paused_until.filter(|&at| at > now);
        let room_bytes = limits::OUTBOUND_HIGH_WATER_BYTES.saturating_sub(self.waiting_bytes());
        let free = if room_bytes > 0 { OUT_MAX.saturating_sub(self.queue.len()) } else { 0 };
        let moment = self.handle.moment(now);
        let (frames, out, close, unacked) = self.handle.with(|state| {
            state.seen();
            state.delivery.now = moment;
            state.delivery.set_room(if free > 0 { room_bytes } else { 0 });
            state.delivery.pump(free);
            let out = state.delivery.take_out();
            let mut frames = Vec::new();
            if free > 0 {
                let alone = self.queue.is_empty() && out.is_empty() && !state.has_frames();
                if !alone || state.own_ticks_at.is_some_and(|at| at <= now) {
                    state.release_own_ticks();
                }
                frames = state.take_frames(free);
            }
            let stuck = state.delivery.is_stuck().then(unreadable);
            self.own_ticks_at = state.own_ticks_at;
            let no_room = out.len() >= free || state.delivery.is_out_of_room();
            self.held_back = no_room || free == 0 || state.own_ticks_at.is_some() || state.has_frames();
            self.wants_reads = state.delivery.wants_reads();
            self.wants_rows = state.delivery.wants_rows();
            self.planned_up_to = state.delivery.wants_more().cloned();
            (frames, out, state.close.take().or(stuck), state.delivery.unacked())
        });
        if !out.is_empty() {
            self.last_activity = now;
            let messages = out.iter().filter(|out| matches!(out, Out::Message(_))).count();
            self.host.gateway.deliveries.increment(messages as u64);
        }
        for out in out {
            self.put_out(out);
        }
        self.push_frames(frames);
        match unacked {
            0 => (self.unacked_since, self.overdue_at) = (None, None),
            _ => {
                self.unacked_since.get_or_insert(now);
                if let Some(after) = self.host.config.unacked_after {
                    self.overdue_at.get_or_insert(now + after);
                }
            }
        }
        close
    }

    fn put_out(&mut self, out: Out) {
        let observer = &self.host.observer;
        let text = match out {
            Out::Message(message) => {
                match self.caught_up {
                    true => observer.written(&self.entry, &message),
                    false => observer.drained(&self.entry, &message),
                }
                message_text(&message)
            }
            Out::CaughtUp(caught_up) => {
                self.caught_up = true;
                observer.caught_up(&self.entry);
                ServerFrame::CaughtUp(caught_up).to_text()
            }
        };
        self.queue.push_back(Outgoing::Text(text));
    }

    /// Takes note of acks that are durable. Returns whether they freed something of the window.
    fn take_acks(&mut self, acked: Vec<(ConversationId, Seq)>) -> bool {
        self.handle.with(|state| {
            acked.iter().fold(false, |freed, (id, seq)| state.delivery.acked(id, *seq) || freed)
        })
    }

    fn push_frames(&mut self, frames: Vec<ServerFrame>) {
        self.queue.extend(frames.into_iter().map(|frame| Outgoing::Text(frame.to_text())));
    }

    fn take_frame(&mut self, text: &str) -> Result<(), End> {
        match decode(text) {
            Ok(frame @ (ClientFrame::Ack(_) | ClientFrame::Read(_))) => self.receipts.add(frame),
            Ok(frame) => self.requests.push_back(frame),
            Err(e) if e.is_fatal() => return Err(Some(e.error)),
            Err(e) => self.push_frames(vec![error_frame(e.reference, e.error)]),
        }
        Ok(())
    }

    /// Starts what can be started: each slot works on one thing at a time.
    fn start_work(&mut self, now: Instant) {
        match self.is_below_high_water() {
            true => self.start_request(),
            false => self.held_back = true,
        }
        // Acks of a slow reader still count; what they answer is bounded by what is accepted. Those that have waited
        // for their budget wait no second time: a user who spends all of it elsewhere must not starve them.
        match self.receipts_at {
            Some(at) if at > now => {}
            Some(_) => {
                self.receipts_at = None;
                self.start_receipts();
            }
            None => {
                self.receipts_at = self.wait_for_receipts(now);
                if self.receipts_at.is_none() {
                    self.start_receipts();
                }
            }
        }
        let may_retry = self.retry_at.is_none_or(|at| at <= now);
        if self.reading.is_none() && may_retry && self.wants_reads {
            self.start_reads();
        }
        if self.upkeep.is_none() && may_retry {
            self.start_upkeep();
        }
    }

    fn start_request(&mut self) {
        if self.working.is_none()
            && let Some(frame) = self.requests.pop_front()
        {
            let units = units_of(&frame);
            if units > 0
                && let Err(ms) = self.host.budget.take(&self.entry.user_id, units)
            {
                let refused = error_frame(frame.reference().cloned(), rate_limited(Exhausted::Requests, ms));
                self.working = Some(Box::pin(ready(Answered::frames(vec![refused]))));
                return;
            }
            self.working = Some(match frame {
                ClientFrame::Send(first) => {
                    // What a session sent itself it remembers with its lanes.
                    self.last_activity = Instant::now();
                    let mut sends = Vec::with_capacity(self.batch_max.min(self.requests.len() + 1));
                    sends.push(first);
                    while sends.len() < self.batch_max
                        && let Some(ClientFrame::Send(_)) = self.requests.front()
                    {
                        if let Some(ClientFrame::Send(send)) = self.requests.pop_front() {
                            sends.push(send);
                        }
                    }
                    self.host.send_batch(&self.entry, sends)
                }
                other => {
                    if let ClientFrame::Watch(watch) = &other {
                        self.watched = Some(Watch { reference: None, users: watch.users.clone() });
                    }
                    self.host.request(&self.entry, other)
                }
            });
        }
    }

    /// Sends that failed together come again together: with fewer at a time some get through.
    fn adapt_batch(&mut self, answers: &[ServerFrame]) {
        let failed = |frame: &ServerFrame| matches!(frame, ServerFrame::Error(e) if e.error.code == ErrorCode::Unavailable);
        if answers.iter().any(failed) {
            self.batch_max = (self.batch_max.min(answers.len()) / 2).max(1);
        } else if answers.len() >= self.batch_max {
            self.batch_max = (self.batch_max * 2).min(limits::REQUESTS_AHEAD_MAX);
        }
    }

    /// Whoever asks beyond a budget is answered, and then not listened to for a moment: answering costs as much as asking.
    fn pause_if_limited(&mut self, answers: &[ServerFrame]) {
        let limited = answers.iter().filter_map(|frame| match frame {
            ServerFrame::Error(e) if e.error.code == ErrorCode::RateLimited => e.error.retry_after_ms,
            _ => None,
        });
        if let Some(ms) = limited.max() {
            self.paused_until = Some(Instant::now() + Duration::from_millis(ms).min(PAUSE_MAX));
        }
    }

    /// Until when receipts wait for the user's budget. They are never refused: while they wait, those of a conversation
    /// become one.
    fn wait_for_receipts(&self, now: Instant) -> Option<Instant> {
        if self.receipting.is_some() || self.receipts.is_empty() {
            return None;
        }
        let units = units::RECEIPT * self.receipts.conversations() as u32;
        let taken = self.host.budget.take(&self.entry.user_id, units);
        taken.err().map(|ms| now + Duration::from_millis(ms).min(RECEIPTS_WAIT_MAX))
    }

    fn start_receipts(&mut self) {
        if self.receipting.is_none() && !self.receipts.is_empty() {
            self.receipting = Some(self.receipts.flush(self.host.app.clone(), &self.entry));
        }
    }

    fn start_reads(&mut self) {
        let reads = self.handle.with(|state| state.delivery.reads());
        if reads.is_empty() {
            return;
        }
        let (app, user) = (self.host.app.clone(), self.entry.user_id.clone());
        self.reading = Some(Box::pin(async move {
            let one = |read: super::delivery::Read| {
                let id = read.conversation_id.clone();
                let request = RangeRequest {
                    user: user.clone(),
                    conversation_id: read.conversation_id,
                    from: read.from,
                    max_messages: read.max_messages,
                    max_bytes: read.max_bytes,
                };
                let app = app.clone();
                async move { (id, app.read_range(request).await) }
            };
            join_all(reads.into_iter().map(one)).await
        }));
    }

    fn take_reads(&mut self, reads: Vec<RangeRead>) {
        let mut wait = false;
        self.handle.with(|state| {
            for (id, range) in reads {
                if let Err(e) = &range {
                    tracing::warn!(error = %e, "a read for delivery failed; trying again");
                }
                wait |= !state.delivery.read_done(&id, range.ok());
            }
        });
        if wait {
            self.retry_at = Some(Instant::now() + RETRY);
        }
    }

    /// Heartbeat, dead peers, slow readers, tokens.
    fn check_time(&mut self, now: Instant) -> Option<WireError> {
        let config = &self.host.config;
        if now >= self.next_beat {
            self.next_beat = now + config.heartbeat;
            self.queue.push_back(Outgoing::Ping);
            self.refresh_due = true;
            if now >= self.next_look {
                self.next_look = now + config.look_every;
                self.look_due = true;
            }
            self.handle.with(|state| state.delivery.unpark());
            // A look reads from an overlap before the last one: what it may find is not to be sent twice.
            let quiet = config.overlap + config.look_every;
            if now.duration_since(self.last_activity) > quiet {
                let quiet = self.host.clock.now_ms().saturating_sub(quiet.as_millis() as u64);
                self.handle.with(|state| state.delivery.forget_idle(MessageId::at(quiet)));
            }
        }
        let waiting_bytes = self.waiting_bytes();
        if !self.queue.is_empty() || self.unflushed {
            self.progress.waits(waiting_bytes, now);
        }
        if self.progress.has_backlog() {
            // The client's pongs and acks answer what is behind the backlog, or wait behind its own requests: the rate at
            // which it reads is judged instead.
            self.last_heard = now;
            self.unacked_since = self.unacked_since.map(|_| now);
        }
        if self.overdue_at.is_some_and(|at| at <= now) {
            self.find_overdue(now);
        }
        let since = |at: Option<Instant>| at.map_or(Duration::ZERO, |at| now.duration_since(at));
        let (code, why) = if now.duration_since(self.last_heard) > config.heartbeat * 2 + config.heartbeat / 2
        {
            (ErrorCode::HeartbeatTimeout, "nothing was heard of this client")
        } else if since(self.unacked_since) >= config.ack_timeout {
            (ErrorCode::SlowReader, "messages were delivered and not acked in time")
        } else if let Some(why) =
            self.progress.too_slow(now, config.write_timeout, config.min_read_bytes_per_sec)
        {
            // Only `bye` may still get through.
            self.queue.clear();
            (ErrorCode::SlowReader, why)
        } else if self.expiry_at.is_some_and(|at| at <= now) && self.has_expired(now) {
            (ErrorCode::TokenExpired, "the token has expired; send auth with a fresh one in time")
        } else {
            return None;
        };
        Some(WireError::new(code, why))
    }

    /// Whether the token has expired; if not, the clock is looked at again when it may have, and with each heartbeat.
    fn has_expired(&mut self, now: Instant) -> bool {
        let Some(expires_at) = self.expires_at else { return false };
        let left = expires_at.saturating_sub(self.host.clock.now_ms());
        self.expiry_at = Some(now + Duration::from_millis(left).min(self.host.config.heartbeat));
        left == 0
    }

    /// What was handed over and not acked for so long counts as not handed over: it gets its row and a notification,
    /// while the session goes on (R14).
    fn find_overdue(&mut self, now: Instant) {
        let after = self.host.config.unacked_after.unwrap_or_default();
        let before = now.checked_sub(after).map_or(0, |at| self.handle.moment(at));
        let (overdue, next) = self.handle.with(|state| state.delivery.overdue(before));
        self.overdue.extend(overdue);
        self.overdue_at = next.map(|sent| (self.handle.instant(sent) + after).max(now + RETRY));
    }

    fn next_deadline(&self, now: Instant) -> Instant {
        let config = &self.host.config;
        let deadlines = [
            Some(self.next_beat),
            self.expiry_at,
            self.unacked_since.map(|at| at + config.ack_timeout),
            self.overdue_at,
            self.progress.deadline(config.write_timeout),
            self.retry_at.filter(|&at| at > now),
            self.receipts_at,
            // One that is due waits for what is under way, not for the time.
            self.announce_at.filter(|&at| at > now),
            self.paused_until,
            // With something before them they go out when that has.
            self.own_ticks_at.filter(|_| self.queue.is_empty()),
        ];
        deadlines.into_iter().flatten().min().unwrap_or(self.next_beat)
    }
}
