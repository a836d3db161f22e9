//! R13: a slow reader costs itself only; and the ways in which a session ends.

use std::time::Duration;

use bluetick_protocol::ErrorCode;
use tokio::time::Instant;

use crate::harness::{Setup, TestDevice, World, phone, tablet};

#[tokio::test(start_paused = true)]
async fn a_socket_that_takes_nothing_ends_and_its_messages_come_back() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    bob.take_only(1);
    for n in 1..=3 {
        world.send("alice", "bob", &format!("m{n}")).await;
    }
    world.pass(Duration::from_secs(19)).await;
    assert!(!bob.has_ended());
    world.pass(Duration::from_secs(5)).await;
    assert!(bob.has_ended());
    let bob = world.connected(phone("bob")).await;
    assert_eq!(bob.bodies(), ["m2", "m3"]);
}

#[tokio::test(start_paused = true)]
async fn a_socket_that_takes_slowly_and_steadily_stays() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    for n in 0..100 {
        bob.take_only(1);
        for half in 0..2 {
            world.send("alice", "bob", &format!("m{n}.{half}")).await;
        }
        world.pass(Duration::from_millis(500)).await;
    }
    assert!(!bob.has_ended(), "it took a frame every half second");
    bob.take_only(usize::MAX);
    world.quiet().await;
    assert_eq!(bob.messages().len(), 200);
}

/// A write that had to wait ends like any other: what waited for its room goes out behind it, without a sign of anybody.
#[tokio::test(start_paused = true)]
async fn what_waited_for_room_follows_a_write_that_had_to_wait() {
    let world = World::new();
    for n in 1..=200 {
        world.send("alice", "bob", &format!("m{n}")).await;
    }
    for taken_first in [1, 40, 63, 64, 65] {
        let bob = world.connect(TestDevice::new("bob", "phone").without_acks());
        bob.take_only(taken_first);
        world.pass(Duration::from_millis(100)).await;
        assert!(bob.messages().len() < 66, "{} frames were taken", bob.frames().len());
        bob.take_only(usize::MAX);
        world.pass(Duration::from_millis(100)).await;
        assert_eq!(bob.messages().len(), 200, "with {taken_first} taken at first");
        bob.vanish().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stuck_reader_holds_up_neither_senders_nor_the_other_device() {
    let world = World::new();
    let stuck = world.connected(phone("bob")).await;
    stuck.take_only(0);
    let on_tablet = world.connected(tablet("bob")).await;
    let alice = world.connected(phone("alice")).await;
    let began = Instant::now();
    for n in 0..600 {
        world.send("alice", "bob", &format!("m{n}")).await;
    }
    assert!(began.elapsed() < Duration::from_secs(1), "the sends took {:?}", began.elapsed());
    world.quiet().await;
    assert_eq!(on_tablet.messages().len(), 600);
    assert_eq!(alice.messages().len(), 600, "and so do the sender's own devices");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_heard_no_more_is_ended() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    bob.take_only(0);
    world.pass(Duration::from_secs(60)).await;
    assert!(bob.has_ended());
    assert!(world.registered("bob").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_second_connection_of_a_device_replaces_the_first() {
    let world = World::new();
    let first = world.connected(phone("bob")).await;
    let other = world.connected(tablet("bob")).await;
    let second = world.connected(phone("bob").at_gateway("g2")).await;
    assert_eq!(first.bye(), Some(ErrorCode::Replaced));
    assert!(first.has_ended());
    world.send("alice", "bob", "hello").await;
    world.quiet().await;
    assert_eq!((second.bodies(), other.bodies()), (vec!["hello".to_owned()], vec!["hello".to_owned()]));
    assert_eq!((second.bye(), other.bye()), (None, None));
}

#[tokio::test(start_paused = true)]
async fn the_oldest_of_too_many_sessions_ends() {
    let mut setup = Setup::default();
    setup.session.max_sessions = 2;
    let world = World::with(setup);
    let mut sessions = Vec::new();
    for device in ["d1", "d2", "d3"] {
        world.clock.advance(1);
        sessions.push(world.connected(TestDevice::new("bob", device)).await);
    }
    let byes: Vec<_> = sessions.iter().map(|s| s.bye()).collect();
    assert_eq!(byes, [Some(ErrorCode::TooManySessions), None, None]);
    assert_eq!(world.registered("bob").await, ["d2", "d3"]);
}
