//! People who go on writing and reading while their server dies again and again.
//!
//! - alice writes to the three others, and her client sends again what was not confirmed;
//! - bob has a phone that is always there: the real client, with its cursor; he reads now and then, and answers;
//! - carol is never there while the server may die. She comes afterwards, without a cursor, and has only the pending
//!   rows to go by;
//! - dave comes and goes: he drains and acks, leaves with messages unacked, or vanishes. His device drops what it
//!   has seen and repairs nothing: what the stream does not bring is lost to him;
//! - the eves write to frank, and are erased.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bluetick_client::{Client, Draft, Event, Events, Options, RawConnection, RawError};
use bluetick_protocol::*;
use serde_json::json;
use tokio::sync::watch;

use crate::{
    harness::*,
    history::History,
    rows::{StoredRows, wait_for},
};

/// Messages that alice has on their way at a time.
const AHEAD: usize = 24;
const FILLER: &str = "whatever happens, this arrives; ";

pub struct Town {
    pub server: Server,
    shared: TownState,
    alice: Client,
    bob: Client,
    carol: PlainDevice,
    dave: Arc<tokio::sync::Mutex<PlainDevice>>,
    erasing: Arc<tokio::sync::Mutex<Erasing>>,
    at_work: watch::Sender<bool>,
    /// How much of each conversation has been compared.
    compared: BTreeMap<ConversationId, Seq>,
}

/// What the people's tasks have in common.
#[derive(Clone)]
struct TownState {
    history: Arc<Mutex<History>>,
    url: String,
}

impl TownState {
    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap()
    }
}

impl Town {
    /// Everybody moves into a server that runs.
    pub fn found_in(server: Server) -> Town {
        let shared = TownState { history: Arc::default(), url: server.url() };
        let connect = |name: &str| {
            let options = Options::new(server.url(), DeviceId::new("phone").unwrap(), server.mint(name));
            Client::connect(options)
        };
        let ((alice, alice_hears), (bob, bob_hears)) = (connect("alice"), connect("bob"));
        let (at_work, working) = watch::channel(false);
        let dave = Arc::new(tokio::sync::Mutex::new(PlainDevice::new(&server, "dave", true)));
        let erasing = Arc::new(tokio::sync::Mutex::new(Erasing::new(&server)));
        tokio::spawn(write(alice.clone(), shared.clone(), working.clone()));
        tokio::spawn(listen_as_alice(alice_hears, shared.clone()));
        tokio::spawn(listen_as_bob(bob.clone(), bob_hears, shared.clone()));
        tokio::spawn(come_and_go(dave.clone(), shared.clone(), working.clone()));
        tokio::spawn(write_and_be_erased(erasing.clone(), working));
        let carol = PlainDevice::new(&server, "carol", false);
        Town { server, shared, alice, bob, carol, dave, erasing, at_work, compared: BTreeMap::new() }
    }

    pub fn told_so_far(&self) -> usize {
        self.shared.history().told_so_far()
    }

    pub async fn begin_work(&self) {
        for client in [&self.alice, &self.bob] {
            client.go_online().await.unwrap();
        }
        self.at_work.send_replace(true);
    }

    pub async fn end_work(&self) {
        self.at_work.send_replace(false);
        for client in [&self.alice, &self.bob] {
            client.go_offline().await.unwrap();
        }
    }

    /// The same, with every conversation from its first message on; and then everybody reads.
    pub async fn check_all(&mut self, after: &str) {
        self.compared.clear();
        self.check(after).await;
        self.everybody_reads(after).await;
        self.shared.history().is_sound(after);
    }

