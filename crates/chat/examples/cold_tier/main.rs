//! What moving messages into objects saves and costs: a conversation of two years, loaded in bulk, moved, and read from the
//! newest to the oldest; and what a send costs while messages are moved.
//!
//! ```text
//! cargo run --release -p bluetick-chat --example cold_tier -- embedded [MESSAGES]
//! scripts/services start && eval "$(scripts/services env)" && curl -X PUT "$BLUETICK_TEST_S3/bluetick"
//! cargo run --release -p bluetick-chat --features cluster --example cold_tier -- dynamodb [MESSAGES]
//! ```

mod prose;

use std::{path::Path, sync::Arc, time::Duration};

use bluetick_chat::{Mover, MoverConfig};
use bluetick_protocol::{ConversationId, Side, UserId};
use bluetick_store::{
    Clock, ColdConfig, ColdObjects, EmbeddedConfig, ManualClock, Objects, PageLimit, Store, SystemClock,
    testing::message,
};
use prose::Writer;
use tokio::time::Instant;

const DAY: u64 = 24 * 3_600_000;
const PAGE: usize = 50;
type Failed = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let mut args = std::env::args().skip(1);
    let backend = args.next().unwrap_or_else(|| "embedded".into());
    let messages = args.next().map_or(Ok(100_000), |n| n.parse())?;
    match backend.as_str() {
        "embedded" => embedded(messages).await,
        #[cfg(feature = "cluster")]
        "dynamodb" => dynamodb::run(messages).await,
        other => {
            Err(format!("{other} is neither embedded nor dynamodb (which needs --features cluster)").into())
        }
    }
}

fn now() -> u64 {
    SystemClock.now_ms()
}

fn between(a: &str, b: &str) -> Result<ConversationId, Failed> {
    ConversationId::between(&UserId::new(a)?, &UserId::new(b)?).ok_or_else(|| "two users".into())
}

/// Conversations over two years, up to yesterday, all of it acked, each with so many messages.
async fn load(
    store: &Store,
    clock: &ManualClock,
    ids: &[ConversationId],
    messages: u64,
    uuids: bool,
) -> Result<(), Failed> {
    let begin = now() - 730 * DAY;
    let mut writer = Writer::new(7);
    let mut seq = 0;
    while seq < messages {
        clock.set(begin + 729 * DAY * seq / messages);
        let more = (messages - seq).min(25);
        for id in ids {
            let mut some = Vec::new();
            for seq in seq + 1..=seq + more {
                let from = if writer.chance().is_multiple_of(2) { Side::Low } else { Side::High };
                let name = if uuids { writer.uuid() } else { format!("k3vq8z1m-{seq}") };
                some.push(message(id, from, &name).body(writer.message()));
            }
            for committed in store.messages.commit_sends(some).await {
                committed?;
            }
        }
        seq += more;
    }
    for (id, side) in ids.iter().flat_map(|id| Side::BOTH.map(|side| (id, side))) {
        store.status.advance(&id.member(side), id, messages, messages).await?;
    }
    store.maintenance.checkpoint().await?;
    Ok(())
}

/// From the newest to the oldest by pages, every seq once and in order. Returns how long a page took, by rank.
async fn read_all(store: &Store, id: &ConversationId, messages: u64) -> Result<Vec<Duration>, Failed> {
    let (mut before, mut took) = (messages + 1, Vec::new());
    while before > 1 {
        let begun = Instant::now();
        let page = store.messages.read_before(id, before, PageLimit::messages(PAGE)).await?;
        took.push(begun.elapsed());
        let first = page.first().map_or(0, |m| m.seq);
        if page.is_empty() || !(first..before).eq(page.iter().map(|m| m.seq)) {
            return Err(format!("the page before {before} is not whole: it begins at {first}").into());
        }
        before = first;
    }
    took.sort_unstable();
    Ok(took)
}

fn say_pages(what: &str, took: &[Duration]) {
    let at = |q: f64| took[((took.len() - 1) as f64 * q) as usize].as_secs_f64() * 1e6;
    println!("{what}: {} pages of {PAGE}, p50 {:.0} µs, p99 {:.0} µs", took.len(), at(0.5), at(0.99));
}

fn mover(store: &Store, messages_per_second: u32) -> Mover {
    let config = MoverConfig { messages_per_second, ..MoverConfig::default() };
    Mover::new(store.clone(), Arc::new(SystemClock), config, "bench".into())
}

async fn cold_messages(store: &Store, id: &ConversationId) -> Result<(u64, u64), Failed> {
    let runs = store.cold.runs.runs_from(id, 0, 1_000_000).await?;
    Ok((runs.iter().map(|run| run.messages()).sum(), runs.iter().map(|run| run.bytes).sum()))
}

