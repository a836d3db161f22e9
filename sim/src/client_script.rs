//! Records what one device saw and did in a run, as a script of `clients/conformance`.
//!
//! The recorded device is the first one of the first user. It saves its state before every restart,
//! because a script cannot say that a client has lost what it had stored.

use std::{collections::BTreeMap, fs, io, path::Path, sync::Arc};

use bluetick_client::{ClientState, Event, Tick};
use bluetick_protocol::{ClientMsgId, ConversationId, DeviceId, Seq, UserId};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::{
    setup::{Setup, user_id},
    world::run_recorded,
};

/// The seeds whose scripts are part of the conformance kit: short runs that differ in what happens.
pub const RECORDED_SEEDS: [u64; 10] = [2, 13, 28, 35, 44, 48, 73, 87, 102, 110];

const COLUMNS: usize = 100;
/// Written before the other keys of an object.
const LEADING_KEYS: [&str; 9] =
    ["name", "why", "user", "device", "tokens", "steps", "event", "type", "conversation_id"];

/// Runs a seed and returns the script of its recorded device as JSON text.
pub fn record_client_script(seed: u64) -> String {
    let recorder = Arc::new(Mutex::new(Recorder::new(user_id(0))));
    run_recorded(Setup::draw(seed), &[], false, Some(recorder.clone()));
    let script = recorder.lock().script(seed);
    layout(&script, 0) + "\n"
}

/// The file name of a seed's script.
pub fn script_file_name(seed: u64) -> String {
    format!("seed-{seed}.json")
}

/// Writes the scripts of [`RECORDED_SEEDS`] into a folder.
pub fn write_client_scripts(folder: &Path) -> io::Result<()> {
    RECORDED_SEEDS
        .iter()
        .try_for_each(|&seed| fs::write(folder.join(script_file_name(seed)), record_client_script(seed)))
}

struct Step {
    event: Map<String, Value>,
    out: Vec<Value>,
    told: Vec<Value>,
}

/// What has happened to the recorded device so far.
pub struct Recorder {
    user: UserId,
    device: Option<DeviceId>,
    steps: Vec<Step>,
    /// Placeholders for the ids that the client has made up.
    placeholders: BTreeMap<String, String>,
    /// The client ends a connection at a `bye`; the end of the line adds nothing to that.
    is_disconnected: bool,
    messages: BTreeMap<ConversationId, Vec<(Seq, bool)>>,
    final_state: Value,
}

impl Recorder {
    fn new(user: UserId) -> Recorder {
        Recorder {
            user,
            device: None,
            steps: Vec::new(),
            placeholders: BTreeMap::new(),
            is_disconnected: true,
            messages: BTreeMap::new(),
            final_state: Value::Null,
        }
    }

    /// Whether this device is the one to record: the first that asks, of the recorded user.
    pub fn claims(&mut self, user: &UserId, device: &DeviceId) -> bool {
        *user == self.user && self.device.get_or_insert_with(|| device.clone()) == device
    }

    pub fn connected(&mut self) {
        self.is_disconnected = false;
        self.step(json!({"event": "connected"}));
    }

    /// A frame of the server. Frames that lead to nothing share a step with the next one.
    pub fn frame_in(&mut self, text: &str) {
        let Ok(frame) = serde_json::from_str::<Value>(text) else { return };
        let frame = self.with_placeholders(frame);
        let is_bye = frame["type"] == "bye";
        match self.steps.last_mut() {
            Some(Step { event, out, told })
                if event["event"] == "frames" && out.is_empty() && told.is_empty() =>
            {
                if let Some(Value::Array(frames)) = event.get_mut("frames") {
                    frames.push(frame);
                }
            }
            _ => self.step(json!({"event": "frames", "frames": [frame]})),
        }
        self.is_disconnected |= is_bye;
    }

    pub fn frame_out(&mut self, text: &str) {
        let Ok(Value::Object(mut frame)) = serde_json::from_str(text) else { return };
        let kind = frame.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        frame.remove("limit");
        frame.remove("token");
        match kind.as_str() {
            "send" | "ack" => {
                frame.remove("ref");
            }
            "status" => {
                frame.insert("optional".into(), true.into());
            }
            _ => {}
        }
        let frame = self.with_placeholders(Value::Object(frame));
        if let Some(step) = self.steps.last_mut() {
            step.out.push(frame);
        }
    }

    pub fn told(&mut self, event: &Event) {
        let told = match event {
            Event::Message(message) => {
                let id = &message.conversation_id;
                let entry = (message.seq, message.sender == self.user);
                self.messages.entry(id.clone()).or_default().push(entry);
                json!({"message": id, "seq": message.seq})
            }
            Event::Sent(sent) => {
                self.messages.entry(sent.conversation_id.clone()).or_default().push((sent.seq, true));
                json!({"sent": sent.client_msg_id, "seq": sent.seq})
            }
            Event::SendFailed { client_msg_id, error } => {
                json!({"failed": client_msg_id, "code": error.code})
            }
            Event::Reset { .. } => json!({"reset": true}),
            _ => return,
        };
        let told = self.with_placeholders(told);
        if let Some(step) = self.steps.last_mut() {
            step.told.push(told);
        }
    }

