//! R13: the window of unacked messages is the only queue to a session.

use std::time::Duration;

use bluetick_protocol::{ErrorCode, Seq};

use crate::harness::{Setup, World, phone, tablet};

fn world_with_window(window: usize) -> World {
    let mut setup = Setup::default();
    setup.session.window = window;
    World::with(setup)
}

async fn send_many(world: &World, count: usize) {
    for n in 1..=count {
        world.send("alice", "bob", &format!("m{n}")).await;
    }
    world.quiet().await;
}

#[tokio::test(start_paused = true)]
async fn who_does_not_ack_gets_a_window_and_no_more() {
    let world = world_with_window(4);
    let live = world.connected(phone("bob").without_acks()).await;
    send_many(&world, 10).await;
    assert_eq!(live.seqs(), [1, 2, 3, 4]);
    live.vanish().await;
    let drained = world.connected(phone("bob").without_acks()).await;
    assert_eq!(drained.seqs(), [1, 2, 3, 4]);
    assert!(drained.caught_up().is_empty(), "there is more before that");
}

#[tokio::test(start_paused = true)]
async fn acks_open_the_window_by_as_much_as_they_cover() {
    let world = world_with_window(4);
    let bob = world.connected(phone("bob").without_acks()).await;
    send_many(&world, 12).await;
    for (ack, last) in [(1, 5), (3, 7), (2, 7), (7, 11), (11, 12)] {
        bob.ack("alice~bob", ack);
        world.quiet().await;
        assert_eq!(bob.seqs(), (1..=last).collect::<Vec<Seq>>(), "after the ack of {ack}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_window_spans_conversations() {
    let world = world_with_window(3);
    let bob = world.connected(phone("bob").without_acks()).await;
    for friend in ["alice", "carol", "dave", "erin"] {
        world.send(friend, "bob", friend).await;
    }
    world.quiet().await;
    assert_eq!(bob.bodies(), ["alice", "carol", "dave"]);
    bob.ack("bob~carol", 1);
    world.quiet().await;
    assert_eq!(bob.bodies(), ["alice", "carol", "dave", "erin"]);
}

#[tokio::test(start_paused = true)]
async fn own_sends_need_no_ack() {
    let world = world_with_window(2);
    let on_tablet = world.connected(tablet("bob").without_acks()).await;
    for n in 0..10 {
        world.send("bob", "alice", &format!("own{n}")).await;
    }
    world.quiet().await;
    assert_eq!(on_tablet.messages().len(), 10);
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(on_tablet.bye(), None, "nothing is waited for");
    on_tablet.vanish().await;
    assert_eq!(world.row("bob", "alice~bob").await, None, "nor owed");
}

#[tokio::test(start_paused = true)]
async fn a_window_that_nobody_acks_ends_the_session_and_the_rest_comes_after() {
    let world = world_with_window(4);
    let bob = world.connected(phone("bob").without_acks()).await;
    send_many(&world, 10).await;
    bob.ack("alice~bob", 2);
    world.pass(Duration::from_secs(29)).await;
    assert_eq!(bob.bye(), None);
    world.pass(Duration::from_secs(2)).await;
    assert_eq!(bob.bye(), Some(ErrorCode::SlowReader));
    assert_eq!(world.row("bob", "alice~bob").await, Some(3));
    let bob = world.connected(phone("bob")).await;
    assert_eq!(bob.seqs(), (3..=10).collect::<Vec<Seq>>());
    assert_eq!(bob.caught_up().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn acks_that_cover_nothing_new_do_not_keep_a_session_alive() {
    let world = world_with_window(4);
    let bob = world.connected(phone("bob").without_acks()).await;
    send_many(&world, 10).await;
    bob.ack("alice~bob", 1);
    for _ in 0..4 {
        world.pass(Duration::from_secs(10)).await;
        bob.ack("alice~bob", 1);
    }
    assert_eq!(bob.bye(), Some(ErrorCode::SlowReader));
}

#[tokio::test(start_paused = true)]
async fn who_acks_slowly_and_steadily_stays() {
    let world = world_with_window(2);
    let bob = world.connected(phone("bob").without_acks()).await;
    send_many(&world, 8).await;
    for seq in 1..=8 {
        world.pass(Duration::from_secs(20)).await;
        bob.ack("alice~bob", seq);
    }
    world.quiet().await;
    assert_eq!(bob.bye(), None);
    assert_eq!(bob.messages().len(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_wakes_up_gets_the_rest_in_order() {
    let world = world_with_window(3);
    let bob = world.connected(phone("bob").without_acks()).await;
    for n in 0..20 {
        world.send(["alice", "carol", "dave"][n % 3], "bob", &format!("m{n}")).await;
    }
    world.quiet().await;
    assert_eq!(bob.messages().len(), 3);
    bob.start_acking();
    for message in bob.messages() {
        bob.ack(message.conversation_id.as_str(), message.seq);
    }
    world.quiet().await;
    let expected: Vec<_> = (0..20).map(|n| format!("m{n}")).collect();
    assert_eq!(bob.bodies(), expected);
}
