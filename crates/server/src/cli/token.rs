//! `bluetick token`: signs a token with the server's secret. It needs no running server.

use std::{path::PathBuf, time::Duration};

use bluetick_protocol::UserId;
use clap::Args;

use super::{Failure, Outcome, output, target::ResolvedTarget};
use crate::{
    auth,
    config::{Config, Overrides},
};

const HOUR: Duration = Duration::from_secs(3600);
const DEFAULT_TTL_HOURS: u32 = 24;

#[derive(Debug, Args)]
pub struct TokenArgs {
    /// Whom it names
    #[arg(long, value_name = "USER")]
    user: UserId,
    /// The data directory
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How long it is good for
    #[arg(long, value_name = "HOURS", default_value_t = DEFAULT_TTL_HOURS, value_parser = clap::value_parser!(u32).range(1..=876_000))]
    ttl_hours: u32,
}

pub fn run(args: TokenArgs) -> Outcome {
    let overrides = Overrides { data: args.data, listen: None };
    let config =
        Config::load(args.config.as_deref(), overrides).map_err(|e| Failure::Failed(e.to_string()))?;
    let token = mint(&config, &args.user, HOUR * args.ttl_hours)?;
    Ok(output::print(&format!("{token}\n"))?)
}

/// A token for the terminal client. Unlike `bluetick token` it never creates a secret: the server
/// that verifies the token is running and has one.
pub fn mint_for_chat(place: &ResolvedTarget, user: &UserId) -> Outcome<String> {
    let config = &place.config;
    if !config.auth.is_configured() && !config.jwt_secret_path().exists() {
        return Err(Failure::Failed(format!(
            "no token: there is no secret in {}; give --data with the server's data directory, or to `bluetick chat` a --token",
            config.server.data_dir.display()
        )));
    }
    mint(config, user, HOUR * DEFAULT_TTL_HOURS)
}

fn mint(config: &Config, user: &UserId, ttl: Duration) -> Outcome<String> {
    let failed = |e: auth::AuthError| Failure::Failed(e.to_string());
    let secret = auth::signing_secret(config).map_err(failed)?;
    let (audience, issuer) = (config.auth.audience.as_deref(), config.auth.issuer.as_deref());
    auth::mint_for(&secret, user, ttl, audience, issuer).map_err(failed)
}
