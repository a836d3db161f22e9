//! What a server writes: text for people, or JSON for programs, and then nothing else; and the figures at the start.

use std::{
    io::Read as _,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{harness::*, http::client};

/// Every line as the JSON object that it must be.
fn objects(text: &str) -> Vec<Value> {
    let object = |line: &str| match serde_json::from_str::<Value>(line) {
        Ok(value) if value.is_object() => value,
        other => panic!("not a JSON object: {line} ({other:?})"),
    };
    text.lines().map(object).collect()
}

#[test]
fn with_json_everything_is_json_and_the_first_line_says_what_started() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(binary());
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(dir.path());
    command.env("BLUETICK_LOG__FORMAT", "json").env("BLUETICK_LOG__FILTER", "info");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let until = std::time::Instant::now() + SOON;
    while !dir.path().join("server.url").exists() {
        assert!(std::time::Instant::now() < until, "it does not start");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let url = std::fs::read_to_string(dir.path().join("server.url")).unwrap();
    let key = std::fs::read_to_string(dir.path().join("demo.key")).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));

    let (said, logged) = (objects(&out), objects(&err));
    let [start] = said.as_slice() else { panic!("one line: {out}") };
    assert_eq!(start["message"], "listening");
    assert_eq!(start["level"], "INFO");
    assert_eq!(start["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(start["address"], url);
    assert_eq!(start["store"], "embedded");
    assert!(start["timestamp"].is_string(), "{start}");
    assert!(logged.iter().any(|line| line["message"] == "stopped"), "{err}");
    assert!(!out.contains(&key) && !err.contains(&key), "the key of the demo is not for the log");
}

#[test]
fn with_json_a_start_that_fails_says_so_in_json() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bluetick.toml");
    let ended = |config: &str, json_by: Option<&str>| {
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new(binary());
        command.args(["serve", "--data"]).arg(dir.path().join("data")).arg("--config").arg(&file);
        if let Some(format) = json_by {
            command.env("BLUETICK_LOG__FORMAT", format);
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("[server]\nlisten = \"{}\"\n[log]\nformat = \"json\"\n", taken.local_addr().unwrap());
    // The configuration is good and the address is not free; a key that does not exist; nonsense, and the environment.
    let wrong = "[log]\nformat = \"json\"\n[server]\nlistn = \"x\"\n";
    for (config, json_by, why) in [
        (taken.as_str(), None, "cannot listen"),
        (wrong, None, "listn"),
        ("nonsense", Some("json"), "bluetick.toml"),
    ] {
        let said = ended(config, json_by);
        let lines = objects(&said);
        let last = lines.last().unwrap();
        assert_eq!(last["level"], "ERROR", "{said}");
        assert!(last["message"].as_str().unwrap().contains(why), "{said}");
    }
    assert!(ended("nonsense", None).starts_with("bluetick: "));
}

#[tokio::test]
async fn every_counter_is_there_before_anything_happened() {
    let server = Server::start();
    let text = client().get(server.http("/metrics")).send().await.unwrap().text().await.unwrap();
    for line in [
        "bluetick_sends_total 0",
        "bluetick_checkpoint_errors_total 0",
        "bluetick_accept_errors_total 0",
        "bluetick_errors_total{code=\"internal\"} 0",
        "bluetick_errors_total{code=\"internal\",via=\"http\"} 0",
        "bluetick_sessions_ended_total{code=\"slow_reader\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    }
    let build = format!("bluetick_build_info{{version=\"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(text.lines().any(|line| line.starts_with(&build) && line.ends_with(" 1")), "{text}");
    let started = text.lines().find_map(|line| line.strip_prefix("process_start_time_seconds ")).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let age = now - started.parse::<f64>().unwrap();
    assert!((0.0..60.0).contains(&age), "{age}");
}
