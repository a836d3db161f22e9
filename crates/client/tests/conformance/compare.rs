//! Compares what a client did in a step with what the script demands, and remembers what the
//! placeholders of the script stand for.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Fields that a client may choose.
const FREE_FIELDS: [&str; 4] = ["ref", "limit", "token", "optional"];
/// Requests that a client may make at any time for its own purposes.
const FREE_REQUESTS: [&str; 4] = ["inbox", "status", "watch", "ping"];

#[derive(Default)]
pub struct Comparison {
    /// What each `$name` stands for: the value that stood in its place the first time.
    bound: BTreeMap<String, Value>,
    /// The highest ack of each conversation: saying it again is always allowed.
    acked: BTreeMap<String, u64>,
}

impl Comparison {
    /// The step with every placeholder replaced that is bound by now.
    pub fn bind(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.bound.get(text).unwrap_or(value).clone(),
            Value::Array(items) => items.iter().map(|item| self.bind(item)).collect(),
            Value::Object(fields) => {
                let bind = |(key, value): (&String, &Value)| {
                    // `as` names the placeholder that the step binds.
                    (key.clone(), if key == "as" { value.clone() } else { self.bind(value) })
                };
                Value::Object(fields.iter().map(bind).collect())
            }
            other => other.clone(),
        }
    }

    /// Compares a step with the report of [`Device::apply`](super::Device::apply).
    pub fn step(&mut self, step: &Value, report: &Value) -> Result<(), String> {
        if let Some(name) = step["as"].as_str() {
            self.bound.insert(name.to_owned(), report["client_msg_id"].clone());
        }
        let none = Value::Array(Vec::new());
        self.frames(step.get("out").unwrap_or(&none), &report["frames"])?;
        let told = step.get("told").unwrap_or(&none);
        if !told.is_null() && self.bind(told) != report["told"] {
            return Err(format!("the application must be told {}", self.bind(told)));
        }
        self.state(step.get("state").unwrap_or(&Value::Null), &report["state"], "state")
    }

    /// Sends keep their order, receipts count by their highest seq, and requests come in any order.
    fn frames(&mut self, expected: &Value, actual: &Value) -> Result<(), String> {
        let (expected, actual) = (expected.as_array().unwrap(), actual.as_array().unwrap());
        for kind in ["hello", "auth", "send"] {
            let of_kind = |frames: &[Value]| -> Vec<Value> {
                frames.iter().filter(|frame| frame["type"] == kind).cloned().collect()
            };
            let (expected, actual) = (of_kind(expected), of_kind(actual));
            if expected.len() != actual.len() {
                return Err(format!("{} frames {kind} must go out, not {}", expected.len(), actual.len()));
            }
            for (expected, actual) in expected.iter().zip(&actual) {
                self.frame(expected, actual)?;
            }
        }
        self.receipts(expected, actual)?;
        self.requests(expected, actual)
    }

    fn receipts(&mut self, expected: &[Value], actual: &[Value]) -> Result<(), String> {
        let mut actual = highest(actual);
        for (key, expected) in highest(expected) {
            let actual = actual.remove(&key).ok_or_else(|| format!("{expected} must go out"))?;
            self.frame(&expected, &actual)?;
            if key.0 == "ack" {
                self.acked.insert(key.1, actual["seq"].as_u64().unwrap_or(0));
            }
        }
        let is_repetition = |(kind, id): &(String, String), frame: &Value| {
            kind == "ack" && frame["seq"].as_u64() <= self.acked.get(id).copied()
        };
        match actual.iter().find(|(key, frame)| !is_repetition(key, frame)) {
            Some((_, frame)) => Err(format!("{frame} must not go out")),
            None => Ok(()),
        }
    }

    fn requests(&mut self, expected: &[Value], actual: &[Value]) -> Result<(), String> {
        let is_request = |frame: &&Value| {
            !["hello", "auth", "send", "ack", "read"].contains(&frame["type"].as_str().unwrap_or_default())
        };
        let mut rest: Vec<&Value> = actual.iter().filter(is_request).collect();
        for expected in expected.iter().filter(is_request) {
            let found = rest.iter().position(|actual| self.frame(expected, actual).is_ok());
            rest.remove(found.ok_or_else(|| format!("{expected} must go out"))?);
        }
        let is_free = |frame: &&&Value| {
            let kind = frame["type"].as_str().unwrap_or_default();
            FREE_REQUESTS.contains(&kind) || kind == "history" && frame.get("after_seq").is_none()
        };
        match rest.iter().find(|frame| !is_free(frame)) {
            Some(frame) => Err(format!("{frame} must not go out")),
            None => Ok(()),
        }
    }

    fn frame(&mut self, expected: &Value, actual: &Value) -> Result<(), String> {
        let (wanted, given) = (fields(expected), fields(actual));
        for (key, value) in wanted.iter().filter(|(key, _)| !["ref", "optional"].contains(&key.as_str())) {
            if given.get(key) != Some(&self.bind(value)) {
                return Err(format!("{} must go out, not {actual}", self.bind(expected)));
            }
        }
        let unwanted = |key: &&String| !FREE_FIELDS.contains(&key.as_str()) && !wanted.contains_key(*key);
        if let Some(key) = given.keys().find(unwanted) {
            return Err(format!("{actual} must not have {key:?}"));
        }
        if let (Some(name), Some(given)) = (wanted.get("ref").and_then(Value::as_str), given.get("ref")) {
            let bound = self.bound.entry(name.to_owned()).or_insert_with(|| given.clone());
            if bound != given {
                return Err(format!("{actual} must have the ref {bound}"));
            }
        }
        Ok(())
    }

    /// What the script names must be as it says; what it does not name is not compared.
    fn state(&self, expected: &Value, actual: &Value, path: &str) -> Result<(), String> {
        let Value::Object(wanted) = expected else {
            let expected = self.bind(expected);
            let is_same = path == "state" || expected == *actual;
            return is_same.then_some(()).ok_or_else(|| format!("{path} must be {expected}, not {actual}"));
        };
        wanted.iter().try_for_each(|(key, value)| self.state(value, &actual[key], &format!("{path}.{key}")))
    }
}

fn fields(frame: &Value) -> Map<String, Value> {
    frame.as_object().cloned().unwrap_or_default()
}

/// The highest receipt of each kind and conversation.
fn highest(frames: &[Value]) -> BTreeMap<(String, String), Value> {
    let mut highest: BTreeMap<_, Value> = BTreeMap::new();
    for frame in frames {
        let kind = frame["type"].as_str().unwrap_or_default();
        if kind == "ack" || kind == "read" {
            let key = (kind.to_owned(), frame["conversation_id"].as_str().unwrap_or_default().to_owned());
            let known = highest.get(&key).map_or(0, |known| known["seq"].as_u64().unwrap_or(0));
            if frame["seq"].as_u64().unwrap_or(0) >= known {
                highest.insert(key, frame.clone());
            }
        }
    }
    highest
}
