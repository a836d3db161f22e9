//! The table: what each attack took, beside the bound.

use std::fmt;

use serde::Serialize;

use super::Bound;

#[derive(Debug, Serialize)]
pub struct Table {
    /// How long the bystander's sends take when nobody attacks.
    pub idle_send_p99_ms: f64,
    pub rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
pub struct Row {
    pub attack: &'static str,
    pub before: &'static str,
    pub seen: String,
    /// Null where the server's process cannot be looked at.
    pub memory_growth_bytes: Option<u64>,
    pub other_send_p99_ms: f64,
    /// Sends of the bystander that were refused or not answered.
    pub other_sends_failed: u64,
    pub bound: String,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Within,
    Over,
    NotMeasured,
}

impl Verdict {
    pub fn of(bound: &Bound, growth: Option<u64>, delay_ms: f64) -> Verdict {
        let kept = match bound {
            Bound::Memory { most_bytes } => growth.map(|growth| growth <= *most_bytes),
            Bound::Delay { most_ms } => Some(delay_ms <= *most_ms),
            Bound::Own { kept, .. } => Some(*kept),
            Bound::NotOffered => None,
        };
        match kept {
            None => Verdict::NotMeasured,
            Some(true) => Verdict::Within,
            Some(false) => Verdict::Over,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Within => "within the bound",
            Verdict::Over => "OVER THE BOUND",
            Verdict::NotMeasured => "not measured",
        })
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::Memory { most_bytes } => write!(f, "+{} MiB of memory", most_bytes >> 20),
            Bound::Delay { most_ms } => write!(f, "another's send within {most_ms} ms"),
            Bound::Own { text, .. } => f.write_str(text),
            Bound::NotOffered => f.write_str("-"),
        }
    }
}

impl Table {
    /// How many attacks exceeded their bound.
    pub fn over(&self) -> usize {
        self.rows.iter().filter(|row| row.verdict == Verdict::Over).count()
    }

    pub fn to_text(&self) -> String {
        let columns = [
            "attack",
            "before there was a bound",
            "now",
            "memory",
            "another's send, p99",
            "bound",
            "verdict",
        ];
        let rows: Vec<_> = self.rows.iter().map(Row::cells).collect();
        let idle = self.idle_send_p99_ms;
        format!(
            "{}\nwithout an attack, a send of the other user takes {idle:.1} ms (p99)\n",
            align(&columns.map(str::to_owned), &rows)
        )
    }

    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

impl Row {
    fn cells(&self) -> [String; 7] {
        let memory = match self.memory_growth_bytes {
            Some(bytes) => format!("+{} MiB", bytes.div_ceil(1 << 20)),
            None => "-".into(),
        };
        let delay = match self.other_sends_failed {
            0 => format!("{:.1} ms", self.other_send_p99_ms),
            failed => format!("{:.1} ms, {failed} failed", self.other_send_p99_ms),
        };
        [
            self.attack.to_owned(),
            self.before.to_owned(),
            self.seen.clone(),
            memory,
            delay,
            self.bound.clone(),
            self.verdict.to_string(),
        ]
    }
}

/// Lines under their column names, each column as wide as its longest cell.
fn align(columns: &[String; 7], rows: &[[String; 7]]) -> String {
    let lines = || std::iter::once(columns).chain(rows);
    let widths: [usize; 7] =
        std::array::from_fn(|at| lines().map(|line| line[at].chars().count()).max().unwrap_or(0));
    let mut text = String::new();
    for line in lines() {
        let padded: Vec<String> =
            line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_needs_a_measurement() {
        let memory = Bound::Memory { most_bytes: 10 };
        assert_eq!(Verdict::of(&memory, None, 0.0), Verdict::NotMeasured);
        assert_eq!(Verdict::of(&memory, Some(10), 0.0), Verdict::Within);
        assert_eq!(Verdict::of(&memory, Some(11), 0.0), Verdict::Over);
        let delay = Bound::Delay { most_ms: 100.0 };
        assert_eq!(Verdict::of(&delay, None, 100.1), Verdict::Over);
        assert_eq!(Verdict::of(&Bound::NotOffered, Some(0), 0.0), Verdict::NotMeasured);
    }
}
