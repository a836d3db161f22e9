//! A system that fails for a while costs time and nothing else.

use std::time::Duration;

use bluetick_chat::{SendApi, SendRequest};
use bluetick_protocol::ErrorCode;
use serde_json::json;

use crate::harness::{StoreMethod, World, conversation, message, phone, tablet, user};

const HEARTBEAT: Duration = Duration::from_secs(21);
const SECONDS: fn(u64) -> Duration = Duration::from_secs;

#[tokio::test(start_paused = true)]
async fn a_session_finds_by_itself_what_nobody_could_tell_it() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    world.steps.take_down(&[StoreMethod::Lookup]);
    world.send("alice", "bob", "unseen").await;
    world.steps.bring_up();
    world.pass(SECONDS(5)).await;
    assert!(bob.messages().is_empty(), "his entry is there, and no lookup found it");
    assert_eq!(world.row("bob", "alice~bob").await, Some(1));
    world.pass(SECONDS(90)).await;
    assert_eq!(bob.bodies(), ["unseen"]);
    assert_eq!(world.row("bob", "alice~bob").await, None);
    world.pass(SECONDS(600)).await;
    assert_eq!(bob.bodies(), ["unseen"], "looking again brings nothing twice");
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_fails_for_long_after_a_new_registration_loses_nothing() {
    let world = World::new();
    let on_phone = world.connected(phone("bob")).await;
    world.flush_registry().await;
    let on_tablet = world.connected(tablet("bob")).await;
    world.send("alice", "bob", "taken-by-the-tablet").await;
    world.quiet().await;
    assert_eq!(on_tablet.bodies(), ["taken-by-the-tablet"]);
    // The phone registers anew, and cannot be told what it missed for longer than any overlap.
    world.steps.take_down(&[StoreMethod::PendingOf]);
    world.pass(SECONDS(300)).await;
    assert!(on_phone.messages().is_empty());
    world.steps.bring_up();
    world.pass(HEARTBEAT).await;
    assert_eq!(on_phone.bodies(), ["taken-by-the-tablet"]);
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_cannot_be_read_holds_up_caught_up_and_nothing_else() {
    let world = World::new();
    world.send("alice", "bob", "unreadable").await;
    world.send("carol", "bob", "readable").await;
    for _ in 0..8 {
        world.steps.fail(StoreMethod::ReadFrom, "alice~bob");
    }
    let bob = world.connect(phone("bob"));
    world.pass(SECONDS(10)).await;
    assert_eq!(bob.bodies(), ["readable"]);
    assert!(bob.caught_up().is_empty(), "its cursor would pass what the device does not have");
    world.pass(HEARTBEAT * 4).await;
    assert_eq!(bob.bodies(), ["readable", "unreadable"]);
    assert_eq!(bob.caught_up().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_cursor_moves_ends_rather_than_pass_what_it_cannot_read() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    for _ in 0..100 {
        world.steps.fail(StoreMethod::ReadFrom, "alice~bob");
    }
    world.send("alice", "bob", "one").await;
    world.memory.leak_seq(&conversation("alice~bob"));
    world.send("alice", "bob", "three").await;
    world.send("carol", "bob", "readable").await;
    world.pass(SECONDS(120)).await;
    assert!(bob.has_ended());
    assert_eq!(bob.bodies(), ["one"], "an ack of what came after would move the cursor past it");
}

#[tokio::test(start_paused = true)]
async fn a_closing_session_pays_when_the_store_is_back() {
    let world = World::new();
    let bob = world.connected(phone("bob").without_acks()).await;
    world.send("alice", "bob", "unacked").await;
    world.quiet().await;
    assert_eq!(bob.bodies(), ["unacked"]);
    world.steps.take_down(&[StoreMethod::NoteUndelivered]);
    bob.start_to_vanish();
    world.pass(SECONDS(30)).await;
    assert_eq!(world.row("bob", "alice~bob").await, None);
    world.steps.bring_up();
    world.pass(SECONDS(30)).await;
    assert_eq!(world.row("bob", "alice~bob").await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_row_whose_removal_hangs_while_its_session_closes_still_leads_to_what_relied_on_it() {
    let world = World::new();
    world.send("alice", "bob", "drained").await;
    let mut removing = world.steps.stop_before(StoreMethod::Settle, "bob");
    let bob = world.connect(phone("bob"));
    removing.reached().await;
    world.flush_registry().await;
    world.send("alice", "bob", "left-to-the-row").await;
    bob.start_to_vanish();
    world.pass(SECONDS(20)).await;
    removing.open();
    world.quiet().await;
    assert_eq!(world.row("bob", "alice~bob").await, Some(2));
    assert_eq!(world.connected(phone("bob")).await.bodies(), ["left-to-the-row"]);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_send_of_what_was_acked_leaves_no_row() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    world.send("alice", "bob", "acked").await;
    world.quiet().await;
    bob.vanish().await;
    assert!(world.try_send("alice", "bob", "acked").await.unwrap().duplicate);
    assert_eq!(world.row("bob", "alice~bob").await, None);
    let rows = world.store.pending.pending_of(&user("bob")).await.unwrap();
    assert!(rows.is_empty(), "it would bring all that came after once more");
}

#[tokio::test(start_paused = true)]
async fn an_ack_that_waits_to_be_tried_again_is_not_lost_with_a_read_that_fails() {
    let world = World::new();
    for body in ["one", "two"] {
        world.send("alice", "bob", body).await;
    }
    let bob = world.connected(phone("bob").without_acks()).await;
    world.steps.take_down(&[StoreMethod::Advance]);
    bob.ack("alice~bob", 2);
    world.quiet().await;
    bob.say(json!({"type": "read", "ref": 7, "conversation_id": "alice~bob", "seq": 1}));
    world.pass(SECONDS(2)).await;
    assert!(bob.errors().contains(&ErrorCode::Unavailable), "who named it is told");
    world.steps.bring_up();
    world.pass(SECONDS(2)).await;
    assert_eq!(world.status("bob", "alice~bob").await.own.last_delivered_seq, 2);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_only_sends_does_not_get_its_own_messages_back() {
    let world = World::new();
    let alice = world.connected(phone("alice")).await;
    for n in 0..40 {
        alice.send("bob", &format!("m{n}"));
        world.pass(SECONDS(15)).await;
    }
    assert_eq!(alice.sent().len(), 40);
    assert!(alice.messages().is_empty(), "{:?}", alice.seqs());
}

#[tokio::test(start_paused = true)]
async fn a_receiver_whose_gateway_hangs_holds_up_no_other() {
    let world = World::new();
    let carol = world.connected(phone("carol").at_gateway("g2")).await;
    let bob = world.connected(phone("bob")).await;
    world.silence("g2");
    let sends = vec![message("carol", "first"), message("bob", "second")];
    let request = SendRequest { user: user("alice"), session: None, sends };
    let (sent, ()) = tokio::join!(world.node.send(request), async {
        world.pass(Duration::from_millis(500)).await;
        assert_eq!(bob.bodies(), ["second"]);
        world.unsilence("g2");
    });
    assert!(sent.iter().all(Result::is_ok));
    world.pass(SECONDS(120)).await;
    assert_eq!(carol.bodies(), ["first"]);
}
