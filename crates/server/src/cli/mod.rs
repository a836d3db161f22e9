//! The command line: one file per command.

#[cfg(not(feature = "cluster"))]
mod absent;
mod backup;
mod bench;
mod chat;
mod cold;
mod doctor;
mod erase;
mod export;
mod health;
mod inspect;
#[cfg(feature = "cluster")]
mod migrate;
mod output;
mod progress;
mod push;
mod remote;
mod repair;
mod restore;
mod revoke;
mod serve;
mod table;
#[cfg(feature = "cluster")]
mod tables;
mod target;
mod token;
mod trace;
mod trust;

use std::process::ExitCode;

use bluetick_protocol::UserId;
use clap::{Args, Parser, Subcommand};

use target::Target;

/// Self-hosted 1:1 messaging with delivery guarantees.
///
/// Without a command it starts a server on 127.0.0.1:8080, with an embedded store in
/// ./bluetick-data and a demo at /.
#[derive(Debug, Parser)]
#[command(name = "bluetick", version, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<CliCommand>,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Start a server (the default)
    Serve(serve::ServeArgs),
    /// Print a token for a user
    Token(token::TokenArgs),
    /// Chat in the terminal
    Chat(ChatArgs),
    /// Show the stored rows of a user
    Inspect(inspect::InspectArgs),
    /// Show what happened to a message
    Trace(trace::TraceArgs),
    /// Generate push keys, and send test notifications
    Push(push::PushArgs),
    /// Move old messages to the object store, and verify them
    Cold(cold::ColdArgs),
    /// Recount a user's unread messages
    Repair(repair::RepairArgs),
    /// Export all data of a user as JSON
    Export(export::ExportArgs),
    /// Revoke a user's tokens and end their sessions
    Revoke(revoke::RevokeArgs),
    /// Erase all data of a user
    Erase(erase::EraseArgs),
    /// Back up a running server to a file
    Backup(backup::BackupArgs),
    /// Restore a backup to a new data directory
    Restore(restore::RestoreArgs),
    /// Create and check the tables in DynamoDB
    #[cfg(feature = "cluster")]
    Tables(tables::TablesArgs),
    /// Create and check the tables in DynamoDB (not in this build)
    #[cfg(not(feature = "cluster"))]
    Tables(absent::AbsentArgs),
    /// Move a data directory into DynamoDB
    #[cfg(feature = "cluster")]
    Migrate(migrate::MigrateArgs),
    /// Move a data directory into DynamoDB (not in this build)
    #[cfg(not(feature = "cluster"))]
    Migrate(absent::AbsentArgs),
    /// Put load on a server, verify the results and report its speed
    Bench(bench::BenchArgs),
    /// Check whether a server is ready
    Health(health::HealthArgs),
    /// Check configuration, data and server, and suggest fixes
    Doctor(doctor::DoctorArgs),
}

/// Chat with another user.
#[derive(Debug, Args)]
struct ChatArgs {
    /// Your user id
    #[arg(long = "as", value_name = "USER")]
    me: UserId,
    /// The other user's id
    #[arg(long, value_name = "USER")]
    to: UserId,
    /// Your token; without it, one is signed with the secret in the data directory
    #[arg(long, value_name = "TOKEN", env = "BLUETICK_TOKEN", hide_env_values = true)]
    token: Option<String>,
    #[command(flatten)]
    target: Target,
}

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// Wrong arguments: exit code 2, as for errors that clap finds.
    Usage(String),
    /// The command could not be carried out: exit code 1.
    Failed(String),
    /// Exit code 1, and the reason is already printed.
    Told,
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Failure::Failed(why)
    }
}

pub type Outcome<T = ()> = Result<T, Failure>;

