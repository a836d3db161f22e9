//! A process. A crash aborts its tasks at their current step, and a pause stops them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    task::AbortHandle,
    time::{Instant, sleep, sleep_until},
};

use crate::sim::{Sim, note};

/// Finished tasks are dropped when this many are kept.
const TASKS_KEPT: usize = 64;
const RESTART_MAX_MS: u64 = 2_000;

pub struct Process {
    name: String,
    /// The probability that it crashes before or after any one step.
    crash_rate: f64,
    up: AtomicBool,
    /// How often it has crashed.
    crashes: AtomicU64,
    tasks: Mutex<Vec<AbortHandle>>,
    paused_until: Mutex<Option<Instant>>,
    /// Partitioned from the stores and the other processes until then.
    cut_off_until: Mutex<Option<Instant>>,
}

impl Process {
    pub fn new(name: String, crash_rate: f64) -> Arc<Process> {
        Arc::new(Process {
            name,
            crash_rate,
            up: AtomicBool::new(true),
            crashes: AtomicU64::new(0),
            tasks: Mutex::default(),
            paused_until: Mutex::default(),
            cut_off_until: Mutex::default(),
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    pub fn crashes(&self) -> u64 {
        self.crashes.load(Ordering::Relaxed)
    }

    /// Runs a task that does not outlive the process. A process that is down runs nothing: one of
    /// its tasks may continue after the crash until it next awaits.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if !self.is_up() {
            return;
        }
        let mut tasks = self.tasks.lock();
        if tasks.len() >= TASKS_KEPT {
            tasks.retain(|task| !task.is_finished());
        }
        tasks.push(spawn_beyond(task));
    }

    /// Aborts all tasks at their current step. The process restarts after a while.
    pub fn crash(self: &Arc<Self>, sim: &Arc<Sim>) {
        if !self.up.swap(false, Ordering::Relaxed) {
            return;
        }
        self.crashes.fetch_add(1, Ordering::Relaxed);
        sim.count(|f| f.crashes += 1);
        note!(sim, "{} CRASHES", self.name);
        for task in std::mem::take(&mut *self.tasks.lock()) {
            task.abort();
        }
        let down = sim.draw(|rng| rand::RngExt::random_range(rng, 1..=RESTART_MAX_MS));
        let (process, sim) = (self.clone(), sim.clone());
        spawn_beyond(async move {
            sleep(Duration::from_millis(down)).await;
            process.up.store(true, Ordering::Relaxed);
            note!(sim, "{} is up again", process.name);
        });
    }

    /// Crashes here, if the seed says so. The caller then never continues.
    pub async fn may_crash(self: &Arc<Self>, sim: &Arc<Sim>) {
        if sim.strikes(self.crash_rate) {
            self.crash(sim);
            std::future::pending::<()>().await;
        }
    }

    pub fn pause(&self, time: Duration) {
        *self.paused_until.lock() = Some(Instant::now() + time);
    }

    /// Waits while the process is paused.
    pub async fn awake(&self) {
        loop {
            let until = *self.paused_until.lock();
            match until {
                Some(at) if at > Instant::now() => sleep_until(at).await,
                _ => return,
            }
        }
    }

    pub fn cut_off(&self, time: Duration) {
        *self.cut_off_until.lock() = Some(Instant::now() + time);
    }

    pub fn is_cut_off(&self) -> bool {
        self.cut_off_until.lock().is_some_and(|at| at > Instant::now())
    }
}

/// Runs a task that no crash aborts.
#[allow(clippy::disallowed_methods)]
pub fn spawn_beyond(task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    tokio::spawn(task).abort_handle()
}
