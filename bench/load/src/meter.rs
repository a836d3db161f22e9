//! Latencies as they are measured: their distribution, and what each second saw of them.

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use serde::Serialize;

/// Points of a latency's curve in the plot: so many for each factor of ten that is left above them.
const POINTS_PER_NINE: i32 = 12;

/// What many connections measure together.
pub struct Meter(Mutex<Measured>);

struct Measured {
    latencies: Histogram<u64>,
    seconds: Vec<(u64, u64)>,
}

impl Default for Meter {
    fn default() -> Self {
        // It grows as it must, and three digits are a precision that it has.
        let latencies = Histogram::new(3).expect("three significant digits are allowed");
        Meter(Mutex::new(Measured { latencies, seconds: Vec::new() }))
    }
}

impl Meter {
    /// Something that took `micros` was done `now` microseconds after the beginning.
    pub fn record(&self, now: u64, micros: u64) {
        let second = (now / 1_000_000) as usize;
        let mut measured = self.0.lock();
        if measured.seconds.len() <= second {
            measured.seconds.resize(second + 1, (0, 0));
        }
        let (count, worst) = &mut measured.seconds[second];
        *count += 1;
        *worst = micros.max(*worst);
        // It grows to hold whatever comes; only a value beyond all clocks could not be kept.
        let _ = measured.latencies.record(micros);
    }

    pub fn count(&self) -> u64 {
        self.0.lock().latencies.len()
    }

    pub fn summary(&self) -> LatencySummary {
        let latencies = &self.0.lock().latencies;
        let at = |quantile: f64| millis(latencies.value_at_quantile(quantile));
        let mut curve = Vec::new();
        for step in 0.. {
            let above = 10f64.powf(-f64::from(step) / f64::from(POINTS_PER_NINE));
            if latencies.is_empty() || above * (latencies.len() as f64) < 1.0 {
                break;
            }
            curve.push((1.0 - above, at(1.0 - above)));
        }
        LatencySummary {
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: millis(latencies.max()),
            curve,
        }
    }

    pub fn seconds(&self) -> Vec<Second> {
        let measured = self.0.lock();
        let second = |&(count, worst): &(u64, u64)| Second { count, worst_ms: millis(worst) };
        measured.seconds.iter().map(second).collect()
    }
}

fn millis(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct LatencySummary {
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
    /// Quantiles and their milliseconds, for the plot.
    #[serde(skip)]
    pub curve: Vec<(f64, f64)>,
}

/// What was done in one second, and the longest that any of it took.
#[derive(Debug, Clone, Serialize)]
pub struct Second {
    pub count: u64,
    pub worst_ms: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact_to_three_digits() {
        let meter = Meter::default();
        (1..=100_000).for_each(|n| meter.record(0, n));
        let LatencySummary { p50_ms, p90_ms, p99_ms, p999_ms, max_ms, curve } = meter.summary();
        for (found, wanted) in
            [(p50_ms, 50.0), (p90_ms, 90.0), (p99_ms, 99.0), (p999_ms, 99.9), (max_ms, 100.0)]
        {
            assert!((found / wanted - 1.0).abs() < 0.002, "{found} for {wanted}");
        }
        assert!(curve.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{curve:?}");
        assert!(curve.last().is_some_and(|(quantile, _)| *quantile > 0.9999), "{curve:?}");
    }

    #[test]
    fn every_second_has_its_count_and_its_worst() {
        let meter = Meter::default();
        for (now, micros) in [(10, 5), (999_999, 7), (2_500_000, 9_000)] {
            meter.record(now, micros);
        }
        let seconds: Vec<_> = meter.seconds().iter().map(|s| (s.count, s.worst_ms)).collect();
        assert_eq!(seconds, [(2, 0.007), (0, 0.0), (1, 9.0)]);
        assert_eq!(meter.count(), 3);
        assert!(Meter::default().summary().curve.is_empty());
    }
}