impl Cli {
    pub async fn run(self) -> ExitCode {
        let outcome = match self.command.unwrap_or_else(|| CliCommand::Serve(serve::ServeArgs::default())) {
            CliCommand::Serve(args) => Box::pin(serve::run(args)).await,
            CliCommand::Token(args) => token::run(args),
            CliCommand::Chat(args) => Box::pin(start_chat(args)).await,
            CliCommand::Inspect(args) => Box::pin(inspect::run(args)).await,
            CliCommand::Trace(args) => Box::pin(trace::run(args)).await,
            CliCommand::Push(args) => Box::pin(push::run(args)).await,
            CliCommand::Cold(args) => Box::pin(cold::run(args)).await,
            CliCommand::Repair(args) => Box::pin(repair::run(args)).await,
            CliCommand::Export(args) => Box::pin(export::run(args)).await,
            CliCommand::Revoke(args) => Box::pin(revoke::run(args)).await,
            CliCommand::Erase(args) => Box::pin(erase::run(args)).await,
            CliCommand::Backup(args) => Box::pin(backup::run(args)).await,
            CliCommand::Restore(args) => restore::run(args),
            #[cfg(feature = "cluster")]
            CliCommand::Tables(args) => Box::pin(tables::run(args)).await,
            #[cfg(not(feature = "cluster"))]
            CliCommand::Tables(_) => absent::run("tables"),
            #[cfg(feature = "cluster")]
            CliCommand::Migrate(args) => Box::pin(migrate::run(args)).await,
            #[cfg(not(feature = "cluster"))]
            CliCommand::Migrate(_) => absent::run("migrate"),
            CliCommand::Bench(args) => bench::run(args),
            CliCommand::Health(args) => Box::pin(health::run(args)).await,
            CliCommand::Doctor(args) => Box::pin(doctor::run(args)).await,
        };
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(Failure::Told) => ExitCode::FAILURE,
            Err(Failure::Failed(why)) => {
                eprintln!("bluetick: {why}");
                ExitCode::FAILURE
            }
            Err(Failure::Usage(why)) => {
                eprintln!("bluetick: {why}");
                ExitCode::from(2)
            }
        }
    }
}

async fn start_chat(args: ChatArgs) -> Outcome {
    if args.me == args.to {
        return Err(Failure::Usage("you cannot chat with yourself: give two different users".into()));
    }
    let place = args.target.resolve()?;
    let token = match args.token {
        Some(token) => token,
        None => token::mint_for_chat(&place, &args.me)?,
    };
    let url = place.websocket_url();
    let tls = place.trust.websocket(&url)?;
    let options = chat::ChatOptions { me: args.me, to: args.to, url, token, tls };
    Ok(chat::run(options).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn nothing_said_means_serve() {
        assert!(Cli::try_parse_from(["bluetick"]).unwrap().command.is_none());
    }

    #[cfg(not(feature = "cluster"))]
    #[test]
    fn what_this_build_is_without_is_said() {
        for said in
            [vec!["tables", "create", "--tag", "a=b"], vec!["migrate", "--from", "embedded:d", "--help"]]
        {
            let cli = Cli::try_parse_from([&["bluetick"], said.as_slice()].concat());
            assert!(cli.is_ok(), "{said:?}: {cli:?}");
        }
        let Err(Failure::Failed(why)) = absent::run("migrate") else { panic!("it is done") };
        assert!(why.contains("--features cluster"), "{why}");
    }

    #[test]
    fn a_test_of_notifications_names_a_user_and_keys_need_none() {
        for good in [vec!["push", "test", "--user", "bob"], vec!["push", "keys", "--out", "vapid.pem"]] {
            assert!(Cli::try_parse_from([&["bluetick"], good.as_slice()].concat()).is_ok(), "{good:?}");
        }
        for bad in [vec!["push"], vec!["push", "test"], vec!["push", "keys", "--user", "bob"]] {
            let error = Cli::try_parse_from([&["bluetick"], bad.as_slice()].concat()).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{bad:?}");
        }
    }

    #[test]
    fn a_wrong_id_is_a_wrong_call() {
        let wrong = Cli::try_parse_from(["bluetick", "token", "--user", "a b"]).unwrap_err();
        assert_eq!(wrong.exit_code(), 2);
    }
}
