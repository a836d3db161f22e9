//! Floods: one user who sends, asks, types, reconnects or renames themselves as fast as they can.

use std::time::{Duration, Instant};

use bluetick_protocol::*;
use serde_json::json;

use crate::{
    harness::*,
    http::{Api, api},
};

/// What the server told somebody, frame by frame, until nothing has come for a moment.
async fn frames_of(person: &mut Person) -> Vec<ServerFrame> {
    let mut frames = Vec::new();
    while let Ok(frame) = person.wire.next_where(SHORT, Some).await {
        frames.push(frame);
    }
    frames
}

fn in_conversation(id: &str) -> InConversation {
    InConversation { reference: None, conversation_id: conversation(id) }
}

fn history(id: &str, reference: u64) -> ClientFrame {
    ClientFrame::History(HistoryQuery {
        reference: Some(Ref::Number(reference as i64)),
        conversation_id: conversation(id),
        after_seq: None,
        before_seq: None,
        limit: Some(200),
    })
}

#[tokio::test]
async fn long_messages_are_limited_by_their_bytes() {
    let server = Server::with(&[
        ("BLUETICK_LIMITS__SEND_BYTES_PER_SECOND", "20000"),
        ("BLUETICK_LIMITS__SEND_BURST_BYTES", "200000"),
    ]);
    let mut mallory = server.connect("mallory", "phone").await;
    let body = "x".repeat(16_000);
    let began = Instant::now();
    for _ in 0..60 {
        mallory.say(ClientFrame::Send(send_frame("bob", &body))).await;
    }
    let (mut sent, mut limited) = (0u64, 0);
    while sent + limited < 60 {
        match mallory.wait(Some).await {
            ServerFrame::Sent(_) => sent += 1,
            ServerFrame::Error(e) => {
                assert_eq!(e.error.code, ErrorCode::RateLimited);
                assert!(e.error.retry_after_ms.is_some_and(|ms| (1..=20_000).contains(&ms)), "{:?}", e.error);
                limited += 1;
            }
            _ => {}
        }
    }
    let most = 200_000 + began.elapsed().as_millis() as u64 * 20 + 16_000;
    assert!(sent * 16_000 <= most, "{sent} messages of 16,000 bytes where {most} bytes were allowed");
    assert!(sent >= 12, "the burst passes: {sent}");
    // The number of sends is far from its limit: a short message passes as soon as there is room for it.
    tokio::time::sleep(Duration::from_millis(300)).await;
    mallory.send("bob", "short").await;
    server.connect("alice", "phone").await.send("bob", &body).await;
}

