//! One connection, one frame at a time. Only pings are answered automatically.

use std::{future::poll_fn, task::Poll, time::Duration};

use bluetick_protocol::{ClientFrame, DeviceId, Hello, MessageId, ServerFrame, Welcome};
use futures_util::{SinkExt, StreamExt};
use tokio::time::{Instant, timeout_at};
use tokio_tungstenite::{
    MaybeTlsStream,
    tungstenite::{self, Message, protocol::CloseFrame},
};

use crate::{FrameError, codec::decode, transport};

const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a [`RawConnection`] returned no frame.
#[derive(Debug, thiserror::Error)]
pub enum RawError {
    /// No frame came within the time that the caller gave.
    #[error("no frame came in time")]
    Timeout,
    /// The server closed the connection, with its close code if it gave one.
    #[error("the connection is closed ({code:?} {reason})")]
    Closed {
        /// The WebSocket's close code.
        code: Option<u16>,
        /// The close reason: one of the protocol's error codes.
        reason: String,
    },
    /// The text is not a valid frame.
    #[error(transparent)]
    Decode(#[from] FrameError),
    /// Another frame came than the expected one.
    #[error("expected {expected}, got {got:?}")]
    Unexpected {
        /// The expected frame, in words.
        expected: &'static str,
        /// The frame that came.
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
    socket: transport::ClientSocket,
}

impl RawConnection {
    /// Opens a WebSocket to `ws://…/v1/ws` or `wss://…/v1/ws` and sends nothing.
    pub async fn connect(url: &str) -> Result<Self, RawError> {
        Self::connect_with(url, &[]).await
    }

    /// Like [`connect`](Self::connect), with a TLS configuration; the public authorities otherwise.
    pub async fn connect_trusting(
        url: &str,
        tls: Option<std::sync::Arc<rustls::ClientConfig>>,
    ) -> Result<Self, RawError> {
        Ok(RawConnection { socket: transport::open(url, &[], tls).await? })
    }

    /// Like [`connect`](Self::connect), with more headers, such as an `Origin`.
    pub async fn connect_with(url: &str, headers: &[(&str, &str)]) -> Result<Self, RawError> {
        Ok(RawConnection { socket: transport::open(url, headers, None).await? })
    }

    /// Sends `hello` and waits for `welcome`.
    pub async fn hello(
        &mut self,
        token: &str,
        device: &DeviceId,
        cursor: Option<MessageId>,
    ) -> Result<Welcome, RawError> {
        let (token, device) = (token.to_owned(), device.clone());
        self.hello_as(Hello { reference: None, token, device, cursor, resumes: None }).await
    }

    /// Like [`hello`](Self::hello), with all fields.
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

    /// Writes a text message, valid or not.
    pub async fn send_text(&mut self, text: impl Into<String>) -> Result<(), RawError> {
        Ok(self.socket.send(Message::text(text.into())).await?)
    }

    /// Writes a binary message, which servers refuse.
    pub async fn send_binary(&mut self, bytes: Vec<u8>) -> Result<(), RawError> {
        Ok(self.socket.send(Message::binary(bytes)).await?)
    }

    /// Buffers a frame; [`flush`](Self::flush) writes the buffer.
    pub async fn feed_frame(&mut self, frame: &ClientFrame) -> Result<(), RawError> {
        Ok(self.socket.feed(Message::text(frame.to_text())).await?)
    }

    /// Buffers a text, valid or not.
    pub async fn feed_text(&mut self, text: impl Into<String>) -> Result<(), RawError> {
        Ok(self.socket.feed(Message::text(text.into())).await?)
    }

    /// Writes the frames that [`feed_frame`](Self::feed_frame) has buffered.
    pub async fn flush(&mut self) -> Result<(), RawError> {
        Ok(self.socket.flush().await?)
    }

    /// The next frame of the server. Pings are answered meanwhile.
    pub async fn next_frame(&mut self, within: Duration) -> Result<ServerFrame, RawError> {
        Ok(decode(&self.next_text(within).await?)?)
    }

    /// The next frame as text. Cancel-safe.
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

    /// Waits for a frame, and passes it and the frames that came with it to `take`, at most `most`. It
    /// saves load generators a timer and a copy per frame. Cancel-safe.
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

    /// Reads until `pick` accepts a frame, and drops the others.
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

    /// Closes with a close frame, and waits up to two seconds for the server's.
    pub async fn close(mut self) {
        let goodbye = async {
            let _ = self.socket.close(None).await;
            while let Some(Ok(_)) = self.socket.next().await {}
        };
        let _ = tokio::time::timeout(Duration::from_secs(2), goodbye).await;
    }

    /// Drops the connection as a crash would: no close frame, and a TCP reset where possible.
    pub fn abort(self) {
        if let MaybeTlsStream::Plain(tcp) = self.socket.get_ref() {
            let _ = tcp.set_zero_linger();
        }
    }
}
