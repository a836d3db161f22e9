//! The life of a session: tokens, heartbeat, slow readers, shutting down.

use std::time::{Duration, Instant};

use bluetick_protocol::*;

use crate::harness::*;

fn token_for(server: &Server, user: &str, seconds: i64) -> String {
    let secret = std::fs::read_to_string(server.data().join("jwt.secret")).unwrap();
    let exp = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64
        + seconds;
    let claims = serde_json::json!({"sub": user, "exp": exp});
    let key = jsonwebtoken::EncodingKey::from_secret(secret.trim().as_bytes());
    jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).unwrap()
}

#[tokio::test]
async fn an_expired_token_ends_the_session_unless_a_fresh_one_came_first() {
    let server = Server::start();
    let mut kept = Person::open(&server.url(), &token_for(&server, "alice", 3), "alice", "kept", None).await;
    let mut left = Person::open(&server.url(), &token_for(&server, "alice", 3), "alice", "left", None).await;
    let fresh = Auth { reference: Some(Ref::Number(1)), token: token_for(&server, "alice", 3600) };
    kept.say(ClientFrame::Auth(fresh)).await;
    kept.wait(|f| matches!(f, ServerFrame::Done(_)).then_some(())).await;
    assert_eq!(left.bye().await.code, ErrorCode::TokenExpired);
    kept.send("bob", "still here").await;
    // A fresh token of somebody else's does not pass.
    let other = Auth { reference: None, token: token_for(&server, "mallory", 3600) };
    kept.say(ClientFrame::Auth(other)).await;
    assert_eq!(kept.bye().await.code, ErrorCode::Unauthorized);
}

#[tokio::test]
async fn a_reader_that_does_not_ack_gets_a_window_and_then_a_bye() {
    let server = Server::with(&[
        ("BLUETICK_SESSIONS__WINDOW_MESSAGES", "5"),
        ("BLUETICK_SESSIONS__ACK_TIMEOUT_SECS", "2"),
    ]);
    let mut alice = server.connect("alice", "phone").await;
    let mut bob = server.connect("bob", "phone").await;
    for n in 1..=20 {
        alice.send("bob", &format!("{n}")).await;
    }
    let (mut got, mut bye) = (0, None);
    while bye.is_none() {
        match bob.wait(Some).await {
            ServerFrame::Message(_) => got += 1,
            ServerFrame::Bye(b) => bye = Some(b),
            _ => {}
        }
    }
    assert_eq!(got, 5, "no more than the window");
    assert_eq!(bye.unwrap().code, ErrorCode::SlowReader);
    server.pending_becomes("bob", &[("alice~bob", 1)]).await;
    // Back, and acking: acks open the window.
    let mut bob = server.open("bob", "phone", None).await;
    let mut seqs = Vec::new();
    while seqs.len() < 20 {
        let message = bob.message().await;
        bob.ack(&message).await;
        seqs.push(message.seq);
    }
    assert_eq!(seqs, (1..=20).collect::<Vec<_>>());
    server.pending_becomes("bob", &[]).await;
}

#[tokio::test]
async fn a_dead_peer_is_noticed_and_its_messages_wait() {
    let server =
        Server::with(&[("BLUETICK_SESSIONS__HEARTBEAT_SECS", "1"), ("BLUETICK_SESSIONS__TTL_SECS", "3")]);
    // A socket that is open and never answers: pings are only answered when the test reads.
    let bob = server.connect("bob", "phone").await;
    gone(&server, "bob").await;
    let mut alice = server.connect("alice", "phone").await;
    alice.send("bob", "are you there?").await;
    assert_eq!(server.pending("bob"), [("alice~bob".into(), 1)]);
    drop(bob);
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_says_bye_loses_nothing_and_exits_with_0() {
    let mut server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    let mut bob = server.connect("bob", "phone").await;
    alice.send("bob", "taken, not acked").await;
    bob.message().await;
    for n in 0..50 {
        alice.say(ClientFrame::Send(send_frame("bob", &format!("in flight {n}")))).await;
    }
    let begun = Instant::now();
    let code = tokio::task::block_in_place(|| server.terminate());
    assert_eq!(code, Some(0));
    assert!(begun.elapsed() < Duration::from_secs(20));
    let (mut sent, mut bye) = (Vec::new(), None);
    while bye.is_none() {
        match alice.wait(Some).await {
            ServerFrame::Sent(s) => sent.push(s.seq),
            ServerFrame::Bye(b) => bye = Some(b),
            _ => {}
        }
    }
    let bye = bye.unwrap();
    assert_eq!(bye.code, ErrorCode::ShuttingDown);
    assert!(bye.reconnect_after_ms > 0);
    server.restart();
    let mut bob = server.open("bob", "tablet", None).await;
    let (messages, _) = bob.caught_up().await;
    let seqs: Vec<_> = messages.iter().map(|m| m.seq).collect();
    assert_eq!(seqs.first(), Some(&1), "what was taken and not acked comes again");
    assert!(sent.iter().all(|seq| seqs.contains(seq)), "every sent message is there: {sent:?} in {seqs:?}");
}
