//! `bluetick migrate`: copies an embedded store to DynamoDB and compares the two.

mod objects;

use std::{path::PathBuf, sync::Arc, time::Duration};

use bluetick_store::{
    EmbeddedConfig, EmbeddedSource, Redis, SystemClock,
    dynamo::{Dynamo, KindComparison, Loader, MigrationStart, check_tables},
};
use clap::{Args, ValueEnum};
use serde_json::json;

use objects::Both;

use super::{Failure, Outcome, output, progress::Progress, table};
use crate::config::{Config, Overrides};

#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// The store to move: embedded:DIR with its data directory. Its server must be stopped
    #[arg(long, value_name = "STORE", value_parser = embedded)]
    from: PathBuf,
    /// Where to: the tables and the Redis that the configuration names
    #[arg(long)]
    to: To,
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the store's objects are, if not in the directory objects of its data directory
    #[arg(long, value_name = "DIR")]
    from_objects: Option<PathBuf>,
    /// Only compare what was moved before
    #[arg(long, conflicts_with = "start_over")]
    verify_only: bool,
    /// Delete what an earlier, unfinished migration of this store left in the tables, and start
    /// over
    #[arg(long)]
    start_over: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum To {
    Dynamodb,
}

/// A migration can wait: retry throttled writes for longer than a server would.
const DEADLINE: Duration = Duration::from_secs(120);

fn embedded(text: &str) -> Result<PathBuf, String> {
    match text.strip_prefix("embedded:") {
        Some(dir) if !dir.is_empty() => Ok(dir.into()),
        _ => Err("write embedded: and the data directory, such as embedded:/var/lib/bluetick".into()),
    }
}

fn failed(what: &'static str) -> impl Fn(bluetick_store::StoreError) -> Failure {
    move |error| Failure::Failed(format!("{what}: {error}"))
}

pub async fn run(args: MigrateArgs) -> Outcome {
    let To::Dynamodb = args.to;
    let overrides = Overrides { data: Some(args.from.clone()), listen: None };
    let config =
        Config::load(args.config.as_deref(), overrides).map_err(|e| Failure::Failed(e.to_string()))?;
    if config.redis.urls.is_empty() {
        return Err(Failure::Failed(
            "redis.urls is empty: name the Redis that the servers will use, so that what it knows can be made anew"
                .into(),
        ));
    }
    let clock = Arc::new(SystemClock);
    let mut to = config.distributed_store();
    to.dynamo.deadline = DEADLINE;
    let dynamo = Dynamo::new(to.dynamo).await.map_err(failed("DynamoDB cannot be used"))?;
    check(&dynamo).await?;
    let redis = Redis::new(to.redis).map_err(failed("Redis cannot be used"))?;
    let objects = Both::of(&config, &args.from, args.from_objects.as_deref())?;
    let cold = objects.from.clone().map(|objects| config.cold_in(objects).into());
    let from = EmbeddedConfig { objects: cold, ..config.embedded_store() };
    let source =
        EmbeddedSource::open(from, clock.clone()).await.map_err(failed("the store cannot be read"))?;
    let becomes_cold = config.cold.enabled && objects.to.is_some();
    let migration =
        Migration { loader: Loader::new(dynamo, redis, clock), source: &source, objects, becomes_cold };
    let moved = match args.verify_only {
        true => migration.verify().await,
        false => migration.move_all(args.start_over).await,
    };
    let closed = source.close().await.map_err(failed("the store cannot be closed"));
    moved.and(closed)
}

struct Migration<'a> {
    loader: Loader,
    source: &'a EmbeddedSource,
    objects: Both,
    /// Whether the new servers have a cold tier.
    becomes_cold: bool,
}

async fn check(dynamo: &Dynamo) -> Outcome {
    let findings = check_tables(dynamo).await.map_err(failed("the tables cannot be looked at"))?;
    let wrong: Vec<String> =
        findings.iter().filter(|finding| finding.wrong).map(|finding| format!("fail  {finding}\n")).collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => {
            output::print(&wrong.concat())?;
            Err(Failure::Told)
        }
    }
}

