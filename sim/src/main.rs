//! `cargo run --release --manifest-path sim/Cargo.toml -- --seeds N [--start S] [--without RULE] [--keep-going]`
//!
//! `--record-client-script SEED` prints the script of a device for `clients/conformance`;
//! `--write-client-scripts FOLDER` writes those that belong to the kit.

use std::{path::PathBuf, process::ExitCode};

use bluetick_sim::{Outcome, Report, Rule, record_client_script, run, run_many, write_client_scripts};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

/// Runs the delivery rules against faults, a seed at a time, and checks what every device saw.
#[derive(Parser)]
struct Arguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    start: u64,
    /// Switch a rule off, to see that its absence is found: R1, R2, R3, R4, R5, R6, R6Undelivered, R8, R9 or R12.
    #[arg(long, value_parser = rule)]
    without: Vec<Rule>,
    /// Run all seeds, whatever the first violation.
    #[arg(long)]
    keep_going: bool,
    /// Print the whole trace of the first seed, violation or not.
    #[arg(long)]
    trace: bool,
    /// Print what one device did in this seed, as a script of the clients' conformance kit.
    #[arg(long, value_name = "SEED")]
    record_client_script: Option<u64>,
    /// Write the generated scripts of the conformance kit into this folder.
    #[arg(long, value_name = "FOLDER")]
    write_client_scripts: Option<PathBuf>,
}

fn rule(name: &str) -> Result<Rule, String> {
    let known = || Rule::ALL.map(|rule| format!("{rule:?}")).join(", ");
    let found = Rule::ALL.into_iter().find(|rule| format!("{rule:?}").eq_ignore_ascii_case(name));
    found.ok_or_else(|| format!("no rule {name:?} can be switched off; one of {}", known()))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
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
    let Report { runs, messages, faults, excused, broken } = &report;
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

fn tell(outcome: &Outcome) -> ExitCode {
    for line in &outcome.trace {
        println!("{line}");
    }
    for violation in &outcome.violations {
        println!("seed {}: {violation}", outcome.seed);
    }
    ExitCode::from(u8::from(!outcome.violations.is_empty()))
}
