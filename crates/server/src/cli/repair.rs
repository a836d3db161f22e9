//! `bluetick repair`: counts a user's unread messages anew (R11).

use bluetick_protocol::UserId;
use clap::Args;
use serde_json::Value;

use super::{Failure, Outcome, output, remote::segment, table, target::Target};

#[derive(Debug, Args)]
pub struct RepairArgs {
    /// Whose inbox
    #[arg(long, value_name = "USER")]
    user: UserId,
    #[command(flatten)]
    target: Target,
}

pub async fn run(args: RepairArgs) -> Outcome {
    let answer = args.target.remote()?.post(&format!("users/{}/repair", segment(args.user.as_str()))).await?;
    let report: Value = serde_json::from_slice(&answer)
        .map_err(|e| Failure::Failed(format!("the server's answer is not a report: {e}")))?;
    Ok(output::print(&render(&report))?)
}

/// Only what was wrong is worth a line.
fn render(report: &Value) -> String {
    let all = report["conversations"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mended: Vec<Vec<Value>> = all
        .iter()
        .filter(|row| row["before"] != row["after"])
        .map(|row| ["conversation_id", "before", "after"].iter().map(|&column| row[column].clone()).collect())
        .collect();
    let summary = format!("conversations counted: {}, mended: {}\n", all.len(), mended.len());
    if mended.is_empty() {
        return summary;
    }
    let table = table::render(&["conversation_id", "unread before", "unread now"], &mended);
    format!("{table}{summary}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_was_wrong_is_listed() {
        let report = json!({"conversations": [
            {"conversation_id": "a~b", "before": 2, "after": 2},
            {"conversation_id": "a~c", "before": 5, "after": 1},
        ]});
        let text = render(&report);
        assert!(text.contains("a~c") && !text.contains("a~b"));
        assert!(text.ends_with("conversations counted: 2, mended: 1\n"));
    }
}
