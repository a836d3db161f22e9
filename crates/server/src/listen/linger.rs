//! A lingering close. Closing a socket with unread bytes makes the kernel send a reset, which may
//! discard what was written just before: a `bye`, or the response to a request that was too long.

use std::{
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    net::TcpStream,
};

const LINGER: Duration = Duration::from_secs(2);
/// Above this many, connections are closed at once, so that lingering ones cannot exhaust file
/// descriptors.
const LINGERING_MAX: usize = 512;

static LINGERING: AtomicUsize = AtomicUsize::new(0);

/// A stream that, when dropped before the client has closed its side, shuts down its own side and
/// discards what the client still sends for a while.
pub struct Lingering {
    stream: Option<TcpStream>,
    client_ended: bool,
}

impl Lingering {
    pub fn new(stream: TcpStream) -> Self {
        Lingering { stream: Some(stream), client_ended: false }
    }

    /// The client has announced that it sends nothing more, so a drop need not linger.
    pub fn client_ended(&mut self) {
        self.client_ended = true;
    }

    /// Ready when a read would not block.
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &self.stream {
            Some(stream) => stream.poll_read_ready(cx).map(drop),
            None => Poll::Ready(()),
        }
    }

    fn stream(&mut self) -> std::io::Result<Pin<&mut TcpStream>> {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| std::io::ErrorKind::NotConnected.into())
    }
}

impl AsyncRead for Lingering {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        let (room, before) = (buf.remaining(), buf.filled().len());
        let read = ready!(this.stream()?.poll_read(cx, buf));
        if read.is_err() || (room > 0 && buf.filled().len() == before) {
            this.client_ended = true;
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Lingering {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        self.get_mut().stream()?.poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.get_mut().stream()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.get_mut().stream()?.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        self.get_mut().stream()?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if self.client_ended || LINGERING.fetch_add(1, Ordering::Relaxed) >= LINGERING_MAX {
            if !self.client_ended {
                LINGERING.fetch_sub(1, Ordering::Relaxed);
            }
            return;
        }
        runtime.spawn(async move {
            let _ = tokio::time::timeout(LINGER, discard_input(stream)).await;
            LINGERING.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Reads until the client closes its side.
async fn discard_input(mut stream: TcpStream) {
    let mut ignored = [0u8; 2048];
    if stream.shutdown().await.is_err() {
        return;
    }
    while matches!(stream.read(&mut ignored).await, Ok(1..)) {}
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// What a client reads to the end after it wrote something that nobody read.
    async fn last_words(said_goodbye: bool) -> std::io::Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut server = Lingering::new(listener.accept().await.unwrap().0);
        client.write_all(b"not read").await.unwrap();
        server.stream().unwrap().readable().await.unwrap();
        server.write_all(b"bye").await.unwrap();
        if said_goodbye {
            server.client_ended();
        }
        drop(server);
        let mut read = String::new();
        client.read_to_string(&mut read).await.map(|_| read)
    }

    #[tokio::test]
    async fn the_last_words_arrive_unless_the_client_said_goodbye_and_goes_on() {
        assert_eq!(last_words(false).await.unwrap(), "bye");
        assert_eq!(last_words(true).await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    }
}
