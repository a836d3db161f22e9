//! `bluetick export`: everything kept of a user, as JSON.

use std::path::PathBuf;

use bluetick_protocol::UserId;
use clap::Args;

use super::{Failure, Outcome, output, target::Target};

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Whose data
    #[arg(long, value_name = "USER")]
    user: UserId,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

pub async fn run(args: ExportArgs) -> Outcome {
    let answer = args.target.remote()?.get(&format!("users/{}/export", args.user)).await?;
    let text = std::str::from_utf8(&answer)
        .map_err(|_| Failure::Failed("the server's answer is not text; is it a bluetick server?".into()))?;
    let text = format!("{}\n", text.trim_end());
    let Some(name) = args.out else {
        return Ok(output::print(&text)?);
    };
    let mut file = output::WholeFile::create(&name)?;
    file.write(text.as_bytes())?;
    Ok(file.keep()?)
}
