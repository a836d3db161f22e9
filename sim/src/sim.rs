//! What all parts of a run share: time, randomness, the trace, and fault injection.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use bluetick_store::{Clock, Result, StoreError};
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::{Instant, sleep};

use crate::{client_script::Recorder, history::RunHistory, notices::Notices, process::Process, setup::Setup};

/// When every run begins, in milliseconds since 1970.
const BEGIN_MS: u64 = 1_760_000_000_000;
/// The longest delay of a write that takes effect after its caller was told that it failed.
const LATE_MAX_MS: u64 = 3_000;
/// How long a call into a partition hangs before it fails.
const CUT_OFF: Duration = Duration::from_secs(1);

/// Faults that were injected, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultCounts {
    pub errors: u64,
    pub lost_answers: u64,
    pub late_writes: u64,
    pub crashes: u64,
    pub pauses: u64,
    pub partitions: u64,
    pub flushes: u64,
    pub fall_backs: u64,
    pub broken_connections: u64,
    pub restarted_devices: u64,
    pub forgetful_devices: u64,
}

impl FaultCounts {
    /// Every kind of fault and its count.
    pub fn each(&self) -> [(&'static str, u64); 11] {
        [
            ("errors", self.errors),
            ("lost answers", self.lost_answers),
            ("late writes", self.late_writes),
            ("crashes", self.crashes),
            ("pauses", self.pauses),
            ("partitions", self.partitions),
            ("registry flushes", self.flushes),
            ("counter fall-backs", self.fall_backs),
            ("broken connections", self.broken_connections),
            ("restarted devices", self.restarted_devices),
            ("devices that forgot everything", self.forgetful_devices),
        ]
    }

    pub fn total(&self) -> u64 {
        self.each().iter().map(|(_, n)| n).sum()
    }

    pub fn add(&mut self, other: &FaultCounts) {
        self.errors += other.errors;
        self.lost_answers += other.lost_answers;
        self.late_writes += other.late_writes;
        self.crashes += other.crashes;
        self.pauses += other.pauses;
        self.partitions += other.partitions;
        self.flushes += other.flushes;
        self.fall_backs += other.fall_backs;
        self.broken_connections += other.broken_connections;
        self.restarted_devices += other.restarted_devices;
        self.forgetful_devices += other.forgetful_devices;
    }
}

impl fmt::Display for FaultCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let some: Vec<_> =
            self.each().iter().filter(|(_, n)| *n > 0).map(|(kind, n)| format!("{n} {kind}")).collect();
        f.write_str(&some.join(", "))
    }
}

pub struct Sim {
    pub setup: Setup,
    pub history: Mutex<RunHistory>,
    pub notices: Arc<Notices>,
    pub faults: Mutex<FaultCounts>,
    rng: Mutex<StdRng>,
    began: Instant,
    /// Set when the faults are over and everything must converge.
    calm: AtomicBool,
    trace: Option<Mutex<Vec<String>>>,
    /// Writes down what one device does, for the conformance kit of clients.
    pub recorder: Option<Arc<Mutex<Recorder>>>,
}

/// Adds a line to the trace. It is formatted only if the run is traced.
macro_rules! note {
    ($sim:expr, $($what:tt)*) => {
        if $sim.is_traced() {
            $sim.note(format!($($what)*));
        }
    };
}
pub(crate) use note;

impl Sim {
    pub fn new(setup: Setup, traced: bool) -> Arc<Sim> {
        Sim::recorded(setup, traced, None)
    }

    /// The same, with a recorder of what one device does.
    pub fn recorded(setup: Setup, traced: bool, recorder: Option<Arc<Mutex<Recorder>>>) -> Arc<Sim> {
        Arc::new(Sim {
            rng: Mutex::new(StdRng::seed_from_u64(setup.seed ^ 0x5eed_0fc4_a0c5)),
            setup,
            history: Mutex::default(),
            notices: Arc::default(),
            faults: Mutex::default(),
            began: Instant::now(),
            calm: AtomicBool::new(false),
            trace: traced.then(Mutex::default),
            recorder,
        })
    }

    pub fn is_traced(&self) -> bool {
        self.trace.is_some()
    }

    pub fn note(&self, line: String) {
        if let Some(trace) = &self.trace {
            let ms = self.began.elapsed().as_millis();
            trace.lock().push(format!("{:>4}.{:03} {line}", ms / 1000, ms % 1000));
        }
    }

