//! When a group begins, and which operations are in it: the linger policy of the group commit.
//!
//! An fsync costs about the same whatever it makes durable, so operations that arrive close
//! together should share one. The policy, in the order in which [`OpBatcher::fill`] applies it:
//!
//! 1. The committer sleeps until an operation arrives. A lone message is committed at once.
//! 2. A group begins no sooner than [`GROUP_INTERVAL`] after the last one, or
//!    [`GROUP_INTERVAL_BUSY`] if that one held at least [`BUSY_MESSAGES`] messages. The committer
//!    sleeps through the rest of the interval and then takes everything that has arrived; nothing
//!    wakes it earlier. Nobody waits for longer than two groups.
//! 3. A batch of deferrable operations alone (receipts, for whose answer nobody blocks) lingers up
//!    to [`RECEIPT_LINGER`] for an urgent operation to share its group with. Receipts that arrive
//!    meanwhile do not wake the committer; an urgent operation does ([`LingerWaker`]).
//! 4. [`FULL_BATCH`] operations are worth a group of their own: they skip both waits.
//!
//! Each number was measured (the tables are in `docs/performance.md`); a single interval loses one
//! of these gains:
//!
//! | rule | without | with |
//! | --- | --- | --- |
//! | sleep through the interval instead of being woken by each operation: cpu per message in batches | 11.8–15.6 µs | 9.8–13.2 µs |
//! | the same at 7,000 lone messages a second | 102 µs | 92 µs |
//! | 1 ms instead of 0.5 ms after a busy group (2 ms gains nothing) | 14.1–15.3 µs | 12.8–13.4 µs |
//! | receipts linger 4 ms instead of 1 ms: a drain of 30 messages, login included | 5.6 µs | 5.05 µs |
//! | receipts do not wake a lingering committer: the same drain | 6.2–8.5 µs | 5.7–6.7 µs |

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering, fence},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use tokio::sync::mpsc;

use super::{GROUP_MAX_OPS, WriteOp};

/// From the beginning of a group to that of the next.
const GROUP_INTERVAL: Duration = Duration::from_micros(500);
/// The same after a busy group.
const GROUP_INTERVAL_BUSY: Duration = Duration::from_millis(1);
/// This many messages make a group busy.
const BUSY_MESSAGES: usize = 16;
/// How long deferrable operations wait for an urgent one.
const RECEIPT_LINGER: Duration = Duration::from_millis(4);
/// A batch of this many operations does not wait.
const FULL_BATCH: usize = 64;

/// Lets a caller with an urgent operation end the committer's linger.
#[derive(Default)]
pub(in crate::embedded) struct LingerWaker {
    /// The committer's thread, once it runs.
    thread: OnceLock<Thread>,
    is_lingering: AtomicBool,
}

