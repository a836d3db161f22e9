//! Attachments kept in the server's own directory: uploaded and read by signed addresses, as streams.

use std::{path::Path, time::Duration};

use futures_util::{StreamExt as _, stream};
use reqwest::{Method, Response};
use ring::digest;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::{
    harness::*,
    http::{Api, api, client},
};

const MIB: usize = 1024 * 1024;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

async fn announce(who: &Api, name: &str, mime: &str, bytes: &[u8]) -> Value {
    let body = json!({"name": name, "mime": mime, "bytes": bytes.len(), "sha256": sha256(bytes)});
    let (status, upload) = who.post("/v1/attachments", body).await;
    assert_eq!(status, 200, "{upload}");
    upload
}

fn url_of(upload: &Value) -> String {
    assert_eq!(upload["upload"]["method"], "PUT");
    upload["upload"]["url"].as_str().unwrap().to_owned()
}

async fn put(url: &str, body: impl Into<reqwest::Body>) -> (u16, String) {
    let answer = client().request(Method::PUT, url).body(body).send().await.unwrap();
    let (status, text) = (answer.status().as_u16(), answer.text().await.unwrap());
    let json: Value = serde_json::from_str(&text).unwrap_or_default();
    (status, json["error"]["code"].as_str().unwrap_or_default().to_owned())
}

pub async fn uploaded(who: &Api, name: &str, mime: &str, bytes: &[u8]) -> Value {
    let upload = announce(who, name, mime, bytes).await;
    assert_eq!(put(&url_of(&upload), bytes.to_vec()).await, (201, String::new()));
    upload["s3_ref"].clone()
}

pub async fn send(who: &Api, to: &str, attachment: Value) -> (u16, Value) {
    who.post("/v1/messages", json!({"client_msg_id": fresh_id(), "to": to, "attachment": attachment})).await
}

pub async fn link(who: &Api, s3_ref: &Value) -> (u16, Value) {
    who.get(&format!("/v1/conversations/alice~bob/attachments/{}", s3_ref.as_str().unwrap())).await
}

