//! What the embedded store costs, beside the limit of the disk under it, measured in one run:
//!
//! ```text
//! cargo run --release -p bluetick-store --example bench_store -- [--dir D] [--writers N] [--messages N] [--seconds S]
//! cargo run --release -p bluetick-store --example bench_store -- --growth [--history 2000000] [--writers N]
//! ```
//!
//! - *raw append*: one thread appends records of the same size to a plain file, one fdatasync for
//!   whoever waits.
//! - *sends*: `commit_sends` of one message at a time with all its rows, half of them with a
//!   pending row.
//! - *sends + receipts*: the same, and the delivered boundary advanced for each message.
//!
//! Every figure counts only what its caller was told is durable. `cpu` is the whole process, load
//! included.

mod drive;
mod growth;
mod meter;
mod raw;
mod reopen;
mod workload;

use std::{path::PathBuf, sync::Arc, time::Duration};

use bluetick_store::{EmbeddedConfig, Store, SystemClock};

use drive::{DriveLimit, DriveResult, drive};
use workload::Workload;

const CONVERSATIONS: usize = 100_000;
const WRITERS: [usize; 3] = [1, 64, 1024];

#[derive(Debug)]
struct StoreBenchOptions {
    dir: Option<PathBuf>,
    writers: Option<usize>,
    messages: u64,
    seconds: u64,
    growth: bool,
    history: u64,
    crash_in: Option<PathBuf>,
}

impl StoreBenchOptions {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<StoreBenchOptions, String> {
        let mut options = StoreBenchOptions {
            dir: None,
            writers: None,
            messages: 3_000_000,
            seconds: 20,
            growth: false,
            history: 2_000_000,
            crash_in: None,
        };
        while let Some(name) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{name} needs a value"));
            match name.as_str() {
                "--dir" => options.dir = Some(value()?.into()),
                "--writers" => options.writers = Some(number(&value()?)?.clamp(1, 100_000) as usize),
                "--messages" => options.messages = number(&value()?)?.max(1),
                "--seconds" => options.seconds = number(&value()?)?.max(1),
                "--history" => options.history = number(&value()?)?.max(1),
                "--growth" => options.growth = true,
                // Not for people: how `reopen` gets a process that dies in the middle of its work.
                "--crash-in" => options.crash_in = Some(value()?.into()),
                other => return Err(format!("{other} is not an option; see the top of main.rs")),
            }
        }
        Ok(options)
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.replace(['_', ','], "").parse().map_err(|_| format!("{text:?} is not a number"))
}

fn main() {
    let done = StoreBenchOptions::parse(std::env::args().skip(1)).and_then(run);
    if let Err(why) = done {
        eprintln!("bench_store: {why}");
        std::process::exit(1);
    }
}

fn run(options: StoreBenchOptions) -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|e| e.to_string())?;
    if let Some(dir) = &options.crash_in {
        return runtime.block_on(reopen::write_and_die(dir));
    }
    meter::install()?;
    let scratch = match &options.dir {
        Some(dir) => tempfile::tempdir_in(dir),
        None => tempfile::tempdir_in("."),
    };
    let scratch = scratch.map_err(|e| format!("no directory to work in: {e}; give one with --dir"))?;
    println!("load of the machine before: {}", meter::load_average());
    match options.growth {
        true => runtime.block_on(growth::run(scratch.path(), &options)),
        false => runtime.block_on(side_by_side(scratch.path(), &options)),
    }
}

pub(crate) fn open(dir: &std::path::Path) -> Result<Store, String> {
    Store::embedded(EmbeddedConfig::new(dir), Arc::new(SystemClock)).map_err(|e| e.to_string())
}

async fn side_by_side(dir: &std::path::Path, options: &StoreBenchOptions) -> Result<(), String> {
    let workload = Arc::new(Workload::new(CONVERSATIONS));
    let record_bytes = workload::record_bytes(&dir.join("probe"), &workload).await?;
    println!(
        "{CONVERSATIONS} conversations, bodies of {} bytes, log records of {record_bytes} bytes\n",
        workload::BODY_BYTES
    );
    println!("{}", DriveResult::HEADER);

    let counts = options.writers.map_or(WRITERS.to_vec(), |n| vec![n]);
    let bound = DriveLimit { messages: options.messages, time: Duration::from_secs(options.seconds) };
    // Raw first and last: a machine that was busy in between shows.
    let mut limits = Vec::new();
    for &writers in &counts {
        limits.push(raw_line(dir, record_bytes, writers, bound).await?);
    }

    let store_dir = dir.join("store");
    let store = open(&store_dir)?;
    let mut stored = 0;
    for (&writers, limit) in counts.iter().zip(&limits) {
        meter::reset();
        let (store, workload) = (store.clone(), workload.clone());
        let base = stored;
        let measured = drive(writers, bound, move |n| {
            let (store, workload) = (store.clone(), workload.clone());
            async move { workload.send(&store, base + n).await.map(drop) }
        })
        .await?;
        stored += measured.messages;
        measured.print("sends", writers, Some(limit));
        measured.print_threads();
        println!("{}", meter::store_activity());
    }
    if let Some(&writers) = counts.last() {
        meter::reset();
        let base = stored;
        let (receipting, workload) = (store.clone(), workload.clone());
        let measured = drive(writers, bound, move |n| {
            let (store, workload) = (receipting.clone(), workload.clone());
            async move { workload.send_and_receipt(&store, base + n).await }
        })
        .await?;
        stored += measured.messages;
        measured.print("sends + receipts", writers, limits.last());
        measured.print_threads();
        println!("{}", meter::store_activity());
        raw_line(dir, record_bytes, writers, bound).await?;
    }
    reopen::print(store, &store_dir, stored).await?;
    println!("load of the machine after: {}", meter::load_average());
    Ok(())
}

async fn raw_line(
    dir: &std::path::Path,
    record_bytes: usize,
    writers: usize,
    bound: DriveLimit,
) -> Result<DriveResult, String> {
    let bound = DriveLimit { time: bound.time.min(Duration::from_secs(5)), ..bound };
    let raw = raw::RawLog::create(&dir.join("raw"))?;
    let appender = raw.clone();
    let measured = drive(writers, bound, move |_| {
        let raw = appender.clone();
        async move { raw.append(vec![b'x'; record_bytes]).await }
    })
    .await?;
    measured.print("raw append", writers, None);
    raw.remove()?;
    Ok(measured)
}
