//! What was measured: a stage, a round, and what many rounds come to.

use std::time::Instant;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::process::Tree;

/// Durations, to about a hundredth of each.
#[derive(Clone)]
pub struct Latency(Histogram<u32>);

impl Default for Latency {
    fn default() -> Self {
        // It grows as it must, and two digits are a precision that it has.
        Latency(Histogram::new(2).expect("two significant digits are allowed"))
    }
}

impl Latency {
    pub fn record(&mut self, micros: u64) {
        // It grows to hold whatever comes; only a value beyond all clocks could not be kept.
        let _ = self.0.record(micros);
    }

    pub fn add(&mut self, other: &Latency) {
        // Fails only where a histogram may not grow, and these may.
        let _ = self.0.add(&other.0);
    }

    pub fn summary(&self) -> LatencySummary {
        let millis = |micros: u64| micros as f64 / 1000.0;
        LatencySummary {
            p50_ms: millis(self.0.value_at_quantile(0.5)),
            p99_ms: millis(self.0.value_at_quantile(0.99)),
            max_ms: millis(self.0.max()),
        }
    }
}

/// As `bluetick bench --json` writes it, too.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

/// One kind of work, once.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Stage {
    pub messages: u64,
    pub seconds: f64,
    pub messages_per_second: f64,
    pub server_cpu_micros_per_message: f64,
    /// What of it went into log-ins, if that could be told apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login_cpu_micros_per_message: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_receive: Option<LatencySummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_receipt: Option<LatencySummary>,
    /// What the server did that it should not have done.
    pub complaints: Vec<String>,
}

impl Stage {
    /// With the time that the server took behind it for what it had put off.
    pub fn with_put_off(mut self, cpu_micros: u64) -> Stage {
        self.server_cpu_micros_per_message += cpu_micros as f64 / self.messages.max(1) as f64;
        self
    }
}

/// How long a stage takes, and what it costs the server.
pub struct StageClock {
    tree: Tree,
    cpu_micros: u64,
    begun: Instant,
}

impl StageClock {
    pub fn start(tree: Tree) -> StageClock {
        StageClock { tree, cpu_micros: tree.cpu_micros(), begun: Instant::now() }
    }

    /// What it has cost so far.
    pub fn cpu_micros(&self) -> u64 {
        self.tree.cpu_micros().saturating_sub(self.cpu_micros)
    }

    pub fn stop(self, messages: u64) -> Stage {
        let seconds = self.begun.elapsed().as_secs_f64();
        let cpu_micros = self.cpu_micros();
        Stage {
            messages,
            seconds,
            messages_per_second: messages as f64 / seconds.max(1e-9),
            server_cpu_micros_per_message: cpu_micros as f64 / messages.max(1) as f64,
            ..Stage::default()
        }
    }
}

/// All that was measured of one server in one round.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Round {
    pub online: Option<Stage>,
    pub store: Option<Stage>,
    pub drain: Option<Stage>,
    /// The same on a server that holds nothing yet.
    pub fresh_store: Option<Stage>,
    pub fresh_drain: Option<Stage>,
    pub idle_bytes_per_connection: Option<u64>,
    /// A stage that could not be measured, and why.
    pub failures: Vec<String>,
}

impl Round {
    /// Everything that went wrong in it, in words.
    pub fn complaints(&self) -> Vec<String> {
        let stages = [
            ("online", &self.online),
            ("store", &self.store),
            ("drain", &self.drain),
            ("store on a fresh server", &self.fresh_store),
            ("drain on a fresh server", &self.fresh_drain),
        ];
        let mut all = self.failures.clone();
        for (name, stage) in stages {
            let complaints = stage.iter().flat_map(|stage| &stage.complaints);
            all.extend(complaints.map(|complaint| format!("{name}: {complaint}")));
        }
        all
    }
}

/// The middle of some values, and how far they lie apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub lowest: f64,
    pub highest: f64,
}

impl Spread {
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (lowest, highest) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            1 => values[middle],
            _ => (values[middle - 1] + values[middle]) / 2.0,
        };
        Some(Spread { median, lowest, highest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_an_odd_and_of_an_even_number() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, lowest: 1.0, highest: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0]), Some(Spread { median: 2.5, lowest: 1.0, highest: 4.0 }));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn a_round_says_in_which_stage_something_went_wrong() {
        let stage = Stage { complaints: vec!["1 of 2 messages were lost".into()], ..Stage::default() };
        let round = Round { drain: Some(stage), failures: vec!["idle: no".into()], ..Round::default() };
        assert_eq!(round.complaints(), ["idle: no", "drain: 1 of 2 messages were lost"]);
    }
}
