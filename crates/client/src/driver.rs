//! The task that owns the connection. It drives a [`ClientState`] over a WebSocket and reconnects.

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
    ClientState, Event, Lost, Options, Reconnect, TokenSource,
    backoff::Backoff,
    codec::{FrameError, decode},
    connection::ClientCommand,
    dispatcher::ClientDispatcher,
    transport::{self, ClientSocket},
};

/// A connection without a `welcome` by then counts as dead.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(15);
/// Frames written before a flush, and frames read before acks are written, at most.
const BATCH_MAX: usize = 64;
/// A socket that takes no bytes for this long counts as dead.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// Added to two heartbeats, for TCP retransmissions.
const HEARTBEAT_GRACE: Duration = Duration::from_secs(5);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// For `select!` branches without a deadline.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// What the task does next.
enum DriverAction {
    Connect,
    /// Reconnect if the server's `bye` allows it.
    Retry(Option<Bye>, Lost),
    StayOffline,
    End {
        code: Option<ErrorCode>,
        reason: String,
    },
}

struct Driver {
    options: Options,
    commands: mpsc::Receiver<ClientCommand>,
    dispatcher: ClientDispatcher,
    /// When to repeat what the server refused temporarily.
    retry_at: Option<Instant>,
    fresh_token: Option<Pin<Box<dyn Future<Output = String> + Send>>>,
    backoff: Backoff,
    rng: StdRng,
}

pub(crate) async fn run(
    mut options: Options,
    commands: mpsc::Receiver<ClientCommand>,
    events: mpsc::Sender<Event>,
) {
    let mut rng: StdRng = rand::make_rng();
    let state = ClientState::new(options.device.clone(), rng.next_u64(), options.saved.take());
    let driver = Driver {
        options,
        commands,
        dispatcher: ClientDispatcher::new(state, events),
        retry_at: None,
        fresh_token: None,
        backoff: Backoff::default(),
        rng,
    };
    driver.run().await;
}

impl Driver {
    async fn run(mut self) {
        let mut next = DriverAction::Connect;
        loop {
            next = match next {
                DriverAction::Connect => self.connect().await,
                DriverAction::Retry(bye, why) => self.reconnect(bye, why).await,
                DriverAction::StayOffline => {
                    self.dispatcher.push_event(Event::Disconnected { will_retry_in: None, why: None });
                    self.wait(None).await
                }
                DriverAction::End { code, reason } => return self.dispatcher.close(code, reason).await,
            };
        }
    }

    /// Waits before the next attempt, unless the server's `bye` was final.
    async fn reconnect(&mut self, bye: Option<Bye>, why: Lost) -> DriverAction {
        let can_refresh_token = matches!(self.options.token, TokenSource::Provider(_));
        match (Reconnect::after(bye.as_ref(), can_refresh_token), bye) {
            (Reconnect::Never, Some(bye)) => DriverAction::End { code: Some(bye.code), reason: bye.reason },
            (Reconnect::Never, None) => DriverAction::End { code: None, reason: why.to_string() },
            (Reconnect::After(at_least), _) => {
                let wait = self.backoff.next(at_least, &mut self.rng);
                self.dispatcher.push_event(Event::Disconnected { will_retry_in: Some(wait), why: Some(why) });
                self.wait(Some(Instant::now() + wait)).await
            }
        }
    }

    /// Offline, on purpose or until the next attempt. Commands are executed and events delivered.
    async fn wait(&mut self, until: Option<Instant>) -> DriverAction {
        loop {
            self.dispatcher.deliver_events();
            tokio::select! {
                () = sleep_until(until.unwrap_or_else(|| Instant::now() + FAR)) => return DriverAction::Connect,
                () = self.dispatcher.wait_for_room(), if self.dispatcher.is_full() => {}
                command = self.commands.recv() => match self.command(command) {
                    Some(DriverAction::StayOffline) if until.is_none() => {}
                    Some(next) => return next,
                    None => {}
                }
            }
        }
    }

