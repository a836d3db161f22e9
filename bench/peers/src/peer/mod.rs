//! The servers that are compared, and how each is started: alone on loopback, in a directory of its own, without
//! TLS and without rate limits.

mod bluetick;
mod ejabberd;
mod forwarder;
mod prosody;

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Serialize;

use crate::process::Server;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Peer {
    Bluetick,
    Ejabberd,
    Prosody,
    Forwarder,
}

impl Peer {
    pub const ALL: [Peer; 4] = [Peer::Bluetick, Peer::Ejabberd, Peer::Prosody, Peer::Forwarder];

    pub fn name(self) -> &'static str {
        match self {
            Peer::Bluetick => "Bluetick",
            Peer::Ejabberd => "ejabberd",
            Peer::Prosody => "Prosody",
            Peer::Forwarder => "forwarder",
        }
    }

    pub fn speaks_xmpp(self) -> bool {
        matches!(self, Peer::Ejabberd | Peer::Prosody)
    }

    pub fn stores(self) -> bool {
        self != Peer::Forwarder
    }

    /// What is on disk when it says what to whom.
    pub fn durability(self) -> &'static str {
        match self {
            Peer::Bluetick => {
                "every message, online or offline, is in the log and made durable by an fsync shared with others before \
                 `sent`; it stays after delivery. A message costs send, sent, message, ack and ticks, and the ack is stored too."
            }
            Peer::Ejabberd => {
                "online: nothing is stored, and the sender hears of a message only by the receiver's receipt. Offline: \
                 Mnesia on disk (stock), nothing is acknowledged, and there is hardly an fsync: a kill -9 loses a part of what was accepted."
            }
            Peer::Prosody => {
                "online: nothing is stored, and the sender hears of a message only by the receiver's receipt. Offline: \
                 a file for each user (stock), nothing is acknowledged and there is no fsync: it survives a kill -9, not a power cut."
            }
            Peer::Forwarder => {
                "nothing at all: it passes the same frames as Bluetick from socket to socket. The limit, not a peer."
            }
        }
    }

    pub fn start(self, place: &Place<'_>) -> Result<Server, String> {
        let started = match self {
            Peer::Bluetick => bluetick::start(place),
            Peer::Ejabberd => ejabberd::start(place),
            Peer::Prosody => prosody::start(place),
            Peer::Forwarder => forwarder::start(place),
        };
        started.map_err(|why| format!("{} cannot be started: {why}", self.name()))
    }
}

/// Where a server is started: an empty directory, and what it must know in advance.
pub struct Place<'a> {
    pub dir: &'a Path,
    /// The binary of Bluetick.
    pub bluetick: &'a Path,
    /// Users that it must know: bench-0, bench-1, ….
    pub users: u32,
}

impl Place<'_> {
    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// What the server says, whatever it says it on.
    fn log(&self) -> PathBuf {
        self.file("output")
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let path = self.file(name);
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(path)
    }

    /// Where `bluetick bench` finds the secret for its tokens, and the server its settings.
    pub fn bluetick_config(&self) -> PathBuf {
        self.file("bluetick.toml")
    }

    fn write_bluetick_config(&self, port: u16) -> Result<PathBuf, String> {
        self.write(
            "bluetick.toml",
            &format!(
                "[server]\nlisten = \"127.0.0.1:{port}\"\ndata_dir = {data:?}\n\
                 [auth]\nhs256_secret = \"a secret of this measurement only\"\n\
                 [limits]\nsends_per_second = 0\nrequest_units_per_second = 0\nconnections_per_address = 0\n\
                 [log]\nfilter = \"warn\"\n",
                data = self.file("data")
            ),
        )
    }
}
