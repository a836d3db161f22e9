//! Tests that start the real `bluetick` process and talk to its socket.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
// A release build cannot be told where to die: what is used only for that is not, there.
#![cfg_attr(not(debug_assertions), allow(dead_code))]

mod attachments;
mod attacks;
mod bad_input;
#[cfg(feature = "cluster")]
mod behind_proxy;
mod bench;
mod blocks;
mod certificates;
mod cold;
#[cfg(debug_assertions)]
mod crash;
mod deployment;
mod devices;
mod disk;
mod drain;
mod embedded;
mod environment;
mod harness;
#[cfg(debug_assertions)]
mod history;
mod http;
mod idempotency;
mod inbox;
mod load;
mod logs;
#[cfg(feature = "cluster")]
mod migrate;
mod near;
mod operations;
mod push;
mod push_outage;
#[cfg(feature = "cluster")]
mod reverse_proxy;
#[cfg(debug_assertions)]
mod rows;
mod sessions;
mod tour;
#[cfg(debug_assertions)]
mod town;
mod watch;
mod write_flow;
