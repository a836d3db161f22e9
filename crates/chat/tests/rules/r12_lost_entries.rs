//! R12: a lost registry entry is noticed, and a session store that is down only means that everybody is offline.

use std::time::Duration;

use bluetick_protocol::{DeviceId, ErrorCode, SessionId};
use bluetick_sim::{Breach, Breaches};
use bluetick_store::{Clock, SessionEntry};
use serde_json::json;

use crate::harness::{Client, StoreMethod, World, phone, user};

const HEARTBEAT: Duration = Duration::from_secs(21);

/// The registry is flushed under Bob's live session. Returns what he gets of a message that comes then.
async fn the_registry_is_flushed(breaches: Breaches) -> Vec<String> {
    let world = World::under(breaches);
    let bob = world.connected(phone("bob")).await;
    world.flush_registry().await;
    world.send("alice", "bob", "while-lost").await;
    world.quiet().await;
    assert!(bob.messages().is_empty(), "nobody knows of him");
    assert_eq!(world.row("bob", "alice~bob").await, Some(1));
    world.pass(HEARTBEAT).await;
    bob.bodies()
}

#[tokio::test(start_paused = true)]
async fn a_session_that_lost_its_entry_registers_anew_and_drains_anew() {
    assert_eq!(the_registry_is_flushed(Breaches::default()).await, ["while-lost"]);
    let without = the_registry_is_flushed(Breaches::of([Breach::R12])).await;
    assert!(without.is_empty(), "connected, and cut off: {without:?}");
}

#[tokio::test(start_paused = true)]
async fn after_it_registered_anew_messages_come_live_again() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    world.flush_registry().await;
    world.pass(HEARTBEAT).await;
    assert_eq!(world.registered("bob").await, ["phone"]);
    world.send("alice", "bob", "live").await;
    world.quiet().await;
    assert_eq!(bob.bodies(), ["live"]);
    assert_eq!(bob.caught_up().len(), 1, "caught_up belongs to the connection");
}

