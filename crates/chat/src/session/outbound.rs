//! The way to the socket (R13).
//!
//! - [`Outbound`]: the socket's sink with everything that waits for it.
//! - [`OutboundQueue`]: the frames that wait, counted in encoded bytes. At the high-water mark the
//!   session starts no requests and sends no messages, so a session holds at most the mark, one
//!   page of an answer that was started below it, and one message.
//! - [`WriteProgress`]: ends a session whose socket takes too little. It has two rules, both over
//!   `write_timeout`:
//!   - the socket takes nothing of what waits, however little that is;
//!   - while more than [`BACKLOG_BYTES`] wait, the socket takes fewer bytes than the minimum rate.
//!     Without this rule a reader that takes a byte now and then would hold its memory for as long
//!     as it likes.

use std::{
    collections::VecDeque,
    future::poll_fn,
    task::{Context, Poll},
    time::Duration,
};

use bluetick_protocol::{Bye, ErrorCode, ServerFrame, WireError, limits};
use tokio::time::{Instant, timeout};

use super::{FrameSink, Gone, Outgoing, SessionConfig};

/// High-water mark of the queue in frames; the one in bytes is `limits::OUTBOUND_HIGH_WATER_BYTES`.
const QUEUED_FRAMES_MAX: usize = 64;
/// How long the last frames of a session may take to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// More than this is a backlog, whose rate is judged. Less costs little memory, and may be a few
/// frames on a bad network.
const BACKLOG_BYTES: usize = 64 * 1024;
/// A text with more spare capacity than this is shrunk to its length.
const SPARE_MAX_BYTES: usize = 16 * 1024;

/// The sink of a session's socket, with everything that waits for it.
pub(super) struct Outbound<W> {
    sink: W,
    queue: OutboundQueue,
    progress: WriteProgress,
    /// The sink has taken frames that it has not written yet.
    is_unflushed: bool,
    /// The session has more to do once the socket has taken everything.
    wakes_when_written: bool,
}

/// What [`Outbound::poll_write`] leaves to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WriteState {
    /// Nothing: there is nothing left to write, or the socket takes no more right now.
    Idle,
    /// The socket has taken everything, and something waited for that.
    Room,
    Gone,
}

impl<W: FrameSink> Outbound<W> {
    pub(super) fn new(sink: W) -> Self {
        Outbound {
            sink,
            queue: OutboundQueue::default(),
            progress: WriteProgress::default(),
            is_unflushed: false,
            wakes_when_written: false,
        }
    }

    pub(super) fn push(&mut self, frame: &ServerFrame) {
        self.push_text(frame.to_text());
    }

    pub(super) fn push_all(&mut self, frames: Vec<ServerFrame>) {
        self.queue.extend(frames.into_iter().map(|frame| Outgoing::Text(frame.to_text())));
    }

    pub(super) fn push_text(&mut self, text: String) {
        self.queue.push_back(Outgoing::Text(text));
    }

