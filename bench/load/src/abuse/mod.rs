//! `bluetick bench --abuse`: attacks that one ordinary user can make, against a running server.
//!
//! Each attack is bounded in number and time. While it runs, another user (`bystander.rs`) sends messages and the server's
//! memory is watched. An attack knows the protocol and nothing of the server: it measures what comes over the wire and what
//! `/proc` says, and compares that with the bound that the server promises. `table.rs` prints one row an attack.

mod bystander;
mod flood;
mod people;
mod table;
mod unread;
mod uploads;

use std::{sync::Arc, time::Duration};

use super::{
    connect::{self, Server},
    process::{MemoryWatch, Process},
};
use crate::Outcome;
use bystander::Bystander;
use people::Stage;
pub use table::Table;
use table::{Row, Verdict};

/// How large the attacks are.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// How long a flood lasts, and how long answers stay unread.
    pub seconds: u64,
    /// Connections that read nothing, and history requests on each.
    pub unread_connections: usize,
    pub unread_requests: usize,
    pub unread_responses: usize,
    pub slow_uploads: usize,
    /// How long slow uploads may last before they count as not ended.
    pub slow_uploads_end_within: Duration,
    pub typing_frames: usize,
    pub presence_watchers: usize,
    pub http_connections: usize,
}

impl Sizes {
    /// As in the measurements that the bounds were set after.
    pub const FULL: Sizes = Sizes {
        seconds: 5,
        unread_connections: 24,
        unread_requests: 64,
        unread_responses: 100,
        slow_uploads: 43,
        slow_uploads_end_within: Duration::from_secs(60),
        typing_frames: 16_500,
        presence_watchers: 100,
        http_connections: 64,
    };
    pub const QUICK: Sizes = Sizes {
        seconds: 1,
        unread_connections: 4,
        unread_requests: 8,
        unread_responses: 8,
        slow_uploads: 6,
        slow_uploads_end_within: Duration::from_secs(8),
        typing_frames: 500,
        presence_watchers: 5,
        http_connections: 8,
    };
}

/// What an attack did, apart from what it took of memory and of another user's time.
pub struct Effect {
    /// In words.
    pub seen: String,
    pub bound: Bound,
}

/// What an attack must not exceed.
pub enum Bound {
    /// The growth of the server's memory.
    Memory { most_bytes: u64 },
    /// The delay of another user's sends, at the 99th percentile.
    Delay { most_ms: f64 },
    /// Something that the attack measured itself.
    Own { text: String, kept: bool },
    /// The server does not offer what is attacked.
    NotOffered,
}

struct Attack {
    name: &'static str,
    /// What was measured before there were bounds.
    before: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    UnreadHistory,
    UnreadResponses,
    UploadQuota,
    SlowUploads,
    SendBytes,
    Typing,
    Presence,
    Profile,
    HttpConnections,
}

const ATTACKS: [Attack; 9] = [
    Attack {
        name: "history answers that are never read",
        before: "3,149 MiB for 24 connections",
        kind: Kind::UnreadHistory,
    },
    Attack {
        name: "HTTP responses that are never read",
        before: "363 MiB for 100",
        kind: Kind::UnreadResponses,
    },
    Attack { name: "uploads without end", before: "until sends stop", kind: Kind::UploadQuota },
    Attack {
        name: "uploads of a byte now and then",
        before: "nobody uploads for hours",
        kind: Kind::SlowUploads,
    },
    Attack { name: "long messages at the limit of sends", before: "200/s of 20 KiB", kind: Kind::SendBytes },
    Attack { name: "typing", before: "16,500 frames in 5 s to each session", kind: Kind::Typing },
    Attack { name: "coming and going", before: "79,000 frames in 5 s to 100 watchers", kind: Kind::Presence },
    Attack { name: "profile changes", before: "17,610 in 5 s", kind: Kind::Profile },
    Attack { name: "requests on many connections", before: "464 ms", kind: Kind::HttpConnections },
];

impl Kind {
    async fn run(self, stage: &Stage) -> Result<Effect, String> {
        match self {
            Kind::UnreadHistory => unread::history(stage).await,
            Kind::UnreadResponses => unread::responses(stage).await,
            Kind::UploadQuota => uploads::quota(stage).await,
            Kind::SlowUploads => uploads::slow(stage).await,
            Kind::SendBytes => flood::send_bytes(stage).await,
            Kind::Typing => flood::typing(stage).await,
            Kind::Presence => flood::presence(stage).await,
            Kind::Profile => flood::profile(stage).await,
            Kind::HttpConnections => flood::http_connections(stage).await,
        }
    }
}

pub async fn run(server: &Arc<Server>, sizes: Sizes, process: Option<Process>) -> Outcome<Table> {
    let most_connections = sizes.presence_watchers + sizes.unread_responses + sizes.http_connections;
    connect::make_room_for(most_connections)?;
    // Users of their own in every run: what an earlier one used up is not missing here.
    let run = crate::target::now_ms();
    let mut rows = Vec::with_capacity(ATTACKS.len());
    let mut idle_ms = None;
    for (number, attack) in ATTACKS.iter().enumerate() {
        eprintln!("{} of {}: {}", number + 1, ATTACKS.len(), attack.name);
        let stage = Stage::new(server.clone(), sizes, format!("abuse-{run:x}-{number}"))?;
        let bystander = Bystander::start(&stage).await?;
        if idle_ms.is_none() {
            tokio::time::sleep(Duration::from_secs(1)).await;
            idle_ms = Some(bystander.delay().p99_ms);
        }
        bystander.reset();
        let memory = MemoryWatch::start(process);
        let effect = attack.kind.run(&stage).await.map_err(|why| format!("{}: {why}", attack.name))?;
        let memory = memory.stop(Duration::ZERO).await;
        let delay = bystander.stop().await;
        let growth = memory.map(|memory| memory.peak_bytes.saturating_sub(memory.before_bytes));
        rows.push(Row {
            attack: attack.name,
            before: attack.before,
            verdict: Verdict::of(&effect.bound, growth, delay.p99_ms),
            bound: effect.bound.to_string(),
            seen: effect.seen,
            memory_growth_bytes: growth,
            other_send_p99_ms: delay.p99_ms,
            other_sends_failed: delay.failed,
        });
    }
    Ok(Table { idle_send_p99_ms: idle_ms.unwrap_or_default(), rows })
}
