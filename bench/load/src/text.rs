//! What a run found, for people.

use super::{
    meter::LatencySummary,
    report::{IdleReport, InboxReport, Load, Memory, OfflineReport, OpenLoop, Report},
    stage::Stage,
};

/// Violations that are shown; one is enough to fail.
const SHOWN: usize = 20;
const KEPT: &str = "every message came once, in order, and got its second tick";

impl Report {
    /// What the load was, in a line.
    pub fn load_line(&self) -> String {
        match self {
            Report::Chat(report) => load_line(&report.load),
            Report::Offline(report) => load_line(&report.load),
            Report::Idle(IdleReport { connections, seconds_to_open, .. }) => {
                format!("{connections} idle connections, opened in {seconds_to_open:.1} s")
            }
            Report::Inbox(InboxReport { conversations, conversations_made, rows_per_page, .. }) => {
                format!(
                    "pages of {rows_per_page} among {conversations} conversations ({conversations_made} made first)"
                )
            }
        }
    }

    pub fn to_text(&self) -> String {
        let mut lines = Lines::default();
        lines.add("load", &self.load_line());
        match self {
            Report::Chat(report) => {
                lines.stage("end to end", &report.chat);
                lines.latencies(&[
                    ("send to sent", &report.send_to_sent),
                    ("send to receive", &report.send_to_receive),
                    ("send to tick", &report.send_to_tick),
                ]);
                lines.open_loop(report.open_loop.as_ref());
                lines.memory(report.memory.as_ref());
                lines.rate_limited(report.rate_limited);
                lines.verdict(&report.violations, KEPT);
            }
            Report::Offline(report) => lines.offline(report),
            Report::Idle(report) => lines.idle(report),
            Report::Inbox(report) => lines.inbox(report),
        }
        lines.0
    }
}

