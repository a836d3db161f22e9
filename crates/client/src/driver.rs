//! The task that owns the connection: it drives a [`ClientState`] over a WebSocket and reconnects when that ends.

use std::{future::Future, pin::Pin, task::Poll, time::Duration};

use bluetick_protocol::{Bye, ErrorCode, ServerFrame};
use futures_util::{FutureExt, SinkExt, StreamExt, stream::SplitSink, stream::SplitStream};
use rand::{Rng, rngs::StdRng};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_tungstenite::tungstenite::{self, Message};

use crate::{
    ClientState, Event, Lost, Options, Reconnect, Token,
    backoff::Backoff,
    codec::{DecodeError, decode},
    connection::Command,
    desk::Desk,
    transport::{self, Socket},
};

/// The server answers a hello much sooner; a connection without a welcome is of no use.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(15);
/// Frames written before the socket is flushed, and frames read before acks are written.
const BATCH_MAX: usize = 64;
/// A socket that takes no bytes for this long is dead.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// Beyond two heartbeats a lost packet may still be on its third try.
const HEARTBEAT_GRACE: Duration = Duration::from_secs(5);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// For arms of a select that wait for nothing.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// How a phase of the task's life ended.
enum Next {
    Connect,
    /// The connection failed or was ended; what the server said, if it said so.
    Retry(Option<Bye>, Lost),
    StayOffline,
    End {
        code: Option<ErrorCode>,
        reason: String,
    },
}

struct Driver {
    options: Options,
    commands: mpsc::Receiver<Command>,
    desk: Desk,
    /// When to try again what the server refused for the moment.
    retry_at: Option<Instant>,
    fresh_token: Option<Pin<Box<dyn Future<Output = String> + Send>>>,
    backoff: Backoff,
    rng: StdRng,
}

pub(crate) async fn run(
    mut options: Options,
    commands: mpsc::Receiver<Command>,
    events: mpsc::Sender<Event>,
) {
    let mut rng: StdRng = rand::make_rng();
    let state = ClientState::new(options.device.clone(), rng.next_u64(), options.saved.take());
    let driver = Driver {
        options,
        commands,
        desk: Desk::new(state, events),
        retry_at: None,
        fresh_token: None,
        backoff: Backoff::default(),
        rng,
    };
    driver.run().await;
}

impl Driver {
    async fn run(mut self) {
        let mut next = Next::Connect;
        loop {
            next = match next {
                Next::Connect => self.connect().await,
                Next::Retry(bye, why) => self.reconnect(bye, why).await,
                Next::StayOffline => {
                    self.desk.tell(Event::Disconnected { will_retry_in: None, why: None });
                    self.wait(None).await
                }
                Next::End { code, reason } => return self.desk.close(code, reason).await,
            };
        }
    }

    /// Waits before the next attempt, unless the server's `bye` was final.
    async fn reconnect(&mut self, bye: Option<Bye>, why: Lost) -> Next {
        let can_refresh_token = matches!(self.options.token, Token::Provider(_));
        match (Reconnect::after(bye.as_ref(), can_refresh_token), bye) {
            (Reconnect::Never, Some(bye)) => Next::End { code: Some(bye.code), reason: bye.reason },
            (Reconnect::Never, None) => Next::End { code: None, reason: why.to_string() },
            (Reconnect::After(at_least), _) => {
                let wait = self.backoff.next(at_least, &mut self.rng);
                self.desk.tell(Event::Disconnected { will_retry_in: Some(wait), why: Some(why) });
                self.wait(Some(Instant::now() + wait)).await
            }
        }
    }

    /// Offline, on purpose or until the next attempt: commands are served and events handed on.
    async fn wait(&mut self, until: Option<Instant>) -> Next {
        loop {
            self.desk.hand_on();
            tokio::select! {
                () = sleep_until(until.unwrap_or_else(|| Instant::now() + FAR)) => return Next::Connect,
                () = self.desk.room(), if self.desk.is_full() => {}
                command = self.commands.recv() => match self.command(command) {
                    Some(Next::StayOffline) if until.is_none() => {}
                    Some(next) => return next,
                    None => {}
                }
            }
        }
    }

