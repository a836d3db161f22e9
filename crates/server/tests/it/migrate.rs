//! Moving up: what a server on one machine holds goes to DynamoDB, and its people notice nothing. Needs the real
//! servers that `scripts/services start` runs.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use serde_json::json;

use crate::{
    attachments, cold,
    harness::*,
    http::{api, client},
};

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

/// The same with a bucket, as the configuration of the new servers names it.
async fn cluster_with_bucket() -> Vec<(&'static str, String)> {
    let (mut cluster, endpoint) = (cluster(), service("BLUETICK_TEST_S3"));
    let bucket = cluster[1].1.trim_end_matches('-').to_owned();
    let made = client().put(format!("{endpoint}/{bucket}")).send().await.unwrap();
    assert!(made.status().is_success(), "{made:?}");
    cluster.extend([
        ("BLUETICK_STORE__BACKEND", "dynamodb".into()),
        ("BLUETICK_OBJECTS__S3_BUCKET", bucket),
        ("BLUETICK_OBJECTS__S3_REGION", "us-east-1".into()),
        ("BLUETICK_OBJECTS__S3_ENDPOINT", endpoint),
        ("BLUETICK_OBJECTS__S3_PATH_STYLE", "true".into()),
        ("BLUETICK_OBJECTS__S3_ACCESS_KEY_ID", "test".into()),
        ("BLUETICK_OBJECTS__S3_SECRET_ACCESS_KEY", "test".into()),
    ]);
    cluster
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
    assert_eq!(made.matches(": made\n").count(), 12, "{made}");
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
    assert_eq!(api(&server, "bob").get("/v1/blocks").await.1, json!({"blocks": ["carol"], "next": null}));
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

/// DynamoDB Local has no point-in-time recovery. That is said once, and does not look like a failure.
#[test]
fn what_an_endpoint_does_not_have_is_said_once() {
    let cluster = cluster();
    for args in [
        ["tables", "create"].as_slice(),
        &["tables", "create", "--no-deletion-protection"],
        &["tables", "check"],
    ] {
        let said = works(run(&cluster, args));
        assert_eq!(said.matches("point-in-time recovery").count(), 1, "{said}");
        assert!(said.contains("this endpoint does not have it"), "{said}");
        for frightening in ["fail", "warn", "unknown operation", "could not"] {
            assert!(!said.contains(frightening), "{args:?} says {frightening}: {said}");
        }
    }
    let said = works(run(&cluster, &["tables", "create", "--no-recovery"]));
    assert!(!said.contains("recovery"), "{said}");
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

#[tokio::test]
async fn what_is_cold_and_what_is_attached_moves_too() {
    let mut server = Server::prepared(&[("BLUETICK_COLD__ENABLED", "false")]);
    cold::fill(&server.data(), 1_000, 1_000).await;
    server.restart();
    works(server.run(&["cold", "run"]));
    assert!(cold::status(&server)["messages"].as_u64().unwrap() > 900);
    let photo: Vec<u8> = (0..300_000).map(|n| (n % 251) as u8).collect();
    let s3_ref = attachments::uploaded(&api(&server, "alice"), "a.png", "image/png", &photo).await;
    let (status, sent) = attachments::send(&api(&server, "alice"), "bob", json!({"s3_ref": s3_ref})).await;
    assert_eq!(status, 200, "{sent}");
    let unsent = attachments::uploaded(&api(&server, "alice"), "b.png", "image/png", b"unsent").await;
    assert_eq!(server.terminate(), Some(0));

    let (cluster, source) = (cluster_with_bucket().await, from(&server.data()));
    works(run(&cluster, &["tables", "create", "--no-recovery", "--no-deletion-protection"]));
    let migrate = |more: &[&str]| {
        command(&cluster, &[&["migrate", "--from", &source, "--to", "dynamodb"], more].concat())
    };
    let mut without = migrate(&[]);
    for (name, _) in cluster.iter().filter(|(name, _)| name.starts_with("BLUETICK_OBJECTS__")) {
        without.env_remove(name);
    }
    fails(without.output().unwrap(), "no bucket is set up for the new servers");
    let elsewhere = tempfile::tempdir().unwrap();
    let empty = elsewhere.path().to_str().unwrap();
    fails(migrate(&["--from-objects", empty]).output().unwrap(), "is damaged");
    let moved = works(migrate(&[]).output().unwrap());
    assert!(moved.contains("everything is there") && !moved.contains("DIFFERENT"), "{moved}");
    works(migrate(&["--verify-only"]).output().unwrap());
    // What the bucket lacks is missed, and copied by the same command.
    let key = cluster.iter().find(|(name, _)| *name == "BLUETICK_OBJECTS__S3_BUCKET").unwrap().1.clone();
    let text = unsent.as_str().unwrap();
    let key = format!("{}/{key}/attachments/{}/{text}", service("BLUETICK_TEST_S3"), &text[text.len() - 2..]);
    assert!(client().delete(&key).send().await.unwrap().status().is_success());
    fails(migrate(&["--verify-only"]).output().unwrap(), "the bucket lacks the bytes of 1 attachments");
    works(migrate(&[]).output().unwrap());

    for (key, value) in &cluster {
        server.set(key, value);
    }
    server.set("BLUETICK_COLD__ENABLED", "true");
    server.restart();
    let history = cold::history(&mut server.connect("bob", "phone").await).await;
    cold::is_whole(&history[..1_000], 1_000);
    let (status, link) = attachments::link(&api(&server, "bob"), &s3_ref).await;
    assert_eq!(status, 200, "{link}");
    let read = client().get(link["url"].as_str().unwrap()).send().await.unwrap();
    assert!(read.bytes().await.unwrap() == photo);
    // The new servers know what is old.
    for _ in 0..150 {
        if cold::status(&server)["messages"].as_u64().unwrap() > 900 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("nothing becomes cold: {}", cold::status(&server));
}
