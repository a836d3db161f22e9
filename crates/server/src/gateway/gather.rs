//! Fewer and larger reads and writes. The WebSocket library reads and writes whenever its small
//! buffers are full or empty, and keeps those buffers for the life of the connection. This layer
//! collects consecutive writes and reads all that the socket has at once. It frees its buffers when
//! they are empty.

use std::{
    io::{ErrorKind, Result},
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::WRITE_BUFFER_BYTES;

/// So much is gathered at most, unless a single write is longer.
const GATHERED_BYTES: usize = 16 * 1024;
/// So much is read at once at most.
const READ_BYTES: usize = 16 * 1024;

pub(super) struct Gathering<S> {
    stream: S,
    /// What was read beyond what the library had room for, from the place on that it has not taken.
    ahead: Vec<u8>,
    taken: usize,
    gathered: Vec<u8>,
    /// How much of it is written.
    written: usize,
}

impl<S> Gathering<S> {
    pub(super) fn new(stream: S) -> Self {
        Gathering { stream, ahead: Vec::new(), taken: 0, gathered: Vec::new(), written: 0 }
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
        let this = self.get_mut();
        if this.ahead.is_empty() {
            let mut room = [MaybeUninit::uninit(); READ_BYTES];
            let mut read = ReadBuf::uninit(&mut room);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut read))?;
            let (now, later) = read.filled().split_at(read.filled().len().min(buf.remaining()));
            buf.put_slice(now);
            this.ahead = later.to_vec();
            return Poll::Ready(Ok(()));
        }
        let left = &this.ahead[this.taken..];
        let now = &left[..left.len().min(buf.remaining())];
        buf.put_slice(now);
        this.taken += now.len();
        if this.taken == this.ahead.len() {
            (this.ahead, this.taken) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
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

    /// Has all of this, and counts how often it was asked.
    struct Reader(Vec<u8>, usize);

    impl AsyncRead for Reader {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
            let this = self.get_mut();
            let piece: Vec<u8> = this.0.drain(..this.0.len().min(buf.remaining())).collect();
            buf.put_slice(&piece);
            this.1 += 1;
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
    async fn what_is_there_is_read_at_once_and_taken_in_order() {
        let sent: Vec<u8> = (0..40_000u32).map(|n| (n % 251) as u8).collect();
        let mut reader = Reader(sent.clone(), 0);
        let mut stream = Gathering::new(&mut reader);
        let mut received = Vec::new();
        for room in [1, 2048, 100, 5000].into_iter().cycle() {
            let mut space = vec![0; room];
            let mut buf = ReadBuf::new(&mut space);
            poll_fn(|cx| Pin::new(&mut stream).poll_read(cx, &mut buf)).await.unwrap();
            if buf.filled().is_empty() {
                break;
            }
            received.extend_from_slice(buf.filled());
        }
        assert!(received == sent);
        assert_eq!(stream.ahead.capacity(), 0, "the room is given back");
        assert_eq!(reader.1, sent.len().div_ceil(READ_BYTES) + 1, "reads, the last of which finds the end");
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
