//! Watching delivery at work: its steps as they happen, and the rows as they are. For operators with their key, and
//! for the tour on the demo.

use std::{collections::BTreeSet, convert::Infallible, time::Duration};

use axum::{
    Json,
    response::{
        IntoResponse as _, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use bluetick_chat::{AdminCall, StepEvent, Subscription, TraceStep};
use bluetick_protocol::{ConversationId, ErrorCode, InboxQuery, Side, UserId};
use futures_util::{
    StreamExt as _,
    stream::{self, Stream},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{AppState, error::ApiError};

/// Users whose steps or rows one request may ask for.
const USERS_MAX: usize = 8;
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Subscribers up to which the demo's pages are served. The rest is kept for operators.
const DEMO_SUBSCRIBERS_MAX: usize = 8;
const SUBSCRIBERS_MAX: usize = 16;

#[derive(Debug, Deserialize)]
pub struct Whom {
    /// User ids, separated by commas.
    pub users: String,
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

/// The steps that concern these users, as server-sent events: those of this process.
pub fn events(state: &AppState, whom: &Whom) -> Result<Response, ApiError> {
    let subscription = subscribe(state, whom, SUBSCRIBERS_MAX)?;
    Ok(event_stream(stream::unfold(subscription, |mut subscription| async move {
        Some((subscription.next().await?, subscription))
    })))
}

/// The same, each step with the rows it wrote.
pub fn events_with_rows(state: &AppState, whom: Whom) -> Result<Response, ApiError> {
    let subscription = subscribe(state, &whom, DEMO_SUBSCRIBERS_MAX)?;
    let from = (state.clone(), subscription);
    Ok(event_stream(stream::unfold(from, |(state, mut subscription)| async move {
        let event = subscription.next().await?;
        let rows = rows_written(&state, &event).await;
        Some((StepWithRows { event, rows }, (state, subscription)))
    })))
}

fn subscribe(state: &AppState, whom: &Whom, max: usize) -> Result<Subscription, ApiError> {
    state.sessions.observer.subscribe(whom.users()?, max).ok_or_else(|| {
        let why = "there are too many event streams, or the server is shutting down; try again later";
        ApiError::new(ErrorCode::Unavailable, why)
    })
}

fn event_stream<T: Serialize + Send + 'static>(events: impl Stream<Item = T> + Send + 'static) -> Response {
    let events = events.filter_map(|event| async move {
        let event = Event::default().json_data(event).ok()?;
        Some(Ok::<_, Infallible>(event))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

#[derive(Serialize)]
struct StepWithRows {
    #[serde(flatten)]
    event: StepEvent,
    rows: Map<String, Value>,
}

/// The rows that a step wrote, by table, as `inspect` prints them: those of its conversation, or the sessions of its
/// user. A table that the step did not write is absent, and so is one that cannot be read.
///
/// They are read when the event is sent, not inside delivery: a row may be newer than its step, never older.
async fn rows_written(state: &AppState, event: &StepEvent) -> Map<String, Value> {
    let mut tables = Map::new();
    let mut add = |table: &str, rows: Option<Value>| {
        if let Some(rows) = rows {
            tables.insert(table.to_owned(), rows);
        }
    };
    let user = &event.user;
    match (event.step, &event.conversation_id, event.seq) {
        (TraceStep::Registered | TraceStep::Unregistered, ..) => {
            let sessions = ask(state, AdminCall::Sessions(user.clone())).await.ok();
            add("ws", sessions.map(|sessions| json!({ user.as_str(): sessions })));
        }
        (TraceStep::Stored, Some(id), Some(seq)) => {
            let written = |row: &Value| row["seq"].as_u64() == Some(seq);
            add("messages", ask_some(state, AdminCall::Messages(id.clone()), written).await);
            // A reply implies that its sender has read what came before.
            add("message_status", rows_of(state, AdminCall::Status(user.clone()), id).await);
            let (mut conversations, mut inbox) = (Vec::new(), Map::new());
            for member in [Side::Low, Side::High].map(|side| id.member(side)) {
                let rows = rows_of(state, AdminCall::Conversations(member.clone()), id).await;
                conversations.extend(rows.and_then(|rows| rows.as_array().cloned()).unwrap_or_default());
                if let Ok(page) = state.app.inbox(member.clone(), InboxQuery::default()).await {
                    let entry = page.conversations.iter().find(|entry| entry.conversation_id == *id);
                    inbox.insert(member.to_string(), json!(Vec::from_iter(entry)));
                }
            }
            add("conversations", Some(conversations.into()));
            add("inbox", Some(inbox.into()));
        }
        (TraceStep::PendingRow | TraceStep::RowGone, Some(id), _) => {
            add("pending_deliveries", rows_of(state, AdminCall::Pending(user.clone()), id).await);
        }
        (TraceStep::Acked, Some(id), _) => {
            add("message_status", rows_of(state, AdminCall::Status(user.clone()), id).await);
        }
        (TraceStep::Read, Some(id), _) => {
            add("message_status", rows_of(state, AdminCall::Status(user.clone()), id).await);
            add("conversations", rows_of(state, AdminCall::Conversations(user.clone()), id).await);
        }
        _ => {}
    }
    tables
}

async fn rows_of(state: &AppState, call: AdminCall, id: &ConversationId) -> Option<Value> {
    ask_some(state, call, |row| row["conversation_id"].as_str() == Some(id.as_str())).await
}

async fn ask_some(state: &AppState, call: AdminCall, is_wanted: impl Fn(&Value) -> bool) -> Option<Value> {
    let mut rows = ask(state, call).await.ok()?;
    rows.retain(is_wanted);
    Some(rows.into())
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
        .map_err(|_| ApiError::new(ErrorCode::Internal, "the server's own rows are not JSON"))
}
