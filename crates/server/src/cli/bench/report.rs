//! What a run found, for people and for programs.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Durations, to about a hundredth of each.
#[derive(Clone)]
pub struct Latency(Histogram<u32>);

impl Default for Latency {
    fn default() -> Self {
        Latency::new()
    }
}

impl Latency {
    pub fn new() -> Latency {
        // It grows as it must, and two digits are a precision that it has.
        Latency(Histogram::new(2).expect("two significant digits are allowed"))
    }

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

#[derive(Debug, Serialize)]
pub struct LatencySummary {
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

#[derive(Debug, Serialize)]
pub struct Load {
    pub pairs: u32,
    pub messages_per_sender: u32,
    pub in_flight: u32,
    pub body_bytes: u32,
}

#[derive(Debug, Serialize)]
pub struct Stage {
    pub messages: u64,
    pub seconds: f64,
    pub messages_per_second: f64,
    pub server_cpu_micros_per_message: Option<f64>,
}

/// The server's memory.
#[derive(Debug, Serialize)]
pub struct Memory {
    pub before_bytes: u64,
    pub peak_bytes: u64,
    pub after_bytes: u64,
}

#[derive(Debug, Serialize)]
pub struct ChatReport {
    pub load: Load,
    pub chat: Stage,
    pub send_to_sent: LatencySummary,
    pub send_to_receive: LatencySummary,
    pub send_to_tick: LatencySummary,
    pub memory: Option<Memory>,
    /// Sends that the server put off because their sender was too fast; they were sent again.
    pub rate_limited: u64,
    pub violations: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct OfflineReport {
    pub load: Load,
    pub store: Stage,
    pub drain: Stage,
    pub send_to_sent: LatencySummary,
    pub memory: Option<Memory>,
    pub rate_limited: u64,
    pub violations: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct IdleReport {
    pub connections: u32,
    pub seconds_to_open: f64,
    pub rss_bytes_per_connection: Option<u64>,
    pub memory: Option<Memory>,
    pub violations: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum Report {
    Chat(ChatReport),
    Offline(OfflineReport),
    Idle(IdleReport),
}

impl Report {
    /// What the server did that it must not do.
    pub fn violations(&self) -> &[String] {
        match self {
            Report::Chat(report) => &report.violations,
            Report::Offline(report) => &report.violations,
            Report::Idle(report) => &report.violations,
        }
    }

    pub fn to_json(&self) -> String {
        // Numbers and text under fixed names: writing them cannot fail.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    pub fn to_text(&self) -> String {
        let mut lines = Lines::default();
        match self {
            Report::Chat(report) => {
                lines.load(&report.load);
                lines.stage("end to end", &report.chat);
                lines.latency("send to sent", &report.send_to_sent);
                lines.latency("send to receive", &report.send_to_receive);
                lines.latency("send to tick", &report.send_to_tick);
                lines.memory(report.memory.as_ref());
                lines.rate_limited(report.rate_limited);
                lines.verdict(
                    &report.violations,
                    "every message came once, in order, and got its second tick",
                );
            }
            Report::Offline(report) => {
                lines.load(&report.load);
                lines.stage("stored", &report.store);
                lines.latency("send to sent", &report.send_to_sent);
                lines.stage("drained", &report.drain);
                lines.memory(report.memory.as_ref());
                lines.rate_limited(report.rate_limited);
                lines.verdict(
                    &report.violations,
                    "every message came once, in order, and got its second tick",
                );
            }
            Report::Idle(report) => {
                let IdleReport { connections, seconds_to_open, .. } = report;
                lines.add(
                    "load",
                    &format!("{connections} idle connections, opened in {seconds_to_open:.1} s"),
                );
                if let Some(bytes) = report.rss_bytes_per_connection {
                    lines.add("each takes", &format!("{bytes} bytes of the server's memory"));
                }
                lines.memory(report.memory.as_ref());
                lines.verdict(&report.violations, "every connection lasted");
            }
        }
        lines.0
    }
}

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, name: &str, text: &str) {
        self.0.push_str(&format!("{name:<16}  {text}\n"));
    }

    fn load(&mut self, load: &Load) {
        let Load { pairs, messages_per_sender, in_flight, body_bytes } = load;
        self.add(
            "load",
            &format!(
                "{pairs} pairs, {messages_per_sender} messages each, {in_flight} in flight, bodies of {body_bytes} bytes"
            ),
        );
    }

    fn stage(&mut self, name: &str, stage: &Stage) {
        let Stage { messages, seconds, messages_per_second, .. } = stage;
        let mut text = format!("{messages_per_second:.0} messages/s ({messages} in {seconds:.2} s)");
        if let Some(micros) = stage.server_cpu_micros_per_message {
            text.push_str(&format!(", {micros:.1} µs of the server's cpu each"));
        }
        self.add(name, &text);
    }

    fn latency(&mut self, name: &str, latency: &LatencySummary) {
        let LatencySummary { p50_ms, p99_ms, max_ms } = latency;
        self.add(name, &format!("p50 {p50_ms:.2} ms, p99 {p99_ms:.2} ms, longest {max_ms:.1} ms"));
    }

    fn memory(&mut self, memory: Option<&Memory>) {
        let mib = |bytes: u64| bytes as f64 / (1024.0 * 1024.0);
        let text = match memory {
            Some(memory) => format!(
                "{:.1} MiB before, {:.1} MiB at most, {:.1} MiB after",
                mib(memory.before_bytes),
                mib(memory.peak_bytes),
                mib(memory.after_bytes)
            ),
            None => "not seen; give --pid with the server's process to see it".into(),
        };
        self.add("server memory", &text);
    }

    fn rate_limited(&mut self, count: u64) {
        if count > 0 {
            let advice = "limits.sends_per_second = 0 in the server's configuration takes the limit away";
            self.add(
                "held up",
                &format!("{count} sends came too fast for one user and were sent again ({advice})"),
            );
        }
    }

    fn verdict(&mut self, violations: &[String], kept: &str) {
        match violations {
            [] => self.add("verified", kept),
            _ => violations.iter().take(20).for_each(|violation| self.add("BROKEN", violation)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_of_many_add_up() {
        let mut all = Latency::new();
        for sender in 1..=10u64 {
            let mut one = Latency::new();
            (1..=100).for_each(|n| one.record(n * sender * 1000));
            all.add(&one);
        }
        let LatencySummary { p50_ms, p99_ms, max_ms } = all.summary();
        assert!((150.0..350.0).contains(&p50_ms), "{p50_ms}");
        assert!((700.0..1000.0).contains(&p99_ms), "{p99_ms}");
        assert!((max_ms / 1000.0 - 1.0).abs() < 0.02, "{max_ms}");
    }

    #[test]
    fn what_was_broken_is_said_and_fails_the_run() {
        let report = Report::Idle(IdleReport {
            connections: 2,
            seconds_to_open: 0.1,
            rss_bytes_per_connection: None,
            memory: None,
            violations: vec!["1 of 2 idle connections did not last".into()],
        });
        assert_eq!(report.violations().len(), 1);
        assert!(report.to_text().contains("BROKEN"), "{}", report.to_text());
    }
}
