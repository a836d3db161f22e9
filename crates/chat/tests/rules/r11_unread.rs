//! R11: unread never drifts.

use bluetick_chat::{ReceiptApi, ReceiptRequest, UserApi};
use bluetick_protocol::Seq;

use crate::harness::{StoreMethod, World, conversation, phone, user};

async fn read(world: &World, of: &str, seq: Seq) {
    let conversation_id = conversation("alice~bob");
    world
        .node
        .read(ReceiptRequest { user: user(of), session: None, conversation_id, seq, again: false })
        .await
        .unwrap();
}

async fn unread(world: &World) -> u64 {
    world.unread("bob", "alice~bob").await
}

#[tokio::test(start_paused = true)]
async fn a_read_leaves_exactly_what_comes_after_it() {
    let world = World::new();
    for n in 1..=5 {
        world.send("alice", "bob", &format!("m{n}")).await;
    }
    for (seq, left) in [(0, 5), (2, 3), (1, 3), (4, 1), (5, 0)] {
        read(&world, "bob", seq).await;
        assert_eq!(unread(&world).await, left, "read up to {seq}");
    }
}

#[tokio::test(start_paused = true)]
async fn own_messages_are_never_counted() {
    let world = World::new();
    world.send("alice", "bob", "one").await;
    for n in 0..3 {
        world.send("bob", "alice", &format!("own{n}")).await;
    }
    world.send("alice", "bob", "five").await;
    assert_eq!(unread(&world).await, 2);
    assert_eq!(world.unread("alice", "alice~bob").await, 3);
    read(&world, "bob", 1).await;
    assert_eq!(unread(&world).await, 1, "of the four after it three are his own");
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_answer_was_lost_counts_once() {
    let world = World::new();
    world.steps.lose_answer(StoreMethod::CommitSends, "hello");
    world.try_send("alice", "bob", "hello").await.unwrap_err();
    assert_eq!(unread(&world).await, 1, "it was stored");
    assert!(world.try_send("alice", "bob", "hello").await.unwrap().duplicate);
    assert_eq!(unread(&world).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_read_whose_answer_was_lost_is_a_read() {
    let world = World::new();
    world.send("alice", "bob", "one").await;
    world.send("alice", "bob", "two").await;
    world.steps.lose_answer(StoreMethod::Advance, "bob");
    let bob = world.connected(phone("bob").without_acks()).await;
    bob.read("alice~bob", 1);
    world.quiet().await;
    bob.read("alice~bob", 1);
    world.quiet().await;
    assert_eq!(unread(&world).await, 1);
}

#[tokio::test(start_paused = true)]
async fn delivered_is_not_read() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    world.send("alice", "bob", "while-online").await;
    world.quiet().await;
    assert_eq!(bob.bodies(), ["while-online"]);
    assert_eq!(unread(&world).await, 1, "a reload shows it as unread");
}

#[tokio::test(start_paused = true)]
async fn what_is_withheld_or_void_is_not_counted() {
    let world = World::new();
    world.send("alice", "bob", "one").await;
    world.node.set_block(user("bob"), user("alice"), true).await.unwrap();
    world.send("alice", "bob", "withheld").await;
    world.node.set_block(user("bob"), user("alice"), false).await.unwrap();
    world.memory.leak_seq(&conversation("alice~bob"));
    assert_eq!(world.send("alice", "bob", "four").await, 4);
    assert_eq!(unread(&world).await, 2);
    let bob = world.connect(phone("bob"));
    world.pass(std::time::Duration::from_secs(1)).await;
    assert_eq!(bob.seqs(), [1, 4]);
    assert_eq!(unread(&world).await, 2, "nor after the hole was closed");
    read(&world, "bob", 1).await;
    assert_eq!(unread(&world).await, 1);
}
