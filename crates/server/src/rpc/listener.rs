//! The serving side of links: accepts streams from other processes of the cluster, runs their calls concurrently, and
//! sends the answers in batches.
//!
//! A stream begins with a handshake (`proof.rs`): the listener proves itself in the headers of its response, the caller
//! in its first message. No call is read before that. Anybody who reaches the port can open streams, so unproven
//! streams are limited in number, in time, and in the bytes that are read.
//!
//! Beyond the in-flight limit no more calls are read from a stream: that is the backpressure on callers. A call goes on
//! after its caller is gone, so that it does not stop half-way.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use async_trait::async_trait;
use axum::{body::HttpBody, http};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::{
    net::TcpListener,
    sync::{Notify, Semaphore, mpsc, watch},
    time::{Instant, timeout},
};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming, body::Body, server::Grpc};
use tonic_prost::ProstCodec;

use super::{
    guard::{Challenge, Guard, GuardError},
    wire::{AnswerBatch, AnswerPart, Assembly, BATCH_MAX_BYTES, CallBatch, NONCE, OPEN, PartQueue, parts},
};

/// The in-flight limits of one stream, and of all streams together.
const STREAM_CALLS_MAX: usize = 2_048;
const ALL_CALLS_MAX: usize = 8_192;
/// How long a call may run after its caller's deadline.
const GRACE: Duration = Duration::from_secs(10);
/// The pause after a failed accept. It blocks a thread, which is better than spinning on a core.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// How long a caller has to prove itself. Callers give up sooner.
const PROVEN_WITHIN: Duration = Duration::from_secs(2);
/// The most unproven streams. Each takes milliseconds, and a caller that is refused tries again.
pub(super) const UNPROVEN_MAX: usize = 256;
/// How much is read of an unproven stream: a proof, and room for later versions.
const UNPROVEN_MAX_BYTES: usize = 1024;
/// Callers open one stream on a connection; this leaves some room.
pub(super) const STREAMS_PER_CONNECTION: u32 = 8;
/// A full batch, with a margin.
const MESSAGE_MAX_BYTES: usize = 2 * BATCH_MAX_BYTES;
const KEEP_ALIVE: Duration = Duration::from_secs(3);

/// Runs the calls of other processes.
#[async_trait]
pub trait Dispatcher: Send + Sync + 'static {
    async fn dispatch(&self, payload: Bytes) -> Bytes;
}

/// Accepts links until it is dropped. Dropping it ends all of them at once, as a crash would.
pub struct RpcListener {
    state: Arc<ListenerState>,
    /// Closes the port.
    stop: Option<tokio::sync::oneshot::Sender<()>>,
}

struct ListenerState {
    guard: Guard,
    /// The name of this process: `host:port#boot`.
    name: String,
    dispatcher: Arc<dyn Dispatcher>,
    room: Arc<Semaphore>,
    /// Permits for streams that are not proven yet.
    unproven: Arc<Semaphore>,
    phase: watch::Sender<ListenerPhase>,
    working: AtomicUsize,
    streams: AtomicUsize,
    changed: Notify,
    refused: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum ListenerPhase {
    Serving,
    Draining,
    Stopped,
}

impl RpcListener {
    pub async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
        TcpListener::bind(address).await
    }

