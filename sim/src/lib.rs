//! The simulator: the real `chat` code and the real client logic, several app servers and gateways, on stores and
//! networks that fail in every way they can, in time that costs nothing. One seed determines a run.
//!
//! - `setup.rs`: what a run is made of, drawn from its seed: sizes, faults, and what happens when
//! - `sim.rs`: what all parts of a run share: time, chance, the trace
//! - `process.rs`: a process that can crash, pause and be cut off
//! - `store.rs`, `policy.rs`: the systems, whose every step may be late, fail, or lose its answer
//! - `network.rs`: between gateways and app servers; `line.rs`: between a device and its gateway
//! - `device.rs`: a device with the real client logic; `backend.rs`: a back end that sends over HTTP
//! - `world.rs`: all of it together, for one run
//! - `notices.rs`: which notices to sessions were lost in the crash of an app server
//! - `history.rs`: what everybody saw; `check.rs`: what must be true of it
//! - `runs.rs`: many seeds

mod backend;
mod check;
mod device;
mod history;
mod line;
mod network;
mod notices;
mod policy;
mod process;
mod runs;
mod setup;
mod sim;
mod store;
mod world;

pub use bluetick_chat::Rule;
pub use runs::{Report, run_many};
pub use setup::Setup;
pub use sim::Faults;
pub use store::stepwise;
pub use world::{Outcome, run};
