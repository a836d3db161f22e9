//! A device that a script drives: the real client state, a virtual clock, and an application that
//! remembers what it was told.

use std::{collections::BTreeMap, time::Duration};

use bluetick_client::{ClientState, Draft, Event, FrameError, HistoryRange, Reconnect, Saved, Tick, decode};
use bluetick_protocol::{ClientMsgId, ConversationId, Seq, UserId};
use serde_json::{Value, json};

/// The client's own delay before it connects again; the driver draws a random one.
const RECONNECT_DELAY: Duration = Duration::from_millis(200);

enum Connection {
    Waiting { until: Duration },
    Connecting,
    Open,
    Offline,
}

/// What an application keeps: the messages it was told of, and how far the user has read.
#[derive(Default)]
struct Application {
    messages: BTreeMap<ConversationId, Vec<(Seq, bool)>>,
    read: BTreeMap<ConversationId, Seq>,
    failed: Vec<ClientMsgId>,
}

pub struct Device {
    script: Value,
    state: ClientState,
    starts: u64,
    tokens_used: usize,
    connection: Connection,
    now: Duration,
    retry_at: Option<Duration>,
    application: Application,
    frames: Vec<Value>,
    told: Vec<Value>,
}

impl Device {
    pub fn new(script: &Value) -> Device {
        Device {
            state: new_state(script, 1, None),
            script: script.clone(),
            starts: 1,
            tokens_used: 0,
            connection: Connection::Connecting,
            now: Duration::ZERO,
            retry_at: None,
            application: Application::default(),
            frames: Vec::new(),
            told: Vec::new(),
        }
    }

    /// Lets one event happen. Returns the frames written, what the application was told, and the
    /// visible state afterwards.
    pub fn apply(&mut self, step: &Value) -> Value {
        let conversation = || step["conversation_id"].as_str().unwrap().parse::<ConversationId>().unwrap();
        let mut client_msg_id = None;
        match step["event"].as_str().unwrap() {
            "connected" => self.connect(),
            "frames" => self.take_frames(step["frames"].as_array().unwrap()),
            "lost" => self.lose(),
            "restart" => {
                let saved = serde_json::to_string(&self.state.saved()).unwrap();
                self.start(Some(serde_json::from_str(&saved).unwrap()));
            }
            "wipe" => {
                self.application = Application::default();
                self.start(None);
            }
            "wait" => self.wait(Duration::from_millis(step["ms"].as_u64().unwrap())),
            "send" => client_msg_id = Some(self.send(step)),
            "read" => {
                let (id, seq) = (conversation(), step["seq"].as_u64().unwrap());
                let read = self.application.read.entry(id.clone()).or_default();
                *read = seq.max(*read);
                self.state.read(id, seq);
            }
            "load" => {
                self.state.history(conversation(), HistoryRange::Newest, None).unwrap();
            }
            other => panic!("unknown event {other:?}"),
        }
        self.pump();
        let frames = std::mem::take(&mut self.frames);
        let told = std::mem::take(&mut self.told);
        json!({"frames": frames, "told": told, "client_msg_id": client_msg_id, "state": self.visible_state()})
    }

    fn connect(&mut self) {
        if let Connection::Waiting { until } = self.connection {
            self.now = until;
            self.connection = Connection::Connecting;
        }
        assert!(matches!(self.connection, Connection::Connecting), "the client does not want to connect");
        let tokens = self.script["tokens"].as_array().unwrap();
        let token = tokens[self.tokens_used.min(tokens.len() - 1)].as_str().unwrap();
        self.tokens_used += 1;
        self.state.connected(token.to_owned());
        self.connection = Connection::Open;
    }

    fn take_frames(&mut self, frames: &[Value]) {
        for frame in frames {
            match decode(&frame.to_string()) {
                Ok(frame) => self.state.frame(frame),
                Err(FrameError::UnknownType(_)) => {}
                Err(e) => panic!("{e}: {frame}"),
            }
        }
        if self.state.bye().is_some() {
            self.lose();
        }
    }

    fn lose(&mut self) {
        let can_refresh_token = self.script["tokens"].as_array().unwrap().len() > 1;
        self.connection = match Reconnect::after(self.state.bye(), can_refresh_token) {
            Reconnect::After(delay) => Connection::Waiting { until: self.now + delay.max(RECONNECT_DELAY) },
            Reconnect::Never => Connection::Offline,
        };
        self.state.disconnected();
        self.retry_at = None;
    }

