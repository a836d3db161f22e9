//! The calling side of a link: one long-lived stream to one process.
//!
//! No call is sent before both sides have proven that they know the cluster's secret (`proof.rs`).
//!
//! Calls wait in a bounded queue, and are sent in batches when the stream has room. At the in-flight limit a caller
//! waits, at most until its deadline. When the stream breaks, all unanswered calls fail at once with an unknown
//! outcome. The link reconnects by itself, with exponential backoff.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::http::uri::PathAndQuery;
use bytes::Bytes;
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{
    sync::{Notify, Semaphore, mpsc, oneshot, watch},
    task::AbortHandle,
    time::{Instant, timeout, timeout_at},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Streaming, client::Grpc, transport::Channel};
use tonic_prost::ProstCodec;

use super::{
    guard::{Greeting, Guard, describe},
    proof,
    wire::{AnswerBatch, Assembly, CallBatch, CallPart, NONCE, OPEN, PartQueue, parts},
};
use crate::auth::hex;

#[derive(Debug, Clone)]
pub struct LinkConfig {
    pub connect_timeout: Duration,
    /// The interval of keep-alive pings, and the time to wait for their answer.
    pub keep_alive: Duration,
    /// The in-flight limit: beyond it callers wait.
    pub in_flight_max: usize,
    /// The first and the longest delay before reconnecting.
    pub backoff: (Duration, Duration),
}

impl Default for LinkConfig {
    fn default() -> Self {
        LinkConfig {
            connect_timeout: Duration::from_millis(1_500),
            keep_alive: Duration::from_secs(3),
            in_flight_max: 2_048,
            backoff: (Duration::from_millis(50), Duration::from_secs(3)),
        }
    }
}

/// The process that a link connects to.
#[derive(Debug, Clone)]
pub struct LinkPeer {
    address: String,
    /// The name that the process must have, in full or up to the `#`. `None` where an operator chose the address.
    expected: Option<String>,
}

impl LinkPeer {
    /// A process with this name: `host:port#boot`, or `host:port` for any start of it.
    pub fn named(address: &str, name: &str) -> LinkPeer {
        LinkPeer { address: address.to_owned(), expected: Some(name.to_owned()) }
    }

    pub fn configured(address: &str) -> LinkPeer {
        LinkPeer { address: address.to_owned(), expected: None }
    }

    fn is_called(&self, name: &str) -> bool {
        let Some(expected) = &self.expected else { return true };
        name.strip_prefix(expected.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
    }
}

/// The state of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkStatus {
    Connecting,
    Up,
    /// The peer is shutting down and takes no new calls.
    Draining,
    /// Not connected, with the reason.
    Down(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The call did not reach the peer.
    #[error("not sent: {0}")]
    NotSent(String),
    /// The call may have run, or may still run.
    #[error("unknown outcome: {0}")]
    Unknown(String),
}

/// A call that waits for the stream.
struct QueuedCall {
    id: u64,
    deadline: Instant,
    payload: Bytes,
}

struct PendingCall {
    answer: oneshot::Sender<Result<Bytes, LinkError>>,
    sent: bool,
    assembly: Assembly,
}

type PendingCalls = Mutex<HashMap<u64, PendingCall>>;

pub struct PeerLink {
    address: String,
    state: Arc<LinkState>,
    task: AbortHandle,
}

struct LinkState {
    queue: mpsc::Sender<QueuedCall>,
    room: Semaphore,
    in_flight: AtomicUsize,
    next_id: AtomicU64,
    unanswered: PendingCalls,
    status: watch::Sender<LinkStatus>,
    /// Notified when a call ends, so that a draining link closes after the last one.
    answered: Notify,
}

impl Drop for PeerLink {
    fn drop(&mut self) {
        self.task.abort();
        self.state.fail_all("the link was closed");
    }
}

/// Removes a call from the pending ones when its caller is done, whatever its outcome.
struct InFlightGuard<'a> {
    state: &'a LinkState,
    id: u64,
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.state.unanswered.lock().remove(&self.id);
        self.state.in_flight.fetch_sub(1, Ordering::AcqRel);
        self.state.answered.notify_one();
    }
}

