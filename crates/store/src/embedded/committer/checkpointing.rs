//! When a checkpoint begins, and what the committer does while one runs.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use super::{Committer, ReplySender, halt_on_unknown_wal_state};
use crate::embedded::{
    checkpoint::{CheckpointDone, CheckpointJob},
    engine::EngineSnapshot,
    wal::AppendError,
};

/// How long the committer waits before it tries again to begin a segment.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// After this many seconds without a write the memtable is flushed early.
const QUIET_TICKS: u32 = 3;
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct CheckpointState {
    /// A frozen memtable is being written to the engine.
    pub is_running: bool,
    pub is_requested: bool,
    /// Callers that wait for the next checkpoint.
    pub waiters: Vec<ReplySender<EngineSnapshot>>,
    /// Callers that wait for the running one.
    running_waiters: Vec<ReplySender<EngineSnapshot>>,
    /// Bytes of log in the active memtable.
    pub active_bytes: u64,
    /// Ticks since the last group.
    pub quiet_ticks: u32,
    /// No segment could be begun; do not try again before this.
    retry_at: Option<Instant>,
}

impl Committer {
    /// Begins a checkpoint if one is due: turns the memtable into a frozen one, which the
    /// checkpoint thread writes to the engine.
    pub(super) fn maybe_checkpoint(&mut self) {
        let (config, state) = (&self.shared.config, &self.checkpoint);
        let is_full = state.active_bytes >= config.checkpoint_bytes;
        // A quiet server frees its memory early and restarts fast after a crash.
        let is_quiet = state.quiet_ticks >= QUIET_TICKS && state.active_bytes >= config.checkpoint_bytes / 16;
        if state.is_running || !(is_full || is_quiet || state.is_requested) {
            return;
        }
        if state.retry_at.is_some_and(|at| Instant::now() < at) {
            return;
        }
        self.checkpoint.quiet_ticks = 0;
        match self.wal.rotate() {
            Ok(()) => self.checkpoint.retry_at = None,
            Err(AppendError::Refused(e)) => {
                tracing::error!(error = %e, "cannot begin a log segment; the checkpoint is postponed");
                self.checkpoint.retry_at = Some(Instant::now() + RETRY_DELAY);
                return;
            }
            Err(AppendError::Unknown(e)) => halt_on_unknown_wal_state(&e),
        }
        let state = &mut self.checkpoint;
        (state.is_requested, state.is_running, state.active_bytes) = (false, true, 0);
        state.running_waiters = std::mem::take(&mut state.waiters);
        self.messages = 0;
        let job = CheckpointJob {
            frozen: self.shared.memtable.freeze(),
            rows: self.shared.rows.freeze(),
            sent_ids: self.recent_sends.freeze(),
            lsn: self.wal.next_lsn() - 1,
            last_message_id: self.last_id,
        };
        if self.jobs.send(job).is_err() {
            tracing::error!("the checkpoint thread is gone; ending the process, a restart replays the log");
            std::process::abort();
        }
    }

    /// Finishes the running checkpoint if it is done, waiting for it at most `wait`.
    pub(super) fn collect_checkpoint(&mut self, wait: Duration) {
        if !self.checkpoint.is_running {
            return;
        }
        let Ok(CheckpointDone { segments_removed }) = self.done.recv_timeout(wait) else { return };
        self.checkpoint.is_running = false;
        self.shared.checkpoints.fetch_add(1, Ordering::Release);
        if segments_removed {
            self.wal.forget_before(self.shared.checkpointed_lsn.load(Ordering::Acquire) + 1);
        }
        self.shared.log_bytes.store(self.wal.total_bytes(), Ordering::Relaxed);
        // Taken before the next checkpoint can begin: a snapshot must not hold half of one.
        for waiter in self.checkpoint.running_waiters.drain(..) {
            let _ = waiter.send(Ok(self.shared.snapshot()));
        }
    }

    /// Backpressure: the log ahead of the engine bounds memory and the time of a restart, so beyond
    /// twice the checkpoint size writes wait for the running checkpoint. A failing one is not
    /// waited for: sends are refused then.
    pub(super) fn wait_for_checkpoint(&mut self) {
        while self.checkpoint.is_running
            && self.is_far_ahead()
            && !self.shared.checkpoint_failing.load(Ordering::Acquire)
        {
            metrics::counter!("bluetick_checkpoint_stalls_total").increment(1);
            self.collect_checkpoint(Duration::from_millis(100));
        }
    }

    fn is_far_ahead(&self) -> bool {
        self.checkpoint.active_bytes > 2 * self.shared.config.checkpoint_bytes
    }

    /// Whether memory is full and the engine cannot take it.
    pub(super) fn is_stuck(&self) -> bool {
        let is_failing =
            self.checkpoint.retry_at.is_some() || self.shared.checkpoint_failing.load(Ordering::Acquire);
        self.is_far_ahead() && is_failing
    }

    /// Writes everything to the engine, if that succeeds in time, so that the next start replays
    /// nothing.
    pub(super) fn close(&mut self, reply: ReplySender<()>) {
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        self.checkpoint.is_requested = self.checkpoint.active_bytes > 0;
        while (self.checkpoint.is_running || self.checkpoint.is_requested) && Instant::now() < deadline {
            self.maybe_checkpoint();
            match self.checkpoint.is_running {
                true => self.collect_checkpoint(Duration::from_millis(50)),
                false => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        let _ = reply.send(Ok(()));
    }
}
