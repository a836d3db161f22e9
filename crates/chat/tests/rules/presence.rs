//! Presence: told when it has lasted, whoever comes and goes, and the last state always.

use std::time::Duration;

use bluetick_chat::PresenceApi;
use bluetick_protocol::ConversationId;
use serde_json::json;

use crate::harness::{Client, World, phone, tablet, user};

/// Alice watches bob, who has written to her.
async fn watching(world: &World) -> Client {
    world.send("alice", "bob", "hello").await;
    world.send("bob", "alice", "hello").await;
    let alice = world.connected(phone("alice")).await;
    alice.say(json!({"type": "watch", "users": ["bob"]}));
    world.quiet().await;
    alice
}

fn told(alice: &Client) -> Vec<bool> {
    alice.presence().iter().map(|presence| presence.online).collect()
}

#[tokio::test(start_paused = true)]
async fn coming_and_going_is_told_after_it_has_lasted() {
    let world = World::new();
    let alice = watching(&world).await;
    let bob = world.connected(phone("bob")).await;
    world.pass(Duration::from_millis(500)).await;
    assert_eq!(told(&alice), [false], "what the watch said");
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(told(&alice), [false, true]);
    bob.start_to_vanish();
    world.pass(Duration::from_secs(3)).await;
    assert_eq!(told(&alice), [false, true, false]);
}

#[tokio::test(start_paused = true)]
async fn a_reconnect_is_no_news() {
    let world = World::new();
    let alice = watching(&world).await;
    let first = world.connected(phone("bob")).await;
    world.pass(Duration::from_secs(2)).await;
    let second = world.connected(tablet("bob")).await;
    world.pass(Duration::from_secs(5)).await;
    first.start_to_vanish();
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(told(&alice), [false, true], "one of two devices came and went");
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn two_devices_that_come_and_go_together_are_told_once() {
    let world = World::new();
    let alice = watching(&world).await;
    let (one, other) = (world.connect(phone("bob")), world.connect(tablet("bob")));
    world.pass(Duration::from_secs(3)).await;
    assert_eq!(told(&alice), [false, true]);
    one.start_to_vanish();
    other.start_to_vanish();
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(told(&alice), [false, true, false]);
}

#[tokio::test(start_paused = true)]
async fn a_flapping_session_is_hardly_told_and_its_last_state_is() {
    let world = World::new();
    let alice = watching(&world).await;
    for _ in 0..50 {
        let bob = world.connected(phone("bob")).await;
        world.pass(Duration::from_millis(100)).await;
        bob.start_to_vanish();
        world.quiet().await;
    }
    world.pass(Duration::from_secs(5)).await;
    let after = told(&alice);
    assert!(after.len() < 15, "{after:?}");
    assert_eq!(after.last(), Some(&false));
    let _bob = world.connected(phone("bob")).await;
    world.pass(Duration::from_secs(3)).await;
    assert_eq!(told(&alice).last(), Some(&true));
}

#[tokio::test(start_paused = true)]
async fn typing_is_told_once_a_second_in_a_conversation() {
    let world = World::new();
    world.send("alice", "bob", "hello").await;
    world.send("alice", "carol", "hello").await;
    let bob = world.connected(phone("bob")).await;
    let typing = |client: &Client| {
        let frames = client.frames();
        frames.iter().filter(|f| matches!(f, bluetick_protocol::ServerFrame::Typing(_))).count()
    };
    let id = |peer: &str| ConversationId::between(&user("alice"), &user(peer)).unwrap();
    for _ in 0..100 {
        world.node.typing(user("alice"), id("bob")).await.unwrap();
        world.node.typing(user("alice"), id("carol")).await.unwrap();
    }
    world.quiet().await;
    assert_eq!(typing(&bob), 1);
    assert!(world.node.typing(user("eve"), id("bob")).await.is_err(), "of others nothing is told");
    world.pass(Duration::from_secs(2)).await;
    world.node.typing(user("alice"), id("bob")).await.unwrap();
    world.quiet().await;
    assert_eq!(typing(&bob), 2);
}
