//! Tests that start the real `bluetick` process and talk to its socket.

#![allow(clippy::unwrap_used)]

mod bad_input;
mod blocks;
mod crash;
mod devices;
mod disk;
mod drain;
mod harness;
mod history;
mod http;
mod idempotency;
mod inbox;
mod load;
mod operations;
mod sessions;
mod town;
mod write_flow;
