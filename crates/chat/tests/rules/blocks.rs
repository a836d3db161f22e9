//! Blocks: the blocked sees a single tick for ever, the blocker nothing at all.

use std::time::Duration;

use bluetick_chat::{HistoryApi, UserApi};
use bluetick_protocol::{Boundaries, ErrorCode, HistoryQuery, Profile};
use serde_json::json;

use crate::harness::{World, conversation, phone, tablet, user};

async fn block(world: &World, who: &str, whom: &str, blocked: bool) {
    world.node.set_block(user(who), user(whom), blocked).await.unwrap();
}

async fn history(world: &World, of: &str) -> Vec<String> {
    let query = HistoryQuery {
        reference: None,
        conversation_id: conversation("alice~bob"),
        after_seq: None,
        before_seq: None,
        limit: None,
    };
    let page = world.node.history(user(of), query).await.unwrap();
    page.messages.into_iter().map(|m| m.body).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_withheld_appears_nowhere_on_the_blocker_s_side() {
    let world = World::new();
    let cursor = world.cursor_now();
    let bob = world.connected(phone("bob")).await;
    world.send("alice", "bob", "before").await;
    block(&world, "bob", "alice", true).await;
    assert_eq!(world.send("alice", "bob", "withheld").await, 2, "the sender is told sent as ever");
    world.quiet().await;
    assert_eq!(bob.bodies(), ["before"], "live");
    assert_eq!(world.row("bob", "alice~bob").await, None, "no row");
    assert_eq!(history(&world, "bob").await, ["before"]);
    let inbox = world.inbox("bob").await;
    assert_eq!((inbox[0].last_message_preview.as_str(), inbox[0].last_seq), ("before", 1));
    assert_eq!(inbox[0].unread_count, 1);
    let resumed = world.connected(tablet("bob").with_cursor(cursor)).await;
    assert_eq!(resumed.bodies(), ["before"], "nor by a cursor");
    assert_eq!(resumed.caught_up()[0].heads[0].last_seq, 1);
    assert_eq!(history(&world, "alice").await, ["before", "withheld"], "its sender has it");
}

#[tokio::test(start_paused = true)]
async fn a_stranger_who_is_blocked_makes_no_conversation() {
    let world = World::new();
    block(&world, "bob", "alice", true).await;
    let bob = world.connected(phone("bob")).await;
    world.send("alice", "bob", "withheld").await;
    world.quiet().await;
    assert!(bob.messages().is_empty());
    assert!(world.inbox("bob").await.is_empty());
    assert_eq!(world.inbox("alice").await.len(), 1);
    let later = world.connected(tablet("bob").with_cursor(world.cursor_now())).await;
    assert!(later.messages().is_empty());
    assert!(later.caught_up()[0].heads.is_empty());
}

#[tokio::test(start_paused = true)]
async fn after_an_unblock_the_withheld_stays_hidden_and_the_stream_goes_on() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    world.send("alice", "bob", "before").await;
    block(&world, "bob", "alice", true).await;
    world.send("alice", "bob", "withheld").await;
    block(&world, "bob", "alice", false).await;
    world.send("alice", "bob", "after").await;
    world.quiet().await;
    assert_eq!(bob.seqs(), [1, 3]);
    assert_eq!(history(&world, "bob").await, ["before", "after"]);
    assert_eq!(world.unread("bob", "alice~bob").await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_withheld_message_has_a_single_tick_for_ever() {
    let world = World::new();
    let alice = world.connected(phone("alice")).await;
    let bob = world.connected(phone("bob")).await;
    block(&world, "bob", "alice", true).await;
    alice.send("bob", "withheld");
    world.pass(Duration::from_secs(120)).await;
    bob.vanish().await;
    let _bob = world.connected(phone("bob")).await;
    world.pass(Duration::from_secs(120)).await;
    assert_eq!(alice.sent(), [(1, false)]);
    assert!(alice.ticks().is_empty());
    assert_eq!(world.status("alice", "alice~bob").await.peer, Boundaries::default());
    assert_eq!(world.inbox("alice").await[0].peer_status, Boundaries::default());
}

#[tokio::test(start_paused = true)]
async fn a_retry_of_a_withheld_message_is_withheld_too() {
    let world = World::new();
    let bob = world.connected(phone("bob")).await;
    block(&world, "bob", "alice", true).await;
    world.send("alice", "bob", "withheld").await;
    block(&world, "bob", "alice", false).await;
    assert!(world.try_send("alice", "bob", "withheld").await.unwrap().duplicate);
    world.quiet().await;
    assert!(bob.messages().is_empty());
    assert_eq!(world.row("bob", "alice~bob").await, None);
}

#[tokio::test(start_paused = true)]
async fn sending_to_someone_you_block_is_refused() {
    let world = World::new();
    let alice = world.connected(phone("alice")).await;
    let bob = world.connected(phone("bob")).await;
    block(&world, "bob", "alice", true).await;
    bob.send("alice", "refused");
    world.quiet().await;
    assert_eq!(bob.errors(), [ErrorCode::Blocked]);
    assert!(bob.sent().is_empty() && alice.messages().is_empty());
    assert!(world.inbox("bob").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_blocked_side_sees_no_presence_and_no_typing() {
    let world = World::new();
    world.send("alice", "bob", "hello").await;
    world.send("bob", "alice", "hello").await;
    let alice = world.connected(phone("alice")).await;
    let bob = world.connected(phone("bob")).await;
    alice.say(json!({"type": "watch", "users": ["bob"]}));
    world.quiet().await;
    assert!(alice.presence().pop().unwrap().online, "before the block");
    block(&world, "bob", "alice", true).await;
    let before = alice.presence().len();
    bob.vanish().await;
    let bob = world.connected(phone("bob")).await;
    assert_eq!(alice.presence().len(), before, "his coming and going is not told");
    alice.say(json!({"type": "watch", "users": ["bob", "nobody"]}));
    alice.say(json!({"type": "typing", "conversation_id": "alice~bob"}));
    world.quiet().await;
    let answers: Vec<_> =
        alice.presence().split_off(before).iter().map(|p| (p.online, p.last_seen)).collect();
    assert_eq!(answers, [(false, None), (false, None)], "as for somebody who was never there");
    let typing = bob.frames().iter().any(|f| matches!(f, bluetick_protocol::ServerFrame::Typing(_)));
    assert!(!typing);
}

async fn named(world: &World, who: &str, name: &str) {
    let profile = Profile { name: Some(name.into()), avatar_url: None };
    world.node.put_profile(user(who), profile).await.unwrap();
}

async fn peer_name(world: &World, who: &str) -> Option<String> {
    world.inbox(who).await.remove(0).peer.name
}

#[tokio::test(start_paused = true)]
async fn a_stranger_sees_nothing_before_an_answer() {
    let world = World::new();
    named(&world, "bob", "Bob").await;
    let eve = world.connected(phone("eve")).await;
    let bob = world.connected(phone("bob")).await;
    eve.send("bob", "hello");
    world.quiet().await;
    eve.say(json!({"type": "watch", "users": ["bob"]}));
    world.quiet().await;
    let seen = eve.presence().pop().unwrap();
    assert_eq!((seen.online, seen.last_seen), (false, None));
    let refused = world.node.user_card(user("eve"), user("bob")).await.unwrap_err();
    assert_eq!(refused, world.node.user_card(user("eve"), user("nobody")).await.unwrap_err());
    assert_eq!(peer_name(&world, "eve").await, None);
    assert!(world.node.user_card(user("bob"), user("eve")).await.is_ok(), "eve has written");
    let before = eve.presence().len();
    bob.vanish().await;
    let bob = world.connected(phone("bob")).await;
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(eve.presence().len(), before, "coming and going is not told");

    bob.send("eve", "who-is-it");
    world.quiet().await;
    eve.say(json!({"type": "watch", "users": ["bob"]}));
    world.quiet().await;
    assert!(eve.presence().pop().unwrap().online);
    assert_eq!(world.node.user_card(user("eve"), user("bob")).await.unwrap().name.as_deref(), Some("Bob"));
    assert_eq!(peer_name(&world, "eve").await.as_deref(), Some("Bob"));
}

#[tokio::test(start_paused = true)]
async fn a_withheld_message_lets_nobody_be_seen() {
    let world = World::new();
    named(&world, "alice", "Alice").await;
    world.send("bob", "alice", "hello").await;
    block(&world, "bob", "alice", true).await;
    world.send("alice", "bob", "withheld").await;
    assert_eq!(peer_name(&world, "bob").await, None);
    assert!(world.node.user_card(user("bob"), user("alice")).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_blocked_side_sees_no_new_profile() {
    let world = World::new();
    named(&world, "bob", "Bob").await;
    world.send("alice", "bob", "hello").await;
    world.send("bob", "alice", "hello").await;
    assert_eq!(peer_name(&world, "alice").await.as_deref(), Some("Bob"));
    block(&world, "bob", "alice", true).await;
    named(&world, "bob", "Robert").await;
    world.send("alice", "bob", "withheld").await;
    assert_eq!(peer_name(&world, "alice").await.as_deref(), Some("Bob"), "as it was");
    let refused = world.node.user_card(user("alice"), user("bob")).await.unwrap_err();
    assert_eq!(refused, world.node.user_card(user("alice"), user("nobody")).await.unwrap_err());
    assert!(world.node.user_card(user("bob"), user("alice")).await.is_ok(), "the blocker sees the blocked");
    block(&world, "bob", "alice", false).await;
    assert_eq!(peer_name(&world, "alice").await.as_deref(), Some("Robert"));
    assert!(world.node.user_card(user("alice"), user("bob")).await.is_ok());
}