fn load_line(load: &Load) -> String {
    let Load { pairs, body_bytes, acks, duration_seconds, .. } = load;
    let pace = match (load.messages_per_second, load.in_flight) {
        (Some(rate), _) => format!("{rate} messages/s in all"),
        (None, Some(in_flight)) => format!("{in_flight} in flight"),
        (None, None) => return format!("{pairs} receivers who take what was left for them"),
    };
    let messages = match load.messages_per_sender {
        Some(messages) => format!("{messages} messages each"),
        None => format!("{duration_seconds} s"),
    };
    let acks = match acks {
        Some("last") => ", of messages that come together the last is acked",
        Some(_) => ", every message is acked",
        None => "",
    };
    format!("{pairs} pairs, {messages}, {pace}, bodies of {body_bytes} bytes{acks}")
}

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, name: &str, text: &str) {
        self.0.push_str(&format!("{name:<20}  {text}\n"));
    }

    fn offline(&mut self, report: &OfflineReport) {
        if report.store.is_none() && report.drain.as_ref().is_some_and(|drain| drain.messages == 0) {
            let why = "nothing was waiting: leave something first, with --offline and as many --pairs";
            return self.add("drained", why);
        }
        if let Some(store) = &report.store {
            self.stage("stored", store);
        }
        if let Some(sent) = &report.send_to_sent {
            self.latencies(&[("send to sent", sent)]);
        }
        self.open_loop(report.open_loop.as_ref());
        if let Some(drain) = &report.drain {
            self.stage("drained", drain);
        }
        if let (Some(received), Some(caught_up)) = (&report.return_to_receive, &report.return_to_caught_up) {
            self.latencies(&[("return to receive", received), ("return to caught up", caught_up)]);
        }
        self.memory(report.memory.as_ref());
        self.rate_limited(report.rate_limited);
        let kept = match (&report.store, &report.drain) {
            (Some(_), None) => "every message was stored once and in order, and none was ticked",
            (None, _) => {
                "what had been left came in order and without gaps, and the server knows it delivered"
            }
            _ => KEPT,
        };
        self.verdict(&report.violations, kept);
    }

    fn idle(&mut self, report: &IdleReport) {
        match report.rss_bytes_per_connection {
            Some(0) => self.add("each takes", "what the server had already; ask one that was just started"),
            Some(bytes) => self.add("each takes", &format!("{bytes} bytes of the server's memory")),
            None => {}
        }
        if let Some(micros) = report.server_cpu_micros_per_login {
            self.add("server cpu", &format!("{micros:.0} µs to connect and log in"));
        }
        self.memory(report.memory.as_ref());
        self.verdict(&report.violations, "every connection lasted");
    }

    fn inbox(&mut self, report: &InboxReport) {
        let inbox = &report.inbox;
        let (rate, pages, seconds) = (inbox.pages_per_second, inbox.pages, inbox.seconds);
        self.add("one at a time", &format!("{rate:.0} pages/s ({pages} in {seconds:.2} s)"));
        if let Some(micros) = inbox.server_cpu_micros_per_page {
            self.add("server cpu", &format!("{micros:.1} µs a page"));
        }
        self.latencies(&[("page", &report.page)]);
        self.memory(report.memory.as_ref());
        self.verdict(&report.violations, "every page was whole, and in the inbox's order");
    }

    fn stage(&mut self, name: &str, stage: &Stage) {
        let Stage { messages, seconds, messages_per_second, .. } = stage;
        self.add(name, &format!("{messages_per_second:.0} messages/s ({messages} in {seconds:.2} s)"));
        if let (Some(micros), Some(per_second)) =
            (stage.server_cpu_micros_per_message, stage.messages_per_server_cpu_second)
        {
            self.add(
                "server cpu",
                &format!("{micros:.1} µs a message, {per_second:.0} messages per cpu-second"),
            );
        }
        if let (true, Some(micros), Some(busy)) =
            (stage.generator_is_the_limit(), stage.generator_cpu_micros_per_message, stage.generator_busy)
        {
            let percent = busy * 100.0;
            self.add(
                "NOTE",
                &format!(
                    "the load generator may be the limit: it was busy for {percent:.0} % of the time, {micros:.1} µs a message"
                ),
            );
        }
    }

    fn latencies(&mut self, latencies: &[(&str, &LatencySummary)]) {
        let head = ["p50", "p90", "p99", "p99.9", "longest"].map(|name| format!("{name:>9}")).join("");
        self.add("latency (ms)", &head);
        for (name, latency) in latencies {
            self.latency(name, latency);
        }
    }

    fn open_loop(&mut self, open_loop: Option<&OpenLoop>) {
        let Some(OpenLoop { left_late, held_back, unsent }) = open_loop else {
            return;
        };
        self.latency("left late", left_late);
        if *held_back + *unsent > 0 {
            self.add(
                "NOTE",
                &format!(
                    "this fell behind its rate: {held_back} messages waited for answers to those before them, {unsent} were never sent"
                ),
            );
        }
    }

    fn latency(&mut self, name: &str, latency: &LatencySummary) {
        let LatencySummary { p50_ms, p90_ms, p99_ms, p999_ms, max_ms, .. } = latency;
        let row = [p50_ms, p90_ms, p99_ms, p999_ms, max_ms].map(|ms| format!("{ms:>9.2}")).join("");
        self.add(&format!("  {name}"), &row);
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
                "NOTE",
                &format!("{count} sends came too fast for one user and were sent again ({advice})"),
            );
        }
    }

    fn verdict(&mut self, violations: &[String], kept: &str) {
        for violation in violations.iter().take(SHOWN) {
            self.add("BROKEN", violation);
        }
        match violations.len() {
            0 => self.add("verified", kept),
            shown if shown <= SHOWN => {}
            more => self.add("BROKEN", &format!("and {} more", more - SHOWN)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_broken_is_said_and_fails_the_run() {
        let report = Report::Idle(IdleReport {
            connections: 2,
            seconds_to_open: 0.1,
            rss_bytes_per_connection: None,
            server_cpu_micros_per_login: None,
            memory: None,
            violations: vec!["1 of 2 idle connections did not last".into()],
        });
        assert_eq!(report.violations().len(), 1);
        assert!(report.to_text().contains("BROKEN"), "{}", report.to_text());
    }
}
