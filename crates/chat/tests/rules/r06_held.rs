//! R6: a device that comes right back, and says so, is spared what it acked, and nothing else.

use std::time::Duration;

use crate::harness::{Client, Gate, Step, World, phone};

#[tokio::test(start_paused = true)]
async fn a_device_that_comes_right_back_is_spared_what_it_acked() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    world.send("alice", "bob", "acked").await;
    world.quiet().await;
    let (first, restarted) = (phone("bob").resuming(&bob), phone("bob"));
    bob.vanish().await;
    world.send("alice", "bob", "meanwhile").await;
    let bob = world.connected(first.with_cursor(world.cursor_now())).await;
    assert_eq!(bob.bodies(), ["meanwhile"]);
    assert_eq!(bob.caught_up().len(), 1);
    bob.vanish().await;
    let bob = world.connected(restarted.with_cursor(world.cursor_now())).await;
    assert_eq!(bob.bodies(), ["acked", "meanwhile"], "one that was restarted may have lost what it acked");
}

/// A slow worker has committed "slow" for Bob's first session; his second one got and acked "fast" after it.
async fn acked_past_a_slow_worker(world: &World) -> (Gate, Client) {
    let first = world.connected(phone("bob")).await;
    let mut slow = world.steps.stop_after(Step::CommitSends, "slow");
    drop(world.sending("alice", "bob", "slow"));
    slow.reached().await;
    first.vanish().await;
    world.pass(Duration::from_secs(5)).await;
    let bob = world.connected(phone("bob")).await;
    world.send("alice", "bob", "fast").await;
    world.quiet().await;
    assert_eq!(bob.bodies(), ["fast"]);
    (slow, bob)
}

#[tokio::test(start_paused = true)]
async fn an_older_message_whose_row_comes_after_the_device_left_is_delivered() {
    let world = World::new();
    let (slow, bob) = acked_past_a_slow_worker(&world).await;
    bob.vanish().await;
    slow.open();
    world.quiet().await;
    let bob = world.connected(phone("bob").with_cursor(world.cursor_now())).await;
    assert!(bob.bodies().contains(&"slow".to_owned()), "{:?}", bob.bodies());
}

#[tokio::test(start_paused = true)]
async fn an_older_message_that_the_leaving_session_owed_is_delivered() {
    let world = World::new();
    let (slow, bob) = acked_past_a_slow_worker(&world).await;
    // It takes the message, and is gone before it has read it.
    let mut reading = world.steps.stop_before(Step::ReadFrom, "alice~bob");
    slow.open();
    reading.reached().await;
    bob.vanish().await;
    let bob = world.connected(phone("bob").with_cursor(world.cursor_now())).await;
    assert!(bob.bodies().contains(&"slow".to_owned()), "{:?}", bob.bodies());
}

#[tokio::test(start_paused = true)]
async fn what_another_gateway_lost_in_between_is_delivered() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    let cursor = bob.cursor();
    world.send("alice", "bob", "one").await;
    world.quiet().await;
    bob.vanish().await;
    let bob = world.connected(phone("bob").with_cursor(cursor).at_gateway("g2").without_acks()).await;
    world.send("alice", "bob", "two").await;
    world.quiet().await;
    assert!(bob.bodies().contains(&"two".to_owned()));
    world.crash("g2").await;
    let bob = world.connected(phone("bob").with_cursor(cursor)).await;
    assert!(bob.bodies().contains(&"two".to_owned()), "{:?}", bob.bodies());
}
