//! `bluetick cold`: what is old goes into objects, what has gone, and whether it is well.

use std::time::{Duration, Instant};

use bluetick_chat::{ColdMoved, ColdStep, ColdStepped, ColdSurvey, ColdVerified};
use clap::{Args, Subcommand};
use serde::{Serialize, de::DeserializeOwned};

use super::{Failure, Outcome, output, progress::Progress, remote::Remote, target::Target, trace};

/// How long a shard that another process works on is waited for.
const BUSY_FOR: Duration = Duration::from_secs(180);
const BUSY_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub struct ColdArgs {
    #[command(subcommand)]
    command: ColdCommand,
}

#[derive(Debug, Subcommand)]
enum ColdCommand {
    /// Move everything that is old enough, now
    Run(RunArgs),
    /// Show how much is cold, and what the server does about it
    Status(StatusArgs),
    /// Read every object and check it
    Verify(VerifyArgs),
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Also search conversations from before the cold tier was enabled (on DynamoDB: one scan of
    /// `conversations`)
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
struct StatusArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
struct VerifyArgs {
    #[command(flatten)]
    target: Target,
}

pub async fn run(args: ColdArgs) -> Outcome {
    match args.command {
        ColdCommand::Run(args) => move_all(args).await,
        ColdCommand::Status(args) => status(args).await,
        ColdCommand::Verify(args) => verify(args).await,
    }
}

async fn ask<T: DeserializeOwned>(remote: &Remote, command: &str, body: &impl Serialize) -> Outcome<T> {
    let answer = remote.post_json(&format!("cold/{command}"), body).await?;
    serde_json::from_slice(&answer)
        .map_err(|e| Failure::Failed(format!("the server's answer is not a report: {e}")))
}

async fn move_all(args: RunArgs) -> Outcome {
    let remote = args.target.remote()?;
    let progress = Progress::start("messages moved", 0);
    let (mut step, mut looked_at) = (ColdStep { place: None, enlist: args.all }, 0);
    let mut enlisted = 0;
    let mut moved = ColdMoved::default();
    let (mut last_error, mut busy_since) = (None, None::<Instant>);
    loop {
        let done: ColdStepped = ask(&remote, "run", &step).await?;
        progress.step(done.moved.messages);
        looked_at += done.looked_at;
        enlisted += done.enlisted;
        moved.messages += done.moved.messages;
        moved.hot_bytes += done.moved.hot_bytes;
        moved.objects += done.moved.objects;
        moved.cold_bytes += done.moved.cold_bytes;
        last_error = done.last_error.or(last_error);
        let Some(place) = done.place else { break };
        if done.busy {
            let since = *busy_since.get_or_insert_with(Instant::now);
            if since.elapsed() > BUSY_FOR {
                drop(progress);
                let why = "another app server is moving messages of shard";
                return Err(Failure::Failed(format!("{why} {}; try again later", place.shard)));
            }
            tokio::time::sleep(BUSY_EVERY).await;
        } else {
            busy_since = None;
        }
        step = ColdStep { place: Some(place), enlist: false };
    }
    drop(progress);
    if enlisted > 0 {
        output::print(&format!("listed {enlisted} conversations that nobody had\n"))?;
    }
    output::print(&said(looked_at, &moved))?;
    match last_error {
        Some(why) => Err(Failure::Failed(format!("not everything could be moved: {why}"))),
        None => Ok(()),
    }
}

fn said(looked_at: u64, moved: &ColdMoved) -> String {
    let ColdMoved { messages, hot_bytes, objects, cold_bytes } = *moved;
    let mut text =
        format!("looked at {looked_at} conversations, moved {messages} messages into {objects} objects\n");
    if messages > 0 {
        let each = |bytes: u64| bytes as f64 / messages as f64;
        text.push_str(&format!(
            "bytes per message: {:.1} before, {:.1} now ({:.1} times smaller)\n",
            each(hot_bytes),
            each(cold_bytes),
            hot_bytes as f64 / cold_bytes.max(1) as f64
        ));
    }
    text
}

async fn status(args: StatusArgs) -> Outcome {
    let remote = args.target.remote()?;
    let mut survey = ColdSurvey::default();
    while !survey.whole {
        survey = ask(&remote, "status", &survey).await?;
    }
    survey.after = None;
    if args.json {
        let text = serde_json::to_string_pretty(&survey).map_err(|e| Failure::Failed(e.to_string()))?;
        return Ok(output::print(&(text + "\n"))?);
    }
    let when = |ts: Option<u64>| ts.map_or_else(|| "-".to_owned(), trace::utc);
    let each = survey.bytes as f64 / survey.messages.max(1) as f64;
    let ColdSurvey { conversations, runs, messages, bytes, .. } = survey;
    let mut text = format!(
        "objects        {}\nconversations  {conversations}\nruns           {runs}\nmessages       {messages}\n\
         bytes          {bytes} ({each:.1} a message)\noldest         {}\nnewest         {}\n",
        survey.place,
        when(survey.oldest_ts),
        when(survey.newest_ts),
    );
    let progress = &survey.progress;
    let doing = match (progress.shard, progress.ended_at) {
        (Some(shard), _) => format!("moving, in shard {shard}"),
        (None, Some(ended)) => format!("last looked {}", trace::utc(ended)),
        (None, None) => "has not looked yet".to_owned(),
    };
    text.push_str(&format!(
        "this server    {doing}; {} conversations looked at, {} messages moved since it began\n",
        progress.looked_at, progress.moved.messages
    ));
    if let Some(why) = &progress.last_error {
        text.push_str(&format!("last error     {why}\n"));
    }
    Ok(output::print(&text)?)
}

async fn verify(args: VerifyArgs) -> Outcome {
    let remote = args.target.remote()?;
    let mut survey = ColdSurvey::default();
    while !survey.whole {
        survey = ask(&remote, "status", &survey).await?;
    }
    let progress = Progress::start("objects checked", survey.runs);
    let (mut after, mut sums) = (None, ColdVerified::default());
    loop {
        let done: ColdVerified = ask(&remote, "verify", &after).await?;
        progress.step(done.objects);
        sums.objects += done.objects;
        sums.messages += done.messages;
        sums.bytes += done.bytes;
        sums.swept += done.swept;
        sums.damaged.extend(done.damaged);
        if done.whole {
            break;
        }
        after = done.after;
    }
    drop(progress);
    let ColdVerified { objects, messages, bytes, swept, damaged, .. } = sums;
    let mut text = format!("checked {objects} objects with {messages} messages, {bytes} bytes\n");
    if swept > 0 {
        text.push_str(&format!("deleted {swept} objects that nothing refers to\n"));
    }
    for (object, why) in &damaged {
        text.push_str(&format!("damaged: {object}: {why}\n"));
    }
    output::print(&text)?;
    match damaged.is_empty() {
        true => Ok(()),
        false => Err(Failure::Told),
    }
}
