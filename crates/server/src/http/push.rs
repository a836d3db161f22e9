//! Push notifications over HTTP: device registrations and muted conversations.

use axum::{Json, extract::State, http::StatusCode};
use bluetick_protocol::{
    ConversationId, DeviceId, ErrorCode, Mute, PushContent, PushDeviceCard, PushProvider, PushRegistration,
    PushTarget,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    AppState,
    api::{ListParams, page_of},
    error::{ApiError, ApiResult},
    request::{Bearer, JsonBody, Params, PathId},
};
use crate::auth;

/// By whom this server notifies
#[derive(Serialize, ToSchema)]
pub struct PushOffer {
    /// Empty where nobody is notified
    pub providers: Vec<PushProvider>,
    /// The `applicationServerKey` for a browser's `PushManager.subscribe`; null without Web Push
    pub vapid_public_key: Option<String>,
    /// The most that any notification of this server shows
    pub content: PushContent,
}

/// Tells by whom this server notifies
///
/// What a client needs before it registers a device. Without providers this server sends no
/// notifications.
#[utoipa::path(
    get, path = "/v1/push", tag = "notifications", operation_id = "getPush",
    responses((status = 200, description = "The providers, and the key for Web Push", body = PushOffer)),
)]
pub async fn offer(_who: Bearer, State(state): State<AppState>) -> Json<PushOffer> {
    let providers = state.providers.as_deref();
    Json(PushOffer {
        providers: providers.map(|providers| providers.set_up()).unwrap_or_default(),
        vapid_public_key: providers.and_then(|p| p.vapid_public_key()).map(str::to_owned),
        content: state.config.push.content,
    })
}

#[derive(Serialize, ToSchema)]
pub struct PushDevices {
    pub devices: Vec<PushDeviceCard>,
}

/// Lists the devices that one has registered
#[utoipa::path(
    get, path = "/v1/devices", tag = "notifications", operation_id = "listDevices",
    responses((status = 200, description = "The registrations, in order of device", body = PushDevices)),
)]
pub async fn devices(Bearer(who): Bearer, State(state): State<AppState>) -> ApiResult<PushDevices> {
    Ok(Json(PushDevices { devices: state.app.push_devices(who.user).await? }))
}

/// Registers a device for notifications
///
/// Repeat it whenever the provider issues a new token; it replaces the previous registration. A
/// token belongs to the device of the user who registered it last.
#[utoipa::path(
    put, path = "/v1/devices/{device}/push", tag = "notifications", operation_id = "putPush",
    params(("device" = String, Path, description = "The device's id, the same as in `hello`")),
    request_body = PushRegistration,
    responses(
        (status = 200, description = "Registered", body = PushDeviceCard),
        (status = 501, description = "This server has not set up that provider", body = ref("#/components/schemas/Error")),
    ),
)]
pub async fn register(
    Bearer(who): Bearer,
    State(state): State<AppState>,
    PathId(device): PathId<DeviceId>,
    JsonBody(registration): JsonBody<PushRegistration>,
) -> ApiResult<PushDeviceCard> {
    allow(&state, &registration.target)?;
    // A registration outlives its request, so nothing is taken from what a gateway remembers. It is
    // checked once more afterwards, as a session is after it registered: a revocation that ran
    // meanwhile has removed only the devices that it found.
    auth::refuse_if_revoked(&*state.app, &who).await?;
    let card = state.app.put_push(who.user.clone(), device.clone(), registration).await?;
    if let Err(error) = auth::refuse_if_revoked(&*state.app, &who).await {
        state.app.delete_push(who.user, device).await?;
        return Err(error.into());
    }
    Ok(Json(card))
}

/// What could never be notified is not taken.
fn allow(state: &AppState, target: &PushTarget) -> Result<(), ApiError> {
    target.check().map_err(|why| ApiError::new(ErrorCode::BadRequest, why))?;
    let provider = target.provider();
    match state.providers.as_deref().filter(|providers| providers.set_up().contains(&provider)) {
        Some(providers) => providers.allows(target).map_err(|why| ApiError::new(ErrorCode::BadRequest, why)),
        None => Err(ApiError::new(
            ErrorCode::Unsupported,
            format!(
                "this server does not notify by \"{name}\"; GET /v1/push lists what it has, and its operator sets \
                 up others as [push.{name}]",
                name = provider.as_str()
            ),
        )),
    }
}

/// Notifies a device no more
#[utoipa::path(
    delete, path = "/v1/devices/{device}/push", tag = "notifications", operation_id = "deletePush",
    params(("device" = String, Path, description = "The device's id")),
    responses((status = 204, description = "Not registered")),
)]
pub async fn unregister(
    Bearer(who): Bearer,
    State(state): State<AppState>,
    PathId(device): PathId<DeviceId>,
) -> Result<StatusCode, ApiError> {
    state.app.delete_push(who.user, device).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Until when
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MuteBody {
    /// Milliseconds since 1970; for ever without it
    #[schema(nullable = false)]
    until: Option<u64>,
}

/// Mutes a conversation
///
/// Its messages notify none of the user's devices, until a time or for ever. They are delivered and
/// counted as before.
#[utoipa::path(
    put, path = "/v1/conversations/{id}/mute", tag = "notifications", operation_id = "putMute",
    params(("id" = String, Path, description = "The conversation")),
    request_body(content = Option<MuteBody>, description = "Until when; for ever without it"),
    responses((status = 204, description = "Muted")),
)]
pub async fn mute(
    Bearer(who): Bearer,
    State(state): State<AppState>,
    PathId(conversation_id): PathId<ConversationId>,
    body: Option<JsonBody<MuteBody>>,
) -> Result<StatusCode, ApiError> {
    let MuteBody { until } = body.map(|JsonBody(body)| body).unwrap_or_default();
    state.app.mute(who.user, Mute { conversation_id, until }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lets a conversation notify again
#[utoipa::path(
    delete, path = "/v1/conversations/{id}/mute", tag = "notifications", operation_id = "deleteMute",
    params(("id" = String, Path, description = "The conversation")),
    responses((status = 204, description = "Not muted")),
)]
pub async fn unmute(
    Bearer(who): Bearer,
    State(state): State<AppState>,
    PathId(conversation): PathId<ConversationId>,
) -> Result<StatusCode, ApiError> {
    state.app.unmute(who.user, conversation).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Serialize, ToSchema)]
pub struct Mutes {
    pub mutes: Vec<Mute>,
    /// Where the next page begins, as `after`; null at the end
    pub next: Option<ConversationId>,
}

/// Lists what one has muted
#[utoipa::path(
    get, path = "/v1/mutes", tag = "notifications", operation_id = "listMutes",
    params(("after" = Option<String>, Query, description = "The `next` of the page before")),
    responses((status = 200, description = "The muted conversations, in order", body = Mutes)),
)]
pub async fn mutes(
    Bearer(who): Bearer,
    State(state): State<AppState>,
    Params(params): Params<ListParams<ConversationId>>,
) -> ApiResult<Mutes> {
    let all = state.app.mutes(who.user).await?;
    let (mutes, next) = page_of(all, params.after, |mute| &mute.conversation_id);
    Ok(Json(Mutes { mutes, next }))
}
