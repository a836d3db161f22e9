//! A device at the other end of a pair of channels. It records every frame; the test decides
//! whether it acks, answers pings, or reads at all.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bluetick_chat::session::{FrameSink, FrameSource, Gone, Incoming, OutboundQueue, Outgoing};
use bluetick_protocol::{
    CaughtUp, ErrorCode, MessageFrame, MessageId, Presence, Seq, ServerFrame, Ticks, UserId, Welcome,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{sync::mpsc, task::JoinHandle};

/// A device that is about to connect.
#[derive(Clone)]
pub struct TestDevice {
    pub user: UserId,
    pub name: String,
    pub cursor: Option<MessageId>,
    pub resumes: Option<String>,
    pub acks: bool,
    pub gateway: String,
}

impl TestDevice {
    /// A device that acks whatever it gets, and is new: it has no cursor.
    pub fn new(user: &str, name: &str) -> TestDevice {
        TestDevice {
            user: UserId::new(user).unwrap(),
            name: name.to_owned(),
            cursor: None,
            resumes: None,
            acks: true,
            gateway: "g1".to_owned(),
        }
    }

    pub fn with_cursor(self, cursor: MessageId) -> TestDevice {
        TestDevice { cursor: Some(cursor), ..self }
    }

    /// It resumes with everything that this client acked.
    pub fn resuming(self, client: &Client) -> TestDevice {
        let welcome = client.welcome();
        TestDevice { resumes: Some(welcome.session_id.to_string()), ..self }
    }

    /// It acks only when the test says so.
    pub fn without_acks(self) -> TestDevice {
        TestDevice { acks: false, ..self }
    }

    pub fn at_gateway(self, gateway: &str) -> TestDevice {
        TestDevice { gateway: gateway.to_owned(), ..self }
    }
}

pub fn phone(user: &str) -> TestDevice {
    TestDevice::new(user, "phone")
}

pub fn tablet(user: &str) -> TestDevice {
    TestDevice::new(user, "tablet")
}

/// What is shared between the test and the session's end of the channels.
struct ClientLine {
    user: UserId,
    frames: Vec<ServerFrame>,
    acks: bool,
    /// How many more frames the socket takes; `None`: any number.
    takes: Option<usize>,
    waker: Option<Waker>,
}

pub struct Client {
    line: Arc<Mutex<ClientLine>>,
    to_server: mpsc::UnboundedSender<Incoming<String>>,
    pub(super) session: JoinHandle<()>,
}

pub struct ClientSource(mpsc::UnboundedReceiver<Incoming<String>>);

pub struct ClientSink {
    line: Arc<Mutex<ClientLine>>,
    to_server: mpsc::UnboundedSender<Incoming<String>>,
}

impl FrameSource for ClientSource {
    type Text = String;

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Incoming<String>> {
        self.0.poll_recv(cx).map(|incoming| incoming.unwrap_or(Incoming::Closed))
    }
}

impl FrameSink for ClientSink {
    fn poll_write(&mut self, cx: &mut Context<'_>, queue: &mut OutboundQueue) -> Poll<Result<(), Gone>> {
        let mut line = self.line.lock();
        while !queue.is_empty() {
            if line.takes == Some(0) {
                line.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            line.takes = line.takes.map(|n| n - 1);
            if let Some(answer) = queue.pop_front().and_then(|frame| line.take(frame)) {
                let _ = self.to_server.send(answer);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl ClientLine {
    /// Records a frame; returns what the device answers by itself.
    fn take(&mut self, frame: Outgoing) -> Option<Incoming<String>> {
        match frame {
            Outgoing::Ping => Some(Incoming::Alive),
            Outgoing::Close(..) => None,
            Outgoing::Text(text) => {
                let frame: ServerFrame = serde_json::from_str(&text).unwrap();
                let ack = match &frame {
                    ServerFrame::Message(m) if self.acks && m.receiver == self.user => {
                        Some(receipt("ack", m.conversation_id.as_str(), m.seq))
                    }
                    _ => None,
                };
                self.frames.push(frame);
                ack.map(|ack| Incoming::Text(ack.to_string()))
            }
        }
    }
}

fn receipt(kind: &str, conversation: &str, seq: Seq) -> Value {
    json!({"type": kind, "conversation_id": conversation, "seq": seq})
}

impl Client {
    /// The two ends of a connection, and what makes a client of them once the session runs.
    pub(super) fn line(
        device: &TestDevice,
    ) -> (ClientSource, ClientSink, impl FnOnce(JoinHandle<()>) -> Client + use<>) {
        let (to_server, from_client) = mpsc::unbounded_channel();
        let line = Arc::new(Mutex::new(ClientLine {
            user: device.user.clone(),
            frames: Vec::new(),
            acks: device.acks,
            takes: None,
            waker: None,
        }));
        let hello = json!({
            "type": "hello",
            "token": device.user,
            "device": device.name,
            "cursor": device.cursor,
            "resumes": device.resumes,
        });
        let _ = to_server.send(Incoming::Text(hello.to_string()));
        let sink = ClientSink { line: line.clone(), to_server: to_server.clone() };
        (ClientSource(from_client), sink, move |session| Client { line, to_server, session })
    }

    pub fn say(&self, frame: Value) {
        let _ = self.to_server.send(Incoming::Text(frame.to_string()));
    }

    /// The body is also the `client_msg_id` and the `ref`.
    pub fn send(&self, to: &str, body: &str) {
        self.say(json!({"type": "send", "ref": body, "client_msg_id": body, "to": to, "body": body}));
    }

    pub fn ack(&self, conversation: &str, seq: Seq) {
        self.say(receipt("ack", conversation, seq));
    }

    pub fn read(&self, conversation: &str, seq: Seq) {
        self.say(receipt("read", conversation, seq));
    }

    pub fn start_acking(&self) {
        self.line.lock().acks = true;
    }

    /// The socket accepts so many more frames, then none until the next call.
    pub fn take_only(&self, frames: usize) {
        let mut line = self.line.lock();
        line.takes = Some(frames);
        line.waker.take().into_iter().for_each(Waker::wake);
    }

    /// Drops the connection and waits until the session has ended.
    pub async fn vanish(self) -> Vec<ServerFrame> {
        let _ = self.to_server.send(Incoming::Closed);
        self.ended().await
    }

    /// Closes the connection and does not wait for the session.
    pub fn start_to_vanish(&self) {
        let _ = self.to_server.send(Incoming::Closed);
    }

    /// Waits until the session has ended; returns all that it said.
    pub async fn ended(self) -> Vec<ServerFrame> {
        self.session.await.unwrap();
        std::mem::take(&mut self.line.lock().frames)
    }

    pub fn has_ended(&self) -> bool {
        self.session.is_finished()
    }

    pub fn frames(&self) -> Vec<ServerFrame> {
        self.line.lock().frames.clone()
    }

    fn all<T>(&self, pick: impl FnMut(ServerFrame) -> Option<T>) -> Vec<T> {
        self.frames().into_iter().filter_map(pick).collect()
    }

    /// The messages, in the order they came.
    pub fn messages(&self) -> Vec<MessageFrame> {
        self.all(|frame| match frame {
            ServerFrame::Message(message) => Some(message),
            _ => None,
        })
    }

    /// What the user sees: the bodies without duplicates, in the order of their first arrival.
    pub fn bodies(&self) -> Vec<String> {
        let mut seen = std::collections::BTreeSet::new();
        let fresh = |m: &MessageFrame| seen.insert((m.conversation_id.clone(), m.seq));
        self.messages().into_iter().filter(fresh).map(|m| m.body).collect()
    }

    pub fn seqs(&self) -> Vec<Seq> {
        self.messages().iter().map(|m| m.seq).collect()
    }

    pub fn caught_up(&self) -> Vec<CaughtUp> {
        self.all(|frame| match frame {
            ServerFrame::CaughtUp(caught_up) => Some(caught_up),
            _ => None,
        })
    }

    pub fn welcome(&self) -> Welcome {
        let welcome = |frame: &ServerFrame| match frame {
            ServerFrame::Welcome(welcome) => Some(welcome.clone()),
            _ => None,
        };
        self.line.lock().frames.iter().find_map(welcome).expect("this device was welcomed")
    }

    /// The cursor that this device keeps: the one of its `caught_up`.
    pub fn cursor(&self) -> MessageId {
        self.caught_up().first().expect("this device has caught up").cursor
    }

    pub fn ticks(&self) -> Vec<Ticks> {
        self.all(|frame| match frame {
            ServerFrame::Ticks(ticks) => Some(ticks),
            _ => None,
        })
    }

    pub fn presence(&self) -> Vec<Presence> {
        self.all(|frame| match frame {
            ServerFrame::Presence(presence) => Some(presence),
            _ => None,
        })
    }

    pub fn resets(&self) -> Vec<String> {
        self.all(|frame| match frame {
            ServerFrame::Reset(reset) => Some(reset.reason),
            _ => None,
        })
    }

    /// The answers to sends: the seq, and whether it was a duplicate.
    pub fn sent(&self) -> Vec<(Seq, bool)> {
        self.all(|frame| match frame {
            ServerFrame::Sent(sent) => Some((sent.seq, sent.duplicate)),
            _ => None,
        })
    }

    pub fn errors(&self) -> Vec<ErrorCode> {
        self.all(|frame| match frame {
            ServerFrame::Error(error) => Some(error.error.code),
            _ => None,
        })
    }

    pub fn bye(&self) -> Option<ErrorCode> {
        let byes = self.all(|frame| match frame {
            ServerFrame::Bye(bye) => Some(bye.code),
            _ => None,
        });
        byes.first().copied()
    }
}
