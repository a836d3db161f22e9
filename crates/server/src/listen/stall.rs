//! A stream whose other side has stopped reading: after a while it is at an end. Without this, whoever asks for a large file
//! and never takes it holds a connection and a file for as long as they like.

use std::{
    io::{Error, ErrorKind, Result},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// Fails to write when nothing could be written for so long.
pub struct Stalling<S> {
    stream: S,
    patience: Duration,
    /// Since the first write that had to wait.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Stalling<S> {
    pub fn new(stream: S, patience: Duration) -> Self {
        Stalling { stream, patience, waiting: None }
    }

    /// The stream alone, for who looks after it otherwise.
    pub fn into_inner(self) -> S {
        self.stream
    }

    fn judged<T>(&mut self, cx: &mut Context<'_>, written: Poll<Result<T>>) -> Poll<Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(patience)));
        waiting.as_mut().poll(cx).map(|()| Err(Error::new(ErrorKind::TimedOut, "the client reads nothing")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalling<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalling<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.judged(cx, written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        this.judged(cx, flushed)
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
        this.judged(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_stops_is_given_up_and_a_slow_one_is_not() {
        let (near, mut far) = duplex(4);
        let mut stream = Stalling::new(near, Duration::from_secs(60));
        let slow = async {
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_secs(50)).await;
                far.read_exact(&mut [0; 4]).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(stream.write_all(&[1; 40]), slow);
        written.unwrap();
        let began = tokio::time::Instant::now();
        let stopped = stream.write_all(&[1; 40]).await.unwrap_err();
        assert_eq!(stopped.kind(), ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), 60);
    }
}
