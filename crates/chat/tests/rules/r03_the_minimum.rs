//! R3: the pending row keeps the minimum, whoever comes first.

use bluetick_protocol::Seq;
use bluetick_sim::{Breach, Breaches};

use crate::harness::{StoreMethod, World, phone, rows_alone};

/// Two workers carry 1 and 2; the one with 2 notes it first. Both had found a session that was gone. Returns the
/// row, and what a device without a cursor then gets.
async fn two_workers_arrive_in_the_wrong_order(breaches: Breaches) -> (Option<Seq>, Vec<Seq>) {
    let world = World::under(breaches);
    world.leave_stale_entry("bob").await;
    let mut refused = world.steps.stop_after(StoreMethod::Unregister, "bob");
    let first = world.sending("alice", "bob", "one");
    refused.reached().await;
    assert_eq!(world.send("alice", "bob", "two").await, 2);
    assert_eq!(world.row("bob", "alice~bob").await, Some(2));
    refused.open();
    assert_eq!(first.await.unwrap().unwrap().seq, 1);
    let row = world.row("bob", "alice~bob").await;
    let bob = world.connected(phone("bob")).await;
    (row, bob.seqs())
}

#[tokio::test(start_paused = true)]
async fn the_lower_seq_wins_although_it_comes_later() {
    assert_eq!(two_workers_arrive_in_the_wrong_order(Breaches::default()).await, (Some(1), vec![1, 2]));
    let without = two_workers_arrive_in_the_wrong_order(rows_alone([Breach::R3])).await;
    assert_eq!(without, (Some(2), vec![2]), "get, then put: the first message is lost");
}

#[tokio::test(start_paused = true)]
async fn a_conversation_has_one_row_however_many_messages_wait() {
    let world = World::new();
    for n in 0..50 {
        world.send("alice", "bob", &format!("m{n}")).await;
    }
    let rows = world.store.pending.pending_of(&crate::harness::user("bob")).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].first_undelivered_seq, 1);
}
