//! How the committer comes by its work: it sleeps until there is some, and takes all that is there.
//!
//! What an fsync costs hardly depends on how much it makes durable, so that groups which follow each other closely keep a distance,
//! in which the next one fills: a message that comes alone is made durable at once, and of many that come nobody waits for
//! longer than two groups. The distance is larger behind a group that many messages shared. And hardly anybody waits for a
//! receipt: with nothing else at hand it stays a moment longer, and shares the group of the message that comes next. Receipts that
//! come meanwhile wake nobody: only who is in a hurry rings the bell.

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
const DISTANCE: Duration = Duration::from_micros(500);
/// The same where there is much to do, which so many messages in a group are.
const DISTANCE_BUSY: Duration = Duration::from_millis(1);
const BUSY: usize = 16;
/// How long receipts wait for something that is in a hurry.
const PATIENCE: Duration = Duration::from_millis(4);
/// So many operations that are found at once are worth a group, whatever they are.
const ENOUGH: usize = 64;

/// Wakes the committer from its patience.
#[derive(Default)]
pub(in crate::embedded) struct LingerWaker {
    /// The thread that waits, once there is one.
    thread: OnceLock<Thread>,
    is_deferrable: AtomicBool,
}

impl LingerWaker {
    /// For who has just handed over something that does not wait.
    pub(in crate::embedded) fn ring(&self) {
        // Either this sees that the committer waits, or the committer, which looks once more after it has said so, sees what came.
        fence(Ordering::SeqCst);
        if self.is_deferrable.load(Ordering::Relaxed)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    fn set_patient(&self, is_deferrable: bool) {
        self.is_deferrable.store(is_deferrable, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

pub(super) struct OpBatcher<'a> {
    ops: mpsc::Receiver<WriteOp>,
    bell: &'a LingerWaker,
    waker: Waker,
    /// When the next group may begin.
    not_before: Instant,
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

impl<'a> OpBatcher<'a> {
    /// For the thread that calls this.
    pub(super) fn new(ops: mpsc::Receiver<WriteOp>, bell: &'a LingerWaker) -> OpBatcher<'a> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        bell.thread.get_or_init(thread::current);
        OpBatcher { ops, bell, waker, not_before: Instant::now() }
    }

    /// Waits for work and fills the batch with what makes a group. Returns whether there is any: not if every caller is gone.
    pub(super) fn fill(&mut self, batch: &mut Vec<WriteOp>) -> bool {
        if !self.wait(batch) {
            return false;
        }
        // Not woken by what comes meanwhile: that is found afterwards, all of it at once.
        if batch.len() < ENOUGH {
            thread::sleep(self.not_before.saturating_duration_since(Instant::now()));
            self.take(batch);
        }
        if batch.len() < ENOUGH && batch.iter().all(WriteOp::is_deferrable) {
            self.bell.set_patient(true);
            self.wait_for_hurry(batch, Instant::now() + PATIENCE);
            self.bell.set_patient(false);
        }
        let is_busy = batch.iter().map(WriteOp::message_count).sum::<usize>() >= BUSY;
        self.not_before = Instant::now() + if is_busy { DISTANCE_BUSY } else { DISTANCE };
        true
    }

    pub(super) fn len(&self) -> usize {
        self.ops.len()
    }

    pub(super) fn close(&mut self) {
        self.ops.close();
    }

    /// Waits until there is something, and adds it to the batch. Returns whether anything came.
    fn wait(&mut self, batch: &mut Vec<WriteOp>) -> bool {
        loop {
            let cx = &mut Context::from_waker(&self.waker);
            match self.ops.poll_recv_many(cx, batch, GROUP_MAX_OPS) {
                Poll::Ready(taken) => return taken > 0,
                Poll::Pending => thread::park(),
            }
        }
    }

    /// Adds to the batch what is there.
    fn take(&mut self, batch: &mut Vec<WriteOp>) {
        while batch.len() < GROUP_MAX_OPS
            && let Ok(op) = self.ops.try_recv()
        {
            batch.push(op);
        }
    }

    /// Adds to the batch what comes until something is in a hurry, or there is enough when somebody looks, or it has waited for long.
    fn wait_for_hurry(&mut self, batch: &mut Vec<WriteOp>, ends: Instant) {
        loop {
            let looked_at = batch.len();
            self.take(batch);
            let left = ends.saturating_duration_since(Instant::now());
            let is_enough = batch.len() >= ENOUGH || !batch[looked_at..].iter().all(WriteOp::is_deferrable);
            if left.is_zero() || is_enough {
                return;
            }
            thread::park_timeout(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_in_a_hurry_is_not_kept_waiting_by_those_who_are_not() {
        let (ops, ops_in) = mpsc::channel(8);
        let bell = &LingerWaker::default();
        let waits = &AtomicBool::new(false);
        thread::scope(|scope| {
            let committer = scope.spawn(move || {
                let mut batcher = OpBatcher::new(ops_in, bell);
                let (mut batch, ends) = (Vec::new(), Instant::now() + Duration::from_secs(60));
                bell.set_patient(true);
                waits.store(true, Ordering::Release);
                batcher.wait_for_hurry(&mut batch, ends);
                assert!(Instant::now() < ends, "nobody woke it");
                batch.iter().map(WriteOp::is_deferrable).collect::<Vec<_>>()
            });
            while !waits.load(Ordering::Acquire) {
                thread::yield_now();
            }
            ops.try_send(WriteOp::Tick).ok().unwrap();
            // By now it sleeps: what comes next it finds only if it is woken.
            thread::sleep(Duration::from_millis(20));
            let (reply, _) = tokio::sync::oneshot::channel();
            ops.try_send(WriteOp::Checkpoint(reply)).ok().unwrap();
            bell.ring();
            assert_eq!(committer.join().unwrap(), [true, false]);
        });
    }
}
