//! R7: live delivery is the same stream, already caught up. What comes out of order is read in order.

use std::time::Duration;

use crate::harness::{Client, Gate, StoreMethod, World, phone, rows_alone, tablet};

/// A worker has committed this message for a user whose session it had found, and has handed it to nobody yet.
async fn committed_by_a_slow_worker(world: &World, body: &str) -> Gate {
    world.clock.advance(1);
    let mut committed = world.steps.stop_after(StoreMethod::CommitSends, body);
    // Nobody waits for it: what it does is seen at the receiver.
    drop(world.sending("alice", "bob", body));
    committed.reached().await;
    committed
}

#[tokio::test(start_paused = true)]
async fn a_message_that_overtook_another_waits_for_it() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    world.send("alice", "bob", "41").await;
    let slow = committed_by_a_slow_worker(&world, "42").await;
    world.send("alice", "bob", "43").await;
    world.quiet().await;
    assert_eq!(bob.bodies(), ["41", "42", "43"], "a seq that is not the next one triggers a read");
    slow.open();
    world.quiet().await;
    assert_eq!(bob.seqs(), [1, 2, 3], "and is not sent twice");
}

#[tokio::test(start_paused = true)]
async fn three_workers_in_any_order_make_one_order() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    let mut workers = Vec::new();
    for body in ["1", "2", "3", "4"] {
        workers.push(committed_by_a_slow_worker(&world, body).await);
    }
    for worker in [3, 1, 1, 0] {
        workers.remove(worker).open();
        world.quiet().await;
    }
    assert_eq!(bob.seqs(), [1, 2, 3, 4]);
}

/// Bob connects anew, without a cursor, after a slow worker had committed a message for his old session. He finds nothing:
/// his plan knows pending rows alone, as it is where a message is committed right after the plan was made.
async fn new_session_after_a_slow_worker(world: &World) -> (Gate, Client) {
    let old = world.connected(phone("bob")).await;
    let slow = committed_by_a_slow_worker(world, "slow").await;
    old.vanish().await;
    world.pass(Duration::from_secs(5)).await;
    let bob = world.connected(phone("bob")).await;
    assert!(bob.messages().is_empty(), "there is no row, and he has no cursor");
    (slow, bob)
}

#[tokio::test(start_paused = true)]
async fn a_message_older_than_the_session_comes_before_the_newer_one() {
    let world = World::under(rows_alone([]));
    let (slow, bob) = new_session_after_a_slow_worker(&world).await;
    world.pass(Duration::from_secs(600)).await;
    world.send("alice", "bob", "fast").await;
    world.quiet().await;
    assert_eq!(bob.bodies(), ["slow", "fast"], "no device had it: an ack of the newer one would cover it");
    slow.open();
    world.quiet().await;
    assert_eq!(bob.seqs(), [1, 2], "and not again when its worker goes on");
}

#[tokio::test(start_paused = true)]
async fn a_message_older_than_the_session_that_comes_during_its_first_read_is_not_forgotten() {
    let world = World::under(rows_alone([]));
    let (slow, bob) = new_session_after_a_slow_worker(&world).await;
    let mut reading = world.steps.stop_before(StoreMethod::ReadFrom, "alice~bob");
    world.send("alice", "bob", "fast").await;
    reading.reached().await;
    slow.open();
    world.quiet().await;
    reading.open();
    world.quiet().await;
    assert_eq!(bob.bodies(), ["slow", "fast"]);
}

#[tokio::test(start_paused = true)]
async fn own_messages_keep_their_place_among_the_others() {
    let world = World::new();
    let on_tablet = world.connected(tablet("bob")).await;
    let on_phone = world.connected(phone("bob")).await;
    world.send("alice", "bob", "question").await;
    on_phone.send("alice", "answer");
    world.quiet().await;
    world.send("alice", "bob", "thanks").await;
    world.quiet().await;
    assert_eq!(on_tablet.bodies(), ["question", "answer", "thanks"]);
    assert_eq!(on_phone.bodies(), ["question", "thanks"], "who sent it is told sent, and gets no copy");
    assert_eq!(on_phone.sent(), [(2, false)]);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_quiet_for_long_goes_on_where_it_was() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    for n in 1..=3 {
        world.send("alice", "bob", &format!("m{n}")).await;
        world.pass(Duration::from_secs(300)).await;
    }
    assert_eq!(bob.seqs(), [1, 2, 3]);
    assert_eq!(bob.caught_up().len(), 1);
}
