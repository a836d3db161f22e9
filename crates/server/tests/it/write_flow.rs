//! The write flow of the notes, step by step, with the rows checked by `inspect`; and the ticks.

use serde_json::json;

use crate::harness::*;

#[tokio::test]
async fn a_message_to_somebody_offline_goes_the_way_of_the_notes() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    assert_eq!(server.inspect("pending", "bob"), json!([]));

    let first = alice.send("bob", "hey").await;
    assert_eq!((first.seq, first.duplicate), (1, false));
    assert_eq!(first.conversation_id.as_str(), "alice~bob");
    assert_eq!(server.inspect("sessions", "bob"), json!([]));
    assert_eq!(
        server.inspect("pending", "bob"),
        json!([{"receiver_id": "bob", "conversation_id": "alice~bob", "first_undelivered_seq": 1}])
    );
    assert_eq!(server.inspect("status", "bob"), json!([]), "no row before the first ack");

    alice.send("bob", "where are you?").await;
    assert_eq!(server.pending("bob"), [("alice~bob".into(), 1)], "a further message changes nothing");
    let rows = server.inspect("conversations", "bob");
    assert_eq!(rows[0]["last_message_preview"], "where are you?");
    assert_eq!((rows[0]["unread_count"].as_u64(), rows[0]["last_seq"].as_u64()), (Some(2), Some(2)));
    assert_eq!(rows[0]["peer_id"], "alice");
    assert_eq!(
        server.inspect("conversations", "alice")[0]["unread_count"],
        0,
        "own messages are never unread"
    );

    let mut bob = server.open("bob", "phone", None).await;
    let (messages, caught_up) = bob.caught_up().await;
    assert_eq!(bodies(&messages), ["hey", "where are you?"]);
    assert_eq!(caught_up.heads[0].last_seq, 2);
    assert_eq!(server.inspect("sessions", "bob")[0]["device"], "phone");
    assert_eq!(server.pending("bob"), [("alice~bob".into(), 1)], "the row stays until the ack");

    bob.ack(&messages[1]).await;
    assert_eq!(alice.ticks("bob").await, (2, 0));
    server.pending_becomes("bob", &[]).await;
    assert_eq!(
        server.inspect("status", "bob"),
        json!([{"user_id": "bob", "conversation_id": "alice~bob", "last_delivered_seq": 2, "last_read_seq": 0}])
    );

    bob.read("alice~bob", 2).await;
    assert_eq!(alice.ticks("bob").await, (2, 2));
    assert_eq!(server.inspect("conversations", "bob")[0]["unread_count"], 0);
}

#[tokio::test]
async fn a_message_to_somebody_online_leaves_no_pending_row() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    let mut bob = server.connect("bob", "phone").await;
    let sent = alice.send("bob", "hello").await;
    let message = bob.message().await;
    assert_eq!((message.seq, message.message_id, message.body.as_str()), (1, sent.message_id, "hello"));
    assert_eq!((message.sender.as_str(), message.receiver.as_str()), ("alice", "bob"));
    assert_eq!(message.client_msg_id, sent.client_msg_id);
    assert_eq!(server.pending("bob"), []);
    assert_eq!(server.inspect("conversations", "bob")[0]["unread_count"], 1, "online is not read");
    bob.ack(&message).await;
    assert_eq!(alice.ticks("bob").await, (1, 0));
}

#[tokio::test]
async fn ticks_only_grow_and_are_clamped() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    let mut bob = server.connect("bob", "phone").await;
    for n in 1..=5 {
        alice.send("bob", &format!("{n}")).await;
    }
    bob.ack_seq("alice~bob", 3).await;
    assert_eq!(alice.ticks("bob").await, (3, 0));
    bob.read("alice~bob", 999).await;
    assert_eq!(alice.ticks("bob").await, (5, 5), "beyond the end is the end, and read implies delivered");
    bob.ack_seq("alice~bob", 1).await;
    bob.read("alice~bob", 2).await;
    let status = alice.status("alice~bob").await;
    assert_eq!((status.peer.last_delivered_seq, status.peer.last_read_seq), (5, 5));
    assert_eq!(status.own.last_read_seq, 0);
}

#[tokio::test]
async fn a_reply_implies_read_up_to_what_was_seen() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    let mut bob = server.connect("bob", "phone").await;
    for n in 1..=3 {
        alice.send("bob", &format!("{n}")).await;
    }
    bob.ack_seq("alice~bob", 2).await;
    // Without seen_seq: what was delivered.
    bob.send("alice", "a reply").await;
    assert_eq!(
        alice
            .wait(|f| match f {
                bluetick_protocol::ServerFrame::Ticks(t) if t.last_read_seq > 0 => Some(t.last_read_seq),
                _ => None,
            })
            .await,
        2
    );
    assert_eq!(
        server.inspect("conversations", "bob")[0]["unread_count"],
        1,
        "the third was not delivered yet"
    );
    // With it: exactly that.
    let mut reply = send_frame("alice", "another");
    reply.seen_seq = Some(3);
    bob.send_as(reply).await;
    assert_eq!(bob.status("alice~bob").await.own.last_read_seq, 3);
    assert_eq!(server.inspect("conversations", "bob")[0]["unread_count"], 0);
}

#[tokio::test]
async fn a_partial_read_leaves_exactly_the_rest() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    let mut bob = server.connect("bob", "phone").await;
    for n in 1..=20 {
        alice.send("bob", &format!("{n}")).await;
        if n % 5 == 0 {
            bob.send("alice", "mine").await;
        }
    }
    let unread =
        |server: &Server| server.inspect("conversations", "bob")[0]["unread_count"].as_u64().unwrap();
    // Seqs 1–24: bob's own are 6, 12, 18 and 24.
    bob.read("alice~bob", 12).await;
    assert_eq!(unread(&server), 10);
    bob.read("alice~bob", 13).await;
    assert_eq!(unread(&server), 9);
    let repaired = server.run(&["repair", "--user", "bob"]);
    assert!(repaired.status.success());
    assert_eq!(unread(&server), 9, "a recount finds the same");
}
