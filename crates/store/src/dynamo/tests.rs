//! Interleavings and crashes between two steps, against real servers: writers that overtake each
//! other, holes, and leases that end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bluetick_protocol::{
    ConversationId, DeviceId, MessageId, PushContent, PushRegistration, PushTarget, Seq, Side, UserId,
};
use tokio::time::Instant;

use super::{messages::StoredMessage, push_outbox::owed_item, write::Transacted, *};
use crate::{
    Conversations as _, DeviceRow, Devices as _, Maintenance as _, ManualClock, Message, MessageStatus as _,
    Messages as _, NewMessage, OwedPush, PageLimit, PendingDeliveries as _, PushOutbox as _, RedisConfig,
    RedisMode, Store, conformance::START_MS, testing::message,
};

mod claims;
mod cold;
mod outages;
mod probe;

fn service(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run `scripts/services start`, then eval \"$(scripts/services env)\"")
    })
}

struct DynamoFixture {
    rows: Arc<DynamoStore>,
    clock: Arc<ManualClock>,
    id: ConversationId,
}

async fn world() -> DynamoFixture {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let name = format!("u{}x{}-", since.as_micros(), NEXT.fetch_add(1, Ordering::Relaxed));
    let clock = Arc::new(ManualClock::new(START_MS));
    let dynamo = DynamoConfig {
        endpoint: Some(service("BLUETICK_TEST_DYNAMODB")),
        table_prefix: name.clone(),
        deadline: Duration::from_secs(20),
        ..DynamoConfig::default()
    };
    let redis = RedisConfig {
        urls: vec![service("BLUETICK_TEST_REDIS")],
        mode: RedisMode::Single,
        prefix: name,
        deadline: Duration::from_secs(5),
    };
    let dynamo = Dynamo::new(dynamo).await.unwrap();
    let options = CreateOptions {
        ttl: false,
        point_in_time_recovery: false,
        deletion_protection: false,
        ..CreateOptions::default()
    };
    create_tables(&dynamo, &options).await.unwrap();
    let redis = Redis::new(redis).unwrap();
    let rows = Arc::new(DynamoStore::new(dynamo, redis, clock.clone(), 30 * 24 * 3_600_000));
    DynamoFixture { rows, clock, id: ConversationId::new("alice~bob").unwrap() }
}

impl DynamoFixture {
    fn new_message(&self, name: &str) -> NewMessage {
        message(&self.id, Side::Low, name)
    }

    async fn send(&self, name: &str) -> (Seq, bool) {
        let sent = self.rows.commit_sends(vec![self.new_message(name)]).await.remove(0).unwrap();
        (sent.message.seq, sent.duplicate)
    }

    /// Stores a message and dies before its rows are written.
    async fn store_only(&self, name: &str) -> StoredMessage {
        let seq = self.rows.redis.take_seq(&self.id).await.unwrap();
        let seq = match seq {
            Some(seq) => seq,
            None => {
                self.rows
                    .redis
                    .raise_seq(&self.id, self.rows.last_seq(&self.id).await.unwrap())
                    .await
                    .unwrap();
                self.rows.redis.take_seq(&self.id).await.unwrap().unwrap()
            }
        };
        self.store_at(name, seq).await.expect("the seq is free")
    }

    async fn store_at(&self, name: &str, seq: Seq) -> Option<StoredMessage> {
        let minted = self.rows.lease.mint().await.unwrap();
        let message = Arc::new(self.new_message(name).into_message(seq, minted, self.clock.now_ms()));
        let writes = self.rows.transaction_of([&message]);
        match self.rows.dynamo.transact(&writes).await.unwrap() {
            Transacted::Done => Some(StoredMessage { message, hole: false }),
            Transacted::Refused(_) => None,
        }
    }

    async fn bobs(&self) -> Option<(Seq, u64)> {
        let bob = UserId::new("bob").unwrap();
        let row = self.rows.conversation(&bob, &self.id).await.unwrap();
        row.map(|row| (row.last_seq, row.unread_count))
    }

    async fn stored(&self) -> Vec<Arc<Message>> {
        self.rows.read_from(&self.id, 1, PageLimit::messages(100)).await.unwrap()
    }
}

