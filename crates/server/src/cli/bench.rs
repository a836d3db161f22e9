//! `bluetick bench`: load on a running server, and what it made of it. It verifies what it measures: a figure counts
//! only if every message came once, in order, and got its tick.

mod abuse;
mod axis;
mod chat;
mod connect;
mod frames;
mod idle;
mod inbox;
mod incoming;
mod meter;
mod offline;
mod outgoing;
mod patience;
mod plan;
mod plot;
mod process;
mod receiver;
mod report;
mod schedule;
mod sender;
mod stage;
mod text;
mod warm;

use std::{
    ffi::OsStr,
    fs::File,
    io::Write,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use bluetick_protocol::limits;
use bluetick_store::{Clock, SystemClock};
use clap::Args;

use super::{
    Failure, Outcome, output,
    target::{ResolvedTarget, Target},
};
use connect::Server;
use plan::{Acks, Meters, Pace, Plan};
use process::Process;
use report::{Load, Report};
use schedule::Schedule;

const MESSAGES: u32 = 1000;
const IN_FLIGHT: u32 = 8;
const SECONDS: u32 = 60;
const SECONDS_OF_PAGES: u32 = 10;
/// After this long a server that had connections has given back what it can.
const REST_AFTER_IDLE: u32 = 10;

/// Without `--offline`, `--drain`, `--idle` or `--inbox`: pairs of users chat, one of each pair writing, the other
/// acking.
#[derive(Debug, Clone, Args)]
pub struct BenchOptions {
    /// Pairs of users
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pairs: u32,
    /// Messages that each sender sends [default: 1000, or as many as go into --duration where that is given]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    messages: Option<u32>,
    /// Sends of one sender that wait for their answer at a time [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    in_flight: Option<u32>,
    /// Messages a second of all pairs together, each at its own moment, however slow the server; latencies count from
    /// that moment
    #[arg(long, value_name = "N", conflicts_with = "in_flight", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    rate: Option<u32>,
    /// Length of a message's body
    #[arg(long, value_name = "BYTES", default_value_t = 200, value_parser = clap::value_parser!(u32).range(40..=limits::BODY_DEFAULT_MAX_BYTES as i64))]
    body_bytes: u32,
    /// Stop sending after so many seconds [default: 60], or asking for pages [default: 10]
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    duration: Option<u32>,
    /// Ack only the newest of the messages that came together, not each
    #[arg(long, conflicts_with_all = ["offline", "drain"])]
    ack_last: bool,
    /// Send to users who are away
    #[arg(long)]
    offline: bool,
    /// Let the users who were away come back and take what was sent to them, in this run or before
    #[arg(long)]
    drain: bool,
    /// Only open so many connections, and see what memory each takes
    #[arg(long, value_name = "N", conflicts_with_all = ["pairs", "messages", "in_flight", "rate", "body_bytes", "duration", "ack_last", "offline", "drain", "inbox", "plot"], value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    idle: Option<u32>,
    /// Ask for pages of the inbox of a user with so many conversations, which are made first
    #[arg(long, value_name = "N", conflicts_with_all = ["pairs", "messages", "in_flight", "rate", "body_bytes", "ack_last", "offline", "drain"], value_parser = clap::value_parser!(u32).range(i64::from(inbox::PAGE)..=1_000_000))]
    inbox: Option<u32>,
    /// Run a list of attacks by one ordinary user, bounded in number and time, and print for each what it took from the
    /// server and from another user, beside the bound
    #[arg(long, conflicts_with_all = ["pairs", "messages", "in_flight", "rate", "body_bytes", "duration", "ack_last", "offline", "drain", "idle", "inbox", "plot", "rest"])]
    abuse: bool,
    /// With --abuse: smaller numbers, to try it out
    #[arg(long, requires = "abuse")]
    quick: bool,
    /// Seconds from the end of the load to the last look at the server's memory [default: 0, with --idle 10]
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u32).range(0..=3600))]
    rest: Option<u32>,
    /// Draw the latencies and what each second saw, as .svg or .html
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// The server's process, to see its time and memory; found without it if the server is on this machine
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Load a server that is not on this machine; it makes users bench-0, bench-1, … there
    #[arg(long)]
    yes_i_own_this_server: bool,
    #[command(flatten)]
    target: Target,
}

