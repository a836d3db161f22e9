//! `bluetick erase`: a user's data, gone for good.

use bluetick_protocol::UserId;
use clap::Args;
use serde_json::Value;

use super::{Failure, Outcome, output, remote::segment, target::Target};

#[derive(Debug, Args)]
pub struct EraseArgs {
    /// Whom to erase
    #[arg(long, value_name = "USER")]
    user: UserId,
    /// Yes, for good
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    target: Target,
}

pub async fn run(args: EraseArgs) -> Outcome {
    let user = &args.user;
    if !args.yes {
        return Err(Failure::Usage(format!(
            "erasing {user} cannot be undone; export first if in doubt, then repeat with --yes"
        )));
    }
    let answer = args.target.remote()?.post(&format!("users/{}/erase", segment(user.as_str()))).await?;
    let erased: Value = serde_json::from_slice(&answer)
        .map_err(|e| Failure::Failed(format!("the server's answer is not a report: {e}")))?;
    let count = |what: &str| erased[what].as_u64().unwrap_or_default();
    let (messages, conversations) = (count("messages"), count("conversations"));
    Ok(output::print(&format!("erased {user}: messages {messages}, conversations {conversations}\n"))?)
}
