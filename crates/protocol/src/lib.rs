//! What travels on Bluetick's wire: ids, frames, error codes and limits.
//!
//! Every other crate may use this one, and it uses none of them. No async, no I/O.
//!
//! The feature `openapi` adds OpenAPI schemas to the types that the HTTP API exchanges.

mod attachment;
mod codec;
mod error;
mod frames;
mod ids;
pub mod limits;
#[cfg(feature = "openapi")]
mod openapi;
mod push;
mod write;

pub use attachment::*;
pub use codec::{ClientFrame, DecodeError, check_send, decode};
pub use error::{ErrorCode, WireError};
pub use frames::*;
pub use ids::*;
pub use push::*;
pub use write::{MESSAGE_FRAME_BYTES, MessageText, json_text_bytes};
