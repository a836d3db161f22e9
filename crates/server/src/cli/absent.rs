//! Commands that this build is without: they say what to do, whatever else is said to them.

use clap::Args;

use super::{Failure, Outcome};

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct AbsentArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _said: Vec<String>,
}

pub fn run(command: &str) -> Outcome {
    Err(Failure::Failed(format!(
        "`bluetick {command}` needs a build with the backends for many machines, and this one is without; build it \
         with `cargo build --release --features cluster`"
    )))
}
