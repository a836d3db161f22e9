//! The calling side of a link: one long-lived stream to one process.
//!
//! Nothing is sent on it before both sides have proven that they know the cluster's secret (`proof.rs`).
//!
//! Calls wait in a bounded queue; whatever waits when the stream can take more goes as one batch. A caller waits for
//! room while too many calls are unanswered, and no longer than its deadline. When the stream breaks, what was not
//! answered fails at once: nobody knows whether it was done. The link connects again by itself, less and less often.

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
    wire::{Answers, Assembly, Call, Calls, NONCE, OPEN, Waiting as Batches, parts},
};
use crate::auth::hex;

#[derive(Debug, Clone)]
pub struct LinkConfig {
    pub connect_timeout: Duration,
    /// A peer from which nothing comes for so long, twice, is taken for dead.
    pub keep_alive: Duration,
    /// Calls without an answer; beyond it callers wait.
    pub in_flight_max: usize,
    /// The first and the longest wait before another try to connect.
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

/// Whom a link is to lead to.
#[derive(Debug, Clone)]
pub struct Peer {
    address: String,
    /// What the process there must call itself, in full or up to the `#`. Nothing where an operator chose the address.
    expected: Option<String>,
}

impl Peer {
    /// A process that must have this name: `host:port#boot`, or `host:port` whenever it was started.
    pub fn named(address: &str, name: &str) -> Peer {
        Peer { address: address.to_owned(), expected: Some(name.to_owned()) }
    }

    pub fn configured(address: &str) -> Peer {
        Peer { address: address.to_owned(), expected: None }
    }

    fn is_called(&self, name: &str) -> bool {
        let Some(expected) = &self.expected else { return true };
        name.strip_prefix(expected.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
    }
}

/// How a link stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    Connecting,
    Up,
    /// The peer is going down and wants no new calls.
    Draining,
    /// Why it cannot be used now.
    Down(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The peer never saw the call.
    #[error("not sent: {0}")]
    NotSent(String),
    /// It may have been done, or may yet be.
    #[error("unknown outcome: {0}")]
    Unknown(String),
}

/// A call on its way to the stream.
struct Outgoing {
    id: u64,
    deadline: Instant,
    payload: Bytes,
}

struct Waiting {
    answer: oneshot::Sender<Result<Bytes, LinkError>>,
    sent: bool,
    assembly: Assembly,
}

type Unanswered = Mutex<HashMap<u64, Waiting>>;

pub struct Link {
    address: String,
    shared: Arc<Shared>,
    task: AbortHandle,
}

struct Shared {
    queue: mpsc::Sender<Outgoing>,
    room: Semaphore,
    in_flight: AtomicUsize,
    next_id: AtomicU64,
    unanswered: Unanswered,
    standing: watch::Sender<Standing>,
    /// Told when a call ends, so that a draining link can be closed after the last.
    answered: Notify,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
        self.shared.fail_all("the link was closed");
    }
}

/// Takes a call out of the books, whatever became of it.
struct Entry<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.shared.unanswered.lock().remove(&self.id);
        self.shared.in_flight.fetch_sub(1, Ordering::AcqRel);
        self.shared.answered.notify_one();
    }
}

