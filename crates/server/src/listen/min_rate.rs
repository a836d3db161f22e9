//! A stream that fails when its client reads too slowly. Without it, a client that requests a large
//! response and reads one byte at a time holds a connection, a file or memory for as long as it
//! likes. No timeout layer covers this: docs/decisions/0031-allocator-shim-and-read-rate.md.

use std::{
    io::{Error, ErrorKind, Result},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

use super::Unwritten;

/// How fast a client must read while a write waits.
#[derive(Debug, Clone, Copy)]
pub struct MinRate {
    /// The window in which bytes are counted. At least one byte must be read in it.
    pub window: Duration,
    pub bytes_per_sec: usize,
}

impl MinRate {
    fn bytes(self) -> usize {
        self.bytes_per_sec.saturating_mul(self.window.as_secs() as usize).max(1)
    }
}

/// A stream whose writes fail with `TimedOut` when the client reads below the minimum rate.
pub struct MinRateStream<S> {
    stream: S,
    rate: MinRate,
    /// Set from the first write that had to wait until everything is flushed.
    waiting: Option<StalledWrite>,
    unwritten: Unwritten,
}

struct StalledWrite {
    timer: Pin<Box<Sleep>>,
    /// Bytes accepted by the socket in the current window.
    taken: usize,
}

impl<S> MinRateStream<S> {
    pub fn new(stream: S, rate: MinRate, unwritten: Unwritten) -> Self {
        MinRateStream { stream, rate, waiting: None, unwritten }
    }

    /// The stream without the minimum rate.
    pub fn into_inner(self) -> S {
        self.stream
    }

    fn after_write(&mut self, cx: &mut Context<'_>, written: Poll<Result<usize>>) -> Poll<Result<usize>> {
        match &written {
            Poll::Pending => return self.check_rate(cx).map(Err),
            // The session measures its own read rate; here only a socket that accepts nothing
            // fails.
            Poll::Ready(Ok(1..)) if self.unwritten.is_upgraded() => self.waiting = None,
            Poll::Ready(Ok(bytes)) => {
                if let Some(waiting) = &mut self.waiting {
                    waiting.taken += bytes;
                }
            }
            Poll::Ready(Err(_)) => {}
        }
        written
    }

    fn after_flush(&mut self, cx: &mut Context<'_>, flushed: Poll<Result<()>>) -> Poll<Result<()>> {
        if flushed.is_pending() {
            return self.check_rate(cx).map(Err);
        }
        self.waiting = None;
        self.unwritten.written();
        flushed
    }

    /// Ready with an error if the client has read too little in the window.
    fn check_rate(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let rate = self.rate;
        let waiting = self
            .waiting
            .get_or_insert_with(|| StalledWrite { timer: Box::pin(sleep(rate.window)), taken: 0 });
        loop {
            ready!(waiting.timer.as_mut().poll(cx));
            if waiting.taken < rate.bytes() {
                return Poll::Ready(Error::new(ErrorKind::TimedOut, "the client reads too slowly"));
            }
            waiting.taken = 0;
            waiting.timer.as_mut().reset(Instant::now() + rate.window);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MinRateStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MinRateStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.after_write(cx, written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        this.after_flush(cx, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.after_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const RATE: MinRate = MinRate { window: Duration::from_secs(60), bytes_per_sec: 10 };

    /// Writes to a reader that takes `bytes` every ten seconds. Returns the result, and the seconds
    /// until it.
    async fn written_to_reader_of(bytes: usize, unwritten: Unwritten) -> (Result<()>, u64) {
        let (near, mut far) = duplex(16);
        let mut stream = MinRateStream::new(near, RATE, unwritten);
        let reader = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(10)).await;
                far.read_exact(&mut vec![0; bytes]).await.unwrap();
            }
        });
        let began = Instant::now();
        let written = stream.write_all(&[1; 3000]).await;
        reader.abort();
        (written, began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_is_judged_by_bytes_a_second() {
        let (written, _) = written_to_reader_of(130, Unwritten::default()).await;
        written.unwrap();
        for bytes in [0, 1, 90] {
            let (written, secs) = written_to_reader_of(bytes, Unwritten::default()).await;
            assert_eq!(written.unwrap_err().kind(), ErrorKind::TimedOut, "{bytes} bytes at a time");
            assert_eq!(secs, 60);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_on_the_connection_judges_for_itself_who_takes_anything() {
        let unwritten = Unwritten::default();
        unwritten.upgrade();
        written_to_reader_of(10, unwritten.clone()).await.0.unwrap();
        let (written, secs) = written_to_reader_of(0, unwritten).await;
        assert_eq!((written.unwrap_err().kind(), secs), (ErrorKind::TimedOut, 60));
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_the_last_byte_is_let_go_with_it() {
        let unwritten = Unwritten::default();
        let (near, mut far) = duplex(16);
        let mut stream = MinRateStream::new(near, RATE, unwritten.clone());
        let kept = std::sync::Arc::new(());
        unwritten.keep(Box::new(kept.clone()));
        stream.write_all(&[1; 16]).await.unwrap();
        assert_eq!(std::sync::Arc::strong_count(&kept), 2);
        far.read_exact(&mut [0; 16]).await.unwrap();
        stream.flush().await.unwrap();
        assert_eq!(std::sync::Arc::strong_count(&kept), 1);
    }
}
