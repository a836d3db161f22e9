//! `bluetick revoke`: locks a user out.

use bluetick_protocol::UserId;
use clap::Args;
use serde_json::Value;

use super::{Failure, Outcome, output, remote::segment, target::Target};

#[derive(Debug, Args)]
pub struct RevokeArgs {
    /// Whom to lock out
    #[arg(long, value_name = "USER")]
    user: UserId,
    #[command(flatten)]
    target: Target,
}

pub async fn run(args: RevokeArgs) -> Outcome {
    let user = &args.user;
    let answer = args.target.remote()?.post(&format!("users/{}/revoke", segment(user.as_str()))).await?;
    let revoked: Value = serde_json::from_slice(&answer)
        .map_err(|e| Failure::Failed(format!("the server's answer is not a report: {e}")))?;
    let count = |what: &str| revoked[what].as_u64().unwrap_or_default();
    Ok(output::print(&format!(
        "revoked {user}: tokens issued before {} are refused, sessions ended {}, devices no longer notified {}\n",
        count("not_before"),
        count("sessions"),
        count("devices"),
    ))?)
}
