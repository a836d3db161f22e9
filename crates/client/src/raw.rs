//! One connection, one frame at a time, with nothing done behind the caller's back except answering pings.

use std::{future::poll_fn, task::Poll, time::Duration};

use bluetick_protocol::{ClientFrame, DeviceId, Hello, MessageId, ServerFrame, Welcome};
use futures_util::{SinkExt, StreamExt};
use tokio::time::{Instant, timeout_at};
use tokio_tungstenite::{
    MaybeTlsStream,
    tungstenite::{self, Message, protocol::CloseFrame},
};

use crate::{DecodeError, codec::decode, transport};

const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a [`RawConnection`] has nothing to give.
#[derive(Debug, thiserror::Error)]
pub enum RawError {
    /// Nothing came for as long as the caller wanted to wait.
    #[error("no frame came in time")]
    Timeout,
    /// The server closed, with its close code if it gave one.
    #[error("the connection is closed ({code:?} {reason})")]
    Closed {
        /// The WebSocket's close code.
        code: Option<u16>,
        /// The text beside it: one of the protocol's error codes.
        reason: String,
    },
    /// What came is no frame.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// Another frame came than the one that had to.
    #[error("expected {expected}, got {got:?}")]
    Unexpected {
        /// In words.
        expected: &'static str,
        /// What came.
        got: Box<ServerFrame>,
    },
    /// The connection could not be made, or broke.
    #[error(transparent)]
    Socket(Box<tungstenite::Error>),
}

impl From<tungstenite::Error> for RawError {
    fn from(e: tungstenite::Error) -> Self {
        match e {
            tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed => {
                RawError::Closed { code: None, reason: String::new() }
            }
            other => RawError::Socket(Box::new(other)),
        }
    }
}

fn closed(frame: Option<CloseFrame>) -> RawError {
    match frame {
        Some(frame) => {
            RawError::Closed { code: Some(frame.code.into()), reason: frame.reason.as_str().to_owned() }
        }
        None => RawError::Closed { code: None, reason: String::new() },
    }
}

/// A WebSocket to a Bluetick server for tests and load generators: it sends what it is told, wrong frames included.
pub struct RawConnection {
    socket: transport::Socket,
}

impl RawConnection {
    /// Opens a WebSocket to `ws://…/v1/ws` or `wss://…/v1/ws`, and says nothing on it.
    pub async fn connect(url: &str) -> Result<Self, RawError> {
        Self::connect_with(url, &[]).await
    }

    /// The same with certificate authorities of one's own; the public ones otherwise.
    pub async fn connect_trusting(
        url: &str,
        tls: Option<std::sync::Arc<rustls::ClientConfig>>,
    ) -> Result<Self, RawError> {
        Ok(RawConnection { socket: transport::open(url, &[], tls).await? })
    }

    /// Connects with further headers of the upgrade, such as an `Origin`.
    pub async fn connect_with(url: &str, headers: &[(&str, &str)]) -> Result<Self, RawError> {
        Ok(RawConnection { socket: transport::open(url, headers, None).await? })
    }

    /// Says hello and waits for the welcome.
    pub async fn hello(
        &mut self,
        token: &str,
        device: &DeviceId,
        cursor: Option<MessageId>,
    ) -> Result<Welcome, RawError> {
        let (token, device) = (token.to_owned(), device.clone());
        self.hello_as(Hello { reference: None, token, device, cursor, resumes: None }).await
    }

    /// The same, with whatever else a hello can say.
    pub async fn hello_as(&mut self, hello: Hello) -> Result<Welcome, RawError> {
        self.send_frame(&ClientFrame::Hello(hello)).await?;
        match self.next_frame(HELLO_TIMEOUT).await? {
            ServerFrame::Welcome(welcome) => Ok(welcome),
            got => Err(RawError::Unexpected { expected: "a welcome", got: Box::new(got) }),
        }
    }

    /// Writes a frame.
    pub async fn send_frame(&mut self, frame: &ClientFrame) -> Result<(), RawError> {
        self.send_text(frame.to_text()).await
    }

