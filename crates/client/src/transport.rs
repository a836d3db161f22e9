//! Opens a WebSocket, plain or over TLS.

use std::{sync::Arc, time::Duration};

use tokio::net::TcpStream;
use tokio_tungstenite::{
    Connector, MaybeTlsStream, WebSocketStream, connect_async_tls_with_config,
    tungstenite::{
        Error,
        client::IntoClientRequest,
        error::UrlError,
        http::{HeaderName, HeaderValue},
        protocol::WebSocketConfig,
    },
};

pub(crate) type ClientSocket = WebSocketStream<MaybeTlsStream<TcpStream>>;

pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Above any page of history, and low enough that a server cannot exhaust the memory.
const FRAME_MAX_BYTES: usize = 16 * 1024 * 1024;
/// Frames of a chat are small, and a load generator opens thousands of sockets.
const READ_BUFFER_BYTES: usize = 8 * 1024;

pub(crate) async fn open(
    url: &str,
    headers: &[(&str, &str)],
    tls: Option<Arc<rustls::ClientConfig>>,
) -> Result<ClientSocket, Error> {
    if !url.starts_with("ws://") && !url.starts_with("wss://") {
        return Err(Error::Url(UrlError::UnsupportedUrlScheme));
    }
    if url.starts_with("wss:") {
        // Fails if the process has a provider already, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let mut request = url.into_client_request()?;
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|e| Error::HttpFormat(e.into()))?;
        let value = HeaderValue::from_str(value).map_err(|e| Error::HttpFormat(e.into()))?;
        request.headers_mut().insert(name, value);
    }
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .max_message_size(Some(FRAME_MAX_BYTES))
        .max_frame_size(Some(FRAME_MAX_BYTES));
    let connecting = connect_async_tls_with_config(request, Some(config), true, tls.map(Connector::Rustls));
    match tokio::time::timeout(CONNECT_TIMEOUT, Box::pin(connecting)).await {
        Ok(connected) => connected.map(|(socket, _)| socket),
        Err(_) => Err(Error::Io(std::io::ErrorKind::TimedOut.into())),
    }
}