    /// Lets everything come to rest, and compares what everybody has and knows.
    pub async fn check(&mut self, after: &str) {
        for client in [&self.alice, &self.bob] {
            client.go_online().await.unwrap();
        }
        let shared = self.shared.clone();
        // Unconfirmed sends are made again with the same ids, and only then is it known what must arrive.
        let in_vain = || format!("after {after}: {} sends get no answer", shared.history().unanswered());
        wait_for(in_vain, || shared.history().unanswered() == 0).await;

        for device in [&mut self.carol, &mut *self.dave.lock().await] {
            let name = device.name.clone();
            let drained = device.visit(&shared, Visit::Drain, &mut self.at_work.subscribe()).await;
            drained.unwrap_or_else(|e| panic!("after {after}: {name} could not drain: {e}"));
            let missing = shared.history().missing(&name, &device.user);
            assert!(missing.is_empty(), "after {after}: {name} is caught up and lacks {missing:?}");
        }
        for name in ["bob", "alice"] {
            let missing = || shared.history().missing(name, &user(name));
            wait_for(|| format!("after {after}: {name} lacks {:?}", missing()), || missing().is_empty())
                .await;
        }
        let rows = StoredRows { server: &self.server, client: &self.alice, history: &self.shared.history };
        for name in ["alice", "bob", "carol", "dave"] {
            rows.pending_go(name, after).await;
        }
        for name in ["bob", "carol", "dave"] {
            let known = self.compared.entry(conversation(&format!("alice~{name}"))).or_default();
            *known = rows.compare(&conversation(&format!("alice~{name}")), *known).await;
        }
        self.erasing.lock().await.finish(&self.server, &shared).await;
        shared.history().is_sound(after);
    }

    /// Everybody reads everything, and nobody has anything unread.
    async fn everybody_reads(&self, after: &str) {
        let rows = StoredRows { server: &self.server, client: &self.alice, history: &self.shared.history };
        for (id, last) in &self.compared {
            rows.all_turn_blue(id, *last, after).await;
            let peer = user(id.as_str().split_once('~').unwrap().1);
            let seen = || self.shared.history().seen_of(&peer, id).last_read_seq;
            let in_vain = || format!("after {after}: alice sees {peer}'s ticks at {}, not {last}", seen());
            wait_for(in_vain, || seen() >= *last).await;
        }
    }
}

