//! What an operator does: trace, export, erase, backup and restore, doctor; and data directories that cannot be used.

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
    bob.ack(&message).await;
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

#[tokio::test]
async fn a_backup_taken_while_serving_restores_to_the_same_rows() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    for n in 0..200 {
        alice.send("bob", &format!("message {n}")).await;
    }
    let mut bob = server.connect("bob", "phone").await;
    bob.read("alice~bob", 150).await;
    let file = server.dir.path().join("copy.backup");
    let file_name = file.to_str().unwrap();
    let output = server.run(&["backup", file_name]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    alice.send("bob", "after the backup").await;

    let mut other = Server::start();
    other.kill();
    let data = other.dir.path().join("restored");
    let output = Command::new(binary()).args(["restore", file_name, "--data"]).arg(&data).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let again = Command::new(binary()).args(["restore", file_name, "--data"]).arg(&data).output().unwrap();
    assert!(!again.status.success(), "a directory with a store is not overwritten");
    // Serve the restored directory in place of the other one's own.
    std::fs::remove_dir_all(other.data()).unwrap();
    std::fs::rename(&data, other.data()).unwrap();
    other.restart();
    for what in ["pending", "status"] {
        assert_eq!(other.inspect(what, "bob"), server.inspect(what, "bob"), "{what}");
    }
    assert_eq!(other.inspect("conversations", "bob")[0]["unread_count"], 50);
    let mut bob = other.connect("bob", "phone").await;
    assert_eq!(bob.history("alice~bob", None, None, 200).await.messages.len(), 200);
    // Idempotency travels with the backup.
    let mut alice = other.connect("alice", "phone").await;
    assert_eq!(alice.send("bob", "next").await.seq, 201);

    let mut cut = std::fs::read(&file).unwrap();
    cut.truncate(cut.len() - 20);
    std::fs::write(&file, cut).unwrap();
    let target = server.dir.path().join("from-a-cut-file");
    let output = Command::new(binary()).args(["restore", file_name, "--data"]).arg(&target).output().unwrap();
    assert!(!output.status.success(), "a cut backup is refused");
}

#[test]
fn doctor_finds_a_healthy_server_healthy() {
    let server = Server::start();
    let output = server.run(&["doctor"]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

fn serve_in(dir: &std::path::Path) -> (bool, String) {
    let mut command = Command::new(binary());
    command.arg("serve").arg("--data").arg(dir).args(["--listen", "127.0.0.1:0"]);
    let output = command.env("BLUETICK_LOG__FILTER", "error").output().unwrap();
    (output.status.success(), text(&output.stderr))
}

#[test]
fn a_data_directory_that_cannot_be_used_is_refused_and_not_touched() {
    let mut server = Server::start();
    let (ok, why) = serve_in(&server.data());
    assert!(!ok && why.contains("in use"), "{why}");
    server.kill();

    std::fs::write(server.data().join("VERSION"), "99\n").unwrap();
    let (ok, why) = serve_in(&server.data());
    assert!(!ok && why.contains("99"), "{why}");
    assert_eq!(std::fs::read_to_string(server.data().join("VERSION")).unwrap(), "99\n");
    std::fs::write(server.data().join("VERSION"), "1\n").unwrap();

    let file = server.dir.path().join("a-file");
    std::fs::write(&file, "not a directory").unwrap();
    let (ok, why) = serve_in(&file);
    assert!(!ok && !why.contains("panicked"), "{why}");
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

#[tokio::test]
async fn sends_are_refused_below_the_floor_of_free_space_and_reading_goes_on() {
    // A floor above any disk.
    let server = Server::with(&[("BLUETICK_STORE__FREE_SPACE_FLOOR_BYTES", "9000000000000000000")]);
    let mut alice = server.connect("alice", "phone").await;
    let error = alice.send_refused(send_frame("bob", "no room")).await;
    assert_eq!(error.code, bluetick_protocol::ErrorCode::StorageFull);
    assert!(error.retry_after_ms.is_some());
    assert!(alice.inbox(None, None).await.conversations.is_empty());
    let ready = crate::http::client().get(server.http("/readyz")).send().await.unwrap();
    assert_eq!(ready.status().as_u16(), 503);
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
