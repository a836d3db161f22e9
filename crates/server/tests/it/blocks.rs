//! Blocks, presence, typing and profiles: what one learns of another.

use bluetick_protocol::*;
use serde_json::json;

use crate::{
    harness::*,
    http::{Api, api},
};

#[tokio::test]
async fn what_a_blocked_sender_writes_reaches_nothing_of_the_blockers() {
    let server = Server::start();
    let bob_api: Api = api(&server, "bob");
    let mut alice = server.connect("alice", "phone").await;
    let mut bob = server.connect("bob", "phone").await;
    alice.send("bob", "before").await;
    let before = bob.message().await;
    bob.ack(&before).await;
    assert_eq!(bob_api.put("/v1/blocks/alice", json!({})).await.0, 204);
    assert_eq!(bob_api.get("/v1/blocks").await.1, json!({"blocks": ["alice"], "next": null}));

    let sent = alice.send("bob", "withheld").await;
    assert_eq!((sent.seq, sent.duplicate), (2, false), "the sender notices nothing");
    bob.hears_no_message().await;
    assert_eq!(server.pending("bob"), []);
    let row = &server.inspect("conversations", "bob")[0];
    assert_eq!(
        (row["last_message_preview"].as_str(), row["unread_count"].as_u64()),
        (Some("before"), Some(1))
    );
    let page = bob.history("alice~bob", None, None, 50).await;
    assert_eq!(bodies(&page.messages), ["before"]);
    assert_eq!(alice.history("alice~bob", None, None, 50).await.messages.len(), 2);
    assert_eq!(bob.send_refused(send_frame("alice", "hi")).await.code, ErrorCode::Blocked);

    // No presence and no typing across a block.
    alice.say(ClientFrame::Watch(Watch { reference: None, users: vec![user("bob")] })).await;
    let presence = alice.wait(|f| if let ServerFrame::Presence(p) = f { Some(p) } else { None }).await;
    assert_eq!((presence.online, presence.last_seen), (false, None));
    let typing = InConversation { reference: None, conversation_id: conversation("alice~bob") };
    alice.say(ClientFrame::Typing(typing)).await;
    bob.hears_no(|f| matches!(f, ServerFrame::Typing(_)).then_some(())).await;

    // After an unblock new messages come; what was withheld does not.
    assert_eq!(bob_api.delete("/v1/blocks/alice").await.0, 204);
    alice.send("bob", "after").await;
    assert_eq!(bob.message().await.body, "after");
}

#[tokio::test]
async fn presence_is_for_those_whom_one_has_written_to() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    let mut eve = server.connect("eve", "phone").await;
    let mut bob = server.connect("bob", "phone").await;
    alice.send("bob", "hi").await;
    bob.send("alice", "hi").await;
    let watch = ClientFrame::Watch(Watch { reference: Some(Ref::Number(1)), users: vec![user("bob")] });
    let presence = |f| {
        if let ServerFrame::Presence(p) = f { Some(p) } else { None }
    };
    alice.say(watch.clone()).await;
    assert!(alice.wait(presence).await.online);
    eve.say(watch).await;
    assert_eq!(eve.wait(presence).await, Presence { user_id: user("bob"), online: false, last_seen: None });
    bob.leave().await;
    let left = alice.wait(presence).await;
    assert!(!left.online && left.last_seen.is_some());
    let _bob = server.connect("bob", "phone").await;
    assert!(alice.wait(presence).await.online);
    eve.hears_no(presence).await;
}

#[tokio::test]
async fn typing_reaches_the_other_side_and_is_not_kept() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    let mut bob = server.connect("bob", "phone").await;
    alice.send("bob", "hi").await;
    let typing = InConversation { reference: None, conversation_id: conversation("alice~bob") };
    bob.say(ClientFrame::Typing(typing)).await;
    let told = alice.wait(|f| if let ServerFrame::Typing(t) = f { Some(t) } else { None }).await;
    assert_eq!((told.user_id.as_str(), told.conversation_id.as_str()), ("bob", "alice~bob"));
    let mut late = server.open("alice", "tablet", None).await;
    late.hears_no(|f| matches!(f, ServerFrame::Typing(_)).then_some(())).await;
}

#[tokio::test]
async fn a_profile_shows_in_the_inboxes_of_others() {
    let server = Server::with(&[("BLUETICK_PROFILES__AVATAR_HOSTS", r#"["example.org"]"#)]);
    let alice_api = api(&server, "alice");
    let mut alice = server.connect("alice", "phone").await;
    let profile = json!({"name": "Alice Liddell", "avatar_url": "https://example.org/a.png"});
    let (status, card) = alice_api.put("/v1/me", profile).await;
    assert_eq!((status, card["name"].as_str()), (200, Some("Alice Liddell")));
    alice.send("bob", "hi").await;
    let mut bob = server.connect("bob", "phone").await;
    let peer = bob.inbox(None, None).await.conversations.remove(0).peer;
    assert_eq!(peer.name.as_deref(), Some("Alice Liddell"));
    assert_eq!(api(&server, "bob").get("/v1/users/alice").await.1["avatar_url"], "https://example.org/a.png");
    assert_eq!(api(&server, "eve").get("/v1/users/alice").await.0, 404, "a stranger learns nothing");
}
