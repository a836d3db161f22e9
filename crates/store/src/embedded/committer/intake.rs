//! How the committer comes by its work: it sleeps until there is some, and takes all that is there.
//!
//! What an fsync costs hardly depends on how much it makes durable, so that groups which follow each other closely keep a distance,
//! in which the next one fills: a message that comes alone is made durable at once, and of many that come nobody waits for
//! longer than two groups. The distance is larger behind a group that many messages shared. And hardly anybody waits for a
//! receipt: with nothing else at hand it stays a moment longer, and shares the group of the message that comes next.

use std::{
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use tokio::sync::mpsc;

use super::{GROUP_MAX_OPS, Op};

/// From the beginning of a group to that of the next.
const DISTANCE: Duration = Duration::from_micros(500);
/// The same where there is much to do, which so many messages in a group are.
const DISTANCE_BUSY: Duration = Duration::from_millis(1);
const BUSY: usize = 16;
/// How long receipts wait for something that is in a hurry.
const PATIENCE: Duration = Duration::from_millis(4);
/// So many operations that are found at once are worth a group, whatever they are.
const ENOUGH: usize = 64;

pub(super) struct Intake {
    ops: mpsc::Receiver<Op>,
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

impl Intake {
    /// For the thread that calls this.
    pub(super) fn new(ops: mpsc::Receiver<Op>) -> Intake {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        Intake { ops, waker, not_before: Instant::now() }
    }

    /// Waits for work and fills the batch with what makes a group. Returns whether there is any: not if every caller is gone.
    pub(super) fn fill(&mut self, batch: &mut Vec<Op>) -> bool {
        if !self.take(batch, None) {
            return false;
        }
        // Not woken by what comes meanwhile: that is found afterwards, all of it at once.
        if batch.len() < ENOUGH {
            thread::sleep(self.not_before.saturating_duration_since(Instant::now()));
            self.take(batch, Some(self.not_before));
        }
        let patience_ends = Instant::now() + PATIENCE;
        let mut looked_at = 0;
        while batch.len() < ENOUGH && batch[looked_at..].iter().all(Op::is_patient) {
            looked_at = batch.len();
            if !self.take(batch, Some(patience_ends)) {
                break;
            }
        }
        let is_busy = batch.iter().map(Op::message_count).sum::<usize>() >= BUSY;
        self.not_before = Instant::now() + if is_busy { DISTANCE_BUSY } else { DISTANCE };
        true
    }

    pub(super) fn len(&self) -> usize {
        self.ops.len()
    }

    pub(super) fn close(&mut self) {
        self.ops.close();
    }

    /// Adds to the batch what is there, and waits for something if there is nothing, at most until a moment. Returns whether
    /// something came.
    fn take(&mut self, batch: &mut Vec<Op>, until: Option<Instant>) -> bool {
        loop {
            let cx = &mut Context::from_waker(&self.waker);
            let room = GROUP_MAX_OPS.saturating_sub(batch.len());
            if let Poll::Ready(taken) = self.ops.poll_recv_many(cx, batch, room) {
                return taken > 0;
            }
            match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => thread::park(),
                Some(Duration::ZERO) => return false,
                Some(left) => thread::park_timeout(left),
            }
        }
    }
}
