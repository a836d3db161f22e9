//! The comparison as people read it: one table, what each server makes durable, the limits, the targets.

use std::path::Path;

use crate::{
    fsync::GroupFsync,
    peer::Peer,
    results::{LatencySummary, Round, Spread, Stage},
    run::{Comparison, Measured},
    stalls::Stalls,
    table::{Table, number},
    targets::{self, Verdict},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    Markdown,
}

type Pick = fn(&Round) -> Option<&Stage>;

const STAGES: [(&str, Pick); 5] = [
    ("online, each with its receipt", |round| round.online.as_ref()),
    ("stored for users who are away", |round| round.store.as_ref()),
    ("drained to users who come back", |round| round.drain.as_ref()),
    ("stored, server holds nothing yet", |round| round.fresh_store.as_ref()),
    ("drained, server held nothing before", |round| round.fresh_drain.as_ref()),
];

impl Measured {
    pub fn spread(&self, value: impl Fn(&Round) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.rounds.iter().filter_map(value))
    }

    /// Messages that the server gets through in a second of its processor's time.
    pub fn per_cpu_second(&self, stage: Pick) -> Option<Spread> {
        self.spread(|round| {
            Some(1e6 / stage(round)?.server_cpu_micros_per_message).filter(|rate| rate.is_finite())
        })
    }

    fn title(&self) -> String {
        match &self.version {
            // Debian's revision says nothing here.
            Some(version) => {
                format!("{} {}", self.peer.name(), version.split(['-', '+', '~']).next().unwrap_or(version))
            }
            None => self.peer.name().to_owned(),
        }
    }
}

impl Comparison {
    pub fn measured(&self, peer: Peer) -> Option<&Measured> {
        self.peers.iter().find(|measured| measured.peer == peer)
    }

    pub fn to_string(&self, format: Format) -> String {
        let sections = [
            self.load(),
            render(&self.table(), format),
            self.durability(format),
            "Raw group fsync, the limit for a store: records of 300 bytes appended to a plain file, each group made \
             durable by one fdatasync before its writers go on.\n"
                .to_owned(),
            render(&fsync_table(&self.fsync), format),
            self.complaints(),
            self.targets(format),
        ];
        sections
            .iter()
            .filter(|section| !section.is_empty())
            .map(|s| s.trim_end())
            .collect::<Vec<_>>()
            .join("\n\n")
            + "\n"
    }

    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({ "measured": self, "targets": targets::judge(self) })
    }

    pub fn write_json(&self, path: &Path) -> Result<(), String> {
        let text = format!("{:#}\n", self.to_json());
        std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
    }

    fn load(&self) -> String {
        let sizes = &self.sizes;
        let rounds = self.peers.iter().map(|measured| measured.rounds.len()).max().unwrap_or(0);
        format!(
            "Server on one core, load on another. {} pairs, {} messages of each in flight, bodies of {} bytes; to \
             {} users who are away {} messages each{}. {}",
            sizes.pairs,
            sizes.in_flight,
            sizes.body_bytes,
            sizes.offline_pairs,
            sizes.offline_messages,
            match sizes.idle_connections {
                0 => String::new(),
                idle => format!("; {idle} idle connections"),
            },
            match rounds {
                1 => "One round.".to_owned(),
                _ => format!("The middle of {rounds} rounds, lowest and highest in parentheses."),
            }
        )
    }

    fn table(&self) -> Table {
        let titles = self.peers.iter().map(Measured::title);
        let mut table = Table::new(std::iter::once(String::new()).chain(titles));
        for (name, pick) in STAGES {
            self.add(&mut table, &format!("{name}: messages/s"), |measured| {
                measured.spread(|round| Some(pick(round)?.messages_per_second))
            });
            self.add(&mut table, "  µs of server cpu a message", |measured| {
                measured.spread(|round| Some(pick(round)?.server_cpu_micros_per_message))
            });
            self.add(&mut table, "  µs of it for logging in, where it is seen", |measured| {
                measured.spread(|round| pick(round)?.login_cpu_micros_per_message)
            });
            self.add(&mut table, "  messages per server cpu second", |measured| {
                measured.per_cpu_second(pick)
            });
            self.add_ratio(&mut table, pick);
            self.add_latency(&mut table, "  send to receive, p50 / p99 ms", |round| pick(round)?.to_receive);
            self.add_latency(&mut table, "  send to receipt, p50 / p99 ms", |round| pick(round)?.to_receipt);
        }
        self.add(&mut table, "idle connection: KiB of server memory", |measured| {
            measured.spread(|round| Some(round.idle_bytes_per_connection? as f64 / 1024.0))
        });
        table
    }

    fn add(&self, table: &mut Table, name: &str, value: impl Fn(&Measured) -> Option<Spread>) {
        self.add_cells(table, name, |measured| value(measured).map(spread_cell));
    }

    fn add_ratio(&self, table: &mut Table, pick: Pick) {
        let Some(own) = self.measured(Peer::Bluetick).and_then(|own| own.per_cpu_second(pick)) else {
            return;
        };
        self.add_cells(table, "  Bluetick does per cpu second", |measured| {
            let other = measured.per_cpu_second(pick)?;
            Some(format!("{} ×", number(own.median / other.median)))
        });
    }

    fn add_latency(&self, table: &mut Table, name: &str, pick: impl Fn(&Round) -> Option<LatencySummary>) {
        self.add_cells(table, name, |measured| {
            let p50 = measured.spread(|round| Some(pick(round)?.p50_ms))?.median;
            let p99 = measured.spread(|round| Some(pick(round)?.p99_ms))?.median;
            Some(format!("{} / {}", number(p50), number(p99)))
        });
    }

    /// A row, unless nobody has anything to say in it.
    fn add_cells(&self, table: &mut Table, name: &str, cell: impl Fn(&Measured) -> Option<String>) {
        let cells: Vec<Option<String>> = self.peers.iter().map(cell).collect();
        if cells.iter().any(Option::is_some) {
            let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".into()));
            table.row(std::iter::once(name.to_owned()).chain(cells));
        }
    }

    fn durability(&self, format: Format) -> String {
        let mut text = String::from("What each has made durable when it says what to whom:\n");
        if format == Format::Markdown {
            text.push('\n');
        }
        for measured in &self.peers {
            text.push_str(&format!("- {}: {}\n", measured.peer.name(), measured.peer.durability()));
        }
        text
    }

    /// What was lost or came out of order, and what could not be measured.
    fn complaints(&self) -> String {
        let mut text = String::new();
        for measured in &self.peers {
            for (at, round) in measured.rounds.iter().enumerate() {
                for complaint in round.complaints() {
                    text.push_str(&format!("- {}, round {}: {complaint}\n", measured.peer.name(), at + 1));
                }
            }
        }
        match text.is_empty() {
            true => "Every message that was sent came, once and in order, at every server.".into(),
            false => format!("What went wrong:\n\n{text}"),
        }
    }

    fn targets(&self, format: Format) -> String {
        let verdicts = targets::judge(self);
        if verdicts.is_empty() {
            return String::new();
        }
        let mut table = Table::new(["target, by server cpu", "wanted", "measured", "verdict"]);
        for Verdict { what, wanted, ratio, holds } in verdicts {
            let verdict = if holds { "holds" } else { "falls short" };
            table.row([
                what,
                format!("at least {wanted} ×"),
                format!("{} ×", spread_cell(ratio)),
                verdict.to_owned(),
            ]);
        }
        render(&table, format)
    }
}

