//! The HTTP client of all providers: HTTP/2 where possible, kept connections, bounded responses. It
//! never logs, because addresses contain tokens, headers keys and bodies messages.

use std::{
    error::Error as _,
    fs,
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use bluetick_protocol::PushProvider;
use reqwest::{Certificate, Client, RequestBuilder, StatusCode, header, redirect};

use super::PushError;

/// What a provider says about a failure is short.
const ANSWER_MAX_BYTES: usize = 16 * 1024;
/// No provider's wish closes the way for longer.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);
/// Providers want connections kept, and networks forget those that are silent.
const IDLE: Duration = Duration::from_secs(600);
const PING_EVERY: Duration = Duration::from_secs(20);

#[derive(Clone)]
pub(super) struct Http {
    client: Client,
    timeout: Duration,
}

pub(super) struct ProviderResponse {
    pub(super) status: StatusCode,
    pub(super) retry_after: Option<Duration>,
    pub(super) body: Vec<u8>,
}

/// What the other end is known to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaks {
    /// HTTP/2 with prior knowledge, so that concurrent requests share one connection: Apple treats
    /// many connections as an attack.
    Http2,
    Either,
}

impl Http {
    pub(super) fn new(ca_file: Option<&Path>, timeout: Duration, speaks: Speaks) -> Result<Http, PushError> {
        crate::tls::install_provider();
        let mut builder = Client::builder()
            .user_agent(concat!("bluetick/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(timeout)
            .timeout(timeout)
            .redirect(redirect::Policy::none())
            .pool_idle_timeout(IDLE)
            .http2_keep_alive_interval(PING_EVERY)
            .http2_keep_alive_timeout(timeout)
            .http2_keep_alive_while_idle(true);
        if speaks == Speaks::Http2 {
            builder = builder.http2_prior_knowledge();
        }
        if let Some(path) = ca_file {
            let refused = |why: String| {
                PushError(format!("push.ca_file: cannot read certificates from {}: {why}", path.display()))
            };
            let pem = fs::read(path).map_err(|e| refused(e.to_string()))?;
            let certificates = Certificate::from_pem_bundle(&pem).map_err(|e| refused(e.to_string()))?;
            if certificates.is_empty() {
                return Err(refused("there is none in it".into()));
            }
            builder = builder.tls_certs_merge(certificates);
        }
        let client = builder
            .build()
            .map_err(|e| PushError(format!("push: no HTTPS client can be made: {}", cause(&e))))?;
        Ok(Http { client, timeout })
    }

    pub(super) fn post(&self, url: &str) -> RequestBuilder {
        self.client.post(url)
    }

    /// Sends once. Without an answer there is a sentence that names the host and the cause.
    pub(super) async fn send(
        &self,
        provider: PushProvider,
        request: RequestBuilder,
    ) -> Result<ProviderResponse, String> {
        let request = request.build().map_err(|e| format!("no request can be made: {}", cause(&e)))?;
        let host = request.url().host_str().unwrap_or_default().to_owned();
        let begun = Instant::now();
        let answered = self.client.execute(request).await;
        let answer = match answered {
            Ok(response) => Ok(read(response).await),
            Err(e) if e.is_timeout() => Err(format!("{host} did not answer within {:?}", self.timeout)),
            Err(e) if e.is_connect() => Err(format!("{host} cannot be reached: {}", cause(&e))),
            Err(e) => Err(format!("{host} did not answer: {}", cause(&e))),
        };
        metrics::histogram!("bluetick_push_request_seconds", "provider" => provider.as_str())
            .record(begun.elapsed().as_secs_f64());
        answer
    }
}

/// The status decides; a body that breaks off, or goes on and on, is taken so far as it came.
async fn read(mut response: reqwest::Response) -> ProviderResponse {
    let status = response.status();
    let retry_after = response
        .headers()
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| retry_after(text, SystemTime::now()));
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = ANSWER_MAX_BYTES - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if body.len() == ANSWER_MAX_BYTES {
            break;
        }
    }
    ProviderResponse { status, retry_after, body }
}

/// Seconds, or a date (RFC 9110, 10.2.3).
pub(super) fn retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    let wait = match text.trim().parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text.trim()).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

/// The innermost reason, which says most: the outer ones repeat that a request failed.
fn cause(error: &reqwest::Error) -> String {
    let mut innermost = error.source();
    while let Some(inner) = innermost.and_then(|e| e.source()) {
        innermost = Some(inner);
    }
    innermost.map_or_else(|| "the request failed".to_owned(), ToString::to_string)
}

/// A provider's own word for what is wrong, fit to be shown: it comes from outside.
pub(super) fn word(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}
