//! What an operator does: trace, export, erase, doctor, inspect.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::*;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn the_way_of_a_message_can_be_traced_by_id_and_by_place() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    let mut bob = server.connect("bob", "phone").await;
    let sent = alice.send("bob", "follow me").await;
    let message = bob.message().await;
    bob.ack_seq("alice~bob", message.seq).await;
    let by_id = server.run(&["trace", &sent.message_id.to_string()]);
    assert!(by_id.status.success(), "{}", text(&by_id.stderr));
    let by_place = server.run(&["trace", "alice~bob", "1"]);
    assert!(by_place.status.success(), "{}", text(&by_place.stderr));
    for output in [text(&by_id.stdout), text(&by_place.stdout)] {
        assert!(output.contains("alice~bob") && output.contains("double"), "{output}");
    }
    assert!(!server.run(&["trace", "alice~bob", "99"]).status.success());
}

#[tokio::test]
async fn an_export_has_everything_of_a_user_and_an_erasure_leaves_nothing() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    let mut bob = server.connect("bob", "phone").await;
    alice.send("bob", "from alice").await;
    bob.send("alice", "from bob").await;
    let export = server.run(&["export", "--user", "alice"]);
    let export: Value = serde_json::from_slice(&export.stdout).unwrap();
    assert_eq!(export["messages"].as_array().unwrap().len(), 2);
    assert_eq!(export["conversations"][0]["conversation_id"], "alice~bob");

    let refused = server.run(&["erase", "--user", "alice"]);
    assert!(!refused.status.success(), "an erasure must be confirmed");
    assert!(server.run(&["erase", "--user", "alice", "--yes"]).status.success());
    assert_eq!(alice.bye().await.code, bluetick_protocol::ErrorCode::Erased);
    assert_eq!(server.inspect("conversations", "alice"), json!([]));
    let history = bob.history("alice~bob", None, None, 50).await;
    assert_eq!(bodies(&history.messages), ["from bob"], "what bob wrote is bob's");
    assert_eq!((history.from_seq, history.to_seq), (1, 2), "the erased position is void");
    assert_eq!(server.inspect("conversations", "bob")[0]["unread_count"], 0);
    let data = server.data();
    let found = Command::new("grep").args(["-r", "-l", "from alice"]).arg(&data).output().unwrap();
    assert_eq!(text(&found.stdout), "", "the bytes are gone from the disk too");
}

#[test]
fn doctor_finds_a_healthy_server_healthy() {
    let server = Server::start();
    let output = server.run(&["doctor"]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn a_public_address_without_a_key_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(binary())
        .args(["serve", "--listen", "0.0.0.0:0", "--data"])
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("auth"), "{}", text(&output.stderr));
}

#[test]
fn inspect_knows_users_without_rows_and_wrong_names() {
    let server = Server::start();
    for what in ["pending", "status", "conversations", "sessions"] {
        assert_eq!(server.inspect(what, "nobody"), json!([]));
        assert!(server.run(&["inspect", what, "--user", "nobody"]).status.success());
    }
    assert_eq!(server.run(&["inspect", "pending", "--user", "no one"]).status.code(), Some(2));
}
