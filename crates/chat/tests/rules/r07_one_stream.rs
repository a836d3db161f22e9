//! R7: pending rows say which conversations; what they hold comes as one stream, in the order of message ids.

use bluetick_chat::ReceiptApi;
use bluetick_protocol::{MessageFrame, ServerFrame};

use crate::harness::{TestDevice, World, message, phone, user};

fn assert_in_order(messages: &[MessageFrame]) {
    for pair in messages.windows(2) {
        let (a, b) = (&pair[0], &pair[1]);
        assert!(a.message_id < b.message_id, "{}/{} came before {}/{}", a.sender, a.seq, b.sender, b.seq);
    }
}

#[tokio::test(start_paused = true)]
async fn three_conversations_come_as_one_stream_with_one_caught_up() {
    let world = World::new();
    let script = ["carol", "alice", "dave", "alice", "carol", "dave", "dave", "alice"];
    for (n, friend) in script.into_iter().enumerate() {
        world.send(friend, "bob", &format!("{n}")).await;
    }
    let bob = world.connected(phone("bob")).await;
    let senders: Vec<_> = bob.messages().iter().map(|m| m.sender.to_string()).collect();
    assert_eq!(senders, script);
    assert_in_order(&bob.messages());
    assert_eq!(bob.caught_up().len(), 1);
    let messages_and_caught_up =
        |frame: &ServerFrame| matches!(frame, ServerFrame::Message(_) | ServerFrame::CaughtUp(_));
    let last = bob.frames().into_iter().rfind(messages_and_caught_up);
    assert!(matches!(last, Some(ServerFrame::CaughtUp(_))), "after the last of them");
}

#[tokio::test(start_paused = true)]
async fn rows_and_resumed_conversations_are_merged_too() {
    let world = World::new();
    let cursor = world.cursor_now();
    let live = world.connected(phone("bob")).await;
    world.send("alice", "bob", "acked-by-the-phone").await;
    world.quiet().await;
    live.vanish().await;
    world.send("carol", "bob", "pending").await;
    world.send("alice", "bob", "pending-too").await;
    let bob = world.connected(TestDevice::new("bob", "tablet").with_cursor(cursor)).await;
    assert_eq!(bob.bodies(), ["acked-by-the-phone", "pending", "pending-too"]);
    assert_in_order(&bob.messages());
    assert_eq!(bob.caught_up().len(), 1);
}

/// Of 400 lanes with 4 KiB messages only a few can be kept in memory.
async fn more_conversations_than_can_be_buffered(order: impl Fn(usize) -> usize) {
    const FRIENDS: usize = 400;
    let world = World::new();
    for round in 0..3 {
        for n in 0..FRIENDS {
            let friend = format!("friend{:03}", order(n));
            let mut frame = message("bob", &format!("{round}"));
            frame.body = "x".repeat(4096);
            world.clock.advance(1);
            world.send_frame(&friend, frame).await.unwrap();
        }
    }
    let bob = world.connected(phone("bob")).await;
    let messages = bob.messages();
    assert_eq!(messages.len(), 3 * FRIENDS);
    assert_in_order(&messages);
    assert_eq!(bob.caught_up().len(), 1);
    let after = bob.frames().into_iter().skip_while(|frame| !matches!(frame, ServerFrame::CaughtUp(_)));
    assert!(after.into_iter().all(|frame| !matches!(frame, ServerFrame::Message(_))));
    let rows = world.store.pending.pending_of(&user("bob")).await.unwrap();
    assert!(rows.is_empty(), "{} rows are left", rows.len());
}

#[tokio::test(start_paused = true)]
async fn more_conversations_than_can_be_buffered_keep_the_order() {
    more_conversations_than_can_be_buffered(|n| n).await;
}

#[tokio::test(start_paused = true)]
async fn they_keep_it_when_the_oldest_message_is_in_the_last_conversation_read() {
    more_conversations_than_can_be_buffered(|n| 399 - n).await;
}

#[tokio::test(start_paused = true)]
async fn they_keep_it_when_the_order_is_mixed() {
    more_conversations_than_can_be_buffered(|n| (n * 173) % 400).await;
}

#[tokio::test(start_paused = true)]
async fn caught_up_covers_what_was_there_when_the_drain_began() {
    let world = World::new();
    world.send("alice", "bob", "pending").await;
    let mut reading = world.steps.stop_before(crate::harness::StoreMethod::ReadFrom, "alice~bob");
    let bob = world.connect(phone("bob"));
    reading.reached().await;
    world.send("carol", "bob", "live").await;
    reading.open();
    world.quiet().await;
    assert_eq!(bob.bodies(), ["pending", "live"]);
    assert_eq!(bob.caught_up().len(), 1, "once, however much came meanwhile");
}

#[tokio::test(start_paused = true)]
async fn a_user_with_nothing_pending_is_caught_up_at_once() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    assert_eq!(bob.caught_up().len(), 1);
    assert!(bob.messages().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_receipt_keeps_no_message_from_a_device() {
    let world = World::new();
    for body in ["one", "two", "three"] {
        world.send("alice", "bob", body).await;
    }
    // Read through a back end: the device still holds none of them.
    let request = bluetick_chat::ReceiptRequest {
        user: user("bob"),
        session: None,
        conversation_id: crate::harness::conversation("alice~bob"),
        seq: 3,
        again: false,
    };
    world.node.read(request).await.unwrap();
    let bob = world.connected(phone("bob")).await;
    assert_eq!(bob.bodies(), ["one", "two", "three"]);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_fails_is_made_again() {
    let world = World::new();
    world.send("alice", "bob", "one").await;
    world.send("carol", "bob", "two").await;
    world.steps.fail(crate::harness::StoreMethod::ReadFrom, "alice~bob");
    let bob = world.connected(phone("bob")).await;
    assert!(bob.messages().is_empty(), "the second must not overtake the first");
    world.pass(std::time::Duration::from_secs(1)).await;
    assert_eq!(bob.bodies(), ["one", "two"]);
    assert_eq!(bob.caught_up().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_conversations_of_long_messages_are_merged_although_neither_fits() {
    let world = World::new();
    for n in 0..100 {
        let mut frame = message("bob", &format!("{n}"));
        frame.body = "x".repeat(16 * 1024);
        world.clock.advance(1);
        world.send_frame(["zoe", "alice"][n % 2], frame).await.unwrap();
    }
    let bob = world.connected(phone("bob")).await;
    assert_eq!(bob.messages().len(), 100);
    assert_in_order(&bob.messages());
}
