//! `bluetick-bench`, which `bluetick bench` starts.

use std::process::ExitCode;

use bluetick_bench::{BenchCommand, Failure};
use clap::Parser;

fn main() -> ExitCode {
    let command = BenchCommand::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            eprintln!(
                "bluetick bench: cannot start threads: {e}; check the limits on processes and open files"
            );
            return ExitCode::FAILURE;
        }
    };
    let (text, failure) = runtime.block_on(command.run());
    // A reader that has gone, as `head` does, has seen enough.
    let _ = std::io::Write::write_all(&mut std::io::stdout().lock(), text.as_bytes());
    match failure {
        None => ExitCode::SUCCESS,
        Some(Failure::Failed(why)) => {
            eprintln!("bluetick bench: {why}");
            ExitCode::FAILURE
        }
        Some(Failure::Usage(why)) => {
            eprintln!("bluetick bench: {why}");
            ExitCode::from(2)
        }
    }
}