    /// A new process of the same device.
    fn start(&mut self, saved: Option<Saved>) {
        self.starts += 1;
        self.state = new_state(&self.script, self.starts, saved);
        self.connection = Connection::Connecting;
        self.retry_at = None;
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.retry_at.filter(|at| *at <= end) {
            self.now = at;
            self.retry_at = None;
            self.state.retry();
            self.pump();
        }
        self.now = end;
        if matches!(self.connection, Connection::Waiting { until } if until <= end) {
            self.connection = Connection::Connecting;
        }
    }

    fn send(&mut self, step: &Value) -> ClientMsgId {
        let to: UserId = step["to"].as_str().unwrap().parse().unwrap();
        let client_msg_id = step["client_msg_id"].as_str().map(|id| ClientMsgId::new(id).unwrap());
        let draft = Draft { client_msg_id, ..Draft::text(to, step["body"].as_str().unwrap()) };
        self.state.send(draft).unwrap()
    }

    /// Writes what there is to write, and tells the application.
    fn pump(&mut self) {
        while let Some(frame) = self.state.next_frame() {
            self.frames.push(serde_json::from_str(&frame.to_text()).unwrap());
        }
        while self.state.next_query_result().is_some() {}
        while let Some(event) = self.state.next_event() {
            self.tell(event);
        }
        if let Some(ms) = self.state.take_retry_ms() {
            self.retry_at = self.retry_at.max(Some(self.now + Duration::from_millis(ms)));
        }
    }

    fn tell(&mut self, event: Event) {
        let me = self.script["user"].as_str().unwrap();
        match event {
            Event::Message(message) => {
                self.told.push(json!({"message": message.conversation_id, "seq": message.seq}));
                let messages = self.application.messages.entry(message.conversation_id).or_default();
                messages.push((message.seq, message.sender.as_str() == me));
            }
            Event::Sent(sent) => {
                self.told.push(json!({"sent": sent.client_msg_id, "seq": sent.seq}));
                self.application.messages.entry(sent.conversation_id).or_default().push((sent.seq, true));
            }
            Event::SendFailed { client_msg_id, error } => {
                self.told.push(json!({"failed": client_msg_id, "code": error.code}));
                self.application.failed.push(client_msg_id);
            }
            Event::Ticks(ticks) if ticks.user_id.as_str() == me => {
                let read = self.application.read.entry(ticks.conversation_id).or_default();
                *read = ticks.last_read_seq.max(*read);
            }
            Event::Reset { .. } => self.told.push(json!({"reset": true})),
            _ => {}
        }
    }

    fn visible_state(&self) -> Value {
        let connection = match self.connection {
            Connection::Waiting { .. } => "waiting",
            Connection::Connecting => "connecting",
            Connection::Offline => "offline",
            Connection::Open if self.state.is_caught_up() => "live",
            Connection::Open if self.state.is_up() => "draining",
            Connection::Open => "connecting",
        };
        let outbox: Vec<_> = self.state.outbox().map(|send| &send.client_msg_id).collect();
        let conversations: BTreeMap<_, _> = self
            .application
            .messages
            .iter()
            .map(|(id, messages)| (id.as_str(), self.visible_conversation(id, messages)))
            .collect();
        json!({
            "connection": connection,
            "cursor": self.state.cursor(),
            "outbox": outbox,
            "failed": self.application.failed,
            "conversations": conversations,
        })
    }

    fn visible_conversation(&self, id: &ConversationId, messages: &[(Seq, bool)]) -> Value {
        let read = self.application.read.get(id).copied().unwrap_or(0);
        let mut messages = messages.to_vec();
        messages.sort_unstable();
        let unread = messages.iter().filter(|(seq, own)| !own && *seq > read).count();
        let tick = |(seq, own): &(Seq, bool)| match (own, self.state.tick_of(id, *seq)) {
            (false, _) => "received",
            (true, Tick::Single) => "sent",
            (true, Tick::Double) => "delivered",
            (true, Tick::Blue) => "read",
        };
        let shown: Vec<_> = messages.iter().map(|m| json!({"seq": m.0, "tick": tick(m)})).collect();
        json!({"messages": shown, "unread": unread})
    }
}

fn new_state(script: &Value, nonce: u64, saved: Option<Saved>) -> ClientState {
    ClientState::new(script["device"].as_str().unwrap().parse().unwrap(), nonce, saved)
}
