//! The backend for many machines against real servers: DynamoDB Local and Redis. `scripts/services
//! start` runs them.
#![cfg(feature = "cluster")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bluetick_store::{
    ColdConfig, ColdObjects, DistributedConfig, ManualClock, Objects, RedisConfig, RedisMode, Store,
    conformance::Fixture,
    conformance_tests,
    dynamo::{CreateOptions, Dynamo, DynamoConfig, create_tables},
};

conformance_tests!(in_steps dynamodb_and_redis, fixture);

fn service(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run `scripts/services start`, then eval \"$(scripts/services env)\"")
    })
}

/// A name that no other test has, in this run or another on the same servers.
fn unique() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("t{}x{}x{}-", since.as_micros(), std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn config() -> DistributedConfig {
    let name = unique();
    DistributedConfig {
        dynamo: DynamoConfig {
            endpoint: Some(service("BLUETICK_TEST_DYNAMODB")),
            table_prefix: name.clone(),
            deadline: Duration::from_secs(20),
            ..DynamoConfig::default()
        },
        redis: RedisConfig {
            urls: vec![service("BLUETICK_TEST_REDIS")],
            mode: RedisMode::Single,
            prefix: name,
            deadline: Duration::from_secs(5),
        },
        idempotency_window: Duration::from_secs(30 * 24 * 3600),
        objects: Some(Arc::new(ColdObjects::new(Objects::memory(), ColdConfig::default()))),
        cold_after: Some(Duration::from_secs(30 * 24 * 3600)),
    }
}

async fn open(config: DistributedConfig, clock: Arc<ManualClock>) -> (Store, Dynamo) {
    let (store, _, dynamo) = Store::distributed(config, clock).await.expect("the store opens");
    // The clock of these tests is not the server's, which would forget by its own.
    let options = CreateOptions {
        ttl: false,
        point_in_time_recovery: false,
        deletion_protection: false,
        ..CreateOptions::default()
    };
    create_tables(&dynamo, &options).await.expect("the tables are made");
    (store, dynamo)
}

fn fixture() -> Fixture {
    tokio::task::block_in_place(|| {
        let opening = tokio::runtime::Handle::current();
        Fixture::new(|clock| opening.block_on(open(config(), clock)).0)
    })
}
