//! Somebody who was locked out and still has a token: no session, no request and no race brings them back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bluetick_client::RawConnection;
use bluetick_protocol::*;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    harness::*,
    http::{api, client},
};

/// How long another gateway of a cluster may not have heard of a revocation, with time to spare.
const KNOWN_WITHIN: Duration = Duration::from_secs(12);
/// How long a session that was revoked may go on. Its first heartbeat, which would end it as well,
/// comes after 10 s or more.
const ENDED_WITHIN: Duration = Duration::from_secs(3);

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn signed(server: &Server, claims: Value) -> String {
    let secret = std::fs::read_to_string(server.data().join("jwt.secret")).unwrap();
    let key = jsonwebtoken::EncodingKey::from_secret(secret.trim().as_bytes());
    jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).unwrap()
}

/// What a `hello` with this token is answered with.
async fn hello(server: &Server, token: &str, device: &str) -> ServerFrame {
    let mut wire = RawConnection::connect(&server.url()).await.unwrap();
    let (token, device) = (token.to_owned(), DeviceId::new(device).unwrap());
    let hello = Hello { reference: None, token, device, cursor: None, resumes: None };
    wire.send_frame(&ClientFrame::Hello(hello)).await.unwrap();
    wire.next_frame(SOON).await.unwrap()
}

async fn is_refused_at_hello(server: &Server, token: &str) {
    match hello(server, token, "intruder").await {
        ServerFrame::Bye(bye) => assert_eq!(bye.code, ErrorCode::TokenRevoked),
        other => panic!("it was let in: {other:?}"),
    }
}

/// The status of a read and a send over HTTP with this token, and their codes.
async fn over_http(server: &Server, token: &str) -> [(u16, Value); 2] {
    let read = client().get(server.http("/v1/inbox"));
    let send = client().post(server.http("/v1/messages"));
    let send = send.json(&json!({"to": "carol", "client_msg_id": fresh_id(), "body": "let me in"}));
    let call = async |request: reqwest::RequestBuilder| {
        let answer = request.bearer_auth(token).send().await.unwrap();
        let (status, text) = (answer.status().as_u16(), answer.text().await.unwrap());
        let body: Value = serde_json::from_str(&text).unwrap();
        (status, body["error"]["code"].clone())
    };
    [call(read).await, call(send).await]
}

