//! Compares the instructions that `scripts/bench-micro` counted with those of the last accepted run.
//!
//! ```text
//! bluetick-micro BASELINES RUSTC [--accept] < OUTPUT     what gungraun printed as JSON, a line a benchmark
//! ```

mod baselines;
mod counts;

use std::{error::Error, io::Read, path::Path, process::ExitCode};

use baselines::Baselines;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench-micro: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether nothing takes more instructions than it may.
fn run() -> Result<bool, Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (file, rustc, accept) = match args.as_slice() {
        [file, rustc] => (Path::new(file), rustc, false),
        [file, rustc, flag] if flag == "--accept" => (Path::new(file), rustc, true),
        _ => return Err("usage: bluetick-micro BASELINES RUSTC [--accept] < OUTPUT".into()),
    };
    let mut output = String::new();
    std::io::stdin().read_to_string(&mut output)?;
    let counts = counts::read(&output)?;
    let accepted = match file.exists() {
        true => serde_json::from_str(&std::fs::read_to_string(file)?)?,
        false => Baselines::default(),
    };
    let report = accepted.compare(&counts, rustc);
    print!("{}", report.table);
    if accept {
        let new = Baselines { rustc: rustc.clone(), instructions: counts };
        std::fs::write(file, serde_json::to_string_pretty(&new)? + "\n")?;
        println!("accepted: these are the baselines now, in {}", file.display());
        return Ok(true);
    }
    report.remarks.iter().for_each(|remark| println!("{remark}"));
    Ok(!report.failed)
}
