//! Errors over HTTP: `{"error": {code, message, retry_after_ms?}}` with the status of the code.

use axum::{
    Json,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bluetick_protocol::{ErrorBody, ErrorCode, InvalidId, WireError};

/// The result of a handler: a JSON body, or an error with its status.
pub type ApiResult<T> = Result<Json<T>, ApiError>;

#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    error: WireError,
    headers: Vec<(HeaderName, &'static str)>,
}

impl ApiError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        WireError::new(code, message).into()
    }

    /// Where HTTP has a finer status than the list of codes: a wrong method, a wrong content type.
    pub fn with_status(status: StatusCode, error: WireError) -> Self {
        ApiError { status, error, headers: Vec::new() }
    }

    pub fn header(mut self, name: HeaderName, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }
}

impl From<WireError> for ApiError {
    fn from(error: WireError) -> Self {
        let status =
            StatusCode::from_u16(error.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        ApiError::with_status(status, error)
    }
}

impl From<InvalidId> for ApiError {
    fn from(error: InvalidId) -> Self {
        ApiError::new(ErrorCode::InvalidId, error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let retry_after_ms = self.error.retry_after_ms;
        metrics::counter!("bluetick_errors_total", "code" => self.error.code.as_str(), "via" => "http")
            .increment(1);
        let mut response = (self.status, Json(ErrorBody { error: self.error })).into_response();
        let headers = response.headers_mut();
        if let Some(ms) = retry_after_ms {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000).max(1)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        for (name, value) in self.headers {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}