#[tokio::test]
async fn a_crash_before_the_rows_is_made_good_by_the_retry() {
    let t = world().await;
    t.send("a").await;
    t.store_only("b").await;
    assert_eq!(t.bobs().await, Some((1, 1)), "the rows do not know it yet");
    t.clock.advance(120_000);
    assert_eq!(t.send("b").await, (2, true));
    assert_eq!(t.bobs().await, Some((2, 2)));
    let bob = UserId::new("bob").unwrap();
    let row = t.rows.conversation(&bob, &t.id).await.unwrap().unwrap();
    assert_eq!(row.last_message_ts, START_MS + 120_000, "a device that resumed meanwhile must meet it");
    let active = t.rows.active_since(&bob, START_MS + 60_000, 10).await.unwrap();
    assert_eq!(active.len(), 1);
    assert_eq!(t.send("b").await, (2, true));
    assert_eq!(t.bobs().await, Some((2, 2)), "and it is counted once");
}

#[tokio::test]
async fn what_a_crash_left_unowed_is_owed_by_the_retry() {
    let t = world().await;
    let bob = UserId::new("bob").unwrap();
    t.send("a").await;
    t.store_only("b").await;
    assert_eq!(t.rows.owed_to(&bob).await.unwrap(), []);
    let offline = t.new_message("b").undelivered(true).push_due(START_MS);
    let again = t.rows.commit_sends(vec![offline.clone()]).await.remove(0).unwrap();
    assert!(again.duplicate);
    let owed = t.rows.owed_to(&bob).await.unwrap();
    assert_eq!(owed, [OwedPush::of_message(&again.message, START_MS)]);
    assert_eq!(t.rows.pending_row(&bob, &t.id).await.unwrap(), Some(2));

    // Once it was notified, or acked, a retry that comes late owes nothing more.
    t.rows.paid(&owed[0]).await.unwrap();
    t.rows.raise_notified(&bob, &t.id, 2).await.unwrap();
    assert!(t.rows.commit_sends(vec![offline.clone()]).await.remove(0).unwrap().duplicate);
    assert_eq!(t.rows.owed_to(&bob).await.unwrap(), []);
    t.store_only("c").await;
    t.rows.advance(&bob, &t.id, 3, 0).await.unwrap();
    let acked = t.new_message("c").undelivered(true).push_due(START_MS);
    assert!(t.rows.commit_sends(vec![acked]).await.remove(0).unwrap().duplicate);
    assert_eq!(t.rows.owed_to(&bob).await.unwrap(), []);
}

#[tokio::test]
async fn sends_that_come_together_owe_the_last_of_them() {
    let t = world().await;
    let bob = UserId::new("bob").unwrap();
    let offline = |name: &str, push_due| t.new_message(name).undelivered(true).push_due(push_due);
    let batch = vec![offline("m1", Some(5)), offline("m2", Some(6)), offline("m3", None)];
    let sent = t.rows.commit_sends(batch).await.remove(1).unwrap();
    assert_eq!(sent.message.seq, 2);
    assert_eq!(t.rows.owed_to(&bob).await.unwrap(), [OwedPush::of_message(&sent.message, 6)]);
    assert_eq!(t.rows.pending_row(&bob, &t.id).await.unwrap(), Some(1), "and the row has the first");
}

#[tokio::test]
async fn a_crash_before_the_rows_is_made_good_by_the_next_message() {
    let t = world().await;
    t.store_only("a").await;
    assert_eq!(t.bobs().await, None);
    t.store_only("b").await;
    assert_eq!(t.send("c").await, (3, false));
    assert_eq!(t.bobs().await, Some((3, 3)));
}

#[tokio::test]
async fn rows_may_be_written_in_any_order_and_any_number_of_times() {
    let t = world().await;
    t.send("m1").await;
    let mut stored = Vec::new();
    for name in ["m2", "m3", "m4"] {
        stored.push(t.store_only(name).await);
    }
    for place in [2, 0, 1, 2, 0] {
        t.rows.show_sent(Side::High, &stored[place..=place], None).await.unwrap();
        assert_eq!(t.bobs().await, Some((4, 4)), "after the row of message {}", place + 2);
    }
}

