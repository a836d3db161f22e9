//! A device: the real client logic over a line that breaks, and an application that remembers what
//! it was shown.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bluetick_chat::session::{Incoming, Outgoing};
use bluetick_client::{ClientState, Draft, Event, Saved, decode};
use bluetick_protocol::{
    ClientFrame, ConversationId, DeviceId, ErrorCode, MessageFrame, Seq, ServerFrame, UserId,
};
use parking_lot::Mutex;
use rand::RngExt;
use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    client_script::Recorder,
    line::{DeviceLine, connect},
    sim::{Sim, note},
    world::Doors,
};

/// A device that hears nothing for so long, not even a ping, takes its connection for dead.
const SILENCE_MAX: Duration = Duration::from_secs(60);
const RECONNECT_MAX_MS: u64 = 1_500;

/// What happens to a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceCommand {
    Send(UserId, String),
    /// The user reads what they have of a conversation.
    Read,
    /// The connection breaks; the device reconnects after this many milliseconds.
    Break(u64),
    /// The process restarts and loses everything that was not saved.
    Restart(u64),
    /// Its storage is wiped: it reconnects without a cursor.
    Forget(u64),
    /// It reads nothing from its socket for this many milliseconds.
    Stall(u64),
}

/// What the application was shown, and keeps with the client's own state.
#[derive(Debug, Clone, Default)]
struct ShownSeqs(BTreeMap<ConversationId, Vec<Seq>>);

/// What is known of a device from outside.
#[derive(Default)]
pub struct DeviceView {
    shown: ShownSeqs,
    /// When the device first caught up since it last lost its state. From then on it must get
    /// everything.
    pub caught_up_at: Option<u64>,
    pub is_caught_up: bool,
    pub outbox_len: usize,
}

impl DeviceView {
    pub fn has(&self, id: &ConversationId, seq: Seq) -> bool {
        self.shown.0.get(id).is_some_and(|seqs| seqs.contains(&seq))
    }
}

pub struct SimDevice {
    sim: Arc<Sim>,
    pub user: UserId,
    pub name: DeviceId,
    pub seen: Arc<Mutex<DeviceView>>,
    pub home: Arc<Notify>,
    doors: Arc<Doors>,
    commands: mpsc::UnboundedReceiver<DeviceCommand>,
    state: ClientState,
    saved: Option<(Saved, ShownSeqs, Option<u64>)>,
    /// Messages that were shown since the process last restarted.
    shown_now: BTreeSet<(ConversationId, Seq)>,
    recorder: Option<Arc<Mutex<Recorder>>>,
}

/// Why a connection ended, and for how long the device stays away.
enum LifeEnd {
    Broken(u64),
    Restart(u64),
    Forget(u64),
}

impl SimDevice {
    pub fn new(
        sim: Arc<Sim>,
        doors: Arc<Doors>,
        user: UserId,
        name: DeviceId,
        commands: mpsc::UnboundedReceiver<DeviceCommand>,
    ) -> SimDevice {
        let state = ClientState::new(name.clone(), sim.draw(|rng| rng.random()), None);
        let recorder = sim.recorder.clone().filter(|recorder| recorder.lock().claims(&user, &name));
        SimDevice {
            sim,
            user,
            name,
            seen: Arc::default(),
            home: Arc::default(),
            doors,
            commands,
            state,
            saved: None,
            shown_now: BTreeSet::new(),
            recorder,
        }
    }

    fn record(&self, record: impl FnOnce(&mut Recorder)) {
        if let Some(recorder) = &self.recorder {
            record(&mut recorder.lock());
        }
    }

    fn called(&self) -> String {
        format!("{}'s {}", self.user, self.name)
    }

    /// Connects in an endless loop.
    pub async fn live(mut self, first_away_ms: u64) {
        let mut away_ms = first_away_ms;
        loop {
            if let Some(end) = self.stay_away(away_ms).await {
                away_ms = self.end(end);
                continue;
            }
            let (source, sink, line) = connect(&self.sim);
            if !self.doors.enter(source, sink) {
                away_ms = self.sim.draw(|rng| rng.random_range(1..=RECONNECT_MAX_MS));
                continue;
            }
            note!(self.sim, "{} connects, cursor {:?}", self.called(), self.state.cursor());
            self.state.connected(self.user.to_string());
            self.record(Recorder::connected);
            let end = self.stay_connected(line).await;
            self.state.disconnected();
            self.seen.lock().is_caught_up = false;
            away_ms = self.end(end);
        }
    }