    pub fn take_trace(&self) -> Vec<String> {
        self.trace.as_ref().map(|trace| std::mem::take(&mut *trace.lock())).unwrap_or_default()
    }

    /// The true time, which no process sees.
    pub fn now_ms(&self) -> u64 {
        BEGIN_MS + self.began.elapsed().as_millis() as u64
    }

    pub fn draw<T>(&self, draw: impl FnOnce(&mut StdRng) -> T) -> T {
        draw(&mut self.rng.lock())
    }

    /// Whether a fault of this probability occurs now.
    pub fn strikes(&self, probability: f64) -> bool {
        probability > 0.0 && !self.is_calm() && self.draw(|rng| rng.random_bool(probability))
    }

    pub fn count(&self, count: impl FnOnce(&mut FaultCounts)) {
        count(&mut self.faults.lock());
    }

    pub fn set_calm(&self, calm: bool) {
        self.calm.store(calm, Ordering::Relaxed);
    }

    pub fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    pub fn delay_ms(&self) -> u64 {
        let max = self.setup.delay_max_ms;
        self.draw(|rng| match rng.random_range(0..4) {
            0 => rng.random_range(0..=max),
            1 => rng.random_range(0..=max / 8),
            _ => 0,
        })
    }

    /// One network hop.
    pub async fn hop(&self) {
        match self.delay_ms() {
            0 => tokio::task::yield_now().await,
            ms => sleep(Duration::from_millis(ms)).await,
        }
    }

    /// One step of a process on a remote store. It may be late, fail, lose its answer, or take
    /// effect after its caller was told that it failed; and the process may crash before or after
    /// it.
    pub async fn step<T: Send + fmt::Debug + 'static>(
        self: &Arc<Self>,
        process: &Arc<Process>,
        what: impl FnOnce() -> String,
        op: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let what = if self.is_traced() { what() } else { String::new() };
        process.awake().await;
        self.hop().await;
        process.may_crash(self).await;
        if process.is_cut_off() {
            sleep(CUT_OFF).await;
            note!(self, "{}: {what}: cut off", process.name());
            return Err(unavailable());
        }
        if self.strikes(self.setup.error_rate) {
            self.count(|f| f.errors += 1);
            note!(self, "{}: {what}: refused", process.name());
            return Err(unavailable());
        }
        if self.strikes(self.setup.late_write_rate) {
            self.count(|f| f.late_writes += 1);
            note!(self, "{}: {what}: failed, and will happen later", process.name());
            let (sim, late) = (self.clone(), self.draw(|rng| rng.random_range(1..=LATE_MAX_MS)));
            let name = process.name().to_owned();
            crate::process::spawn_beyond(async move {
                sleep(Duration::from_millis(late)).await;
                let done = op();
                note!(sim, "{name}: {what}, late: {done:?}");
            });
            self.hop().await;
            return Err(unavailable());
        }
        let done = op();
        note!(self, "{}: {what}: {done:?}", process.name());
        process.may_crash(self).await;
        if self.strikes(self.setup.lost_answer_rate) {
            self.count(|f| f.lost_answers += 1);
            note!(self, "{}: {what}: the answer is lost", process.name());
            return Err(unavailable());
        }
        self.hop().await;
        done
    }

    /// The same on a store that always answers.
    pub async fn reliable_step<T: fmt::Debug>(
        self: &Arc<Self>,
        process: &Arc<Process>,
        what: impl FnOnce() -> String,
        op: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        process.awake().await;
        self.hop().await;
        process.may_crash(self).await;
        let done = op();
        note!(self, "{}: {}: {done:?}", process.name(), what());
        process.may_crash(self).await;
        self.hop().await;
        done
    }
}

pub fn unavailable() -> StoreError {
    StoreError::unavailable("a system, by the seed's wish,")
}

/// A process's own clock, which may be skewed.
pub struct SkewedClock {
    sim: Arc<Sim>,
    skew_ms: AtomicI64,
}

impl SkewedClock {
    pub fn new(sim: Arc<Sim>, skew_ms: i64) -> SkewedClock {
        SkewedClock { sim, skew_ms: AtomicI64::new(skew_ms) }
    }
}

impl Clock for SkewedClock {
    fn now_ms(&self) -> u64 {
        self.sim.now_ms().saturating_add_signed(self.skew_ms.load(Ordering::Relaxed))
    }
}

/// Unique numbers.
#[derive(Default)]
pub struct Numbers(AtomicU64);

impl Numbers {
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}