    async fn connect(&mut self) -> DriverAction {
        let options = self.options.clone();
        let mut connecting = Box::pin(async move {
            let token = options.token.get().await;
            (token, transport::open(&options.url, &[], options.tls).await)
        });
        let (token, opened) = loop {
            self.dispatcher.deliver_events();
            tokio::select! {
                done = &mut connecting => break done,
                () = self.dispatcher.wait_for_room(), if self.dispatcher.is_full() => {}
                command = self.commands.recv() => {
                    if let Some(next @ (DriverAction::End { .. } | DriverAction::StayOffline)) = self.command(command) {
                        return next;
                    }
                }
            }
        };
        match opened {
            Ok(socket) => {
                self.dispatcher.state.connected(token);
                let next = Box::pin(self.talk(socket)).await;
                self.dispatcher.state.disconnected();
                self.retry_at = None;
                next
            }
            Err(tungstenite::Error::Url(e)) => DriverAction::End { code: None, reason: e.to_string() },
            Err(e) => {
                tracing::debug!(error = %e, "could not connect");
                DriverAction::Retry(None, Lost::of(&e))
            }
        }
    }

    /// One connection, from hello to its end.
    async fn talk(&mut self, socket: ClientSocket) -> DriverAction {
        let (mut sink, mut stream) = socket.split();
        let mut liveness = Liveness::new();
        loop {
            if let Err(e) = self.write_batch(&mut sink, &mut liveness).await {
                return self.broken(&e.to_string());
            }
            self.dispatcher.deliver_events();
            self.set_retry_timer();
            let full = self.dispatcher.is_full();
            tokio::select! {
                flushed = sink.flush(), if liveness.unflushed_since.is_some() => match flushed {
                    Ok(()) => liveness.unflushed_since = None,
                    Err(e) => return self.broken(&e.to_string()),
                },
                () = self.dispatcher.wait_for_room(), if full => liveness.last_heard = Instant::now(),
                // Backpressure: while the application takes no events, the socket is not read.
                heard = stream.next(), if !full => {
                    if let Err(why) = self.hear(heard, &mut stream, &mut liveness) {
                        return self.broken(&why);
                    }
                }
                () = sleep_until(self.retry_at.unwrap_or_else(|| Instant::now() + FAR)) => {
                    self.retry_at = None;
                    self.dispatcher.state.retry();
                }
                () = sleep_until(liveness.deadline(full)) => return self.broken("the connection went silent"),
                token = fetched(&mut self.fresh_token) => {
                    self.fresh_token = None;
                    self.dispatcher.state.authenticate(token);
                }
                command = self.commands.recv() => match self.command(command) {
                    None | Some(DriverAction::Connect) => {}
                    Some(next) => {
                        let leaving = self.leave(&mut sink, &mut stream, &mut liveness);
                        let _ = tokio::time::timeout(CLOSE_TIMEOUT, leaving).await;
                        return next;
                    }
                }
            }
        }
    }

    /// Writes the last receipts before closing, and waits until the server has confirmed the reads.
    async fn leave(
        &mut self,
        sink: &mut SplitSink<ClientSocket, Message>,
        stream: &mut SplitStream<ClientSocket>,
        liveness: &mut Liveness,
    ) {
        loop {
            if sink.flush().await.is_err() {
                return;
            }
            liveness.unflushed_since = None;
            if self.write_batch(sink, liveness).await.is_err() {
                return;
            }
            if liveness.unflushed_since.is_some() {
                continue;
            }
            if !self.dispatcher.state.awaits_receipts() {
                break;
            }
            let heard = stream.next().await;
            if self.take_message(heard, liveness).is_err() {
                return;
            }
        }
        let _ = sink.close().await;
    }

    fn broken(&self, why: &str) -> DriverAction {
        let bye = self.dispatcher.state.bye().cloned();
        tracing::debug!(why, bye = ?bye.as_ref().map(|bye| bye.code), "the connection ended");
        let why = bye.as_ref().map_or(why.to_owned(), |bye| format!("{}: {}", bye.code, bye.reason));
        DriverAction::Retry(bye, Lost::Connection(why))
    }

    fn set_retry_timer(&mut self) {
        if let Some(ms) = self.dispatcher.state.take_retry_ms() {
            let at = Instant::now() + Duration::from_millis(ms);
            self.retry_at = Some(self.retry_at.map_or(at, |other| other.max(at)));
        }
    }

