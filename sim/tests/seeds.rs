//! The promise of delivery holds over a fixed set of seeds, and the simulator finds every breach of
//! a rule.

use bluetick_sim::{Breach, RunsReport, run, run_many};

/// Every breach must show within this many seeds.
const FOUND_WITHIN: u64 = 5_000;
const FIXED: u64 = 20_000;

fn told(report: &RunsReport) -> String {
    let lines = report.broken.iter().map(|run| format!("seed {}: {}", run.seed, run.violations.join("; ")));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_promise_is_kept_over_fixed_seeds() {
    let report = run_many(0..FIXED, &[], false, |_| {});
    println!(
        "{} runs ({} with a reconnect), {} messages, {} faults: {}",
        report.runs,
        report.excused,
        report.messages,
        report.faults.total(),
        report.faults
    );
    assert!(report.broken.is_empty(), "{}", told(&report));
    assert_eq!(report.runs, FIXED);
    // Runs that need a reconnect after the crash of an app server happen and are rare.
    assert!((1..FIXED / 100).contains(&report.excused), "{} runs needed a reconnect", report.excused);
    // Enough must have happened for this to mean anything.
    assert!(report.messages > 10 * FIXED);
    for (kind, count) in report.faults.each() {
        assert!(count > FIXED / 10, "only {count} {kind}");
    }
}

/// Each of these once left a pending row behind.
#[test]
fn seeds_that_left_a_row_are_clean() {
    for seed in [5_051_102, 7_375_244, 20_078_866, 21_190_324] {
        let outcome = run(seed, &[], false);
        assert!(outcome.violations.is_empty(), "seed {seed}: {}", outcome.violations.join("; "));
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in (0..200).step_by(7) {
        let (first, second) = (run(seed, &[], true), run(seed, &[], true));
        assert!(first.trace.len() > 10, "a run of which nothing is told");
        assert!(first.trace == second.trace, "seed {seed} went two ways");
        assert_eq!(first.faults, second.faults);
        let quiet = run(seed, &[], false);
        assert_eq!(
            (quiet.messages, quiet.faults),
            (first.messages, first.faults),
            "being watched changes nothing"
        );
    }
    assert!(run(1, &[], true).trace != run(2, &[], true).trace, "another seed is another run");
}

fn is_missed(rule: Breach) {
    let report = run_many(0..FOUND_WITHIN, &[rule], true, |_| {});
    let Some(first) = report.broken.first() else {
        panic!("{FOUND_WITHIN} seeds without {rule:?} and nothing broke");
    };
    println!("without {rule:?}, seed {}: {}", first.seed, first.violations.join("; "));
    let with = run(first.seed, &[], false);
    assert!(with.violations.is_empty(), "seed {} breaks with {rule:?} as well", first.seed);
}

#[test]
fn a_session_that_reads_before_it_registers_is_found() {
    is_missed(Breach::R1);
}

#[test]
fn a_sender_that_does_not_look_again_is_found() {
    is_missed(Breach::R2);
}

#[test]
fn a_row_that_does_not_keep_the_minimum_is_found() {
    is_missed(Breach::R3);
}

#[test]
fn a_removed_row_that_is_not_read_past_is_found() {
    is_missed(Breach::R4);
}

#[test]
fn a_closing_session_that_pays_no_debts_is_found() {
    is_missed(Breach::R5);
}

#[test]
fn a_cursor_that_is_not_looked_at_is_found() {
    is_missed(Breach::R6);
}

#[test]
fn what_no_device_has_acked_is_missed_by_one_without_a_cursor() {
    is_missed(Breach::R6Undelivered);
}

#[test]
fn seqs_without_a_fence_are_found() {
    is_missed(Breach::R8);
}

#[test]
fn sends_that_are_not_remembered_are_found() {
    is_missed(Breach::R9);
}

#[test]
fn a_stale_or_lost_entry_that_is_not_noticed_is_found() {
    is_missed(Breach::R12);
}
