//! The users of an attack, how they connect, and what they are answered.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use bluetick_client::{RawConnection, RawError};
use bluetick_protocol::{ClientFrame, ConversationId, DeviceId, Send, ServerFrame, UserId, Welcome};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    super::connect::{Server, plain_id},
    Sizes,
};

/// How long an answer may take that the attack depends on.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How often a send that is refused for a while is tried again.
const SEND_TRIES: usize = 200;

/// One attack's view of the server: users whom no other attack has, and clients to act for them.
pub struct Stage {
    pub server: Arc<Server>,
    pub sizes: Sizes,
    prefix: String,
    http: reqwest::Client,
}

impl Stage {
    pub fn new(server: Arc<Server>, sizes: Sizes, prefix: String) -> Result<Stage, String> {
        let mut builder = reqwest::Client::builder().no_proxy().http1_only();
        if let Some(tls) = server.tls() {
            builder = builder.tls_backend_preconfigured(tls.clone());
        }
        let http = builder.build().map_err(|e| format!("cannot make an HTTP client: {e}"))?;
        Ok(Stage { server, sizes, prefix, http })
    }

    pub fn flood_time(&self) -> Duration {
        Duration::from_secs(self.sizes.seconds)
    }

    pub fn user(&self, name: &str) -> UserId {
        plain_id(&format!("{}-{name}", self.prefix))
    }

    pub async fn connect(&self, user: &UserId, device: &str) -> Result<(RawConnection, Welcome), String> {
        let device: DeviceId = plain_id(device);
        self.server.hello_on(user, &device).await
    }

    /// A request of the HTTP API in a user's name.
    pub fn request(&self, method: Method, path: &str, token: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.server.http_url())).bearer_auth(token)
    }

    /// A request to an address that the server gave out.
    pub fn signed(&self, method: Method, url: &str) -> RequestBuilder {
        self.http.request(method, url)
    }
}

pub fn conversation_of(one: &UserId, other: &UserId) -> Result<ConversationId, String> {
    let (low, high) = if one.as_str() < other.as_str() { (one, other) } else { (other, one) };
    ConversationId::new(&format!("{low}~{high}"))
        .map_err(|e| format!("no conversation of {low} and {high}: {e}"))
}

pub fn message(to: &UserId, id: &str, body: String) -> Send {
    Send {
        reference: None,
        client_msg_id: plain_id(id),
        to: Some(to.clone()),
        conversation_id: None,
        body,
        attachment: None,
        meta: None,
        seen_seq: None,
    }
}

/// Sends one message, however often the server asks to wait.
pub async fn send_until_taken(connection: &mut RawConnection, send: Send) -> Result<(), String> {
    let frame = ClientFrame::Send(send);
    for _ in 0..SEND_TRIES {
        connection.send_frame(&frame).await.map_err(|e| e.to_string())?;
        let answer = connection.next_where(ANSWER_WITHIN, |frame| match frame {
            ServerFrame::Sent(_) => Some(Ok(())),
            ServerFrame::Error(e) => Some(Err(e.error)),
            _ => None,
        });
        match answer.await.map_err(|e| format!("a send got no answer: {e}"))? {
            Ok(()) => return Ok(()),
            Err(error) => match error.retry_after_ms {
                Some(wait) => tokio::time::sleep(Duration::from_millis(wait.min(2_000))).await,
                None => return Err(format!("a send was refused: {error}")),
            },
        }
    }
    Err("a send was refused again and again".into())
}

/// Counts frames of one kind that come to a connection, until a moment. Nothing if the server closed it before.
pub async fn count_frames(
    connection: &mut RawConnection,
    until: Instant,
    is_counted: impl Fn(&ServerFrame) -> bool,
) -> Option<u64> {
    let mut count = 0;
    loop {
        match connection.next_frame(until.saturating_duration_since(Instant::now())).await {
            Ok(ServerFrame::Bye(_)) | Err(RawError::Closed { .. } | RawError::Socket(_)) => return None,
            Ok(frame) => count += u64::from(is_counted(&frame)),
            Err(RawError::Timeout) => return Some(count),
            Err(_) => {}
        }
    }
}

/// How requests were answered.
#[derive(Debug, Default)]
pub struct Answers {
    pub taken: u64,
    /// By error code.
    pub refused: BTreeMap<String, u64>,
}

impl Answers {
    pub fn refuse(&mut self, code: impl Into<String>) {
        *self.refused.entry(code.into()).or_default() += 1;
    }

    /// Reads an answer and counts it.
    pub async fn count(&mut self, answer: Result<Response, reqwest::Error>) {
        match answer {
            Ok(answer) if answer.status().is_success() => {
                self.taken += 1;
                // The whole of it, so that the connection can be used again.
                drop(answer.bytes().await);
            }
            Ok(answer) => self.refuse(code_of(answer).await),
            Err(_) => self.refuse("no answer"),
        }
    }

    pub fn merge(&mut self, other: Answers) {
        self.taken += other.taken;
        for (code, count) in other.refused {
            *self.refused.entry(code).or_default() += count;
        }
    }

    pub fn refused_in_all(&self) -> u64 {
        self.refused.values().sum()
    }
}

/// "120 taken, 30 rate_limited".
impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} taken", self.taken)?;
        self.refused.iter().try_for_each(|(code, count)| write!(f, ", {count} {code}"))
    }
}

/// The code of a refusal.
pub async fn code_of(answer: Response) -> String {
    let status = answer.status();
    let body: Value = answer.json().await.unwrap_or_default();
    body["error"]["code"].as_str().map_or_else(|| status.as_u16().to_string(), str::to_owned)
}
