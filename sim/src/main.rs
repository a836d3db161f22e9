//! `cargo run --release --manifest-path sim/Cargo.toml -- --seeds N [--start S] [--without RULE]
//! [--keep-going]`
//!
//! `--record-client-script SEED` prints the script of a device for `clients/conformance`;
//! `--write-client-scripts FOLDER` writes those that belong to the kit.

use std::{path::PathBuf, process::ExitCode};

use bluetick_sim::{
    Breach, RunOutcome, RunsReport, record_client_script, run, run_many, write_client_scripts,
};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

/// Runs the delivery rules against faults, a seed at a time, and checks what every device saw.
#[derive(Parser)]
struct SimArguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    start: u64,
    /// Break a rule, to check that the breach is found: R1, R2, R3, R4, R5, R6, R6Undelivered, R8,
    /// R9 or R12.
    #[arg(long, value_parser = breach)]
    without: Vec<Breach>,
    /// Do not stop at the first violation.
    #[arg(long)]
    keep_going: bool,
    /// Run only the first seed and print its trace.
    #[arg(long)]
    trace: bool,
    /// Print what one device did in this seed, as a script of the clients' conformance kit.
    #[arg(long, value_name = "SEED")]
    record_client_script: Option<u64>,
    /// Write the generated scripts of the conformance kit into this folder.
    #[arg(long, value_name = "FOLDER")]
    write_client_scripts: Option<PathBuf>,
}

fn breach(name: &str) -> Result<Breach, String> {
    let known = || Breach::ALL.map(|breach| format!("{breach:?}")).join(", ");
    let found = Breach::ALL.into_iter().find(|breach| format!("{breach:?}").eq_ignore_ascii_case(name));
    found.ok_or_else(|| format!("no rule {name:?} can be broken; use one of {}", known()))
}

fn main() -> ExitCode {
    let arguments = SimArguments::parse();
    if let Some(seed) = arguments.record_client_script {
        print!("{}", record_client_script(seed));
        return ExitCode::SUCCESS;
    }
    if let Some(folder) = arguments.write_client_scripts {
        return match write_client_scripts(&folder) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("cannot write to {}: {e}", folder.display());
                ExitCode::FAILURE
            }
        };
    }
    if arguments.trace {
        let outcome = run(arguments.start, &arguments.without, true);
        return tell(&outcome);
    }
    let bar = ProgressBar::new(arguments.seeds);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {per_sec}, {eta} left") {
        bar.set_style(style);
    }
    let seeds = arguments.start..arguments.start.saturating_add(arguments.seeds);
    let report = run_many(seeds, &arguments.without, !arguments.keep_going, |_| bar.inc(1));
    bar.finish_and_clear();
    let RunsReport { runs, messages, faults, excused, broken } = &report;
    println!(
        "{runs} runs, {messages} messages, {} faults injected, {} violations",
        faults.total(),
        broken.len()
    );
    println!("faults: {faults}");
    println!("{excused} runs needed a reconnect, because notices were lost with an app server");
    for outcome in broken {
        println!("seed {}: {}", outcome.seed, outcome.violations.join("; "));
    }
    match broken.first() {
        None => ExitCode::SUCCESS,
        Some(first) => {
            println!("\nthe trace of seed {}:", first.seed);
            tell(&run(first.seed, &arguments.without, true))
        }
    }
}

fn tell(outcome: &RunOutcome) -> ExitCode {
    for line in &outcome.trace {
        println!("{line}");
    }
    for violation in &outcome.violations {
        println!("seed {}: {violation}", outcome.seed);
    }
    ExitCode::from(u8::from(!outcome.violations.is_empty()))
}