impl BenchOptions {
    /// What clap cannot find.
    fn check(&self) -> Outcome {
        let extension = self.plot.as_deref().map(|file| file.extension().and_then(OsStr::to_str));
        if !matches!(extension, None | Some(Some("svg" | "html"))) {
            return Err(Failure::Usage("--plot draws .svg and .html: name a file that ends so".into()));
        }
        // Users who come back send nothing.
        let of_senders = [
            ("--messages", self.messages.is_some()),
            ("--in-flight", self.in_flight.is_some()),
            ("--rate", self.rate.is_some()),
            ("--duration", self.duration.is_some()),
        ];
        match of_senders.iter().find(|(_, given)| *given && self.drain && !self.offline) {
            Some((name, _)) => Err(Failure::Usage(format!(
                "{name} is about sending, and with --drain alone nobody sends; add --offline to send first"
            ))),
            None => Ok(()),
        }
    }

    fn seconds(&self) -> u32 {
        self.duration.unwrap_or(SECONDS)
    }

    /// Of each sender, unless only the time counts.
    fn message_limit(&self) -> Option<u32> {
        self.messages.or(self.duration.is_none().then_some(MESSAGES))
    }

    fn plan(&self) -> Plan {
        let in_flight = self.in_flight.unwrap_or(IN_FLIGHT) as usize;
        let at = |rate| Pace::At(Schedule { rate, pairs: self.pairs });
        Plan {
            run: SystemClock.now_ms(),
            epoch: Instant::now(),
            messages: self.message_limit().unwrap_or(u32::MAX),
            pace: self.rate.map_or(Pace::InFlight(in_flight), at),
            body_bytes: self.body_bytes as usize,
            duration: Duration::from_secs(self.seconds().into()),
            acks: if self.ack_last { Acks::Last } else { Acks::Each },
            meters: Meters::default(),
        }
    }

    /// How many messages there will be, or 0 if only the time will tell.
    fn expected(&self) -> u64 {
        match (self.rate, self.message_limit()) {
            (None, None) => 0,
            (None, Some(limit)) => u64::from(limit) * u64::from(self.pairs),
            (Some(_), _) => {
                let plan = self.plan();
                (0..self.pairs).map(|pair| u64::from(plan.messages_of(pair))).sum()
            }
        }
    }

    fn load(&self) -> Load {
        let sends = self.offline || !self.drain;
        let closed = sends && self.rate.is_none();
        Load {
            pairs: self.pairs,
            messages_per_sender: self.message_limit().filter(|_| sends),
            in_flight: closed.then(|| self.in_flight.unwrap_or(IN_FLIGHT)),
            messages_per_second: self.rate,
            duration_seconds: self.seconds(),
            body_bytes: self.body_bytes,
            acks: match (self.offline, self.drain, self.ack_last) {
                (true, false, _) => None,
                (false, false, false) => Some("each"),
                _ => Some("last"),
            },
        }
    }

    fn rest(&self) -> Duration {
        let unsaid = if self.idle.is_some() { REST_AFTER_IDLE } else { 0 };
        Duration::from_secs(self.rest.unwrap_or(unsaid).into())
    }
}

