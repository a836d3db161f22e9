//! Somebody who can write to Redis adds entries of their own: none leads a message or the cluster's secret out, and none
//! gives one user's messages to another.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{harness::*, tables::service};

/// Accepts connections, never answers, and keeps what it is sent on each.
struct Ear {
    port: u16,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Ear {
    fn open() -> Ear {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let ear = Ear { port: tcp.local_addr().unwrap().port(), heard: Arc::default() };
        let heard = ear.heard.clone();
        std::thread::spawn(move || {
            for stream in tcp.incoming() {
                let (Ok(mut stream), heard) = (stream, heard.clone()) else { return };
                let place = {
                    let mut heard = heard.lock().unwrap();
                    heard.push(Vec::new());
                    heard.len() - 1
                };
                std::thread::spawn(move || {
                    let mut piece = [0; 4096];
                    while let Ok(read @ 1..) = stream.read(&mut piece) {
                        heard.lock().unwrap()[place].extend_from_slice(&piece[..read]);
                    }
                });
            }
        });
        ear
    }

    fn connections(&self) -> usize {
        self.heard.lock().unwrap().len()
    }

    fn heard(&self, text: &str) -> bool {
        let heard = self.heard.lock().unwrap();
        heard.iter().any(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
    }
}

fn redis(command: &str) -> String {
    let address =
        service("BLUETICK_TEST_REDIS").trim_start_matches("redis://").trim_end_matches('/').to_owned();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
    let mut answer = [0; 512];
    let read = stream.read(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    assert!(!answer.starts_with('-'), "{command}: {answer}");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_writes_to_redis_gets_them_no_message() {
    let mut server = Server::start();
    let prefix = server.deployment.cluster().tables.prefix.clone();
    let (app, gateway) = (Ear::open(), Ear::open());
    let later = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() + 600_000;
    redis(&format!("ZADD {prefix}nodes:{{app}} {later} 127.0.0.1:{}", app.port));
    redis(&format!(
        "ZADD {prefix}nodes:{{app}} {later} \"127.0.0.1:{} {later} {}\"",
        app.port,
        "00".repeat(32)
    ));
    redis(&format!(
        "HSET {prefix}ws:{{bob}} 0123456789abcdef0123456789abcdef \"{later} 1 phone 127.0.0.1:{}#0123456789abcdef\"",
        gateway.port
    ));
    let mut alice = server.connect("alice", "phone").await;
    alice.send("bob", "words that nobody else may hear").await;
    // Gateways look for app servers every two seconds.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(app.connections(), 0, "an entry that is not signed is not called");
    assert!(gateway.connections() > 0, "a session's entry is, and proves nothing");
    for text in ["words that nobody", "a secret that all of a test's processes share", "authorization"] {
        assert!(!gateway.heard(text), "{text}");
    }

    // The entry of a live session, copied to another user's.
    let mut mallory = server.connect("mallory", "phone").await;
    let copy = "local e = redis.call('hgetall', KEYS[1]) redis.call('hset', KEYS[2], e[1], e[2]) return #e";
    let copied = redis(&format!("EVAL \"{copy}\" 2 {prefix}ws:{{mallory}} {prefix}ws:{{bob}}"));
    assert_eq!(copied.trim(), ":2", "mallory has one session");
    alice.send("bob", "for bob alone").await;
    mallory.hears_no_message().await;

    let mut bob = server.open("bob", "phone", None).await;
    let (messages, _) = bob.caught_up().await;
    assert_eq!(bodies(&messages), ["words that nobody else may hear", "for bob alone"]);
}
