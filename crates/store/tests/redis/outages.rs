//! Redis that is down, silent, restarted empty, without its scripts, or another one than before:
//! errors come fast, and the same client goes on by itself.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bluetick_protocol::{DeviceId, SessionId};
use bluetick_store::{
    Clock, Redis, RedisConfig, RedisMode, RedisSessions, SessionEntry, SessionStore, StoreError, SystemClock,
};

use crate::{
    conversation, servers,
    servers::{RedisCluster, RedisServer, eventually, free_port},
    user,
};

const TTL: Duration = Duration::from_secs(30);

async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let begun = Instant::now();
    (work.await, begun.elapsed())
}

async fn back(redis: &Redis) {
    eventually("redis is back", async || redis.ping().await.ok()).await;
}

/// Calls fail, and once that is known they do so without waiting.
async fn fails_at_once(redis: &Redis) {
    for _ in 0..20 {
        let (result, took) = timed(redis.ping()).await;
        assert!(matches!(result, Err(StoreError::Unavailable { .. })), "{result:?}");
        assert!(took < Duration::from_millis(100), "it took {took:?} to fail");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_outlives_a_server_that_is_not_there_yet() {
    let port = free_port();
    let redis = servers::connect(&format!("redis://127.0.0.1:{port}"));
    let error = redis.ping().await.unwrap_err().to_string();
    assert!(error.contains(&format!("Redis at 127.0.0.1:{port}")), "{error}");
    fails_at_once(&redis).await;
    let server = RedisServer::start_at(port, &[]);
    let (_, took) = timed(back(&redis)).await;
    assert!(took < Duration::from_secs(3), "{took:?}");
    drop(server);
    eventually("it is noticed", async || redis.ping().await.err()).await;
    fails_at_once(&redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_empties_it_and_nothing_else() {
    let server = RedisServer::start(&[]);
    let (port, clock) = (server.port, Arc::new(SystemClock));
    let redis = servers::connect(&server.url());
    let sessions = RedisSessions::new(redis.clone(), clock.clone());
    let bob = SessionEntry {
        user_id: user("bob"),
        device: DeviceId::new("phone").unwrap(),
        session_id: SessionId(1),
        gateway: "g".into(),
        connected_at: clock.now_ms(),
    };
    let id = conversation("alice", "bob");
    sessions.register(&bob, TTL, 8).await.unwrap();
    redis.raise_seq(&id, 5).await.unwrap();
    assert_eq!(redis.take_seq(&id).await.unwrap(), Some(6));
    server.kill();
    let _server = RedisServer::start_at(port, &[]);
    back(&redis).await;
    assert_eq!(redis.take_seq(&id).await.unwrap(), None, "a counter that was lost does not begin at 1");
    assert_eq!(sessions.lookup(&bob.user_id).await.unwrap(), []);
    assert_eq!(sessions.refresh(&[(bob.user_id.clone(), bob.session_id)], TTL).await.unwrap(), [false]);
    assert_eq!(sessions.register(&bob, TTL, 8).await.unwrap(), []);
    assert_eq!(sessions.lookup(&bob.user_id).await.unwrap(), [bob]);
    redis.raise_seq(&id, 6).await.unwrap();
    assert_eq!(redis.take_seq(&id).await.unwrap(), Some(7));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_were_lost_are_sent_again() {
    let server = RedisServer::start(&[]);
    let redis = servers::connect(&server.url());
    let sessions = RedisSessions::new(redis.clone(), Arc::new(SystemClock));
    let id = conversation("alice", "bob");
    redis.raise_seq(&id, 1).await.unwrap();
    let many: Vec<_> = (0..50).map(|n| (user(&format!("user{n}")), SessionId(n))).collect();
    for round in 0..3 {
        server.cli(&["SCRIPT", "FLUSH"]);
        assert_eq!(redis.take_seq(&id).await.unwrap(), Some(2 + round));
        // In the middle of a batch, too.
        assert_eq!(sessions.refresh(&many, TTL).await.unwrap(), vec![false; 50]);
    }
    server.cli(&["FLUSHALL"]);
    assert_eq!(redis.take_seq(&id).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_costs_one_deadline() {
    let server = RedisServer::start(&[]);
    let redis = servers::connect(&server.url());
    redis.ping().await.unwrap();
    server.pause();
    let (result, took) = timed(redis.ping()).await;
    assert!(result.is_err());
    assert!((400..900).contains(&took.as_millis()), "{took:?}");
    // Whoever comes while the new connection is tried waits for it, as long as its deadline is.
    eventually("it is known to be down", async || {
        let (result, took) = timed(redis.ping()).await;
        assert!(took < Duration::from_millis(900), "{took:?}");
        (result.is_err() && took < Duration::from_millis(50)).then_some(())
    })
    .await;
    fails_at_once(&redis).await;
    server.resume();
    let (_, took) = timed(back(&redis)).await;
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_said_and_not_shown() {
    let server = RedisServer::start(&["--requirepass", "right"]);
    let with = |password: &str| servers::connect(&format!("redis://:{password}@127.0.0.1:{}", server.port));
    with("right").ping().await.unwrap();
    let error = with("hunter2").ping().await.unwrap_err().to_string();
    assert!(!error.contains("hunter2"), "{error}");
    assert!(error.contains("WRONGPASS") || error.to_lowercase().contains("password"), "{error}");
    assert!(servers::connect(&server.url()).ping().await.is_err(), "and none at all is not enough");
}

/// The certificates that are trusted are read from the environment, so the half that trusts ours is
/// a process of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rediss_is_tls() {
    const TRUSTING: &str = "BLUETICK_TEST_REDISS";
    if let Ok(url) = std::env::var(TRUSTING) {
        return servers::connect(&url).ping().await.unwrap();
    }
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| {
        std::fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name).to_str().unwrap().to_owned()
    };
    let (cert, key) = (file("cert.pem", made.cert.pem()), file("key.pem", made.signing_key.serialize_pem()));
    let port = free_port();
    let _server = RedisServer::start(&[
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &cert,
        "--tls-auth-clients",
        "no",
    ]);
    let url = format!("rediss://localhost:{port}");
    let error = servers::connect(&url).ping().await.unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
    let trusting = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "outages::rediss_is_tls"])
        .env(TRUSTING, &url)
        .env("SSL_CERT_FILE", &cert)
        .output()
        .unwrap();
    assert!(trusting.status.success(), "{}", String::from_utf8_lossy(&trusting.stdout));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_became_a_replica_is_left() {
    let (server, other) = (RedisServer::start(&[]), RedisServer::start(&[]));
    let redis = servers::connect(&server.url());
    let id = conversation("alice", "bob");
    redis.raise_seq(&id, 1).await.unwrap();
    server.cli(&["REPLICAOF", "127.0.0.1", &other.port.to_string()]);
    let error = redis.raise_seq(&id, 2).await.unwrap_err().to_string();
    assert!(error.to_uppercase().contains("READ"), "{error}");
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    eventually("writes go through again", async || redis.raise_seq(&id, 2).await.ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_lead_to_the_new_master() {
    let master = RedisServer::start(&["--requirepass", "secret", "--masterauth", "secret"]);
    let port = master.port.to_string();
    let replica = RedisServer::start(&[
        "--requirepass",
        "secret",
        "--masterauth",
        "secret",
        "--replicaof",
        "127.0.0.1",
        &port,
        "--repl-diskless-sync-delay",
        "0",
    ]);
    let dir = tempfile::tempdir().unwrap();
    let conf = dir.path().join("sentinel.conf");
    let text = format!(
        "sentinel monitor main 127.0.0.1 {port} 1\nsentinel auth-pass main secret\n\
         sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n"
    );
    std::fs::write(&conf, text).unwrap();
    let sentinel = RedisServer::start(&[conf.to_str().unwrap(), "--sentinel"]);
    let with_password = |port: u16| format!("redis://default:secret@127.0.0.1:{port}");
    eventually("the replica follows", async || {
        let follows = servers::cli(&with_password(replica.port), &["INFO", "replication"])
            .contains("master_link_status:up");
        let known = sentinel.cli(&["SENTINEL", "MASTER", "main"]).contains("num-slaves\n1");
        (follows && known).then_some(())
    })
    .await;

    // A Sentinel that is gone is passed over.
    let redis = Redis::new(RedisConfig {
        urls: vec![with_password(free_port()), with_password(sentinel.port)],
        mode: RedisMode::Sentinel { master: "main".into() },
        prefix: servers::fresh_prefix(),
        ..RedisConfig::default()
    })
    .unwrap();
    let id = conversation("alice", "bob");
    redis.raise_seq(&id, 10).await.unwrap();
    assert_eq!(redis.take_seq(&id).await.unwrap(), Some(11));
    eventually("the replica has it", async || {
        (servers::cli(&with_password(replica.port), &["DBSIZE"]) == "1").then_some(())
    })
    .await;
    master.kill();
    let seq = eventually("the new master answers", async || redis.take_seq(&id).await.ok()).await;
    assert!(seq.is_none_or(|seq| seq > 10), "{seq:?}");
    assert!(servers::cli(&with_password(replica.port), &["ROLE"]).starts_with("master"));

    let unknown = Redis::new(RedisConfig {
        urls: vec![with_password(sentinel.port)],
        mode: RedisMode::Sentinel { master: "other".into() },
        ..RedisConfig::default()
    });
    let error = unknown.unwrap().ping().await.unwrap_err().to_string();
    assert!(error.contains("no Sentinel knows a master of this name"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_is_down_takes_no_other_along() {
    let mut cluster = RedisCluster::start();
    let redis = cluster.connect();
    let ids: Vec<_> = (0..30).map(|n| conversation("alice", &format!("user{n}"))).collect();
    for id in &ids {
        redis.raise_seq(id, 1).await.unwrap();
    }
    let killed = cluster.nodes.remove(0);
    let port = killed.port;
    let dir = killed.kill();
    let (mut served, mut failed) = (0, 0);
    for id in &ids {
        let (result, took) = timed(redis.take_seq(id)).await;
        assert!(took < Duration::from_millis(900), "{took:?}");
        match result {
            Ok(seq) => served += usize::from(seq.is_some()),
            Err(_) => failed += 1,
        }
    }
    assert!(served >= 10 && failed >= 3, "{served} served, {failed} failed");
    cluster.nodes.push(RedisServer::start_in(dir, port, RedisCluster::OPTIONS));
    for id in &ids {
        eventually("the shard is back", async || redis.take_seq(id).await.ok()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_gone_fails_fast() {
    let urls: Vec<_> = (0..3).map(|_| format!("redis://127.0.0.1:{}", free_port())).collect();
    let config = RedisConfig { urls, mode: RedisMode::Cluster, ..RedisConfig::default() };
    let redis = Redis::new(config).unwrap();
    eventually("it is known to be down", async || {
        let (result, took) = timed(redis.ping()).await;
        (result.is_err() && took < Duration::from_millis(50)).then_some(())
    })
    .await;
    fails_at_once(&redis).await;
}
