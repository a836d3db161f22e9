//! The backend for many machines: rows in DynamoDB (or a server with its API), order and presence
//! in Redis.
//!
//! | table | partition key, sort key | attributes |
//! | --- | --- | --- |
//! | `messages` | conversation_id, seq | message_id, client_msg_id, sender, receiver, body, ts; s3_ref, meta; flags withheld, void, hole |
//! | `sent_ids` | `conversation side client_msg_id` | seq, message_id; expires_at, after which DynamoDB deletes the row (R9) |
//! | `pending_deliveries` | receiver_id, conversation_id | first_undelivered_seq (R3) |
//! | `message_status` | user_id, conversation_id | last_delivered_seq, last_read_seq (R10); last_notified_seq (R14) |
//! | `conversations` | user_id, conversation_id | last_seq, last_message_ts, last_message_preview, last_sender, last_message_id; peer_id, peer_name, avatar_url; unread_count, counted_seq, counted_last, read_seq (R11); version; erased_up_to, cold_up_to; flags concerned, cold_listed |
//! | `users` | user_id, `profile` | name, avatar_url |
//! | | user_id, `block#other` | flags blocked, frozen; name, avatar_url as the blocked user still sees them |
//! | | user_id, `mute#conversation` | until |
//! | | user_id, `not_before` | secs: older tokens are revoked |
//! | | user_id, `inbox` | stale_at: the inbox order in Redis may lack a conversation |
//! | | `#migration`, `embedded` | the progress of a migration; see `migration_marker.rs` |
//! | `devices` | user_id, device | registration, token, registered_at |
//! | | `#token#…`, `#owner` | owner, owner_device: the device that has a token |
//! | `push_outbox` | user_id, conversation_id | seq, clear, attempts, due_at, devices (R14) |
//! | `node_leases` | node | owner, expires_at: who mints ids under this node number |
//! | `cold_runs` | conversation_id, last_seq | first_seq, object, bytes, index_bytes, first_ts, last_ts, least_id, greatest_id |
//! | `cold_due` | shard, `time#conversation` | when the conversation is next checked for old messages |
//! | | shard, `lease` | holder, until: which app server checks the shard |
//! | `attachments` | s3_ref, `row` | owner, name, mime, bytes, sha256, state, upload_id; flag claimed |
//! | | s3_ref, conversation | a message there refers to it |
//! | | `unclaimed#00` to `#15`, s3_ref | no message refers to it yet |
//! | | `owner#user`, s3_ref | the user announced it |
//! | | `usage#user`, `usage` | total_bytes, day, day_bytes |
//!
//! A step that several writers may make at once is one conditional write, and every read that a
//! rule depends on is strongly consistent. Redis holds hints only: where it is empty or down, the
//! tables answer.
//!
//! - `client.rs`: calls with deadline, retries and cost; `write.rs`: conditional writes and
//!   transactions
//! - `tables.rs`: creates and checks the tables; `item.rs`: attributes; `probe.rs`: tests an
//!   endpoint's operations
//! - `commit.rs`: a send; `seqs.rs`: its seqs; `commit_rows.rs`: its rows; `reused_seqs.rs`: the
//!   seq of a cold message (R8)
//! - `lease.rs`: the node number under which ids are minted
//! - `messages.rs`, `pending.rs`, `status.rs`, `users.rs`, `devices.rs`, `push_outbox.rs`,
//!   `attachments.rs`: one system each
//! - `row.rs`: what a `conversations` row counts and shows; `rows.rs`: how it is updated;
//!   `inbox.rs`: how it is read
//! - `cold.rs`: the runs of the cold tier; `enlist.rs`: when a conversation is checked for old
//!   messages; `hot_and_cold.rs`: reads that span both
//! - `maintenance.rs`: health and erasure
//! - `load.rs`, `migration_marker.rs`, `content_items.rs`: fill the tables from another store;
//!   `compare.rs`: checks the result

mod attachments;
mod client;
mod cold;
mod commit;
mod commit_rows;
mod compare;
mod content_items;
mod devices;
mod enlist;
mod hot_and_cold;
mod inbox;
mod item;
mod lease;
mod load;
mod maintenance;
mod messages;
mod migration_marker;
mod pending;
mod probe;
mod push_outbox;
mod reused_seqs;
mod row;
mod rows;
mod seqs;
mod status;
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
pub use compare::{Difference, KindComparison, Sum};
pub use load::{Loader, MigrationStart};
pub use probe::{Probed, probe_operations};
pub use tables::{Billing, CreateOptions, Finding, Table, check_tables, create_tables, size_of};

use crate::{Clock, ColdObjects, Result, StoreError, redis::Redis};
use lease::Lease;
use push_outbox::ScanRound;

pub(crate) struct DynamoStore {
    dynamo: Dynamo,
    redis: Redis,
    clock: Arc<dyn Clock>,
    lease: Lease,
    idempotency_window_ms: u64,
    closed: AtomicBool,
    outbox_round: tokio::sync::Mutex<ScanRound>,
    objects: Option<Arc<ColdObjects>>,
    /// The age at which messages become cold; `None` if no conversation is to be listed for that.
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

    /// Sets where cold messages are, and the age at which messages go there.
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
