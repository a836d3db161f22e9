//! R9: sends are idempotent, and a retry runs the delivery steps again.

use std::time::Duration;

use bluetick_protocol::{ErrorCode, Seq};
use bluetick_sim::{Breach, Breaches};

use crate::harness::{StoreMethod, World, message, phone, rows_alone, tablet};

/// The first attempt dies after its commit: it had found a session that was gone, so there is no row yet. The
/// sender tries again. Returns the row, and what a device without a cursor gets.
async fn the_first_attempt_dies_after_its_commit(breaches: Breaches) -> (Option<Seq>, Vec<String>) {
    let world = World::under(breaches);
    world.leave_stale_entry("bob").await;
    let mut committed = world.steps.stop_after(StoreMethod::CommitSends, "hello");
    let first = world.sending("alice", "bob", "hello");
    committed.reached().await;
    first.abort();
    world.quiet().await;
    assert_eq!(world.row("bob", "alice~bob").await, None, "it died before the row");
    let retry = world.try_send("alice", "bob", "hello").await.unwrap();
    assert_eq!((retry.seq, retry.duplicate), (1, true));
    let row = world.row("bob", "alice~bob").await;
    (row, world.connected(phone("bob")).await.bodies())
}

#[tokio::test(start_paused = true)]
async fn a_retry_writes_the_row_that_the_first_attempt_did_not() {
    let with = the_first_attempt_dies_after_its_commit(Breaches::default()).await;
    assert_eq!(with, (Some(1), vec!["hello".to_owned()]));
    let without = the_first_attempt_dies_after_its_commit(rows_alone([Breach::R9])).await;
    assert_eq!(without, (None, vec![]), "told sent, and in no row");
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_a_lost_answer_gets_the_original() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    let alice = world.connected(phone("alice")).await;
    world.steps.lose_answer(StoreMethod::CommitSends, "hello");
    alice.send("bob", "hello");
    world.quiet().await;
    assert_eq!(alice.errors(), [ErrorCode::Unavailable]);
    alice.send("bob", "hello");
    alice.send("bob", "next");
    world.quiet().await;
    assert_eq!(alice.sent(), [(1, true), (2, false)]);
    assert_eq!(bob.bodies(), ["hello", "next"]);
    assert_eq!(bob.seqs(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_retry_of_what_was_delivered_is_not_delivered_again_to_a_live_session() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    for _ in 0..3 {
        world.try_send("alice", "bob", "hello").await.unwrap();
        world.quiet().await;
    }
    assert_eq!(bob.seqs(), [1]);
    assert_eq!(world.unread("bob", "alice~bob").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_retry_hands_over_what_the_first_attempt_handed_to_nobody() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    let on_tablet = world.connected(tablet("alice")).await;
    let mut committed = world.steps.stop_after(StoreMethod::CommitSends, "hello");
    let first = world.sending("alice", "bob", "hello");
    committed.reached().await;
    first.abort();
    world.quiet().await;
    assert!(bob.messages().is_empty());
    assert!(world.try_send("alice", "bob", "hello").await.unwrap().duplicate);
    world.quiet().await;
    assert_eq!(bob.bodies(), ["hello"]);
    assert_eq!(on_tablet.bodies(), ["hello"], "the sender's other devices are part of the delivery steps");
}

#[tokio::test(start_paused = true)]
async fn the_same_id_of_the_other_member_is_another_message() {
    let world = World::new();
    assert_eq!(world.send("alice", "bob", "same-id").await, 1);
    assert_eq!(world.send("bob", "alice", "same-id").await, 2);
}

#[tokio::test(start_paused = true)]
async fn an_id_is_remembered_for_thirty_days() {
    let world = World::new();
    world.send("alice", "bob", "hello").await;
    world.clock.advance(Duration::from_secs(29 * 24 * 3600).as_millis() as u64);
    let retry = world.try_send("alice", "bob", "hello").await.unwrap();
    assert_eq!((retry.seq, retry.duplicate), (1, true));
}

#[tokio::test(start_paused = true)]
async fn the_same_id_with_other_content_is_refused_and_delivered_to_nobody() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    let on_tablet = world.connected(tablet("alice")).await;
    world.send("alice", "bob", "hello").await;
    world.quiet().await;
    let mut other = message("bob", "hello");
    other.body = "goodbye".into();
    let error = world.send_frame("alice", other).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ClientMsgIdConflict);
    assert!(error.message.contains("message 1 of alice~bob") && error.message.contains("body"), "{error}");
    world.quiet().await;
    assert_eq!((bob.bodies(), on_tablet.bodies()), (vec!["hello".to_owned()], vec!["hello".to_owned()]));
    assert_eq!(world.unread("bob", "alice~bob").await, 1);
}
