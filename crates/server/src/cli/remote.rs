//! A client of a running server's admin API.

use std::time::Duration;

use bluetick_client::{Lost, innermost};
use bluetick_protocol::ErrorBody;
use bytes::Bytes;
use reqwest::{Method, RequestBuilder, Response, StatusCode};

use super::{
    Failure, Outcome,
    trust::{CERTIFICATE_HINT, Trust},
};

const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// How long a response may stall. A whole response, such as a backup, may take longer.
const SILENCE_DEADLINE: Duration = Duration::from_secs(120);

pub struct Remote {
    http: reqwest::Client,
    trust: Trust,
    url: String,
    key: Option<String>,
}

/// Why a request failed.
#[derive(Debug)]
pub enum RequestError {
    /// No server answers.
    Unreachable(String),
    /// The certificate of the server is not trusted.
    Untrusted(String),
    /// The server has another admin key; perhaps it is another server.
    WrongKey(String),
    /// The server answered with an error.
    Refused(String),
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        Failure::Failed(match error {
            RequestError::Unreachable(why)
            | RequestError::Untrusted(why)
            | RequestError::WrongKey(why)
            | RequestError::Refused(why) => why,
        })
    }
}

impl Remote {
    pub fn new(url: &str, key: Option<&str>, trust: &Trust) -> Outcome<Remote> {
        let http = build(trust.http(url, builder())?)?;
        Ok(Remote { http, trust: trust.clone(), url: url.to_owned(), key: key.map(str::to_owned) })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// The response body of a GET below `/admin/v1/`.
    pub async fn get(&self, path: &str) -> Result<Bytes, RequestError> {
        let answer = self.open(path).await?;
        answer.bytes().await.map_err(|e| self.broken(&e))
    }

    pub async fn post(&self, path: &str) -> Result<Bytes, RequestError> {
        let answer = self.ask(Method::POST, &format!("/admin/v1/{path}")).await?;
        answer.bytes().await.map_err(|e| self.broken(&e))
    }

    /// A POST with a JSON body.
    pub async fn post_json(&self, path: &str, body: &impl serde::Serialize) -> Result<Bytes, RequestError> {
        let answer = self.answer(self.request(Method::POST, &format!("/admin/v1/{path}")).json(body)).await?;
        answer.bytes().await.map_err(|e| self.broken(&e))
    }

    /// A GET below `/admin/v1/` whose response is read in chunks.
    pub async fn open(&self, path: &str) -> Result<Response, RequestError> {
        self.ask(Method::GET, &format!("/admin/v1/{path}")).await
    }

    /// A GET without a key: of a path on this server, or of a full URL elsewhere.
    pub async fn fetch(&self, url: &str) -> Result<Response, RequestError> {
        let asked = match url.starts_with('/') {
            true => self.http.get(format!("{}{url}", self.url)),
            false => {
                let elsewhere = self.trust.http_elsewhere(builder()).and_then(build);
                let elsewhere = elsewhere.map_err(|failure| {
                    RequestError::Unreachable(match failure {
                        Failure::Usage(why) | Failure::Failed(why) => why,
                        Failure::Told => String::new(),
                    })
                })?;
                elsewhere.get(url)
            }
        };
        let answer = asked.send().await.map_err(|e| self.broken(&e))?;
        match answer.status() {
            status if status.is_success() => Ok(answer),
            status => Err(RequestError::Refused(format!("a file could not be fetched: {status}"))),
        }
    }

    /// The status and text of a page that needs no key.
    pub async fn page(&self, path: &str) -> Result<(StatusCode, String), RequestError> {
        let answer = self.send(self.request(Method::GET, path)).await?;
        let status = answer.status();
        let text = answer.text().await.map_err(|e| self.broken(&e))?;
        Ok((status, text))
    }

    /// The error for a response that ended early.
    pub fn broken(&self, e: &reqwest::Error) -> RequestError {
        RequestError::Unreachable(format!(
            "the response of {} ended early: {}; try again",
            self.url,
            innermost(e)
        ))
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, RequestError> {
        request.send().await.map_err(|e| match Lost::of(&e) {
            Lost::Certificate(why) => RequestError::Untrusted(format!(
                "a server answers at {}, but {why}; {CERTIFICATE_HINT}",
                self.url
            )),
            Lost::Connection(why) => RequestError::Unreachable(format!(
                "no server answers at {} ({why}); start one with `bluetick serve`, or name another with --server",
                self.url
            )),
        })
    }

    async fn ask(&self, method: Method, path: &str) -> Result<Response, RequestError> {
        self.answer(self.request(method, path)).await
    }

    async fn answer(&self, request: RequestBuilder) -> Result<Response, RequestError> {
        let answer = self.send(request).await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let body = answer.bytes().await.unwrap_or_default();
        if status == StatusCode::UNAUTHORIZED {
            return Err(RequestError::WrongKey(format!(
                "the server at {} does not take this admin key; give --data with its data directory, or --admin-key",
                self.url
            )));
        }
        let why = match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(body) => body.error.message,
            Err(_) => format!("{} answered {status}; is it a bluetick server of this version?", self.url),
        };
        Err(RequestError::Refused(why))
    }
}

/// Percent-encodes an id as a path segment: `auth0|5f7c` becomes `auth0%7C5f7c`.
pub fn segment(id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    id.bytes().map(encode).collect()
}

fn builder() -> reqwest::ClientBuilder {
    // A proxy from the environment usually cannot reach a server on loopback.
    reqwest::Client::builder().connect_timeout(CONNECT_DEADLINE).read_timeout(SILENCE_DEADLINE).no_proxy()
}

fn build(builder: reqwest::ClientBuilder) -> Outcome<reqwest::Client> {
    builder.build().map_err(|e| Failure::Failed(format!("cannot make an HTTP client: {}", innermost(&e))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_in_a_path_is_one_segment() {
        assert_eq!(segment("alice~bob"), "alice~bob");
        assert_eq!(segment("auth0|5f7c"), "auth0%7C5f7c");
        assert_eq!(segment("ann+test@x.org"), "ann%2Btest%40x.org");
        assert_eq!(segment("urn:x=1"), "urn%3Ax%3D1");
    }
}