impl PeerLink {
    /// Starts to connect. `changed` is notified whenever the link's status changes.
    pub fn open(peer: LinkPeer, guard: Guard, config: LinkConfig, changed: Arc<Notify>) -> PeerLink {
        let (queue, queued) = mpsc::channel(config.in_flight_max);
        let state = Arc::new(LinkState {
            queue,
            room: Semaphore::new(config.in_flight_max),
            in_flight: AtomicUsize::new(0),
            next_id: AtomicU64::new(1),
            unanswered: Mutex::default(),
            status: watch::Sender::new(LinkStatus::Connecting),
            answered: Notify::new(),
        });
        let address = peer.address.clone();
        let link = LinkTask { peer, guard, config, changed, state: state.clone() };
        let task = tokio::spawn(link.run(queued)).abort_handle();
        PeerLink { address, state, task }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn status(&self) -> LinkStatus {
        self.state.status.borrow().clone()
    }

    pub fn is_up(&self) -> bool {
        *self.state.status.borrow() == LinkStatus::Up
    }

    pub fn in_flight(&self) -> usize {
        self.state.in_flight.load(Ordering::Acquire)
    }

    /// Sends a call and waits for its answer until the deadline. Fails at once while the link is down.
    pub async fn call(&self, payload: Bytes, deadline: Instant) -> Result<Bytes, LinkError> {
        let state = &*self.state;
        state.usable()?;
        let busy = || LinkError::NotSent(format!("{} is busy with too many calls", self.address));
        let _room = timeout_at(deadline, state.room.acquire())
            .await
            .map_err(|_| busy())?
            .map_err(|_| LinkError::NotSent("the link was closed".into()))?;
        let id = state.next_id.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        state.in_flight.fetch_add(1, Ordering::AcqRel);
        state
            .unanswered
            .lock()
            .insert(id, PendingCall { answer, sent: false, assembly: Assembly::default() });
        let entry = InFlightGuard { state, id };
        // Checked again after the call is registered: a link that goes down now either fails the call or is seen here.
        state.usable()?;
        // The queue has the capacity of the in-flight limit, so this fails only when the link is closed.
        if state.queue.try_send(QueuedCall { id, deadline, payload }).is_err() {
            return Err(busy());
        }
        match timeout_at(deadline, answered).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(LinkError::Unknown("the link was closed".into())),
            Err(_) => {
                let sent = state.unanswered.lock().get(&entry.id).is_none_or(|waiting| waiting.sent);
                let why = format!("{} did not answer in time", self.address);
                Err(if sent { LinkError::Unknown(why) } else { LinkError::NotSent(why) })
            }
        }
    }
}

impl LinkState {
    fn usable(&self) -> Result<(), LinkError> {
        match &*self.status.borrow() {
            LinkStatus::Up | LinkStatus::Connecting => Ok(()),
            LinkStatus::Draining => Err(LinkError::NotSent("the peer is going down".into())),
            LinkStatus::Down(why) => Err(LinkError::NotSent(why.clone())),
        }
    }

    fn fail_all(&self, why: &str) {
        let failed: Vec<PendingCall> = self.unanswered.lock().drain().map(|(_, waiting)| waiting).collect();
        for waiting in failed {
            let error = match waiting.sent {
                true => LinkError::Unknown(why.to_owned()),
                false => LinkError::NotSent(why.to_owned()),
            };
            let _ = waiting.answer.send(Err(error));
        }
    }

    fn take_answers(&self, batch: AnswerBatch) {
        for part in batch.answers {
            let mut unanswered = self.unanswered.lock();
            let Some(waiting) = unanswered.get_mut(&part.id) else { continue };
            if let Some(whole) = waiting.assembly.add(part.payload, part.more)
                && let Some(waiting) = unanswered.remove(&part.id)
            {
                let _ = waiting.answer.send(Ok(whole));
            }
        }
    }
}

fn refusal(status: &tonic::Status) -> String {
    format!("{}: {}", status.code().description(), status.message())
}

/// The task of a link: connects, serves the stream until it breaks, and reconnects.
struct LinkTask {
    peer: LinkPeer,
    guard: Guard,
    config: LinkConfig,
    changed: Arc<Notify>,
    state: Arc<LinkState>,
}

impl LinkTask {
    async fn run(self, mut queued: mpsc::Receiver<QueuedCall>) {
        let mut rng = StdRng::seed_from_u64(rand::random::<u64>());
        let (first, longest) = self.config.backoff;
        let mut wait = first;
        loop {
            let why = match timeout(self.config.connect_timeout, self.connect()).await {
                Ok(Ok((calls, answers))) => {
                    self.set_status(LinkStatus::Up);
                    tracing::debug!(peer = self.peer.address, "link is up");
                    wait = first;
                    let why = self.serve(&mut queued, calls, answers).await;
                    tracing::info!(peer = self.peer.address, why, "link ended");
                    why
                }
                Ok(Err(why)) => why,
                Err(_) => "no connection in time".to_owned(),
            };
            let why = format!("{}: {why}", self.peer.address);
            self.set_status(LinkStatus::Down(why.clone()));
            self.state.fail_all(&why);
            // The calls in the queue have failed with the link.
            while queued.try_recv().is_ok() {}
            tokio::time::sleep(wait.mul_f64(rng.random_range(0.5..1.5))).await;
            wait = (wait * 2).min(longest);
        }
    }

    fn set_status(&self, status: LinkStatus) {
        self.state.status.send_replace(status);
        self.changed.notify_waiters();
    }

