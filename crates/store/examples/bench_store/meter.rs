//! What the benchmark reads off the process and off the store's own metrics.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use rustix::time::{ClockId, clock_gettime};

/// User and system time of the whole process.
pub fn cpu_time() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), spent.tv_nsec.unsigned_abs() as u32)
}

/// How long the threads of one name ran, and how long they waited for a core.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThreadTime {
    pub ran: Duration,
    pub waited: Duration,
}

/// The threads that live now, by name. Those of the same name are one.
pub fn thread_times() -> BTreeMap<String, ThreadTime> {
    let mut times: BTreeMap<String, ThreadTime> = BTreeMap::new();
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return times;
    };
    for task in tasks.flatten().map(|task| task.path()) {
        // A thread may end between the list and the look.
        let Ok(name) = std::fs::read_to_string(task.join("comm")) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(task.join("schedstat")) else {
            continue;
        };
        let mut nanos = stat.split_whitespace().map(|n| Duration::from_nanos(n.parse().unwrap_or_default()));
        let sum = times.entry(name.trim().to_owned()).or_default();
        sum.ran += nanos.next().unwrap_or_default();
        sum.waited += nanos.next().unwrap_or_default();
    }
    times
}

pub fn load_average() -> String {
    std::fs::read_to_string("/proc/loadavg").map_or_else(|_| "unknown".into(), |text| text.trim().to_owned())
}

/// Bytes in all files below a directory.
pub fn disk_bytes(dir: &Path) -> Result<u64, String> {
    let mut sum = 0;
    for item in std::fs::read_dir(dir).map_err(|e| e.to_string())? {
        let item = item.map_err(|e| e.to_string())?;
        // A file that went away between the list and the look was not there.
        let Ok(about) = item.metadata() else { continue };
        sum += if about.is_dir() { disk_bytes(&item.path())? } else { about.len() };
    }
    Ok(sum)
}

/// The store's own metrics that explain its figures.
static FSYNCS: Series = Series(Mutex::new(Vec::new()));
static CHECKPOINTS: Series = Series(Mutex::new(Vec::new()));
/// How often the committer had to wait for a checkpoint.
static STALLS: Series = Series(Mutex::new(Vec::new()));

struct Series(Mutex<Vec<f64>>);

impl Series {
    fn push(&self, value: f64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(value);
    }

    fn take(&self) -> Vec<f64> {
        let mut values = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        values.sort_by(f64::total_cmp);
        values
    }
}

/// Forgets what was seen so far.
pub fn reset() {
    for series in [&FSYNCS, &CHECKPOINTS, &STALLS] {
        series.take();
    }
}

/// What went on in the store since the last [`reset`], as a line.
pub fn store_activity() -> String {
    let (fsyncs, checkpoints, stalls) = (FSYNCS.take(), CHECKPOINTS.take(), STALLS.take());
    let middle = |values: &[f64]| values.get(values.len() / 2).copied().unwrap_or_default();
    format!(
        "                   {} groups, write and fsync of one: median {:.2} ms, longest {:.1} ms; {} checkpoints, \
         median {:.2} s; waits for one: {}",
        fsyncs.len(),
        middle(&fsyncs) * 1e3,
        fsyncs.last().copied().unwrap_or_default() * 1e3,
        checkpoints.len(),
        middle(&checkpoints),
        stalls.len(),
    )
}

/// Takes the store's metrics from here on.
pub fn install() -> Result<(), String> {
    metrics::set_global_recorder(Taker).map_err(|e| e.to_string())
}

struct Taker;

struct Into(&'static Series);

impl HistogramFn for Into {
    fn record(&self, value: f64) {
        self.0.push(value);
    }
}

impl CounterFn for Into {
    fn increment(&self, value: u64) {
        self.0.push(value as f64);
    }

    fn absolute(&self, _: u64) {}
}

impl Recorder for Taker {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match key.name() {
            "bluetick_checkpoint_stalls_total" => Counter::from_arc(Arc::new(Into(&STALLS))),
            _ => Counter::noop(),
        }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match key.name() {
            "bluetick_fsync_seconds" => Histogram::from_arc(Arc::new(Into(&FSYNCS))),
            "bluetick_checkpoint_seconds" => Histogram::from_arc(Arc::new(Into(&CHECKPOINTS))),
            _ => Histogram::noop(),
        }
    }
}