#[tokio::test]
async fn unread_is_exact_while_there_is_a_hole_and_after_it() {
    let t = world().await;
    t.send("m1").await;
    let leaked = t.rows.redis.take_seq(&t.id).await.unwrap().unwrap();
    assert_eq!(leaked, 2);
    assert_eq!(t.send("m3").await, (3, false));
    assert_eq!(t.bobs().await, Some((3, 2)), "what follows the hole is shown and counted");
    let row = t.rows.row(&t.id, Side::High).await.unwrap();
    assert!(row.has_gap() && row.unread == 1, "but not yet for good");

    // The late writer comes after all.
    let late = t.store_at("m2", 2).await.expect("nobody closed the hole");
    t.rows.show_sent(Side::High, &[late], None).await.unwrap();
    assert_eq!(t.bobs().await, Some((3, 3)));
    assert!(!t.rows.row(&t.id, Side::High).await.unwrap().has_gap());
}

#[tokio::test]
async fn an_old_hole_is_closed_by_the_next_message_and_its_late_writer_fails() {
    let t = world().await;
    t.send("m1").await;
    assert_eq!(t.rows.redis.take_seq(&t.id).await.unwrap(), Some(2));
    t.send("m3").await;
    t.clock.advance(10_000);
    t.send("m4").await;
    let stored: Vec<_> = t.stored().await.iter().map(|m| (m.seq, m.void)).collect();
    assert_eq!(stored, [(1, false), (2, true), (3, false), (4, false)]);
    assert_eq!(t.bobs().await, Some((4, 3)), "a void is not unread");
    assert!(t.store_at("m2", 2).await.is_none(), "the hole is closed");
    assert_eq!(t.send("m2").await, (5, false), "so its writer takes a new seq");
    assert_eq!(t.bobs().await, Some((5, 4)));
}

#[tokio::test]
async fn a_read_of_what_no_row_shows_yet_is_kept() {
    let t = world().await;
    let bob = UserId::new("bob").unwrap();
    t.send("m1").await;
    let second = t.store_only("m2").await;
    // A session read it from the table before its row was written.
    let advanced = t.rows.advance(&bob, &t.id, 2, 2).await.unwrap();
    assert_eq!((advanced.row.last_delivered_seq, advanced.row.last_read_seq), (2, 2));
    t.rows.show_sent(Side::High, &[second], None).await.unwrap();
    assert_eq!(t.bobs().await, Some((2, 0)), "what was read is not unread again");
}

#[tokio::test]
async fn a_node_without_a_lease_mints_nothing() {
    let t = world().await;
    let first = t.rows.lease.mint().await.unwrap();
    let node = |id: MessageId| (id.0 >> 12) & 1023;
    t.rows.lease.expire_for_test(Instant::now());
    let second = t.rows.lease.mint().await.unwrap();
    assert!(second > first, "ids grow from lease to lease");
    assert_ne!(node(first), node(second), "its own number is still taken, by itself");

    // Nobody answers: there is no way to prove anything.
    let nowhere = DynamoConfig {
        endpoint: Some("http://127.0.0.1:9".into()),
        deadline: Duration::from_millis(300),
        ..DynamoConfig::default()
    };
    let lease = super::lease::Lease::new(Dynamo::new(nowhere).await.unwrap(), t.clock.clone());
    assert!(matches!(lease.mint().await, Err(StoreError::Unavailable { .. })));
}

#[tokio::test]
async fn whoever_takes_a_number_next_mints_later_ids() {
    let t = world().await;
    t.clock.advance(50_000);
    let last = t.rows.lease.mint().await.unwrap();
    t.rows.lease.release().await;
    // The next holder's clock is behind; its lease says how far the one before went.
    let clock = Arc::new(ManualClock::new(START_MS + 40_000));
    let next = super::lease::Lease::new(t.rows.dynamo.clone(), clock);
    next.only_for_test(((last.0 >> 12) & 1023) as u16);
    let taken = next.mint().await;
    assert!(taken.is_err(), "to a clock that is behind, the lease has not ended");
    let clock = Arc::new(ManualClock::new(START_MS + 59_000));
    let next = super::lease::Lease::new(t.rows.dynamo.clone(), clock);
    next.only_for_test(((last.0 >> 12) & 1023) as u16);
    assert!(next.mint().await.unwrap() > last);
}

