//! What the benchmark reads from the process and from the store's metrics.

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

/// The live threads, summed up by name.
pub fn thread_times() -> BTreeMap<String, ThreadTime> {
    let mut times: BTreeMap<String, ThreadTime> = BTreeMap::new();
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return times;
    };
    for task in tasks.flatten().map(|task| task.path()) {
        // A thread may end after it was listed.
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
        // A file may go after it was listed.
        let Ok(about) = item.metadata() else { continue };
        sum += if about.is_dir() { disk_bytes(&item.path())? } else { about.len() };
    }
    Ok(sum)
}

/// The store's metrics that explain its figures.
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

/// Drops the samples so far.
pub fn reset() {
    for series in [&FSYNCS, &CHECKPOINTS, &STALLS] {
        series.take();
    }
}

/// The store's activity since the last [`reset`], as a line.
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

/// Installs the recorder.
pub fn install() -> Result<(), String> {
    metrics::set_global_recorder(SeriesRecorder).map_err(|e| e.to_string())
}

struct SeriesRecorder;

struct SeriesSink(&'static Series);

impl HistogramFn for SeriesSink {
    fn record(&self, value: f64) {
        self.0.push(value);
    }
}

impl CounterFn for SeriesSink {
    fn increment(&self, value: u64) {
        self.0.push(value as f64);
    }

    fn absolute(&self, _: u64) {}
}

impl Recorder for SeriesRecorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match key.name() {
            "bluetick_checkpoint_stalls_total" => Counter::from_arc(Arc::new(SeriesSink(&STALLS))),
            _ => Counter::noop(),
        }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match key.name() {
            "bluetick_fsync_seconds" => Histogram::from_arc(Arc::new(SeriesSink(&FSYNCS))),
            "bluetick_checkpoint_seconds" => Histogram::from_arc(Arc::new(SeriesSink(&CHECKPOINTS))),
            _ => Histogram::noop(),
        }
    }
}
