//! A gateway stands still (SIGSTOP) while somebody writes to people whose sessions it holds. Senders on another gateway
//! are delayed by the hedge at most, and nothing is lost.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bluetick_client::{Client, Event, Options};
use bluetick_protocol::*;
use tokio::time::{Instant, sleep};

use crate::{harness::*, rows::wait_for};

const DEVICES: usize = 8;
const ROUNDS: usize = 5;
const SENDS: usize = 10;
/// What the sender should see is less than 400 ms. A machine that runs other tests beside this one gets more time, but
/// much less than one hand-over deadline (2 s), which a sender waited for before, once for each session.
const P99_MAX: Duration = Duration::from_millis(1_200);

type ReceivedMessages = Arc<Mutex<Vec<(Seq, String)>>>;

/// One of Bob's devices, with the real client: it acks, and drops what it has seen.
fn device(server: &Server, url: &str, n: usize) -> (Client, ReceivedMessages) {
    let name = DeviceId::new(&format!("d{n}")).unwrap();
    let (client, mut hears) = Client::connect(Options::new(url, name, server.mint("bob")));
    let got = ReceivedMessages::default();
    let keeps = got.clone();
    tokio::spawn(async move {
        while let Some(event) = hears.next().await {
            if let Event::Message(message) = event {
                keeps.lock().unwrap().push((message.seq, message.body));
            }
        }
    });
    (client, got)
}

async fn all_are_registered(server: &Server) {
    let until = Instant::now() + SOON * 2;
    loop {
        let sessions = server.rows("sessions", "bob").await.len();
        if sessions == DEVICES {
            return;
        }
        assert!(Instant::now() < until, "{sessions} of {DEVICES} sessions are registered");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn senders_are_delayed_by_the_hedge_at_most_and_nothing_is_lost() {
    let mut server = Server::with(&[
        ("BLUETICK_LIMITS__SENDS_PER_SECOND", "0"),
        // Sessions that were taken for gone come back soon; the session store believes in them all the time.
        ("BLUETICK_SESSIONS__HEARTBEAT_SECS", "3"),
        ("BLUETICK_SESSIONS__RECONNECT_SPREAD_SECS", "0"),
    ]);
    let gateways = &server.deployment.cluster().gateways;
    let [near, far] = [0, 1].map(|n: usize| format!("ws://{}/v1/ws", gateways[n].address));
    let devices: Vec<_> = (0..DEVICES).map(|n| device(&server, &far, n)).collect();
    let (mut waits, mut bodies) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        all_are_registered(&server).await;
        let mut alice = Person::open(&near, &server.mint("alice"), "alice", "phone", None).await;
        alice.caught_up().await;
        server.deployment.cluster().gateways[1].pause();
        for n in 0..SENDS {
            let body = format!("{round}-{n}");
            let began = Instant::now();
            alice.send("bob", &body).await;
            waits.push(began.elapsed());
            bodies.push(body);
        }
        server.deployment.cluster().gateways[1].resume();
        alice.leave().await;
    }
    let expected: Vec<_> = (1..).zip(bodies).collect();
    for (n, (_client, got)) in devices.iter().enumerate() {
        let has = || got.lock().unwrap().len();
        wait_for(|| format!("d{n} has {} of {} messages", has(), expected.len()), || has() >= expected.len())
            .await;
    }
    // Nothing may come twice, or late.
    sleep(Duration::from_secs(1)).await;
    for (n, (_client, got)) in devices.iter().enumerate() {
        assert_eq!(*got.lock().unwrap(), expected, "d{n}: everything once, in order");
    }
    server.pending_becomes("bob", &[]).await;
    waits.sort();
    let at = |share: f64| waits[((waits.len() - 1) as f64 * share).round() as usize];
    let (p50, p99, longest) = (at(0.5), at(0.99), at(1.0));
    println!("{} sends with the gateway stopped: p50 {p50:?}, p99 {p99:?}, max {longest:?}", waits.len());
    assert!(p99 < P99_MAX, "p50 {p50:?}, p99 {p99:?}, max {longest:?}");
}