    pub(super) fn ping(&mut self) {
        self.queue.push_back(Outgoing::Ping);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Encoded bytes that the socket has not taken.
    fn waiting_bytes(&self) -> usize {
        self.queue.bytes() + self.sink.unsent_bytes()
    }

    /// Bytes below the high-water mark.
    pub(super) fn room_bytes(&self) -> usize {
        limits::OUTBOUND_HIGH_WATER_BYTES.saturating_sub(self.waiting_bytes())
    }

    /// Frames below the high-water mark.
    pub(super) fn room_frames(&self) -> usize {
        QUEUED_FRAMES_MAX.saturating_sub(self.queue.len())
    }

    /// Whether a request may be started. Above the high-water mark none is: a client that does not
    /// read the answers gets no more of them.
    pub(super) fn is_below_high_water(&self) -> bool {
        self.room_frames() > 0 && self.room_bytes() > 0
    }

    /// Whether so much waits that nothing more is read from the client.
    pub(super) fn is_congested(&self) -> bool {
        self.queue.len() >= 2 * QUEUED_FRAMES_MAX
    }

    /// Sets whether [`WriteState::Room`] is reported once the socket has taken everything.
    pub(super) fn wake_when_written(&mut self, wakes: bool) {
        self.wakes_when_written = wakes;
    }

    /// Writes what waits.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> WriteState {
        if self.queue.is_empty() && !self.is_unflushed {
            return WriteState::Idle;
        }
        let (frames, bytes) = (self.queue.len(), self.waiting_bytes());
        let written = self.sink.poll_write(cx, &mut self.queue);
        self.is_unflushed = written.is_pending();
        match written {
            Poll::Ready(Err(Gone)) => WriteState::Gone,
            Poll::Ready(Ok(())) => {
                self.progress.took_all();
                if self.wakes_when_written { WriteState::Room } else { WriteState::Idle }
            }
            Poll::Pending => {
                let taken = bytes.saturating_sub(self.waiting_bytes());
                if self.queue.len() < frames || taken > 0 {
                    self.progress.took(taken, Instant::now());
                }
                WriteState::Idle
            }
        }
    }

    /// Notes how much waits for the socket. Returns whether that is a backlog.
    pub(super) fn note_waiting(&mut self, now: Instant) -> bool {
        if !self.queue.is_empty() || self.is_unflushed {
            self.progress.waits(self.waiting_bytes(), now);
        }
        self.progress.has_backlog()
    }

    /// Why the session must end, if the socket takes too little. Only `bye` may still get through
    /// then, so the queue is cleared.
    pub(super) fn too_slow(&mut self, now: Instant, config: &SessionConfig) -> Option<WireError> {
        let why = self.progress.too_slow(now, config.write_timeout, config.min_read_bytes_per_sec)?;
        self.queue.clear();
        Some(WireError::new(ErrorCode::SlowReader, why))
    }

    pub(super) fn deadline(&self, config: &SessionConfig) -> Option<Instant> {
        self.progress.deadline(config.write_timeout)
    }

    /// Says `bye` and writes everything that waits, for a moment.
    pub(super) async fn say_bye(&mut self, why: &WireError, reconnect_after_ms: u64) {
        let bye = Bye { code: why.code, reason: why.message.clone(), reconnect_after_ms };
        self.push(&ServerFrame::Bye(bye));
        self.queue.push_back(Outgoing::Close(why.code.close_code(), why.code.to_string()));
        let Outbound { sink, queue, .. } = self;
        let _ = timeout(FLUSH_TIMEOUT, poll_fn(|cx| sink.poll_write(cx, queue))).await;
    }
}

/// Frames that wait for a socket, counted in encoded bytes.
#[derive(Debug, Default)]
pub struct OutboundQueue {
    frames: VecDeque<Outgoing>,
    bytes: usize,
}

fn bytes_of(frame: &Outgoing) -> usize {
    match frame {
        Outgoing::Text(text) => text.len(),
        Outgoing::Ping | Outgoing::Close(..) => 0,
    }
}

impl OutboundQueue {
    pub fn push_back(&mut self, mut frame: Outgoing) {
        if let Outgoing::Text(text) = &mut frame
            && text.capacity() - text.len() > SPARE_MAX_BYTES
        {
            text.shrink_to_fit();
        }
        self.bytes += bytes_of(&frame);
        self.frames.push_back(frame);
    }

    pub fn pop_front(&mut self) -> Option<Outgoing> {
        let frame = self.frames.pop_front()?;
        self.bytes -= bytes_of(&frame);
        Some(frame)
    }

    pub fn len(&self) -> usize {
        self.frames.len()
    }

    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Encoded bytes of all frames.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Drops all frames and their memory.
    fn clear(&mut self) {
        (self.frames, self.bytes) = (VecDeque::new(), 0);
    }
}

impl Extend<Outgoing> for OutboundQueue {
    fn extend<I: IntoIterator<Item = Outgoing>>(&mut self, frames: I) {
        frames.into_iter().for_each(|frame| self.push_back(frame));
    }
}

