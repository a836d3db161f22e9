//! R6: a device without a cursor gets what no device of its user has acked, whether or not there is a pending row.

use bluetick_chat::{ChatConfig, PlanApi, PlanRequest, UserApi};
use bluetick_protocol::MessageId;
use bluetick_sim::{Breach, Breaches};

use crate::harness::{Setup, World, conversation, phone, rows_alone, tablet, user};

/// Bob's session took messages, acked some, and died with its process: it left no row. Returns what his device gets
/// that has lost its cursor.
async fn comes_back_without_a_cursor(breaches: Breaches) -> Vec<String> {
    let world = World::under(breaches);
    let bob = world.connected(phone("bob").without_acks()).await;
    for (from, body) in [("alice", "acked"), ("alice", "unacked"), ("carol", "from-carol")] {
        world.send(from, "bob", body).await;
    }
    world.quiet().await;
    bob.ack("alice~bob", 1);
    world.quiet().await;
    assert_eq!(bob.seqs(), [1, 2, 1]);
    world.crash("g1").await;
    assert_eq!(world.store.pending.pending_of(&user("bob")).await.unwrap(), [], "a crash pays no debts");
    let bob = world.connected(phone("bob").at_gateway("g2")).await;
    assert_eq!(bob.caught_up().len(), 1);
    bob.bodies()
}

#[tokio::test(start_paused = true)]
async fn what_no_device_has_acked_comes_back_after_a_crash() {
    assert_eq!(comes_back_without_a_cursor(Breaches::default()).await, ["unacked", "from-carol"]);
    let without = comes_back_without_a_cursor(Breaches::of([Breach::R6Undelivered])).await;
    assert!(without.is_empty(), "they are in no row: {without:?}");
}

#[tokio::test(start_paused = true)]
async fn it_comes_before_caught_up_and_once_acked_not_again() {
    let world = World::new();
    let bob = world.connected(phone("bob").without_acks()).await;
    world.send("alice", "bob", "unacked").await;
    world.quiet().await;
    assert_eq!(bob.bodies(), ["unacked"]);
    world.crash("g1").await;
    let bob = world.connected(phone("bob").at_gateway("g2")).await;
    let kinds = serde_json::to_value(bob.frames()).unwrap();
    let kinds: Vec<_> = kinds.as_array().unwrap().iter().map(|frame| frame["type"].clone()).collect();
    assert_eq!(kinds[..3], ["welcome", "message", "caught_up"]);
    bob.vanish().await;
    assert!(world.connected(phone("bob")).await.messages().is_empty());
}

/// Alice wrote 1 to 5, of which a device took all and acked 2. A reply comes from elsewhere, and is the last message.
#[tokio::test(start_paused = true)]
async fn a_reply_of_ones_own_hides_nothing() {
    let world = World::new();
    let bob = world.connected(phone("bob").without_acks()).await;
    for n in 1..=5 {
        world.send("alice", "bob", &format!("m{n}")).await;
    }
    world.quiet().await;
    bob.ack("alice~bob", 2);
    world.quiet().await;
    world.crash("g1").await;
    assert_eq!(world.send("bob", "alice", "reply").await, 6);
    let bob = world.connected(tablet("bob").at_gateway("g2")).await;
    assert_eq!(bob.bodies(), ["m3", "m4", "m5", "reply"]);
    assert_eq!(world.status("bob", "alice~bob").await.own.last_delivered_seq, 5);
}

