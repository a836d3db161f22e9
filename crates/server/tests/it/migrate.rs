//! Moving up: what a server on one machine holds goes to DynamoDB, and its people notice nothing. Needs the real
//! servers that `scripts/services start` runs.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use serde_json::json;

use crate::{harness::*, http::api};

fn service(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run `scripts/services start`, then eval \"$(scripts/services env)\"")
    })
}

/// Tables and keys of this test alone, as the environment gives them to every process.
fn cluster() -> Vec<(&'static str, String)> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let name = format!("p{}x{}-", since.as_micros(), std::process::id());
    vec![
        ("BLUETICK_DYNAMODB__ENDPOINT", service("BLUETICK_TEST_DYNAMODB")),
        ("BLUETICK_DYNAMODB__TABLE_PREFIX", name.clone()),
        ("BLUETICK_REDIS__URLS", service("BLUETICK_TEST_REDIS")),
        ("BLUETICK_REDIS__PREFIX", name),
    ]
}

fn command(cluster: &[(&'static str, String)], args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(args).envs(cluster.iter().map(|(key, value)| (*key, value.as_str())));
    command
}

fn run(cluster: &[(&'static str, String)], args: &[&str]) -> Output {
    command(cluster, args).output().unwrap()
}

fn all_of(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

fn works(output: Output) -> String {
    let said = all_of(&output);
    assert!(output.status.success(), "{said}");
    said
}

/// It ends with the exit code of a failure, and says this.
fn fails(output: Output, why: &str) {
    let said = all_of(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(why), "{said}");
}

fn from(dir: &Path) -> String {
    format!("embedded:{}", dir.display())
}

#[tokio::test]
async fn people_go_on_where_they_were_after_a_move_to_many_machines() {
    let mut server = Server::start();
    let alice_api = api(&server, "alice");
    alice_api.put("/v1/me", json!({"name": "Alice Liddell"})).await;
    api(&server, "bob").put("/v1/blocks/carol", json!({})).await;
    let mut alice = server.connect("alice", "phone").await;
    let mut bob = server.connect("bob", "phone").await;
    let mut carol = server.connect("carol", "phone").await;
    for n in 1..=3 {
        alice.send("bob", &format!("before {n}")).await;
        let message = bob.message().await;
        bob.ack(&message).await;
    }
    bob.read("alice~bob", 1).await;
    bob.send("alice", "an answer").await;
    carol.send("bob", "withheld").await;
    let cursor = bob.cursor;
    bob.leave().await;
    gone(&server, "bob").await;
    let waiting = send_frame("bob", "while away");
    let sent = alice.send_as(waiting.clone()).await;

    let what = ["pending", "status", "conversations"];
    let rows =
        |server: &Server| what.map(|what| ["alice", "bob", "carol"].map(|user| server.inspect(what, user)));
    let (cluster, source) = (cluster(), from(&server.data()));
    let migrate =
        |more: &[&str]| run(&cluster, &[&["migrate", "--from", &source, "--to", "dynamodb"], more].concat());
    fails(run(&cluster, &["tables", "check"]), "is missing; `bluetick tables create` makes it");
    fails(migrate(&[]), "is missing; `bluetick tables create` makes it");
    let made = works(run(
        &cluster,
        &["tables", "create", "--no-recovery", "--no-deletion-protection", "--tag", "a=b"],
    ));
    assert_eq!(made.matches(": made\n").count(), 9, "{made}");
    assert!(works(run(&cluster, &["tables", "create", "--no-recovery"])).contains("was there already"));
    assert!(!works(run(&cluster, &["tables", "check"])).contains("fail"));
    fails(migrate(&[]), "in use by another process");
    fails(migrate(&["--verify-only"]), "in use by another process");

    alice.leave().await;
    carol.leave().await;
    gone(&server, "alice").await;
    gone(&server, "carol").await;
    let before = rows(&server);
    assert_eq!(server.terminate(), Some(0));
    fails(migrate(&["--verify-only"]), "no store has been moved to these tables");
    let moved = works(migrate(&[]));
    assert!(moved.contains("everything is there") && !moved.contains("DIFFERENT"), "{moved}");
    assert!(works(migrate(&[])).contains("was moved to these tables before"));
    works(migrate(&["--verify-only"]));

    for (key, value) in &cluster {
        server.set(key, value);
    }
    server.set("BLUETICK_STORE__BACKEND", "dynamodb");
    server.restart();
    assert_eq!(rows(&server), before);
    let mut bob = server.open("bob", "phone", cursor).await;
    let (messages, _) = bob.caught_up().await;
    assert!(
        messages.iter().any(|m| m.body == "while away" && m.message_id == sent.message_id),
        "{messages:?}"
    );
    assert!(messages.iter().all(|m| m.body != "withheld"), "{messages:?}");
    let page = bob.inbox(None, None).await;
    assert_eq!(page.conversations[0].peer.name.as_deref(), Some("Alice Liddell"));
    assert_eq!(api(&server, "bob").get("/v1/blocks").await.1, json!({"blocks": ["carol"]}));
    let mut alice = server.connect("alice", "phone").await;
    let again = alice.send_as(waiting).await;
    assert_eq!((again.seq, again.message_id, again.duplicate), (sent.seq, sent.message_id, true));
    let next = alice.send("bob", "after").await;
    assert_eq!(next.seq, sent.seq + 1);
    assert!(next.message_id > sent.message_id);
    assert_eq!(bob.message().await.body, "after");

    fails(migrate(&["--verify-only"]), "a server has used these tables since");
    fails(migrate(&["--start-over"]), "a server has used these tables since the move began");
}

#[tokio::test]
async fn a_move_that_was_killed_goes_on_when_it_is_run_again() {
    let mut server = Server::with(&[("BLUETICK_LIMITS__SENDS_PER_SECOND", "0")]);
    let api = api(&server, "alice");
    for n in 0..1_500 {
        let message =
            json!({"client_msg_id": format!("m{n}"), "to": format!("bob{:02}", n % 30), "body": "x"});
        let (status, answer) = api.post("/v1/messages", message).await;
        assert_eq!(status, 200, "{answer}");
    }
    assert_eq!(server.terminate(), Some(0));
    let (cluster, source) = (cluster(), from(&server.data()));
    works(run(&cluster, &["tables", "create", "--no-recovery", "--no-deletion-protection"]));
    let args = ["migrate", "--from", &source, "--to", "dynamodb"];
    for after_ms in [100, 300, 600, 1_200] {
        let mut child = command(&cluster, &args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        tokio::time::sleep(Duration::from_millis(after_ms)).await;
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let moved = works(run(&cluster, &args));
    assert!(
        moved.contains("everything is there") || moved.contains("moved to these tables before"),
        "{moved}"
    );
    assert!(moved.contains("messages") && moved.contains("1500"), "{moved}");
}