    /// Time without a connection. The user's actions are kept meanwhile.
    async fn stay_away(&mut self, ms: u64) -> Option<LifeEnd> {
        let back = Instant::now() + Duration::from_millis(ms);
        loop {
            tokio::select! {
                biased;
                Some(command) = self.commands.recv() => {
                    if let Some(end @ (LifeEnd::Restart(_) | LifeEnd::Forget(_))) = self.obey(command).await {
                        return Some(end);
                    }
                }
                () = self.home.notified() => return None,
                () = sleep_until(back) => return None,
            }
        }
    }

    async fn stay_connected(&mut self, line: DeviceLine) -> LifeEnd {
        let mut retry_at: Option<(Instant, u64)> = None;
        loop {
            while let Some(frame) = self.state.next_frame() {
                self.write(&line, frame);
            }
            self.handle_events();
            if let Some(ms) = self.state.take_retry_ms() {
                retry_at = Some((Instant::now() + Duration::from_millis(ms), ms));
            }
            let wake_at = retry_at.map_or_else(|| Instant::now() + SILENCE_MAX * 2, |(at, _)| at);
            tokio::select! {
                biased;
                heard = timeout(SILENCE_MAX, line.next()) => match heard {
                    Ok(Some(frame)) => self.take(&line, frame),
                    Ok(None) | Err(_) => {
                        note!(self.sim, "{} has lost its connection", self.called());
                        return LifeEnd::Broken(self.sim.draw(|rng| rng.random_range(1..=RECONNECT_MAX_MS)));
                    }
                },
                Some(command) = self.commands.recv() => {
                    if let Some(end) = self.obey(command).await {
                        return end;
                    }
                }
                () = sleep_until(wake_at) => {
                    if let Some((_, waited_ms)) = retry_at.take() {
                        self.record(|recorder| recorder.waited(waited_ms));
                    }
                    self.state.retry();
                }
            }
        }
    }

    fn write(&mut self, line: &DeviceLine, frame: ClientFrame) {
        let text = serde_json::to_string(&frame).unwrap_or_default();
        note!(self.sim, "{} says {text}", self.called());
        self.record(|recorder| recorder.frame_out(&text));
        let mut history = self.sim.history.lock();
        match &frame {
            ClientFrame::Read(read) => history.read(&self.user, &read.conversation_id, read.seq),
            ClientFrame::Send(send) => {
                let id = send.to.as_ref().and_then(|to| ConversationId::between(&self.user, to));
                if let (Some(id), Some(seen)) = (id, send.seen_seq) {
                    history.read(&self.user, &id, seen);
                }
            }
            _ => {}
        }
        drop(history);
        line.write(Incoming::Text(text));
    }

    fn take(&mut self, line: &DeviceLine, frame: Outgoing) {
        match frame {
            Outgoing::Ping => line.write(Incoming::Alive),
            Outgoing::Close(..) => {}
            Outgoing::Text(text) => {
                note!(self.sim, "{} hears {text}", self.called());
                self.record(|recorder| recorder.frame_in(&text));
                match decode(&text) {
                    Ok(frame) => {
                        match &frame {
                            ServerFrame::Ticks(ticks) => self.sim.history.lock().told_ticks(ticks),
                            // A device has one connection at a time, and an application does not
                            // reconnect after `replaced`.
                            ServerFrame::Bye(bye) if bye.code == ErrorCode::Replaced => {
                                let what = format!("{} was replaced by nobody", self.called());
                                self.sim.history.lock().violation(what);
                            }
                            _ => {}
                        }
                        self.state.frame(frame);
                    }
                    Err(e) => self.sim.history.lock().violation(format!("{}: {e}: {text}", self.called())),
                }
            }
        }
    }

    fn handle_events(&mut self) {
        let mut some = false;
        while let Some(event) = self.state.next_event() {
            some = true;
            self.record(|recorder| recorder.told(&event));
            match event {
                Event::Message(message) => self.show(&message),
                Event::Sent(sent) => self.sim.history.lock().told_sent(&sent),
                Event::CaughtUp => {
                    let now = self.sim.now_ms();
                    let mut seen = self.seen.lock();
                    seen.is_caught_up = true;
                    seen.caught_up_at.get_or_insert(now);
                }
                Event::SendFailed { client_msg_id, error } => {
                    let what = format!("{}: {client_msg_id} was refused: {error}", self.called());
                    self.sim.history.lock().violation(what);
                }
                Event::Reset { reason } => {
                    let what = format!("{} was told to start over: {reason}", self.called());
                    self.sim.history.lock().violation(what);
                }
                _ => {}
            }
        }
        self.record(|recorder| recorder.shows(&self.state));
        self.seen.lock().outbox_len = self.state.outbox_len();
        // Once a device has a cursor it saves often, but not always.
        let has_cursor = |saved: &Option<_>| matches!(saved, Some((Saved { cursor: Some(_), .. }, _, _)));
        let first = !has_cursor(&self.saved) && self.state.cursor().is_some();
        if first || (some && self.sim.draw(|rng| rng.random_bool(0.5))) {
            self.save();
        }
    }

