//! RPC between roles: gateways send requests to app servers, app servers hand events over to gateways.
//!
//! The transport is gRPC with one method, `bluetick.cluster.v2.Link/Open`, which opens a long-lived stream in each
//! direction. The requests are [`ClusterRequest`](bluetick_chat::ClusterRequest)s.
//!
//! - `wire.rs`: the messages on a stream
//! - `guard.rs`: authentication of both sides; `proof.rs`: how the secret is proven without being sent
//! - `link.rs`: the calling side of a stream; `listener.rs`: the serving side
//! - `dispatcher.rs`: runs the requests of other processes
//! - `app_client.rs`: `App` and `Operator` on remote app servers
//! - `gateway_client.rs`: `Gateways` on remote gateways
//! - `discovery.rs`: the directory of processes

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
pub use discovery::{Announcer, DirectoryEntries, find_app_servers};
pub use dispatcher::RoleDispatcher;
pub use gateway_client::RemoteGateways;
pub use guard::{Guard, GuardError};
pub use link::{LinkConfig, LinkStatus};
pub use listener::RpcListener;

#[cfg(test)]
mod tests;
