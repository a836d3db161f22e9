//! RPC between roles: gateways ask app servers, app servers hand over to gateways.
//!
//! gRPC with one method that opens a stream each way and keeps it (`bluetick.cluster.v2.Link/Open`).
//!
//! - `wire.rs`: what goes over it
//! - `guard.rs`: who may open one; `proof.rs`: how the secret is proven and not sent
//! - `link.rs`, `listener.rs`: the two ends of a stream
//! - `dispatcher.rs`: runs the calls of other processes
//! - `app_client.rs`: `App` and `Operator`, done elsewhere
//! - `gateway_client.rs`: `Gateways`, found by the names of sessions
//! - `discovery.rs`: who is there

mod app_client;
mod discovery;
mod dispatcher;
mod gateway_client;
mod guard;
mod link;
mod listener;
mod proof;
mod wire;

pub use app_client::{AppServers, ClusterOperator, PoolConfig};
pub use discovery::{Announcer, Entries, find_app_servers};
pub use dispatcher::RoleDispatcher;
pub use gateway_client::RemoteGateways;
pub use guard::{Guard, GuardError};
pub use link::{LinkConfig, Standing};
pub use listener::RpcListener;

#[cfg(test)]
mod tests;
