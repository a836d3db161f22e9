//! Support for the tests, benchmarks and examples of every crate. The product never compiles it.

// Test code: a panic is its answer.
#![allow(clippy::unwrap_used)]

pub mod faults;
mod message;

use bluetick_protocol::{ClientMsgId, ConversationId, UserId};

pub use message::message;

pub fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

pub fn conversation(text: &str) -> ConversationId {
    ConversationId::new(text).unwrap()
}

pub fn client_msg_id(text: &str) -> ClientMsgId {
    ClientMsgId::new(text).unwrap()
}
