//! One user who uploads as much, as often or as slowly as they can: the quota, the number in
//! progress, the least rate and the floor of free space keep the disk and everybody else's uploads
//! from them. And one who downloads without reading.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use ring::digest;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

use crate::{
    attachments::{link, send, uploaded},
    disk::alone_in_memory,
    harness::*,
    http::{Api, api, client},
};

const MIB: usize = 1024 * 1024;
const DAY: &str = "BLUETICK_ATTACHMENTS__USER_BYTES_PER_DAY";
const TOTAL: &str = "BLUETICK_ATTACHMENTS__USER_BYTES_TOTAL";
const MAX: &str = "BLUETICK_ATTACHMENTS__MAX_BYTES";
const WINDOW: &str = "BLUETICK_ATTACHMENTS__UPLOAD_RATE_WINDOW_SECS";
const FLOOR: &str = "BLUETICK_ATTACHMENTS__UPLOAD_FREE_SPACE_FLOOR_BYTES";

/// Announces zeros. The signed address, or the code of the refusal.
async fn announce(who: &Api, bytes: usize) -> Result<String, Value> {
    let hash = digest::digest(&digest::SHA256, &vec![0; bytes]);
    let sha256: String = hash.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    let body = json!({"name": "a", "mime": "application/octet-stream", "bytes": bytes, "sha256": sha256});
    let (status, answer) = who.post("/v1/attachments", body).await;
    match status {
        200 => Ok(answer["upload"]["url"].as_str().unwrap().to_owned()),
        _ => Err(json!([status, answer["error"]["code"], answer["error"]["retry_after_ms"].is_number()])),
    }
}

async fn put(url: &str, bytes: usize) -> (u16, String) {
    let answer = client().put(url).body(vec![0; bytes]).send().await.unwrap();
    let status = answer.status().as_u16();
    let text: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap_or_default();
    (status, text["error"]["code"].as_str().unwrap_or_default().to_owned())
}

/// An upload that begins and then stands still.
struct Stalled(TcpStream);