    pub fn sent(&mut self, to: &UserId, body: &str, id: &ClientMsgId) {
        let placeholder = format!("$m{}", self.placeholders.len() + 1);
        self.placeholders.insert(id.to_string(), placeholder.clone());
        self.step(json!({"event": "send", "as": placeholder, "to": to, "body": body}));
    }

    pub fn read(&mut self, id: &ConversationId, seq: Seq) {
        self.step(json!({"event": "read", "conversation_id": id, "seq": seq}));
    }

    pub fn waited(&mut self, ms: u64) {
        self.step(json!({"event": "wait", "ms": ms}));
    }

    pub fn lost(&mut self) {
        if !std::mem::replace(&mut self.is_disconnected, true) {
            self.step(json!({"event": "lost"}));
        }
    }

    pub fn restarted(&mut self) {
        self.is_disconnected = true;
        self.step(json!({"event": "restart"}));
    }

    pub fn wiped(&mut self) {
        self.is_disconnected = true;
        self.messages.clear();
        self.step(json!({"event": "wipe"}));
    }

    /// What the user sees now; the last one ends the script.
    pub fn shows(&mut self, state: &ClientState) {
        let outbox: Vec<_> = state.outbox().map(|send| &send.client_msg_id).collect();
        let tick = |id: &ConversationId, seq: Seq, own: bool| match (own, state.tick_of(id, seq)) {
            (false, _) => "received",
            (true, Tick::Single) => "sent",
            (true, Tick::Double) => "delivered",
            (true, Tick::Blue) => "read",
        };
        let conversations: Map<_, _> = self
            .messages
            .iter()
            .map(|(id, messages)| {
                let mut messages = messages.clone();
                messages.sort_unstable();
                let shown =
                    messages.iter().map(|&(seq, own)| json!({"seq": seq, "tick": tick(id, seq, own)}));
                (id.to_string(), json!({"messages": shown.collect::<Vec<_>>()}))
            })
            .collect();
        let visible = json!({"cursor": state.cursor(), "outbox": outbox, "conversations": conversations});
        self.final_state = self.with_placeholders(visible);
    }

    fn step(&mut self, event: Value) {
        if let Value::Object(event) = event {
            self.steps.push(Step { event, out: Vec::new(), told: Vec::new() });
        }
    }

    /// Replaces the ids and refs that another client would choose differently.
    fn with_placeholders(&self, value: Value) -> Value {
        match value {
            Value::String(text) => self.placeholders.get(&text).cloned().unwrap_or(text).into(),
            Value::Array(items) => items.into_iter().map(|item| self.with_placeholders(item)).collect(),
            Value::Object(fields) => {
                let replaced = fields.into_iter().map(|(key, value)| match value {
                    Value::Number(number) if key == "ref" => (key, format!("$r{number}").into()),
                    value => (key, self.with_placeholders(value)),
                });
                Value::Object(replaced.collect())
            }
            other => other,
        }
    }

    fn script(&self, seed: u64) -> Value {
        let count = self.steps.len();
        let steps: Vec<Value> = self
            .steps
            .iter()
            .enumerate()
            .map(|(n, step)| {
                let mut event = step.event.clone();
                for (key, frames) in [("out", &step.out), ("told", &step.told)] {
                    if !frames.is_empty() {
                        event.insert(key.into(), frames.clone().into());
                    }
                }
                if n + 1 == count {
                    event.insert("state".into(), self.final_state.clone());
                }
                Value::Object(event)
            })
            .collect();
        json!({
            "name": format!("seed-{seed}"),
            "why": format!("What a device of the Rust client saw and did in the simulator's run of seed {seed}."),
            "user": self.user,
            "device": self.device,
            "tokens": [self.user],
            "steps": steps,
        })
    }
}

/// JSON with one short object or list per line, so that a script can be read and compared by line.
fn layout(value: &Value, indent: usize) -> String {
    let flat = flat(value);
    let is_nested = |value: &Value| value.is_object() || value.is_array();
    let (open, close, rows): (_, _, Vec<String>) = match value {
        Value::Object(fields) if fields.values().any(is_nested) => {
            let row = |(key, value): (&String, &Value)| format!("{key:?}: {}", layout(value, indent + 2));
            ('{', '}', ordered(fields).into_iter().map(row).collect())
        }
        Value::Array(items) => ('[', ']', items.iter().map(|item| layout(item, indent + 2)).collect()),
        _ => return flat,
    };
    if flat.len() + indent <= COLUMNS || rows.is_empty() {
        return flat;
    }
    let (inner, outer) = (" ".repeat(indent + 2), " ".repeat(indent));
    format!("{open}\n{inner}{}\n{outer}{close}", rows.join(&format!(",\n{inner}")))
}

fn flat(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let row = |(key, value): (&String, &Value)| format!("{key:?}: {}", flat(value));
            let rows: Vec<_> = ordered(fields).into_iter().map(row).collect();
            format!("{{{}}}", rows.join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(flat).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

fn ordered(fields: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut fields: Vec<_> = fields.iter().collect();
    let place = |key: &str| LEADING_KEYS.iter().position(|leading| *leading == key).unwrap_or(usize::MAX);
    fields.sort_by_key(|(key, _)| place(key));
    fields
}
