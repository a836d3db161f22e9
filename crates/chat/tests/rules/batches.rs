//! Sends that come together are looked up, committed and handed over together, and each is still answered for itself.

use bluetick_protocol::ErrorCode;
use serde_json::json;

use crate::harness::{World, phone, tablet};

#[tokio::test(start_paused = true)]
async fn they_reach_every_device_in_their_order_and_are_ticked() {
    let world = World::new();
    let alice = world.connected(phone("alice")).await;
    let (bob, other) = (world.connected(phone("bob")).await, world.connected(tablet("bob")).await);
    let echo = world.connected(tablet("alice")).await;
    for n in 1..=20 {
        alice.send("bob", &format!("{n}"));
    }
    world.quiet().await;
    let bodies: Vec<_> = (1..=20).map(|n| n.to_string()).collect();
    for device in [&bob, &other, &echo] {
        assert_eq!(device.bodies(), bodies);
    }
    assert_eq!(alice.sent(), (1..=20).map(|seq| (seq, false)).collect::<Vec<_>>());
    let ticks = alice.ticks();
    assert_eq!(ticks.last().map(|t| t.last_delivered_seq), Some(20));
    assert!(ticks.len() < 20, "receipts that come together are told together");
    assert_eq!(world.row("bob", "alice~bob").await, None);
}

#[tokio::test(start_paused = true)]
async fn those_that_nobody_took_share_a_row_at_the_lowest() {
    let world = World::new();
    let alice = world.connected(phone("alice")).await;
    // The first lookup finds a session, so no row rides along; no gateway has it.
    world.leave_stale_entry("bob").await;
    for n in 1..=5 {
        alice.send("bob", &format!("{n}"));
    }
    world.quiet().await;
    assert_eq!(alice.sent().len(), 5);
    assert_eq!(world.row("bob", "alice~bob").await, Some(1));
    assert_eq!(world.connected(phone("bob")).await.bodies(), ["1", "2", "3", "4", "5"]);
}

#[tokio::test(start_paused = true)]
async fn several_receivers_and_errors_are_told_apart() {
    let world = World::new();
    let alice = world.connected(phone("alice")).await;
    let (bob, carol) = (world.connected(phone("bob")).await, world.connected(phone("carol")).await);
    alice.send("bob", "one");
    alice.send("carol", "two");
    alice.send("alice", "to-myself");
    alice.send("dave", "he-is-away");
    alice.say(json!({"type": "send", "client_msg_id": "empty", "to": "bob", "body": ""}));
    alice.send("bob", "three");
    world.quiet().await;
    assert_eq!(bob.bodies(), ["one", "three"]);
    assert_eq!(carol.bodies(), ["two"]);
    assert_eq!(alice.errors(), [ErrorCode::ToSelf, ErrorCode::EmptyBody]);
    assert_eq!(alice.sent().len(), 4);
    assert_eq!(world.row("dave", "alice~dave").await, Some(1));
    assert_eq!(world.row("bob", "alice~bob").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_repetition_among_them_is_the_first_message() {
    let world = World::new();
    let alice = world.connected(phone("alice")).await;
    let bob = world.connected(phone("bob")).await;
    let send = |id: &str, body: &str| json!({"type": "send", "client_msg_id": id, "to": "bob", "body": body});
    for (id, body) in [("a", "one"), ("b", "two"), ("a", "one"), ("c", "three"), ("b", "two")] {
        alice.say(send(id, body));
    }
    world.quiet().await;
    assert_eq!(bob.bodies(), ["one", "two", "three"]);
    assert_eq!(alice.sent(), [(1, false), (2, false), (1, true), (3, false), (2, true)]);
    assert_eq!(world.row("bob", "alice~bob").await, None, "a live session has them");
}
