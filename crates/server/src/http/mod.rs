//! HTTP: which path leads where, and what every answer has in common.

pub mod admin;
mod api;
mod assets;
mod attachments;
mod blobs;
mod costs;
pub mod demo;
pub mod error;
pub mod in_flight;
mod openapi;
mod ops;
pub mod origin;
mod page;
mod push;
pub mod request;
mod watch;

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use axum::{
    Router,
    extract::{MatchedPath, Request, State},
    http::{HeaderName, HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::Response,
    routing::{any, get, post, put},
};
use bluetick_chat::{
    App, Operator,
    session::{SessionHost, TokenCheck},
};
use bluetick_protocol::{ErrorCode, WireError};
use bluetick_store::Store;
use metrics_exporter_prometheus::PrometheusHandle;

use crate::{attachments::ObjectUploads, config::Config, gateway, push::Providers, readiness::Readiness};
use error::ApiError;
use in_flight::InFlightLimit;

/// What handlers work with. Cheap to clone.
#[derive(Clone)]
pub struct AppState(Arc<Services>);

pub struct Services {
    pub app: Arc<dyn App>,
    pub operator: Arc<dyn Operator>,
    pub readiness: Arc<Readiness>,
    /// For backups. None where the data are elsewhere.
    pub store: Option<Store>,
    /// The push providers; `None` without any. They decide which devices may register.
    pub providers: Option<Arc<Providers>>,
    /// Attachments that go through this server; `None` if they are elsewhere.
    pub uploads: Option<Arc<ObjectUploads>>,
    pub tokens: Arc<dyn TokenCheck>,
    pub sessions: Arc<SessionHost>,
    pub config: Arc<Config>,
    pub admin_key: Arc<str>,
    pub metrics: PrometheusHandle,
    /// `None` where there is no demo.
    pub demo: Option<demo::Demo>,
    /// Requests of each user that have not been answered, or whose answers have not been read.
    pub in_flight: InFlightLimit,
    /// Set when the server is going down.
    pub draining: AtomicBool,
}

impl AppState {
    pub fn new(services: Services) -> Self {
        AppState(Arc::new(services))
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub fn begin_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.sessions.observer.close();
    }
}

impl Deref for AppState {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.0
    }
}

/// The whole of the server's HTTP.
pub fn router(state: AppState) -> Router {
    let api = Router::new()
        .route("/v1/messages", post(api::send))
        .route("/v1/inbox", get(api::inbox))
        .route("/v1/conversations/{id}/messages", get(api::history))
        .route("/v1/conversations/{id}/status", get(api::status))
        .route("/v1/conversations/{id}/read", post(api::read))
        .route("/v1/me", get(api::me).put(api::put_me))
        .route("/v1/users/{id}", get(api::user))
        .route("/v1/blocks", get(api::blocks))
        .route("/v1/blocks/{user}", put(api::block).delete(api::unblock))
        .route("/v1/push", get(push::offer))
        .route("/v1/devices", get(push::devices))
        .route("/v1/devices/{device}/push", put(push::register).delete(push::unregister))
        .route("/v1/conversations/{id}/mute", put(push::mute).delete(push::unmute))
        .route("/v1/mutes", get(push::mutes))
        .route("/v1/attachments", post(attachments::announce))
        .route("/v1/attachments/{s3_ref}/complete", post(attachments::complete))
        .route("/v1/conversations/{id}/attachments/{s3_ref}", get(attachments::download))
        .route("/v1/blobs/{s3_ref}", put(blobs::put).get(blobs::get))
        .route("/v1/openapi.json", get(page::openapi));
    let mut router = Router::new()
        .route("/assets/{name}", get(assets::asset))
        .route("/healthz", get(ops::healthz))
        .route("/readyz", get(ops::readyz))
        .route("/metrics", get(ops::metrics));
    // People come to gateways only.
    if state.config.is_gateway() {
        router = router
            .merge(api)
            .route("/v1/ws", get(gateway::upgrade))
            .route("/v1/docs", get(page::docs))
            .route("/", get(demo::root));
    }
    if state.demo.is_some() {
        // The page is no secret. The rest takes any method: an answer about methods would tell that
        // there is something.
        router = router
            .route("/tour", get(assets::tour))
            .route("/demo/token", any(demo::token))
            .route("/demo/events", any(demo::events))
            .route("/demo/rows", any(demo::rows));
    }
    if state.config.pages.admin {
        router = router.route("/admin", get(assets::admin));
    }
    router
        .with_state(state.clone())
        .merge(admin::router(state.clone()))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        // One layer: each costs as much as the upgrade of a connection.
        .layer(middleware::from_fn_with_state(state, around))
}

async fn unknown_path() -> ApiError {
    ApiError::new(ErrorCode::NotFound, "there is nothing at this path; /v1/docs lists what there is")
}

async fn wrong_method() -> ApiError {
    let error =
        WireError::new(ErrorCode::BadRequest, "this path does not take this method; see the header Allow");
    ApiError::with_status(StatusCode::METHOD_NOT_ALLOWED, error)
}

/// What is done with every request.
async fn around(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let share = |request| origin::share_with_listed(&state, request, next);
    let mut response = counted(request, |request| in_flight::hold(request, share)).await;
    guard(&mut response);
    response
}

/// Counts requests by route, never by path: paths name users.
async fn counted<F: Future<Output = Response>>(
    request: Request,
    answer: impl FnOnce(Request) -> F,
) -> Response {
    let began = Instant::now();
    let method = request.method().as_str().to_owned();
    let route = request.extensions().get::<MatchedPath>().map_or("(none)", MatchedPath::as_str).to_owned();
    // Anything can be sent as a method; only known ones become a label.
    let method = if KNOWN_METHODS.contains(&method.as_str()) { method } else { "other".to_owned() };
    let response = answer(request).await;
    let status = response.status().as_str().to_owned();
    // How long bytes take is up to whoever sends them.
    if !route.starts_with("/v1/blobs/") {
        metrics::histogram!("bluetick_http_request_seconds").record(began.elapsed().as_secs_f64());
    }
    metrics::counter!("bluetick_http_requests_total", "method" => method, "route" => route, "status" => status)
        .increment(1);
    response
}

const KNOWN_METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"];

/// Headers that every answer has, unless a handler set its own.
fn guard(response: &mut Response) {
    const GUARDS: [(HeaderName, &str); 5] = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    ];
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        for (name, value) in GUARDS {
            response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
        }
    }
}

#[cfg(test)]
mod tests;
