//! The log and other output: text for people, or one JSON object per line for programs.

use std::{
    io::IsTerminal as _,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use figment::{
    Figment,
    providers::{Format as _, Toml},
};
use serde_json::{Map, Value, json};
use tracing_subscriber::{
    EnvFilter,
    fmt::{
        format::Writer,
        time::{FormatTime as _, SystemTime},
    },
};

use crate::config::{LogFormat, LogSettings};

/// Whether everything that this process writes is to be JSON.
static JSON: AtomicBool = AtomicBool::new(false);

/// Logs to standard error from here on. A second call changes nothing but the format of `say`.
pub fn init(log: &LogSettings) -> Result<(), String> {
    JSON.store(log.format == LogFormat::Json, Ordering::Relaxed);
    let filter = EnvFilter::try_new(&log.filter).map_err(|error| error.to_string())?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let _ = match log.format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
    Ok(())
}

pub fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// For an invalid configuration: follows its `log.format` if that can be read.
pub fn guess_format(file: Option<&Path>) {
    let from_file = || {
        let text = std::fs::read_to_string(file?).ok()?;
        Figment::from(Toml::string(&text)).extract_inner::<String>("log.format").ok()
    };
    let format = std::env::var("BLUETICK_LOG__FORMAT").ok().or_else(from_file);
    JSON.store(format.as_deref() == Some("json"), Ordering::Relaxed);
}

/// Says on standard error why the process ends.
pub fn say_failure(why: &str) {
    match is_json() {
        true => eprintln!("{}", json_line("ERROR", why, Map::new())),
        false => eprintln!("bluetick: {why}"),
    }
}

/// A line as the log writes them in JSON.
pub fn json_line(level: &str, message: &str, fields: Map<String, Value>) -> String {
    let mut timestamp = String::new();
    // Writing to a string does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
    let mut line = json!({"timestamp": timestamp, "level": level, "message": message, "target": "bluetick"});
    if let Value::Object(line) = &mut line {
        line.extend(fields);
    }
    line.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_json_is_one_line_and_has_the_fields_of_the_log() {
        let fields = Map::from_iter([("version".to_owned(), json!("1.2.3"))]);
        let line = json_line("INFO", "two\nlines", fields);
        assert!(!line.contains('\n'), "{line}");
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&line["level"], &line["message"]), (&json!("INFO"), &json!("two\nlines")));
        assert_eq!(line["version"], "1.2.3");
        let timestamp = line["timestamp"].as_str().unwrap();
        assert!(timestamp.ends_with('Z') && timestamp.contains('T'), "{timestamp}");
    }
}
