//! Tests that start the real `bluetick` process and talk to its socket.

#![allow(clippy::unwrap_used)]
// A release build cannot be told where to die: what is used only for that is not, there.
#![cfg_attr(not(debug_assertions), allow(dead_code))]

mod attachments;
mod bad_input;
mod bench;
mod blocks;
mod cold;
#[cfg(debug_assertions)]
mod crash;
mod deployment;
mod devices;
mod disk;
mod drain;
mod embedded;
mod harness;
#[cfg(debug_assertions)]
mod history;
mod http;
mod idempotency;
mod inbox;
mod load;
#[cfg(feature = "cluster")]
mod migrate;
mod near;
mod operations;
mod push;
mod push_outage;
#[cfg(debug_assertions)]
mod rows;
mod sessions;
#[cfg(debug_assertions)]
mod town;
mod watch;
mod write_flow;