pub fn fsync_table(found: &[GroupFsync]) -> Table {
    let mut table = Table::new([
        "writers",
        "records/s",
        "records a group",
        "µs of cpu a record",
        "a group's write and fdatasync, p50 / p99 / longest ms",
    ]);
    for found in found {
        let LatencySummary { p50_ms, p99_ms, max_ms } = found.group;
        table.row([
            found.writers.to_string(),
            number(found.records_per_second),
            number(found.records_per_group),
            number(found.cpu_micros_per_record),
            format!("{} / {} / {}", number(p50_ms), number(p99_ms), number(max_ms)),
        ]);
    }
    table
}

pub fn stalls_table(found: &[Stalls]) -> Table {
    let mut table = Table::new(["core", "stalls", "ms of each second", "longest ms"]);
    for found in found {
        table.row([
            found.core.to_string(),
            found.stalls.to_string(),
            number(found.ms_a_second),
            number(found.longest_ms),
        ]);
    }
    table
}

fn render(table: &Table, format: Format) -> String {
    match format {
        Format::Text => table.to_text(),
        Format::Markdown => table.to_markdown(),
    }
}

fn spread_cell(spread: Spread) -> String {
    let Spread { median, lowest, highest } = spread;
    match lowest == highest {
        true => number(median),
        false => format!("{} ({}–{})", number(median), number(lowest), number(highest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Sizes;

    pub fn measured(peer: Peer, cpu_micros: &[f64]) -> Measured {
        let stage = |micros: f64| Stage {
            messages: 10,
            seconds: 1.0,
            messages_per_second: 1e6 / micros,
            server_cpu_micros_per_message: micros,
            ..Stage::default()
        };
        let rounds = cpu_micros.iter().map(|&micros| Round {
            online: Some(stage(micros)),
            store: peer.stores().then(|| stage(2.0 * micros)),
            idle_bytes_per_connection: Some(8192),
            ..Round::default()
        });
        Measured { peer, version: None, rounds: rounds.collect() }
    }

    #[test]
    fn the_table_has_medians_spreads_and_ratios() {
        let comparison = Comparison {
            sizes: Sizes::QUICK,
            peers: vec![
                measured(Peer::Bluetick, &[10.0, 12.5, 8.0]),
                measured(Peer::Ejabberd, &[150.0]),
                measured(Peer::Forwarder, &[5.0]),
            ],
            fsync: Vec::new(),
        };
        let text = comparison.to_string(Format::Text);
        for expected in [
            "100,000 (80,000–125,000)",
            "15.0 ×",
            "0.50 ×",
            "8.00",
            "at least 10 ×",
            "holds",
            "Every message that was sent came",
        ] {
            assert!(text.contains(expected), "no {expected} in\n{text}");
        }
        // Nobody drained, so there is no such row.
        assert!(!text.contains("drained"), "{text}");
        assert!(comparison.to_string(Format::Markdown).contains("|  | Bluetick | ejabberd | forwarder |"));
    }

    #[test]
    fn what_was_lost_is_in_the_report() {
        let mut lossy = measured(Peer::Prosody, &[100.0]);
        lossy.rounds[0].failures.push("drain: nothing came".into());
        let comparison = Comparison { sizes: Sizes::QUICK, peers: vec![lossy], fsync: Vec::new() };
        assert!(comparison.to_string(Format::Text).contains("- Prosody, round 1: drain: nothing came"));
    }
}