impl Link {
    /// Begins to connect. `changed` is told whenever the link's standing changes.
    pub fn open(peer: Peer, guard: Guard, config: LinkConfig, changed: Arc<Notify>) -> Link {
        let (queue, queued) = mpsc::channel(config.in_flight_max);
        let shared = Arc::new(Shared {
            queue,
            room: Semaphore::new(config.in_flight_max),
            in_flight: AtomicUsize::new(0),
            next_id: AtomicU64::new(1),
            unanswered: Mutex::default(),
            standing: watch::Sender::new(Standing::Connecting),
            answered: Notify::new(),
        });
        let address = peer.address.clone();
        let keeper = Keeper { peer, guard, config, changed, shared: shared.clone() };
        let task = tokio::spawn(keeper.keep(queued)).abort_handle();
        Link { address, shared, task }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn standing(&self) -> Standing {
        self.shared.standing.borrow().clone()
    }

    pub fn is_up(&self) -> bool {
        *self.shared.standing.borrow() == Standing::Up
    }

    pub fn in_flight(&self) -> usize {
        self.shared.in_flight.load(Ordering::Acquire)
    }

    /// Asks, and waits for the answer until the deadline. A link that is down refuses at once.
    pub async fn call(&self, payload: Bytes, deadline: Instant) -> Result<Bytes, LinkError> {
        let shared = &*self.shared;
        shared.usable()?;
        let busy = || LinkError::NotSent(format!("{} is busy with too many calls", self.address));
        let _room = timeout_at(deadline, shared.room.acquire())
            .await
            .map_err(|_| busy())?
            .map_err(|_| LinkError::NotSent("the link was closed".into()))?;
        let id = shared.next_id.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        shared.in_flight.fetch_add(1, Ordering::AcqRel);
        shared.unanswered.lock().insert(id, Waiting { answer, sent: false, assembly: Assembly::default() });
        let entry = Entry { shared, id };
        // Looked at after the call is in the books: a link that went down before has either failed it or is seen here.
        shared.usable()?;
        // There is room in the queue for as many as may be unanswered.
        if shared.queue.try_send(Outgoing { id, deadline, payload }).is_err() {
            return Err(busy());
        }
        match timeout_at(deadline, answered).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(LinkError::Unknown("the link was closed".into())),
            Err(_) => {
                let sent = shared.unanswered.lock().get(&entry.id).is_none_or(|waiting| waiting.sent);
                let why = format!("{} did not answer in time", self.address);
                Err(if sent { LinkError::Unknown(why) } else { LinkError::NotSent(why) })
            }
        }
    }
}

impl Shared {
    fn usable(&self) -> Result<(), LinkError> {
        match &*self.standing.borrow() {
            Standing::Up | Standing::Connecting => Ok(()),
            Standing::Draining => Err(LinkError::NotSent("the peer is going down".into())),
            Standing::Down(why) => Err(LinkError::NotSent(why.clone())),
        }
    }

    fn fail_all(&self, why: &str) {
        let failed: Vec<Waiting> = self.unanswered.lock().drain().map(|(_, waiting)| waiting).collect();
        for waiting in failed {
            let error = match waiting.sent {
                true => LinkError::Unknown(why.to_owned()),
                false => LinkError::NotSent(why.to_owned()),
            };
            let _ = waiting.answer.send(Err(error));
        }
    }