async fn write(alice: Client, shared: TownState, mut working: watch::Receiver<bool>) {
    for n in 0u64.. {
        if working.wait_for(|at_work| *at_work).await.is_err() {
            return;
        }
        if shared.history().unanswered() >= AHEAD {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        // Dave hears nothing for a while now and then: a row goes when all of it is acked, and nothing follows at once.
        let others = if (n / 60).is_multiple_of(2) { 3 } else { 2 };
        let to = ["bob", "carol", "dave"][n as usize % others];
        // Some are long, so that a group is not always one page.
        let body = format!("alice {n} {}", FILLER.repeat(if n % 10 == 0 { 150 } else { 10 }));
        if post(&alice, &shared, to, &format!("alice~{to}"), body).await.is_none() {
            return;
        }
    }
}

async fn post(client: &Client, shared: &TownState, to: &str, id: &str, body: String) -> Option<()> {
    let named = client.post(Draft::text(user(to), body.clone())).await.ok()?;
    shared.history().posted(named, conversation(id), body);
    Some(())
}

/// A client that knows all up to its own message says with the next one that it has read so far.
fn told(history: &mut History, name: &str, sent: Sent) {
    history.will_read(&user(name), &sent.conversation_id, sent.seq);
    history.told(sent);
}

async fn listen_as_alice(mut hears: Events, shared: TownState) {
    while let Some(event) = hears.next().await {
        let mut history = shared.history();
        match event {
            Event::Sent(sent) => told(&mut history, "alice", sent),
            Event::Message(m) => {
                history.received("alice", &m);
                // Her client acks by itself, and her next message says that she has read this.
                history.will_read(&user("alice"), &m.conversation_id, m.seq);
            }
            // The rest of the devices say what they do before they do it; bob's client acks by itself.
            Event::Ticks(ticks) if ["carol", "dave"].contains(&ticks.user_id.as_str()) => {
                history.ticked_exactly(&ticks)
            }
            Event::Ticks(ticks) => history.ticked(&ticks),
            Event::SendFailed { client_msg_id, error } => {
                history.fault(format!("{client_msg_id} was refused for good: {error}"))
            }
            _ => {}
        }
    }
}

async fn listen_as_bob(bob: Client, mut hears: Events, shared: TownState) {
    let mut count = 0u64;
    while let Some(event) = hears.next().await {
        match event {
            Event::Message(m) => {
                count += 1;
                {
                    let mut history = shared.history();
                    history.received("bob", &m);
                    history.will_ack(&user("bob"), &m.conversation_id, m.seq);
                    if count.is_multiple_of(3) {
                        history.will_read(&user("bob"), &m.conversation_id, m.seq);
                    }
                }
                if count.is_multiple_of(3) {
                    let _ = bob.read(m.conversation_id.clone(), m.seq).await;
                }
                if count.is_multiple_of(7) {
                    shared.history().will_read(&user("bob"), &m.conversation_id, m.seq);
                    let answer = format!("bob {count} {}", FILLER.repeat(5));
                    post(&bob, &shared, "alice", "alice~bob", answer).await;
                }
            }
            Event::Sent(sent) => told(&mut shared.history(), "bob", sent),
            Event::SendFailed { client_msg_id, error } => {
                shared.history().fault(format!("{client_msg_id} was refused for good: {error}"))
            }
            _ => {}
        }
    }
}

async fn come_and_go(
    dave: Arc<tokio::sync::Mutex<PlainDevice>>,
    shared: TownState,
    mut working: watch::Receiver<bool>,
) {
    for turn in 0u32.. {
        if working.wait_for(|at_work| *at_work).await.is_err() {
            return;
        }
        let visit = [Visit::Drain, Visit::Owe, Visit::Owe, Visit::Vanish][turn as usize % 4];
        // The server may die in the middle of it: that is what this is for.
        if dave.lock().await.visit(&shared, visit, &mut working).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visit {
    /// Acks everything, waits until that is durable, and leaves.
    Drain,
    /// Acks some, and leaves owing acks for others.
    Owe,
    /// The same, as a dead phone does.
    Vanish,
}

/// A device of the plainest kind: it drops what it has seen, and keeps a cursor or none.
struct PlainDevice {
    user: UserId,
    name: String,
    token: String,
    keeps_cursor: bool,
    cursor: Option<MessageId>,
    /// It never loses what it acked, only its connection.
    session: Option<SessionId>,
}

impl PlainDevice {
    fn new(server: &Server, name: &str, keeps_cursor: bool) -> PlainDevice {
        let token = server.mint(name);
        PlainDevice {
            user: user(name),
            name: name.to_owned(),
            token,
            keeps_cursor,
            cursor: None,
            session: None,
        }
    }

    /// One connection. Unless it is to drain, it ends when the work does.
    async fn visit(
        &mut self,
        shared: &TownState,
        visit: Visit,
        working: &mut watch::Receiver<bool>,
    ) -> Result<(), RawError> {
        let mut wire = RawConnection::connect(&shared.url).await?;
        let (token, device) = (self.token.clone(), DeviceId::new("phone").unwrap());
        let (cursor, resumes) = (self.cursor, self.session.filter(|_| self.keeps_cursor));
        let welcome = wire.hello_as(Hello { reference: None, token, device, cursor, resumes }).await?;
        self.session = Some(welcome.session_id);
        let (mut got, mut last) = (0, None);
        loop {
            let frame = tokio::select! {
                frame = wire.next_frame(SOON) => frame?,
                _ = working.wait_for(|at_work| !at_work), if visit != Visit::Drain => break,
            };
            match frame {
                ServerFrame::Message(m) => {
                    got += 1;
                    shared.history().received(&self.name, &m);
                    if visit == Visit::Drain || got <= 2 {
                        self.ack(&mut wire, shared, &m).await?;
                    }
                    if visit != Visit::Drain && got == 5 {
                        break;
                    }
                    last = Some(m);
                }
                ServerFrame::CaughtUp(caught_up) => {
                    if self.keeps_cursor {
                        self.cursor = self.cursor.max(Some(caught_up.cursor));
                    }
                    if visit == Visit::Drain {
                        break;
                    }
                }
                ServerFrame::Bye(bye) => {
                    return Err(RawError::Closed { code: None, reason: bye.reason });
                }
                _ => {}
            }
        }
        match (visit, last) {
            (Visit::Vanish, _) => wire.abort(),
            (Visit::Owe, _) | (Visit::Drain, None) => wire.close().await,
            (Visit::Drain, Some(last)) => {
                self.read(&mut wire, shared, &last).await?;
                wire.close().await;
            }
        }
        Ok(())
    }

    async fn ack(
        &mut self,
        wire: &mut RawConnection,
        shared: &TownState,
        m: &MessageFrame,
    ) -> Result<(), RawError> {
        shared.history().will_ack(&self.user, &m.conversation_id, m.seq);
        let ack = Receipt { reference: None, conversation_id: m.conversation_id.clone(), seq: m.seq };
        wire.send_frame(&ClientFrame::Ack(ack)).await?;
        if self.keeps_cursor {
            self.cursor = self.cursor.max(Some(m.message_id));
        }
        Ok(())
    }

    /// Reads up to here, and waits until the server has it.
    async fn read(
        &mut self,
        wire: &mut RawConnection,
        shared: &TownState,
        m: &MessageFrame,
    ) -> Result<(), RawError> {
        shared.history().will_read(&self.user, &m.conversation_id, m.seq);
        let (reference, conversation_id) = (Some(Ref::Number(1)), m.conversation_id.clone());
        wire.send_frame(&ClientFrame::Read(Receipt { reference, conversation_id, seq: m.seq })).await?;
        wire.next_where(SOON, |frame| match frame {
            ServerFrame::Done(_) => Some(()),
            // What came meanwhile was not drained for this visit; it will come again.
            _ => None,
        })
        .await
    }
}

/// Users who come, write to frank and are erased, one after the other.
struct Erasing {
    http: reqwest::Client,
    base: String,
    admin_key: String,
    next: u64,
    tokens: BTreeMap<String, String>,
    /// Whose erasure was begun and not confirmed, and whose was.
    begun: Vec<String>,
    erased: Vec<String>,
}

impl Erasing {
    fn new(server: &Server) -> Erasing {
        let admin_key = std::fs::read_to_string(server.data().join("admin.key")).unwrap().trim().to_owned();
        let tokens = (0..200).map(|n| format!("eve{n}")).map(|eve| (eve.clone(), server.mint(&eve)));
        Erasing {
            http: crate::http::client(),
            base: server.http(""),
            admin_key,
            next: 0,
            tokens: tokens.collect(),
            begun: Vec::new(),
            erased: Vec::new(),
        }
    }

    async fn one(&mut self) -> reqwest::Result<()> {
        let eve = format!("eve{}", self.next % self.tokens.len() as u64);
        self.next += 1;
        let token = &self.tokens[&eve];
        for n in 0..2 {
            let body =
                json!({"client_msg_id": format!("{eve}-{}-{n}", self.next), "to": "frank", "body": FILLER});
            let send = self.http.post(format!("{}/v1/messages", self.base)).bearer_auth(token).json(&body);
            send.send().await?.error_for_status()?;
        }
        self.begun.push(eve.clone());
        self.erase(&eve).await?;
        self.begun.retain(|begun| *begun != eve);
        self.erased.push(eve);
        Ok(())
    }

    async fn erase(&self, eve: &str) -> reqwest::Result<()> {
        let path = format!("{}/admin/v1/users/{eve}/erase", self.base);
        self.http.post(path).bearer_auth(&self.admin_key).send().await?.error_for_status()?;
        Ok(())
    }

    /// What was not confirmed is asked for again; then nothing of any of them is left.
    async fn finish(&mut self, server: &Server, shared: &TownState) {
        for eve in std::mem::take(&mut self.begun) {
            self.erase(&eve).await.unwrap();
            self.erased.push(eve);
        }
        for eve in std::mem::take(&mut self.erased) {
            for what in ["conversations", "pending", "status"] {
                let rows = server.rows(what, &eve).await;
                if !rows.is_empty() {
                    shared.history().fault(format!("{eve} was erased and still has {rows:?}"));
                }
            }
        }
    }
}

async fn write_and_be_erased(erasing: Arc<tokio::sync::Mutex<Erasing>>, mut working: watch::Receiver<bool>) {
    while working.wait_for(|at_work| *at_work).await.is_ok() {
        if erasing.lock().await.one().await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
