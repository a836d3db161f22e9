//! The targets that this comparison can judge, each a ratio of what a message costs in the server's processor time: the middle one of the
//! ratios of all rounds, because the machine's speed moves less within a round than from one to the next.

use serde::Serialize;

use crate::{
    peer::Peer,
    results::{Round, Spread, Stage},
    run::Comparison,
};

#[derive(Debug, Serialize, PartialEq)]
pub struct Verdict {
    pub what: String,
    pub wanted: f64,
    pub ratio: Spread,
    pub holds: bool,
}

/// µs of the server's processor time for a message.
type Cost = fn(&Round) -> Option<f64>;

struct Target {
    what: &'static str,
    own: Cost,
    peer: Peer,
    other: Cost,
    wanted: f64,
}

const TARGETS: [Target; 9] = [
    Target {
        what: "durable messages with sent, ack and tick, against ejabberd with receipts",
        own: online,
        peer: Peer::Ejabberd,
        other: online,
        wanted: 10.0,
    },
    Target {
        what: "durable messages with sent, ack and tick, against Prosody with receipts",
        own: online,
        peer: Peer::Prosody,
        other: online,
        wanted: 10.0,
    },
    Target {
        what: "the same frames, against the forwarder that stores nothing",
        own: online,
        peer: Peer::Forwarder,
        other: online,
        wanted: 0.4,
    },
    Target {
        what: "stored for users who are away, against ejabberd",
        own: store,
        peer: Peer::Ejabberd,
        other: store,
        wanted: 10.0,
    },
    Target {
        what: "drained to users who come back, against ejabberd",
        own: drain,
        peer: Peer::Ejabberd,
        other: drain,
        wanted: 15.0,
    },
    Target {
        what: "drained, ejabberd's log-ins left out and Bluetick's not",
        own: drain,
        peer: Peer::Ejabberd,
        other: |round| without_login(round.drain.as_ref()?),
        wanted: 15.0,
    },
    Target {
        what: "stored for users who are away, on a fresh server, against ejabberd",
        own: fresh_store,
        peer: Peer::Ejabberd,
        other: fresh_store,
        wanted: 10.0,
    },
    Target {
        what: "drained to users who come back, from a fresh server, against ejabberd",
        own: fresh_drain,
        peer: Peer::Ejabberd,
        other: fresh_drain,
        wanted: 15.0,
    },
    Target {
        what: "drained from a fresh server, ejabberd's log-ins left out and Bluetick's not",
        own: fresh_drain,
        peer: Peer::Ejabberd,
        other: |round| without_login(round.fresh_drain.as_ref()?),
        wanted: 15.0,
    },
];

fn online(round: &Round) -> Option<f64> {
    Some(round.online.as_ref()?.server_cpu_micros_per_message)
}

fn store(round: &Round) -> Option<f64> {
    Some(round.store.as_ref()?.server_cpu_micros_per_message)
}

fn drain(round: &Round) -> Option<f64> {
    Some(round.drain.as_ref()?.server_cpu_micros_per_message)
}

fn fresh_store(round: &Round) -> Option<f64> {
    Some(round.fresh_store.as_ref()?.server_cpu_micros_per_message)
}

fn fresh_drain(round: &Round) -> Option<f64> {
    Some(round.fresh_drain.as_ref()?.server_cpu_micros_per_message)
}

fn without_login(stage: &Stage) -> Option<f64> {
    Some(stage.server_cpu_micros_per_message - stage.login_cpu_micros_per_message?)
}

/// Those for which both sides were measured.
pub fn judge(comparison: &Comparison) -> Vec<Verdict> {
    let verdicts = TARGETS.iter().filter_map(|target| {
        let own = &comparison.measured(Peer::Bluetick)?.rounds;
        let others = &comparison.measured(target.peer)?.rounds;
        let ratio = |(own, other): (&Round, &Round)| Some((target.other)(other)? / (target.own)(own)?);
        let ratios = own.iter().zip(others).filter_map(ratio).filter(|ratio| ratio.is_finite());
        let ratio = Spread::of(ratios)?;
        let holds = ratio.median >= target.wanted;
        Some(Verdict { what: target.what.into(), wanted: target.wanted, ratio, holds })
    });
    verdicts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Measured, Sizes};

    fn stage(micros: f64, login: Option<f64>) -> Option<Stage> {
        Some(Stage {
            server_cpu_micros_per_message: micros,
            login_cpu_micros_per_message: login,
            ..Stage::default()
        })
    }

    #[test]
    fn a_target_is_judged_with_log_ins_and_without_in_use_and_fresh() {
        let measured = |peer, round| Measured { peer, version: None, rounds: vec![round] };
        let own = Round {
            drain: stage(8.0, None),
            fresh_store: stage(10.0, None),
            fresh_drain: stage(4.0, None),
            ..Round::default()
        };
        let ejabberd = Round {
            drain: stage(128.0, Some(48.0)),
            fresh_store: stage(90.0, None),
            fresh_drain: stage(80.0, Some(16.0)),
            ..Round::default()
        };
        let peers = vec![measured(Peer::Bluetick, own), measured(Peer::Ejabberd, ejabberd)];
        let verdicts = judge(&Comparison { sizes: Sizes::QUICK, peers, fsync: Vec::new() });
        let found: Vec<_> = verdicts.iter().map(|v| (v.ratio.median, v.holds)).collect();
        assert_eq!(found, [(16.0, true), (10.0, false), (9.0, false), (20.0, true), (16.0, true)]);
    }

    #[test]
    fn each_round_is_compared_with_itself() {
        // The machine is half as fast in the second round, and the third is of a moment in which only one was slow.
        let online = |peer, micros: [f64; 3]| {
            let stage = |micros| Stage { server_cpu_micros_per_message: micros, ..Stage::default() };
            let rounds = micros.map(|micros| Round { online: Some(stage(micros)), ..Round::default() });
            Measured { peer, version: None, rounds: rounds.to_vec() }
        };
        let peers =
            vec![online(Peer::Bluetick, [10.0, 20.0, 40.0]), online(Peer::Ejabberd, [110.0, 220.0, 120.0])];
        let verdicts = judge(&Comparison { sizes: Sizes::QUICK, peers, fsync: Vec::new() });
        let found: Vec<_> =
            verdicts.iter().map(|v| (v.ratio.median, v.ratio.lowest, v.ratio.highest, v.holds)).collect();
        assert_eq!(found, [(11.0, 3.0, 11.0, true)]);
    }
}
