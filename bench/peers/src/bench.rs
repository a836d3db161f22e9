//! `bluetick bench` against Bluetick or the forwarder, and its JSON as stages.

use std::{path::Path, process::Command};

use serde_json::Value;

use crate::{
    process::Server,
    results::{LatencySummary, Stage},
};

/// More messages than a sender gets through before the time is over.
const ENDLESS: u32 = 50_000;

pub struct Bench<'a> {
    pub bluetick: &'a Path,
    /// Holds the secret for the tokens.
    pub config: &'a Path,
    pub server: &'a Server,
}

#[derive(Debug, Clone, Copy)]
pub struct Pairs {
    pub pairs: u32,
    pub in_flight: u32,
    pub body_bytes: u32,
}

impl Bench<'_> {
    pub fn online(&self, pairs: Pairs, seconds: u64) -> Result<Stage, String> {
        let (messages, seconds) = (ENDLESS.to_string(), seconds.to_string());
        let found = self.run(pairs, &["--messages", &messages, "--duration", &seconds])?;
        let mut stage = stage(&found, "chat")?;
        stage.to_receive = latency(&found, "send_to_receive");
        stage.to_receipt = latency(&found, "send_to_tick");
        Ok(stage)
    }

    /// Stores for users who are away, then lets them come back.
    pub fn offline(&self, pairs: Pairs, messages: u32) -> Result<(Stage, Stage), String> {
        let mut options = vec!["--offline"];
        if self.knows("--drain")? {
            options.push("--drain");
        }
        let messages = messages.to_string();
        options.extend(["--messages", &messages]);
        let found = self.run(pairs, &options)?;
        let mut drain = stage(&found, "drain")?;
        let store = Stage { complaints: std::mem::take(&mut drain.complaints), ..stage(&found, "store")? };
        Ok((store, drain))
    }

    /// Bytes of the server's memory for each of so many connections.
    pub fn idle(&self, connections: u32) -> Result<u64, String> {
        let found = self.call(&["--idle", &connections.to_string()])?;
        match (complaints(&found).first(), found["rss_bytes_per_connection"].as_u64()) {
            (None, Some(bytes)) => Ok(bytes),
            (Some(complaint), _) => Err(complaint.clone()),
            (None, None) => Err("bluetick bench does not say what a connection takes".into()),
        }
    }

    fn run(&self, pairs: Pairs, options: &[&str]) -> Result<Value, String> {
        let Pairs { pairs, in_flight, body_bytes } = pairs;
        let (pairs, in_flight, bytes) = (pairs.to_string(), in_flight.to_string(), body_bytes.to_string());
        let mut all = vec!["--pairs", &pairs, "--in-flight", &in_flight, "--body-bytes", &bytes];
        all.extend(options);
        self.call(&all)
    }

    fn call(&self, options: &[&str]) -> Result<Value, String> {
        let mut bench = Command::new(self.bluetick);
        bench.arg("bench").args(options).arg("--json").arg("--config").arg(self.config);
        bench.args(["--server", &format!("http://127.0.0.1:{}", self.server.port)]);
        bench.args(["--pid", &self.server.tree().root.to_string()]);
        let done = bench.output().map_err(|e| format!("{}: {e}", self.bluetick.display()))?;
        // A promise that the server broke ends it with an error, behind what it found.
        serde_json::from_slice(&done.stdout).map_err(|_| {
            let said = String::from_utf8_lossy(&done.stderr);
            format!("bluetick bench failed: {}", said.lines().last().unwrap_or("it said nothing"))
        })
    }

    fn knows(&self, option: &str) -> Result<bool, String> {
        let help = Command::new(self.bluetick).args(["bench", "--help"]).output();
        let help = help.map_err(|e| format!("{}: {e}", self.bluetick.display()))?;
        let text = String::from_utf8_lossy(&help.stdout).into_owned();
        Ok(text.lines().any(|line| line.trim_start().split([' ', ',']).any(|word| word == option)))
    }
}

fn stage(found: &Value, name: &str) -> Result<Stage, String> {
    let number = |key: &str| {
        let missing = || format!("bluetick bench does not say {name}.{key}: {found}");
        found[name][key].as_f64().ok_or_else(missing)
    };
    Ok(Stage {
        messages: number("messages")? as u64,
        seconds: number("seconds")?,
        messages_per_second: number("messages_per_second")?,
        server_cpu_micros_per_message: number("server_cpu_micros_per_message")?,
        complaints: complaints(found),
        ..Stage::default()
    })
}

fn latency(found: &Value, name: &str) -> Option<LatencySummary> {
    serde_json::from_value(found[name].clone()).ok()
}

fn complaints(found: &Value) -> Vec<String> {
    let violations = found["violations"].as_array().into_iter().flatten();
    violations.filter_map(|violation| violation.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_bluetick_bench_says_is_understood() {
        let found = json!({
            "mode": "chat",
            "chat": { "messages": 10, "seconds": 2.0, "messages_per_second": 5.0, "server_cpu_micros_per_message": 20.5 },
            "send_to_receive": { "p50_ms": 1.0, "p99_ms": 2.0, "max_ms": 3.0 },
            "violations": ["bench-1 got 3 after 1"],
        });
        let stage = stage(&found, "chat").unwrap();
        assert_eq!((stage.messages, stage.server_cpu_micros_per_message), (10, 20.5));
        assert_eq!(stage.complaints, ["bench-1 got 3 after 1"]);
        assert_eq!(latency(&found, "send_to_receive").unwrap().p99_ms, 2.0);
        assert_eq!(latency(&found, "send_to_tick"), None);
        assert!(super::stage(&found, "store").unwrap_err().contains("store.messages"));
    }
}
