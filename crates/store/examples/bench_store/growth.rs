//! Whether a send costs more when there is more history.
//!
//! Rounds of sends over the same conversations, into a store that holds little and into one that
//! holds much, turn about, so that a machine that slows down does so for both. The store with
//! little is made anew for each round. A round ends with a checkpoint, whose work is part of the
//! cost.

use std::{path::Path, sync::Arc, time::Duration};

use bluetick_store::Store;

use crate::{
    StoreBenchOptions,
    drive::{DriveLimit, drive},
    meter::cpu_time,
    workload::Workload,
};

const LITTLE: u64 = 10_000;
const SENDS: u64 = 100_000;
const ROUNDS: usize = 7;
/// Few enough that each of them has a message when the store holds little.
const CONVERSATIONS: usize = 5_000;
const WRITERS: usize = 1024;

/// Microseconds for one message.
#[derive(Debug, Clone, Copy)]
struct GrowthCost {
    cpu: f64,
    wall: f64,
}

pub async fn run(dir: &Path, options: &StoreBenchOptions) -> Result<(), String> {
    let workload = Arc::new(Workload::new(CONVERSATIONS));
    let writers = options.writers.unwrap_or(WRITERS);
    let much = filled(&dir.join("much"), &workload, options.history).await?;
    let (mut costs_little, mut costs_much) = (Vec::new(), Vec::new());
    println!("{CONVERSATIONS} conversations, {writers} writers, rounds of {SENDS} sends; µs a message\n");
    println!("round   stored      cpu    wall      stored      cpu    wall");
    for round in 0..ROUNDS as u64 {
        let little_dir = dir.join("little");
        let little = filled(&little_dir, &workload, LITTLE).await?;
        let of_little = cost(&little, &workload, LITTLE, writers).await?;
        little.maintenance.close().await.map_err(|e| e.to_string())?;
        drop(little);
        std::fs::remove_dir_all(&little_dir).map_err(|e| e.to_string())?;

        let stored = options.history + round * SENDS;
        let of_much = cost(&much, &workload, stored, writers).await?;
        println!(
            "{:>5} {LITTLE:>8} {:>8.2} {:>7.2} {stored:>11} {:>8.2} {:>7.2}",
            round + 1,
            of_little.cpu,
            of_little.wall,
            of_much.cpu,
            of_much.wall
        );
        costs_little.push(of_little);
        costs_much.push(of_much);
    }
    much.maintenance.close().await.map_err(|e| e.to_string())?;
    for (name, of) in [("median", median as fn(&[f64]) -> f64), ("mean", mean)] {
        let [cpu_little, cpu_much] = [&costs_little, &costs_much].map(|costs| of(&each(costs, |c| c.cpu)));
        let [wall_little, wall_much] = [&costs_little, &costs_much].map(|costs| of(&each(costs, |c| c.wall)));
        println!(
            "{name}: cpu {cpu_little:.2} → {cpu_much:.2} µs, ratio {:.2}; wall {wall_little:.2} → {wall_much:.2} µs, \
             ratio {:.2}",
            cpu_much / cpu_little,
            wall_much / wall_little
        );
    }
    Ok(())
}

async fn filled(dir: &Path, workload: &Workload, messages: u64) -> Result<Store, String> {
    let store = crate::open(dir)?;
    workload.fill(&store, 0, messages).await?;
    store.maintenance.checkpoint().await.map_err(|e| e.to_string())?;
    // Merges that the fill left behind are its own cost, not that of the sends to come.
    let mut before = cpu_time();
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = cpu_time();
        if now - before < Duration::from_millis(10) {
            return Ok(store);
        }
        before = now;
    }
}

async fn cost(
    store: &Store,
    workload: &Arc<Workload>,
    stored: u64,
    writers: usize,
) -> Result<GrowthCost, String> {
    let bound = DriveLimit { messages: SENDS, time: Duration::from_secs(120) };
    let cpu_before = cpu_time();
    let (sending, sends) = (store.clone(), workload.clone());
    let measured = drive(writers, bound, move |n| {
        let (store, workload) = (sending.clone(), sends.clone());
        async move { workload.send(&store, stored + n).await.map(drop) }
    })
    .await?;
    store.maintenance.checkpoint().await.map_err(|e| e.to_string())?;
    let per_message = |spent: Duration| spent.as_secs_f64() * 1e6 / measured.messages.max(1) as f64;
    Ok(GrowthCost { cpu: per_message(cpu_time() - cpu_before), wall: per_message(measured.wall) })
}

fn each(costs: &[GrowthCost], part: impl Fn(&GrowthCost) -> f64) -> Vec<f64> {
    costs.iter().map(part).collect()
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
