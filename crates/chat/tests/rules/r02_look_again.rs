//! R2: write, then look up, then look up again.

use bluetick_sim::{Breach, Breaches};

use crate::harness::{StoreMethod, World, phone, rows_alone};

/// Bob's session registers, and finds no row, between the sender's first lookup and its writes.
async fn registers_after_the_first_lookup(breaches: Breaches) -> Vec<String> {
    let world = World::under(breaches);
    let mut looked_up = world.steps.stop_after(StoreMethod::Lookup, "bob");
    let sending = world.sending("alice", "bob", "hello");
    looked_up.reached().await;
    let bob = world.connected(phone("bob")).await;
    assert_eq!(bob.caught_up().len(), 1, "he found nothing pending");
    looked_up.open();
    sending.await.unwrap().unwrap();
    world.quiet().await;
    bob.bodies()
}

#[tokio::test(start_paused = true)]
async fn a_session_that_registers_after_the_first_lookup_is_found_by_the_second() {
    for breaches in [Breaches::default(), rows_alone([])] {
        assert_eq!(registers_after_the_first_lookup(breaches).await, ["hello"]);
    }
    let without = registers_after_the_first_lookup(rows_alone([Breach::R2])).await;
    assert!(without.is_empty(), "its row was written after it had looked for rows: {without:?}");
}

/// The sender found a session that was gone; a new one registers just before the row is written for
/// it.
async fn registers_before_the_row(breaches: Breaches) -> Vec<String> {
    let world = World::under(breaches);
    world.leave_stale_entry("bob").await;
    let mut noting = world.steps.stop_before(StoreMethod::NoteUndelivered, "bob");
    let sending = world.sending("alice", "bob", "hello");
    noting.reached().await;
    let bob = world.connected(phone("bob")).await;
    noting.open();
    sending.await.unwrap().unwrap();
    world.quiet().await;
    bob.bodies()
}

#[tokio::test(start_paused = true)]
async fn who_writes_a_row_wakes_the_session_that_came_meanwhile() {
    for breaches in [Breaches::default(), rows_alone([])] {
        assert_eq!(registers_before_the_row(breaches).await, ["hello"]);
    }
    let without = registers_before_the_row(rows_alone([Breach::R2])).await;
    assert!(without.is_empty(), "nobody told it of the row: {without:?}");
}

#[tokio::test(start_paused = true)]
async fn a_row_that_rode_along_is_settled_by_the_session_that_took_the_message() {
    let world = World::new();
    let mut looked_up = world.steps.stop_after(StoreMethod::Lookup, "bob");
    let sending = world.sending("alice", "bob", "hello");
    looked_up.reached().await;
    let bob = world.connected(phone("bob").without_acks()).await;
    looked_up.open();
    sending.await.unwrap().unwrap();
    world.quiet().await;
    assert_eq!(world.row("bob", "alice~bob").await, Some(1), "the row stays until the ack");
    bob.ack("alice~bob", 1);
    world.quiet().await;
    assert_eq!(world.row("bob", "alice~bob").await, None);
    assert_eq!(bob.seqs(), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_message_is_stored_before_anybody_is_handed_it() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    let mut committing = world.steps.stop_before(StoreMethod::CommitSends, "hello");
    let sending = world.sending("alice", "bob", "hello");
    committing.reached().await;
    world.quiet().await;
    assert!(bob.messages().is_empty());
    committing.open();
    sending.await.unwrap().unwrap();
    world.quiet().await;
    assert_eq!(bob.bodies(), ["hello"]);
}

/// Bob's session registers between the sender's first lookup and its commit, whose answer is lost.
/// The sender does not try again. Returns what Bob gets.
async fn the_answer_to_a_commit_is_lost(breaches: Breaches) -> Vec<String> {
    let world = World::under(breaches);
    let mut looked_up = world.steps.stop_after(StoreMethod::Lookup, "bob");
    let sending = world.sending("alice", "bob", "hello");
    looked_up.reached().await;
    let bob = world.connected(phone("bob")).await;
    world.steps.lose_answer(StoreMethod::CommitSends, "hello");
    looked_up.open();
    assert!(sending.await.unwrap().is_err(), "the sender is not told `sent`");
    world.quiet().await;
    if !bob.bodies().is_empty() {
        assert_eq!(world.row("bob", "alice~bob").await, None, "and nobody leaves the row behind");
    }
    bob.bodies()
}

#[tokio::test(start_paused = true)]
async fn a_row_that_may_have_been_written_with_its_message_is_looked_for() {
    assert_eq!(the_answer_to_a_commit_is_lost(Breaches::default()).await, ["hello"]);
    let without = the_answer_to_a_commit_is_lost(rows_alone([Breach::R2])).await;
    assert!(without.is_empty(), "nobody told him of the row: {without:?}");
}

#[tokio::test(start_paused = true)]
async fn a_row_whose_write_was_not_answered_is_looked_for() {
    let world = World::under(rows_alone([]));
    world.leave_stale_entry("bob").await;
    let mut noting = world.steps.stop_before(StoreMethod::NoteUndelivered, "bob");
    let sending = world.sending("alice", "bob", "hello");
    noting.reached().await;
    let bob = world.connected(phone("bob")).await;
    assert!(bob.messages().is_empty(), "there is no row yet");
    world.steps.lose_answer(StoreMethod::NoteUndelivered, "bob");
    noting.open();
    assert!(sending.await.unwrap().is_err());
    world.quiet().await;
    assert_eq!(bob.bodies(), ["hello"]);
    assert_eq!(world.row("bob", "alice~bob").await, None);
}
