//! Runs the requests of other processes, by the roles of this one: an app server's operations for gateways, hand-overs
//! to sessions for app servers.

use std::sync::Arc;

use async_trait::async_trait;
use bluetick_chat::{App, AppResult, ClusterRequest, Gateway, Gateways, Operator};
use bluetick_protocol::{ErrorCode, WireError};
use bytes::Bytes;
use serde::Serialize;

use super::listener::Dispatcher;

/// What this process can be asked for; `None` where it does not have the role.
pub struct RoleDispatcher {
    pub app: Option<Arc<dyn App>>,
    pub operator: Option<Arc<dyn Operator>>,
    pub gateway: Option<Arc<Gateway>>,
}

/// The message of the error for a request that reached a process without the role for it.
pub const WRONG_ROLE: &str = "this process does not have the role that was asked for";

#[async_trait]
impl Dispatcher for RoleDispatcher {
    async fn dispatch(&self, payload: Bytes) -> Bytes {
        let request = match serde_json::from_slice::<ClusterRequest>(&payload) {
            Ok(request) => request,
            Err(error) => {
                tracing::warn!(%error, "another process sent a request that this version does not know");
                return refuse("this process is of another version and does not understand the call");
            }
        };
        let answer = match (request, &self.app, &self.operator, &self.gateway) {
            (ClusterRequest::HandOver(to, event), _, _, Some(gateway)) => {
                return write(&Ok(gateway.hand_over(&to, event).await));
            }
            (ClusterRequest::Admin(call), _, Some(operator), _) => return write(&operator.run(call).await),
            (request, Some(app), ..) => request.run_on(&**app).await,
            (_, None, ..) => None,
        };
        // Most likely the address belonged to another process before: the caller asks elsewhere.
        answer.map_or_else(|| refuse(WRONG_ROLE), Bytes::from)
    }
}

fn refuse(why: &str) -> Bytes {
    write::<()>(&Err(WireError::new(ErrorCode::Unavailable, why).retry_after(1_000)))
}

fn write<T: Serialize>(answer: &AppResult<T>) -> Bytes {
    match serde_json::to_vec(answer) {
        Ok(text) => text.into(),
        Err(error) => {
            tracing::error!(%error, "could not write an answer as JSON");
            Bytes::new()
        }
    }
}
