//! A subscriber sees the steps of delivery in their order, and changes nothing: delivery never waits for one.

use bluetick_chat::{Subscription, TraceStep};
use tokio::time::Instant;

use crate::harness::{World, phone, user};

fn subscribe(world: &World) -> Subscription {
    let users = ["alice", "bob"].map(user).into_iter().collect();
    world.node.observer().subscribe(users, 1).unwrap()
}

/// What has happened so far.
async fn steps(subscription: Subscription, world: &World) -> Vec<TraceStep> {
    let mut subscription = subscription;
    world.node.observer().close();
    let mut steps = Vec::new();
    while let Some(event) = subscription.next().await {
        steps.push(event.step);
    }
    steps
}

#[tokio::test(start_paused = true)]
async fn the_steps_come_in_the_order_of_the_rules() {
    use TraceStep::*;
    let world = World::new();
    let subscription = subscribe(&world);
    world.send("alice", "bob", "one").await;
    let bob = world.connected(phone("bob")).await;
    world.quiet().await;
    assert_eq!(bob.bodies(), ["one"]);
    let steps = steps(subscription, &world).await;
    let offline = [LookedUp, Stored, PendingRow, LookedAgain, Sent];
    assert_eq!(steps[..5], offline);
    assert_eq!(steps[5..7], [Registered, Drained]);
    let at = |step| steps.iter().position(|&one| one == step);
    assert!(at(Acked) < at(RowGone) && at(RowGone).is_some(), "{steps:?}");
}

#[tokio::test(start_paused = true)]
async fn delivery_waits_for_no_subscriber_and_drops_one_that_falls_behind() {
    let world = World::new();
    let mut never_reads = subscribe(&world);
    let bob = world.connected(phone("bob")).await;
    let began = Instant::now();
    for n in 0..300 {
        world.send("alice", "bob", &format!("{n}")).await;
    }
    assert_eq!(began.elapsed().as_millis(), 0, "a send does not wait");
    world.quiet().await;
    assert_eq!(bob.bodies().len(), 300);
    let mut received = 0;
    while never_reads.next().await.is_some() {
        received += 1;
    }
    assert!((1_000..300 * 6).contains(&received), "dropped when its queue was full: {received}");
    assert!(world.node.observer().subscribe(Default::default(), 1).is_some(), "its place is free");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_closes_while_somebody_watches_pays_its_debts_at_once() {
    let world = World::new();
    let bob = world.connected(phone("bob").without_acks()).await;
    world.send("alice", "bob", "one").await;
    let subscription = subscribe(&world);
    bob.start_to_vanish();
    world.quiet().await;
    assert_eq!(world.row("bob", "alice~bob").await, Some(1));
    let again = world.connected(phone("bob")).await;
    assert_eq!(again.bodies(), ["one"]);
    let steps = steps(subscription, &world).await;
    assert_eq!(steps[..2], [TraceStep::Unregistered, TraceStep::PendingRow]);
}
