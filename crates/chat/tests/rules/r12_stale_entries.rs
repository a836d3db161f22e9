//! R12: a stale registry entry is a miss.

use std::time::Duration;

use bluetick_protocol::{ErrorCode, Seq};
use bluetick_sim::{Breach, Breaches};
use tokio::time::Instant;

use crate::harness::{StoreMethod, World, phone, rows_alone, tablet};

/// The registry names a session that its gateway does not have. Returns the row, and what Bob gets when he comes.
async fn the_gateway_does_not_have_the_session(breaches: Breaches) -> (Option<Seq>, Vec<String>) {
    let world = World::under(breaches);
    world.leave_stale_entry("bob").await;
    world.send("alice", "bob", "hello").await;
    let row = world.row("bob", "alice~bob").await;
    (row, world.connected(phone("bob")).await.bodies())
}

#[tokio::test(start_paused = true)]
async fn a_message_for_a_stale_entry_takes_the_offline_path() {
    let with = the_gateway_does_not_have_the_session(Breaches::default()).await;
    assert_eq!(with, (Some(1), vec!["hello".to_owned()]));
    let without = the_gateway_does_not_have_the_session(rows_alone([Breach::R12])).await;
    assert_eq!(without, (None, vec![]), "handed to nobody");
}

#[tokio::test(start_paused = true)]
async fn a_stale_entry_is_removed_and_the_others_stay() {
    let world = World::new();
    world.leave_stale_entry("bob").await;
    let bob = world.connected(phone("bob")).await;
    assert_eq!(world.registered("bob").await, ["old", "phone"]);
    world.send("alice", "bob", "hello").await;
    world.quiet().await;
    assert_eq!(world.registered("bob").await, ["phone"]);
    assert_eq!(bob.bodies(), ["hello"]);
    assert_eq!(world.row("bob", "alice~bob").await, None, "a live session took it");
}

#[tokio::test(start_paused = true)]
async fn the_late_unregistering_of_a_replaced_session_leaves_the_new_one() {
    let world = World::new();
    let old = world.connected(phone("bob")).await;
    let mut leaving = world.steps.stop_before(StoreMethod::Unregister, "bob");
    let new = world.connect(phone("bob"));
    leaving.reached().await;
    leaving.open();
    world.quiet().await;
    assert_eq!(old.bye(), Some(ErrorCode::Replaced));
    assert_eq!(world.registered("bob").await, ["phone"]);
    world.send("alice", "bob", "hello").await;
    world.quiet().await;
    assert_eq!(new.bodies(), ["hello"]);
    assert!(old.has_ended() && !new.has_ended());
}

#[tokio::test(start_paused = true)]
async fn what_the_replaced_session_owed_goes_to_the_new_one() {
    let world = World::new();
    let old = world.connected(phone("bob").without_acks()).await;
    world.send("alice", "bob", "owed").await;
    world.quiet().await;
    assert_eq!(old.bodies(), ["owed"]);
    let new = world.connected(phone("bob")).await;
    assert_eq!(old.bye(), Some(ErrorCode::Replaced));
    assert_eq!(new.bodies(), ["owed"]);
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_that_is_not_confirmed_in_time_is_a_miss() {
    let world = World::new();
    let bob = world.connected(phone("bob").at_gateway("far")).await;
    world.silence("far");
    let began = Instant::now();
    world.send("alice", "bob", "hello").await;
    assert!(began.elapsed() < Duration::from_secs(5), "the sender waited {:?}", began.elapsed());
    assert_eq!(world.row("bob", "alice~bob").await, Some(1));
    world.pass(Duration::from_secs(2)).await;
    assert!(world.registered("bob").await.is_empty());
    world.unsilence("far");
    world.pass(Duration::from_secs(21)).await;
    assert_eq!(bob.bodies(), ["hello"], "the session missed its entry, and drained anew");
    assert_eq!(world.row("bob", "alice~bob").await, None);
    assert_eq!(world.registered("bob").await, ["phone"]);
}

#[tokio::test(start_paused = true)]
async fn one_session_that_takes_it_is_enough_and_the_crashed_one_resumes() {
    let world = World::new();
    let on_tablet = world.connected(tablet("bob").at_gateway("g2")).await;
    let cursor = on_tablet.cursor();
    let on_phone = world.connected(phone("bob")).await;
    world.crash("g2").await;
    world.send("alice", "bob", "hello").await;
    world.quiet().await;
    assert_eq!(on_phone.bodies(), ["hello"]);
    assert_eq!(world.row("bob", "alice~bob").await, None);
    let on_tablet = world.connected(tablet("bob").with_cursor(cursor)).await;
    assert_eq!(on_tablet.bodies(), ["hello"]);
}
