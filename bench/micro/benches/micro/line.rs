//! A device at the other end of two channels. It reads only the type of a frame, because its own
//! work is counted too.

use std::task::{Context, Poll};

use bluetick_chat::session::{FrameSink, FrameSource, Gone, Incoming, OutboundQueue, Outgoing};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinHandle,
};

pub struct BenchDevice {
    to_server: UnboundedSender<Incoming<String>>,
    from_server: UnboundedReceiver<String>,
    session: JoinHandle<()>,
}

pub struct BenchSource(UnboundedReceiver<Incoming<String>>);

pub struct BenchSink(UnboundedSender<String>);

impl FrameSource for BenchSource {
    type Text = String;

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Incoming<String>> {
        self.0.poll_recv(cx).map(|incoming| incoming.unwrap_or(Incoming::Closed))
    }
}

impl FrameSink for BenchSink {
    fn poll_write(&mut self, _: &mut Context<'_>, queue: &mut OutboundQueue) -> Poll<Result<(), Gone>> {
        while let Some(frame) = queue.pop_front() {
            if let Outgoing::Text(text) = frame {
                let _ = self.0.send(text);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl BenchDevice {
    /// The two ends of a connection that begins with a hello, and a function that makes a device of
    /// them once the session runs.
    pub fn line(user: &str) -> (BenchSource, BenchSink, impl FnOnce(JoinHandle<()>) -> BenchDevice + use<>) {
        let (to_server, from_device) = unbounded_channel();
        let (to_device, from_server) = unbounded_channel();
        let hello = format!(r#"{{"type":"hello","token":"{user}","device":"phone"}}"#);
        let _ = to_server.send(Incoming::Text(hello));
        (BenchSource(from_device), BenchSink(to_device), |session| BenchDevice {
            to_server,
            from_server,
            session,
        })
    }

    pub fn say(&self, frame: String) {
        let _ = self.to_server.send(Incoming::Text(frame));
    }

    /// Receives frames until one of this type arrives.
    pub async fn hears(&mut self, kind: &str) -> String {
        let begins = format!(r#"{{"type":"{kind}""#);
        loop {
            let frame = self.from_server.recv().await.expect("the session goes on");
            if frame.starts_with(&begins) {
                return frame;
            }
        }
    }

    /// Closes the connection and waits until the session has ended.
    pub async fn leaves(self) {
        let _ = self.to_server.send(Incoming::Closed);
        self.session.await.expect("a session that ends well");
    }
}
