//! The accept loop: from a TCP connection to HTTP requests that carry their peer's address.

mod linger;
mod min_rate;
mod per_address;
mod unwritten;

use std::{
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{Router, body::Body};
use bluetick_protocol::ErrorCode;
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
};
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

pub use linger::Lingering;
use min_rate::{MinRate, MinRateStream};
use per_address::{AddressLimit, ConnectionPermit};
pub use unwritten::Unwritten;

/// The stream of an HTTP connection without TLS.
pub type Plain = TokioIo<MinRateStream<Lingering>>;

/// How long a client may take to send a request head, and how long an idle connection is kept.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// How fast a client must read a response. A slow mobile network is faster.
const MIN_READ_RATE: MinRate = MinRate { window: Duration::from_secs(60), bytes_per_sec: 4 * 1024 };
const TLS_TIMEOUT: Duration = Duration::from_secs(10);
/// Large enough for a request head with a token of the maximum size.
const BUFFER_MAX_BYTES: usize = 32 * 1024;
/// The pause after an accept that failed for lack of files or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// The interval between log lines about failing accepts.
const ACCEPT_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The connection of a request. A WebSocket keeps the permit for as long as it lives.
#[derive(Clone)]
pub struct PeerConnection {
    pub address: SocketAddr,
    _permit: Arc<ConnectionPermit>,
}

pub struct Listener {
    tcp: TcpListener,
    tls: Option<TlsAcceptor>,
    limit: AddressLimit,
    router: Router,
    open: Arc<OpenConnections>,
}

/// Open HTTP connections. The gateway counts those that became WebSockets.
#[derive(Default)]
struct OpenConnections {
    count: AtomicUsize,
    none_left: Notify,
}

struct OpenGuard(Arc<OpenConnections>);

impl OpenConnections {
    fn enter(self: &Arc<Self>) -> OpenGuard {
        self.count.fetch_add(1, Ordering::SeqCst);
        OpenGuard(self.clone())
    }

    async fn empty(&self) {
        loop {
            let mut changed = pin!(self.none_left.notified());
            changed.as_mut().enable();
            if self.count.load(Ordering::SeqCst) == 0 {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.none_left.notify_waiters();
        }
    }
}

impl Listener {
    pub fn new(tcp: TcpListener, tls: Option<TlsAcceptor>, per_address: u32, router: Router) -> Self {
        Listener { tcp, tls, limit: AddressLimit::new(per_address), router, open: Arc::default() }
    }

    /// Accepts until `stop` turns true, then closes the port, waits for the requests in flight and
    /// returns. A caller that cannot wait drops this future.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let Listener { tcp, tls, limit, router, open } = self;
        let mut told: Option<Instant> = None;
        loop {
            let accepted = tokio::select! {
                biased;
                () = stopped(&mut stop) => break,
                accepted = tcp.accept() => accepted,
            };
            match accepted {
                Ok((stream, address)) => {
                    let _ = stream.set_nodelay(true);
                    let Some(permit) = limit.take(address.ip()) else {
                        metrics::counter!("bluetick_connections_refused_total").increment(1);
                        refuse(stream, tls.is_some());
                        continue;
                    };
                    let peer = PeerConnection { address, _permit: Arc::new(permit) };
                    let (router, stop, guard) = (router.clone(), stop.clone(), open.enter());
                    let stream = Lingering::new(stream);
                    match tls.clone() {
                        None => tokio::spawn(serve(stream, peer, router, stop, guard)),
                        Some(tls) => tokio::spawn(async move {
                            match tokio::time::timeout(TLS_TIMEOUT, tls.accept(stream)).await {
                                Ok(Ok(stream)) => serve(stream, peer, router, stop, guard).await,
                                Ok(Err(error)) => tracing::debug!(%error, "tls handshake failed"),
                                Err(_) => tracing::debug!("tls handshake timed out"),
                            }
                        }),
                    };
                }
                Err(error) if is_connection_error(&error) => {}
                Err(error) => {
                    if told.is_none_or(|at| at.elapsed() > ACCEPT_LOG_INTERVAL) {
                        tracing::error!(%error, "cannot accept connections");
                        told = Some(Instant::now());
                    }
                    metrics::counter!("bluetick_accept_errors_total").increment(1);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(tcp);
        open.empty().await;
    }
}

/// Resolves when `stop` turns true or its sender is dropped.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Whether only this connection failed: the client left before it was accepted.
fn is_connection_error(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Closes a connection over the limit, after a 429 response unless TLS prevents it.
fn refuse(stream: TcpStream, tls: bool) {
    if tls {
        return;
    }
    let code = ErrorCode::TooManyConnections;
    let body = format!(
        r#"{{"error":{{"code":"{code}","message":"this address has too many connections","retry_after_ms":5000}}}}"#
    );
    let answer = format!(
        "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\ncache-control: no-store\r\n\
         retry-after: 5\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    // A fresh socket has room for this; one that has not is closed without the response.
    let Ok(stream) = stream.into_std() else { return };
    let _ = std::io::Write::write(&mut &stream, answer.as_bytes());
    if let Ok(stream) = TcpStream::from_std(stream) {
        drop(Lingering::new(stream));
    }
}

async fn serve<S>(
    stream: S,
    peer: PeerConnection,
    router: Router,
    mut stop: watch::Receiver<bool>,
    guard: OpenGuard,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let unwritten = Unwritten::default();
    let stream = MinRateStream::new(stream, MIN_READ_RATE, unwritten.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        request.extensions_mut().insert(unwritten.clone());
        router.clone().call(request.map(Body::new))
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(BUFFER_MAX_BYTES);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service).with_upgrades());
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
    drop(guard);
}

#[cfg(test)]
mod tests;