    async fn connect(&mut self) -> Next {
        let options = self.options.clone();
        let mut connecting = Box::pin(async move {
            let token = options.token.get().await;
            (token, transport::open(&options.url, &[], options.tls).await)
        });
        let (token, opened) = loop {
            self.desk.hand_on();
            tokio::select! {
                done = &mut connecting => break done,
                () = self.desk.room(), if self.desk.is_full() => {}
                command = self.commands.recv() => {
                    if let Some(next @ (Next::End { .. } | Next::StayOffline)) = self.command(command) {
                        return next;
                    }
                }
            }
        };
        match opened {
            Ok(socket) => {
                self.desk.state.connected(token);
                let next = Box::pin(self.talk(socket)).await;
                self.desk.state.disconnected();
                self.retry_at = None;
                next
            }
            Err(tungstenite::Error::Url(e)) => Next::End { code: None, reason: e.to_string() },
            Err(e) => {
                tracing::debug!(error = %e, "could not connect");
                Next::Retry(None, Lost::of(&e))
            }
        }
    }

    /// One connection, from hello to its end.
    async fn talk(&mut self, socket: Socket) -> Next {
        let (mut sink, mut stream) = socket.split();
        let mut line = Line::new();
        loop {
            if let Err(e) = self.write_batch(&mut sink, &mut line).await {
                return self.broken(&e.to_string());
            }
            self.desk.hand_on();
            self.set_retry_timer();
            let full = self.desk.is_full();
            tokio::select! {
                flushed = sink.flush(), if line.unflushed_since.is_some() => match flushed {
                    Ok(()) => line.unflushed_since = None,
                    Err(e) => return self.broken(&e.to_string()),
                },
                () = self.desk.room(), if full => line.last_heard = Instant::now(),
                // An application that takes no events stops the reading: the server notices, and nothing is lost.
                heard = stream.next(), if !full => {
                    if let Err(why) = self.hear(heard, &mut stream, &mut line) {
                        return self.broken(&why);
                    }
                }
                () = sleep_until(self.retry_at.unwrap_or_else(|| Instant::now() + FAR)) => {
                    self.retry_at = None;
                    self.desk.state.retry();
                }
                () = sleep_until(line.deadline(full)) => return self.broken("the connection went silent"),
                token = fetched(&mut self.fresh_token) => {
                    self.fresh_token = None;
                    self.desk.state.authenticate(token);
                }
                command = self.commands.recv() => match self.command(command) {
                    None | Some(Next::Connect) => {}
                    Some(next) => {
                        let leaving = self.leave(&mut sink, &mut stream, &mut line);
                        let _ = tokio::time::timeout(CLOSE_TIMEOUT, leaving).await;
                        return next;
                    }
                }
            }
        }
    }

    /// What was just acked or read is said before leaving, and the server given the time to take it.
    async fn leave(
        &mut self,
        sink: &mut SplitSink<Socket, Message>,
        stream: &mut SplitStream<Socket>,
        line: &mut Line,
    ) {
        loop {
            if sink.flush().await.is_err() {
                return;
            }
            line.unflushed_since = None;
            if self.write_batch(sink, line).await.is_err() {
                return;
            }
            if line.unflushed_since.is_some() {
                continue;
            }
            if !self.desk.state.awaits_receipts() {
                break;
            }
            let heard = stream.next().await;
            if self.take_message(heard, line).is_err() {
                return;
            }
        }
        let _ = sink.close().await;
    }

    fn broken(&self, why: &str) -> Next {
        let bye = self.desk.state.bye().cloned();
        tracing::debug!(why, bye = ?bye.as_ref().map(|bye| bye.code), "the connection ended");
        let why = bye.as_ref().map_or(why.to_owned(), |bye| format!("{}: {}", bye.code, bye.reason));
        Next::Retry(bye, Lost::Connection(why))
    }

    fn set_retry_timer(&mut self) {
        if let Some(ms) = self.desk.state.take_retry_ms() {
            let at = Instant::now() + Duration::from_millis(ms);
            self.retry_at = Some(self.retry_at.map_or(at, |other| other.max(at)));
        }
    }

