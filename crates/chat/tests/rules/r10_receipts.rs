//! R10: receipts only grow, and are told as state.

use std::time::Duration;

use bluetick_chat::{ReceiptApi, ReceiptRequest};
use bluetick_protocol::{Boundaries, Seq};

use crate::harness::{Client, StoreMethod, World, conversation, message, phone, tablet, user};

fn boundaries(last_delivered_seq: Seq, last_read_seq: Seq) -> Boundaries {
    Boundaries { last_delivered_seq, last_read_seq }
}

fn receipt(of: &str, seq: Seq) -> ReceiptRequest {
    ReceiptRequest {
        user: user(of),
        session: None,
        conversation_id: conversation("alice~bob"),
        seq,
        again: false,
    }
}

async fn five_messages() -> World {
    let world = World::new();
    for n in 1..=5 {
        world.send("alice", "bob", &format!("m{n}")).await;
    }
    world
}

#[tokio::test(start_paused = true)]
async fn boundaries_never_go_back() {
    let world = five_messages().await;
    let bob = world.connected(phone("bob").without_acks()).await;
    for (ack, read, expected) in [
        (Some(3), None, boundaries(3, 0)),
        (Some(1), None, boundaries(3, 0)),
        (None, Some(2), boundaries(3, 2)),
        (None, Some(1), boundaries(3, 2)),
        (None, Some(4), boundaries(4, 4)),
        (Some(5), Some(3), boundaries(5, 4)),
    ] {
        ack.into_iter().for_each(|seq| bob.ack("alice~bob", seq));
        read.into_iter().for_each(|seq| bob.read("alice~bob", seq));
        world.quiet().await;
        assert_eq!(world.status("alice", "alice~bob").await.peer, expected, "after {ack:?} {read:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_boundary_beyond_the_last_seq_is_clamped() {
    let world = five_messages().await;
    world.node.ack(receipt("bob", 1000)).await.unwrap();
    assert_eq!(world.status("alice", "alice~bob").await.peer, boundaries(5, 0));
    world.node.read(receipt("bob", Seq::MAX)).await.unwrap();
    assert_eq!(world.status("alice", "alice~bob").await.peer, boundaries(5, 5));
    world.send("alice", "bob", "m6").await;
    assert_eq!(
        world.status("alice", "alice~bob").await.peer,
        boundaries(5, 5),
        "what came later is not covered"
    );
}

#[tokio::test(start_paused = true)]
async fn a_reply_implies_read_up_to_what_its_writer_had_seen() {
    let world = five_messages().await;
    world.node.ack(receipt("bob", 4)).await.unwrap();
    let mut reply = message("alice", "reply");
    reply.seen_seq = Some(2);
    world.send_frame("bob", reply).await.unwrap();
    assert_eq!(world.status("alice", "alice~bob").await.peer, boundaries(4, 2));
    assert_eq!(world.unread("bob", "alice~bob").await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_does_not_say_implies_read_up_to_what_was_delivered() {
    let world = five_messages().await;
    world.node.ack(receipt("bob", 4)).await.unwrap();
    world.send("bob", "alice", "reply").await;
    assert_eq!(world.status("alice", "alice~bob").await.peer, boundaries(4, 4));
    assert_eq!(world.unread("bob", "alice~bob").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_reply_never_reads_itself() {
    let world = five_messages().await;
    let mut reply = message("alice", "reply");
    reply.seen_seq = Some(1000);
    world.send_frame("bob", reply).await.unwrap();
    assert_eq!(world.status("alice", "alice~bob").await.peer, boundaries(5, 5));
}

#[tokio::test(start_paused = true)]
async fn ticks_reach_all_sessions_of_both_members() {
    let world = World::new();
    let sessions = [
        world.connected(phone("alice")).await,
        world.connected(tablet("alice")).await,
        world.connected(phone("bob").without_acks()).await,
        world.connected(tablet("bob").without_acks()).await,
    ];
    let stranger = world.connected(phone("carol")).await;
    world.send("alice", "bob", "hello").await;
    sessions[2].ack("alice~bob", 1);
    world.quiet().await;
    sessions[3].read("alice~bob", 1);
    world.quiet().await;
    for session in &sessions {
        let ticks: Vec<_> = session
            .ticks()
            .iter()
            .map(|t| (t.user_id.to_string(), t.last_delivered_seq, t.last_read_seq))
            .collect();
        assert_eq!(ticks, [("bob".to_owned(), 1, 0), ("bob".to_owned(), 1, 1)]);
    }
    assert!(stranger.ticks().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_session_that_acked_hears_of_it_in_company_or_after_a_while() {
    let world = World::new();
    let bob = world.connected(phone("bob").without_acks()).await;
    let other = world.connected(tablet("bob").without_acks()).await;
    let delivered = |client: &Client| client.ticks().iter().map(|t| t.last_delivered_seq).collect::<Vec<_>>();
    world.send("alice", "bob", "one").await;
    world.quiet().await;
    bob.ack("alice~bob", 1);
    world.quiet().await;
    assert_eq!((delivered(&bob), delivered(&other)), (vec![], vec![1]));
    world.pass(Duration::from_millis(250)).await;
    assert_eq!(delivered(&bob), [1], "alone, after a while");
    world.send("alice", "bob", "two").await;
    world.quiet().await;
    bob.ack("alice~bob", 2);
    world.quiet().await;
    assert_eq!((delivered(&bob), delivered(&other)), (vec![1], vec![1, 2]));
    world.send("alice", "bob", "three").await;
    world.quiet().await;
    assert_eq!(delivered(&bob), [1, 2], "with the next message");
}

#[tokio::test(start_paused = true)]
async fn a_reply_tells_the_read_it_implies() {
    let world = World::new();
    let alice = world.connected(phone("alice")).await;
    let bob = world.connected(phone("bob")).await;
    world.send("alice", "bob", "question").await;
    world.quiet().await;
    bob.send("alice", "answer");
    world.quiet().await;
    let of_bob: Vec<_> = alice.ticks().into_iter().filter(|t| t.user_id == user("bob")).collect();
    assert_eq!(of_bob.last().map(|t| (t.last_delivered_seq, t.last_read_seq)), Some((1, 1)));
}

#[tokio::test(start_paused = true)]
async fn who_was_offline_reads_the_ticks() {
    let world = five_messages().await;
    world.node.read(receipt("bob", 3)).await.unwrap();
    world.node.ack(receipt("bob", 5)).await.unwrap();
    assert_eq!(world.inbox("alice").await[0].peer_status, boundaries(5, 3));
    assert_eq!(world.status("alice", "alice~bob").await.peer, boundaries(5, 3));
}

#[tokio::test(start_paused = true)]
async fn a_receipt_that_changes_nothing_is_told_to_nobody() {
    let world = five_messages().await;
    let alice = world.connected(phone("alice")).await;
    for seq in [3, 3, 2, 1] {
        world.node.ack(receipt("bob", seq)).await.unwrap();
        world.quiet().await;
    }
    assert_eq!(alice.ticks().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_ack_that_was_not_stored_opens_no_window_and_settles_no_row() {
    let world = World::new();
    world.send("alice", "bob", "hello").await;
    world.steps.fail(StoreMethod::Advance, "bob");
    let bob = world.connected(phone("bob")).await;
    assert_eq!(world.row("bob", "alice~bob").await, Some(1));
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(world.row("bob", "alice~bob").await, None, "the session tries it again by itself");
    assert!(bob.errors().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_receipt_that_is_made_again_is_told_again() {
    let world = five_messages().await;
    let alice = world.connected(phone("alice")).await;
    world.node.ack(receipt("bob", 3)).await.unwrap();
    world.quiet().await;
    assert_eq!(alice.ticks().len(), 1);
    world.node.ack(receipt("bob", 3)).await.unwrap();
    world.quiet().await;
    assert_eq!(alice.ticks().len(), 1, "another device's ack of the same is no news");
    world.node.ack(ReceiptRequest { again: true, ..receipt("bob", 3) }).await.unwrap();
    world.quiet().await;
    assert_eq!(alice.ticks().len(), 2, "one whose first outcome is unknown may be");
}
