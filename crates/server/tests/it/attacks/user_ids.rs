//! Ids as identity providers make them, through everything that is kept under an id or has one in its address.

use bluetick_protocol::*;
use ring::digest;
use serde_json::{Value, json};

use crate::{
    deployment,
    harness::*,
    http::{Api, api, client},
};

/// An id in the path or query of an address.
fn encoded(id: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    id.bytes().map(|b| if plain(b) { (b as char).to_string() } else { format!("%{b:02X}") }).collect()
}

fn pairs() -> [(String, String); 4] {
    let uuids = "0b6f3c1e-5d55-4a3c-9f0e-2f1f5f6c7d8e.7c9e6679-7425-40de-944b-e07fc1f90ae7";
    [
        ("auth0|5f7c8ec7c33c6c004bbafe82", "google-oauth2|108251222085688410292"),
        ("ann+test@x.org", uuids),
        ("urn:oid:1=2", "Zoe_9"),
        (&"=+|:".repeat(32), &"x".repeat(128)),
    ]
    .map(|(one, other)| (one.to_owned(), other.to_owned()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(server: &Server, args: &[&str]) -> String {
    let output = server.run(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Uploads a file and sends it. Gives its `s3_ref`.
async fn send_file(who: &Api, to: &str, bytes: &[u8]) -> Value {
    let hash = digest::digest(&digest::SHA256, bytes);
    let sha256: String = hash.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    let file = json!({"name": "a.txt", "mime": "text/plain", "bytes": bytes.len(), "sha256": sha256});
    let (status, upload) = who.post("/v1/attachments", file).await;
    assert_eq!(status, 200, "{upload}");
    let mut put = client().put(upload["upload"]["url"].as_str().unwrap());
    for (name, value) in upload["upload"]["headers"].as_object().into_iter().flatten() {
        if name != "content-length" {
            put = put.header(name, value.as_str().unwrap());
        }
    }
    assert!(put.body(bytes.to_vec()).send().await.unwrap().status().is_success());
    let attachment = json!({"s3_ref": upload["s3_ref"]});
    let message = json!({"client_msg_id": fresh_id(), "to": to, "attachment": attachment});
    let (status, sent) = who.post("/v1/messages", message).await;
    assert_eq!(status, 200, "{sent}");
    upload["s3_ref"].clone()
}

async fn walk(server: &Server, one: &str, other: &str) {
    let id = ConversationId::between(&user(one), &user(other)).unwrap();
    let (id, path) = (id.as_str(), format!("/v1/conversations/{}", encoded(id.as_str())));
    let (mut ann, mut ben) = (server.connect(one, "phone").await, server.connect(other, "phone").await);
    let (ann_http, ben_http) = (api(server, one), api(server, other));

    // Send, over both, by the user and by the conversation.
    assert_eq!(ann.send(other, "hello").await.conversation_id.as_str(), id);
    let message = ben.message().await;
    assert_eq!((message.sender.as_str(), message.receiver.as_str()), (one, other));
    ben.ack_seq(id, message.seq).await;
    let reply = json!({"client_msg_id": fresh_id(), "conversation_id": id, "body": "hi"});
    assert_eq!(ben_http.post("/v1/messages", reply).await.0, 200);
    let reply = ann.message().await;
    ann.ack_seq(id, reply.seq).await;

    // Inbox, history, status, read, mute.
    let page = ann.inbox(Some(1), None).await;
    assert_eq!(page.conversations[0].conversation_id.as_str(), id);
    assert_eq!(page.conversations[0].peer.user_id.as_str(), other);
    let (_, inbox) = ben_http.get("/v1/inbox?limit=1").await;
    assert_eq!(inbox["conversations"][0]["peer"]["user_id"], one, "{inbox}");
    let before = encoded(&format!("{}.{id}", inbox["conversations"][0]["last_message_ts"]));
    let (status, rest) = ben_http.get(&format!("/v1/inbox?before={before}")).await;
    assert_eq!((status, &rest["conversations"]), (200, &json!([])), "{rest}");
    assert_eq!(bodies(&ann.history(id, None, None, 50).await.messages), ["hello", "hi"]);
    let (_, history) = ben_http.get(&format!("{path}/messages?after_seq=0")).await;
    assert_eq!(history["messages"].as_array().unwrap().len(), 2, "{history}");
    assert_eq!(ann.status(id).await.peer.last_delivered_seq, message.seq);
    assert_eq!(ben_http.post(&format!("{path}/read"), json!({"seq": 1})).await.0, 204);
    assert_eq!(ann_http.get(&format!("{path}/status")).await.1["peer"]["last_read_seq"], 1);
    assert_eq!(ann_http.put(&format!("{path}/mute"), json!({"until": 4_000_000_000_000u64})).await.0, 204);
    assert_eq!(ann_http.get("/v1/mutes").await.1["mutes"][0]["conversation_id"], id);
    assert_eq!(ann_http.delete(&format!("{path}/mute")).await.0, 204);

    // Profile, attachment.
    assert_eq!(ann_http.put("/v1/me", json!({"name": "Ann"})).await.1["user_id"], one);
    let (status, card) = ben_http.get(&format!("/v1/users/{}", encoded(one))).await;
    assert_eq!((status, &card["name"]), (200, &json!("Ann")), "{card}");
    let s3_ref = send_file(&ann_http, other, b"a file").await;
    let (status, link) = ben_http.get(&format!("{path}/attachments/{}", s3_ref.as_str().unwrap())).await;
    assert_eq!(status, 200, "{link}");
    let file = client().get(link["url"].as_str().unwrap()).send().await.unwrap();
    assert_eq!(file.bytes().await.unwrap(), "a file");

    // What an operator does.
    assert_eq!(server.inspect("conversations", one)[0]["conversation_id"], id);
    assert_eq!(server.inspect("sessions", one)[0]["user_id"], one);
    assert_eq!(server.inspect("status", one)[0]["conversation_id"], id);
    assert!(run(server, &["trace", id, "1"]).contains(id));
    run(server, &["repair", "--user", one]);
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path().join("files");
    let export = run(server, &["export", "--user", one, "--attachments", saved.to_str().unwrap()]);
    let export: Value = serde_json::from_str(&export).unwrap();
    assert_eq!(export["messages"].as_array().unwrap().len(), 3, "{export}");
    let files: Vec<_> = std::fs::read_dir(&saved).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 1);
    assert_eq!(std::fs::read(&files[0]).unwrap(), b"a file");
}

async fn block(server: &Server, one: &str, other: &str) {
    let (ann, ben) = (api(server, one), api(server, other));
    let path = format!("/v1/blocks/{}", encoded(other));
    assert_eq!(ann.put(&path, json!({})).await.0, 204);
    assert_eq!(ann.get("/v1/blocks").await.1["blocks"], json!([other]));
    let withheld = json!({"client_msg_id": fresh_id(), "to": one, "body": "withheld"});
    assert_eq!(ben.post("/v1/messages", withheld).await.0, 200);
    let id = ConversationId::between(&user(one), &user(other)).unwrap();
    let history = format!("/v1/conversations/{}/messages", encoded(id.as_str()));
    let (_, page) = ann.get(&history).await;
    assert_eq!(page["messages"].as_array().unwrap().len(), 3, "{page}");
    assert_eq!(ann.delete(&path).await.0, 204);
    assert_eq!(ann.get("/v1/blocks").await.1["blocks"], json!([]));
}

#[tokio::test]
async fn ids_of_identity_providers_work_everywhere() {
    let mut server = deployment::taking_attachments();
    for (one, other) in &pairs() {
        walk(&server, one, other).await;
    }
    server.kill();
    server.restart();
    for (one, other) in &pairs() {
        block(&server, one, other).await;
        let id = ConversationId::between(&user(one), &user(other)).unwrap();
        let mut ben = server.connect(other, "tablet").await;
        assert!(ben.history(id.as_str(), None, None, 50).await.messages.len() >= 3, "{id}: after a restart");
        let mut ann = server.connect(one, "tablet").await;
        let revoked = run(&server, &["revoke", "--user", one]);
        assert!(revoked.contains(one.as_str()) && revoked.contains("sessions ended 1"), "{revoked}");
        assert_eq!(ann.bye().await.code, ErrorCode::TokenRevoked);
        let erased = run(&server, &["erase", "--user", one, "--yes"]);
        assert!(erased.contains(one.as_str()), "{erased}");
        assert_eq!(server.inspect("conversations", one), json!([]));
        let left = ben.history(id.as_str(), None, None, 50).await.messages;
        assert!(left.iter().all(|message| message.sender.as_str() == other), "{left:?}");
    }
}

#[tokio::test]
async fn what_is_no_id_is_refused_as_such() {
    let server = Server::start();
    let alice = api(&server, "alice");
    for id in ["a b", "a~b", "a/b", "a#b", "a,b", "é", &"x".repeat(129)] {
        let message = json!({"client_msg_id": "m", "to": id, "body": "x"});
        let (status, refused) = alice.post("/v1/messages", message).await;
        assert_eq!((status, refused["error"]["code"].as_str()), (400, Some("invalid_id")), "{id}");
        let token = server.mint(id);
        let answer = client().get(server.http("/v1/me")).bearer_auth(token).send().await.unwrap();
        assert_eq!(answer.status(), 401, "{id}");
    }
}
