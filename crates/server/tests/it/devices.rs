//! Several devices of one user.

use bluetick_protocol::*;

use crate::harness::*;

#[tokio::test]
async fn every_device_gets_every_message_live_and_by_its_cursor() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    let mut phone = server.connect("bob", "phone").await;
    let mut tablet = server.connect("bob", "tablet").await;
    alice.send("bob", "one").await;
    for device in [&mut phone, &mut tablet] {
        let message = device.message().await;
        assert_eq!(message.body, "one");
        device.ack(&message).await;
    }
    let cursor = tablet.cursor;
    tablet.leave().await;
    alice.send("bob", "two").await;
    let message = phone.message().await;
    phone.ack(&message).await;
    server.pending_becomes("bob", &[]).await;
    // The phone took it; the tablet gets it by its cursor.
    let mut tablet = server.open("bob", "tablet", cursor).await;
    let (messages, _) = tablet.caught_up().await;
    assert_eq!(messages.last().map(|m| m.body.as_str()), Some("two"));
    assert!(messages.is_sorted_by_key(|m| m.seq));
}

#[tokio::test]
async fn own_sends_reach_the_other_devices_and_need_no_ack() {
    let server = Server::start();
    let mut phone = server.connect("alice", "phone").await;
    let mut laptop = server.connect("alice", "laptop").await;
    let sent = phone.send("bob", "from the phone").await;
    let copy = laptop.message().await;
    assert_eq!((copy.seq, copy.sender.as_str(), copy.body.as_str()), (sent.seq, "alice", "from the phone"));
    phone.hears_no_message().await;
    laptop.leave().await;
    phone.leave().await;
    gone(&server, "alice").await;
    assert_eq!(server.pending("alice"), [], "own sends leave no row");
}

#[tokio::test]
async fn a_read_on_one_device_shows_on_the_other() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    let mut phone = server.connect("bob", "phone").await;
    let mut tablet = server.connect("bob", "tablet").await;
    alice.send("bob", "hello").await;
    phone.message().await;
    phone.read("alice~bob", 1).await;
    assert_eq!(tablet.ticks("bob").await, (1, 1));
    assert_eq!(tablet.inbox(None, None).await.conversations[0].unread_count, 0);
}

#[tokio::test]
async fn a_device_that_connects_again_replaces_its_old_session() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    let mut old = server.connect("bob", "phone").await;
    let mut new = server.connect("bob", "phone").await;
    assert_eq!(old.bye().await.code, ErrorCode::Replaced);
    // The late end of the old session must not take the new one out of the registry.
    old.leave().await;
    alice.send("bob", "to the new one").await;
    assert_eq!(new.message().await.body, "to the new one");
    assert_eq!(server.inspect("sessions", "bob").as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_oldest_of_too_many_sessions_ends() {
    let server = Server::with(&[("BLUETICK_LIMITS__MAX_SESSIONS", "2")]);
    let mut first = server.connect("bob", "one").await;
    let _second = server.connect("bob", "two").await;
    let _third = server.connect("bob", "three").await;
    assert_eq!(first.bye().await.code, ErrorCode::TooManySessions);
    assert_eq!(server.inspect("sessions", "bob").as_array().unwrap().len(), 2);
}
