//! The one place where a store's error becomes an error code.

use bluetick_protocol::{ErrorCode, WireError};
use bluetick_store::StoreError;

/// The client's view of a store's error. The details stay in the log.
pub fn wire(error: StoreError) -> WireError {
    match error {
        StoreError::Unavailable { what, retry_after } => {
            tracing::warn!(what, "store unavailable");
            WireError::new(ErrorCode::Unavailable, "the server cannot do this right now; try again")
                .retry_after(retry_after.as_millis() as u64)
        }
        StoreError::Full(why) => {
            tracing::debug!(why, "refused for want of room");
            WireError::new(ErrorCode::StorageFull, "the server has no room for new messages; try again later")
                .retry_after(5_000)
        }
        StoreError::ClientMsgIdConflict(why) => WireError::new(ErrorCode::ClientMsgIdConflict, why),
        StoreError::Unsupported(what) => WireError::new(ErrorCode::Unsupported, what),
        StoreError::Damaged { object, why } => {
            tracing::error!(object, why, "a cold object is missing or damaged");
            let message =
                format!("the object {object}, which holds this, is missing or damaged at the server");
            WireError::new(ErrorCode::Internal, message)
        }
        StoreError::Unusable(why) | StoreError::Corrupt(why) => {
            tracing::error!(why, "store failed");
            WireError::new(ErrorCode::Internal, "the server met an error it did not expect")
        }
    }
}
