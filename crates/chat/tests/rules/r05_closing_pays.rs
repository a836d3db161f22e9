//! R5: a closing session pays its debts.

use bluetick_protocol::ServerFrame;
use bluetick_sim::{Breach, Breaches};

use crate::harness::{StoreMethod, World, phone, rows_alone, tablet, user};

/// Bob's session took live messages, saw one acked, and closes. Returns what his next session, without a cursor,
/// gets.
async fn closes_with_unacked_messages(breaches: Breaches) -> Vec<String> {
    let world = World::under(breaches);
    let bob = world.connected(phone("bob").without_acks()).await;
    for body in ["acked", "unacked", "unacked-too"] {
        world.send("alice", "bob", body).await;
    }
    world.quiet().await;
    assert_eq!(bob.seqs(), [1, 2, 3]);
    assert_eq!(world.row("bob", "alice~bob").await, None, "a live session took them");
    bob.ack("alice~bob", 1);
    world.quiet().await;
    bob.vanish().await;
    world.connected(phone("bob")).await.bodies()
}

#[tokio::test(start_paused = true)]
async fn what_was_not_acked_comes_back_to_a_device_without_a_cursor() {
    for breaches in [Breaches::default(), rows_alone([])] {
        assert_eq!(closes_with_unacked_messages(breaches).await, ["unacked", "unacked-too"]);
    }
    let without = closes_with_unacked_messages(rows_alone([Breach::R5])).await;
    assert!(without.is_empty(), "they are in no row: {without:?}");
}

#[tokio::test(start_paused = true)]
async fn the_row_moves_up_to_the_first_unacked_seq() {
    let world = World::new();
    for body in ["one", "two", "three"] {
        world.send("alice", "bob", body).await;
    }
    let bob = world.connected(phone("bob").without_acks()).await;
    bob.ack("alice~bob", 2);
    world.quiet().await;
    assert_eq!(world.row("bob", "alice~bob").await, Some(1));
    bob.vanish().await;
    assert_eq!(world.row("bob", "alice~bob").await, Some(3));
}

/// Bob's session closes and owes seq 3 of a row that it read as 2; meanwhile the row became something else.
async fn closes_when_the_row_is_another(expected: bluetick_protocol::Seq, row: Option<u64>) -> Option<u64> {
    let world = World::new();
    let (bob_id, id) = (user("bob"), crate::harness::conversation("alice~bob"));
    for body in ["one", "two", "three", "four"] {
        world.send("alice", "bob", body).await;
    }
    world.store.status.advance(&bob_id, &id, 1, 0).await.unwrap();
    world.store.pending.settle(&bob_id, &id, 1, Some(2)).await.unwrap();
    let bob = world.connected(phone("bob").without_acks()).await;
    assert_eq!(bob.seqs(), [2, 3, 4]);
    bob.ack("alice~bob", 2);
    world.quiet().await;
    assert!(world.store.pending.settle(&bob_id, &id, expected, row).await.unwrap());
    bob.vanish().await;
    world.row("bob", "alice~bob").await
}

#[tokio::test(start_paused = true)]
async fn a_row_that_another_lowered_is_not_raised() {
    assert_eq!(closes_when_the_row_is_another(2, Some(1)).await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_row_that_another_raised_or_removed_is_made_again_for_what_is_owed() {
    assert_eq!(closes_when_the_row_is_another(2, Some(4)).await, Some(3));
    assert_eq!(closes_when_the_row_is_another(2, None).await, Some(3));
}

#[tokio::test(start_paused = true)]
async fn a_closing_session_refuses_hand_overs_before_it_counts_its_debts() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    let mut leaving = world.steps.stop_before(StoreMethod::Unregister, "bob");
    bob.start_to_vanish();
    leaving.reached().await;
    world.send("alice", "bob", "too-late").await;
    assert_eq!(world.row("bob", "alice~bob").await, Some(1), "refused, so its sender took the offline path");
    leaving.open();
    bob.ended().await;
    assert_eq!(world.connected(phone("bob")).await.bodies(), ["too-late"]);
}

#[tokio::test(start_paused = true)]
async fn messages_that_never_fitted_the_window_are_owed_as_well() {
    let mut setup = crate::harness::Setup::default();
    setup.session.window = 2;
    let world = World::with(setup);
    let bob = world.connected(phone("bob").without_acks()).await;
    for n in 1..=5 {
        world.send("alice", "bob", &format!("m{n}")).await;
    }
    world.quiet().await;
    assert_eq!(bob.seqs(), [1, 2]);
    bob.ack("alice~bob", 2);
    bob.vanish().await;
    let owed = world.row("bob", "alice~bob").await;
    assert!(owed.is_some_and(|first| first <= 3), "{owed:?}");
    assert!(world.connected(phone("bob")).await.bodies().ends_with(&["m3", "m4", "m5"].map(String::from)));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_there_when_a_debt_is_written_is_woken() {
    let world = World::under(rows_alone([]));
    let phone_session = world.connected(phone("bob").without_acks()).await;
    world.send("alice", "bob", "owed").await;
    world.quiet().await;
    let mut paying = world.steps.stop_before(StoreMethod::NoteUndelivered, "bob");
    phone_session.start_to_vanish();
    paying.reached().await;
    let tablet_session = world.connected(tablet("bob")).await;
    assert!(tablet_session.messages().is_empty(), "there was no row when it looked");
    paying.open();
    phone_session.ended().await;
    world.quiet().await;
    assert_eq!(tablet_session.bodies(), ["owed"]);
}

#[tokio::test(start_paused = true)]
async fn a_debt_that_could_not_be_written_is_written_again() {
    let world = World::new();
    let bob = world.connected(phone("bob").without_acks()).await;
    world.send("alice", "bob", "owed").await;
    world.quiet().await;
    world.steps.fail(StoreMethod::NoteUndelivered, "bob");
    world.steps.fail(StoreMethod::NoteUndelivered, "bob");
    bob.vanish().await;
    assert_eq!(world.connected(phone("bob")).await.bodies(), ["owed"]);
}

/// The row that a sender relied on is removed while the session closes, and nobody says so: the session owes what lies behind it.
#[tokio::test(start_paused = true)]
async fn a_row_whose_removal_was_not_answered_is_made_again_for_what_it_stood_for() {
    let world = World::new();
    let (bob, settling) = world.bobs_row_is_relied_on().await;
    // Once for the removal under way, and once for the try that a closing session makes.
    world.steps.lose_answer(StoreMethod::Settle, "bob");
    world.steps.lose_answer(StoreMethod::Settle, "bob");
    bob.start_to_vanish();
    world.quiet().await;
    settling.open();
    assert_eq!(bob.ended().await.iter().filter(|frame| matches!(frame, ServerFrame::Message(_))).count(), 1);
    assert_eq!(world.row("bob", "alice~bob").await, Some(2));
    assert_eq!(world.connected(phone("bob")).await.bodies(), ["relies-on-the-row"]);
}