    pub fn start(
        tcp: TcpListener,
        guard: Guard,
        name: &str,
        dispatcher: Arc<dyn Dispatcher>,
    ) -> Result<RpcListener, GuardError> {
        let server = guard
            .server()?
            .http2_keepalive_interval(Some(KEEP_ALIVE))
            .http2_keepalive_timeout(Some(KEEP_ALIVE))
            .max_concurrent_streams(STREAMS_PER_CONNECTION)
            .initial_stream_window_size(4 * 1024 * 1024)
            .initial_connection_window_size(8 * 1024 * 1024);
        let state = Arc::new(ListenerState {
            guard,
            name: name.to_owned(),
            dispatcher,
            room: Arc::new(Semaphore::new(ALL_CALLS_MAX)),
            unproven: Arc::new(Semaphore::new(UNPROVEN_MAX)),
            phase: watch::Sender::new(ListenerPhase::Serving),
            working: AtomicUsize::new(0),
            streams: AtomicUsize::new(0),
            changed: Notify::new(),
            refused: AtomicBool::new(false),
        });
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let service = LinkService { state: state.clone() };
        // The frames are small: Nagle's algorithm would delay every call.
        let incoming = tokio_stream::StreamExt::map(TcpListenerStream::new(tcp), |accepted| {
            accepted
                .inspect(|stream| {
                    let _ = stream.set_nodelay(true);
                })
                .inspect_err(|error| {
                    // Most likely out of file descriptors: without a pause this would spin.
                    metrics::counter!("bluetick_accept_errors_total").increment(1);
                    tracing::warn!(%error, "could not accept a connection of another process; check the limit of open files");
                    std::thread::sleep(ACCEPT_PAUSE);
                })
        });
        tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            if let Err(error) = server.serve_with_incoming_shutdown(service, incoming, stopped).await {
                tracing::error!(%error, "the cluster's listener failed");
            }
        });
        Ok(RpcListener { state, stop: Some(stop) })
    }

    /// Tells every peer that this process is shutting down, and waits until all calls are answered and all links closed.
    pub async fn drain(&mut self) {
        self.state.phase.send_replace(ListenerPhase::Draining);
        loop {
            let changed = self.state.changed.notified();
            if self.state.working.load(Ordering::Acquire) == 0
                && self.state.streams.load(Ordering::Acquire) == 0
            {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for RpcListener {
    fn drop(&mut self) {
        self.state.phase.send_replace(ListenerPhase::Stopped);
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }
}

/// The gRPC service.
#[derive(Clone)]
struct LinkService {
    state: Arc<ListenerState>,
}

type Answering = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

impl tower::Service<http::Request<Body>> for LinkService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Answering {
        let state = self.state.clone();
        Box::pin(async move {
            if request.uri().path() != OPEN {
                let why =
                    "this process speaks only bluetick.cluster.v2.Link: the two are of different versions";
                return Ok(Status::unimplemented(why).into_http());
            }
            let proven = Arc::new(AtomicBool::new(false));
            let request = request.map(|body| ShortUntilProven { body, proven: proven.clone(), read: 0 });
            let mut grpc = Grpc::new(ProstCodec::<AnswerBatch, CallBatch>::default())
                .max_decoding_message_size(MESSAGE_MAX_BYTES);
            Ok(grpc.streaming(LinkOpener { state, proven }, request).await)
        })
    }
}

/// The request body of a stream. Fails if more than a proof is sent before the caller is proven.
struct ShortUntilProven {
    body: Body,
    proven: Arc<AtomicBool>,
    read: usize,
}

impl HttpBody for ShortUntilProven {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        if !this.proven.load(Ordering::Acquire)
            && let Some(Ok(frame)) = &frame
        {
            this.read += frame.data_ref().map_or(0, Bytes::len);
            if this.read > UNPROVEN_MAX_BYTES {
                return Poll::Ready(Some(Err(Status::resource_exhausted("too much before the proof"))));
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

struct LinkOpener {
    state: Arc<ListenerState>,
    proven: Arc<AtomicBool>,
}

type Opening = Pin<
    Box<dyn Future<Output = Result<Response<ReceiverStream<Result<AnswerBatch, Status>>>, Status>> + Send>,
>;

impl tonic::server::StreamingService<CallBatch> for LinkOpener {
    type Response = AnswerBatch;
    type ResponseStream = ReceiverStream<Result<AnswerBatch, Status>>;
    type Future = Opening;

    fn call(&mut self, request: Request<Streaming<CallBatch>>) -> Opening {
        let (state, proven) = (self.state.clone(), self.proven.clone());
        Box::pin(async move { state.open(request, proven) })
    }
}

impl ListenerState {
    fn open(
        self: Arc<Self>,
        request: Request<Streaming<CallBatch>>,
        proven: Arc<AtomicBool>,
    ) -> Result<Response<ReceiverStream<Result<AnswerBatch, Status>>>, Status> {
        if *self.phase.borrow() != ListenerPhase::Serving {
            return Err(Status::unavailable("this process is going down"));
        }
        let Ok(place) = self.unproven.clone().try_acquire_owned() else {
            metrics::counter!("bluetick_rpc_refused_total").increment(1);
            return Err(Status::unavailable("too many links are being opened; try again"));
        };
        let from = request.remote_addr();
        let Some(nonce) = request.metadata().get(NONCE).and_then(|value| value.to_str().ok()) else {
            return Err(self.refuse(from));
        };
        let Some(challenge) = Challenge::new(nonce).map_err(Status::internal)? else {
            return Err(self.refuse(from));
        };
        let (outgoing, answers) = mpsc::channel(2);
        let mut response = Response::new(ReceiverStream::new(answers));
        self.guard.greet(&challenge, &self.name, response.metadata_mut()).map_err(Status::internal)?;
        tokio::spawn(async move {
            let mut calls = request.into_inner();
            let mut phase = self.phase.subscribe();
            let admitted = tokio::select! {
                biased;
                () = reached(&mut phase, ListenerPhase::Stopped) => return,
                admitted = self.admits(&challenge, &mut calls) => admitted,
            };
            proven.store(admitted, Ordering::Release);
            drop(place);
            match admitted {
                true => self.serve(calls, outgoing).await,
                false => drop(outgoing.send(Err(self.refuse(from))).await),
            }
        });
        Ok(response)
    }

    /// Whether the first message arrives in time and proves the caller.
    async fn admits(&self, challenge: &Challenge, calls: &mut Streaming<CallBatch>) -> bool {
        let Ok(Ok(Some(first))) = timeout(PROVEN_WITHIN, calls.message()).await else { return false };
        first.calls.is_empty() && self.guard.admits(challenge, &self.name, &first.proof)
    }

    fn refuse(&self, from: Option<SocketAddr>) -> Status {
        metrics::counter!("bluetick_rpc_refused_total").increment(1);
        // Logged once: repeated attempts must not fill the log.
        if !self.refused.swap(true, Ordering::Relaxed) {
            let from = from.map(|address| address.to_string());
            tracing::warn!(
                from,
                "refused a process that did not prove to know the cluster's secret; if it is one of yours, give it the \
                 same secret"
            );
        }
        Status::unauthenticated("the cluster's secret was not proven: it must be the same in all processes")
    }

    async fn serve(
        self: Arc<Self>,
        calls: Streaming<CallBatch>,
        outgoing: mpsc::Sender<Result<AnswerBatch, Status>>,
    ) {
        let _counted = CountGuard::new(self.clone(), |state| &state.streams);
        let accepted = AnswerBatch { answers: Vec::new(), draining: false, accepted: true };
        if outgoing.send(Ok(accepted)).await.is_err() {
            return;
        }
        let (answer, answers) = mpsc::channel(STREAM_CALLS_MAX);
        let mut phase = self.phase.subscribe();
        tokio::select! {
            biased;
            () = reached(&mut phase, ListenerPhase::Stopped) => {}
            () = self.write(answers, &outgoing) => {}
            () = async {
                self.clone().read(calls, answer).await;
                // The peer sends no more calls; the running ones are still answered.
                std::future::pending::<()>().await;
            } => {}
        }
    }

    /// Reads calls and runs each in a task, up to the in-flight limits.
    async fn read(self: Arc<Self>, mut calls: Streaming<CallBatch>, answer: mpsc::Sender<(u64, Bytes)>) {
        let room = Arc::new(Semaphore::new(STREAM_CALLS_MAX));
        let mut unfinished: HashMap<u64, Assembly> = HashMap::new();
        while let Ok(Some(batch)) = calls.message().await {
            for call in batch.calls {
                let mut assembly = unfinished.remove(&call.id).unwrap_or_default();
                let Some(payload) = assembly.add(call.payload, call.more) else {
                    unfinished.insert(call.id, assembly);
                    continue;
                };
                let deadline = Instant::now() + Duration::from_millis(call.deadline_ms.into());
                let Ok(place) = room.clone().acquire_owned().await else { return };
                let Ok(global) = self.room.clone().acquire_owned().await else { return };
                // The caller has given up and asks elsewhere.
                if Instant::now() >= deadline {
                    continue;
                }
                let (state, answer) = (self.clone(), answer.clone());
                tokio::spawn(async move {
                    let counted = CountGuard::new(state.clone(), |state| &state.working);
                    if let Ok(payload) = timeout(
                        deadline.saturating_duration_since(Instant::now()) + GRACE,
                        state.dispatcher.dispatch(payload),
                    )
                    .await
                    {
                        let _ = answer.send((call.id, payload)).await;
                    }
                    drop((counted, place, global));
                });
            }
        }
    }

    /// Sends answers in batches. Ends when no call is left, or the peer is gone.
    async fn write(
        &self,
        mut answers: mpsc::Receiver<(u64, Bytes)>,
        outgoing: &mpsc::Sender<Result<AnswerBatch, Status>>,
    ) {
        let mut phase = self.phase.subscribe();
        let mut told = false;
        let mut waiting: PartQueue<AnswerPart> = PartQueue::default();
        let take = |waiting: &mut PartQueue<AnswerPart>, (id, payload): (u64, Bytes)| {
            waiting.push(parts(payload).map(|(payload, more)| AnswerPart { id, payload, more }));
        };
        loop {
            tokio::select! {
                biased;
                () = reached(&mut phase, ListenerPhase::Draining), if !told => {
                    told = true;
                    let draining = AnswerBatch { answers: Vec::new(), draining: true, accepted: false };
                    if outgoing.send(Ok(draining)).await.is_err() {
                        return;
                    }
                }
                permit = outgoing.reserve(), if !waiting.is_empty() => {
                    let Ok(permit) = permit else { return };
                    while let Ok(answer) = answers.try_recv() {
                        take(&mut waiting, answer);
                    }
                    let batch = waiting.next_batch(|part| part.payload.len() + 16);
                    permit.send(Ok(AnswerBatch { answers: batch, draining: false, accepted: false }));
                }
                answer = answers.recv(), if waiting.is_empty() => match answer {
                    Some(answer) => take(&mut waiting, answer),
                    None => return,
                },
                () = outgoing.closed() => return,
            }
        }
    }
}

/// Waits until the listener reaches a phase, or is gone.
async fn reached(phase: &mut watch::Receiver<ListenerPhase>, least: ListenerPhase) {
    let _ = phase.wait_for(|phase| *phase >= least).await;
}

/// Counts a stream or call for as long as it lives, and notifies when it ends.
struct CountGuard {
    state: Arc<ListenerState>,
    count: fn(&ListenerState) -> &AtomicUsize,
}

impl CountGuard {
    fn new(state: Arc<ListenerState>, count: fn(&ListenerState) -> &AtomicUsize) -> CountGuard {
        count(&state).fetch_add(1, Ordering::AcqRel);
        CountGuard { state, count }
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        (self.count)(&self.state).fetch_sub(1, Ordering::AcqRel);
        self.state.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    fn caller(proven: &Arc<AtomicBool>, chunks: &[usize]) -> ShortUntilProven {
        let frames = chunks.iter().map(|length| Ok::<_, Status>(Frame::data(vec![7; *length].into())));
        let body = Body::new(StreamBody::new(tokio_stream::iter(frames.collect::<Vec<_>>())));
        ShortUntilProven { body, proven: proven.clone(), read: 0 }
    }

    #[tokio::test]
    async fn a_caller_that_is_not_proven_says_little() {
        let proven = Arc::new(AtomicBool::new(false));
        assert!(caller(&proven, &[40, UNPROVEN_MAX_BYTES - 40]).collect().await.is_ok());
        for long in [&[UNPROVEN_MAX_BYTES + 1][..], &[UNPROVEN_MAX_BYTES, 1][..]] {
            assert!(caller(&proven, long).collect().await.is_err(), "{long:?}");
        }
        let mut body = caller(&proven, &[40, 2 * UNPROVEN_MAX_BYTES]);
        assert!(body.frame().await.unwrap().is_ok());
        proven.store(true, Ordering::Release);
        assert!(body.frame().await.unwrap().is_ok(), "a link that is proven is not bounded by it");
    }
}
