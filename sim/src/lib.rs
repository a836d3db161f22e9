//! The simulator: the real `chat` code and the real client logic, with several app servers and
//! gateways, on stores and networks that inject faults, in virtual time. One seed determines a run.
//!
//! - `setup.rs`: the parameters of a run, drawn from its seed: sizes, fault rates, and a schedule
//! - `sim.rs`: what all parts of a run share: time, randomness, the trace
//! - `process.rs`: a process that can crash, pause and be cut off
//! - `store.rs`, `policy.rs`: the stores, whose every step may be late, fail, or lose its answer
//! - `network.rs`: the network between gateways and app servers; `line.rs`: the connection between
//!   a device and its gateway
//! - `device.rs`: a device with the real client logic; `backend.rs`: a back end that sends over
//!   HTTP
//! - `breach.rs`: rules broken on purpose
//! - `world.rs`: one run
//! - `notices.rs`: which notices to sessions an app server's crash lost
//! - `history.rs`: what every user and device saw; `check.rs`: what must hold for it
//! - `client_script.rs`: what one device did, as a script of the clients' conformance kit
//! - `runs.rs`: many seeds

mod backend;
mod breach;
mod check;
mod client_script;
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

pub use breach::{Breach, Breaches};
pub use client_script::{RECORDED_SEEDS, record_client_script, script_file_name, write_client_scripts};
pub use runs::{RunsReport, run_many};
pub use setup::Setup;
pub use sim::FaultCounts;
pub use store::stepwise;
pub use world::{RunOutcome, run};