    async fn connect(&self) -> Result<(mpsc::Sender<CallBatch>, Streaming<AnswerBatch>), String> {
        let endpoint = self
            .guard
            .endpoint(&self.peer.address)?
            .connect_timeout(self.config.connect_timeout)
            .http2_keep_alive_interval(self.config.keep_alive)
            .keep_alive_timeout(self.config.keep_alive)
            .keep_alive_while_idle(true)
            .tcp_nodelay(true);
        let channel: Channel = endpoint.connect().await.map_err(|e| describe(&e))?;
        let mut grpc = Grpc::new(channel);
        grpc.ready().await.map_err(|e| describe(&e))?;
        // Two batches may wait for the transport; the rest stays in the queue and makes larger batches.
        let (calls, outgoing) = mpsc::channel::<CallBatch>(2);
        let mut request = tonic::Request::new(ReceiverStream::new(outgoing));
        let nonce = proof::nonce()?;
        let shown = hex(&nonce).parse().map_err(|_| "a nonce cannot be a header".to_owned())?;
        request.metadata_mut().insert(NONCE, shown);
        let codec = ProstCodec::<CallBatch, AnswerBatch>::default();
        let opened = grpc.streaming(request, PathAndQuery::from_static(OPEN), codec).await;
        let opened = opened.map_err(|status| refusal(&status))?;
        let greeting = Greeting::read(opened.metadata());
        let proof = self.guard.answer(&nonce, greeting, |name| self.peer.is_called(name))?;
        let first = CallBatch { calls: Vec::new(), proof: proof.into() };
        calls.send(first).await.map_err(|_| "the stream takes nothing".to_owned())?;
        let mut answers = opened.into_inner();
        match answers.message().await {
            Ok(Some(first)) if first.accepted => Ok((calls, answers)),
            Ok(_) => Err("the peer did not accept the link".into()),
            Err(status) => Err(refusal(&status)),
        }
    }

    /// Serves the stream until it ends. Returns the reason.
    async fn serve(
        &self,
        queued: &mut mpsc::Receiver<QueuedCall>,
        calls: mpsc::Sender<CallBatch>,
        answers: Streaming<AnswerBatch>,
    ) -> String {
        tokio::select! {
            why = self.receive(answers) => why,
            why = self.send(queued, calls) => why,
        }
    }

    async fn receive(&self, mut answers: Streaming<AnswerBatch>) -> String {
        loop {
            match answers.message().await {
                Ok(Some(batch)) => {
                    if batch.draining {
                        self.set_status(LinkStatus::Draining);
                    }
                    self.state.take_answers(batch);
                }
                Ok(None) => return "the peer ended the stream".into(),
                Err(status) => return refusal(&status),
            }
        }
    }

    async fn send(&self, queued: &mut mpsc::Receiver<QueuedCall>, calls: mpsc::Sender<CallBatch>) -> String {
        let mut status = self.state.status.subscribe();
        let mut waiting: PartQueue<CallPart> = PartQueue::default();
        loop {
            tokio::select! {
                biased;
                // The link to a draining peer is closed once everything is answered.
                () = self.drained(&mut status), if waiting.is_empty() => return "the peer is going down".into(),
                Some(outgoing) = queued.recv(), if waiting.is_empty() => self.take(outgoing, &mut waiting),
                // The batch is made after the transport has room, so that it includes all calls queued meanwhile.
                permit = calls.reserve(), if !waiting.is_empty() => {
                    let Ok(permit) = permit else { return "the stream takes nothing more".into() };
                    while let Ok(outgoing) = queued.try_recv() {
                        self.take(outgoing, &mut waiting);
                    }
                    let batch = waiting.next_batch(|call| call.payload.len() + 16);
                    metrics::histogram!("bluetick_rpc_batch_calls").record(batch.len() as f64);
                    permit.send(CallBatch { calls: batch, proof: Bytes::new() });
                }
            }
        }
    }

    /// Queues the parts of a call, unless its caller has given up.
    fn take(&self, outgoing: QueuedCall, waiting: &mut PartQueue<CallPart>) {
        let QueuedCall { id, deadline, payload } = outgoing;
        let left = deadline.saturating_duration_since(Instant::now());
        match self.state.unanswered.lock().get_mut(&id) {
            Some(call) if !left.is_zero() => call.sent = true,
            _ => return,
        }
        let deadline_ms = left.as_millis().clamp(1, u128::from(u32::MAX)) as u32;
        waiting.push(parts(payload).map(|(payload, more)| CallPart { id, deadline_ms, payload, more }));
    }

    async fn drained(&self, status: &mut watch::Receiver<LinkStatus>) {
        let _ = status.wait_for(|status| *status == LinkStatus::Draining).await;
        loop {
            let answered = self.state.answered.notified();
            if self.state.unanswered.lock().is_empty() {
                return;
            }
            answered.await;
        }
    }
}
