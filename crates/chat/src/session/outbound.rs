//! What waits for a socket, and how fast the socket takes it (R13).
//!
//! [`OutboundQueue`] counts in encoded bytes: a frame's text is what it costs. At the high-water mark the session stops
//! starting requests and stops taking messages from the store, so a session holds at most the mark, one page of an
//! answer that was begun below it, and one message.
//!
//! [`WriteProgress`] ends a session whose socket takes too little. Two rules, both over `write_timeout`:
//!
//! - a socket that takes nothing of what waits, however little that is;
//! - while more than [`BACKLOG_BYTES`] wait, a socket that takes fewer bytes than the minimum rate asks for. Without
//!   this a reader that takes a byte now and then would hold its memory for as long as it likes.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::Outgoing;

/// More than this is a backlog, whose rate is judged. Less is little memory, and may be a few frames on a bad network.
const BACKLOG_BYTES: usize = 64 * 1024;
/// A text that was allocated with more room to spare than this is cut to its length.
const SPARE_MAX_BYTES: usize = 16 * 1024;

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

    /// Drops all that waits.
    pub(super) fn clear(&mut self) {
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
pub(super) struct WriteProgress {
    /// Since when the socket has taken nothing of what waits.
    stuck_since: Option<Instant>,
    /// When the current measurement of a backlog began, and the bytes taken since.
    backlog: Option<(Instant, usize)>,
}

impl WriteProgress {
    /// Notes how much waits. `bytes` may be 0 with something waiting: a ping has none.
    pub(super) fn waits(&mut self, bytes: usize, now: Instant) {
        self.stuck_since.get_or_insert(now);
        self.backlog = match bytes > BACKLOG_BYTES {
            true => self.backlog.or(Some((now, 0))),
            false => None,
        };
    }

    /// The socket took something, and more waits.
    pub(super) fn took(&mut self, bytes: usize, now: Instant) {
        self.stuck_since = Some(now);
        if let Some((_, taken)) = &mut self.backlog {
            *taken += bytes;
        }
    }

    pub(super) fn took_all(&mut self) {
        *self = WriteProgress::default();
    }

    /// Pongs and acks of a client with a backlog may be late because the ping or the message is behind it.
    pub(super) fn has_backlog(&self) -> bool {
        self.backlog.is_some()
    }

    /// When this must be asked again.
    pub(super) fn deadline(&self, timeout: Duration) -> Option<Instant> {
        let began = [self.stuck_since, self.backlog.map(|(began, _)| began)];
        began.into_iter().flatten().min().map(|began| began + timeout)
    }

    /// Why the session must end, if the socket takes too little.
    pub(super) fn too_slow(
        &mut self,
        now: Instant,
        timeout: Duration,
        min_bytes_per_sec: u64,
    ) -> Option<&'static str> {
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