#[tokio::test(start_paused = true)]
async fn what_is_withheld_is_not_undelivered() {
    let world = World::new();
    world.node.set_block(user("bob"), user("alice"), true).await.unwrap();
    world.send("alice", "bob", "withheld").await;
    let bob = world.connected(phone("bob")).await;
    assert_eq!((bob.messages().len(), bob.caught_up().len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_device_whose_cursor_cannot_be_served_has_none() {
    let world = World::new();
    let _bob = world.connected(phone("bob").without_acks()).await;
    world.send("alice", "bob", "unacked").await;
    world.quiet().await;
    world.crash("g1").await;
    let bob = world.connected(phone("bob").with_cursor(MessageId::at(1)).at_gateway("g2")).await;
    assert_eq!((bob.resets().len(), bob.bodies(), bob.caught_up().len()), (1, vec!["unacked".to_owned()], 1));
}

/// More conversations than one plan takes: they come part by part, and `caught_up` after the last.
#[tokio::test(start_paused = true)]
async fn more_conversations_than_fit_a_plan_come_in_parts() {
    let mut setup = Setup::default();
    setup.chat.resume_max_conversations = 3;
    let world = World::with(setup);
    let _bob = world.connected(phone("bob").without_acks()).await;
    let friends: Vec<String> = (0..20).map(|n| format!("friend{n:02}")).collect();
    for friend in &friends {
        world.send(friend, "bob", &format!("from-{friend}")).await;
    }
    world.quiet().await;
    world.crash("g1").await;
    let bob = world.connected(phone("bob").at_gateway("g2")).await;
    let expected: Vec<String> = friends.iter().map(|friend| format!("from-{friend}")).collect();
    assert_eq!(bob.bodies(), expected);
    assert_eq!(bob.messages().len(), friends.len(), "each once");
    assert_eq!(bob.caught_up().len(), 1);
    let last = serde_json::to_value(bob.frames()).unwrap();
    let last = last.as_array().unwrap().iter().rposition(|frame| frame["type"] == "message").unwrap();
    let caught_up =
        bob.frames().iter().position(|frame| matches!(frame, bluetick_protocol::ServerFrame::CaughtUp(_)));
    assert!(caught_up.is_some_and(|at| at > last), "all of it was there when the drain began");
}

/// A session has closed while the removal of its row was on its way. A sender finds the row and writes none, and then
/// the removal takes effect: what it sent has no row, and nobody is left who would read past it.
async fn a_removal_comes_after_its_session_has_closed(breaches: Breaches) -> Vec<String> {
    let world = World::under(breaches);
    world.send("alice", "bob", "drained").await;
    let bob = world.connected(phone("bob").without_acks()).await;
    // Its ack is stored by another session, so that this one leaves the row as it is.
    world.store.status.advance(&user("bob"), &conversation("alice~bob"), 1, 0).await.unwrap();
    world.crash("g1").await;
    drop(bob);
    assert_eq!(world.row("bob", "alice~bob").await, Some(1));
    world.send("alice", "bob", "relies-on-the-row").await;
    assert_eq!(world.row("bob", "alice~bob").await, Some(1), "the row covers it");
    assert!(world.store.pending.settle(&user("bob"), &conversation("alice~bob"), 1, None).await.unwrap());
    world.connected(phone("bob").at_gateway("g2")).await.bodies()
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_comes_after_its_session_has_closed_hides_nothing() {
    assert_eq!(
        a_removal_comes_after_its_session_has_closed(Breaches::default()).await,
        ["relies-on-the-row"]
    );
    let without = a_removal_comes_after_its_session_has_closed(rows_alone([])).await;
    assert!(without.is_empty(), "the row is gone: {without:?}");
}

#[tokio::test(start_paused = true)]
async fn a_plan_looks_at_so_many_conversations_and_no_more() {
    let chat = ChatConfig { resume_max_conversations: 4, ..ChatConfig::default() };
    let world = World::with(Setup { chat, ..Setup::default() });
    let bob = world.connected(phone("bob")).await;
    for n in 0..10 {
        world.send(&format!("a{n}"), "bob", &format!("acked{n}")).await;
    }
    world.quiet().await;
    bob.vanish().await;
    let request = PlanRequest { user: user("bob"), cursor: None, heads: true, undelivered_after: None };
    let plan = world.node.plan(request).await.unwrap();
    assert!(plan.lanes.is_empty() && plan.more.is_some(), "{plan:?}");
    world.send("zoe", "bob", "beyond-all-of-these").await;
    assert_eq!(world.connected(tablet("bob")).await.bodies(), ["beyond-all-of-these"]);
}