async fn get(url: &str, headers: &[(&str, &str)]) -> Response {
    let mut request = client().get(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap()
}

fn header(answer: &Response, name: &str) -> String {
    answer.headers().get(name).map_or(String::new(), |value| value.to_str().unwrap().to_owned())
}

/// How many files are below a directory.
fn files(dir: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries.map(|e| e.unwrap().path()).map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
}

#[tokio::test]
async fn a_photo_goes_from_one_member_to_the_other_and_to_nobody_else() {
    let server = Server::start();
    let (alice, bob, mallory) = (api(&server, "alice"), api(&server, "bob"), api(&server, "mallory"));
    let mut bob_s_phone = server.connect("bob", "phone").await;
    let bytes = b"not really a picture".to_vec();
    let upload = announce(&alice, "me.png", "image/png", &bytes).await;
    let s3_ref = upload["s3_ref"].clone();
    let (status, refused) = send(&alice, "bob", json!({"s3_ref": s3_ref})).await;
    assert_eq!((status, refused["error"]["code"].as_str()), (409, Some("not_uploaded")));
    let url = url_of(&upload);
    assert!(url.starts_with(&server.http("/v1/blobs/")), "{url}");
    assert_eq!(put(&url, bytes.clone()).await, (201, String::new()));
    assert_eq!(put(&url, bytes.clone()).await, (409, "already_uploaded".into()), "once");

    assert_eq!(send(&mallory, "bob", json!({"s3_ref": s3_ref})).await.0, 404, "another's upload");
    assert_eq!(link(&bob, &s3_ref).await.0, 404, "no message refers to it yet");
    let (status, sent) = send(&alice, "bob", json!({"s3_ref": s3_ref, "blurhash": "LEHV6nWB2yk8"})).await;
    assert_eq!(status, 200, "{sent}");
    let message = bob_s_phone.message().await;
    let said: Value = serde_json::from_str(message.attachment.as_ref().unwrap().as_str()).unwrap();
    let expected = json!({"s3_ref": s3_ref, "name": "me.png", "mime": "image/png", "bytes": bytes.len(),
        "sha256": sha256(&bytes), "blurhash": "LEHV6nWB2yk8"});
    assert_eq!(said, expected);
    assert_eq!(server.inspect("conversations", "bob")[0]["last_message_preview"], "Photo");

    let (status, refused) = link(&mallory, &s3_ref).await;
    assert_eq!((status, refused["error"]["code"].as_str()), (404, Some("not_found")));
    let (status, download) = link(&bob, &s3_ref).await;
    assert_eq!((status, &download["name"], &download["sha256"]), (200, &json!("me.png"), &said["sha256"]));
    let url = download["url"].as_str().unwrap();
    let answer = get(url, &[]).await;
    assert_eq!(answer.status(), 200);
    for (name, value) in [
        ("content-type", "image/png"),
        ("content-disposition", "inline; filename=\"me.png\""),
        ("x-content-type-options", "nosniff"),
        ("accept-ranges", "bytes"),
        ("content-length", "20"),
    ] {
        assert_eq!(header(&answer, name), value, "{name}");
    }
    assert!(header(&answer, "content-security-policy").contains("sandbox"));
    assert!(
        header(&answer, "cache-control").starts_with("private, max-age=2"),
        "no longer than the address is good"
    );
    assert_eq!(header(&answer, "vary"), "origin");
    assert_eq!(answer.bytes().await.unwrap(), bytes);

    let altered = url.replace("expires=1", "expires=2");
    for wrong in [altered.as_str(), &url[..url.len() - 1], &format!("{}0", &url[..url.len() - 1])] {
        if wrong != url {
            assert_eq!(get(wrong, &[]).await.status(), 403, "{wrong}");
        }
    }
    assert_eq!(get(url.split('?').next().unwrap(), &[]).await.status(), 403, "not signed at all");
    assert_eq!(put(url, bytes).await, (403, "link_refused".into()), "a link to read is none to write");
}

#[tokio::test]
async fn a_range_is_given_as_it_was_asked_for() {
    let server = Server::start();
    let (alice, bob) = (api(&server, "alice"), api(&server, "bob"));
    let s3_ref = uploaded(&alice, "Zoë.txt", "text/plain; charset=utf-8", b"0123456789").await;
    assert_eq!(send(&alice, "bob", json!({"s3_ref": s3_ref})).await.0, 200);
    let url = link(&bob, &s3_ref).await.1["url"].as_str().unwrap().to_owned();
    let whole = get(&url, &[]).await;
    let etag = header(&whole, "etag");
    assert_eq!(
        header(&whole, "content-disposition"),
        "attachment; filename=\"Zo_.txt\"; filename*=UTF-8''Zo%C3%AB.txt"
    );
    for (asked, status, range, body) in [
        (vec![("range", "bytes=2-4")], 206, "bytes 2-4/10", "234"),
        (vec![("range", "bytes=7-")], 206, "bytes 7-9/10", "789"),
        (vec![("range", "bytes=-2")], 206, "bytes 8-9/10", "89"),
        (vec![("range", "bytes=10-")], 416, "bytes */10", ""),
        (vec![("range", "bytes=0-1,4-5")], 200, "", "0123456789"),
        (vec![("range", "bytes=2-4"), ("if-range", etag.as_str())], 206, "bytes 2-4/10", "234"),
        (vec![("range", "bytes=2-4"), ("if-range", "\"other\"")], 200, "", "0123456789"),
        (vec![("if-none-match", etag.as_str())], 304, "", ""),
    ] {
        let answer = get(&url, &asked).await;
        assert_eq!((answer.status().as_u16(), header(&answer, "content-range").as_str()), (status, range));
        if status == 304 {
            assert_eq!(header(&answer, "content-length"), "", "it would be taken for that of the bytes");
        }
        assert_eq!(answer.text().await.unwrap(), body, "{asked:?}");
    }
}

#[tokio::test]
async fn what_is_not_as_announced_is_refused_and_leaves_nothing() {
    let server = Server::start();
    let alice = api(&server, "alice");
    let objects = server.data().join("objects");
    let upload = announce(&alice, "a.bin", "application/octet-stream", b"0123456789").await;
    let url = url_of(&upload);
    let pieces = |text: &'static str| reqwest::Body::wrap_stream(stream::iter([Ok::<_, String>(text)]));
    assert_eq!(put(&url, "9876543210").await, (422, "upload_mismatch".into()), "other bytes");
    assert_eq!(put(&url, "01234567890").await, (422, "upload_mismatch".into()), "too long");
    assert_eq!(put(&url, "012345678").await, (422, "upload_mismatch".into()), "too short");
    assert_eq!(
        put(&url, pieces("01234567890")).await,
        (422, "upload_mismatch".into()),
        "too long, in chunks"
    );
    assert_eq!(put(&url, pieces("012345678")).await, (422, "upload_mismatch".into()), "too short, in chunks");
    assert_eq!(files(&objects), 0);

    // A connection that is cut in the middle.
    let path = url.strip_prefix(&server.http("")).unwrap();
    let mut cut = tokio::net::TcpStream::connect(&server.address).await.unwrap();
    let head = format!("PUT {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: 10\r\n\r\n01234", server.address);
    cut.write_all(head.as_bytes()).await.unwrap();
    let until = tokio::time::Instant::now() + SOON;
    while files(&objects) == 0 {
        assert!(tokio::time::Instant::now() < until, "the upload has begun");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(put(&url, "0123456789").await, (503, "unavailable".into()), "one at a time");
    drop(cut);
    while files(&objects) > 0 {
        assert!(tokio::time::Instant::now() < until, "what was begun is gone");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(put(&url, "0123456789").await, (201, String::new()), "and it can still be uploaded");
    assert_eq!(files(&objects), 1);
}

#[tokio::test]
async fn an_address_expires_and_limits_are_told() {
    let server = Server::with(&[
        ("BLUETICK_ATTACHMENTS__UPLOAD_EXPIRES_SECS", "1"),
        ("BLUETICK_ATTACHMENTS__DOWNLOAD_EXPIRES_SECS", "1"),
        ("BLUETICK_ATTACHMENTS__MAX_BYTES", "100"),
        ("BLUETICK_ATTACHMENTS__TYPES", "image/*"),
        ("BLUETICK_ATTACHMENTS__PUBLIC_URL", "https://chat.example/"),
    ]);
    let (alice, bob) = (api(&server, "alice"), api(&server, "bob"));
    let here = |url: &str| url.replace("https://chat.example", &server.http(""));
    let slow = announce(&alice, "slow.png", "image/png", b"slow").await;
    assert!(url_of(&slow).starts_with("https://chat.example/v1/blobs/"), "{slow}");
    let quick = announce(&alice, "quick.png", "image/png", b"quick").await;
    assert_eq!(put(&here(&url_of(&quick)), "quick").await.0, 201);
    assert_eq!(send(&alice, "bob", json!({"s3_ref": quick["s3_ref"]})).await.0, 200);
    let download = link(&bob, &quick["s3_ref"]).await.1;
    let url = here(download["url"].as_str().unwrap());
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(put(&here(&url_of(&slow)), "slow").await, (403, "link_refused".into()));
    assert_eq!(get(&url, &[]).await.status(), 403);
    for (mime, bytes, code) in [
        ("image/png", 101, "attachment_too_large"),
        ("text/html", 1, "type_refused"),
        ("x", 1, "bad_request"),
    ] {
        let body = json!({"name": "a", "mime": mime, "bytes": bytes, "sha256": "0".repeat(64)});
        assert_eq!(alice.post("/v1/attachments", body).await.1["error"]["code"], code);
    }
}

#[tokio::test]
async fn attachments_go_with_an_export_and_with_an_erasure() {
    let server = Server::start();
    let (alice, bob) = (api(&server, "alice"), api(&server, "bob"));
    let hers = uploaded(&alice, "a.txt", "text/plain", b"from alice").await;
    let his = uploaded(&bob, "b.txt", "text/plain", b"from bob").await;
    assert_eq!(send(&alice, "bob", json!({"s3_ref": hers})).await.0, 200);
    assert_eq!(send(&bob, "alice", json!({"s3_ref": his})).await.0, 200);
    let saved = server.dir.path().join("saved");
    let export = server.run(&["export", "--user", "alice", "--attachments", saved.to_str().unwrap()]);
    assert!(export.status.success(), "{}", String::from_utf8_lossy(&export.stderr));
    let name = |seq, s3_ref: &Value, name| format!("alice~bob-{seq}-{}-{name}", s3_ref.as_str().unwrap());
    assert_eq!(std::fs::read(saved.join(name(1, &hers, "a.txt"))).unwrap(), b"from alice");
    assert_eq!(std::fs::read(saved.join(name(2, &his, "b.txt"))).unwrap(), b"from bob");

    // A file that cannot be had keeps neither the data nor the others, and one that is there is not fetched again.
    let objects = server.data().join("objects/attachments");
    std::fs::remove_file(saved.join(name(1, &hers, "a.txt"))).unwrap();
    let text = his.as_str().unwrap();
    let bytes = objects.join(&text[text.len() - 2..]).join(text);
    let aside = server.dir.path().join("aside");
    std::fs::rename(&bytes, &aside).unwrap();
    let export = || server.run(&["export", "--user", "alice", "--attachments", saved.to_str().unwrap()]);
    assert!(export().status.success());
    std::fs::remove_file(saved.join(name(2, &his, "b.txt"))).unwrap();
    std::fs::remove_file(saved.join(name(1, &hers, "a.txt"))).unwrap();
    let failed = export();
    assert!(!failed.status.success());
    assert!(String::from_utf8_lossy(&failed.stdout).contains("b.txt"), "the data");
    assert!(String::from_utf8_lossy(&failed.stderr).contains("1 of 2 files"));
    assert!(saved.join(name(1, &hers, "a.txt")).exists());
    std::fs::rename(&aside, &bytes).unwrap();

    assert!(server.run(&["erase", "--user", "alice", "--yes"]).status.success());
    assert_eq!(link(&bob, &hers).await.0, 404);
    assert_eq!(link(&bob, &his).await.0, 200);
    assert_eq!(files(&server.data().join("objects")), 1);
}

/// A file that is never in memory: each piece is the one before with its number in front.
struct Long {
    pieces: usize,
    noise: Vec<u8>,
}

impl Long {
    fn new(pieces: usize) -> Long {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let noise = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        Long { pieces, noise: noise.take(MIB / 8).flatten().collect() }
    }

    fn piece(&self, number: usize) -> Vec<u8> {
        let mut piece = self.noise.clone();
        piece[..8].copy_from_slice(&(number as u64).to_le_bytes());
        piece
    }

    fn sha256(&self) -> String {
        let mut hash = digest::Context::new(&digest::SHA256);
        (0..self.pieces).for_each(|number| hash.update(&self.piece(number)));
        hex(hash.finish().as_ref())
    }
}

#[tokio::test]
async fn a_large_file_passes_through_little_memory() {
    let quick = std::env::var_os("BLUETICK_TEST_QUICK").is_some();
    let long = std::sync::Arc::new(Long::new(if quick { 128 } else { 1024 }));
    let server = Server::with(&[("BLUETICK_ATTACHMENTS__USER_BYTES_PER_DAY", "0")]);
    let (alice, bob) = (api(&server, "alice"), api(&server, "bob"));
    let space = rustix::fs::statvfs(server.dir.path()).unwrap();
    let free = space.f_bavail * space.f_frsize;
    assert!(
        free > (2 * long.pieces * MIB) as u64,
        "this test needs room on the disk, and there are {free} bytes"
    );
    // What the first of everything takes.
    let small = uploaded(&alice, "small", "video/mp4", b"small").await;
    assert_eq!(send(&alice, "bob", json!({"s3_ref": small})).await.0, 200);
    let url = link(&bob, &small).await.1["url"].as_str().unwrap().to_owned();
    assert_eq!(get(&url, &[]).await.bytes().await.unwrap(), "small");

    let (sha256, bytes) = (long.sha256(), long.pieces * MIB);
    let body = json!({"name": "long.mp4", "mime": "video/mp4", "bytes": bytes, "sha256": sha256});
    let (_, upload) = alice.post("/v1/attachments", body).await;
    let before = server.rss();
    let watching = async |work: &mut (dyn Future<Output = ()> + Unpin)| {
        let mut most = before;
        loop {
            tokio::select! {
                () = &mut *work => return most.max(server.rss()),
                () = tokio::time::sleep(Duration::from_millis(20)) => most = most.max(server.rss()),
            }
        }
    };
    let source = long.clone();
    let pieces = stream::iter(0..long.pieces).map(move |number| Ok::<_, String>(source.piece(number)));
    let url = url_of(&upload);
    let mut uploading = Box::pin(async {
        let request = client().put(&url).header("content-length", bytes);
        let answer = request.body(reqwest::Body::wrap_stream(pieces)).send().await.unwrap();
        assert_eq!(answer.status(), 201, "{:?}", answer.text().await);
    });
    let peak = watching(&mut uploading).await;
    println!("upload of {bytes} bytes: memory {before} before, at most {peak}");
    assert!(peak < before + 16 * MIB as u64, "{before} grew to {peak}");

    let s3_ref = &upload["s3_ref"];
    assert_eq!(send(&alice, "bob", json!({"s3_ref": s3_ref})).await.0, 200);
    let url = link(&bob, s3_ref).await.1["url"].as_str().unwrap().to_owned();
    let mut downloading = Box::pin(async {
        let mut answer = get(&url, &[]).await;
        let mut hash = digest::Context::new(&digest::SHA256);
        while let Some(piece) = answer.chunk().await.unwrap() {
            hash.update(&piece);
        }
        assert_eq!(hex(hash.finish().as_ref()), sha256);
        for number in [0, long.pieces / 2, long.pieces - 1] {
            let range = format!("bytes={}-{}", number * MIB, (number + 1) * MIB - 1);
            let answer = get(&url, &[("range", &range)]).await;
            assert_eq!(answer.status(), 206);
            assert!(answer.bytes().await.unwrap() == long.piece(number), "{range}");
        }
    });
    let peak = watching(&mut downloading).await;
    println!("download of {bytes} bytes: memory {before} before, at most {peak}");
    assert!(peak < before + 16 * MIB as u64, "{before} grew to {peak}");
}
