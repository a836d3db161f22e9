//! Attachments of a cluster: in a bucket that clients reach by signed requests, whichever process signed them.

use reqwest::Method;
use ring::digest;
use serde_json::{Value, json};

use crate::{
    harness::*,
    http::{Api, api, client},
    plain_http,
    tables::service,
};

fn sha256(bytes: &[u8]) -> String {
    digest::digest(&digest::SHA256, bytes).as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

/// A cluster with a bucket of its own.
pub fn server() -> Server {
    let endpoint = service("BLUETICK_TEST_S3");
    let bucket = format!("t{}x{}", std::process::id(), quiet_port());
    let address = endpoint.strip_prefix("http://").unwrap();
    let made = plain_http::put(address, &format!("/{bucket}"));
    assert!(made.as_ref().is_some_and(|(status, _)| *status == 200), "{made:?}");
    Server::with(&[
        ("BLUETICK_OBJECTS__S3_BUCKET", &bucket),
        ("BLUETICK_OBJECTS__S3_PREFIX", "chat"),
        ("BLUETICK_OBJECTS__S3_REGION", "us-east-1"),
        ("BLUETICK_OBJECTS__S3_ENDPOINT", &endpoint),
        ("BLUETICK_OBJECTS__S3_PATH_STYLE", "true"),
        ("BLUETICK_OBJECTS__S3_ACCESS_KEY_ID", "test"),
        ("BLUETICK_OBJECTS__S3_SECRET_ACCESS_KEY", "test"),
    ])
}

/// Makes a signed request as it is.
async fn make(request: &Value, body: &[u8]) -> reqwest::Response {
    let method: Method = request["method"].as_str().unwrap().parse().unwrap();
    let mut made = client().request(method, request["url"].as_str().unwrap());
    for (name, value) in
        request["headers"].as_object().unwrap().iter().filter(|(n, _)| *n != "content-length")
    {
        made = made.header(name, value.as_str().unwrap());
    }
    made.body(body.to_vec()).send().await.unwrap()
}

async fn send(who: &Api, s3_ref: &Value) -> u16 {
    let message = json!({"client_msg_id": fresh_id(), "to": "bob", "attachment": {"s3_ref": s3_ref}});
    who.post("/v1/messages", message).await.0
}

async fn link(who: &Api, s3_ref: &Value) -> (u16, Value) {
    who.get(&format!("/v1/conversations/alice~bob/attachments/{}", s3_ref.as_str().unwrap())).await
}

#[tokio::test]
async fn an_attachment_goes_straight_to_the_bucket_and_from_there_to_the_members() {
    let server = server();
    let (alice, bob, mallory) = (api(&server, "alice"), api(&server, "bob"), api(&server, "mallory"));
    let bytes = b"a contract";
    let body =
        json!({"name": "contract.pdf", "mime": "application/pdf", "bytes": 10, "sha256": sha256(bytes)});
    let (status, upload) = alice.post("/v1/attachments", body).await;
    assert_eq!(status, 200, "{upload}");
    let s3_ref = &upload["s3_ref"];
    assert_eq!(send(&alice, s3_ref).await, 409, "not uploaded yet");
    assert_eq!(make(&upload["upload"], b"a_contract").await.status(), 400, "other bytes");
    assert_eq!(make(&upload["upload"], bytes).await.status(), 200);
    assert_eq!(make(&upload["upload"], bytes).await.status(), 412, "once");
    assert_eq!(send(&mallory, s3_ref).await, 404, "another's");
    assert_eq!(send(&alice, s3_ref).await, 200);
    assert_eq!(server.inspect("conversations", "bob")[0]["last_message_preview"], "contract.pdf");

    assert_eq!(link(&mallory, s3_ref).await.0, 404);
    let (status, download) = link(&bob, s3_ref).await;
    assert_eq!(status, 200, "{download}");
    let url = download["url"].as_str().unwrap();
    let answer = client().get(url).header("range", "bytes=2-").send().await.unwrap();
    assert_eq!(answer.status(), 206);
    assert_eq!(answer.headers()["content-type"], "application/pdf");
    assert_eq!(answer.headers()["content-disposition"], "attachment; filename=\"contract.pdf\"");
    assert_eq!(answer.bytes().await.unwrap(), "contract");
    let altered = url.replace("contract.pdf", "other.pdf");
    assert_ne!(altered, url);
    assert_eq!(client().get(altered).send().await.unwrap().status(), 403);

    let saved = server.dir.path().join("saved");
    let export = server.run(&["export", "--user", "bob", "--attachments", saved.to_str().unwrap()]);
    assert!(export.status.success(), "{}", String::from_utf8_lossy(&export.stderr));
    assert_eq!(std::fs::read_dir(&saved).unwrap().count(), 1);
    assert!(server.run(&["erase", "--user", "alice", "--yes"]).status.success());
    assert_eq!(link(&bob, s3_ref).await.0, 404);
    assert_eq!(client().get(url).send().await.unwrap().status(), 404, "its bytes are gone");
}

#[tokio::test]
async fn a_large_file_comes_in_parts() {
    let server = server();
    let (alice, bob) = (api(&server, "alice"), api(&server, "bob"));
    let long: Vec<u8> = (0..11 * 1024 * 1024).map(|n| (n % 251) as u8).collect();
    let cut = 5 * 1024 * 1024;
    let sums: Vec<String> = long.chunks(cut).map(sha256).collect();
    let body = json!({"name": "film.mp4", "mime": "video/mp4", "bytes": long.len(), "sha256": sha256(&long),
        "parts": {"bytes": cut, "sha256": sums}});
    let (status, upload) = alice.post("/v1/attachments", body).await;
    assert_eq!(status, 200, "{upload}");
    let (s3_ref, parts) = (&upload["s3_ref"], upload["parts"].as_array().unwrap());
    assert_eq!(parts.len(), 3);
    let mut etags = Vec::new();
    for (request, part) in parts.iter().zip(long.chunks(cut)) {
        let answer = make(request, part).await;
        assert_eq!(answer.status(), 200);
        etags.push(answer.headers()["etag"].to_str().unwrap().to_owned());
    }
    assert_eq!(send(&alice, s3_ref).await, 409, "not completed yet");
    let path = format!("/v1/attachments/{}/complete", s3_ref.as_str().unwrap());
    let wrong = json!({"etags": [etags[0], etags[0], etags[2]], "sha256": sums});
    assert_eq!(alice.post(&path, wrong).await.1["error"]["code"], "upload_mismatch");
    let right = json!({"etags": etags, "sha256": sums});
    assert_eq!(bob.post(&path, right.clone()).await.0, 404, "another's");
    let (status, answer) = alice.post(&path, right.clone()).await;
    assert_eq!(status, 204, "{answer}");
    assert_eq!(alice.post(&path, right).await.0, 204, "again");
    assert_eq!(send(&alice, s3_ref).await, 200);
    let url = link(&bob, s3_ref).await.1["url"].as_str().unwrap().to_owned();
    assert!(client().get(url).send().await.unwrap().bytes().await.unwrap() == long);
}

/// The default quota of 1 GiB a day, by announcements at several app servers at once: nothing need be uploaded.
#[tokio::test]
async fn one_user_has_one_quota_whichever_server_is_asked() {
    let server = server();
    let (mallory, bob) = (api(&server, "mallory"), api(&server, "bob"));
    let bytes = 128u64 << 20;
    let announce = async |who: &Api| {
        let body = json!({"name": "a", "mime": "video/mp4", "bytes": bytes, "sha256": "0".repeat(64)});
        loop {
            let (status, answer) = who.post("/v1/attachments", body.clone()).await;
            // Servers that charge the same user at the same time may ask to try again.
            if answer["error"]["code"] != "unavailable" {
                break (status, answer["error"]["code"].clone());
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let answers = futures_util::future::join_all((0..12).map(|_| announce(&mallory))).await;
    let taken = answers.iter().filter(|(status, _)| *status == 200).count();
    let refused = answers.iter().filter(|answer| **answer == (413, json!("quota_exceeded"))).count();
    assert_eq!((taken, refused), (8, 4), "{answers:?}");
    let shown = &server.inspect("uploads", "mallory")[0];
    assert_eq!((&shown["total_bytes"], &shown["day_bytes"]), (&json!(1u64 << 30), &json!(1u64 << 30)));
    assert_eq!(announce(&bob).await.0, 200);
    assert!(server.run(&["erase", "--user", "mallory", "--yes"]).status.success());
    assert_eq!(server.inspect("uploads", "mallory")[0]["total_bytes"], 0);
}
