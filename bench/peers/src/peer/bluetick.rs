//! Bluetick with its defaults, but for the limits on what one user and one address may do.

use std::process::Command;

use super::Place;
use crate::process::{Server, free_port};

pub fn start(place: &Place<'_>) -> Result<Server, String> {
    let port = free_port()?;
    let config = place.write_bluetick_config(port)?;
    let mut serve = Command::new(place.bluetick);
    serve.arg("serve").arg("--config").arg(config).current_dir(place.dir);
    Server::start(&serve, &place.log(), port, || true)
}
