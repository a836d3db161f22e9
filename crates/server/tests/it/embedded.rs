//! What only the embedded store promises: its directory, its backups, its floor of free space, its figures.

use std::process::Command;

use crate::harness::*;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
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

#[tokio::test]
async fn sends_are_refused_below_the_floor_of_free_space_and_reading_goes_on() {
    // A floor above any disk.
    let floor = "9000000000000000000";
    let server = Server::with(&[
        ("BLUETICK_STORE__FREE_SPACE_FLOOR_BYTES", floor),
        ("BLUETICK_ATTACHMENTS__UPLOAD_FREE_SPACE_FLOOR_BYTES", floor),
    ]);
    let mut alice = server.connect("alice", "phone").await;
    let error = alice.send_refused(send_frame("bob", "no room")).await;
    assert_eq!(error.code, bluetick_protocol::ErrorCode::StorageFull);
    assert!(error.retry_after_ms.is_some());
    assert!(alice.inbox(None, None).await.conversations.is_empty());
    let ready = crate::http::client().get(server.http("/readyz")).send().await.unwrap();
    assert_eq!(ready.status().as_u16(), 503);
}

#[tokio::test]
async fn the_figures_count_what_the_store_does() {
    let server = Server::start();
    let mut alice = server.connect("alice", "phone").await;
    alice.send("bob", "hi").await;
    let metrics = crate::http::client().get(server.http("/metrics")).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    for name in ["bluetick_sends_total 1", "bluetick_fsync_seconds", "bluetick_pending_rows_written_total 1"]
    {
        assert!(metrics.contains(name), "{name} is missing in\n{metrics}");
    }
}