impl Migration<'_> {
    async fn move_all(&self, start_over: bool) -> Outcome {
        let (loader, source) = (&self.loader, self.source);
        self.objects.check(source).await?;
        let begun = loader.begin(source.identity(), start_over).await.map_err(failed("nothing was moved"))?;
        let all = source.messages();
        let moved = match begun {
            MigrationStart::Anew => 0,
            MigrationStart::Resumed { moved } => {
                output::print(&format!("going on after {moved} of {all} messages\n"))?;
                moved
            }
            MigrationStart::Done => {
                output::print("this store was moved to these tables before\n")?;
                self.objects.copy(source).await?;
                return self.verify().await;
            }
        };
        let progress = Progress::resume("messages moved", all, moved);
        let loaded = loader.load(source, |messages| progress.step(messages)).await;
        drop(progress);
        loaded.map_err(failed("not everything was moved; run the same command again to go on"))?;
        self.objects.copy(source).await?;
        self.compare().await?;
        if self.becomes_cold {
            let listed = loader.enlist().await;
            listed.map_err(failed("what is old cannot be listed; run the same command again to go on"))?;
        }
        loader
            .finish(source.identity())
            .await
            .map_err(failed("everything was moved, and that cannot be noted"))?;
        Ok(output::print("everything is there; start the servers with store.backend = \"dynamodb\"\n")?)
    }

    async fn verify(&self) -> Outcome {
        if self.loader.served_since().await.map_err(failed("nothing can be compared"))? {
            output::print("a server has used these tables since: what it changed differs from the store\n")?;
        }
        self.compare().await
    }

    async fn compare(&self) -> Outcome {
        let progress = Progress::start("rows compared", 0);
        let compared = self.loader.compare(self.source, |rows| progress.step(rows)).await;
        drop(progress);
        let compared =
            compared.map_err(failed("what was moved cannot be compared; run the same command again"))?;
        output::print(&render(&compared))?;
        if !compared.iter().all(KindComparison::is_same) {
            return Err(Failure::Failed(
                "the tables do not hold what the store holds; if no server has used them, --start-over moves it again"
                    .into(),
            ));
        }
        let missing = self.objects.missing(self.source).await?;
        match missing.first() {
            None => Ok(()),
            Some(first) => Err(Failure::Failed(format!(
                "the bucket lacks the bytes of {} attachments, such as {first}",
                missing.len()
            ))),
        }
    }
}

fn render(compared: &[KindComparison]) -> String {
    let columns = ["kind", "rows in the store", "in the tables", "checksum", ""];
    let rows: Vec<_> = compared
        .iter()
        .map(|one| {
            let same = if one.is_same() { "same" } else { "DIFFERENT" };
            let checksum = format!("{:016x}", one.source.checksum);
            vec![
                json!(one.kind.name()),
                json!(one.source.rows),
                json!(one.target.rows),
                json!(checksum),
                json!(same),
            ]
        })
        .collect();
    let mut text = table::render(&columns, &rows);
    for one in compared {
        for (key, how) in &one.differing {
            text.push_str(&format!("{}: {} {how}\n", one.kind.name(), table::cell(&json!(key))));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use bluetick_store::{
        ContentKind,
        dynamo::{Difference, Sum},
    };

    use super::*;

    #[test]
    fn a_store_is_named_by_its_kind_and_directory() {
        assert_eq!(embedded("embedded:/var/lib/bluetick"), Ok("/var/lib/bluetick".into()));
        for wrong in ["/var/lib/bluetick", "embedded:", "dynamodb"] {
            assert!(embedded(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_differs_is_named_under_the_table() {
        let sum = |rows| Sum { rows, checksum: rows };
        let compared = [
            KindComparison {
                kind: ContentKind::Blocks,
                source: sum(1),
                target: sum(1),
                differing: Vec::new(),
            },
            KindComparison {
                kind: ContentKind::Messages,
                source: sum(10),
                target: sum(9),
                differing: vec![("alice~bob 7".into(), Difference::Missing)],
            },
        ];
        let text = render(&compared);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[1].ends_with("0000000000000001  same"), "{text}");
        assert!(lines[2].starts_with("messages") && lines[2].ends_with("DIFFERENT"), "{text}");
        assert_eq!(lines[3], "messages: alice~bob 7 is missing in the tables");
    }
}
