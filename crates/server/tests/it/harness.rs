//! A server of the test's own, and people who connect to it. What the server is made of says `deployment`.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Output},
    sync::atomic::{AtomicU16, AtomicU64, Ordering},
    time::Duration,
};

use bluetick_client::RawConnection;
use bluetick_protocol::*;
use serde_json::Value;

use crate::deployment::Deployment;

pub const SOON: Duration = Duration::from_secs(15);
pub const SHORT: Duration = Duration::from_millis(300);

pub fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_bluetick")
}

/// A running server, whatever it is made of: the crate of the tests says that in its `deployment`. It is stopped when
/// the test ends.
pub struct Server {
    // Dropped first: what runs in the directory ends before the directory does.
    pub deployment: Deployment,
    pub dir: tempfile::TempDir,
    pub address: String,
}

impl Server {
    pub fn start() -> Server {
        Server::with(&[])
    }

    /// A server that is not running yet, for tests that stop and start it often. Its port is one that no outgoing
    /// connection gets by chance while the server is down.
    pub fn prepared(settings: &[(&'static str, &str)]) -> Server {
        let address = format!("127.0.0.1:{}", quiet_port());
        let dir = tempfile::tempdir().unwrap();
        Server { deployment: Deployment::new(settings), dir, address }
    }

    /// Sets one more setting for every later start.
    pub fn set(&mut self, key: &'static str, value: &str) {
        self.deployment.set(key, value);
    }

    /// Starts with settings as the environment gives them: `("BLUETICK_LIMITS__MAX_SESSIONS", "2")`.
    pub fn with(settings: &[(&'static str, &str)]) -> Server {
        let dir = tempfile::tempdir().unwrap();
        let mut server = Server { deployment: Deployment::new(settings), dir, address: "127.0.0.1:0".into() };
        server.restart();
        server
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// A token made without asking the server.
    pub fn mint(&self, user: &str) -> String {
        let secret = std::fs::read_to_string(self.data().join("jwt.secret")).unwrap();
        let claims = serde_json::json!({"sub": user, "exp": 4_000_000_000u64});
        let key = jsonwebtoken::EncodingKey::from_secret(secret.trim().as_bytes());
        jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).unwrap()
    }

    /// The key of the demo of this start.
    pub fn demo_key(&self) -> String {
        std::fs::read_to_string(self.data().join("demo.key")).unwrap()
    }

    /// What `bluetick inspect` asks for, without starting it.
    pub async fn rows(&self, what: &str, user: &str) -> Vec<Value> {
        let key = std::fs::read_to_string(self.data().join("admin.key")).unwrap();
        let path = self.http(&format!("/admin/v1/users/{user}/{what}"));
        let answer = crate::http::client().get(path).bearer_auth(key.trim()).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.status());
        serde_json::from_str::<Vec<Value>>(&answer.text().await.unwrap()).unwrap()
    }

    pub fn url(&self) -> String {
        format!("ws://{}/v1/ws", self.address)
    }

    pub fn http(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) {
        self.deployment.kill();
    }

    /// Asks it to stop and waits. Returns the exit code.
    pub fn terminate(&mut self) -> Option<i32> {
        self.deployment.terminate()
    }

    /// Starts it again on the same data and address.
    pub fn restart(&mut self) {
        self.address = self.deployment.start(&self.data(), &self.address);
    }

    /// Runs another command of the binary on this server's data directory.
    pub fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(binary());
        command.args(args).arg("--data").arg(self.data());
        if !matches!(args[0], "token" | "restore") {
            command.args(["--server", &self.http("")]);
        }
        command.output().unwrap()
    }

    pub fn token(&self, user: &str) -> String {
        let output = self.run(&["token", "--user", user]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// `bluetick inspect … --json`.
    pub fn inspect(&self, what: &str, user: &str) -> Value {
        let output = self.run(&["inspect", what, "--user", user, "--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The pending rows of a user as `(conversation, first_undelivered_seq)`.
    pub fn pending(&self, user: &str) -> Vec<(String, u64)> {
        let rows = self.inspect("pending", user);
        let row = |row: &Value| {
            assert_eq!(row["receiver_id"], user);
            (
                row["conversation_id"].as_str().unwrap().to_owned(),
                row["first_undelivered_seq"].as_u64().unwrap(),
            )
        };
        rows.as_array().unwrap().iter().map(row).collect()
    }

    /// Waits until a user's pending rows are these.
    pub async fn pending_becomes(&self, user: &str, expected: &[(&str, u64)]) {
        let expected: Vec<_> = expected.iter().map(|(id, seq)| ((*id).to_owned(), *seq)).collect();
        for _ in 0..100 {
            if self.pending(user) == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("pending rows of {user} are {:?}, not {expected:?}", self.pending(user));
    }

    /// A person on a device that has not been here before, caught up.
    pub async fn connect(&self, user: &str, device: &str) -> Person {
        let mut person = self.open(user, device, None).await;
        person.caught_up().await;
        person
    }

    /// The same, but what follows `welcome` is not read yet.
    pub async fn open(&self, user: &str, device: &str, cursor: Option<MessageId>) -> Person {
        let token = self.token(user);
        Person::open(&self.url(), &token, user, device, cursor).await
    }

    /// Memory of its processes, in bytes.
    pub fn rss(&self) -> u64 {
        self.deployment.pids().into_iter().map(rss_of).sum()
    }
}

fn rss_of(pid: u32) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Waits until a process says where it listens. None: it ended before. Whatever it says later is read and dropped, so
/// that it never blocks on its own output.
pub fn listening(child: &mut Child) -> Option<String> {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The first line with an address says it.
    let address = loop {
        let line = lines.next()?.unwrap();
        if let Some(at) = line.find("http://") {
            let rest = &line[at + "http://".len()..];
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || ".:[]-".contains(c)));
            break rest[..end.unwrap_or(rest.len())].trim_end_matches('.').to_owned();
        }
    };
    std::thread::spawn(move || lines.for_each(drop));
    Some(address)
}

/// Asks a process to stop and waits. Returns the exit code.
pub fn terminate(mut child: Child) -> Option<i32> {
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    child.wait().unwrap().code()
}

/// A free port below those that the system gives to outgoing connections.
pub fn quiet_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = (std::process::id() % 150) as u16 * 100;
    loop {
        let port = 12_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A fresh client_msg_id.
pub fn fresh_id() -> ClientMsgId {
    ClientMsgId::new(&format!("m-{}", NEXT_ID.fetch_add(1, Ordering::Relaxed))).unwrap()
}

pub fn conversation(id: &str) -> ConversationId {
    ConversationId::new(id).unwrap()
}

pub fn user(id: &str) -> UserId {
    UserId::new(id).unwrap()
}

pub fn send_frame(to: &str, body: &str) -> Send {
    Send {
        reference: None,
        client_msg_id: fresh_id(),
        to: Some(user(to)),
        conversation_id: None,
        body: body.into(),
        attachment: None,
        meta: None,
        seen_seq: None,
    }
}

/// One connection of one user.
pub struct Person {
    pub name: String,
    pub welcome: Welcome,
    pub wire: RawConnection,
    /// The message_id up to which this device holds everything.
    pub cursor: Option<MessageId>,
}

impl Person {
    pub async fn open(url: &str, token: &str, name: &str, device: &str, cursor: Option<MessageId>) -> Person {
        Person::open_again(url, token, name, device, cursor, None).await
    }

    /// A device that lost its connection and nothing else.
    pub async fn open_again(
        url: &str,
        token: &str,
        name: &str,
        device: &str,
        cursor: Option<MessageId>,
        resumes: Option<SessionId>,
    ) -> Person {
        let mut wire = RawConnection::connect(url).await.unwrap();
        let (token, device) = (token.to_owned(), DeviceId::new(device).unwrap());
        let hello = Hello { reference: None, token, device, cursor, resumes };
        let welcome = wire.hello_as(hello).await.unwrap();
        assert_eq!(welcome.user_id.as_str(), name);
        Person { name: name.to_owned(), welcome, wire, cursor }
    }

    pub async fn say(&mut self, frame: ClientFrame) {
        self.wire.send_frame(&frame).await.unwrap();
    }

    /// Reads on to the next frame that fits.
    pub async fn wait<T>(&mut self, pick: impl FnMut(ServerFrame) -> Option<T>) -> T {
        let name = self.name.clone();
        self.wire.next_where(SOON, pick).await.unwrap_or_else(|e| panic!("{name} waited in vain: {e}"))
    }

    pub async fn send(&mut self, to: &str, body: &str) -> Sent {
        self.send_as(send_frame(to, body)).await
    }

    pub async fn send_as(&mut self, send: Send) -> Sent {
        let id = send.client_msg_id.clone();
        self.say(ClientFrame::Send(send)).await;
        self.wait(|frame| match frame {
            ServerFrame::Sent(sent) if sent.client_msg_id == id => Some(sent),
            ServerFrame::Error(e) => panic!("not sent: {:?}", e.error),
            _ => None,
        })
        .await
    }

    /// Sends what is refused, and gives the error.
    pub async fn send_refused(&mut self, send: Send) -> WireError {
        self.say(ClientFrame::Send(send)).await;
        self.error().await
    }

    pub async fn error(&mut self) -> WireError {
        self.wait(|frame| match frame {
            ServerFrame::Error(e) => Some(e.error),
            _ => None,
        })
        .await
    }

    pub async fn message(&mut self) -> MessageFrame {
        self.wait(|frame| match frame {
            ServerFrame::Message(message) => Some(message),
            _ => None,
        })
        .await
    }

    /// The messages up to `caught_up`, and what it says.
    pub async fn caught_up(&mut self) -> (Vec<MessageFrame>, CaughtUp) {
        let mut messages = Vec::new();
        let caught_up = self
            .wait(|frame| match frame {
                ServerFrame::Message(message) => {
                    messages.push(message);
                    None
                }
                ServerFrame::CaughtUp(caught_up) => Some(caught_up),
                _ => None,
            })
            .await;
        self.cursor = self.cursor.max(Some(caught_up.cursor));
        (messages, caught_up)
    }

    /// Acks a message without waiting for anything, and moves the cursor as a client does.
    pub async fn ack(&mut self, message: &MessageFrame) {
        let conversation_id = message.conversation_id.clone();
        self.say(ClientFrame::Ack(Receipt { reference: None, conversation_id, seq: message.seq })).await;
        self.cursor = self.cursor.max(Some(message.message_id));
    }

    /// Acks and waits until it is durable; other frames that come meanwhile are dropped.
    pub async fn ack_seq(&mut self, id: &str, seq: Seq) {
        self.receipt(id, seq, ClientFrame::Ack).await;
    }

    pub async fn read(&mut self, id: &str, seq: Seq) {
        self.receipt(id, seq, ClientFrame::Read).await;
    }

    async fn receipt(&mut self, id: &str, seq: Seq, kind: fn(Receipt) -> ClientFrame) {
        let reference = Ref::Text(fresh_id().to_string());
        let receipt = Receipt { reference: Some(reference.clone()), conversation_id: conversation(id), seq };
        self.say(kind(receipt)).await;
        self.wait(|frame| match frame {
            ServerFrame::Done(done) if done.reference == reference => Some(()),
            ServerFrame::Error(e) => panic!("receipt refused: {:?}", e.error),
            _ => None,
        })
        .await;
    }

    /// The next ticks of somebody in a conversation.
    pub async fn ticks(&mut self, whose: &str) -> (Seq, Seq) {
        self.wait(|frame| match frame {
            ServerFrame::Ticks(t) if t.user_id.as_str() == whose => {
                Some((t.last_delivered_seq, t.last_read_seq))
            }
            _ => None,
        })
        .await
    }

    pub async fn bye(&mut self) -> Bye {
        self.wait(|frame| match frame {
            ServerFrame::Bye(bye) => Some(bye),
            _ => None,
        })
        .await
    }

    /// Nothing of a kind comes for a moment.
    pub async fn hears_no<T: std::fmt::Debug>(&mut self, pick: impl FnMut(ServerFrame) -> Option<T>) {
        let heard = self.wire.next_where(SHORT, pick).await;
        assert!(heard.is_err(), "{} heard {heard:?}", self.name);
    }

    pub async fn hears_no_message(&mut self) {
        self.hears_no(|frame| matches!(frame, ServerFrame::Message(_)).then_some(frame)).await;
    }

    pub async fn inbox(&mut self, limit: Option<u32>, before: Option<String>) -> InboxPage {
        self.say(ClientFrame::Inbox(InboxQuery { reference: None, limit, before })).await;
        self.wait(|frame| match frame {
            ServerFrame::Inbox(page) => Some(page),
            _ => None,
        })
        .await
    }

    pub async fn history(
        &mut self,
        id: &str,
        after: Option<Seq>,
        before: Option<Seq>,
        limit: u32,
    ) -> HistoryPage {
        self.say(ClientFrame::History(HistoryQuery {
            reference: None,
            conversation_id: conversation(id),
            after_seq: after,
            before_seq: before,
            limit: Some(limit),
        }))
        .await;
        self.wait(|frame| match frame {
            ServerFrame::History(page) => Some(page),
            _ => None,
        })
        .await
    }

    pub async fn status(&mut self, id: &str) -> StatusAnswer {
        let query = InConversation { reference: None, conversation_id: conversation(id) };
        self.say(ClientFrame::Status(query)).await;
        self.wait(|frame| match frame {
            ServerFrame::Status(status) => Some(status),
            _ => None,
        })
        .await
    }

    /// Goes away properly.
    pub async fn leave(self) {
        self.wire.close().await;
    }

    /// Goes away as a dead phone does.
    pub fn vanish(self) {
        self.wire.abort();
    }
}

/// Waits for the session store to notice that somebody left.
pub async fn gone(server: &Server, name: &str) {
    for _ in 0..100 {
        if server.inspect("sessions", name).as_array().unwrap().is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{name} is still registered");
}

pub fn bodies(messages: &[MessageFrame]) -> Vec<&str> {
    messages.iter().map(|m| m.body.as_str()).collect()
}
