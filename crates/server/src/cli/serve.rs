//! `bluetick serve`, and `bluetick` alone.

use std::path::PathBuf;

use clap::Args;

use super::{Failure, Outcome, output, target};
use crate::{
    config::{self, Config, Overrides},
    serve,
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
    /// Print the default configuration, commented, and leave
    #[arg(long)]
    print_config: bool,
}

pub async fn run(args: ServeArgs) -> Outcome {
    if args.print_config {
        return Ok(output::print(config::DEFAULTS)?);
    }
    let overrides = Overrides { data: args.data, listen: args.listen };
    let failed = |e: &dyn std::fmt::Display| Failure::Failed(e.to_string());
    let config = Config::load(args.config.as_deref(), overrides).map_err(|e| failed(&e))?;
    serve::init_logging(&config.log).map_err(|e| failed(&e))?;
    let address = target::address_file(&config);
    let served = serve::serve(config, |info| {
        // Whoever names the data directory finds the server by it; without it they have to name the address too.
        if let Err(error) = std::fs::write(&address, &info.url) {
            tracing::warn!(%error, path = %address.display(), "cannot write down the server's address");
        }
        // A server whose standard output is closed serves all the same.
        let _ = output::print(&format!("{info}\n"));
    });
    let ended = served.await;
    if ended.is_ok() {
        // Left behind by a crash it does no harm: who asks there finds nobody.
        let _ = std::fs::remove_file(&address);
    }
    ended.map_err(|e| failed(&e))
}
