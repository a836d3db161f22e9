//! `bluetick bench` against a real server, with small numbers: that every mode runs, verifies and reports.

use serde_json::Value;

use crate::harness::*;

const NO_LIMIT: (&str, &str) = ("BLUETICK_LIMITS__SENDS_PER_SECOND", "0");
const NO_REQUEST_LIMIT: (&str, &str) = ("BLUETICK_LIMITS__REQUEST_UNITS_PER_SECOND", "0");

fn bench(server: &Server, args: &str) -> Value {
    let mut all = vec!["bench", "--json"];
    all.extend(args.split(' '));
    let output = server.run(&all);
    assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["violations"], serde_json::json!([]), "{report:#}");
    report
}

fn assert_latency(report: &Value, name: &str) {
    let values: Vec<f64> = ["p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms"]
        .iter()
        .map(|field| report[name][field].as_f64().unwrap_or_else(|| panic!("{name}.{field}: {report:#}")))
        .collect();
    assert!(values.is_sorted() && values[4] > 0.0, "{name}: {values:?}");
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
    let said = server.run(&["bench", "--pairs", "1", "--messages", "5", "--plot", page.to_str().unwrap()]);
    let said = String::from_utf8(said.stdout).unwrap();
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
    let output = server.run(&["bench", "--abuse", "--quick"]);
    let table = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
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
    assert_eq!(output.status.code(), Some(if over > 0 { 1 } else { 0 }), "{table}{errors}");
}

#[test]
fn a_limit_on_sends_is_waited_for_and_said() {
    let server =
        Server::with(&[("BLUETICK_LIMITS__SENDS_PER_SECOND", "100"), ("BLUETICK_LIMITS__SEND_BURST", "10")]);
    let output = server.run(&["bench", "--pairs", "1", "--messages", "40", "--in-flight", "20"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
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
        let mut all = vec!["bench"];
        all.extend(args.split(' '));
        let output = server.run(&all);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args}: {error}");
        assert!(names.iter().all(|name| error.contains(name)), "{args}: {error}");
    }
}