impl FromIterator<Outgoing> for OutboundQueue {
    fn from_iter<I: IntoIterator<Item = Outgoing>>(frames: I) -> Self {
        let mut queue = OutboundQueue::default();
        queue.extend(frames);
        queue
    }
}

impl From<Outgoing> for OutboundQueue {
    fn from(frame: Outgoing) -> Self {
        let mut queue = OutboundQueue::default();
        queue.push_back(frame);
        queue
    }
}

/// How fast a socket takes what waits for it.
#[derive(Debug, Default)]
struct WriteProgress {
    /// Since when the socket has taken nothing of what waits.
    stuck_since: Option<Instant>,
    /// When the current measurement of a backlog began, and the bytes taken since.
    backlog: Option<(Instant, usize)>,
}

impl WriteProgress {
    /// Notes how much waits. `bytes` may be 0 with something waiting: a ping has none.
    fn waits(&mut self, bytes: usize, now: Instant) {
        self.stuck_since.get_or_insert(now);
        self.backlog = match bytes > BACKLOG_BYTES {
            true => self.backlog.or(Some((now, 0))),
            false => None,
        };
    }

    /// The socket took some bytes, and more wait.
    fn took(&mut self, bytes: usize, now: Instant) {
        self.stuck_since = Some(now);
        if let Some((_, taken)) = &mut self.backlog {
            *taken += bytes;
        }
    }

    fn took_all(&mut self) {
        *self = WriteProgress::default();
    }

    /// Whether more than [`BACKLOG_BYTES`] wait.
    fn has_backlog(&self) -> bool {
        self.backlog.is_some()
    }

    /// When [`too_slow`](Self::too_slow) must be asked again.
    fn deadline(&self, timeout: Duration) -> Option<Instant> {
        let began = [self.stuck_since, self.backlog.map(|(began, _)| began)];
        began.into_iter().flatten().min().map(|began| began + timeout)
    }

