//! The backend for many machines: rows in DynamoDB (or what speaks its API), order and presence in Redis.
//!
//! - `client.rs`: the one way to DynamoDB: deadlines, retries, reads, what it cost; `write.rs`: conditional writes and transactions
//! - `probe.rs`: whether an endpoint has the operations that are needed
//! - `tables.rs`: the tables, made and checked; `item.rs`: attributes in and out
//! - `commit.rs`: a send: seq, transaction, rows; `lease.rs`: who may mint ids
//! - `messages.rs`, `pending.rs`, `status.rs`, `users.rs`, `devices.rs`, `push_outbox.rs`: a system each
//! - `row.rs`: what one `conversations` row counts and shows; `rows.rs`: how it is brought up to date
//! - `everywhere.rs`: what the rows need of messages, hot or cold; `stray.rs`: a seq that was used and is cold (R8)
//! - `cold.rs`: the runs of the cold tier; `enlist.rs`: when conversations are looked at for what is old
//! - `attachments.rs`: what was announced of attachments
//! - `inbox.rs`: the reads of `conversations`, by the order that Redis keeps
//! - `maintenance.rs`: health and erasure
//! - `load.rs`: fills the tables from another store; `compare.rs`: whether they hold what it holds
//!
//! Every step of several writers is one conditional write, and every read that a rule depends on is strongly
//! consistent. Redis holds hints only: where it is empty or down, the tables answer.

mod attachments;
mod client;
mod cold;
mod commit;
mod compare;
mod devices;
mod enlist;
mod everywhere;
mod inbox;
mod item;
mod lease;
mod load;
mod maintenance;
mod messages;
mod pending;
mod probe;
mod push_outbox;
mod row;
mod rows;
mod status;
mod stray;
mod tables;
#[cfg(test)]
mod tests;
mod users;
mod write;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

pub use client::{Dynamo, DynamoConfig, Units};
pub use compare::{Comparison, Difference, Sum};
pub use load::{Begun, Loader};
pub use probe::{Probed, probe_operations};
pub use tables::{Billing, CreateOptions, Finding, Table, check_tables, create_tables, size_of};

use crate::{Clock, ColdObjects, Result, StoreError, redis::Redis};
use lease::Lease;
use push_outbox::Round;

pub(crate) struct DynamoStore {
    dynamo: Dynamo,
    redis: Redis,
    clock: Arc<dyn Clock>,
    lease: Lease,
    idempotency_window_ms: u64,
    closed: AtomicBool,
    outbox_round: tokio::sync::Mutex<Round>,
    objects: Option<Arc<ColdObjects>>,
    /// How old messages are when they become cold, if conversations are to be found for that.
    cold_after_ms: Option<u64>,
}

impl DynamoStore {
    pub(crate) fn new(
        dynamo: Dynamo,
        redis: Redis,
        clock: Arc<dyn Clock>,
        idempotency_window_ms: u64,
    ) -> DynamoStore {
        let lease = Lease::new(dynamo.clone(), clock.clone());
        DynamoStore {
            dynamo,
            redis,
            clock,
            lease,
            idempotency_window_ms,
            closed: AtomicBool::new(false),
            outbox_round: Default::default(),
            objects: None,
            cold_after_ms: None,
        }
    }

    /// Where cold messages are, and after how long they go there.
    pub(crate) fn with_objects(
        mut self,
        objects: Option<Arc<ColdObjects>>,
        cold_after_ms: Option<u64>,
    ) -> DynamoStore {
        self.cold_after_ms = cold_after_ms.filter(|_| objects.is_some());
        self.objects = objects;
        self
    }

    /// A closed store refuses to write.
    fn writable(&self) -> Result<()> {
        match self.closed.load(Ordering::Acquire) {
            true => Err(StoreError::unavailable("the store, which is closed,")),
            false => Ok(()),
        }
    }
}