impl Stalled {
    async fn begin(server: &Server, url: &str, announced: usize) -> Stalled {
        let mut stream = TcpStream::connect(&server.address).await.unwrap();
        let path = url.strip_prefix(&server.http("")).unwrap();
        let head = format!(
            "PUT {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {announced}\r\n\r\n0",
            server.address
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        Stalled(stream)
    }

    /// Sends a byte from time to time until the server has answered. What it answered.
    async fn drip(mut self, every: Duration, patience: Duration) -> String {
        let until = Instant::now() + patience;
        let mut answer = Vec::new();
        let mut piece = [0; 4096];
        while Instant::now() < until {
            match tokio::time::timeout(every, self.0.read(&mut piece)).await {
                Ok(Ok(0) | Err(_)) => break,
                Ok(Ok(read)) => answer.extend_from_slice(&piece[..read]),
                Err(_) => drop(self.0.write_all(b"0").await),
            }
        }
        String::from_utf8_lossy(&answer).into_owned()
    }
}

/// A download whose answer has begun, and of which nothing more is read.
async fn unread_download(server: &Server, url: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let mut stream = socket.connect(server.address.parse().unwrap()).await.unwrap();
    let path = url.strip_prefix(&server.http("")).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", server.address);
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut status = [0; "HTTP/1.1 200".len()];
    tokio::time::timeout(SOON, stream.read_exact(&mut status)).await.unwrap().unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    stream
}

/// Files below a directory.
fn files(dir: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries.map(|e| e.unwrap().path()).map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
}

async fn becomes(expected: usize, dir: &Path, what: &str) {
    let until = Instant::now() + SOON;
    while files(dir) != expected {
        assert!(Instant::now() < until, "{what}: {} files", files(dir));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_user_who_uploads_without_end_meets_the_quota_and_others_do_not() {
    let day = (3 * MIB).to_string();
    let mut server = Server::prepared(&[(DAY, &day), (TOTAL, "20000000"), (MAX, "1048576")]);
    server.restart();
    let (mallory, alice) = (api(&server, "mallory"), api(&server, "alice"));
    let mut taken = 0;
    let refused = loop {
        match announce(&mallory, MIB).await {
            Ok(url) => assert_eq!(put(&url, MIB).await.0, 201),
            Err(refused) => break refused,
        }
        taken += 1;
        assert!(taken <= 3, "the quota is 3 MiB");
    };
    assert_eq!((taken, refused), (3, json!([413, "quota_exceeded", true])));
    // Announcing alone counts: what is announced and never sent is charged too, one byte as 4 KiB.
    for bytes in [MIB, MIB, MIB - 8 * 4096].into_iter().chain([1; 8]) {
        assert!(announce(&alice, bytes).await.is_ok(), "{bytes}");
    }
    assert_eq!(announce(&alice, 1).await, Err(json!([413, "quota_exceeded", true])));
    assert!(announce(&api(&server, "bob"), MIB).await.is_ok(), "somebody else's quota is their own");

    let shown = &server.inspect("uploads", "mallory")[0];
    assert_eq!((&shown["total_bytes"], &shown["day_bytes"]), (&json!(3 * MIB), &json!(3 * MIB)));
    // A crash forgets nothing of it.
    server.kill();
    server.restart();
    assert_eq!(announce(&api(&server, "mallory"), 1).await, Err(json!([413, "quota_exceeded", true])));
    // Erased, the user has nothing and owes nothing.
    assert!(server.run(&["erase", "--user", "mallory", "--yes"]).status.success());
    assert_eq!(server.inspect("uploads", "mallory")[0]["total_bytes"], 0);
}

#[tokio::test]
async fn uploads_that_stand_still_are_ended_and_block_nobody() {
    // Much is announced and nearly nothing sent, as in the attack that blocked all uploads for hours.
    let server = Server::with(&[(WINDOW, "2")]);
    let objects = server.data().join("objects");
    let announced = 512 * MIB;
    let hash = "0".repeat(64);
    let mut stalled = Vec::new();
    for n in 0..43 {
        let mallory = api(&server, &format!("mallory-{n}"));
        let body = json!({"name": "a", "mime": "video/mp4", "bytes": announced, "sha256": hash});
        let (status, upload) = mallory.post("/v1/attachments", body).await;
        assert_eq!(status, 200, "{upload}");
        stalled.push(Stalled::begin(&server, upload["upload"]["url"].as_str().unwrap(), announced).await);
    }
    let slowest = stalled.len();
    let dripping = stalled.into_iter().map(|one| one.drip(Duration::from_millis(200), SOON));
    let dripping = tokio::spawn(futures_util::future::join_all(dripping));
    // Meanwhile everybody else uploads.
    let alice = api(&server, "alice");
    for _ in 0..5 {
        let url = announce(&alice, MIB).await.unwrap();
        assert_eq!(put(&url, MIB).await, (201, String::new()));
    }
    let answers = dripping.await.unwrap();
    let ended = answers.iter().filter(|answer| answer.contains("upload_too_slow")).count();
    assert_eq!(ended, slowest, "{:?}", answers.first());
    assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 408")));
    becomes(5, &objects, "partial files are removed").await;
}

#[tokio::test]
async fn one_user_has_few_uploads_in_progress() {
    let server = Server::start();
    let objects = server.data().join("objects");
    let mallory = api(&server, "mallory");
    let mut stalled = Vec::new();
    for _ in 0..4 {
        let url = announce(&mallory, MIB).await.unwrap();
        stalled.push(Stalled::begin(&server, &url, MIB).await);
    }
    becomes(4, &objects, "four are in progress").await;
    let fifth = announce(&mallory, MIB).await.unwrap();
    assert_eq!(put(&fifth, MIB).await, (429, "rate_limited".into()));
    let alice = api(&server, "alice");
    let hers = announce(&alice, MIB).await.unwrap();
    assert_eq!(put(&hers, MIB).await.0, 201, "another user's count is their own");
    drop(stalled);
    becomes(1, &objects, "they are gone").await;
    assert_eq!(put(&fifth, MIB).await.0, 201);
}

#[tokio::test]
async fn an_attachment_has_few_downloads_in_progress() {
    const DOWNLOADS: usize = 16;
    // More than the kernel holds for a connection that nobody reads.
    let bytes = vec![0; 16 * MIB];
    let server = Server::start();
    let (alice, bob) = (api(&server, "alice"), api(&server, "bob"));
    let mut refs = Vec::new();
    for name in ["first.mp4", "second.mp4"] {
        let s3_ref = uploaded(&alice, name, "video/mp4", &bytes).await;
        assert_eq!(send(&alice, "bob", json!({"s3_ref": s3_ref})).await.0, 200);
        refs.push(s3_ref);
    }
    let address = async |n: usize| link(&bob, &refs[n]).await.1["url"].as_str().unwrap().to_owned();
    let first = address(0).await;
    let mut unread = Vec::new();
    for _ in 0..DOWNLOADS {
        unread.push(unread_download(&server, &first).await);
    }
    // A new address leads to the same file.
    let again = address(0).await;
    let refused = client().get(&again).send().await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.headers().contains_key("retry-after")), (429, true));
    let error: Value = serde_json::from_str(&refused.text().await.unwrap()).unwrap();
    assert_eq!(error["error"]["code"], "rate_limited", "{error}");
    assert!(error["error"]["retry_after_ms"].as_u64() > Some(0), "{error}");
    let second = client().get(address(1).await).send().await.unwrap();
    assert_eq!(second.status().as_u16(), 200, "another attachment has its own");
    assert_eq!(second.bytes().await.unwrap().len(), bytes.len());

    drop(unread);
    let until = Instant::now() + SOON;
    let whole = loop {
        let answer = client().get(&again).send().await.unwrap();
        if answer.status().as_u16() == 200 {
            break answer.bytes().await.unwrap();
        }
        assert!(Instant::now() < until, "the places are given back");
    };
    assert_eq!(whole.len(), bytes.len());
}

#[tokio::test]
async fn uploads_stop_at_their_own_floor_and_sends_go_on() {
    // A file system in memory: nobody else's builds and logs come and go on it.
    let shm = Path::new("/dev/shm");
    let _alone = alone_in_memory();
    let stat = rustix::fs::statvfs(shm).unwrap();
    let free = stat.f_bavail * stat.f_frsize;
    let mut server = Server::prepared(&[(DAY, "0"), (TOTAL, "0")]);
    server.dir = tempfile::tempdir_in(shm).unwrap();
    server.set(FLOOR, &(free - (64 << 20)).to_string());
    server.set("BLUETICK_STORE__FREE_SPACE_FLOOR_BYTES", &(free - (160 << 20)).to_string());
    server.restart();
    // Together these announce more than there is, and hold nearly nothing of it.
    let announced = 40 * MIB;
    let mut stalled = Vec::new();
    for n in 0..3 {
        let url = announce(&api(&server, &format!("mallory-{n}")), announced).await.unwrap();
        stalled.push(Stalled::begin(&server, &url, announced).await);
    }
    becomes(3, &server.data().join("objects"), "three are in progress").await;
    let mallory = api(&server, "mallory");
    let mut alice = server.connect("alice", "phone").await;
    let (mut taken, mut refused) = (0, 0);
    while refused < 3 {
        let url = announce(&mallory, 4 * MIB).await.unwrap();
        match put(&url, 4 * MIB).await {
            (201, _) => taken += 1,
            (507, code) => {
                assert_eq!(code, "storage_full");
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
        assert!(taken < 40, "{taken} files of 4 MiB were taken, and 64 MiB were free");
        alice.send("bob", "still here").await;
    }
    assert!(taken >= 1);
    let ready = client().get(server.http("/readyz")).send().await.unwrap();
    assert_eq!(ready.status().as_u16(), 200, "sends have their room");

    drop(stalled);
    let stat = rustix::fs::statvfs(shm).unwrap();
    assert!(stat.f_bavail * stat.f_frsize > free - (160 << 20), "sends never came near their floor");
}

#[test]
fn limits_of_uploads_that_contradict_each_other_are_refused_at_start() {
    for (settings, named) in [
        (vec![(DAY, "1000")], "user_bytes_per_day"),
        (vec![(TOTAL, "1000")], "user_bytes_total"),
        (vec![(FLOOR, "1000")], "upload_free_space_floor_bytes"),
        (vec![("BLUETICK_ATTACHMENTS__UPLOADS_AT_ONCE", "1")], "uploads_at_once"),
        (vec![("BLUETICK_ATTACHMENTS__UPLOADS_PER_USER", "0")], "uploads_per_user"),
    ] {
        let mut server = Server::prepared(&settings);
        let (status, why) = server.fails_to_start();
        assert!(!status.success());
        assert!(why.contains(named), "{why}");
    }
}