    /// What is wrong, if the socket takes too little.
    fn too_slow(&mut self, now: Instant, timeout: Duration, min_bytes_per_sec: u64) -> Option<&'static str> {
        let is_over = |began: Instant| now.duration_since(began) >= timeout;
        if self.stuck_since.is_some_and(is_over) {
            return Some("the socket takes nothing");
        }
        if let Some((began, taken)) = self.backlog.filter(|&(began, _)| is_over(began)) {
            let secs = now.duration_since(began).as_secs_f64();
            if (taken as f64) < min_bytes_per_sec as f64 * secs {
                return Some("the socket takes too few bytes a second");
            }
            self.backlog = Some((now, 0));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(20);
    const RATE: u64 = 1000;

    fn text(bytes: usize) -> Outgoing {
        Outgoing::Text("x".repeat(bytes))
    }

    #[test]
    fn bytes_are_those_of_the_frames_that_wait() {
        let mut queue = OutboundQueue::from(text(10));
        queue.extend([Outgoing::Ping, text(32)]);
        assert_eq!((queue.len(), queue.bytes()), (3, 42));
        assert_eq!(queue.pop_front(), Some(text(10)));
        assert_eq!(queue.pop_front(), Some(Outgoing::Ping));
        assert_eq!((queue.len(), queue.bytes()), (1, 32));
        queue.clear();
        assert_eq!((queue.pop_front(), queue.bytes(), queue.is_empty()), (None, 0, true));
    }

    /// Takes so many frames, then no more.
    struct Takes(usize);

    impl FrameSink for Takes {
        fn poll_write(&mut self, _: &mut Context<'_>, queue: &mut OutboundQueue) -> Poll<Result<(), Gone>> {
            while self.0 > 0 && queue.pop_front().is_some() {
                self.0 -= 1;
            }
            if queue.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_session_is_woken_once_the_socket_has_taken_everything() {
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        let mut outbound = Outbound::new(Takes(1));
        outbound.wake_when_written(true);
        assert_eq!(outbound.poll_write(cx), WriteState::Idle, "nothing to write");
        outbound.push_text("one".into());
        outbound.push_text("two".into());
        assert_eq!(outbound.poll_write(cx), WriteState::Idle, "one of two");
        assert_eq!(outbound.room_frames(), QUEUED_FRAMES_MAX - 1);
        outbound.sink = Takes(9);
        assert_eq!(outbound.poll_write(cx), WriteState::Room);
        outbound.wake_when_written(false);
        outbound.ping();
        assert_eq!(outbound.poll_write(cx), WriteState::Idle, "nobody waits for room");
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_at_its_high_water_mark_has_no_room() {
        let mut outbound = Outbound::new(Takes(0));
        outbound.push_text("x".repeat(limits::OUTBOUND_HIGH_WATER_BYTES));
        assert!(!outbound.is_below_high_water() && !outbound.is_congested());
        assert_eq!(outbound.room_bytes(), 0);
        let now = Instant::now();
        assert!(outbound.note_waiting(now), "a backlog");
        let config = SessionConfig::default();
        assert!(outbound.too_slow(now, &config).is_none());
        let error = outbound.too_slow(now + config.write_timeout, &config).unwrap();
        assert_eq!(error.code, ErrorCode::SlowReader);
        assert!(outbound.is_empty(), "only bye may still go out");
        let mut outbound = Outbound::new(Takes(0));
        (0..QUEUED_FRAMES_MAX).for_each(|_| outbound.ping());
        assert!(!outbound.is_below_high_water() && !outbound.is_congested());
        (0..QUEUED_FRAMES_MAX).for_each(|_| outbound.ping());
        assert!(outbound.is_congested());
    }

    #[test]
    fn a_text_holds_little_more_memory_than_its_bytes() {
        let mut grown = String::with_capacity(1 << 20);
        grown.push_str("short");
        let mut queue = OutboundQueue::from(Outgoing::Text(grown));
        let Some(Outgoing::Text(text)) = queue.pop_front() else { panic!("a text") };
        assert!(text.capacity() <= SPARE_MAX_BYTES, "{}", text.capacity());
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_that_takes_nothing_is_too_slow() {
        let began = Instant::now();
        let mut progress = WriteProgress::default();
        assert_eq!(progress.deadline(TIMEOUT), None);
        progress.waits(1, began);
        assert_eq!(progress.deadline(TIMEOUT), Some(began + TIMEOUT));
        assert!(progress.too_slow(began + TIMEOUT - Duration::from_millis(1), TIMEOUT, RATE).is_none());
        assert!(progress.too_slow(began + TIMEOUT, TIMEOUT, RATE).is_some());
        progress.took_all();
        assert!(progress.too_slow(began + 2 * TIMEOUT, TIMEOUT, RATE).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_trickle_is_enough_for_little_and_not_for_a_backlog() {
        let began = Instant::now();
        for (waiting, stays) in [(BACKLOG_BYTES, true), (BACKLOG_BYTES + 1, false)] {
            let mut progress = WriteProgress::default();
            let mut ended = false;
            for secs in 0..=60 {
                let now = began + Duration::from_secs(secs);
                progress.waits(waiting, now);
                ended |= progress.too_slow(now, TIMEOUT, RATE).is_some();
                progress.took(1, now);
            }
            assert_eq!(!ended, stays, "with {waiting} bytes waiting");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_backlog_that_moves_at_the_minimum_rate_stays() {
        let began = Instant::now();
        for (rate, stays) in [(RATE as usize, true), (RATE as usize * 9 / 10, false)] {
            let mut progress = WriteProgress::default();
            let mut ended = false;
            progress.waits(1 << 20, began);
            for secs in 1..=100 {
                let now = began + Duration::from_secs(secs);
                progress.took(rate, now);
                progress.waits(1 << 20, now);
                ended |= progress.too_slow(now, TIMEOUT, RATE).is_some();
            }
            assert_eq!(!ended, stays, "at {rate} bytes a second");
        }
    }
}
