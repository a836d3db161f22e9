//! The load generator against a real server, with small numbers: every mode runs, verifies and reports.

use bluetick_bench::{BenchCommand, Failure};
use clap::Parser;
use serde_json::Value;

use crate::harness::*;

const NO_LIMIT: (&str, &str) = ("BLUETICK_LIMITS__SENDS_PER_SECOND", "0");
const NO_REQUEST_LIMIT: (&str, &str) = ("BLUETICK_LIMITS__REQUEST_UNITS_PER_SECOND", "0");

/// What `bluetick bench` prints, its error if there is one, and its exit code.
struct Run {
    text: String,
    error: String,
    code: u8,
}

fn run(server: &Server, args: &[&str]) -> Run {
    let data = server.data();
    let all = ["bluetick bench"].iter().chain(args).copied().chain(["--data", data.to_str().unwrap()]);
    let command = match BenchCommand::try_parse_from(all) {
        Ok(command) => command,
        Err(e) => return Run { text: String::new(), error: e.to_string(), code: 2 },
    };
    let (text, failure) = tokio::runtime::Runtime::new().unwrap().block_on(command.run());
    let (error, code) = match failure {
        None => (String::new(), 0),
        Some(Failure::Failed(why)) => (why, 1),
        Some(Failure::Usage(why)) => (why, 2),
    };
    Run { text, error, code }
}

fn bench(server: &Server, args: &str) -> Value {
    let all: Vec<&str> = ["--json"].into_iter().chain(args.split(' ')).collect();
    let Run { text, error, code } = run(server, &all);
    assert_eq!(code, 0, "{args}: {error}");
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["violations"], serde_json::json!([]), "{report:#}");
    report
}

/// Every percentile is there. That they grow is the histogram's business.
fn assert_latency(report: &Value, name: &str) {
    for field in ["p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms"] {
        assert!(report[name][field].as_f64().is_some_and(|ms| ms > 0.0), "{name}.{field}: {report:#}");
    }
}

fn counted(stage: &Value) -> u64 {
    stage["per_second"].as_array().unwrap().iter().map(|second| second["count"].as_u64().unwrap()).sum()
}

#[test]
fn pairs_chat() {
    let server = Server::with(&[NO_LIMIT, NO_REQUEST_LIMIT]);
    for args in ["--pairs 3 --messages 40", "--pairs 3 --messages 40 --in-flight 40 --ack-last"] {
        let report = bench(&server, args);
        assert_eq!(report["mode"], "chat");
        assert_eq!(report["chat"]["messages"], 120);
        assert_eq!(counted(&report["chat"]), 120);
        for name in ["send_to_sent", "send_to_receive", "send_to_tick"] {
            assert_latency(&report, name);
        }
        if cfg!(target_os = "linux") {
            assert!(report["chat"]["server_cpu_micros_per_message"].is_number(), "{report:#}");
            assert!(report["chat"]["generator_cpu_micros_per_message"].is_number(), "{report:#}");
            assert!(report["memory"]["peak_bytes"].as_u64().unwrap() > 0, "{report:#}");
        }
    }
}

#[test]
fn each_message_has_its_moment_and_the_plot_shows_it() {
    let server = Server::with(&[NO_LIMIT, NO_REQUEST_LIMIT]);
    let plot = server.dir.path().join("plot.svg");
    let report = bench(&server, &format!("--pairs 4 --rate 200 --duration 1 --plot {}", plot.display()));
    assert_eq!(report["chat"]["messages"], 200);
    assert_eq!(report["load"]["messages_per_second"], 200);
    assert_eq!(report["open_loop"]["unsent"], 0);
    assert!(std::fs::read_to_string(plot).unwrap().contains("send to tick"));
    let page = server.dir.path().join("plot.html");
    let said = run(&server, &["--pairs", "1", "--messages", "5", "--plot", page.to_str().unwrap()]).text;
    assert!(said.contains("every message is acked"), "{said}");
    assert!(
        said.lines().last().is_some_and(|line| line.starts_with("plot ") && line.ends_with("plot.html")),
        "{said}"
    );
    assert!(std::fs::read_to_string(page).unwrap().contains("<svg "));
}

#[test]
fn messages_are_stored_and_drained_together_or_apart() {
    let server = Server::with(&[NO_LIMIT, NO_REQUEST_LIMIT]);
    let both = bench(&server, "--offline --drain --pairs 3 --messages 30");
    assert_eq!((&both["store"]["messages"], &both["drain"]["messages"]), (&90.into(), &90.into()));
    assert_latency(&both, "send_to_sent");
    assert_latency(&both, "return_to_caught_up");

    for _ in 0..2 {
        let stored = bench(&server, "--offline --pairs 3 --messages 300");
        assert_eq!(stored["store"]["messages"], 900);
        assert_eq!(stored["drain"], Value::Null);
    }
    assert_eq!(server.pending("bench-1").len(), 1);
    let drained = bench(&server, "--drain --pairs 3");
    assert_eq!(drained["store"], Value::Null);
    assert_eq!(drained["drain"]["messages"], 1800);
    assert_eq!(counted(&drained["drain"]), 1800);
    assert_eq!(bench(&server, "--drain --pairs 3")["drain"]["messages"], 0, "nothing is left");
}

