//! Watching the server at work: its steps as they happen, and the rows as they are. For operators with their key, and for
//! the tour on the demo.

use std::{collections::BTreeSet, convert::Infallible, time::Duration};

use axum::{
    Json,
    response::{
        IntoResponse as _, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use bluetick_chat::{AdminCall, Onlookers};
use bluetick_protocol::{ConversationId, ErrorCode, InboxQuery, UserId};
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{AppState, error::ApiError};

/// Users whose steps or rows one request may ask for.
const USERS_MAX: usize = 8;
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How many may watch at once: pages of the demo, and operators beside them.
pub const DEMO_WATCHERS: usize = 8;
pub const ALL_WATCHERS: usize = 16;

#[derive(Debug, Deserialize)]
pub struct Whom {
    /// Names with commas between them.
    pub users: String,
    /// Milliseconds that the server waits after each step.
    #[serde(default)]
    pub pace: u64,
}

impl Whom {
    fn users(&self) -> Result<BTreeSet<UserId>, ApiError> {
        let users = self.users.split(',').map(UserId::new).collect::<Result<BTreeSet<_>, _>>()?;
        match users.len() {
            0..=USERS_MAX => Ok(users),
            _ => {
                let why = format!("\"users\" may name at most {USERS_MAX}");
                Err(ApiError::new(ErrorCode::BadRequest, why))
            }
        }
    }
}

/// Steps that concern these users, as server-sent events. They are those of this process.
pub fn events(state: &AppState, whom: &Whom, most: usize) -> Result<Response, ApiError> {
    let pace = Duration::from_millis(whom.pace);
    let Some(onlooking) = Onlookers::watch(&state.sessions.trace, whom.users()?, pace, most) else {
        let why = "too many are watching already, or the server is going down";
        return Err(ApiError::new(ErrorCode::Unavailable, why));
    };
    let steps = stream::unfold(onlooking, |mut onlooking| async move {
        let step = Event::default().json_data(onlooking.next().await?).ok()?;
        Some((Ok::<_, Infallible>(step), onlooking))
    });
    let sse = Sse::new(steps).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    Ok(sse.into_response())
}

/// The rows of these users, and the messages between them.
pub async fn rows(state: &AppState, whom: &Whom) -> Result<Response, ApiError> {
    let users = whom.users()?;
    let mut messages = Vec::new();
    for (n, one) in users.iter().enumerate() {
        for other in users.iter().skip(n + 1) {
            if let Some(id) = ConversationId::between(one, other) {
                messages.extend(ask(state, AdminCall::Messages(id)).await?);
            }
        }
    }
    let (mut pending, mut status, mut conversations) = (Vec::new(), Vec::new(), Vec::new());
    let (mut inbox, mut ws) = (Map::new(), Map::new());
    for user in &users {
        pending.extend(ask(state, AdminCall::Pending(user.clone())).await?);
        status.extend(ask(state, AdminCall::Status(user.clone())).await?);
        conversations.extend(ask(state, AdminCall::Conversations(user.clone())).await?);
        ws.insert(user.to_string(), ask(state, AdminCall::Sessions(user.clone())).await?.into());
        let page = state.app.inbox(user.clone(), InboxQuery::default()).await?;
        inbox.insert(user.to_string(), json!(page.conversations));
    }
    let rows = json!({
        "messages": messages,
        "pending_deliveries": pending,
        "message_status": status,
        "conversations": conversations,
        "inbox": inbox,
        "ws": ws,
    });
    Ok(Json(rows).into_response())
}

async fn ask(state: &AppState, call: AdminCall) -> Result<Vec<Value>, ApiError> {
    let answer = state.operator.run(call).await?;
    serde_json::from_str(answer.as_str())
        .map_err(|_| ApiError::new(ErrorCode::Internal, "the server's own rows could not be read"))
}
