//! `bluetick bench`: starts the load generator, a program of its own beside this one.

use std::{ffi::OsString, path::PathBuf, process::Command};

use clap::Args;

use super::{Failure, Outcome};

const PROGRAM: &str = "bluetick-bench";

/// Everything is passed on to `bluetick-bench`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct BenchArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    args: Vec<OsString>,
}

pub fn run(given: BenchArgs) -> Outcome {
    let program = beside_this_one().unwrap_or_else(|| PROGRAM.into());
    match Command::new(&program).args(given.args).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) if status.code() == Some(2) => Err(Failure::Usage("see `bluetick bench --help`".into())),
        Ok(_) => Err(Failure::Told),
        Err(e) => Err(Failure::Failed(format!(
            "the load generator {PROGRAM} is not installed beside bluetick ({e}); \
             build it with `cargo build --release -p {PROGRAM}`"
        ))),
    }
}

fn beside_this_one() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.with_file_name(PROGRAM);
    program.exists().then_some(program)
}
