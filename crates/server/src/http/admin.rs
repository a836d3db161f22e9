//! The admin API, `/admin/v1/`: stored rows, traces, push tests, repair, export, revocation,
//! erasure and backup. Every path, known or not, requires the admin key.

use std::{io, time::Instant};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{Path, Request, State},
    http::{StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use bluetick_chat::{AdminCall, ColdStep, ColdSurvey, wire};
use bluetick_protocol::{ConversationId, ErrorCode, Json as Raw, MessageId, Profile, Seq, UserId, WireError};
use bluetick_store::{ColdRun, Store};
use futures_util::stream;
use serde_json::json;
use tokio::sync::mpsc;

use super::{
    AppState,
    error::{ApiError, ApiResult},
    request::{JsonBody, Params},
    watch::{self, Whom},
};

/// JSON as the process with the data wrote it: passed on without parsing.
type AdminResult = ApiResult<Raw>;

/// Pieces of a backup on their way to a client; beyond it the store waits for the socket.
const BACKUP_PIECES_AHEAD: usize = 4;

pub fn router(state: AppState) -> Router {
    let started = Instant::now();
    let admin = Router::new()
        .route("/info", get(move |state| info(state, started)))
        .route("/users/{user}/pending", get(pending))
        .route("/users/{user}/status", get(status))
        .route("/users/{user}/conversations", get(conversations))
        .route("/users/{user}/sessions", get(sessions))
        .route("/users/{user}/devices", get(devices))
        .route("/users/{user}/push", get(owed))
        .route("/users/{user}/uploads", get(upload_usage))
        .route("/users/{user}/push/test", post(push_test))
        .route("/users/{user}/repair", post(repair))
        .route("/users/{user}/export", get(export))
        .route("/users/{user}/erase", post(erase))
        .route("/users/{user}/profile", get(profile).put(set_profile))
        .route("/users/{user}/revoke", post(revoke))
        .route("/trace/{message_id}", get(trace_id))
        .route("/trace/{conversation}/{seq}", get(trace))
        .route("/events", get(events))
        .route("/rows", get(rows))
        .route("/metrics", get(super::ops::metrics))
        .route("/cold/run", post(cold_run))
        .route("/cold/status", post(cold_status))
        .route("/cold/verify", post(cold_verify))
        .route("/checkpoint", post(checkpoint))
        .route("/backup", get(backup))
        .fallback(unknown)
        .layer(middleware::from_fn_with_state(state.clone(), require_key))
        .with_state(state);
    Router::new().nest("/admin/v1", admin)
}

async fn require_key(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer "));
    match given {
        Some(key) if crate::auth::keys_match(key, &state.admin_key) => next.run(request).await,
        _ => {
            let why = "this needs the server's admin key as `Authorization: Bearer <key>`";
            ApiError::new(ErrorCode::Unauthorized, why).into_response()
        }
    }
}

async fn unknown() -> ApiError {
    ApiError::new(ErrorCode::NotFound, "the admin interface has no such path")
}

async fn info(State(state): State<AppState>, started: Instant) -> impl IntoResponse {
    let health = state.readiness.look().await;
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "server_time": state.sessions.clock.now_ms(),
        "uptime_secs": started.elapsed().as_secs(),
        "sessions": state.sessions.gateway.session_count(),
        "health": health,
    }))
}

async fn pending(State(state): State<AppState>, Path(user): Path<String>) -> AdminResult {
    Ok(Json(state.operator.run(AdminCall::Pending(UserId::new(&user)?)).await?))
}

async fn status(State(state): State<AppState>, Path(user): Path<String>) -> AdminResult {
    Ok(Json(state.operator.run(AdminCall::Status(UserId::new(&user)?)).await?))
}

async fn conversations(State(state): State<AppState>, Path(user): Path<String>) -> AdminResult {
    Ok(Json(state.operator.run(AdminCall::Conversations(UserId::new(&user)?)).await?))
}

async fn sessions(State(state): State<AppState>, Path(user): Path<String>) -> AdminResult {
    Ok(Json(state.operator.run(AdminCall::Sessions(UserId::new(&user)?)).await?))
}

async fn devices(State(state): State<AppState>, Path(user): Path<String>) -> AdminResult {
    Ok(Json(state.operator.run(AdminCall::Devices(UserId::new(&user)?)).await?))
}

async fn owed(State(state): State<AppState>, Path(user): Path<String>) -> AdminResult {
    Ok(Json(state.operator.run(AdminCall::Owed(UserId::new(&user)?)).await?))
}

async fn upload_usage(State(state): State<AppState>, Path(user): Path<String>) -> AdminResult {
    Ok(Json(state.operator.run(AdminCall::UploadUsage(UserId::new(&user)?)).await?))
}

async fn push_test(State(state): State<AppState>, Path(user): Path<String>) -> AdminResult {
    let user = UserId::new(&user)?;
    tracing::info!(%user, "admin: push test");
    Ok(Json(state.operator.run(AdminCall::PushTest(user)).await?))
}

async fn repair(State(state): State<AppState>, Path(user): Path<String>) -> AdminResult {
    let user = UserId::new(&user)?;
    tracing::info!(%user, "admin: repair");
    Ok(Json(state.operator.run(AdminCall::Repair(user)).await?))
}

