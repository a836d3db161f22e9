//! R4: ack, then delete, then read again.

use bluetick_sim::{Breach, Breaches};

use crate::harness::{StoreMethod, World, phone, rows_alone};

/// Bob's session has drained and acked a row, and is about to remove it; the registry has lost him. A sender finds
/// the row, so it writes nothing, and finds no session. Returns what Bob got in this session, and what his next
/// one, without a cursor, gets.
async fn a_sender_finds_the_row_that_is_being_removed(breaches: Breaches) -> (Vec<String>, Vec<String>) {
    let world = World::under(breaches);
    let (bob, settling) = world.bobs_row_is_relied_on().await;
    settling.open();
    world.quiet().await;
    let in_session = bob.bodies();
    bob.vanish().await;
    let bob = world.connected(phone("bob")).await;
    (in_session, bob.bodies())
}

#[tokio::test(start_paused = true)]
async fn what_a_sender_left_to_the_row_is_read_after_its_removal() {
    let (in_session, _) = a_sender_finds_the_row_that_is_being_removed(Breaches::default()).await;
    assert_eq!(in_session, ["drained", "relies-on-the-row"]);
    let (in_session, next) = a_sender_finds_the_row_that_is_being_removed(rows_alone([Breach::R4])).await;
    assert_eq!(in_session, ["drained"]);
    assert!(next.is_empty(), "the row is gone, and nobody has the message: {next:?}");
}

#[tokio::test(start_paused = true)]
async fn a_row_is_removed_only_when_all_that_was_drained_for_it_is_acked() {
    let world = World::new();
    for body in ["one", "two", "three"] {
        world.send("alice", "bob", body).await;
    }
    let bob = world.connected(phone("bob").without_acks()).await;
    assert_eq!(bob.seqs(), [1, 2, 3]);
    for seq in [1, 2] {
        bob.ack("alice~bob", seq);
        world.quiet().await;
        assert_eq!(world.row("bob", "alice~bob").await, Some(1), "after the ack of {seq}");
    }
    bob.ack("alice~bob", 3);
    world.quiet().await;
    assert_eq!(world.row("bob", "alice~bob").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_row_that_changed_since_it_was_read_is_not_removed() {
    let world = World::new();
    world.leave_stale_entry("bob").await;
    // The worker of the first message is late: its row comes while that of the second is being settled.
    let mut refused = world.steps.stop_after(StoreMethod::Unregister, "bob");
    let late = world.sending("alice", "bob", "one");
    refused.reached().await;
    world.send("alice", "bob", "two").await;
    // Nobody is to wake the session: only the row that it meets tells it.
    let mut settling = world.steps.stop_before(StoreMethod::Settle, "bob");
    let bob = world.connect(phone("bob"));
    settling.reached().await;
    assert_eq!(bob.bodies(), ["one", "two"], "nobody had acked the first, whatever the row said");
    world.flush_registry().await;
    refused.open();
    late.await.unwrap().unwrap();
    assert_eq!(world.row("bob", "alice~bob").await, Some(1));
    settling.open();
    world.quiet().await;
    assert_eq!(bob.bodies(), ["one", "two"]);
    assert_eq!(world.row("bob", "alice~bob").await, None, "drained and acked, it is removed");
}

#[tokio::test(start_paused = true)]
async fn a_removal_whose_answer_is_lost_is_tried_again_and_reads_again() {
    let world = World::new();
    let (bob, settling) = world.bobs_row_is_relied_on().await;
    world.steps.lose_answer(StoreMethod::Settle, "bob");
    settling.open();
    world.quiet().await;
    assert_eq!(world.row("bob", "alice~bob").await, None, "it was removed");
    world.pass(std::time::Duration::from_secs(1)).await;
    assert_eq!(bob.bodies(), ["drained", "relies-on-the-row"]);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_closes_while_its_row_is_removed_reads_again_all_the_same() {
    let world = World::new();
    let (bob, settling) = world.bobs_row_is_relied_on().await;
    let mut removed = world.steps.stop_after(StoreMethod::Settle, "bob");
    settling.open();
    removed.reached().await;
    bob.start_to_vanish();
    world.quiet().await;
    removed.open();
    bob.ended().await;
    let bob = world.connected(phone("bob")).await;
    assert_eq!(bob.bodies(), ["relies-on-the-row"]);
}
