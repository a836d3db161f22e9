//! The tests of `it` once more, unchanged, against two gateways and two app servers behind nginx, on DynamoDB and
//! Redis; and what only a cluster can go through. `scripts/services start` runs what it needs.
//!
//! Not here, because they are about one process or its files: `crash` and `disk` (the log, checkpoints, fsync),
//! `embedded` (its directory, backups, free space, figures), `near` (the demo gives no tokens through a proxy, and what a
//! device acked in the session that it resumes is known to that gateway alone).

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
// A release build cannot be told where to die: what is used only for that is not, there.
#![cfg_attr(not(debug_assertions), allow(dead_code))]

#[path = "../it/bad_input.rs"]
mod bad_input;
#[path = "../it/blocks.rs"]
mod blocks;
#[path = "../it/devices.rs"]
mod devices;
#[path = "../it/drain.rs"]
mod drain;
#[path = "../it/harness.rs"]
#[allow(dead_code, reason = "some of it is for the tests of one process")]
mod harness;
#[path = "../it/history.rs"]
mod history;
#[path = "../it/http.rs"]
mod http;
#[path = "../it/idempotency.rs"]
mod idempotency;
#[path = "../it/inbox.rs"]
mod inbox;
#[path = "../it/load.rs"]
mod load;
#[path = "../it/operations.rs"]
mod operations;
#[path = "../it/push.rs"]
mod push;
#[path = "../it/reverse_proxy.rs"]
mod reverse_proxy;
#[path = "../it/rows.rs"]
mod rows;
#[path = "../it/sessions.rs"]
mod sessions;
#[path = "../it/town.rs"]
mod town;
#[path = "../it/write_flow.rs"]
mod write_flow;

mod attachments;
mod attacks;
mod balancer;
mod cold;
mod deployment;
mod faults;
mod hung_gateway;
mod impostor;
mod node;
mod own_redis;
mod pairs;
mod plain_http;
mod proxy;
#[cfg(debug_assertions)]
mod retries;
mod rolling;
mod scene;
mod tables;
mod whole_stop;
