//! Errors by what the caller can do: retry, free space, or call an operator.

use std::time::Duration;

pub type Result<T, E = StoreError> = std::result::Result<T, E>;

#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// A system is unreachable or overloaded; the same call may succeed later.
    #[error("{what} is unavailable")]
    Unavailable { what: String, retry_after: Duration },
    /// No space for new data; stored data is safe and readable.
    #[error("no room to store: {0}")]
    Full(String),
    /// A `client_msg_id` was reused with different content. Nothing was stored.
    #[error("{0}")]
    ClientMsgIdConflict(String),
    /// This backend does not support the call.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The data directory cannot be used as it is; the text says why and what to do.
    #[error("{0}")]
    Unusable(String),
    /// An object of the cold tier is missing, or is not what was written.
    #[error("the object {object} is damaged: {why}")]
    Damaged { object: String, why: String },
    /// Stored bytes are not what was written.
    #[error("damaged data: {0}")]
    Corrupt(String),
}

impl StoreError {
    pub fn unavailable(what: impl Into<String>) -> Self {
        StoreError::Unavailable { what: what.into(), retry_after: Duration::from_secs(1) }
    }
}