impl LingerWaker {
    /// Wakes a lingering committer. Called after an urgent operation was put into the queue.
    pub(in crate::embedded) fn wake(&self) {
        // Pairs with the fence in `set_lingering`: either this load sees that the committer
        // lingers, or the committer, which checks the queue after it has set the flag, sees the
        // operation.
        fence(Ordering::SeqCst);
        if self.is_lingering.load(Ordering::Relaxed)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    fn set_lingering(&self, is_lingering: bool) {
        self.is_lingering.store(is_lingering, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

struct UnparkThread(Thread);

impl Wake for UnparkThread {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

pub(super) struct OpBatcher<'a> {
    ops: mpsc::Receiver<WriteOp>,
    linger_waker: &'a LingerWaker,
    waker: Waker,
    /// When the next group may begin.
    not_before: Instant,
}

impl<'a> OpBatcher<'a> {
    /// A batcher for the calling thread.
    pub(super) fn new(ops: mpsc::Receiver<WriteOp>, linger_waker: &'a LingerWaker) -> OpBatcher<'a> {
        let waker = Waker::from(Arc::new(UnparkThread(thread::current())));
        linger_waker.thread.get_or_init(thread::current);
        OpBatcher { ops, linger_waker, waker, not_before: Instant::now() }
    }

    /// Fills the batch with the operations of the next group. Returns false when every caller is
    /// gone.
    pub(super) fn fill(&mut self, batch: &mut Vec<WriteOp>) -> bool {
        if !self.wait(batch) {
            return false;
        }
        if batch.len() < FULL_BATCH {
            thread::sleep(self.not_before.saturating_duration_since(Instant::now()));
            self.take_queued(batch);
        }
        if batch.len() < FULL_BATCH && batch.iter().all(WriteOp::is_deferrable) {
            self.linger(batch, Instant::now() + RECEIPT_LINGER, thread::park_timeout);
        }
        let is_busy = batch.iter().map(WriteOp::message_count).sum::<usize>() >= BUSY_MESSAGES;
        self.not_before = Instant::now() + if is_busy { GROUP_INTERVAL_BUSY } else { GROUP_INTERVAL };
        true
    }

    pub(super) fn len(&self) -> usize {
        self.ops.len()
    }

    pub(super) fn close(&mut self) {
        self.ops.close();
    }

    /// Sleeps until there is an operation, and takes all that are queued. Returns whether any came.
    fn wait(&mut self, batch: &mut Vec<WriteOp>) -> bool {
        loop {
            let cx = &mut Context::from_waker(&self.waker);
            match self.ops.poll_recv_many(cx, batch, GROUP_MAX_OPS) {
                Poll::Ready(taken) => return taken > 0,
                Poll::Pending => thread::park(),
            }
        }
    }

    fn take_queued(&mut self, batch: &mut Vec<WriteOp>) {
        while batch.len() < GROUP_MAX_OPS
            && let Ok(op) = self.ops.try_recv()
        {
            batch.push(op);
        }
    }

    /// Fills the batch until an urgent operation arrives, the batch is full, or the deadline has
    /// passed. `park` puts the thread to sleep for at most the given time.
    fn linger(&mut self, batch: &mut Vec<WriteOp>, deadline: Instant, mut park: impl FnMut(Duration)) {
        self.linger_waker.set_lingering(true);
        loop {
            let checked = batch.len();
            self.take_queued(batch);
            let left = deadline.saturating_duration_since(Instant::now());
            let is_enough = batch.len() >= FULL_BATCH || !batch[checked..].iter().all(WriteOp::is_deferrable);
            if left.is_zero() || is_enough {
                break;
            }
            park(left);
        }
        self.linger_waker.set_lingering(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR_AWAY: Duration = Duration::from_secs(60);

    fn urgent() -> WriteOp {
        WriteOp::Checkpoint(tokio::sync::oneshot::channel().0)
    }

    fn deferrable(batch: &[WriteOp]) -> Vec<bool> {
        batch.iter().map(WriteOp::is_deferrable).collect()
    }

    /// The urgent operation arrives when the batcher has found the queue empty and is about to
    /// sleep: only the wake-up lets it find the operation before the deadline.
    #[test]
    fn who_is_in_a_hurry_is_not_kept_waiting_by_those_who_are_not() {
        let (ops, queue) = mpsc::channel(8);
        let waker = LingerWaker::default();
        let mut batcher = OpBatcher::new(queue, &waker);
        let (mut batch, mut sleeps) = (vec![WriteOp::Tick], 0);
        let deadline = Instant::now() + FAR_AWAY;
        batcher.linger(&mut batch, deadline, |left| {
            sleeps += 1;
            ops.try_send(urgent()).ok().unwrap();
            waker.wake();
            thread::park_timeout(left);
        });
        assert!(Instant::now() < deadline, "nobody woke it");
        assert_eq!((deferrable(&batch), sleeps), (vec![true, false], 1));
    }

    #[test]
    fn a_full_batch_of_receipts_does_not_linger() {
        let (ops, queue) = mpsc::channel(FULL_BATCH);
        let waker = LingerWaker::default();
        let mut batcher = OpBatcher::new(queue, &waker);
        for _ in 1..FULL_BATCH {
            ops.try_send(WriteOp::Tick).ok().unwrap();
        }
        let mut batch = vec![WriteOp::Tick];
        batcher.linger(&mut batch, Instant::now() + FAR_AWAY, |_| panic!("it sleeps"));
        assert_eq!(batch.len(), FULL_BATCH);
    }
}
