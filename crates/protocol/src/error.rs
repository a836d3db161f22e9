//! The one list of error codes, and what each becomes on WebSocket and HTTP.

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $http:literal;)*) => {
        /// Why something was refused, or why the server closes a connection.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
        pub enum ErrorCode {
            $($(#[$doc])* #[serde(rename = $text)] $name,)*
        }

        impl ErrorCode {
            /// Every code there is, in the order of the documentation.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$name),*];

            pub fn as_str(self) -> &'static str {
                match self { $(ErrorCode::$name => $text),* }
            }

            /// The status of an HTTP answer that carries this code.
            pub fn http_status(self) -> u16 {
                match self { $(ErrorCode::$name => $http),* }
            }
        }
    };
}

/// A code that a later version has and this one does not is an error of the server's like any other it cannot name.
impl<'de> Deserialize<'de> for ErrorCode {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(d)?;
        let known = ErrorCode::ALL.iter().find(|code| code.as_str() == text);
        Ok(known.copied().unwrap_or(ErrorCode::Internal))
    }
}

codes! {
    /// The frame is JSON, but a field is missing, of the wrong type or out of range.
    BadRequest = "bad_request", 400;
    /// `type` names no frame a client may send.
    UnknownType = "unknown_type", 400;
    /// A user, device, conversation or message id breaks the rules for ids.
    InvalidId = "invalid_id", 400;
    /// The message has neither a body nor an attachment.
    EmptyBody = "empty_body", 400;
    /// The body is longer than `max_body_bytes` in `welcome`.
    BodyTooLarge = "body_too_large", 413;
    /// One cannot write to oneself.
    ToSelf = "to_self", 400;
    /// No such conversation, or not yours: the two are not told apart.
    NotFound = "not_found", 404;
    /// This `client_msg_id` names a stored message with other content. Nothing was stored.
    ClientMsgIdConflict = "client_msg_id_conflict", 409;
    /// You block this user; unblock before writing.
    Blocked = "blocked", 403;
    /// The attachment is longer than this server takes.
    AttachmentTooLarge = "attachment_too_large", 413;
    /// This server does not take attachments of this media type.
    TypeRefused = "type_refused", 415;
    /// The bytes of the attachment are not there yet.
    NotUploaded = "not_uploaded", 409;
    /// The bytes of the attachment are there already, and never change.
    AlreadyUploaded = "already_uploaded", 409;
    /// What was uploaded is not what was announced.
    UploadMismatch = "upload_mismatch", 422;
    /// The bytes came more slowly than this server waits for; the upload may be made again.
    UploadTooSlow = "upload_too_slow", 408;
    /// The user has uploaded as much as this server allows, in a day or in all.
    QuotaExceeded = "quota_exceeded", 413;
    /// The address was altered or has expired; ask for a new one.
    LinkRefused = "link_refused", 403;
    /// A key of `meta` begins with `_`: those are the server's.
    ReservedMeta = "reserved_meta", 400;
    /// Names and avatars are not the user's to set on this server.
    ProfileManaged = "profile_managed", 403;
    /// Too much was asked for in a short time; `retry_after_ms` says when the same request will pass.
    RateLimited = "rate_limited", 429;
    /// This server does not do that.
    Unsupported = "unsupported", 501;
    /// A part of the server is out of reach; `retry_after_ms` says when to try again.
    Unavailable = "unavailable", 503;
    /// The server's disk is nearly full: nothing new is taken until there is room.
    StorageFull = "storage_full", 507;
    /// A fault of the server's; the log has the details.
    Internal = "internal", 500;
    /// The token is missing, malformed, signed by another key or meant for another audience.
    Unauthorized = "unauthorized", 401;
    /// The token has expired; come back with a fresh one.
    TokenExpired = "token_expired", 401;
    /// The token was issued before the user's tokens were revoked; come back with one issued since.
    TokenRevoked = "token_revoked", 401;
    /// The page's origin is not one that the server allows.
    OriginRefused = "origin_refused", 403;
    /// The frame is not JSON text.
    NotJson = "not_json", 400;
    /// The frame or request is longer than the server reads.
    FrameTooLarge = "frame_too_large", 413;
    /// The first frame must be `hello`.
    HelloExpected = "hello_expected", 400;
    /// No `hello` came in time.
    HelloTimeout = "hello_timeout", 408;
    /// This device connected again; the older session ends.
    Replaced = "replaced", 409;
    /// The user has more sessions than allowed; the oldest ends.
    TooManySessions = "too_many_sessions", 409;
    /// This address has more connections than allowed.
    TooManyConnections = "too_many_connections", 429;
    /// Nothing was heard for longer than the heartbeat allows.
    HeartbeatTimeout = "heartbeat_timeout", 408;
    /// Messages were delivered and not acked in time, or the socket takes no bytes, or too few.
    SlowReader = "slow_reader", 408;
    /// The server is going down; reconnect after `reconnect_after_ms`.
    ShuttingDown = "shutting_down", 503;
    /// The user's data were erased.
    Erased = "erased", 410;
}

impl ErrorCode {
    /// The WebSocket close code that follows a `bye` with this code.
    pub fn close_code(self) -> u16 {
        match self {
            ErrorCode::ShuttingDown => 1001,
            ErrorCode::Internal | ErrorCode::Unavailable => 1011,
            ErrorCode::NotJson => 1003,
            ErrorCode::FrameTooLarge => 1009,
            other => 4000 + other.http_status(),
        }
    }

    /// Whether the same request may succeed later without being changed.
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            ErrorCode::RateLimited
                | ErrorCode::UploadTooSlow
                | ErrorCode::Unavailable
                | ErrorCode::StorageFull
                | ErrorCode::Internal
                | ErrorCode::ShuttingDown
        )
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error as a client sees it: what is wrong and what to do, nothing internal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{code}: {message}")]
pub struct WireError {
    pub code: ErrorCode,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl WireError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        WireError { code, message: message.into(), retry_after_ms: None }
    }

    pub fn retry_after(mut self, ms: u64) -> Self {
        self.retry_after_ms = Some(ms);
        self
    }

    /// The answer to every conversation id that the caller has no part in, known or not.
    pub fn not_found() -> Self {
        WireError::new(ErrorCode::NotFound, "no such conversation of yours")
    }
}