/// Waits until the token is refused for every request, and for several in a row, whichever gateway they reach.
async fn is_refused_over_http(server: &Server, token: &str) {
    let until = tokio::time::Instant::now() + KNOWN_WITHIN;
    let mut in_a_row = 0;
    while in_a_row < 8 {
        let answers = over_http(server, token).await;
        let refused = answers.iter().all(|answer| *answer == (401, json!("token_revoked")));
        in_a_row = if refused { in_a_row + 1 } else { 0 };
        assert!(tokio::time::Instant::now() < until, "{answers:?}");
        if !refused {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn run(server: &Server, args: &[&str]) -> String {
    let output = server.run(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn revoke(server: &Server, user: &str) -> String {
    run(server, &["revoke", "--user", user])
}

/// A request whose body is withheld.
struct Withheld {
    stream: TcpStream,
    body: String,
}

impl Withheld {
    /// Sends the head, and waits until the body is asked for: the token was found good by then.
    async fn begin(server: &Server, token: &str, line: &str, body: Value) -> Withheld {
        let (mut stream, body) = (TcpStream::connect(&server.address).await.unwrap(), body.to_string());
        let head = format!(
            "{line} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n",
            server.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let asked = async {
            while !answer.ends_with(b"\r\n\r\n") {
                answer.push(stream.read_u8().await.unwrap());
            }
        };
        tokio::time::timeout(SOON, asked).await.expect("the body is asked for");
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 100 "), "{answer}");
        Withheld { stream, body }
    }

    /// Sends the body. Gives the status and the code of the error.
    async fn finish(mut self) -> (u16, Value) {
        self.stream.write_all(self.body.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let read = tokio::time::timeout(SOON, self.stream.read_to_string(&mut answer));
        read.await.expect("an answer").unwrap();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        let json = answer.find('{').zip(answer.rfind('}')).map(|(from, to)| &answer[from..=to]);
        let json: Value = serde_json::from_str(json.unwrap_or("null")).unwrap();
        (status, json["error"]["code"].clone())
    }
}

/// A token that was issued after everything that was revoked up to now.
async fn later_token(server: &Server, user: &str) -> String {
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    server.token(user)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_user_is_out_at_once_and_for_good_with_every_token_there_is() {
    let mut server = Server::start();
    let (old, timeless) = (server.token("alice"), server.mint("alice"));
    let mut phone = Person::open(&server.url(), &old, "alice", "phone", None).await;
    let mut tablet = Person::open(&server.url(), &timeless, "alice", "tablet", None).await;
    let mut bob = server.connect("bob", "phone").await;
    phone.caught_up().await;
    tablet.caught_up().await;
    phone.send("bob", "before").await;
    bob.message().await;

    let told = revoke(&server, "alice");
    assert!(told.contains("sessions ended 2"), "{told}");
    for device in [&mut phone, &mut tablet] {
        let bye = device.bye().await;
        assert_eq!(bye.code, ErrorCode::TokenRevoked);
    }
    gone(&server, "alice").await;
    for token in [&old, &timeless] {
        is_refused_over_http(&server, token).await;
        is_refused_at_hello(&server, token).await;
    }
    bob.hears_no_message().await;

    // It is durable.
    tokio::task::block_in_place(|| server.terminate());
    server.restart();
    is_refused_at_hello(&server, &old).await;
    is_refused_over_http(&server, &timeless).await;

    // A token that was issued since is good, over the socket, by `auth` and over HTTP.
    let fresh = later_token(&server, "alice").await;
    let mut phone = Person::open(&server.url(), &fresh, "alice", "phone", None).await;
    assert_eq!(over_http(&server, &fresh).await[0].0, 200);
    phone.say(ClientFrame::Auth(Auth { reference: Some(Ref::Number(1)), token: old })).await;
    assert_eq!(phone.error().await.code, ErrorCode::TokenRevoked, "an old token renews nothing");
    phone.send("bob", "back").await;
    let mut bob = server.connect("bob", "phone").await;
    bob.send("alice", "welcome back").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hello_right_after_the_revocation_is_refused_whatever_a_gateway_remembers() {
    let server = Server::start();
    let token = server.token("alice");
    for _ in 0..8 {
        // Every gateway of a cluster has found her token good a moment ago.
        assert_eq!(over_http(&server, &token).await.map(|answer| answer.0), [200, 200]);
    }
    revoke(&server, "alice");
    for _ in 0..6 {
        is_refused_at_hello(&server, &token).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_arrives_after_the_revocation_writes_nothing() {
    let server = Server::start();
    let (revoke, erase) = (["revoke", "--user", "alice"], ["erase", "--user", "carol", "--yes"]);
    for (user, command) in [("alice", &revoke[..]), ("carol", &erase[..])] {
        let token = server.token(user);
        let message = json!({"to": "bob", "client_msg_id": fresh_id(), "body": "let me in"});
        let withheld = [
            Withheld::begin(&server, &token, "POST /v1/messages", message).await,
            Withheld::begin(&server, &token, "PUT /v1/me", json!({"name": "Mallory"})).await,
        ];
        run(&server, command);
        for request in withheld {
            assert_eq!(request.finish().await, (401, json!("token_revoked")), "{user}");
        }
        assert_eq!(server.inspect("conversations", user), json!([]));
        let fresh = later_token(&server, user).await;
        let me = client().get(server.http("/v1/me")).bearer_auth(fresh).send().await.unwrap();
        let me: Value = serde_json::from_str(&me.text().await.unwrap()).unwrap();
        assert!(me["user_id"] == user && me["name"].is_null(), "{me}");
    }
    assert_eq!(api(&server, "bob").get("/v1/inbox").await.1["conversations"], json!([]));
}

#[tokio::test]
async fn after_an_erasure_the_same_token_neither_reads_nor_sends() {
    let server = Server::start();
    let old = server.token("alice");
    let mut alice = Person::open(&server.url(), &old, "alice", "phone", None).await;
    let mut bob = server.connect("bob", "phone").await;
    alice.send("bob", "before").await;
    bob.message().await;
    assert!(server.run(&["erase", "--user", "alice", "--yes"]).status.success());
    assert_eq!(alice.bye().await.code, ErrorCode::Erased);
    is_refused_over_http(&server, &old).await;
    is_refused_at_hello(&server, &old).await;
    bob.hears_no_message().await;
    let history = bob.history("alice~bob", None, None, 50).await;
    assert!(history.messages.is_empty(), "{history:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_session_that_connects_while_its_user_is_revoked_survives() {
    let server = Server::start();
    for round in 0..3 {
        let token = later_token(&server, "alice").await;
        let done = Arc::new(AtomicBool::new(false));
        let connecting: Vec<_> = (0..4)
            .map(|n| {
                let (url, token, done) = (server.url(), token.clone(), done.clone());
                tokio::spawn(async move {
                    let mut open = Vec::new();
                    let mut turn = 0;
                    while !done.load(Ordering::Relaxed) {
                        turn += 1;
                        let Ok(mut wire) = RawConnection::connect(&url).await else { continue };
                        let hello = Hello {
                            reference: None,
                            token: token.clone(),
                            device: DeviceId::new(&format!("d{n}-{}", turn % 2)).unwrap(),
                            cursor: None,
                            resumes: None,
                        };
                        if wire.hello_as(hello).await.is_ok() {
                            open.push(wire);
                        }
                        if open.len() > 2 {
                            open.remove(0).abort();
                        }
                    }
                    open
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(200 + 50 * round)).await;
        tokio::task::block_in_place(|| revoke(&server, "alice"));
        done.store(true, Ordering::Relaxed);
        for task in connecting {
            for mut wire in task.await.unwrap() {
                // Each ends, whatever comes before.
                let is_bye = |frame| matches!(frame, ServerFrame::Bye(_)).then_some(());
                let ended = wire.next_where(ENDED_WITHIN, is_bye).await;
                assert!(ended.is_ok() || !format!("{ended:?}").contains("Timeout"), "{ended:?}");
            }
        }
        gone(&server, "alice").await;
        tokio::time::sleep(SHORT).await;
        assert_eq!(server.inspect("sessions", "alice"), json!([]));
    }
}

#[tokio::test]
async fn a_server_may_want_tokens_to_end_and_to_be_young() {
    let server =
        Server::with(&[("BLUETICK_AUTH__REQUIRE_EXP", "true"), ("BLUETICK_AUTH__MAX_AGE_SECS", "60")]);
    let refused = async |claims: Value| match hello(&server, &signed(&server, claims), "d").await {
        ServerFrame::Bye(bye) => bye,
        other => panic!("it was let in: {other:?}"),
    };
    let bye = refused(json!({"sub": "alice", "iat": now()})).await;
    assert!(bye.code == ErrorCode::Unauthorized && bye.reason.contains("\"exp\""), "{bye:?}");
    let bye = refused(json!({"sub": "alice", "exp": now() + 600})).await;
    assert!(bye.code == ErrorCode::Unauthorized && bye.reason.contains("\"iat\""), "{bye:?}");
    let bye = refused(json!({"sub": "alice", "exp": now() + 600, "iat": now() + 600})).await;
    assert!(bye.code == ErrorCode::Unauthorized && bye.reason.contains("\"iat\""), "{bye:?}");
    let bye = refused(json!({"sub": "alice", "exp": now() + 600, "iat": now() - 61})).await;
    assert_eq!(bye.code, ErrorCode::TokenExpired);
    // A session ends when its token has become too old, long before its `exp`.
    let token = signed(&server, json!({"sub": "alice", "exp": now() + 600, "iat": now() - 57}));
    let mut alice = Person::open(&server.url(), &token, "alice", "phone", None).await;
    assert_eq!(alice.bye().await.code, ErrorCode::TokenExpired);
}
