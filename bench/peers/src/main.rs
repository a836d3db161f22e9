//! The same work on Bluetick, ejabberd and Prosody, one after another on one machine, and what it costs each.
//! `bench/README.md` says how to read what comes out; `bench/peers/run` installs and builds all that it needs.

mod bench;
mod forwarder;
mod fsync;
mod peer;
mod process;
mod report;
mod results;
mod run;
mod stalls;
mod table;
mod targets;
mod xmpp;

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, Parser, Subcommand};
use rustix::{
    fs::statfs,
    process::{Resource, getrlimit, setrlimit},
};

use peer::Peer;
use report::Format;
use run::{Plan, Sizes, say};

#[derive(Debug, Parser)]
#[command(name = "bluetick-peers", about, version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure the servers in turns and print one table
    Run(RunOptions),
    /// Serve as the bare WebSocket forwarder
    Forwarder {
        /// Address and port
        #[arg(long, default_value = "127.0.0.1:8090")]
        listen: SocketAddr,
    },
    /// Measure raw group fsync
    Fsync {
        /// Where the file is made; it is removed again
        #[arg(long, default_value = ".")]
        dir: PathBuf,
        /// How long for each number of writers
        #[arg(long, default_value_t = 3)]
        seconds: u64,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure how long cores stand still that have nothing else to do, for more than 0.3 ms at a time: on an idle machine
    Stalls {
        /// How long to look
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
        seconds: u64,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
struct RunOptions {
    /// The binary of Bluetick
    #[arg(long, value_name = "FILE")]
    bluetick: PathBuf,
    /// Short stages and one round
    #[arg(long)]
    quick: bool,
    /// Short rounds, several of them: servers are measured within a minute of each other, on fresh ones only
    #[arg(long)]
    short: bool,
    /// How often each server is measured [default: 3, or 1 with --quick, or 5 with --short]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Only these servers
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    only: Vec<Peer>,
    /// XMPP messages go to one device of the receiver's and not to the receiver: cheaper for those servers
    #[arg(long)]
    full_addresses: bool,
    /// Messages of each pair that are under way at a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    in_flight: Option<u32>,
    /// Messages that wait for each user who is away; there are as many users as make the usual number of messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    waiting: Option<u32>,
    /// Idle connections of each server
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=50_000), conflicts_with = "short")]
    idle: Option<u32>,
    /// Where the servers keep their data for as long as they run: on the disk that is meant [default: the system's
    /// directory for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print Markdown
    #[arg(long)]
    markdown: bool,
    /// Write everything that was measured to a file, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(options) => compare(options),
        Command::Forwarder { listen } => forward(listen),
        Command::Fsync { dir, seconds, json } => measure_fsync(dir, seconds, json),
        Command::Stalls { seconds, json } => measure_stalls(seconds, json),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            say(&format!("bluetick-peers: {why}"));
            ExitCode::FAILURE
        }
    }
}

fn compare(options: RunOptions) -> Result<(), String> {
    let mut sizes = if options.quick { Sizes::QUICK } else { Sizes::FULL };
    sizes.idle_connections = options.idle.unwrap_or(sizes.idle_connections);
    if options.short {
        sizes = sizes.short();
    }
    sizes.in_flight = options.in_flight.unwrap_or(sizes.in_flight);
    if let Some(waiting) = options.waiting {
        sizes.offline_pairs = (sizes.offline_pairs * sizes.offline_messages / waiting).clamp(1, 10_000);
        sizes.offline_messages = waiting;
    }
    raise_file_limit();
    let plan = Plan {
        sizes,
        rounds: options.rounds.unwrap_or(match (options.quick, options.short) {
            (true, _) => 1,
            (false, true) => 5,
            (false, false) => 3,
        }),
        short: options.short,
        peers: Peer::ALL
            .into_iter()
            .filter(|p| options.only.is_empty() || options.only.contains(p))
            .collect(),
        full_addresses: options.full_addresses,
        // Servers are started elsewhere.
        bluetick: std::fs::canonicalize(&options.bluetick)
            .map_err(|e| format!("--bluetick {}: {e}", options.bluetick.display()))?,
        dir: options.dir.unwrap_or_else(std::env::temp_dir),
    };
    if is_in_memory(&plan.dir) {
        say(&format!("{} is memory, not a disk: nothing is durable there. Give --dir.", plan.dir.display()));
    }
    let found = run::run(&plan)?;
    let format = if options.markdown { Format::Markdown } else { Format::Text };
    print!("{}", found.to_string(format));
    options.json.map_or(Ok(()), |path| found.write_json(&path))
}

fn forward(listen: SocketAddr) -> Result<(), String> {
    raise_file_limit();
    // As Bluetick's own looks at its sockets.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().event_interval(1000).build();
    runtime.map_err(|e| e.to_string())?.block_on(forwarder::serve(listen))
}

fn measure_fsync(dir: PathBuf, seconds: u64, json: bool) -> Result<(), String> {
    let found = fsync::run(&dir, Duration::from_secs(seconds))?;
    if json {
        println!("{}", serde_json::to_string(&found).map_err(|e| e.to_string())?);
        return Ok(());
    }
    print!("{}", report::fsync_table(&found).to_text());
    Ok(())
}

fn measure_stalls(seconds: u64, json: bool) -> Result<(), String> {
    let found = stalls::run(Duration::from_secs(seconds))?;
    if json {
        println!("{}", serde_json::to_string(&found).map_err(|e| e.to_string())?);
        return Ok(());
    }
    print!("{}", report::stalls_table(&found).to_text());
    Ok(())
}

/// As far as it goes; the servers inherit it.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // A server that has too few says so.
    let _ = setrlimit(Resource::Nofile, limit);
}

fn is_in_memory(dir: &std::path::Path) -> bool {
    const TMPFS: i128 = 0x0102_1994;
    statfs(dir).is_ok_and(|found| i128::from(found.f_type) == TMPFS)
}