async fn export(State(state): State<AppState>, Path(user): Path<String>) -> AdminResult {
    let user = UserId::new(&user)?;
    tracing::info!(%user, "admin: export");
    Ok(Json(state.operator.run(AdminCall::Export(user)).await?))
}

async fn erase(State(state): State<AppState>, Path(user): Path<String>) -> AdminResult {
    let user = UserId::new(&user)?;
    tracing::warn!(%user, "admin: erase");
    Ok(Json(state.operator.run(AdminCall::Erase(user)).await?))
}

async fn profile(State(state): State<AppState>, Path(user): Path<String>) -> AdminResult {
    Ok(Json(state.operator.run(AdminCall::Profile(UserId::new(&user)?)).await?))
}

async fn set_profile(
    State(state): State<AppState>,
    Path(user): Path<String>,
    JsonBody(profile): JsonBody<Profile>,
) -> AdminResult {
    let user = UserId::new(&user)?;
    tracing::info!(%user, "admin: set profile");
    Ok(Json(state.operator.run(AdminCall::SetProfile(user, profile)).await?))
}

async fn revoke(State(state): State<AppState>, Path(user): Path<String>) -> AdminResult {
    let user = UserId::new(&user)?;
    tracing::warn!(%user, "admin: revoke");
    Ok(Json(state.operator.run(AdminCall::Revoke(user)).await?))
}

async fn trace_id(State(state): State<AppState>, Path(id): Path<String>) -> AdminResult {
    let id: MessageId = id.parse()?;
    Ok(Json(state.operator.run(AdminCall::TraceId(id)).await?))
}

async fn trace(
    State(state): State<AppState>,
    Path((conversation, seq)): Path<(String, String)>,
) -> AdminResult {
    let conversation = ConversationId::new(&conversation)?;
    let seq: Seq = match seq.parse() {
        Ok(seq) if seq > 0 => seq,
        _ => {
            return Err(ApiError::new(ErrorCode::BadRequest, "a seq is a number from 1 on"));
        }
    };
    Ok(Json(state.operator.run(AdminCall::Trace(conversation, seq)).await?))
}

/// The steps of this process as they happen.
async fn events(State(state): State<AppState>, Params(whom): Params<Whom>) -> Result<Response, ApiError> {
    tracing::info!(users = %whom.users, "admin: events");
    watch::events(&state, &whom)
}

async fn rows(State(state): State<AppState>, Params(whom): Params<Whom>) -> Result<Response, ApiError> {
    tracing::info!(users = %whom.users, "admin: rows");
    watch::rows(&state, &whom).await
}

/// Each of these is a step: what it answers says where the next one goes on.
async fn cold_run(State(state): State<AppState>, Json(step): Json<ColdStep>) -> AdminResult {
    Ok(Json(state.operator.run(AdminCall::ColdStep(step)).await?))
}

async fn cold_status(State(state): State<AppState>, Json(survey): Json<ColdSurvey>) -> AdminResult {
    Ok(Json(state.operator.run(AdminCall::ColdSurvey(survey)).await?))
}

async fn cold_verify(State(state): State<AppState>, Json(after): Json<Option<ColdRun>>) -> AdminResult {
    Ok(Json(state.operator.run(AdminCall::ColdVerify(after)).await?))
}

async fn checkpoint(State(state): State<AppState>) -> Result<StatusCode, ApiError> {
    state.operator.run(AdminCall::Checkpoint).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn backup(State(state): State<AppState>) -> Result<Response, ApiError> {
    tracing::info!("admin: backup");
    let Some(store) = state.store.clone() else {
        let why = "the data are not in this process; back them up where they are kept";
        return Err(ApiError::new(ErrorCode::Unsupported, why));
    };
    let mut pieces = start_backup(store);
    // A backup that fails at the start returns an error. One that fails later aborts the
    // connection, so that nobody takes the beginning for the whole.
    let first = match pieces.recv().await {
        Some(Ok(piece)) => piece,
        Some(Err(error)) => return Err(error.into()),
        None => {
            return Err(ApiError::new(ErrorCode::Internal, "the backup ended before it began"));
        }
    };
    let rest = stream::unfold(Some((first, pieces)), |state| async move {
        let (piece, mut pieces) = state?;
        let next = match pieces.recv().await {
            Some(Ok(next)) => Some((next, pieces)),
            Some(Err(_)) => return Some((Err(io::Error::other("the backup broke off")), None)),
            None => None,
        };
        Some((Ok::<Bytes, io::Error>(piece), next))
    });
    let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
    Ok((kind, Body::from_stream(rest)).into_response())
}

/// Runs the backup on a thread of its own, which may wait: the client's pace is the store's pace.
fn start_backup(store: Store) -> mpsc::Receiver<Result<Bytes, WireError>> {
    let (sender, receiver) = mpsc::channel(BACKUP_PIECES_AHEAD);
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || {
        let mut sink = |piece: Vec<u8>| {
            tokio::task::block_in_place(|| sender.blocking_send(Ok(piece.into())))
                .map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the client went away"))
        };
        match runtime.block_on(store.maintenance.backup(&mut sink)) {
            Ok(rows) => tracing::info!(rows, "admin: backup complete"),
            Err(_) if sender.is_closed() => tracing::warn!("admin: backup ended, the client went away"),
            Err(error) => {
                tracing::error!(%error, "admin: backup failed");
                let _ = sender.blocking_send(Err(wire(error)));
            }
        }
    });
    receiver
}