    /// Puts frames into the socket's buffer, but only when the last batch is out: the buffer stays small, and
    /// waiting for the socket never stops the reading.
    async fn write_batch(
        &mut self,
        sink: &mut SplitSink<Socket, Message>,
        line: &mut Line,
    ) -> Result<(), tungstenite::Error> {
        if line.unflushed_since.is_some() {
            return Ok(());
        }
        for _ in 0..BATCH_MAX {
            match std::future::poll_fn(|cx| Poll::Ready(sink.poll_ready_unpin(cx))).await {
                Poll::Ready(ready) => ready?,
                Poll::Pending => {
                    line.unflushed_since.get_or_insert_with(Instant::now);
                    break;
                }
            }
            let Some(frame) = self.desk.state.next_frame() else {
                break;
            };
            sink.start_send_unpin(Message::text(frame.to_text()))?;
            line.unflushed_since.get_or_insert_with(Instant::now);
        }
        Ok(())
    }

    /// Takes what came, and whatever else is there already: their acks then go out together.
    fn hear(
        &mut self,
        first: Option<Result<Message, tungstenite::Error>>,
        stream: &mut SplitStream<Socket>,
        line: &mut Line,
    ) -> Result<(), String> {
        self.take_message(first, line)?;
        for _ in 1..BATCH_MAX {
            let Some(another) = stream.next().now_or_never() else {
                break;
            };
            self.take_message(another, line)?;
        }
        Ok(())
    }

    fn take_message(
        &mut self,
        message: Option<Result<Message, tungstenite::Error>>,
        line: &mut Line,
    ) -> Result<(), String> {
        line.last_heard = Instant::now();
        match message {
            None | Some(Ok(Message::Close(_))) => return Err("the server closed the connection".into()),
            Some(Err(e)) => return Err(e.to_string()),
            Some(Ok(Message::Text(text))) => self.take_text(&text, line),
            // The answer is in the socket's buffer already and wants to be flushed.
            Some(Ok(Message::Ping(_))) => {
                line.unflushed_since.get_or_insert_with(Instant::now);
            }
            Some(Ok(_)) => {}
        }
        match self.desk.state.bye() {
            Some(_) => Err("the server said goodbye".into()),
            None => Ok(()),
        }
    }

    fn take_text(&mut self, text: &str, line: &mut Line) {
        match decode(text) {
            Ok(frame) => {
                match &frame {
                    ServerFrame::Welcome(welcome) => line.welcomed(welcome.heartbeat_secs),
                    ServerFrame::CaughtUp(_) => self.backoff.succeeded(),
                    _ => {}
                }
                self.desk.state.frame(frame);
            }
            Err(DecodeError::UnknownType(kind)) => tracing::debug!(kind, "an unknown frame was left alone"),
            Err(e) => tracing::warn!(error = %e, "a frame could not be read"),
        }
    }

    /// Serves a command; says what comes next if that changes.
    fn command(&mut self, command: Option<Command>) -> Option<Next> {
        match command {
            Some(Command::Desk(command)) => self.desk.serve(command),
            Some(Command::RefreshToken) => {
                let token = self.options.token.clone();
                self.fresh_token = Some(Box::pin(async move { token.get().await }));
            }
            Some(Command::GoOffline) => return Some(Next::StayOffline),
            Some(Command::GoOnline) => return Some(Next::Connect),
            // Without a handle nobody can use the connection any more.
            Some(Command::Close) | None => {
                return Some(Next::End { code: None, reason: "closed".into() });
            }
        }
        None
    }
}

async fn fetched(token: &mut Option<Pin<Box<dyn Future<Output = String> + Send>>>) -> String {
    match token {
        Some(fetching) => fetching.await,
        None => std::future::pending().await,
    }
}

/// The signs of life of one connection.
struct Line {
    last_heard: Instant,
    silence_allowed: Duration,
    /// Set while bytes wait to be taken by the socket.
    unflushed_since: Option<Instant>,
}

impl Line {
    fn new() -> Self {
        Line { last_heard: Instant::now(), silence_allowed: WELCOME_TIMEOUT, unflushed_since: None }
    }

    fn welcomed(&mut self, heartbeat_secs: u64) {
        let heartbeat = Duration::from_secs(heartbeat_secs.clamp(1, 3600));
        self.silence_allowed = heartbeat * 2 + HEARTBEAT_GRACE;
    }

    /// When the connection counts as dead; while it is not read, only for what it does not write.
    fn deadline(&self, unread: bool) -> Instant {
        let silent = if unread { Instant::now() + FAR } else { self.last_heard + self.silence_allowed };
        self.unflushed_since.map_or(silent, |since| silent.min(since + WRITE_TIMEOUT))
    }
}