#[tokio::test(start_paused = true)]
async fn what_another_device_took_meanwhile_is_drained_too() {
    let world = World::new();
    let on_phone = world.connected(phone("bob")).await;
    world.flush_registry().await;
    let on_tablet = world.connected(crate::harness::tablet("bob")).await;
    world.send("alice", "bob", "taken-by-the-tablet").await;
    world.quiet().await;
    assert_eq!(on_tablet.bodies(), ["taken-by-the-tablet"]);
    assert_eq!(world.row("bob", "alice~bob").await, None, "there is no row to find");
    world.pass(HEARTBEAT).await;
    assert_eq!(on_phone.bodies(), ["taken-by-the-tablet"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_written_while_it_registers_anew_hides_nothing() {
    let world = World::new();
    let on_phone = world.connected(phone("bob")).await;
    world.flush_registry().await;
    let _tablet = world.connected(crate::harness::tablet("bob")).await;
    world.send("alice", "bob", "taken-by-the-tablet").await;
    let mut registered = world.steps.stop_after(StoreMethod::Register, "bob");
    world.pass(HEARTBEAT).await;
    registered.reached().await;
    on_phone.send("alice", "own");
    world.quiet().await;
    assert_eq!(on_phone.sent(), [(2, false)]);
    registered.open();
    world.quiet().await;
    assert_eq!(on_phone.bodies(), ["taken-by-the-tablet"]);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_paused_beyond_the_ttl_drains_anew() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    // The wall clock goes on while the process stands still.
    world.clock.advance(61_000);
    world.send("alice", "bob", "while-paused").await;
    assert_eq!(world.row("bob", "alice~bob").await, Some(1), "the entry had expired");
    world.pass(HEARTBEAT).await;
    assert_eq!(bob.bodies(), ["while-paused"]);
    assert_eq!(world.registered("bob").await, ["phone"]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_failed_after_registering_anew_is_made_again() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    world.flush_registry().await;
    world.send("alice", "bob", "while-lost").await;
    world.steps.fail(StoreMethod::PendingOf, "bob");
    world.steps.fail(StoreMethod::PendingOf, "bob");
    world.pass(HEARTBEAT + Duration::from_secs(2)).await;
    assert_eq!(bob.bodies(), ["while-lost"]);
}

#[tokio::test(start_paused = true)]
async fn with_the_session_store_down_sends_succeed_and_queue() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    let alice = world.connected(phone("alice")).await;
    world.steps.take_down(&StoreMethod::SESSION_STORE);
    alice.send("bob", "queued");
    world.quiet().await;
    assert_eq!(alice.sent(), [(1, false)]);
    assert_eq!(world.row("bob", "alice~bob").await, Some(1));
    world.pass(HEARTBEAT).await;
    assert!(!bob.has_ended(), "nothing fails");
    world.steps.bring_up();
    world.flush_registry().await;
    world.pass(HEARTBEAT).await;
    assert_eq!(bob.bodies(), ["queued"]);
}

#[tokio::test(start_paused = true)]
async fn with_the_session_store_down_a_device_can_connect_and_drain() {
    let world = World::new();
    world.send("alice", "bob", "pending").await;
    world.steps.take_down(&StoreMethod::SESSION_STORE);
    let bob = world.connected(phone("bob")).await;
    assert_eq!(bob.bodies(), ["pending"]);
    assert_eq!(bob.caught_up().len(), 1);
    world.send("alice", "bob", "queued").await;
    world.steps.bring_up();
    world.pass(HEARTBEAT).await;
    assert_eq!(world.registered("bob").await, ["phone"]);
    assert_eq!(bob.bodies(), ["pending", "queued"]);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_registered_anew_goes_on_watching() {
    let world = World::new();
    world.send("alice", "bob", "hello").await;
    let bob = world.connected(phone("bob")).await;
    bob.say(json!({"type": "watch", "users": ["alice"]}));
    world.quiet().await;
    world.flush_registry().await;
    world.pass(HEARTBEAT).await;
    let before = bob.presence().len();
    let _alice = world.connected(phone("alice")).await;
    world.pass(Duration::from_secs(2)).await;
    let news = bob.presence().split_off(before);
    assert!(news.iter().any(|p| p.online), "{news:?}");
}

#[tokio::test(start_paused = true)]
async fn ticks_that_moved_while_an_entry_was_lost_are_told() {
    let world = World::new();
    let alice = world.connected(phone("alice")).await;
    alice.send("bob", "one");
    world.quiet().await;
    world.flush_registry().await;
    let bob = world.connected(phone("bob")).await;
    bob.read("alice~bob", 1);
    world.quiet().await;
    assert_eq!(alice.ticks().len(), 0, "nobody finds her");
    world.pass(Duration::from_secs(60)).await;
    let told = alice.ticks();
    let last = told.iter().rfind(|ticks| ticks.user_id.as_str() == "bob").unwrap();
    assert_eq!((last.last_delivered_seq, last.last_read_seq), (1, 1), "she registers anew, and is told");
}

/// Bob's phone connects twice, a second apart. Then the session store falls back to the state before the second time.
async fn the_session_store_falls_back(world: &World) -> Client {
    let old = world.connected(phone("bob")).await;
    let entry = world.store.sessions.lookup(&user("bob")).await.unwrap().remove(0);
    world.pass(Duration::from_secs(1)).await;
    let new = world.connected(phone("bob").at_gateway("g2")).await;
    assert_eq!(old.bye(), Some(ErrorCode::Replaced));
    world.store.sessions.register(&entry, Duration::from_secs(3600), 10).await.unwrap();
    assert_eq!(world.store.sessions.lookup(&user("bob")).await.unwrap(), [entry]);
    new
}

#[tokio::test(start_paused = true)]
async fn a_session_store_that_falls_back_does_not_end_the_newer_session() {
    let world = World::new();
    let bob = the_session_store_falls_back(&world).await;
    world.pass(HEARTBEAT).await;
    assert_eq!(bob.bye(), None, "a client does not come back after `replaced`");
    let session = bob.welcome().session_id;
    let registered = world.store.sessions.lookup(&user("bob")).await.unwrap();
    assert_eq!(registered.iter().map(|entry| entry.session_id).collect::<Vec<_>>(), [session]);
    world.send("alice", "bob", "live").await;
    world.quiet().await;
    assert_eq!(bob.bodies(), ["live"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_to_the_older_entry_is_drained() {
    let world = World::new();
    let bob = the_session_store_falls_back(&world).await;
    world.send("alice", "bob", "to-the-old-entry").await;
    assert!(bob.messages().is_empty(), "nobody knows of him");
    world.pass(HEARTBEAT).await;
    assert_eq!(bob.bodies(), ["to-the-old-entry"]);
}

/// A session whose client is gone without a word does not take the place of any other, however the clocks go.
#[tokio::test(start_paused = true)]
async fn a_session_without_a_sign_of_life_ends_no_other() {
    let world = World::new();
    let ghost = world.connected(phone("bob")).await;
    ghost.take_only(0);
    // Registered by a gateway whose clock is behind, after the store had lost the ghost's entry.
    world.flush_registry().await;
    let entry = SessionEntry {
        user_id: user("bob"),
        device: DeviceId::new("phone").unwrap(),
        session_id: SessionId(7),
        gateway: "elsewhere".into(),
        connected_at: world.clock.now_ms() - 5_000,
    };
    world.store.sessions.register(&entry, Duration::from_secs(3600), 10).await.unwrap();
    world.pass(HEARTBEAT * 2).await;
    assert_eq!(world.store.sessions.lookup(&user("bob")).await.unwrap(), [entry]);
}

/// A registration takes effect late, when its client is gone and has come back elsewhere: it ends nobody.
#[tokio::test(start_paused = true)]
async fn a_late_registration_of_a_client_that_is_gone_ends_no_other() {
    let world = World::new();
    let mut registering = world.steps.stop_before(StoreMethod::Register, "bob");
    let gone = world.connect(phone("bob"));
    registering.reached().await;
    gone.start_to_vanish();
    world.pass(Duration::from_millis(500)).await;
    let bob = world.connected(phone("bob").at_gateway("g2")).await;
    assert_eq!(bob.caught_up().len(), 1);
    registering.open();
    world.pass(HEARTBEAT).await;
    assert_eq!(bob.bye(), None, "a client does not come back after `replaced`");
    world.send("alice", "bob", "live").await;
    world.quiet().await;
    assert_eq!(bob.bodies(), ["live"]);
}

/// The clock of the gateway that has the newer session is behind: it is the newer one all the same.
#[tokio::test(start_paused = true)]
async fn who_registers_later_is_the_newer_session() {
    let world = World::new();
    let ahead = SessionEntry {
        user_id: user("bob"),
        device: DeviceId::new("phone").unwrap(),
        session_id: SessionId(7),
        gateway: "ahead".into(),
        connected_at: world.clock.now_ms() + 5_000,
    };
    world.store.sessions.register(&ahead, Duration::from_secs(3600), 10).await.unwrap();
    let _bob = world.connected(phone("bob")).await;
    let registered = world.store.sessions.lookup(&user("bob")).await.unwrap();
    assert_eq!(registered.len(), 1);
    assert!(registered[0].session_id != ahead.session_id && registered[0].connected_at > ahead.connected_at);
}
