//! Processes of a cluster crash, hang, or lose each other while users write. Afterwards every user has
//! every confirmed message, once and in order, and ticks and counts are right.

use std::time::Duration;

use bluetick_protocol::*;
use tokio::time::{Instant, sleep};

use crate::{
    deployment::Cluster,
    harness::*,
    node::Node,
    own_redis::OwnRedis,
    proxy::{Proxy, ProxyMode},
    scene::{FaultScenario, prepared},
    tables::service,
};

#[tokio::test(flavor = "multi_thread")]
async fn an_app_server_that_is_killed_under_load_loses_nothing() {
    let mut scene = FaultScenario::begin(prepared(), 1).await;
    scene.cluster().apps[0].kill();
    scene.goes_on("with one app server").await;
    scene.cluster().apps[0].restart();
    scene.goes_on("with both").await;
    scene.cluster().apps[1].kill();
    scene.goes_on("with the other one").await;
    scene.cluster().apps[1].restart();
    scene.end("killed app servers").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_killed_under_load_loses_nothing() {
    let mut scene = FaultScenario::begin(prepared(), 2).await;
    scene.cluster().gateways[0].kill();
    scene.goes_on("with one gateway").await;
    scene.cluster().gateways[0].restart();
    scene.goes_on("with both").await;
    scene.cluster().gateways[1].kill();
    scene.goes_on("with the other one").await;
    scene.cluster().gateways[1].restart();
    scene.end("killed gateways").await;
}

/// Longer than the TTL of an entry in the session store (4 s).
const PAUSE: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_stands_still_for_ten_seconds_loses_nothing() {
    let mut scene = FaultScenario::begin(prepared(), 3).await;
    scene.cluster().gateways[0].pause();
    let until = Instant::now() + PAUSE;
    scene.goes_on("with one gateway standing still").await;
    tokio::time::sleep_until(until).await;
    scene.cluster().gateways[0].resume();
    scene.goes_on("with both").await;
    scene.end("a gateway's pause").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_server_that_stands_still_for_ten_seconds_loses_nothing() {
    let mut scene = FaultScenario::begin(prepared(), 4).await;
    scene.cluster().apps[0].pause();
    let until = Instant::now() + PAUSE;
    scene.goes_on("with one app server standing still").await;
    tokio::time::sleep_until(until).await;
    scene.cluster().apps[0].resume();
    scene.goes_on("with both").await;
    scene.end("an app server's pause").await;
}

async fn with_own_redis(seed: u64) -> (FaultScenario, OwnRedis) {
    let redis = OwnRedis::start();
    let mut server = prepared();
    server.set("BLUETICK_REDIS__URLS", &redis.url());
    (FaultScenario::begin(server, seed).await, redis)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_flushed_or_comes_back_empty_loses_nothing() {
    let (mut scene, mut redis) = with_own_redis(5).await;
    for _ in 0..3 {
        redis.flush();
        scene.goes_on("after a flush").await;
    }
    redis.kill();
    scene.goes_on("without Redis").await;
    redis_is_named_as_down(&mut scene);
    redis.restart();
    scene.goes_on("with an empty one").await;
    // Seqs were counted in it. Whatever it hands out now must not be used a second time.
    scene.end("a Redis that forgot everything").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_stands_still_loses_nothing() {
    let (mut scene, redis) = with_own_redis(6).await;
    redis.pause();
    redis_is_named_as_down(&mut scene);
    scene.goes_on("with Redis standing still").await;
    // Longer than the TTL of an entry (4 s): sessions register anew and find the rows that nobody could
    // tell them of. After a shorter pause they find them with their next poll.
    sleep(Duration::from_secs(5)).await;
    redis.resume();
    scene.goes_on("with Redis back").await;
    scene.end("Redis's pause").await;
}

/// Waits until both roles report that Redis is down. They still take messages.
fn redis_is_named_as_down(scene: &mut FaultScenario) {
    let Cluster { apps, gateways, .. } = scene.cluster();
    for node in [&apps[0], &gateways[0]] {
        node.wait_for_readiness(|status, said| {
            let degraded = said["store"]["degraded"].as_str().unwrap_or_default();
            status == 200 && degraded.contains("Redis")
        });
        let (healthy, text) = node.doctor();
        assert!(healthy && text.contains("warn") && text.contains("Redis"), "{}: {text}", node.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dynamodb_that_cannot_be_reached_puts_people_off_and_loses_nothing() {
    let target = service("BLUETICK_TEST_DYNAMODB");
    let proxy = Proxy::to(target.strip_prefix("http://").unwrap().to_owned());
    let mut server = prepared();
    server.set("BLUETICK_DYNAMODB__ENDPOINT", &format!("http://127.0.0.1:{}", proxy.port));
    let mut scene = FaultScenario::begin(server, 7).await;
    for wire in [ProxyMode::Refusing, ProxyMode::Swallowing] {
        let mut gina = scene.town.server.connect("gina", "phone").await;
        proxy.set(wire);
        sleep(Duration::from_millis(200)).await;
        let refused = gina.send_refused(send_frame("hugo", "is anybody there?")).await;
        assert_eq!(refused.code, ErrorCode::Unavailable, "{wire:?}");
        assert!(refused.retry_after_ms.is_some_and(|ms| ms > 0), "{wire:?}: {refused:?}");
        let app = &scene.cluster().apps[0];
        is_not_ready(app, "DynamoDB");
        let (healthy, text) = app.doctor();
        assert!(!healthy && text.contains("DynamoDB"), "{wire:?}: {text}");
        proxy.set(ProxyMode::Whole);
        scene.goes_on("with DynamoDB back").await;
        app_is_ready(&mut scene);
    }
    scene.end("DynamoDB out of reach").await;
}

/// Waits until a process refuses messages for a reason that names `part`.
fn is_not_ready(node: &Node, part: &str) {
    node.wait_for_readiness(|status, said| {
        status == 503 && said["reason"].as_str().unwrap_or_default().contains(part)
    });
}

fn app_is_ready(scene: &mut FaultScenario) {
    scene.cluster().apps.iter().for_each(|app| app.wait_until_ready());
}

/// A cluster whose processes call each other through proxies that can fail. The proxies of the app
/// servers come first.
async fn with_wires(seed: u64) -> (FaultScenario, Vec<Proxy>) {
    let mut server = prepared();
    let (made, wires) = std::sync::mpsc::channel();
    server.deployment.put_between(move |port| {
        let proxy = Proxy::to(format!("127.0.0.1:{port}"));
        let reached_by = proxy.port;
        made.send(proxy).unwrap();
        reached_by
    });
    let scene = FaultScenario::begin(server, seed).await;
    let wires = wires.try_iter().collect();
    (scene, wires)
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_that_lose_their_app_servers_put_people_off_and_lose_nothing() {
    let (mut scene, wires) = with_wires(8).await;
    // One is out of reach: the other does it all.
    wires[0].set(ProxyMode::Swallowing);
    scene.goes_on("with one app server out of reach").await;
    wires[0].set(ProxyMode::Whole);
    for wire in [ProxyMode::Refusing, ProxyMode::Swallowing] {
        let mut gina = scene.town.server.connect("gina", "phone").await;
        wires[..2].iter().for_each(|to_app| to_app.set(wire));
        sleep(Duration::from_millis(200)).await;
        let refused = gina.send_refused(send_frame("hugo", "is anybody there?")).await;
        assert_eq!(refused.code, ErrorCode::Unavailable, "{wire:?}");
        assert!(refused.retry_after_ms.is_some_and(|ms| ms > 0), "{wire:?}: {refused:?}");
        let gateway = &scene.cluster().gateways[0];
        is_not_ready(gateway, "app server");
        let (healthy, text) = gateway.doctor();
        assert!(!healthy && text.contains("app server"), "{wire:?}: {text}");
        wires[..2].iter().for_each(|to_app| to_app.set(ProxyMode::Whole));
        scene.goes_on("with the app servers back").await;
    }
    scene.end("gateways without app servers").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn app_servers_that_lose_their_gateways_lose_nothing() {
    let (mut scene, wires) = with_wires(9).await;
    // Messages are taken and queued as for offline users, although their receivers are connected.
    for wire in [ProxyMode::Swallowing, ProxyMode::Refusing] {
        wires[2..].iter().for_each(|to_gateway| to_gateway.set(wire));
        scene.goes_on("with no way to the gateways").await;
        wires[2..].iter().for_each(|to_gateway| to_gateway.set(ProxyMode::Whole));
        scene.goes_on("with the gateways back").await;
    }
    // No process reaches any other.
    wires.iter().for_each(|all| all.set(ProxyMode::Swallowing));
    scene.cluster().gateways.iter().for_each(|gateway| is_not_ready(gateway, "app server"));
    wires.iter().for_each(|all| all.set(ProxyMode::Whole));
    scene.goes_on("with all wires whole").await;
    scene.end("a partition").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_server_that_comes_later_is_found() {
    let mut server = Server::start();
    let data = server.data();
    let cluster = server.deployment.cluster();
    cluster.add_app_server(&data);
    cluster.gateways.iter().for_each(|gateway| gateway.wait_for_metric("bluetick_app_servers", 3));
    cluster.apps[..2].iter_mut().for_each(|app| app.kill());
    let mut alice = server.connect("alice", "phone").await;
    assert_eq!(alice.send("bob", "who does this?").await.seq, 1);
}
