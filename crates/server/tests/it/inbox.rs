//! The inbox and history, by pages; profiles in it.

use std::collections::BTreeSet;

use bluetick_protocol::*;

use crate::harness::*;

#[tokio::test]
async fn the_inbox_is_drawn_whole_from_its_pages() {
    let server = Server::start();
    let mut bob = server.connect("bob", "phone").await;
    for n in 0..25 {
        bob.send(&format!("friend-{n:02}"), &format!("hello {n}")).await;
    }
    let mut alice = server.connect("alice", "phone").await;
    alice.send("bob", "newest").await;
    let page = bob.inbox(Some(10), None).await;
    assert_eq!(page.conversations.len(), 10);
    let first = &page.conversations[0];
    assert_eq!((first.conversation_id.as_str(), first.unread_count), ("alice~bob", 1));
    assert_eq!((first.last_sender.as_str(), first.last_message_preview.as_str()), ("alice", "newest"));
    assert_eq!(first.peer.user_id.as_str(), "alice");
    let mut seen: Vec<_> = page.conversations.iter().map(|c| c.conversation_id.clone()).collect();
    let mut next = page.next;
    while let Some(before) = next {
        let page = bob.inbox(Some(10), Some(before)).await;
        seen.extend(page.conversations.iter().map(|c| c.conversation_id.clone()));
        next = page.next;
    }
    assert_eq!(seen.len(), 26);
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 26, "no conversation twice");
}

#[tokio::test]
async fn an_entry_shows_the_ticks_of_the_last_own_message() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    let mut bob = server.connect("bob", "phone").await;
    alice.send("bob", "hi").await;
    bob.ack_seq("alice~bob", 1).await;
    let entry = &alice.inbox(None, None).await.conversations[0];
    assert_eq!((entry.peer_status.last_delivered_seq, entry.peer_status.last_read_seq), (1, 0));
}

#[tokio::test]
async fn history_pages_both_ways() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    for n in 1..=105 {
        alice.send("bob", &format!("{n}")).await;
    }
    let newest = alice.history("alice~bob", None, None, 50).await;
    assert_eq!((newest.from_seq, newest.to_seq, newest.next), (56, 105, Some(56)));
    let older = alice.history("alice~bob", None, newest.next, 50).await;
    assert_eq!((older.from_seq, older.to_seq, older.next), (6, 55, Some(6)));
    let oldest = alice.history("alice~bob", None, older.next, 50).await;
    assert_eq!((oldest.from_seq, oldest.to_seq, oldest.next), (1, 5, None));
    let onwards = alice.history("alice~bob", Some(100), None, 3).await;
    assert_eq!(bodies(&onwards.messages), ["101", "102", "103"]);
    assert_eq!(onwards.next, Some(103));
    let end = alice.history("alice~bob", Some(105), None, 3).await;
    assert!(end.messages.is_empty() && end.next.is_none());
}

#[tokio::test]
async fn strangers_learn_nothing_of_a_conversation() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    alice.send("bob", "secret").await;
    let mut eve = server.connect("eve", "phone").await;
    let foreign = conversation("alice~bob");
    let unknown = conversation("eve~nobody");
    let mut errors = Vec::new();
    for id in [foreign, unknown] {
        let query = InConversation { reference: None, conversation_id: id.clone() };
        let receipt = Receipt { reference: None, conversation_id: id.clone(), seq: 1 };
        let history = HistoryQuery {
            reference: None,
            conversation_id: id.clone(),
            after_seq: None,
            before_seq: None,
            limit: None,
        };
        for frame in [
            ClientFrame::Status(query.clone()),
            ClientFrame::Typing(query),
            ClientFrame::History(history),
            ClientFrame::Ack(receipt.clone()),
            ClientFrame::Read(receipt),
        ] {
            eve.say(frame).await;
            errors.push(eve.error().await);
        }
    }
    assert!(errors.iter().all(|e| *e == errors[0]), "unknown and foreign are not told apart: {errors:?}");
    assert_eq!(errors[0].code, ErrorCode::NotFound);
    let mut send = send_frame("bob", "let me in");
    (send.to, send.conversation_id) = (None, Some(conversation("alice~bob")));
    assert_eq!(eve.send_refused(send).await.code, ErrorCode::NotFound);
}
