//! How the committer comes by its work: it sleeps until there is some, and takes all that is there.
//!
//! Who sends a message waits for the group's fsync. Nobody waits for a receipt: with nothing else at hand it stays a moment
//! longer, and shares the group of the message that comes next.

use std::{
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use tokio::sync::mpsc;

use super::{GROUP_MAX_OPS, Op};

/// How long receipts wait for something that is in a hurry.
const PATIENCE: Duration = Duration::from_millis(1);
/// So many receipts are worth a group of their own.
const PATIENT_MAX: usize = 64;

pub(super) struct Intake {
    ops: mpsc::Receiver<Op>,
    waker: Waker,
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
        Intake { ops, waker: Waker::from(Arc::new(Unpark(thread::current()))) }
    }

    /// Waits for work and adds it to the batch. Returns whether there can be more.
    pub(super) fn fill(&mut self, batch: &mut Vec<Op>) -> bool {
        let open = self.wait(batch, None);
        let until = Instant::now() + PATIENCE;
        let mut looked_at = 0;
        while open && batch.len() < PATIENT_MAX && batch[looked_at..].iter().all(Op::is_patient) {
            looked_at = batch.len();
            if !self.wait(batch, Some(until)) || batch.len() == looked_at {
                break;
            }
        }
        open
    }

    pub(super) fn len(&self) -> usize {
        self.ops.len()
    }

    pub(super) fn close(&mut self) {
        self.ops.close();
    }

    /// False if every caller is gone. With a limit it may return with nothing.
    fn wait(&mut self, batch: &mut Vec<Op>, until: Option<Instant>) -> bool {
        loop {
            let cx = &mut Context::from_waker(&self.waker);
            if let Poll::Ready(taken) = self.ops.poll_recv_many(cx, batch, GROUP_MAX_OPS) {
                return taken > 0;
            }
            match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => thread::park(),
                Some(Duration::ZERO) => return true,
                Some(left) => thread::park_timeout(left),
            }
        }
    }
}
