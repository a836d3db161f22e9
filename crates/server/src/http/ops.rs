//! What watches a server asks it: alive, ready, how much.

use axum::{
    Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use bluetick_chat::RouteHealth;
use bluetick_store::Health;
use serde::Serialize;
use utoipa::ToSchema;

use super::AppState;

/// Tells that the process lives
#[utoipa::path(
    get, path = "/healthz", tag = "operations", operation_id = "healthz", security(()),
    responses((status = 200, description = "It does", body = Alive)),
)]
pub async fn healthz() -> Json<Alive> {
    Json(Alive { status: "alive" })
}

#[derive(Serialize, ToSchema)]
pub struct Alive {
    status: &'static str,
}

/// Whether messages can be taken
#[derive(Serialize, ToSchema)]
#[schema(as = Readiness)]
pub struct ReadinessReport {
    pub ready: bool,
    /// Why not; null when ready.
    pub reason: Option<String>,
    pub store: Health,
    /// Push routes that fail. Their notifications wait; messages are still taken.
    pub push: Vec<RouteHealth>,
}

/// Tells whether messages can be taken now
#[utoipa::path(
    get, path = "/readyz", tag = "operations", operation_id = "readyz", security(()),
    responses(
        (status = 200, description = "They can", body = ReadinessReport),
        (status = 503, description = "They cannot, and why", body = ReadinessReport),
    ),
)]
pub async fn readyz(State(state): State<AppState>) -> Response {
    let store = state.readiness.look().await;
    let reason = match state.is_draining() {
        true => Some("the server is going down".to_owned()),
        false => store.refusing.clone(),
    };
    let status = if reason.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let push = state.readiness.failing_routes();
    (status, Json(ReadinessReport { ready: reason.is_none(), reason, store, push })).into_response()
}

/// Shows the server's figures in Prometheus's format
#[utoipa::path(
    get, path = "/metrics", tag = "operations", operation_id = "metrics", security(()),
    responses((status = 200, description = "The figures", body = String, content_type = "text/plain")),
)]
pub async fn metrics(State(state): State<AppState>) -> impl IntoResponse {
    let store = state.readiness.look().await;
    crate::metrics::observe(state.sessions.gateway.session_count(), &store);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], state.metrics.render())
}
