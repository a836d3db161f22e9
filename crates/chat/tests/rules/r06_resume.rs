//! R6: resume by cursor, whatever the pending rows say.

use std::time::Duration;

use bluetick_protocol::{ErrorCode, MessageId};
use bluetick_sim::{Breach, Breaches};
use bluetick_store::Clock;

use crate::harness::{World, phone, tablet};

/// Bob's gateway crashes with messages that his session had taken and nobody had acked. Returns what he gets when
/// he comes back with his cursor.
async fn comes_back_after_a_crash(breaches: Breaches) -> Vec<String> {
    let world = World::under(breaches);
    let bob = world.connected(phone("bob").without_acks()).await;
    let cursor = bob.cursor();
    world.send("alice", "bob", "from-alice").await;
    world.send("carol", "bob", "from-carol").await;
    world.quiet().await;
    assert_eq!(bob.bodies(), ["from-alice", "from-carol"]);
    world.crash("g1").await;
    assert_eq!(world.row("bob", "alice~bob").await, None, "a crash pays no debts");
    world.connected(phone("bob").with_cursor(cursor).at_gateway("g2")).await.bodies()
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_the_cursor_brings_everything_back() {
    assert_eq!(comes_back_after_a_crash(Breaches::default()).await, ["from-alice", "from-carol"]);
    let without = comes_back_after_a_crash(Breaches::of([Breach::R6])).await;
    assert!(without.is_empty(), "they are in no row: {without:?}");
}

/// Bob's phone takes and acks everything; his tablet was away.
async fn the_second_device_comes_back(breaches: Breaches) -> Vec<String> {
    let world = World::under(breaches);
    let tablet_session = world.connected(tablet("bob")).await;
    let cursor = tablet_session.cursor();
    tablet_session.vanish().await;
    let _phone = world.connected(phone("bob")).await;
    world.send("alice", "bob", "one").await;
    world.pass(Duration::from_secs(3600)).await;
    world.send("alice", "bob", "two").await;
    world.quiet().await;
    assert_eq!(world.row("bob", "alice~bob").await, None, "delivered, as far as rows say");
    world.connected(tablet("bob").with_cursor(cursor)).await.bodies()
}

#[tokio::test(start_paused = true)]
async fn a_second_device_gets_what_the_first_one_acked() {
    assert_eq!(the_second_device_comes_back(Breaches::default()).await, ["one", "two"]);
    let without = the_second_device_comes_back(Breaches::of([Breach::R6])).await;
    assert!(without.is_empty(), "the rows are settled: {without:?}");
}

#[tokio::test(start_paused = true)]
async fn own_messages_of_another_device_are_resumed_too() {
    let world = World::new();
    let cursor = world.cursor_now();
    world.send("bob", "alice", "written-elsewhere").await;
    let bob = world.connected(tablet("bob").with_cursor(cursor)).await;
    assert_eq!(bob.bodies(), ["written-elsewhere"]);
}

async fn resets_and_catches_up(cursor: impl FnOnce(&World) -> MessageId) {
    let world = World::new();
    world.send("alice", "bob", "pending").await;
    let cursor = cursor(&world);
    let bob = world.connected(phone("bob").with_cursor(cursor)).await;
    assert_eq!(bob.resets().len(), 1, "never silence");
    assert_eq!(bob.bodies(), ["pending"], "pending rows are drained in full all the same");
    assert_eq!(bob.caught_up().len(), 1);
    assert!(bob.cursor() <= world.cursor_now(), "the cursor is one that the server can serve");
    let kinds = serde_json::to_value(bob.frames()).unwrap();
    let kinds: Vec<_> = kinds.as_array().unwrap().iter().map(|frame| frame["type"].clone()).collect();
    assert_eq!(kinds[..4], ["welcome", "reset", "message", "caught_up"]);
}

#[tokio::test(start_paused = true)]
async fn a_cursor_too_old_gets_a_reset_and_then_caught_up() {
    resets_and_catches_up(|world| MessageId::at(world.clock.now_ms() - 31 * 24 * 3600 * 1000)).await;
}

#[tokio::test(start_paused = true)]
async fn a_cursor_from_the_future_gets_a_reset_and_then_caught_up() {
    resets_and_catches_up(|world| MessageId::at(world.clock.now_ms() + 3600 * 1000)).await;
    resets_and_catches_up(|_| MessageId::MAX).await;
}

#[tokio::test(start_paused = true)]
async fn a_cursor_with_too_much_behind_it_gets_a_reset() {
    let mut setup = crate::harness::Setup::default();
    setup.chat.resume_max_conversations = 2;
    let world = World::with(setup);
    let cursor = world.cursor_now();
    let connected = world.connected(phone("bob")).await;
    for friend in ["alice", "carol", "dave"] {
        world.send(friend, "bob", "hello").await;
    }
    world.quiet().await;
    connected.vanish().await;
    let bob = world.connected(phone("bob").with_cursor(cursor)).await;
    assert_eq!((bob.resets().len(), bob.caught_up().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_a_little_older_than_the_cursor_is_read_again() {
    for (age, expected) in [(59, vec!["a-little-older"]), (90, vec![])] {
        let world = World::new();
        let other_device = world.connected(tablet("bob")).await;
        world.send("alice", "bob", "a-little-older").await;
        world.quiet().await;
        other_device.vanish().await;
        world.clock.advance(age * 1000);
        let bob = world.connected(phone("bob").with_cursor(world.cursor_now())).await;
        assert_eq!(bob.bodies(), expected, "{age} s");
        assert_eq!(bob.caught_up().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_below_the_cursor_is_drained_in_full() {
    let world = World::new();
    world.send("alice", "bob", "old").await;
    world.clock.advance(10 * 24 * 3600 * 1000);
    world.send("alice", "bob", "new").await;
    let bob = world.connected(phone("bob").with_cursor(world.cursor_now())).await;
    assert_eq!(bob.bodies(), ["old", "new"]);
}

#[tokio::test(start_paused = true)]
async fn caught_up_tells_the_heads() {
    let world = World::new();
    world.send("alice", "bob", "one").await;
    world.send("alice", "bob", "two").await;
    world.send("carol", "bob", "three").await;
    let bob = world.connected(phone("bob")).await;
    let heads = bob.caught_up().remove(0).heads;
    let heads: Vec<_> = heads.iter().map(|h| (h.conversation_id.as_str(), h.last_seq)).collect();
    assert_eq!(heads, [("bob~carol", 1), ("alice~bob", 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_message_written_before_the_plan_is_there_hides_nothing_that_the_cursor_asks_for() {
    let world = World::new();
    let bob = world.connected(phone("bob").without_acks()).await;
    let cursor = bob.cursor();
    world.send("alice", "bob", "missed").await;
    world.quiet().await;
    world.crash("g1").await;

    let mut reading = world.steps.stop_before(crate::harness::StoreMethod::PendingOf, "bob");
    let bob = world.connect(phone("bob").with_cursor(cursor).at_gateway("g2"));
    reading.reached().await;
    bob.send("alice", "written-at-once");
    world.quiet().await;
    assert_eq!(bob.sent(), [(2, false)]);
    reading.open();
    world.quiet().await;
    assert_eq!(bob.bodies(), ["missed"]);
    assert_eq!(bob.caught_up().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_told_to_go_is_resumed_elsewhere() {
    let world = World::new();
    let bob = world.connected(phone("bob").without_acks()).await;
    let cursor = bob.cursor();
    world.send("alice", "bob", "one").await;
    world.shut_down("g1");
    world.quiet().await;
    assert_eq!(bob.bye(), Some(ErrorCode::ShuttingDown));
    let bob = world.connected(phone("bob").with_cursor(cursor).at_gateway("g2")).await;
    assert_eq!(bob.bodies(), ["one"]);
}
