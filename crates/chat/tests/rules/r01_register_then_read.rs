//! R1: a session registers before it reads what is pending.

use bluetick_sim::{Breach, Breaches};

use crate::harness::{StoreMethod, World, phone, rows_alone};

/// Bob connects, and Alice writes while his pending rows have been read and are not yet with him.
async fn what_arrives_while_rows_are_read(breaches: Breaches) -> Vec<String> {
    let world = World::under(breaches);
    let mut reading = world.steps.stop_after(StoreMethod::PendingOf, "bob");
    let bob = world.connect(phone("bob"));
    reading.reached().await;
    world.send("alice", "bob", "between").await;
    reading.open();
    world.quiet().await;
    assert_eq!(bob.caught_up().len(), 1);
    bob.bodies()
}

#[tokio::test(start_paused = true)]
async fn a_message_that_arrives_while_the_rows_are_read_is_delivered() {
    assert_eq!(what_arrives_while_rows_are_read(Breaches::default()).await, ["between"]);
    let without = what_arrives_while_rows_are_read(rows_alone([Breach::R1])).await;
    assert!(without.is_empty(), "read before it registered, a session misses it: {without:?}");
}

#[tokio::test(start_paused = true)]
async fn a_message_between_registering_and_reading_is_delivered_once() {
    let world = World::new();
    let mut registered = world.steps.stop_after(StoreMethod::Register, "bob");
    let bob = world.connect(phone("bob"));
    registered.reached().await;
    world.send("alice", "bob", "between").await;
    assert_eq!(world.row("bob", "alice~bob").await, None, "the session took it: no row is needed");
    registered.open();
    world.quiet().await;
    assert_eq!(bob.seqs(), [1]);
    assert_eq!(bob.caught_up().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_before_the_plan_is_there() {
    let world = World::new();
    world.send("alice", "bob", "pending").await;
    let mut reading = world.steps.stop_before(StoreMethod::PendingOf, "bob");
    let bob = world.connect(phone("bob"));
    reading.reached().await;
    world.send("alice", "bob", "live").await;
    world.quiet().await;
    assert!(bob.messages().is_empty(), "the live one would come before the pending one");
    reading.open();
    world.quiet().await;
    assert_eq!(bob.bodies(), ["pending", "live"]);
}
