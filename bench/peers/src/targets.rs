//! The targets that this comparison can judge, each a ratio of messages per second of the server's processor time.

use serde::Serialize;

use crate::{
    peer::Peer,
    results::{Round, Stage},
    run::Comparison,
};

#[derive(Debug, Serialize, PartialEq)]
pub struct Verdict {
    pub what: String,
    pub wanted: f64,
    pub measured: f64,
    pub holds: bool,
}

type Pick = fn(&Round) -> Option<&Stage>;

const TARGETS: [(&str, Pick, Peer, f64); 5] = [
    (
        "durable messages with sent, ack and tick, against ejabberd with receipts",
        online,
        Peer::Ejabberd,
        10.0,
    ),
    ("durable messages with sent, ack and tick, against Prosody with receipts", online, Peer::Prosody, 10.0),
    ("the same frames, against the forwarder that stores nothing", online, Peer::Forwarder, 0.4),
    ("stored for users who are away, against ejabberd", store, Peer::Ejabberd, 10.0),
    ("drained to users who come back, against ejabberd", drain, Peer::Ejabberd, 15.0),
];

fn online(round: &Round) -> Option<&Stage> {
    round.online.as_ref()
}

fn store(round: &Round) -> Option<&Stage> {
    round.store.as_ref()
}

fn drain(round: &Round) -> Option<&Stage> {
    round.drain.as_ref()
}

/// Those for which both sides were measured.
pub fn judge(comparison: &Comparison) -> Vec<Verdict> {
    let verdicts = TARGETS.iter().filter_map(|&(what, pick, peer, wanted)| {
        let own = comparison.measured(Peer::Bluetick)?.per_cpu_second(pick)?.median;
        let other = comparison.measured(peer)?.per_cpu_second(pick)?.median;
        let measured = own / other;
        Some(Verdict { what: what.into(), wanted, measured, holds: measured >= wanted })
    });
    verdicts.collect()
}
