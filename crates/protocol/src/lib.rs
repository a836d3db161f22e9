//! What travels on Bluetick's wire: ids, frames, error codes and limits.
//!
//! This crate is the right end of the architecture's arrow: everything may use
//! it, and it uses nothing of Bluetick. No async, no I/O.

mod attachment;
mod codec;
mod error;
mod frames;
mod ids;
pub mod limits;
mod push;
mod write;

pub use attachment::*;
pub use codec::{ClientFrame, DecodeError, check_send, decode};
pub use error::{ErrorCode, WireError};
pub use frames::*;
pub use ids::*;
pub use push::*;
pub use write::{MESSAGE_FRAME_BYTES, MessageText, json_text_bytes};