#[tokio::test]
async fn typing_is_told_once_a_second() {
    let server = Server::start();
    let mut mallory = server.connect("mallory", "phone").await;
    mallory.send("bob", "hi").await;
    let mut victims = [server.connect("bob", "phone").await, server.connect("bob", "tablet").await];
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(2_500) {
        for _ in 0..50 {
            mallory.say(ClientFrame::Typing(in_conversation("bob~mallory"))).await;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    for victim in &mut victims {
        let frames = frames_of(victim).await;
        let told = frames.iter().filter(|f| matches!(f, ServerFrame::Typing(_))).count();
        let most = began.elapsed().as_secs() as usize + 2;
        assert!((1..=most).contains(&told), "{told} frames of typing, where {most} were allowed");
    }
    mallory.send("bob", "the connection lives").await;
}

#[tokio::test]
async fn a_session_that_comes_and_goes_is_hardly_told_and_its_last_state_is() {
    let server = Server::start();
    let mut bob = server.connect("bob", "phone").await;
    let mut watchers = Vec::new();
    for name in ["w1", "w2", "w3"] {
        let mut watcher = server.connect(name, "phone").await;
        watcher.send("bob", "hi").await;
        bob.send(name, "hi").await;
        watcher.say(ClientFrame::Watch(Watch { reference: None, users: vec![user("bob")] })).await;
        let now = watcher.wait(|f| if let ServerFrame::Presence(p) = f { Some(p) } else { None }).await;
        assert!(now.online);
        watchers.push(watcher);
    }
    bob.leave().await;
    let token = server.token("bob");
    let began = Instant::now();
    let mut flaps = 0;
    while began.elapsed() < Duration::from_secs(4) {
        let flapping = Person::open(&server.url(), &token, "bob", "phone", None).await;
        flapping.leave().await;
        flaps += 1;
    }
    // The last state is offline, and everybody hears of it.
    for watcher in &mut watchers {
        let mut told = 0;
        let mut last = None;
        while let Ok(presence) = watcher
            .wire
            .next_where(Duration::from_secs(4), |f| match f {
                ServerFrame::Presence(p) => Some(p),
                _ => None,
            })
            .await
        {
            told += 1;
            last = Some(presence.online);
        }
        let most = 2 * began.elapsed().as_secs() as usize;
        assert!(told <= most, "{told} frames for {flaps} sessions");
        assert_eq!(last, Some(false), "{told} frames for {flaps} sessions");
    }
    assert!(flaps >= 2, "{flaps} sessions in four seconds do not come and go");
}

#[tokio::test]
async fn a_profile_changes_ten_times_a_minute() {
    let server = Server::start();
    let mallory = api(&server, "mallory");
    let (mut changed, mut limited) = (0, 0);
    for n in 0..25 {
        match mallory.put("/v1/me", json!({"name": format!("name {n}")})).await {
            (200, _) => changed += 1,
            (429, error) => {
                assert_eq!(error["error"]["code"], "rate_limited", "{error}");
                assert!(error["error"]["retry_after_ms"].as_u64().is_some_and(|ms| ms > 0 && ms <= 6_000));
                limited += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    // One comes back every six seconds.
    assert!((10..=14).contains(&changed) && limited >= 11, "{changed} changed, {limited} limited");
    let (_, me) = mallory.get("/v1/me").await;
    let same = mallory.put("/v1/me", json!({"name": me["name"]})).await;
    assert_eq!(same.0, 200, "what changes nothing is no change: {same:?}");
    assert_eq!(api(&server, "alice").put("/v1/me", json!({"name": "Alice"})).await.0, 200);
}

#[tokio::test]
async fn all_requests_of_a_user_have_one_budget() {
    let server = Server::with(&[
        ("BLUETICK_LIMITS__REQUEST_UNITS_PER_SECOND", "400"),
        ("BLUETICK_LIMITS__REQUEST_BURST_UNITS", "4000"),
    ]);
    let mut mallory = server.connect("mallory", "phone").await;
    mallory.send("bob", "hi").await;
    for n in 0..100 {
        mallory.say(history("bob~mallory", n)).await;
    }
    let (mut answered, mut limited) = (0, 0);
    while answered + limited < 100 {
        match mallory.wait(Some).await {
            ServerFrame::History(_) => answered += 1,
            ServerFrame::Error(e) => {
                assert_eq!(e.error.code, ErrorCode::RateLimited);
                assert!(e.reference.is_some() && e.error.retry_after_ms.is_some_and(|ms| ms > 0));
                limited += 1;
            }
            _ => {}
        }
    }
    assert!(answered < 60 && limited > 40, "{answered} answered, {limited} limited");
    // The same budget over HTTP, whatever connection and path.
    let over_http: Api = api(&server, "mallory");
    let mut statuses = Vec::new();
    for _ in 0..60 {
        statuses.push(over_http.get("/v1/inbox?limit=100").await.0);
    }
    assert!(statuses.iter().filter(|&&status| status == 429).count() > 20, "{statuses:?}");
    // Sends have their own, and everybody else theirs.
    mallory.send("bob", "the connection lives").await;
    assert_eq!(api(&server, "bob").get("/v1/inbox").await.0, 200);
    let mut bob = server.connect("bob", "phone").await;
    assert_eq!(bob.history("bob~mallory", None, None, 200).await.messages.len(), 2);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(mallory.status("bob~mallory").await.last_seq, 2, "after a while there is room again");
}

#[tokio::test]
async fn acks_wait_for_their_budget_and_are_never_refused() {
    let server = Server::with(&[
        ("BLUETICK_LIMITS__SENDS_PER_SECOND", "0"),
        ("BLUETICK_LIMITS__REQUEST_UNITS_PER_SECOND", "50"),
        ("BLUETICK_LIMITS__REQUEST_BURST_UNITS", "3000"),
    ]);
    const MESSAGES: u64 = 1_000;
    let mut alice = server.connect("alice", "phone").await;
    for n in 0..MESSAGES {
        alice.say(ClientFrame::Send(send_frame("bob", &format!("m{n}")))).await;
    }
    for _ in 0..MESSAGES {
        alice.wait(|f| matches!(f, ServerFrame::Sent(_)).then_some(())).await;
    }
    let mut bob = server.open("bob", "phone", None).await;
    // Uses up the budget.
    for n in 0..20 {
        bob.say(history("alice~bob", n)).await;
    }
    let (mut messages, mut done) = (0, 0);
    while messages < MESSAGES || done < MESSAGES {
        match bob.wait(Some).await {
            ServerFrame::Message(message) => {
                messages += 1;
                assert_eq!(message.seq, messages);
                let reference = Some(Ref::Text(format!("ack {}", message.seq)));
                let (conversation_id, seq) = (message.conversation_id, message.seq);
                bob.say(ClientFrame::Ack(Receipt { reference, conversation_id, seq })).await;
            }
            ServerFrame::Done(_) => done += 1,
            ServerFrame::Error(e) => {
                assert!(!matches!(&e.reference, Some(Ref::Text(_))), "an ack was refused: {:?}", e.error);
            }
            _ => {}
        }
    }
    server.pending_becomes("bob", &[]).await;
}

#[tokio::test]
async fn many_http_connections_of_one_user_are_one_user() {
    // 50 pages at once and 20 a second: a server without the limit serves many more.
    const PAGE_UNITS: u64 = 120;
    const UNITS_PER_SECOND: u64 = 2_400;
    const BURST_UNITS: u64 = 6_000;
    const CONNECTIONS: u64 = 32;
    let server = Server::with(&[
        ("BLUETICK_LIMITS__REQUEST_UNITS_PER_SECOND", &UNITS_PER_SECOND.to_string()),
        ("BLUETICK_LIMITS__REQUEST_BURST_UNITS", &BURST_UNITS.to_string()),
    ]);
    let mut bob = server.connect("bob", "phone").await;
    let mut alice = server.connect("alice", "phone").await;
    for n in 0..100 {
        alice.send("mallory", &format!("{n} {}", "x".repeat(400))).await;
    }
    let token = server.token("mallory");
    let path = server.http("/v1/conversations/alice~mallory/messages?limit=100");
    let began = Instant::now();
    let flood = (0..CONNECTIONS).map(|_| {
        let (client, path, token) = (crate::http::client(), path.clone(), token.clone());
        tokio::spawn(async move {
            let (mut pages, mut limited) = (0u64, 0u64);
            while began.elapsed() < Duration::from_secs(5) {
                let answer = client.get(&path).bearer_auth(&token).send().await.unwrap();
                match answer.status().as_u16() {
                    200 => pages += 1,
                    429 => limited += 1,
                    503 => {}
                    other => panic!("{other}"),
                }
                let _ = answer.bytes().await;
            }
            (pages, limited)
        })
    });
    let flood: Vec<_> = flood.collect();
    let mut slowest = Duration::ZERO;
    while began.elapsed() < Duration::from_secs(5) {
        let asked = Instant::now();
        alice.send("bob", "while mallory floods").await;
        slowest = slowest.max(asked.elapsed());
        let message = bob.message().await;
        bob.ack(&message).await;
        // Within Alice's own budget.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (mut pages, mut limited) = (0, 0);
    for task in flood {
        let (answered, refused) = task.await.unwrap();
        (pages, limited) = (pages + answered, limited + refused);
    }
    println!("{pages} pages, {limited} refused, slowest send {slowest:?}");
    let came_back = UNITS_PER_SECOND * began.elapsed().as_micros() as u64 / 1_000_000;
    let most = (BURST_UNITS + came_back) / PAGE_UNITS;
    // Gateways tell each other afterwards: on each, a twentieth of the burst passes before it is
    // told, and a request on each connection may pass meanwhile.
    let untold = match server.deployment.pids().len() {
        1 => 0,
        _ => CONNECTIONS + 2 * (BURST_UNITS / 20).div_ceil(PAGE_UNITS),
    };
    assert!(pages <= most + untold, "{pages} pages, where {most} were allowed and {untold} may be untold");
    assert!(pages >= BURST_UNITS / PAGE_UNITS, "the burst passes: {pages}");
    assert!(limited > 0, "nothing was refused");
}