#[test]
fn connections_that_stay_and_pages_of_an_inbox() {
    let server = Server::with(&[NO_LIMIT, NO_REQUEST_LIMIT]);
    let idle = bench(&server, "--idle 10 --rest 0");
    assert_eq!((&idle["mode"], &idle["connections"]), (&"idle".into(), &10.into()));
    if cfg!(target_os = "linux") {
        assert!(idle["rss_bytes_per_connection"].is_number(), "{idle:#}");
    }
    for made in [50, 0] {
        let pages = bench(&server, "--inbox 50 --duration 1");
        assert_eq!((&pages["mode"], &pages["conversations_made"]), (&"inbox".into(), &made.into()));
        assert!(pages["inbox"]["pages"].as_u64().unwrap() > 0);
        assert_latency(&pages, "page");
    }
}

#[test]
fn attacks_are_run_and_one_table_tells_what_they_took() {
    let server = Server::with(&[("BLUETICK_ATTACHMENTS__UPLOAD_RATE_WINDOW_SECS", "2")]);
    let Run { text: table, error: errors, code } = run(&server, &["--abuse", "--quick"]);
    let header = table.lines().next().unwrap_or_default();
    for column in
        ["attack", "before there was a bound", "now", "memory", "another's send", "bound", "verdict"]
    {
        assert!(header.contains(column), "{column}: {table}{errors}");
    }
    for (attack, seen, verdict) in [
        ("history answers that are never read", "4 connections, 8 requests each", ""),
        ("HTTP responses that are never read", "taken", ""),
        ("uploads without end", "1024 MiB announced, then quota_exceeded", "within the bound"),
        ("uploads of a byte now and then", "4 upload_too_slow", "within the bound"),
        ("long messages at the limit of sends", "KiB/s", ""),
        ("typing", "came to each session", ""),
        ("coming and going", "to one watcher of 5", ""),
        ("profile changes", "taken", ""),
        ("requests on many connections", "8 connections: ", ""),
    ] {
        let row = table.lines().find(|line| line.starts_with(attack));
        let row = row.unwrap_or_else(|| panic!("no row for {attack}: {table}{errors}"));
        assert!(row.contains(seen) && row.ends_with(verdict), "{row}");
    }
    let over = table.lines().filter(|line| line.ends_with("OVER THE BOUND")).count();
    assert_eq!(code, u8::from(over > 0), "{table}{errors}");
}

#[test]
fn a_limit_on_sends_is_waited_for_and_said() {
    let server =
        Server::with(&[("BLUETICK_LIMITS__SENDS_PER_SECOND", "100"), ("BLUETICK_LIMITS__SEND_BURST", "10")]);
    let Run { text, code, .. } = run(&server, &["--pairs", "1", "--messages", "40", "--in-flight", "20"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("limits.sends_per_second = 0") && text.contains("verified"), "{text}");
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let server = Server::start();
    for (args, names) in [
        ("--rate 5 --in-flight 2", ["--rate", "--in-flight"]),
        ("--idle 5 --offline", ["--idle", "--offline"]),
        ("--idle 5 --plot x.svg", ["--idle", "--plot"]),
        ("--inbox 50 --pairs 2", ["--inbox", "--pairs"]),
        ("--drain --rate 5", ["--drain", "--rate"]),
        ("--drain --messages 5", ["--drain", "--messages"]),
        ("--offline --ack-last", ["--offline", "--ack-last"]),
        ("--plot x.png", ["--plot", ".svg"]),
        ("--abuse --idle 5", ["--abuse", "--idle"]),
        ("--quick", ["--quick", "--abuse"]),
    ] {
        let all: Vec<&str> = args.split(' ').collect();
        let Run { error, code, .. } = run(&server, &all);
        assert_eq!(code, 2, "{args}: {error}");
        assert!(names.iter().all(|name| error.contains(name)), "{args}: {error}");
    }
}

#[test]
fn without_the_load_generator_the_command_says_how_to_build_it() {
    let directory = tempfile::tempdir().unwrap();
    // A copy has nothing beside it.
    let alone = directory.path().join("bluetick");
    std::fs::copy(binary(), &alone).unwrap();
    let mut command = std::process::Command::new(alone);
    let output = command.args(["bench", "--pairs", "2"]).env("PATH", directory.path()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("cargo build --release -p bluetick-bench"), "{error}");
}
