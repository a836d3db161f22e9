//! Fewer and larger writes. The WebSocket library writes whenever its small buffer is full, and keeps that buffer for as long as the
//! connection lives; what it writes in a row is gathered here, and the room for it is given back.

use std::{
    io::{ErrorKind, Result},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::WRITE_BUFFER_BYTES;

/// So much is gathered at most, unless a single write is longer.
const GATHERED_BYTES: usize = 16 * 1024;

pub(super) struct Gathering<S> {
    stream: S,
    gathered: Vec<u8>,
    /// How much of it is written.
    written: usize,
}

impl<S> Gathering<S> {
    pub(super) fn new(stream: S) -> Self {
        Gathering { stream, gathered: Vec::new(), written: 0 }
    }

    pub(super) fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }
}

impl<S: AsyncWrite + Unpin> Gathering<S> {
    fn poll_gathered(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        while self.written < self.gathered.len() {
            let stream = Pin::new(&mut self.stream);
            match ready!(stream.poll_write(cx, &self.gathered[self.written..]))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                n => self.written += n,
            }
        }
        (self.gathered, self.written) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gathering<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gathering<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        let this = self.get_mut();
        // What does not fill the library's buffer is the last before a flush.
        if this.gathered.is_empty() && buf.len() <= WRITE_BUFFER_BYTES {
            return Pin::new(&mut this.stream).poll_write(cx, buf);
        }
        if !this.gathered.is_empty() && this.gathered.len() + buf.len() > GATHERED_BYTES {
            ready!(this.poll_gathered(cx))?;
        }
        if this.gathered.is_empty() {
            this.gathered.reserve_exact(GATHERED_BYTES.max(buf.len()));
        }
        this.gathered.extend_from_slice(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_gathered(cx))?;
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_gathered(cx))?;
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// Takes so much at a time, and remembers each piece.
    struct Pieces(usize, Vec<Vec<u8>>);

    impl AsyncWrite for Pieces {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
            let this = self.get_mut();
            let piece = &buf[..buf.len().min(this.0)];
            this.1.push(piece.to_vec());
            Poll::Ready(Ok(piece.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    async fn written(at_a_time: usize, lengths: &[usize]) -> Vec<Vec<u8>> {
        let mut stream = Gathering::new(Pieces(at_a_time, Vec::new()));
        let mut pinned = Pin::new(&mut stream);
        for (n, length) in lengths.iter().enumerate() {
            let piece = vec![n as u8; *length];
            assert_eq!(poll_fn(|cx| pinned.as_mut().poll_write(cx, &piece)).await.unwrap(), *length);
        }
        poll_fn(|cx| pinned.as_mut().poll_flush(cx)).await.unwrap();
        assert_eq!(stream.gathered.capacity(), 0, "the room is given back");
        stream.get_mut().1.drain(..).collect()
    }

    #[tokio::test]
    async fn long_writes_leave_together_and_all_of_them_in_order() {
        let lengths = |pieces: &[Vec<u8>]| pieces.iter().map(Vec::len).collect::<Vec<_>>();
        let pieces = written(usize::MAX, &[5000, 5000, 50]).await;
        assert_eq!(lengths(&pieces), [10_050]);
        assert_eq!(lengths(&written(usize::MAX, &[50, 60]).await), [50, 60]);
        let many = [GATHERED_BYTES - 1, 200, 300, 7];
        assert_eq!(lengths(&written(usize::MAX, &many).await), [GATHERED_BYTES - 1, 507]);
        for at_a_time in [1, 99, 5000] {
            let all: Vec<u8> = written(at_a_time, &many).await.concat();
            let expected: Vec<u8> =
                many.iter().enumerate().flat_map(|(n, length)| vec![n as u8; *length]).collect();
            assert!(all == expected, "{at_a_time} at a time");
        }
    }
}
