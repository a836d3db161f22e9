//! The connection between a device and its gateway: two pipes, in order, with a delay, that can
//! break.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bluetick_chat::session::{FrameSink, FrameSource, Gone, Incoming, OutboundQueue, Outgoing};
use futures_util::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use rand::RngExt;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::sim::Sim;

/// Frames on their way to a device that does not read: then the socket is full.
const SOCKET_FRAMES: usize = 16;

struct LineDirection<T> {
    frames: VecDeque<(Instant, T)>,
    last_at: Instant,
    closed: bool,
    /// The waker of a writer that waits for room.
    writer: Option<Waker>,
}

/// One direction.
struct Pipe<T> {
    way: Mutex<LineDirection<T>>,
    changed: Notify,
}

impl<T> Pipe<T> {
    fn new() -> Arc<Pipe<T>> {
        let way =
            LineDirection { frames: VecDeque::new(), last_at: Instant::now(), closed: false, writer: None };
        Arc::new(Pipe { way: Mutex::new(way), changed: Notify::new() })
    }

    fn push(&self, sim: &Sim, frame: T) {
        let delay = Duration::from_millis(sim.delay_ms());
        let mut way = self.way.lock();
        if !way.closed {
            way.last_at = way.last_at.max(Instant::now() + delay);
            let at = way.last_at;
            way.frames.push_back((at, frame));
            self.changed.notify_one();
        }
    }

    /// Accepts nothing more. `kept` of the frames in flight still arrive.
    fn close(&self, kept: usize) {
        let mut way = self.way.lock();
        if !way.closed {
            way.closed = true;
            way.frames.truncate(kept);
            way.writer.take().into_iter().for_each(Waker::wake);
            self.changed.notify_one();
        }
    }

    /// The next frame; `None` when the pipe is closed and empty. Dropping the future loses nothing.
    async fn next(&self) -> Option<T> {
        loop {
            let changed = self.changed.notified();
            let due = {
                let mut way = self.way.lock();
                match way.frames.front() {
                    Some((at, _)) if *at <= Instant::now() => {
                        way.writer.take().into_iter().for_each(Waker::wake);
                        return way.frames.pop_front().map(|(_, frame)| frame);
                    }
                    Some((at, _)) => Some(*at),
                    None if way.closed => return None,
                    None => None,
                }
            };
            match due {
                Some(at) => sleep_until(at).await,
                None => changed.await,
            }
        }
    }
}

/// The device's end.
pub struct DeviceLine {
    sim: Arc<Sim>,
    to_server: Arc<Pipe<Incoming<String>>>,
    to_device: Arc<Pipe<Outgoing>>,
}

pub struct LineSource {
    sim: Arc<Sim>,
    from_device: Arc<Pipe<Incoming<String>>>,
    /// The read in progress.
    next: Option<BoxFuture<'static, Option<Incoming<String>>>>,
    to_device: Arc<Pipe<Outgoing>>,
}

pub struct LineSink {
    sim: Arc<Sim>,
    to_device: Arc<Pipe<Outgoing>>,
}

pub fn connect(sim: &Arc<Sim>) -> (LineSource, LineSink, DeviceLine) {
    let (to_server, to_device) = (Pipe::new(), Pipe::new());
    let source = LineSource {
        sim: sim.clone(),
        from_device: to_server.clone(),
        next: None,
        to_device: to_device.clone(),
    };
    let sink = LineSink { sim: sim.clone(), to_device: to_device.clone() };
    (source, sink, DeviceLine { sim: sim.clone(), to_server, to_device })
}

impl DeviceLine {
    pub fn write(&self, frame: Incoming<String>) {
        self.to_server.push(&self.sim, frame);
    }

    /// The server's next frame; `None` when the connection is gone.
    pub async fn next(&self) -> Option<Outgoing> {
        self.to_device.next().await
    }
}

impl Drop for DeviceLine {
    fn drop(&mut self) {
        let kept = self.sim.draw(|rng| rng.random_range(0..=8));
        self.to_server.close(kept);
        self.to_device.close(0);
    }
}

/// The session ended, or its process crashed.
impl Drop for LineSource {
    fn drop(&mut self) {
        let kept = match self.to_device.way.lock().frames.back() {
            // After a close frame everything arrives; a crash loses some of the frames in flight.
            Some((_, Outgoing::Close(..))) => usize::MAX,
            _ => self.sim.draw(|rng| rng.random_range(0..=8)),
        };
        self.to_device.close(kept);
        self.from_device.close(0);
    }
}

impl FrameSource for LineSource {
    type Text = String;

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Incoming<String>> {
        let next = self.next.get_or_insert_with(|| {
            let pipe = self.from_device.clone();
            Box::pin(async move { pipe.next().await })
        });
        let frame = ready!(next.poll_unpin(cx));
        self.next = None;
        Poll::Ready(frame.unwrap_or(Incoming::Closed))
    }
}

impl FrameSink for LineSink {
    fn poll_write(&mut self, cx: &mut Context<'_>, queue: &mut OutboundQueue) -> Poll<Result<(), Gone>> {
        while !queue.is_empty() {
            {
                let mut way = self.to_device.way.lock();
                if way.closed {
                    return Poll::Ready(Err(Gone));
                }
                if way.frames.len() >= SOCKET_FRAMES {
                    way.writer = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            }
            if let Some(frame) = queue.pop_front() {
                self.to_device.push(&self.sim, frame);
            }
        }
        Poll::Ready(Ok(()))
    }
}
