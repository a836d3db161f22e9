//! Ten thousand messages to people who are offline while their provider is down: sends go on as before, memory stays
//! bounded, and afterwards every phone has the last of its conversation. The figures are printed, not judged;
//! `BLUETICK_TEST_OUTAGE_SECS=60` makes the outage as long.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bluetick_client::RawConnection;
use bluetick_protocol::*;
use serde_json::json;

use crate::{
    harness::*,
    push::{PushScenario, recorder::RecordedRequest},
};

const PEOPLE: usize = 1_000;
const ROUNDS: usize = 10;
const SENDERS: usize = 20;

/// What one sender's messages waited for, from the send to its `sent`.
async fn send_all(url: String, token: String, to: Vec<String>, phase: &'static str) -> Vec<Duration> {
    let mut wire = RawConnection::connect(&url).await.unwrap();
    wire.hello(&token, &DeviceId::new("phone").unwrap(), None).await.unwrap();
    let mut took = Vec::with_capacity(to.len() * ROUNDS);
    for round in 1..=ROUNDS {
        for name in &to {
            let began = Instant::now();
            wire.send_frame(&ClientFrame::Send(send_frame(name, &format!("{phase} {round}")))).await.unwrap();
            let sent = |frame: ServerFrame| match frame {
                ServerFrame::Sent(_) => Some(()),
                ServerFrame::Error(e) => panic!("{:?}", e.error),
                _ => None,
            };
            wire.next_where(SOON * 4, sent).await.unwrap();
            took.push(began.elapsed());
        }
    }
    took
}

/// All of them at once, each to people of their own. Returns how long a send took: the median and the 99th percentile.
async fn send_everything(server: &Server, phase: &'static str) -> (Duration, Duration) {
    let share = PEOPLE / SENDERS;
    let sending: Vec<_> = (0..SENDERS)
        .map(|sender| {
            let to = (sender * share..(sender + 1) * share).map(|n| format!("person{n}")).collect();
            let token = server.mint(&format!("sender{sender}"));
            tokio::spawn(send_all(server.url(), token, to, phase))
        })
        .collect();
    let mut took = Vec::new();
    for sender in sending {
        took.extend(sender.await.unwrap());
    }
    took.sort();
    (took[took.len() / 2], took[took.len() * 99 / 100])
}

fn token_of(person: usize) -> String {
    format!("{person:064x}")
}

/// The last that each phone was shown.
fn last_shown(requests: &[RecordedRequest]) -> BTreeMap<String, String> {
    let body =
        |request: &RecordedRequest| request.json()["aps"]["alert"]["body"].as_str().unwrap_or("").to_owned();
    requests.iter().map(|request| (request.path.clone(), body(request))).collect()
}

async fn wait_until_shown(scene: &PushScenario, what: &str) -> Vec<RecordedRequest> {
    let until = Instant::now() + Duration::from_secs(240);
    loop {
        let requests = scene.provider.requests("/3/device/");
        let shown = last_shown(&requests);
        if shown.len() == PEOPLE && shown.values().all(|last| last == what) {
            return requests;
        }
        let lacking = PEOPLE - shown.values().filter(|last| *last == what).count();
        assert!(Instant::now() < until, "{lacking} phones do not show {what:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_provider_costs_senders_nothing_and_memory_little() {
    let scene = PushScenario::start(&[("BLUETICK_LIMITS__SENDS_PER_SECOND", "0")]).await;
    let server = &scene.server;
    server.token("sender0");
    let http = crate::http::client();
    for person in 0..PEOPLE {
        let registration = json!({"provider": "apns", "token": token_of(person)});
        let request = http
            .put(server.http("/v1/devices/phone/push"))
            .bearer_auth(server.mint(&format!("person{person}")))
            .header("content-type", "application/json")
            .body(registration.to_string());
        assert_eq!(request.send().await.unwrap().status().as_u16(), 200);
    }
    let with = send_everything(server, "up").await;
    let up = wait_until_shown(&scene, &format!("up {ROUNDS}")).await.len();
    let before = server.rss();

    scene.provider.forget();
    scene.provider.set_down(true);
    let began = Instant::now();
    let without = send_everything(server, "down").await;
    let least =
        std::env::var("BLUETICK_TEST_OUTAGE_SECS").ok().and_then(|secs| secs.parse().ok()).unwrap_or(3);
    tokio::time::sleep(Duration::from_secs(least).saturating_sub(began.elapsed())).await;
    let grown = server.rss().saturating_sub(before) >> 20;
    scene.provider.set_down(false);
    let after = wait_until_shown(&scene, &format!("down {ROUNDS}")).await.len();

    let messages = PEOPLE * ROUNDS;
    println!(
        "{messages} messages to {PEOPLE} people offline, {SENDERS} senders at once, one message each in flight"
    );
    println!("send p50 / p99 with the provider up: {:?} / {:?}; {up} notifications", with.0, with.1);
    println!(
        "send p50 / p99 while it was down:    {:?} / {:?}; {after} notifications after it",
        without.0, without.1
    );
    println!("the outage took {:?}; the server's memory grew by {grown} MiB", began.elapsed());
    assert!(grown < 64, "{grown} MiB more than before the outage");
    assert!(after < 2 * PEOPLE, "collapsed, not one by one: {after}");
}