    fn take_answers(&self, batch: Answers) {
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

/// Keeps the stream: connects, serves it until it breaks, and connects again.
struct Keeper {
    peer: Peer,
    guard: Guard,
    config: LinkConfig,
    changed: Arc<Notify>,
    shared: Arc<Shared>,
}

impl Keeper {
    async fn keep(self, mut queued: mpsc::Receiver<Outgoing>) {
        let mut rng = StdRng::seed_from_u64(rand::random::<u64>());
        let (first, longest) = self.config.backoff;
        let mut wait = first;
        loop {
            let why = match timeout(self.config.connect_timeout, self.connect()).await {
                Ok(Ok((calls, answers))) => {
                    self.stand(Standing::Up);
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
            self.stand(Standing::Down(why.clone()));
            self.shared.fail_all(&why);
            // What was queued before the link went down has failed with it.
            while queued.try_recv().is_ok() {}
            tokio::time::sleep(wait.mul_f64(rng.random_range(0.5..1.5))).await;
            wait = (wait * 2).min(longest);
        }
    }

    fn stand(&self, standing: Standing) {
        self.shared.standing.send_replace(standing);
        self.changed.notify_waiters();
    }

    async fn connect(&self) -> Result<(mpsc::Sender<Calls>, Streaming<Answers>), String> {
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
        // Two batches may wait for the transport; the rest waits in the queue, and makes larger batches.
        let (calls, outgoing) = mpsc::channel::<Calls>(2);
        let mut request = tonic::Request::new(ReceiverStream::new(outgoing));
        let nonce = proof::nonce()?;
        let shown = hex(&nonce).parse().map_err(|_| "a nonce cannot be a header".to_owned())?;
        request.metadata_mut().insert(NONCE, shown);
        let codec = ProstCodec::<Calls, Answers>::default();
        let opened = grpc.streaming(request, PathAndQuery::from_static(OPEN), codec).await;
        let opened = opened.map_err(|status| refusal(&status))?;
        let greeting = Greeting::read(opened.metadata());
        let proof = self.guard.answer(&nonce, greeting, |name| self.peer.is_called(name))?;
        let first = Calls { calls: Vec::new(), proof: proof.into() };
        calls.send(first).await.map_err(|_| "the stream takes nothing".to_owned())?;
        let mut answers = opened.into_inner();
        match answers.message().await {
            Ok(Some(first)) if first.accepted => Ok((calls, answers)),
            Ok(_) => Err("the peer did not accept the link".into()),
            Err(status) => Err(refusal(&status)),
        }
    }

    /// Serves the stream until it ends. Returns why it did.
    async fn serve(
        &self,
        queued: &mut mpsc::Receiver<Outgoing>,
        calls: mpsc::Sender<Calls>,
        answers: Streaming<Answers>,
    ) -> String {
        tokio::select! {
            why = self.receive(answers) => why,
            why = self.send(queued, calls) => why,
        }
    }

    async fn receive(&self, mut answers: Streaming<Answers>) -> String {
        loop {
            match answers.message().await {
                Ok(Some(batch)) => {
                    if batch.draining {
                        self.stand(Standing::Draining);
                    }
                    self.shared.take_answers(batch);
                }
                Ok(None) => return "the peer ended the stream".into(),
                Err(status) => return refusal(&status),
            }
        }
    }

    async fn send(&self, queued: &mut mpsc::Receiver<Outgoing>, calls: mpsc::Sender<Calls>) -> String {
        let mut standing = self.shared.standing.subscribe();
        let mut waiting: Batches<Call> = Batches::default();
        loop {
            tokio::select! {
                biased;
                // A peer that drains is let go of once it has answered everything.
                () = self.drained(&mut standing), if waiting.is_empty() => return "the peer is going down".into(),
                Some(outgoing) = queued.recv(), if waiting.is_empty() => self.take(outgoing, &mut waiting),
                // The transport first, then the batch: whatever comes until there is room goes along.
                permit = calls.reserve(), if !waiting.is_empty() => {
                    let Ok(permit) = permit else { return "the stream takes nothing more".into() };
                    while let Ok(outgoing) = queued.try_recv() {
                        self.take(outgoing, &mut waiting);
                    }
                    let batch = waiting.next_batch(|call| call.payload.len() + 16);
                    metrics::histogram!("bluetick_rpc_batch_calls").record(batch.len() as f64);
                    permit.send(Calls { calls: batch, proof: Bytes::new() });
                }
            }
        }
    }

    /// Makes a call's parts ready to go, unless its caller has given up.
    fn take(&self, outgoing: Outgoing, waiting: &mut Batches<Call>) {
        let Outgoing { id, deadline, payload } = outgoing;
        let left = deadline.saturating_duration_since(Instant::now());
        match self.shared.unanswered.lock().get_mut(&id) {
            Some(call) if !left.is_zero() => call.sent = true,
            _ => return,
        }
        let deadline_ms = left.as_millis().clamp(1, u128::from(u32::MAX)) as u32;
        waiting.push(parts(payload).map(|(payload, more)| Call { id, deadline_ms, payload, more }));
    }

    async fn drained(&self, standing: &mut watch::Receiver<Standing>) {
        let _ = standing.wait_for(|standing| *standing == Standing::Draining).await;
        loop {
            let answered = self.shared.answered.notified();
            if self.shared.unanswered.lock().is_empty() {
                return;
            }
            answered.await;
        }
    }
}
