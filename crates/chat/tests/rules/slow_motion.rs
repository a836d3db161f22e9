//! An onlooker who wants to see everything slowly changes when things happen, and nothing else.

use std::time::Duration;

use bluetick_chat::{Onlookers, Onlooking};
use bluetick_protocol::ErrorCode;

use crate::harness::{World, phone, user};

/// The slowest there is.
const PACE: Duration = Duration::from_millis(1_500);
const ENOUGH: Duration = Duration::from_secs(60);

fn watch(world: &World) -> Onlooking {
    let users = ["alice", "bob"].map(user).into_iter().collect();
    Onlookers::watch(&world.node.trace(), users, PACE, 1).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_sender_who_leaves_in_the_middle_of_it_has_sent() {
    let world = World::new();
    let (alice, bob) = (world.connected(phone("alice")).await, world.connected(phone("bob")).await);
    let _slow = watch(&world);
    alice.send("bob", "one");
    alice.send("bob", "two");
    // After the first lookup, before anything is stored.
    world.pass(PACE / 2).await;
    assert_eq!(bob.bodies(), [""; 0]);
    alice.start_to_vanish();
    world.pass(ENOUGH).await;
    assert_eq!(bob.bodies(), ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn who_acks_and_leaves_has_acked_and_the_sender_is_told() {
    let world = World::new();
    let (alice, bob) =
        (world.connected(phone("alice")).await, world.connected(phone("bob").without_acks()).await);
    alice.send("bob", "one");
    world.quiet().await;
    let _slow = watch(&world);
    bob.ack("alice~bob", 1);
    world.quiet().await;
    bob.start_to_vanish();
    world.pass(ENOUGH).await;
    let delivered: Vec<_> = alice.ticks().iter().map(|ticks| ticks.last_delivered_seq).collect();
    assert_eq!(delivered, [1]);
    assert_eq!(world.row("bob", "alice~bob").await, None, "nothing is owed");
}

#[tokio::test(start_paused = true)]
async fn what_waits_comes_one_by_one_and_no_deadline_runs_for_it() {
    let world = World::new();
    // Own messages need no ack, and are in front of the one that does.
    let cursor = world.cursor_now();
    for n in 0..30 {
        world.send("bob", "alice", &format!("own-{n}")).await;
    }
    world.send("alice", "bob", "hers").await;
    let _slow = watch(&world);
    let bob = world.connect(phone("bob").with_cursor(cursor));
    world.pass(PACE * 4).await;
    let first = bob.messages().len();
    assert!((1..=4).contains(&first), "one by one: {first}");
    world.pass(PACE * 40).await;
    assert_eq!(bob.bodies().last().map(String::as_str), Some("hers"));
    assert_eq!((bob.messages().len(), bob.bye()), (31, None::<ErrorCode>));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_closes_pays_its_debts_and_wakes_who_came_meanwhile() {
    let world = World::new();
    let bob = world.connected(phone("bob").without_acks()).await;
    world.send("alice", "bob", "one").await;
    let _slow = watch(&world);
    bob.start_to_vanish();
    world.pass(ENOUGH).await;
    assert_eq!(world.row("bob", "alice~bob").await, Some(1));
    let again = world.connect(phone("bob"));
    world.pass(ENOUGH).await;
    assert_eq!(again.bodies(), ["one"]);
}
