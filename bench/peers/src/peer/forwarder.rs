//! The bare forwarder, which is this program.

use std::process::Command;

use super::Place;
use crate::process::{Server, free_port};

pub fn start(place: &Place<'_>) -> Result<Server, String> {
    let port = free_port()?;
    // For the tokens of `bluetick bench`.
    place.write_bluetick_config(port)?;
    let myself = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut serve = Command::new(myself);
    serve.args(["forwarder", "--listen", &format!("127.0.0.1:{port}")]);
    Server::start(&serve, &place.log(), port, || true)
}
