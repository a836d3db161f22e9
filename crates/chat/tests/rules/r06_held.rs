//! R6: a device that comes right back, and says so, is spared what it acked, and nothing else.

use crate::harness::{World, phone};

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
