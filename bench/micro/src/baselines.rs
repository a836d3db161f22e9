//! What each benchmark took when somebody last looked and agreed, and how much more it may take.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::counts::Counts;

/// A count may exceed its baseline by so much. Generous: the check is for what was not meant, not for a few instructions.
const MARGIN_PERCENT: u64 = 15;
const HOW_TO_ACCEPT: &str = "./scripts/bench-micro --accept, and commit bench/micro/baselines.json";

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Baselines {
    /// What built the counted code.
    pub rustc: String,
    pub instructions: Counts,
}

pub struct Report {
    pub table: String,
    pub remarks: Vec<String>,
    pub failed: bool,
}

impl Baselines {
    pub fn compare(&self, counts: &Counts, rustc: &str) -> Report {
        // Another compiler makes other instructions of the same code. That is no regression, and who updates the compiler
        // should not have to accept counts first: so it only warns, until somebody accepts those of the new one.
        let same_compiler = self.rustc == rustc;
        let mut table = row("benchmark", "instructions", "baseline", "difference");
        let (mut remarks, mut failed) = (Vec::new(), false);
        for (name, &count) in counts {
            let Some(&baseline) = self.instructions.get(name) else {
                table += &row(name, &grouped(count), "none", "");
                remarks.push(format!("{name} has no baseline"));
                failed = true;
                continue;
            };
            let difference = (count as f64 / baseline as f64 - 1.0) * 100.0;
            table += &row(name, &grouped(count), &grouped(baseline), &format!("{difference:+.1} %"));
            if count * 100 > baseline * (100 + MARGIN_PERCENT) {
                remarks.push(format!(
                    "{name} takes {difference:.1} % more instructions than its baseline; {MARGIN_PERCENT} % are allowed"
                ));
                failed |= same_compiler;
            } else if count * 100 < baseline * (100 - MARGIN_PERCENT) {
                remarks.push(format!(
                    "{name} takes {:.1} % fewer instructions than its baseline: accept it, so that it stays so",
                    -difference
                ));
            }
        }
        for name in self.instructions.keys().filter(|name| !counts.contains_key(*name)) {
            remarks.push(format!("{name} has a baseline and was not counted"));
            failed = true;
        }
        if !same_compiler && !self.rustc.is_empty() {
            remarks.push(format!(
                "the baselines are of {}, and this is {rustc}: too many instructions only warn",
                self.rustc
            ));
        }
        if !remarks.is_empty() {
            remarks.push(format!("to accept these counts: {HOW_TO_ACCEPT}"));
        }
        Report { table, remarks, failed }
    }
}

fn row(name: &str, count: &str, baseline: &str, difference: &str) -> String {
    let mut row = String::new();
    let _ = writeln!(row, "{name:<28}{count:>14}{baseline:>14}{difference:>13}");
    row
}

/// 1234567 as 1,234,567.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUSTC: &str = "rustc 1.95.0";

    /// One benchmark whose baseline is 1,000, counted anew.
    fn counted(count: u64, rustc: &str) -> Report {
        let instructions = Counts::from([("codec/a".into(), 1000)]);
        let baselines = Baselines { rustc: RUSTC.into(), instructions };
        baselines.compare(&Counts::from([("codec/a".into(), count)]), rustc)
    }

    #[test]
    fn the_margin_passes_and_one_more_fails() {
        for within in [1000, 1150, 850] {
            let report = counted(within, RUSTC);
            assert!(!report.failed && report.remarks.is_empty(), "{within}: {:?}", report.remarks);
        }
        let report = counted(1151, RUSTC);
        assert!(report.failed);
        assert!(
            report.remarks[0].contains("codec/a takes 15.1 % more") && report.remarks[1].contains("--accept")
        );
        assert!(report.table.contains("1,151") && report.table.contains("+15.1 %"), "{}", report.table);
    }

    #[test]
    fn much_better_passes_with_a_hint() {
        let report = counted(849, RUSTC);
        assert!(!report.failed);
        assert!(report.remarks[0].contains("15.1 % fewer") && report.remarks[1].contains("--accept"));
    }

    #[test]
    fn another_compiler_only_warns() {
        let report = counted(2000, "rustc 1.96.0");
        assert!(!report.failed);
        assert!(report.remarks[0].contains("codec/a"));
        assert!(report.remarks[1].contains("of rustc 1.95.0, and this is rustc 1.96.0"));
    }

    #[test]
    fn a_missing_baseline_fails_and_so_does_a_missing_benchmark() {
        let one = Counts::from([("codec/a".into(), 1000)]);
        let report = Baselines::default().compare(&one, RUSTC);
        assert!(report.failed && report.remarks[0].contains("codec/a has no baseline"));
        let report = Baselines { rustc: RUSTC.into(), instructions: one }.compare(&Counts::new(), RUSTC);
        assert!(report.failed && report.remarks[0].contains("codec/a has a baseline and was not counted"));
    }

    #[test]
    fn the_committed_file_reads_and_is_written_the_same() {
        let text = include_str!("../baselines.json");
        let baselines: Baselines = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string_pretty(&baselines).unwrap() + "\n", text);
    }

    #[test]
    fn numbers_have_groups_of_three() {
        assert_eq!([0, 999, 1000, 1234567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
