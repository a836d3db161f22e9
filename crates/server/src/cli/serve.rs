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
    /// Data directory [default: ./bluetick-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Address and port [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Configuration file
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
        // The address is written last, so that a program that waits for it reads the key of this
        // start.
        match &info.demo_key {
            Some(key) => write_private("the demo key", &demo_key, key),
            None => drop(std::fs::remove_file(&demo_key)),
        }
        // Commands find the server through its data directory.
        write_private("the server's address", &address, &info.url);
        let said = match log::is_json() {
            true => log::json_line("INFO", "listening", info.fields()),
            false => info.to_string(),
        };
        // A closed standard output must not stop the server.
        let _ = output::print(&format!("{said}\n"));
    });
    let ended = Box::pin(served).await;
    if ended.is_ok() {
        // After a crash they stay, which is harmless: no server answers at that address, and the
        // next start has another key.
        let _ = std::fs::remove_file(&address);
        let _ = std::fs::remove_file(&demo_key);
    }
    ended.map_err(failed)
}

/// Writes a file for other programs of the same user.
fn write_private(what: &str, path: &Path, text: &str) {
    if let Err(error) = permissions::write_private(path, text) {
        tracing::warn!(%error, path = %path.display(), "cannot write {what}");
    }
}

/// Logs the failure here, so that it is JSON if the log is.
fn failed(why: impl std::fmt::Display) -> Failure {
    log::say_failure(&why.to_string());
    Failure::Told
}
