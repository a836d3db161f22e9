//! An app server in another process: requests go out as JSON, and answers come back as JSON.

use std::{future::Future, sync::Arc};

use async_trait::async_trait;
use bluetick_protocol::{ErrorCode, Sent, WireError};
use bluetick_store::SessionEntry;
use serde::{Serialize, de::DeserializeOwned};

use super::{AppResult, ClusterRequest, SendApi, SendRequest, SessionApi};

/// Carries requests to app servers.
pub trait Transport: Send + Sync {
    /// Sends a request to an app server and returns its answer. The transport may ask a second app server if
    /// `is_retryable` says that the first one could not do it.
    fn call<T: DeserializeOwned + Send>(
        &self,
        request: ClusterRequest,
        is_retryable: fn(&AppResult<T>) -> bool,
    ) -> impl Future<Output = AppResult<T>> + Send;
}

/// [`App`](super::App) over a transport. All methods but the two below come from the table in `app.rs`.
pub struct RemoteApp<T>(pub Arc<T>);

#[async_trait]
impl<T: Transport> SendApi for RemoteApp<T> {
    async fn send(&self, request: SendRequest) -> Vec<AppResult<Sent>> {
        let count = request.sends.len();
        // One send that was stored must not be repeated for the sake of another: only a batch of which nothing was
        // taken goes to a second app server.
        let is_retryable = |answer: &AppResult<Vec<AppResult<Sent>>>| match answer {
            Ok(sent) => sent.iter().all(is_unavailable),
            Err(_) => is_unavailable(answer),
        };
        match self.0.call(ClusterRequest::Send(request), is_retryable).await {
            Ok(answers) if answers.len() == count => answers,
            Ok(_) => vec![Err(unavailable()); count],
            Err(e) => vec![Err(e); count],
        }
    }
}

#[async_trait]
impl<T: Transport> SessionApi for RemoteApp<T> {
    async fn end_sessions(&self, sessions: Vec<SessionEntry>, why: WireError) {
        if sessions.is_empty() {
            return;
        }
        let request = ClusterRequest::EndSessions(sessions, why);
        if let Err(error) = self.0.call::<()>(request, is_unavailable).await {
            // They notice with their next heartbeat that they were replaced.
            tracing::debug!(%error, "could not tell sessions to end");
        }
    }
}

/// Whether an app server could not do this now, and another one might.
pub fn is_unavailable<T>(answer: &AppResult<T>) -> bool {
    matches!(answer, Err(e) if e.code == ErrorCode::Unavailable)
}

pub fn unavailable() -> WireError {
    WireError::new(ErrorCode::Unavailable, "the server cannot do this right now; try again")
        .retry_after(1_000)
}

pub(super) fn to_json<T: Serialize>(answer: &AppResult<T>) -> Vec<u8> {
    serde_json::to_vec(answer).unwrap_or_else(|error| {
        // The caller takes an empty answer for one that it does not understand.
        tracing::error!(%error, "could not write an answer as JSON");
        Vec::new()
    })
}