    /// Writes a text message, whatever is in it.
    pub async fn send_text(&mut self, text: impl Into<String>) -> Result<(), RawError> {
        Ok(self.socket.send(Message::text(text.into())).await?)
    }

    /// Writes a binary message, which no server wants.
    pub async fn send_binary(&mut self, bytes: Vec<u8>) -> Result<(), RawError> {
        Ok(self.socket.send(Message::binary(bytes)).await?)
    }

    /// Puts a frame into the buffer only; [`flush`](Self::flush) writes all that was put there.
    pub async fn feed_frame(&mut self, frame: &ClientFrame) -> Result<(), RawError> {
        Ok(self.socket.feed(Message::text(frame.to_text())).await?)
    }

    /// The same with a text, whatever is in it.
    pub async fn feed_text(&mut self, text: impl Into<String>) -> Result<(), RawError> {
        Ok(self.socket.feed(Message::text(text.into())).await?)
    }

    /// Writes what [`feed_frame`](Self::feed_frame) has put into the buffer.
    pub async fn flush(&mut self) -> Result<(), RawError> {
        Ok(self.socket.flush().await?)
    }

    /// The next frame of the server's; pings are answered on the way.
    pub async fn next_frame(&mut self, within: Duration) -> Result<ServerFrame, RawError> {
        Ok(decode(&self.next_text(within).await?)?)
    }

    /// The next frame as it came. Cancelling this loses nothing.
    pub async fn next_text(&mut self, within: Duration) -> Result<String, RawError> {
        let deadline = Instant::now() + within;
        loop {
            let next = timeout_at(deadline, self.socket.next()).await.map_err(|_| RawError::Timeout)?;
            match next {
                None => return Err(closed(None)),
                Some(Err(e)) => return Err(e.into()),
                Some(Ok(Message::Text(text))) => return Ok(text.as_str().to_owned()),
                Some(Ok(Message::Close(frame))) => return Err(closed(frame)),
                Some(Ok(_)) => {}
            }
        }
    }

    /// Waits for a frame, and gives it and those that came with it to `take`, at most `most` of them: for load
    /// generators, which have no time for a timer and a copy a frame. Cancelling this loses nothing.
    pub async fn next_texts(&mut self, most: usize, mut take: impl FnMut(&str)) -> Result<(), RawError> {
        let mut taken = 0;
        poll_fn(|cx| {
            while taken < most {
                match self.socket.poll_next_unpin(cx) {
                    Poll::Ready(Some(Ok(Message::Text(text)))) => {
                        take(text.as_str());
                        taken += 1;
                    }
                    Poll::Ready(Some(Ok(Message::Close(frame)))) => return Poll::Ready(Err(closed(frame))),
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(Some(Err(e))) => return Poll::Ready(Err(e.into())),
                    Poll::Ready(None) => return Poll::Ready(Err(closed(None))),
                    Poll::Pending if taken == 0 => return Poll::Pending,
                    Poll::Pending => break,
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Reads on until a frame fits, dropping the others.
    pub async fn next_where<T>(
        &mut self,
        within: Duration,
        mut pick: impl FnMut(ServerFrame) -> Option<T>,
    ) -> Result<T, RawError> {
        let deadline = Instant::now() + within;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Some(picked) = pick(self.next_frame(left).await?) {
                return Ok(picked);
            }
        }
    }

    /// Closes as a client should: with a close frame, and waiting a moment for the server's.
    pub async fn close(mut self) {
        let goodbye = async {
            let _ = self.socket.close(None).await;
            while let Some(Ok(_)) = self.socket.next().await {}
        };
        let _ = tokio::time::timeout(Duration::from_secs(2), goodbye).await;
    }

    /// Drops the connection as a crash would: no close frame, and a reset instead of a shutdown where TCP allows.
    pub fn abort(self) {
        if let MaybeTlsStream::Plain(tcp) = self.socket.get_ref() {
            let _ = tcp.set_zero_linger();
        }
    }
}
