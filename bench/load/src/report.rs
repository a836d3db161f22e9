//! What a run found, for programs. For people it is in `text.rs` and `plot.rs`.

use serde::Serialize;

use super::{
    meter::{LatencySummary, Second},
    plan::{Pace, Plan},
    sender::Sender,
    stage::Stage,
};

#[derive(Debug, Default, Serialize)]
pub struct Load {
    pub pairs: u32,
    /// Of each sender, if there is a limit.
    pub messages_per_sender: Option<u32>,
    /// Of each sender; null where messages have their moments.
    pub in_flight: Option<u32>,
    /// Of all senders.
    pub messages_per_second: Option<u32>,
    pub duration_seconds: u32,
    pub body_bytes: u32,
    /// "each" message, or the "last" of those that came together; null if nobody is there to ack.
    pub acks: Option<&'static str>,
}

/// The server's memory.
#[derive(Debug, Serialize)]
pub struct Memory {
    pub before_bytes: u64,
    pub peak_bytes: u64,
    pub after_bytes: u64,
}

/// How well the moments of the messages were met. Latencies count from those moments, whatever is said here.
#[derive(Debug, Serialize)]
pub struct OpenLoop {
    /// How much later than at their moments messages left.
    pub left_late: LatencySummary,
    /// Messages that left late because too many of their sender were unanswered.
    pub held_back: u64,
    /// Messages that had their moment and had not left when as much time again was over.
    pub unsent: u64,
}

impl OpenLoop {
    pub fn of(plan: &Plan, senders: &[Sender]) -> Option<OpenLoop> {
        matches!(plan.pace, Pace::At(_)).then(|| OpenLoop {
            left_late: plan.meters.left.summary(),
            held_back: senders.iter().map(|s| s.books.held_back).sum(),
            unsent: senders.iter().map(|s| s.books.unsent()).sum(),
        })
    }
}

#[derive(Debug, Serialize)]
pub struct ChatReport {
    pub load: Load,
    pub chat: Stage,
    pub send_to_sent: LatencySummary,
    pub send_to_receive: LatencySummary,
    pub send_to_tick: LatencySummary,
    pub open_loop: Option<OpenLoop>,
    pub memory: Option<Memory>,
    /// Sends that the server put off because their sender was too fast; they were sent again.
    pub rate_limited: u64,
    pub violations: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
pub struct OfflineReport {
    pub load: Load,
    pub store: Option<Stage>,
    pub send_to_sent: Option<LatencySummary>,
    pub open_loop: Option<OpenLoop>,
    pub drain: Option<Stage>,
    /// From a user's coming back to each message.
    pub return_to_receive: Option<LatencySummary>,
    /// From a user's coming back to having everything.
    pub return_to_caught_up: Option<LatencySummary>,
    pub memory: Option<Memory>,
    pub rate_limited: u64,
    pub violations: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct IdleReport {
    pub connections: u32,
    pub seconds_to_open: f64,
    pub rss_bytes_per_connection: Option<u64>,
    pub server_cpu_micros_per_login: Option<f64>,
    pub memory: Option<Memory>,
    pub violations: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct InboxReport {
    pub conversations: u32,
    /// Those of them that were not there before.
    pub conversations_made: u32,
    pub rows_per_page: u32,
    pub inbox: PageStage,
    pub page: LatencySummary,
    pub memory: Option<Memory>,
    pub violations: Vec<String>,
}

/// A stage whose messages are pages.
#[derive(Debug, Serialize)]
pub struct PageStage {
    pub pages: u64,
    pub seconds: f64,
    pub pages_per_second: f64,
    pub server_cpu_micros_per_page: Option<f64>,
    pub generator_cpu_micros_per_page: Option<f64>,
    pub per_second: Vec<Second>,
}

impl PageStage {
    pub fn of(stage: Stage) -> PageStage {
        PageStage {
            pages: stage.messages,
            seconds: stage.seconds,
            pages_per_second: stage.messages_per_second,
            server_cpu_micros_per_page: stage.server_cpu_micros_per_message,
            generator_cpu_micros_per_page: stage.generator_cpu_micros_per_message,
            per_second: stage.per_second,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum Report {
    Chat(ChatReport),
    Offline(OfflineReport),
    Idle(IdleReport),
    Inbox(InboxReport),
}

impl Report {
    /// What the server did that it must not do.
    pub fn violations(&self) -> &[String] {
        match self {
            Report::Chat(report) => &report.violations,
            Report::Offline(report) => &report.violations,
            Report::Idle(report) => &report.violations,
            Report::Inbox(report) => &report.violations,
        }
    }

    pub fn to_json(&self) -> String {
        // Numbers and text under fixed names: writing them cannot fail.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}
