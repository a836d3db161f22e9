//! `bluetick tables`: creates the tables in DynamoDB, and checks existing ones.

use std::{fmt::Write as _, path::PathBuf};

use bluetick_store::dynamo::{
    Billing, CreateOptions, Dynamo, Finding, Probed, Table, check_tables, create_tables, probe_operations,
};
use clap::{Args, Subcommand};

use super::{Failure, Outcome, output};
use crate::config::{Config, Overrides};

#[derive(Debug, Args)]
pub struct TablesArgs {
    #[command(subcommand)]
    command: TablesCommand,
}

#[derive(Debug, Subcommand)]
enum TablesCommand {
    /// Make the tables that are missing, and switch on their TTL and recovery
    Create(CreateArgs),
    /// Say of every table whether it is as a server needs it
    Check(CheckArgs),
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// Capacity of each table, instead of paying for each request
    #[arg(long, value_name = "READ,WRITE", value_parser = provisioned)]
    provisioned: Option<Billing>,
    /// A tag for each table; may be given several times
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = tag)]
    tags: Vec<(String, String)>,
    /// Leave point-in-time recovery as it is
    #[arg(long)]
    no_recovery: bool,
    /// Let the tables be deleted without further ado
    #[arg(long)]
    no_deletion_protection: bool,
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

fn provisioned(text: &str) -> Result<Billing, String> {
    let units = |text: &str| text.trim().parse().ok().filter(|&units: &u32| units > 0);
    let both = text.split_once(',').and_then(|(read, write)| Some((units(read)?, units(write)?)));
    let (read_units, write_units) =
        both.ok_or("give the units of reads and of writes of each table, such as 100,50")?;
    Ok(Billing::Provisioned { read_units, write_units })
}

fn tag(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a tag is written KEY=VALUE".into()),
    }
}

pub async fn run(args: TablesArgs) -> Outcome {
    match args.command {
        TablesCommand::Create(args) => create(args).await,
        TablesCommand::Check(args) => {
            let (dynamo, prefix) = open(args.config).await?;
            let findings = check(&dynamo).await?;
            output::print(&render(&prefix, &findings))?;
            told(&findings)?;
            // They are tried on tables that are as they should be.
            let probed = probe_operations(&dynamo).await;
            output::print(&render_operations(&probed))?;
            match probed.iter().any(is_needed_and_lacking) {
                true => Err(Failure::Told),
                false => Ok(()),
            }
        }
    }
}

async fn open(config: Option<PathBuf>) -> Outcome<(Dynamo, String)> {
    let config = Config::load(config.as_deref(), Overrides::default())
        .map_err(|e| Failure::Failed(e.to_string()))?
        .distributed_store()
        .dynamo;
    let prefix = config.table_prefix.clone();
    let dynamo = Dynamo::new(config).await.map_err(|e| Failure::Failed(e.to_string()))?;
    Ok((dynamo, prefix))
}

async fn create(args: CreateArgs) -> Outcome {
    let options = CreateOptions {
        billing: args.provisioned.unwrap_or(Billing::OnDemand),
        tags: args.tags,
        point_in_time_recovery: !args.no_recovery,
        deletion_protection: !args.no_deletion_protection,
        ..CreateOptions::default()
    };
    let (dynamo, _) = open(args.config).await?;
    let made = create_tables(&dynamo, &options)
        .await
        .map_err(|e| Failure::Failed(format!("the tables cannot be made: {e}")))?;
    let lines: String = made.iter().map(|finding| format!("{finding}\n")).collect();
    output::print(&lines)?;
    // A table that was there already may be none that a server can use.
    let wrong: Vec<Finding> = check(&dynamo).await?.into_iter().filter(|finding| finding.wrong).collect();
    let lines: String = wrong.iter().map(|finding| format!("fail  {finding}\n")).collect();
    output::print(&lines)?;
    told(&wrong)
}

async fn check(dynamo: &Dynamo) -> Outcome<Vec<Finding>> {
    check_tables(dynamo).await.map_err(|e| Failure::Failed(format!("the tables cannot be looked at: {e}")))
}

