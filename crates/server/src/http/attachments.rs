//! Attachments over HTTP: announcing one, completing it, and asking where it is read from.

use axum::{
    Json,
    extract::{FromRequestParts, Path, State, rejection::PathRejection},
    http::{HeaderMap, StatusCode, header, request::Parts},
};
use bluetick_protocol::{ConversationId, Download, ErrorCode, S3Ref, Upload, UploadRequest, UploadedParts};

use super::{
    AppState,
    error::{ApiError, ApiResult},
    request::{Bearer, JsonBody, PathId},
};

/// Announces an attachment
///
/// The response has an `s3_ref`, for the message to refer to, and the request that uploads the
/// bytes: send it unchanged, with its headers, before it expires.
#[utoipa::path(
    post, path = "/v1/attachments", tag = "attachments", operation_id = "announceAttachment",
    request_body = UploadRequest,
    responses((status = 200, description = "Where to put the bytes", body = Upload)),
)]
pub async fn announce(
    Bearer(who): Bearer,
    State(state): State<AppState>,
    base: Base,
    JsonBody(request): JsonBody<UploadRequest>,
) -> ApiResult<Upload> {
    let mut upload = state.app.begin_upload(who.user, request).await?;
    if let Some(request) = &mut upload.upload {
        request.url = base.absolute(&request.url);
    }
    Ok(Json(upload))
}

/// Completes an attachment that was uploaded in parts
///
/// With what the store answered to each part. Repeating it is safe.
#[utoipa::path(
    post, path = "/v1/attachments/{s3_ref}/complete", tag = "attachments", operation_id = "completeAttachment",
    params(("s3_ref" = String, Path, description = "The attachment")),
    request_body = UploadedParts,
    responses((status = 204, description = "It is there")),
)]
pub async fn complete(
    Bearer(who): Bearer,
    State(state): State<AppState>,
    PathId(s3_ref): PathId<S3Ref>,
    JsonBody(parts): JsonBody<UploadedParts>,
) -> Result<StatusCode, ApiError> {
    state.app.complete_upload(who.user, s3_ref, parts).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Tells where an attachment is read from
///
/// For members of a conversation whose messages refer to it. The URL is valid for a short time, for
/// whoever has it, and supports range requests.
#[utoipa::path(
    get, path = "/v1/conversations/{id}/attachments/{s3_ref}", tag = "attachments", operation_id = "getAttachment",
    params(
        ("id" = String, Path, description = "The conversation"),
        ("s3_ref" = String, Path, description = "The attachment, as the message names it"),
    ),
    responses((status = 200, description = "Where it is", body = Download)),
)]
pub async fn download(
    Bearer(who): Bearer,
    State(state): State<AppState>,
    base: Base,
    path: Result<Path<(String, String)>, PathRejection>,
) -> ApiResult<Download> {
    let Path((conversation, s3_ref)) =
        path.map_err(|rejection| ApiError::new(ErrorCode::BadRequest, rejection.body_text()))?;
    let (conversation, s3_ref) = (ConversationId::new(&conversation)?, S3Ref::new(&s3_ref)?);
    let mut download = state.app.download(who.user, conversation, s3_ref).await?;
    download.url = base.absolute(&download.url);
    Ok(Json(download))
}

/// What the client calls this server.
pub struct Base(String);

impl Base {
    /// An address of this server's own begins with a slash; one of a bucket is whole already.
    pub fn absolute(&self, url: &str) -> String {
        match url.starts_with('/') {
            true => format!("{}{url}", self.0),
            false => url.to_owned(),
        }
    }
}

impl FromRequestParts<AppState> for Base {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let config = &state.config;
        if let Some(url) = &config.attachments.public_url {
            return Ok(Base(url.trim_end_matches('/').to_owned()));
        }
        let text = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let Some(host) = text(header::HOST).filter(|host| is_host(host)) else {
            return Err(ApiError::new(ErrorCode::BadRequest, "the header Host must say what server this is"));
        };
        Ok(Base(format!("{}://{host}", scheme(&parts.headers, config.tls.cert_file.is_some()))))
    }
}

/// A proxy that terminates TLS sets this header. A client that forges it only gets a wrong URL
/// itself.
fn scheme(headers: &HeaderMap, tls: bool) -> &'static str {
    let forwarded = headers.get("x-forwarded-proto").and_then(|value| value.to_str().ok());
    let outermost = forwarded.and_then(|list| list.split(',').next()).map(str::trim);
    match tls || outermost.is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")) {
        true => "https",
        false => "http",
    }
}

fn is_host(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.:[]_".contains(&b))
}