    fn save(&mut self) {
        let seen = self.seen.lock();
        self.saved = Some((self.state.saved(), seen.shown.clone(), seen.caught_up_at));
    }

    /// The application shows a message: each once, and in order.
    fn show(&mut self, message: &MessageFrame) {
        let (id, seq) = (&message.conversation_id, message.seq);
        let mut history = self.sim.history.lock();
        history.received(&self.user, message);
        if !self.shown_now.insert((id.clone(), seq)) {
            history.violation(format!("{}: {id} {seq} was shown twice", self.called()));
        }
        let mut seen = self.seen.lock();
        let strict_since = seen.caught_up_at;
        let shown = seen.shown.0.entry(id.clone()).or_default();
        // Messages stored after this device first caught up arrive in order. Before that it does
        // not know what it lacks. Own messages of other devices are not owed; a repeated delivery
        // may be late.
        let is_strict = |seq: Seq| {
            let stored = history.stored.get(&(id.clone(), seq));
            strict_since.is_some_and(|since| stored.is_some_and(|stored| stored.at_ms > since))
        };
        if is_strict(seq)
            && message.receiver == self.user
            && let Some(later) = shown.iter().copied().find(|&other| other > seq)
        {
            history.violation(format!("{}: {id} {seq} was shown after {later}", self.called()));
        }
        shown.push(seq);
    }

    async fn obey(&mut self, command: DeviceCommand) -> Option<LifeEnd> {
        note!(self.sim, "{}: {command:?}", self.called());
        match command {
            DeviceCommand::Send(to, body) => match self.state.send(Draft::text(to.clone(), body.clone())) {
                Ok(id) => self.record(|recorder| recorder.sent(&to, &body, &id)),
                Err(e) => self.sim.history.lock().violation(format!("{}: {e}", self.called())),
            },
            DeviceCommand::Read => {
                // Up to the newest message to this user: sending a message does not imply a read.
                let newest: Vec<_> = {
                    let (history, seen) = (self.sim.history.lock(), self.seen.lock());
                    let is_theirs = |id: &ConversationId, seq: Seq| {
                        let stored = history.stored.get(&(id.clone(), seq));
                        stored.is_some_and(|stored| stored.receiver == self.user)
                    };
                    let newest = |(id, seqs): (&ConversationId, &Vec<Seq>)| {
                        Some((id.clone(), seqs.iter().copied().filter(|&seq| is_theirs(id, seq)).max()?))
                    };
                    seen.shown.0.iter().filter_map(newest).collect()
                };
                if !newest.is_empty() {
                    let n = self.sim.draw(|rng| rng.random_range(0..newest.len()));
                    let (id, seq) = newest[n].clone();
                    self.record(|recorder| recorder.read(&id, seq));
                    self.state.read(id, seq);
                }
            }
            DeviceCommand::Stall(ms) => sleep(Duration::from_millis(ms)).await,
            DeviceCommand::Break(ms) => return Some(LifeEnd::Broken(ms)),
            DeviceCommand::Restart(ms) => return Some(LifeEnd::Restart(ms)),
            DeviceCommand::Forget(ms) => return Some(LifeEnd::Forget(ms)),
        }
        self.seen.lock().outbox_len = self.state.outbox_len();
        None
    }

    fn end(&mut self, end: LifeEnd) -> u64 {
        match end {
            LifeEnd::Broken(ms) => {
                self.sim.count(|f| f.broken_connections += 1);
                self.record(Recorder::lost);
                ms
            }
            LifeEnd::Restart(ms) => {
                self.sim.count(|f| f.restarted_devices += 1);
                if self.recorder.is_some() {
                    self.save();
                }
                self.record(Recorder::restarted);
                self.begin_from_saved();
                ms
            }
            LifeEnd::Forget(ms) => {
                self.sim.count(|f| f.forgetful_devices += 1);
                self.saved = None;
                self.record(Recorder::wiped);
                self.begin_from_saved();
                ms
            }
        }
    }

    /// What survives a restart: the client's and the application's state, saved together.
    fn begin_from_saved(&mut self) {
        let (saved, shown, caught_up_at) = match &self.saved {
            Some((saved, shown, at)) => (Some(saved.clone()), shown.clone(), *at),
            None => (None, ShownSeqs::default(), None),
        };
        let all = shown.0.iter().flat_map(|(id, seqs)| seqs.iter().map(|&seq| (id.clone(), seq)));
        self.shown_now = all.collect();
        self.state = ClientState::new(self.name.clone(), self.sim.draw(|rng| rng.random()), saved);
        let outbox_len = self.state.outbox_len();
        *self.seen.lock() = DeviceView { shown, caught_up_at, is_caught_up: false, outbox_len };
    }
}
