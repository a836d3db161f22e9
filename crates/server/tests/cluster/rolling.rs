//! Rolling restarts: one process after the other is asked to end and started again, while people write.

use std::time::Duration;

use bluetick_protocol::*;
use tokio::{
    task::{JoinHandle, block_in_place},
    time::Instant,
};

use crate::{deployment::Cluster, harness::*, scene::FaultScenario};

const DRAIN: Duration = Duration::from_secs(4);
const IDLE: usize = 24;

/// Somebody who is connected to one gateway and says nothing. Gives when they were told to go, and what.
fn idle(url: String, token: String, name: String) -> JoinHandle<(Instant, Bye)> {
    tokio::spawn(async move {
        let mut person = Person::open(&url, &token, &name, "phone", None).await;
        let bye = loop {
            // Nothing else need come for as long as the test lasts.
            match person.wire.next_frame(SOON * 4).await.unwrap() {
                ServerFrame::Bye(bye) => break bye,
                _ => continue,
            }
        };
        (Instant::now(), bye)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_that_are_restarted_one_by_one_let_their_sessions_go_in_a_stream() {
    let server = Server::prepared(&[
        ("BLUETICK_LIMITS__SENDS_PER_SECOND", "0"),
        ("BLUETICK_CLUSTER__DRAIN_SECS", "4"),
        ("BLUETICK_SESSIONS__RECONNECT_SPREAD_SECS", "2"),
    ]);
    let mut scene = FaultScenario::begin(server, 10).await;
    for n in 0..2 {
        let url = format!("ws://{}/v1/ws", scene.cluster().gateways[n].address);
        let names: Vec<_> = (0..IDLE).map(|i| format!("idle-{n}-{i}")).collect();
        let server = &scene.town.server;
        let idlers: Vec<_> =
            names.iter().map(|name| idle(url.clone(), server.mint(name), name.clone())).collect();
        all_are_here(server, &names).await;
        let began = Instant::now();
        let code = block_in_place(|| scene.cluster().gateways[n].terminate());
        assert_eq!(code, Some(0));
        let mut told = Vec::new();
        for idler in idlers {
            let (at, bye) = idler.await.unwrap();
            assert_eq!(bye.code, ErrorCode::ShuttingDown);
            told.push((at - began, bye.reconnect_after_ms));
        }
        is_a_stream(told);
        scene.cluster().gateways[n].restart();
        scene.goes_on("with the gateway back").await;
    }
    scene.end("gateways that were restarted one by one").await;
}

async fn all_are_here(server: &Server, names: &[String]) {
    for name in names {
        let until = Instant::now() + SOON;
        while server.rows("sessions", name).await.is_empty() {
            assert!(Instant::now() < until, "{name} is not registered");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Never all at once: in no quarter of the time do more than half go, and each is told a time of its own to come back.
fn is_a_stream(mut told: Vec<(Duration, u64)>) {
    told.sort_unstable();
    let quarter = DRAIN / 4;
    for (at, _) in &told {
        let within = told.iter().filter(|(other, _)| *other >= *at && *other < *at + quarter).count();
        assert!(within <= IDLE / 2, "{within} of {IDLE} went within {quarter:?}: {told:?}");
    }
    let (first, last) = (told[0].0, told[IDLE - 1].0);
    assert!(last - first >= DRAIN / 2, "all went between {first:?} and {last:?}");
    assert!(last <= DRAIN + Duration::from_secs(3), "the last went after {last:?}");
    let mut waits: Vec<u64> = told.iter().map(|(_, wait)| *wait).collect();
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() > IDLE / 2, "they come back at moments of their own: {waits:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn app_servers_that_are_restarted_one_by_one_are_not_noticed() {
    let mut server = Server::with(&[("BLUETICK_LIMITS__SENDS_PER_SECOND", "0")]);
    let mut alice = server.connect("alice", "phone").await;
    let mut bob = server.connect("bob", "phone").await;
    // Each send is confirmed, none is put off: `send` fails on any error.
    let writing = tokio::spawn(async move {
        for n in 0..250 {
            alice.send("bob", &format!("{n}")).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    for n in 0..2 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        block_in_place(|| {
            let Cluster { apps, .. } = server.deployment.cluster();
            assert_eq!(apps[n].terminate(), Some(0));
            apps[n].restart();
        });
    }
    for n in 0..250 {
        let message = bob.message().await;
        assert_eq!(message.body, n.to_string());
        bob.ack(&message).await;
    }
    writing.await.unwrap();
}
