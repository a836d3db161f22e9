//! The command line: what there is to say, and what becomes of it. A file a command.

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
/// Without a command it serves: an embedded store in ./bluetick-data, on 127.0.0.1:8080, with a demo page at /.
#[derive(Debug, Parser)]
#[command(name = "bluetick", version, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve; this is also what happens without a command
    Serve(serve::ServeArgs),
    /// Print a token for a user
    Token(token::TokenArgs),
    /// Chat in the terminal
    Chat(ChatArgs),
    /// Show the rows kept for a user
    Inspect(inspect::InspectArgs),
    /// Show what happened to a message
    Trace(trace::TraceArgs),
    /// Make keys for notifications, and see whether they arrive
    Push(push::PushArgs),
    /// Move old messages into objects, and look after those
    Cold(cold::ColdArgs),
    /// Count a user's unread messages anew
    Repair(repair::RepairArgs),
    /// Write out everything kept of a user, as JSON
    Export(export::ExportArgs),
    /// Lock a user out: refuse their tokens and end their sessions
    Revoke(revoke::RevokeArgs),
    /// Erase a user for good
    Erase(erase::EraseArgs),
    /// Copy all data of a running server into a file
    Backup(backup::BackupArgs),
    /// Make a data directory from a backup
    Restore(restore::RestoreArgs),
    /// Make and check the tables in DynamoDB
    #[cfg(feature = "cluster")]
    Tables(tables::TablesArgs),
    /// Make and check the tables in DynamoDB (not in this build)
    #[cfg(not(feature = "cluster"))]
    Tables(absent::AbsentArgs),
    /// Move a data directory into DynamoDB
    #[cfg(feature = "cluster")]
    Migrate(migrate::MigrateArgs),
    /// Move a data directory into DynamoDB (not in this build)
    #[cfg(not(feature = "cluster"))]
    Migrate(absent::AbsentArgs),
    /// Put load on a server, verify what it does and say how fast it is
    Bench(bench::BenchArgs),
    /// Ask a server whether it is ready
    Health(health::HealthArgs),
    /// Check configuration, data and server, and say what to do
    Doctor(doctor::DoctorArgs),
}

/// Talk to somebody through a server.
#[derive(Debug, Args)]
struct ChatArgs {
    /// Who you are
    #[arg(long = "as", value_name = "USER")]
    me: UserId,
    /// Whom to talk to
    #[arg(long, value_name = "USER")]
    to: UserId,
    /// Your token; without it one is made with the secret in the data directory
    #[arg(long, value_name = "TOKEN", env = "BLUETICK_TOKEN", hide_env_values = true)]
    token: Option<String>,
    #[command(flatten)]
    target: Target,
}

/// Why a command ends without success.
#[derive(Debug)]
pub enum Failure {
    /// The command was called wrongly: exit code 2, as for what clap finds.
    Usage(String),
    /// It was called rightly and could not be done.
    Failed(String),
    /// The same, and the output has said why.
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
        let outcome = match self.command.unwrap_or_else(|| Command::Serve(serve::ServeArgs::default())) {
            Command::Serve(args) => Box::pin(serve::run(args)).await,
            Command::Token(args) => token::run(args),
            Command::Chat(args) => Box::pin(start_chat(args)).await,
            Command::Inspect(args) => Box::pin(inspect::run(args)).await,
            Command::Trace(args) => Box::pin(trace::run(args)).await,
            Command::Push(args) => Box::pin(push::run(args)).await,
            Command::Cold(args) => Box::pin(cold::run(args)).await,
            Command::Repair(args) => Box::pin(repair::run(args)).await,
            Command::Export(args) => Box::pin(export::run(args)).await,
            Command::Revoke(args) => Box::pin(revoke::run(args)).await,
            Command::Erase(args) => Box::pin(erase::run(args)).await,
            Command::Backup(args) => Box::pin(backup::run(args)).await,
            Command::Restore(args) => restore::run(args),
            #[cfg(feature = "cluster")]
            Command::Tables(args) => Box::pin(tables::run(args)).await,
            #[cfg(not(feature = "cluster"))]
            Command::Tables(_) => absent::run("tables"),
            #[cfg(feature = "cluster")]
            Command::Migrate(args) => Box::pin(migrate::run(args)).await,
            #[cfg(not(feature = "cluster"))]
            Command::Migrate(_) => absent::run("migrate"),
            Command::Bench(args) => bench::run(args),
            Command::Health(args) => Box::pin(health::run(args)).await,
            Command::Doctor(args) => Box::pin(doctor::run(args)).await,
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
        return Err(Failure::Usage("one cannot write to oneself: give two different users".into()));
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
