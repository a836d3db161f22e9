//! `bluetick serve`, and `bluetick` alone.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{Failure, Outcome, output, target};
use crate::{
    config::{Config, Overrides, PrintedSettings},
    log, permissions, serve,
};

#[derive(Debug, Default, Args)]
pub struct ServeArgs {
    /// The data directory [default: ./bluetick-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Address and port [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the commented default configuration and exit; `=all` adds the advanced settings
    #[arg(
        long,
        value_enum,
        value_name = "WHICH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "common"
    )]
    print_config: Option<PrintedSettings>,
}

pub async fn run(args: ServeArgs) -> Outcome {
    if let Some(printed) = args.print_config {
        return Ok(output::print(&printed.text())?);
    }
    let overrides = Overrides { data: args.data, listen: args.listen };
    let config = match Config::load(args.config.as_deref(), overrides) {
        Ok(config) => config,
        Err(error) => {
            log::guess_format(args.config.as_deref());
            return Err(failed(error));
        }
    };
    log::init(&config.log).map_err(|why| failed(format!("log.filter is not understood: {why}")))?;
    let (address, demo_key) = (target::address_file(&config), target::demo_key_file(&config));
    let served = serve::serve(config, |info| {
        // The address comes last: who waits for it finds the key of this start, and not of the one before.
        match &info.demo_key {
            Some(key) => write_down("the demo key", &demo_key, key),
            None => drop(std::fs::remove_file(&demo_key)),
        }
        // Whoever names the data directory finds the server by it; without it they have to name the address too.
        write_down("the server's address", &address, &info.url);
        let said = match log::is_json() {
            true => log::json_line("INFO", "listening", info.fields()),
            false => info.to_string(),
        };
        // A server whose standard output is closed serves all the same.
        let _ = output::print(&format!("{said}\n"));
    });
    let ended = Box::pin(served).await;
    if ended.is_ok() {
        // Left behind by a crash they do no harm: who asks there finds nobody, and the next start has another key.
        let _ = std::fs::remove_file(&address);
        let _ = std::fs::remove_file(&demo_key);
    }
    ended.map_err(failed)
}

fn write_down(what: &str, path: &Path, text: &str) {
    if let Err(error) = permissions::write_private(path, text) {
        tracing::warn!(%error, path = %path.display(), "cannot write down {what}");
    }
}

/// Tells the failure here: it is JSON where the log is.
fn failed(why: impl std::fmt::Display) -> Failure {
    log::say_failure(&why.to_string());
    Failure::Told
}
