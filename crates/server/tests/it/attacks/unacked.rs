//! Messages that were `sent`, and that no device has acked, when the server ends.

use crate::harness::*;

pub const MESSAGES: u64 = 50;

/// Bob's only device is connected and acks nothing; Alice is told `sent` for each of her messages.
pub async fn nobody_acks(server: &Server) -> Vec<String> {
    let mut alice = server.connect("alice", "phone").await;
    let mut bob = server.connect("bob", "phone").await;
    let mut sent = Vec::new();
    for n in 1..=MESSAGES {
        let body = format!("message {n}");
        assert_eq!(alice.send("bob", &body).await.seq, n);
        sent.push(body);
    }
    for _ in 1..=MESSAGES {
        bob.message().await;
    }
    sent
}

/// Bob has reinstalled: his device has no cursor. It gets everything, in order, before `caught_up`.
pub async fn a_reinstalled_device_gets(server: &Server, sent: &[String]) {
    let mut bob = server.open("bob", "another-phone", None).await;
    let (messages, _) = bob.caught_up().await;
    assert_eq!(bodies(&messages), sent);
    bob.ack_seq("alice~bob", MESSAGES).await;
    server.pending_becomes("bob", &[]).await;
    // Acked, they are not sent again to a device that has no cursor.
    let mut tablet = server.open("bob", "tablet", None).await;
    assert!(tablet.caught_up().await.0.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_a_device_without_a_cursor_gets_all_that_nobody_acked() {
    let mut server = Server::start();
    let sent = nobody_acks(&server).await;
    tokio::task::block_in_place(|| {
        server.kill();
        server.restart();
    });
    a_reinstalled_device_gets(&server, &sent).await;
}

/// Without a crash the session itself leaves a row.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_stop_a_device_without_a_cursor_gets_all_that_nobody_acked() {
    let mut server = Server::start();
    let sent = nobody_acks(&server).await;
    tokio::task::block_in_place(|| {
        assert_eq!(server.terminate(), Some(0));
        server.restart();
    });
    a_reinstalled_device_gets(&server, &sent).await;
}

/// Many conversations, each with one message that nobody acked.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_every_conversation_comes_back() {
    let mut server = Server::start();
    let bob = server.connect("bob", "phone").await;
    let mut sent = Vec::new();
    for n in 0..40 {
        let name = format!("friend-{n:02}");
        let mut friend = server.connect(&name, "phone").await;
        friend.send("bob", &name).await;
        sent.push(name);
    }
    tokio::task::block_in_place(|| {
        server.kill();
        server.restart();
    });
    drop(bob);
    let mut bob = server.open("bob", "another-phone", None).await;
    let (messages, caught_up) = bob.caught_up().await;
    assert_eq!(bodies(&messages), sent, "in the order of their message ids");
    assert_eq!(caught_up.heads.len(), sent.len());
}
