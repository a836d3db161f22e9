//! `bluetick bench`: load on a running server, and what it made of it. It verifies what it measures: a figure counts
//! only if every message came once, in order, and got its tick.

mod connect;
mod idle;
mod pair;
mod pairs;
mod process;
mod report;

use bluetick_protocol::limits;
use clap::Args;

use super::{
    Failure, Outcome, output,
    target::{Place, Target},
};
use connect::Server;
use process::Process;
use report::Report;

/// Without `--idle` or `--offline`: pairs of users chat, one of each pair writing, the other acking.
#[derive(Debug, Clone, Args)]
pub struct BenchOptions {
    /// Pairs of users
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pairs: u32,
    /// Messages that each sender sends
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    messages: u32,
    /// Sends of one sender that wait for their answer at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    in_flight: u32,
    /// Length of a message's body
    #[arg(long, value_name = "BYTES", default_value_t = 200, value_parser = clap::value_parser!(u32).range(40..=limits::BODY_DEFAULT_MAX_BYTES as i64))]
    body_bytes: u32,
    /// Stop sending after so many seconds
    #[arg(long, value_name = "SECS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    duration: u32,
    /// Only open so many connections, and see what memory each takes
    #[arg(long, value_name = "N", conflicts_with = "offline", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    idle: Option<u32>,
    /// Send to users who are away, then let them come back
    #[arg(long)]
    offline: bool,
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

pub async fn run(options: BenchOptions) -> Outcome {
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
    let connections = options.idle.unwrap_or(2 * options.pairs);
    connect::make_room_for(connections as usize)?;
    let server = Server::new(place);
    let report = match (options.idle, options.offline) {
        (Some(connections), _) => Report::Idle(idle::run(&server, connections, process).await?),
        (None, false) => Report::Chat(pairs::chat(&server, &options, process).await?),
        (None, true) => Report::Offline(pairs::offline(&server, &options, process).await?),
    };
    output::print(&if options.json { report.to_json() } else { report.to_text() })?;
    match report.violations() {
        [] => Ok(()),
        [first, ..] => Err(Failure::Failed(format!("the server broke a promise: {first}"))),
    }
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
async fn find_process(place: &Place, named: Option<u32>) -> Outcome<Option<Process>> {
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