    /// Buffers frames once the last batch is flushed. The buffer stays small, and waiting for the
    /// socket never blocks reading.
    async fn write_batch(
        &mut self,
        sink: &mut SplitSink<ClientSocket, Message>,
        liveness: &mut Liveness,
    ) -> Result<(), tungstenite::Error> {
        if liveness.unflushed_since.is_some() {
            return Ok(());
        }
        for _ in 0..BATCH_MAX {
            match std::future::poll_fn(|cx| Poll::Ready(sink.poll_ready_unpin(cx))).await {
                Poll::Ready(ready) => ready?,
                Poll::Pending => {
                    liveness.unflushed_since.get_or_insert_with(Instant::now);
                    break;
                }
            }
            let Some(frame) = self.dispatcher.state.next_frame() else {
                break;
            };
            sink.start_send_unpin(Message::text(frame.to_text()))?;
            liveness.unflushed_since.get_or_insert_with(Instant::now);
        }
        Ok(())
    }

    /// Takes a message and all that are readable already, so that they share an ack.
    fn hear(
        &mut self,
        first: Option<Result<Message, tungstenite::Error>>,
        stream: &mut SplitStream<ClientSocket>,
        liveness: &mut Liveness,
    ) -> Result<(), String> {
        self.take_message(first, liveness)?;
        for _ in 1..BATCH_MAX {
            let Some(another) = stream.next().now_or_never() else {
                break;
            };
            self.take_message(another, liveness)?;
        }
        Ok(())
    }

    fn take_message(
        &mut self,
        message: Option<Result<Message, tungstenite::Error>>,
        liveness: &mut Liveness,
    ) -> Result<(), String> {
        liveness.last_heard = Instant::now();
        match message {
            None | Some(Ok(Message::Close(_))) => return Err("the server closed the connection".into()),
            Some(Err(e)) => return Err(e.to_string()),
            Some(Ok(Message::Text(text))) => self.take_text(&text, liveness),
            // The pong is in the socket's buffer and has to be flushed.
            Some(Ok(Message::Ping(_))) => {
                liveness.unflushed_since.get_or_insert_with(Instant::now);
            }
            Some(Ok(_)) => {}
        }
        match self.dispatcher.state.bye() {
            Some(_) => Err("the server ended the session".into()),
            None => Ok(()),
        }
    }

    fn take_text(&mut self, text: &str, liveness: &mut Liveness) {
        match decode(text) {
            Ok(frame) => {
                match &frame {
                    ServerFrame::Welcome(welcome) => liveness.welcomed(welcome.heartbeat_secs),
                    ServerFrame::CaughtUp(_) => self.backoff.succeeded(),
                    _ => {}
                }
                self.dispatcher.state.frame(frame);
            }
            Err(FrameError::UnknownType(kind)) => tracing::debug!(kind, "ignored an unknown frame"),
            Err(e) => tracing::warn!(error = %e, "could not decode a frame"),
        }
    }

    /// Executes a command. Returns an action if the connection has to change.
    fn command(&mut self, command: Option<ClientCommand>) -> Option<DriverAction> {
        match command {
            Some(ClientCommand::State(command)) => self.dispatcher.execute(command),
            Some(ClientCommand::RefreshToken) => {
                let token = self.options.token.clone();
                self.fresh_token = Some(Box::pin(async move { token.get().await }));
            }
            Some(ClientCommand::GoOffline) => return Some(DriverAction::StayOffline),
            Some(ClientCommand::GoOnline) => return Some(DriverAction::Connect),
            // `None`: the last handle was dropped.
            Some(ClientCommand::Close) | None => {
                return Some(DriverAction::End { code: None, reason: "closed".into() });
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

/// When a connection counts as dead.
struct Liveness {
    last_heard: Instant,
    silence_allowed: Duration,
    /// Set while bytes wait for the socket.
    unflushed_since: Option<Instant>,
}

impl Liveness {
    fn new() -> Self {
        Liveness { last_heard: Instant::now(), silence_allowed: WELCOME_TIMEOUT, unflushed_since: None }
    }

    fn welcomed(&mut self, heartbeat_secs: u64) {
        let heartbeat = Duration::from_secs(heartbeat_secs.clamp(1, 3600));
        self.silence_allowed = heartbeat * 2 + HEARTBEAT_GRACE;
    }

    /// When the connection counts as dead. While it is not read, only its writes are timed.
    fn deadline(&self, unread: bool) -> Instant {
        let silent = if unread { Instant::now() + FAR } else { self.last_heard + self.silence_allowed };
        self.unflushed_since.map_or(silent, |since| silent.min(since + WRITE_TIMEOUT))
    }
}