#[tokio::test]
async fn the_tables_are_checked() {
    let t = world().await;
    let wrong = |findings: Vec<Finding>| -> Vec<String> {
        findings.into_iter().filter(|f| f.wrong).map(|f| f.to_string()).collect()
    };
    let found = wrong(check_tables(&t.rows.dynamo).await.unwrap());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("sent_ids") && found[0].contains("expires_at"), "no TTL yet: {found:?}");
    let options = CreateOptions { deletion_protection: false, ..CreateOptions::default() };
    create_tables(&t.rows.dynamo, &options).await.unwrap();
    assert_eq!(wrong(check_tables(&t.rows.dynamo).await.unwrap()), [""; 0]);

    let name = t.rows.dynamo.name_of(Table::Users);
    t.rows.dynamo.client().delete_table().table_name(&name).send().await.unwrap();
    let found = wrong(check_tables(&t.rows.dynamo).await.unwrap());
    assert!(found.len() == 1 && found[0].contains("is missing"), "{found:?}");
}

/// The process dies between the transaction and the rows, and the send is never repeated.
#[tokio::test]
async fn an_erasure_finds_a_first_message_whose_rows_were_never_written() {
    let world = world().await;
    world.store_only("orphaned").await;
    let (alice, bob) = (UserId::new("alice").unwrap(), UserId::new("bob").unwrap());
    assert_eq!(world.bobs().await, None, "no row shows it");
    assert_eq!(world.rows.conversation(&alice, &world.id).await.unwrap(), None);
    assert_eq!(
        world.rows.memberships(&alice).await.unwrap(),
        std::slice::from_ref(&world.id),
        "and it is found"
    );
    assert_eq!(world.rows.memberships(&bob).await.unwrap(), [], "there is nothing of the receiver's");
    assert_eq!(world.rows.erase_member(&alice, &world.id).await.unwrap(), 1);
    let left = world.rows.read_from(&world.id, 1, PageLimit::messages(10)).await.unwrap();
    assert!(left.iter().all(|message| message.void && message.body.is_empty()), "{left:?}");
}

/// The row that was begun with a message becomes what it would have been without.
#[tokio::test]
async fn a_row_that_was_begun_with_its_message_is_completed() {
    let world = world().await;
    let alices = async || {
        let alice = UserId::new("alice").unwrap();
        let row = world.rows.conversation(&alice, &world.id).await.unwrap();
        row.map(|row| (row.last_seq, row.last_message_preview))
    };
    world.store_only("orphaned").await;
    assert_eq!(alices().await, None);
    assert_eq!(world.send("orphaned").await, (1, true), "the send is repeated");
    assert_eq!(alices().await, Some((1, "orphaned".to_owned())));
    assert_eq!(world.bobs().await, Some((1, 1)));
    assert_eq!(world.send("second").await, (2, false));
    assert_eq!(alices().await, Some((2, "second".to_owned())));
    assert_eq!(world.bobs().await, Some((2, 2)));
}

#[tokio::test]
async fn a_receipt_closes_the_holes_before_it() {
    let world = world().await;
    let bob = UserId::new("bob").unwrap();
    assert_eq!(world.send("one").await, (1, false));
    let late = world.rows.redis.take_seq(&world.id).await.unwrap().unwrap();
    assert_eq!((late, world.send("three").await), (2, (3, false)));
    let advanced = world.rows.advance(&bob, &world.id, 3, 3).await.unwrap();
    assert_eq!((advanced.row.last_delivered_seq, advanced.row.last_read_seq), (3, 3));
    assert!(world.store_at("late", late).await.is_none(), "nothing appears behind what is acked");
    assert_eq!(world.bobs().await, Some((3, 0)));
    // A receipt that speaks of the hole itself closes it, too.
    let late = world.rows.redis.take_seq(&world.id).await.unwrap().unwrap();
    assert_eq!((late, world.send("five").await), (4, (5, false)));
    let advanced = world.rows.advance(&bob, &world.id, 4, 0).await.unwrap();
    assert_eq!(advanced.row.last_delivered_seq, 4);
    assert!(world.store_at("late", late).await.is_none());
    assert_eq!(world.bobs().await, Some((5, 1)));
}

/// Rows that have not been written yet hide nothing whose send was answered.
#[tokio::test]
async fn undelivered_is_known_behind_a_hole() {
    let world = world().await;
    let bob = UserId::new("bob").unwrap();
    assert_eq!(world.send("one").await, (1, false));
    world.rows.advance(&bob, &world.id, 1, 1).await.unwrap();
    let undelivered = async || world.rows.undelivered(&bob, None, 10).await.unwrap().conversations;
    assert_eq!(undelivered().await, []);
    world.rows.redis.take_seq(&world.id).await.unwrap();
    assert_eq!(world.send("three").await, (3, false));
    assert_eq!(undelivered().await, std::slice::from_ref(&world.id));
}