/// Every table has a line: what was found, or that it is well.
fn render(prefix: &str, findings: &[Finding]) -> String {
    let mut lines = String::new();
    for table in Table::ALL {
        let name = format!("{prefix}{}", table.name());
        let mut found = findings.iter().filter(|finding| finding.table == name).peekable();
        if found.peek().is_none() {
            let _ = writeln!(lines, "ok    {name}");
        }
        for finding in found {
            let _ = writeln!(lines, "{}  {finding}", if finding.wrong { "fail" } else { "warn" });
        }
    }
    for finding in findings.iter().filter(|finding| finding.table == Finding::RECOVERY) {
        let _ = writeln!(lines, "note  {finding}");
    }
    lines
}

pub(super) fn is_needed_and_lacking(probed: &Probed) -> bool {
    probed.lacking.is_some() && !probed.optional
}

fn render_operations(probed: &[Probed]) -> String {
    let line = |probed: &Probed| match (&probed.lacking, is_needed_and_lacking(probed)) {
        (None, _) => format!("ok    {}\n", probed.operation),
        (Some(_), true) => format!("fail  {probed}\n"),
        (Some(_), false) => format!("warn  {probed}\n"),
    };
    probed.iter().map(line).collect()
}

fn told(findings: &[Finding]) -> Outcome {
    match findings.iter().any(|finding| finding.wrong) {
        true => Err(Failure::Told),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_a_line_and_one_failure_fails_all() {
        let finding =
            |table: &str, text: &str, wrong| Finding { table: table.into(), text: text.into(), wrong };
        let notes = [finding("p-users", "has no point-in-time recovery", false)];
        assert!(told(&notes).is_ok());
        let findings =
            [finding("p-messages", "is missing; `bluetick tables create` makes it", true), notes[0].clone()];
        let text = render("p-", &findings);
        assert_eq!(text.lines().count(), Table::ALL.len());
        assert!(
            text.starts_with("fail  p-messages: is missing; `bluetick tables create` makes it\n"),
            "{text}"
        );
        assert!(
            text.contains("\nok    p-conversations\n") && text.contains("\nwarn  p-users: has no"),
            "{text}"
        );
        assert!(matches!(told(&findings), Err(Failure::Told)));
        let text = render("p-", &[finding(Finding::RECOVERY, "this endpoint does not have it", false)]);
        assert_eq!(text.lines().count(), Table::ALL.len() + 1);
        let last = "\nnote  point-in-time recovery: this endpoint does not have it\n";
        assert!(text.ends_with(last) && !text.contains("warn"), "{text}");
    }

    #[test]
    fn an_operation_that_is_missing_is_named_with_what_follows() {
        let probed = |operation, lacking: Option<&str>, optional| Probed {
            operation,
            lacking: lacking.map(str::to_owned),
            optional,
        };
        let all = [
            probed("GetItem", None, false),
            probed("TransactWriteItems", Some("it is unknown; no message can be sent"), false),
            probed("BatchWriteItem", Some("no rights"), true),
        ];
        assert_eq!(
            render_operations(&all),
            "ok    GetItem\nfail  TransactWriteItems does not work as needed: it is unknown; no message can be \
             sent\nwarn  BatchWriteItem does not work as needed: no rights\n"
        );
        assert_eq!(all.map(|probed| is_needed_and_lacking(&probed)), [false, true, false]);
    }

    #[test]
    fn capacity_and_tags_are_read() {
        let billing = Billing::Provisioned { read_units: 100, write_units: 50 };
        assert_eq!(provisioned("100,50"), Ok(billing));
        for wrong in ["100", "0,1", "a,b", ",", "-1,2"] {
            assert!(provisioned(wrong).is_err(), "{wrong}");
        }
        assert_eq!(tag("team=chat=1"), Ok(("team".into(), "chat=1".into())));
        assert!(tag("team").is_err() && tag("=x").is_err());
    }
}