pub async fn run(options: BenchOptions) -> Outcome {
    options.check()?;
    let place = options.target.resolve()?;
    let on_this_machine = is_loopback(&place.url);
    if !on_this_machine && !options.yes_i_own_this_server {
        return Err(Failure::Usage(format!(
            "{} is not on this machine; say --yes-i-own-this-server to put load on it",
            place.url
        )));
    }
    let process = match on_this_machine || options.pid.is_some() {
        true => find_process(&place, options.pid).await?,
        false => None,
    };
    if options.abuse {
        return abuse(place, &options, process).await;
    }
    let connections = options.idle.unwrap_or(2 * options.pairs);
    connect::make_room_for(connections as usize)?;
    // A file that cannot be written is better known before than after.
    let plot = match &options.plot {
        Some(file) => Some(File::create(file).map_err(|e| format!("cannot write {}: {e}", file.display()))?),
        None => None,
    };
    let report = measure(&Server::new(place)?, &options, process).await?;
    output::print(&if options.json { report.to_json() } else { report.to_text() })?;
    if let (Some(name), Some(mut file)) = (&options.plot, plot) {
        let html = name.extension().is_some_and(|extension| extension == "html");
        let picture = report.picture();
        let drawn = if html { picture.to_html(&report.to_text()) } else { picture.to_svg() };
        file.write_all(drawn.as_bytes()).map_err(|e| format!("cannot write {}: {e}", name.display()))?;
        if !options.json {
            output::print(&format!("{:<20}  {}\n", "plot", name.display()))?;
        }
    }
    match report.violations() {
        [] => Ok(()),
        [first, ..] => Err(Failure::Failed(format!("the server broke a promise: {first}"))),
    }
}

async fn abuse(place: ResolvedTarget, options: &BenchOptions, process: Option<Process>) -> Outcome {
    let server = Server::new(place)?;
    let sizes = if options.quick { abuse::Sizes::QUICK } else { abuse::Sizes::FULL };
    let table = abuse::run(&server, sizes, process).await?;
    output::print(&if options.json { table.to_json() } else { table.to_text() })?;
    match table.over() {
        0 => Ok(()),
        over => Err(Failure::Failed(format!("{over} of the attacks took more than their bound"))),
    }
}

async fn measure(
    server: &Arc<Server>,
    options: &BenchOptions,
    process: Option<Process>,
) -> Result<Report, String> {
    let rest = options.rest();
    Ok(if let Some(connections) = options.idle {
        Report::Idle(idle::run(server, connections, rest, process).await?)
    } else if let Some(conversations) = options.inbox {
        let duration = Duration::from_secs(options.duration.unwrap_or(SECONDS_OF_PAGES).into());
        Report::Inbox(inbox::run(server, conversations, duration, rest, process).await?)
    } else if options.offline || options.drain {
        Report::Offline(offline::run(server, options, process).await?)
    } else {
        Report::Chat(chat::run(server, options, process).await?)
    })
}

fn is_loopback(url: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(url) else {
        return false;
    };
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The process behind the server: the one that was named, or the one that the server says it is.
async fn find_process(place: &ResolvedTarget, named: Option<u32>) -> Outcome<Option<Process>> {
    if let Some(pid) = named {
        return match Process::look(pid) {
            Some(process) => Ok(Some(process)),
            None => Err(Failure::Usage(format!("no process {pid} can be looked at"))),
        };
    }
    // Nobody asked for it: without an admin key, or on another system, there are simply fewer lines.
    let Ok(remote) = place.remote() else {
        return Ok(None);
    };
    let Ok(answer) = remote.get("info").await else {
        return Ok(None);
    };
    let info: serde_json::Value = serde_json::from_slice(&answer).unwrap_or_default();
    let pid = info["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    Ok(pid.and_then(Process::look))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_loaded_without_being_told() {
        for near in ["http://127.0.0.1:8080", "https://[::1]:8443", "http://localhost:80", "http://127.9.9.9"]
        {
            assert!(is_loopback(near), "{near}");
        }
        for far in ["http://10.0.0.1:8080", "http://localhost.example", "https://chat.example", "nonsense"] {
            assert!(!is_loopback(far), "{far}");
        }
    }
}