fn size_of_dir(dir: &Path) -> u64 {
    let Ok(items) = std::fs::read_dir(dir) else { return 0 };
    let sizes = items.flatten().map(|item| match item.metadata() {
        Ok(meta) if meta.is_dir() => size_of_dir(&item.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

fn open(dir: &Path, clock: Arc<dyn Clock>) -> Result<Store, Failed> {
    let objects = Objects::directory(&dir.join("objects"))?;
    let objects = Some(Arc::new(ColdObjects::new(objects, ColdConfig::default())));
    Ok(Store::embedded(EmbeddedConfig { objects, ..EmbeddedConfig::new(dir) }, clock)?)
}

async fn embedded(messages: u64) -> Result<(), Failed> {
    println!("embedded store, {messages} messages over two years, made-up English");
    for uuids in [false, true] {
        println!(
            "\nclient_msg_ids are {}",
            if uuids { "random UUIDs" } else { "a device's name and a counter" }
        );
        let dir = tempfile::tempdir()?;
        let id = between("alice", "bob")?;
        let clock = Arc::new(ManualClock::new(now() - 730 * DAY));
        let store = open(dir.path(), clock.clone())?;
        load(&store, &clock, std::slice::from_ref(&id), messages, uuids).await?;
        store.maintenance.close().await?;
        drop(store);
        let store = open(dir.path(), Arc::new(SystemClock))?;
        store.maintenance.checkpoint().await?;
        let on_disk = size_of_dir(&dir.path().join("engine/keyspaces"));
        let page =
            store.messages.read_from(&id, 1, PageLimit { messages: 20_000, bytes: usize::MAX }).await?;
        let text: usize = page.iter().map(|m| m.body.len()).sum();
        println!("text of a message: {:.1} bytes on average", text as f64 / page.len() as f64);
        say_pages("history, all hot", &read_all(&store, &id, messages).await?);
        let begun = Instant::now();
        let moved = mover(&store, u32::MAX).move_conversation(&id, true).await?;
        let took = begun.elapsed();
        let (cold, bytes) = cold_messages(&store, &id).await?;
        println!(
            "moved {} messages into {} objects in {:.1} s ({:.0} messages/s)",
            moved.messages,
            moved.objects,
            took.as_secs_f64(),
            moved.messages as f64 / took.as_secs_f64()
        );
        let hot = moved.hot_bytes as f64 / moved.messages as f64;
        let each = bytes as f64 / cold as f64;
        println!(
            "bytes a message, hot (key and value): {hot:.1}; cold: {each:.1}; {:.1} times smaller",
            hot / each
        );
        println!(
            "bytes a message, hot (the engine's files, every row of it): {:.1}; {:.1} times",
            on_disk as f64 / messages as f64,
            on_disk as f64 / messages as f64 / each
        );
        say_pages("history, hot and cold", &read_all(&store, &id, messages).await?);
        say_pages("history once more", &read_all(&store, &id, messages).await?);
        store.maintenance.close().await?;
    }
    println!();
    sends_beside_the_mover(messages).await
}

/// The same sends, in turns with and without a mover beside them.
async fn sends_beside_the_mover(messages: u64) -> Result<(), Failed> {
    const TURNS: usize = 6;
    const TURN: Duration = Duration::from_secs(4);
    let dir = tempfile::tempdir()?;
    let clock = Arc::new(ManualClock::new(now() - 730 * DAY));
    let store = open(dir.path(), clock.clone())?;
    // Enough to move in every turn.
    let old: Vec<_> = (0..TURNS).map(|n| between("alice", &format!("old{n}"))).collect::<Result<_, _>>()?;
    load(&store, &clock, &old, messages / 5, true).await?;
    store.maintenance.close().await?;
    drop(store);
    let store = open(dir.path(), Arc::new(SystemClock))?;
    let mut waits: [Vec<Duration>; 2] = Default::default();
    let mut moved = 0;
    for id in &old {
        for (moving, waits) in waits.iter_mut().enumerate() {
            let stop = mover(&store, 2_000);
            let moves = async {
                match moving {
                    1 => stop.move_conversation(id, true).await.map(|moved| moved.messages),
                    _ => Ok(0),
                }
            };
            let sends = async {
                let done = send_for(&store, TURN).await;
                stop.stop();
                done
            };
            let (sent, done) = tokio::join!(sends, moves);
            waits.extend(sent?);
            moved += done?;
        }
    }
    let [alone, beside] = waits.map(|mut waits| {
        waits.sort_unstable();
        waits
    });
    let mean = |waits: &[Duration]| waits.iter().sum::<Duration>().as_secs_f64() * 1e6 / waits.len() as f64;
    let at = |waits: &[Duration], q: f64| waits[((waits.len() - 1) as f64 * q) as usize].as_secs_f64() * 1e6;
    println!("sends alone and beside a mover at its default pace, in turns ({moved} messages moved):");
    for (what, a, b) in [
        ("mean", mean(&alone), mean(&beside)),
        ("p50", at(&alone, 0.5), at(&beside, 0.5)),
        ("p99", at(&alone, 0.99), at(&beside, 0.99)),
    ] {
        println!("  {what:<5} {a:>7.0} µs  {b:>7.0} µs  ratio {:.2}", b / a);
    }
    println!("  sends {:>7}     {:>7}", alone.len(), beside.len());
    store.maintenance.close().await?;
    Ok(())
}

/// Eight people write, one message after another with a pause, for a while. Returns how long each waited for `sent`.
async fn send_for(store: &Store, how_long: Duration) -> Result<Vec<Duration>, Failed> {
    let ends = Instant::now() + how_long;
    let writers = (0..8).map(|n| async move {
        let id = between("bob", &format!("young{n}"))?;
        let (mut writer, mut waits) = (Writer::new(now() ^ n), Vec::new());
        while Instant::now() < ends {
            let send = message(&id, Side::Low, &writer.uuid()).body(writer.message());
            let begun = Instant::now();
            for committed in store.messages.commit_sends(vec![send]).await {
                committed?;
            }
            waits.push(begun.elapsed());
            tokio::time::sleep(Duration::from_millis(4)).await;
        }
        Ok::<_, Failed>(waits)
    });
    let waits = futures_util::future::try_join_all(writers).await?;
    Ok(waits.into_iter().flatten().collect())
}

#[cfg(feature = "cluster")]
mod dynamodb {
    use bluetick_store::{
        DistributedConfig, RedisConfig, RedisMode, S3Config,
        dynamo::{CreateOptions, DynamoConfig, Table, create_tables, size_of},
    };

    use super::*;

    fn service(variable: &str) -> Result<String, Failed> {
        std::env::var(variable).map_err(|_| format!("{variable} is not set; see scripts/services").into())
    }

    fn config(prefix: &str) -> Result<DistributedConfig, Failed> {
        let objects = Objects::s3(&S3Config {
            bucket: service("BLUETICK_TEST_S3_BUCKET").unwrap_or_else(|_| "bluetick".into()),
            prefix: prefix.to_owned(),
            region: Some("us-east-1".into()),
            endpoint: Some(service("BLUETICK_TEST_S3")?),
            path_style: true,
            access_key_id: Some("test".into()),
            secret_access_key: Some("test".into()),
        })?;
        Ok(DistributedConfig {
            dynamo: DynamoConfig {
                endpoint: Some(service("BLUETICK_TEST_DYNAMODB")?),
                table_prefix: prefix.to_owned(),
                deadline: Duration::from_secs(30),
                ..DynamoConfig::default()
            },
            redis: RedisConfig {
                urls: vec![service("BLUETICK_TEST_REDIS")?],
                mode: RedisMode::Single,
                prefix: prefix.to_owned(),
                deadline: Duration::from_secs(5),
            },
            idempotency_window: Duration::from_secs(30 * 24 * 3600),
            objects: Some(Arc::new(ColdObjects::new(objects, ColdConfig::default()))),
            cold_after: Some(Duration::from_secs(30 * 24 * 3600)),
        })
    }

    pub async fn run(messages: u64) -> Result<(), Failed> {
        println!(
            "DynamoDB Local and an S3 server, {messages} messages over two years, made-up English, random UUIDs"
        );
        let prefix = format!("cold{}-", now());
        let clock = Arc::new(ManualClock::new(now() - 730 * DAY));
        let (store, _, dynamo) = Store::distributed(config(&prefix)?, clock.clone()).await?;
        let options = CreateOptions {
            ttl: false,
            point_in_time_recovery: false,
            deletion_protection: false,
            ..CreateOptions::default()
        };
        create_tables(&dynamo, &options).await?;
        let id = between("alice", "bob")?;
        let begun = Instant::now();
        load(&store, &clock, std::slice::from_ref(&id), messages, true).await?;
        println!("loaded in {:.0} s", begun.elapsed().as_secs_f64());
        let (store, _, dynamo) = Store::distributed(config(&prefix)?, Arc::new(SystemClock)).await?;
        let (bytes, rows) = size_of(&dynamo, Table::Messages).await?;
        say_pages("history, all hot", &read_all(&store, &id, messages).await?);
        let begun = Instant::now();
        let moved = mover(&store, u32::MAX).move_conversation(&id, true).await?;
        let took = begun.elapsed();
        println!(
            "moved {} messages into {} objects in {:.1} s",
            moved.messages,
            moved.objects,
            took.as_secs_f64()
        );
        let (cold, cold_bytes) = cold_messages(&store, &id).await?;
        let (hot, each) = (bytes as f64 / rows.max(1) as f64, cold_bytes as f64 / cold as f64);
        println!(
            "bytes a message, hot (as DynamoDB counts its rows, without the 100 it bills for each): {hot:.1}; cold: {each:.1}; {:.1} times smaller",
            hot / each
        );
        say_pages("history, hot and cold", &read_all(&store, &id, messages).await?);
        say_pages("history once more", &read_all(&store, &id, messages).await?);
        Ok(())
    }
}
