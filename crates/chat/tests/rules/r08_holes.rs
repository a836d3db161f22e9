//! R8: seqs are fenced, and a hole is closed before anything after it is delivered.

use std::time::Duration;

use bluetick_chat::{HistoryApi, ReceiptApi, ReceiptRequest};
use bluetick_protocol::HistoryQuery;
use bluetick_sim::{Breach, Breaches};

use crate::harness::{Client, Gate, StoreMethod, World, conversation, phone, user};

/// Bob has "first"; a writer took seq 2 and stands still; "third" is written after it.
async fn a_writer_stands_still(world: &World) -> (Client, Gate) {
    // An ack of the third would close the hole before it.
    let bob = world.connected(phone("bob").without_acks()).await;
    world.send("alice", "bob", "first").await;
    world.late_writers.write_late("late");
    let mut taken = world.steps.stop_after(StoreMethod::SeqTaken, "late");
    drop(world.sending("alice", "bob", "late"));
    taken.reached().await;
    assert_eq!(world.send("alice", "bob", "third").await, 3, "seq 2 is taken");
    (bob, taken)
}

/// The late writer writes long after the readers met its hole. Returns what Bob gets.
async fn a_hole_is_met_and_its_writer_comes_late(breaches: Breaches) -> Vec<String> {
    let world = World::under(breaches);
    let (bob, late) = a_writer_stands_still(&world).await;
    world.pass(Duration::from_secs(2)).await;
    late.open();
    world.pass(Duration::from_secs(2)).await;
    bob.bodies()
}

#[tokio::test(start_paused = true)]
async fn a_hole_is_closed_and_its_late_writer_takes_a_new_seq() {
    let with = a_hole_is_met_and_its_writer_comes_late(Breaches::default()).await;
    assert_eq!(with, ["first", "third", "late"]);
    let without = a_hole_is_met_and_its_writer_comes_late(Breaches::of([Breach::R8])).await;
    assert_eq!(without, ["first", "third"], "what is written behind what was delivered is lost");
}

#[tokio::test(start_paused = true)]
async fn a_hole_that_is_filled_in_a_moment_is_waited_for() {
    let world = World::new();
    let (bob, late) = a_writer_stands_still(&world).await;
    world.pass(Duration::from_millis(100)).await;
    assert_eq!(bob.bodies(), ["first"], "nothing is delivered past a hole");
    late.open();
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(bob.bodies(), ["first", "late", "third"]);
    assert_eq!(bob.seqs(), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_meets_a_hole_and_ends_all_the_same() {
    let world = World::new();
    world.send("alice", "bob", "one").await;
    let leaked = world.memory.leak_seq(&conversation("alice~bob"));
    world.send("alice", "bob", "three").await;
    let bob = world.connect(phone("bob"));
    world.pass(Duration::from_secs(1)).await;
    assert_eq!((leaked, bob.seqs()), (2, vec![1, 3]));
    assert_eq!(bob.caught_up().len(), 1);
    assert_eq!(world.row("bob", "alice~bob").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_row_may_point_at_a_hole() {
    let world = World::new();
    let id = conversation("alice~bob");
    world.send("alice", "bob", "one").await;
    let leaked = world.memory.leak_seq(&id);
    world.send("alice", "bob", "three").await;
    world.store.status.advance(&user("bob"), &id, 1, 0).await.unwrap();
    world.store.pending.settle(&user("bob"), &id, 1, Some(leaked)).await.unwrap();
    let bob = world.connect(phone("bob"));
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(bob.seqs(), [3]);
    assert_eq!(bob.caught_up().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn history_past_a_hole_never_changes_behind_its_reader() {
    let world = World::new();
    let (_bob, late) = a_writer_stands_still(&world).await;
    let query = HistoryQuery {
        reference: None,
        conversation_id: conversation("alice~bob"),
        after_seq: Some(0),
        before_seq: None,
        limit: None,
    };
    let page = world.node.history(user("bob"), query.clone()).await.unwrap();
    late.open();
    world.quiet().await;
    let again = world.node.history(user("bob"), query).await.unwrap();
    let seqs =
        |messages: &[bluetick_protocol::MessageFrame]| messages.iter().map(|m| m.seq).collect::<Vec<_>>();
    assert_eq!((seqs(&page.messages), page.from_seq, page.to_seq), (vec![1, 3], 1, 3));
    assert_eq!(seqs(&again.messages), [1, 3, 4], "the late one is after what was seen");
}

#[tokio::test(start_paused = true)]
async fn a_counter_that_fell_back_overwrites_nothing() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    for body in ["one", "two", "three"] {
        world.send("alice", "bob", body).await;
    }
    world.memory.fall_back(&conversation("alice~bob"), 1);
    assert_eq!(world.send("alice", "bob", "four").await, 4);
    world.quiet().await;
    assert_eq!(bob.bodies(), ["one", "two", "three", "four"]);
    assert_eq!(bob.seqs(), [1, 2, 3, 4]);
}

/// Bob marks a conversation as read by what his inbox shows of it. A writer that took a seq before that stands still.
#[tokio::test(start_paused = true)]
async fn a_receipt_does_not_overtake_a_late_message() {
    let world = World::new();
    world.late_writers.write_late("late");
    let mut taken = world.steps.stop_after(StoreMethod::SeqTaken, "late");
    let writer = world.sending("alice", "bob", "late");
    taken.reached().await;
    assert_eq!(world.send("alice", "bob", "second").await, 2, "seq 1 is taken");
    let shown = world.inbox("bob").await[0].last_seq;
    let request = ReceiptRequest {
        user: user("bob"),
        session: None,
        conversation_id: conversation("alice~bob"),
        seq: shown,
        again: false,
    };
    world.node.read(request).await.unwrap();
    taken.open();
    let late = writer.await.unwrap().unwrap();
    assert_eq!(late.seq, 3, "nothing appears behind what is acked");
    let status = world.status("alice", "alice~bob").await;
    assert!(status.peer.last_delivered_seq < late.seq, "its tick is its own: {status:?}");
    assert_eq!(world.unread("bob", "alice~bob").await, 1);
    assert_eq!(world.connected(phone("bob")).await.bodies(), ["second", "late"], "the row covers both");
}
