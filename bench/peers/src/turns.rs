//! The messages online alone, in short turns with all servers up at once. A machine whose speed changes from minute to minute moves
//! servers that are measured minutes apart, and hardly moves the ratio of two that follow each other within seconds.

use std::time::Duration;

use serde::Serialize;

use crate::{
    peer::Peer,
    report::Format,
    run::{Plan, Running, Sizes, online, say},
    table::{Table, number},
};

const SECONDS: u64 = 2;
/// What a server puts off it does within this time, or begins to.
const REST: Duration = Duration::from_secs(6);
const REST_MAX: Duration = Duration::from_secs(60);

/// What the turns of one server came to.
#[derive(Debug, Serialize)]
pub struct Turns {
    pub peer: Peer,
    pub messages: u64,
    /// µs of the server's processor time for a message, turn by turn, with a share of what it put off until the end.
    pub micros: Vec<f64>,
    pub put_off_micros: f64,
    /// What Bluetick does in the time in which this server does one, turn by turn.
    pub bluetick_does: Vec<f64>,
    pub complaints: Vec<String>,
}

pub fn run(plan: &Plan, turns: u32) -> Result<Vec<Turns>, String> {
    let plan = &Plan { sizes: Sizes { online_seconds: SECONDS, ..plan.sizes }, ..plan.clone() };
    crate::process::pin_myself()?;
    let mut servers = Vec::new();
    for &peer in &plan.peers {
        let turns = Turns {
            peer,
            messages: 0,
            micros: Vec::new(),
            put_off_micros: 0.0,
            bluetick_does: Vec::new(),
            complaints: Vec::new(),
        };
        servers.push((Running::start(plan, peer)?, turns));
    }
    // What each server does while it is the others' turn it has put off.
    let mut worked_until = vec![None; servers.len()];
    let mut put_off = vec![0; servers.len()];
    for turn in 0..turns as usize {
        say(&format!("turn {} of {turns}", turn + 1));
        // Forth and back, so that none has always the same before it.
        let mut order: Vec<usize> = (0..servers.len()).collect();
        if turn % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let (running, turns) = &mut servers[at];
            let tree = running.server.tree();
            put_off[at] += worked_until[at].map_or(0, |until| tree.cpu_micros().saturating_sub(until));
            let stage = online(plan, turns.peer, &running.server, &running.place(plan))?;
            turns.messages += stage.messages;
            turns.micros.push(stage.server_cpu_micros_per_message);
            turns.complaints.extend(stage.complaints);
            worked_until[at] = Some(tree.cpu_micros());
        }
    }
    let mut found: Vec<Turns> = Vec::new();
    for (running, mut turns) in servers {
        turns.put_off_micros =
            running.server.tree().rest(REST, REST_MAX) as f64 / turns.messages.max(1) as f64;
        turns.micros.iter_mut().for_each(|micros| *micros += turns.put_off_micros);
        found.push(turns);
    }
    compare(&mut found);
    Ok(found)
}

fn compare(found: &mut [Turns]) {
    let own = found.iter().find(|turns| turns.peer == Peer::Bluetick).map(|turns| turns.micros.clone());
    let own = own.unwrap_or_default();
    for turns in found {
        turns.bluetick_does = turns.micros.iter().zip(&own).map(|(other, own)| other / own).collect();
    }
}

/// The middle one, and in parentheses those between which half of them lie.
fn middle(values: &[f64]) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |part: usize| sorted.get(sorted.len().saturating_sub(1) * part / 4).copied();
    match (at(2), at(1), at(3)) {
        (Some(middle), Some(low), Some(high)) => {
            format!("{} ({} to {})", number(middle), number(low), number(high))
        }
        _ => "-".into(),
    }
}

pub fn table(found: &[Turns], format: Format) -> String {
    let mut table =
        Table::new(["online, in turns", "µs of server cpu a message", "of it put off", "Bluetick does, ×"]);
    for turns in found {
        table.row([
            turns.peer.name().to_owned(),
            middle(&turns.micros),
            number(turns.put_off_micros),
            middle(&turns.bluetick_does),
        ]);
    }
    let mut text = match format {
        Format::Markdown => table.to_markdown(),
        Format::Text => table.to_text(),
    };
    for turns in found {
        turns
            .complaints
            .iter()
            .for_each(|complaint| text.push_str(&format!("{}: {complaint}\n", turns.peer.name())));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(peer: Peer, micros: &[f64]) -> Turns {
        let micros = micros.to_vec();
        Turns {
            peer,
            messages: 1,
            micros,
            put_off_micros: 0.0,
            bluetick_does: Vec::new(),
            complaints: Vec::new(),
        }
    }

    #[test]
    fn each_turn_is_compared_with_its_neighbour() {
        // The machine is half as fast in the second turn, which the ratio does not see.
        let mut found = [turns(Peer::Ejabberd, &[100.0, 200.0]), turns(Peer::Bluetick, &[10.0, 20.0])];
        compare(&mut found);
        assert_eq!(found[0].bluetick_does, [10.0, 10.0]);
        assert_eq!(found[1].bluetick_does, [1.0, 1.0]);
    }

    #[test]
    fn the_middle_and_the_half_around_it() {
        assert_eq!(middle(&[5.0, 1.0, 3.0, 2.0, 4.0]), "3.00 (2.00 to 4.00)");
        assert_eq!(middle(&[]), "-");
    }
}
