//! Seqs, the cache of blocks, the directory, rate limits, and flushes.

use std::{sync::Arc, time::Duration};

use bluetick_protocol::{DeviceId, SessionId};
use bluetick_store::{
    Clock, Directory, ManualClock, NodeRole, Redis, RedisConfig, RedisDirectory, RedisSessions, SessionEntry,
    SessionStore, TokenBucket,
};

use crate::{
    conversation, on_both, servers,
    servers::{RedisCluster, RedisServer},
    user,
};

on_both! {
    a_seq_is_handed_out_once
    a_counter_that_is_missing_is_not_begun
    a_counter_is_raised_and_never_lowered
    a_flag_is_filled_once_and_changed_in_two_steps
    two_changes_at_once_leave_it_to_the_table
    a_bucket_is_one_for_all_clients
    several_buckets_are_taken_from_together_or_not_at_all
    what_was_spent_is_owed_up_to_a_full_bucket
    nodes_are_listed_until_they_expire
    many_sessions_are_refreshed_together
}

async fn a_seq_is_handed_out_once(redis: Redis) {
    let id = conversation("alice", "bob");
    redis.raise_seq(&id, 0).await.unwrap();
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let (redis, id) = (redis.clone(), id.clone());
            tokio::spawn(async move {
                let mut taken = Vec::new();
                for _ in 0..25 {
                    taken.extend(redis.take_seqs(&id, 1 + n % 3).await.unwrap().unwrap());
                }
                assert!(taken.is_sorted());
                taken
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    all.sort();
    assert_eq!(all, (1..=all.len() as u64).collect::<Vec<_>>(), "each once, and none left out");
}

async fn a_counter_that_is_missing_is_not_begun(redis: Redis) {
    let id = conversation("alice", "bob");
    assert_eq!(redis.take_seq(&id).await.unwrap(), None);
    assert_eq!(redis.take_seqs(&id, 5).await.unwrap(), None, "asking does not make it");
    redis.raise_seq(&id, 41).await.unwrap();
    assert_eq!(redis.take_seq(&id).await.unwrap(), Some(42));
    assert_eq!(redis.take_seqs(&id, 3).await.unwrap(), Some(43..=45));
    assert!(redis.take_seqs(&id, 0).await.unwrap().unwrap().is_empty());
}

async fn a_counter_is_raised_and_never_lowered(redis: Redis) {
    let id = conversation("alice", "bob");
    redis.raise_seq(&id, 10).await.unwrap();
    redis.raise_seq(&id, 3).await.unwrap();
    assert_eq!(redis.take_seq(&id).await.unwrap(), Some(11));
    redis.raise_seq(&id, 1 << 40).await.unwrap();
    assert_eq!(redis.take_seq(&id).await.unwrap(), Some((1 << 40) + 1));
}

async fn a_flag_is_filled_once_and_changed_in_two_steps(redis: Redis) {
    let (a, b) = (user("alice"), user("bob"));
    assert_eq!(redis.block_cached(&a, &b).await.unwrap(), None);
    redis.block_fill(&a, &b, false).await.unwrap();
    redis.block_fill(&a, &b, true).await.unwrap();
    assert_eq!(redis.block_cached(&a, &b).await.unwrap(), Some(false), "what is known stays");

    redis.block_changing(&a, &b).await.unwrap();
    assert_eq!(redis.block_cached(&a, &b).await.unwrap(), None, "unknown while it is being changed");
    redis.block_fill(&a, &b, false).await.unwrap();
    assert_eq!(
        redis.block_cached(&a, &b).await.unwrap(),
        None,
        "what was read before the change is too late"
    );
    redis.block_changed(&a, &b, true).await.unwrap();
    redis.block_fill(&a, &b, false).await.unwrap();
    redis.block_fill(&b, &a, false).await.unwrap();
}

async fn two_changes_at_once_leave_it_to_the_table(redis: Redis) {
    let (a, b) = (user("alice"), user("bob"));
    redis.block_changing(&a, &b).await.unwrap();
    redis.block_changing(&a, &b).await.unwrap();
    redis.block_changed(&a, &b, true).await.unwrap();
    redis.block_changed(&a, &b, false).await.unwrap();
    assert_eq!(redis.block_cached(&a, &b).await.unwrap(), None, "who wrote last is not known here");
    redis.block_fill(&a, &b, true).await.unwrap();
    assert_eq!(redis.block_cached(&a, &b).await.unwrap(), None);
}

fn bucket(tokens: u32, burst: u32, take: u32) -> TokenBucket {
    TokenBucket { name: "", tokens, every_secs: 1, burst, take }
}

async fn several_buckets_are_taken_from_together_or_not_at_all(redis: Redis) {
    let alice = user("alice");
    let now = 1_760_000_000_000;
    let sends = bucket(10, 5, 1);
    let bytes = |take| TokenBucket { name: "bytes", ..bucket(1_000, 2_000, take) };
    let take = |bytes: TokenBucket, at: u64| {
        let (redis, alice) = (&redis, &alice);
        async move { redis.take_tokens(alice, &[sends, bytes], at).await.unwrap() }
    };
    assert_eq!(take(bytes(1_500), now).await, Ok(()));
    for _ in 0..20 {
        assert_eq!(take(bytes(1_500), now).await, Err(1_000), "a thousand bytes are missing");
    }
    for _ in 0..4 {
        assert_eq!(take(bytes(1), now).await, Ok(()), "a refusal takes from neither");
    }
    assert_eq!(take(bytes(1), now).await, Err(100), "the sends are used up");
    let often = TokenBucket { name: "profile", tokens: 10, every_secs: 60, burst: 1, take: 1 };
    assert_eq!(redis.take_tokens(&alice, &[often], now).await.unwrap(), Ok(()), "apart from the others");
    assert_eq!(redis.take_tokens(&alice, &[often], now).await.unwrap(), Err(6_000));
}

async fn what_was_spent_is_owed_up_to_a_full_bucket(redis: Redis) {
    let alice = user("alice");
    let now = 1_760_000_000_000;
    let charge = |take: u32, at: u64| {
        let (redis, alice) = (&redis, &alice);
        async move { redis.charge_tokens(alice, bucket(10, 5, take), at).await.unwrap() }
    };
    assert_eq!(charge(5, now).await, 0, "as much as it holds");
    assert_eq!(charge(3, now).await, 300, "a tenth of a second each");
    assert_eq!(charge(1, now).await, 400, "what is not there is taken all the same");
    assert_eq!(charge(1, now + 200).await, 300, "two of the four have come back");
    for _ in 0..20 {
        charge(4, now + 200).await;
    }
    assert_eq!(charge(1, now + 200).await, 500, "no more is owed than it holds");
    assert_eq!(charge(1, now + 700).await, 100);
    assert_eq!(charge(1, now + 10_000).await, 0);
    assert_eq!(redis.charge_tokens(&alice, bucket(0, 5, 9), now).await.unwrap(), 0, "no rate, no limit");
    // A node whose clock was an hour ahead locks nobody out for an hour.
    let carol = user("carol");
    assert_eq!(redis.charge_tokens(&carol, bucket(10, 5, 5), now + 3_600_000).await.unwrap(), 0);
    assert_eq!(redis.charge_tokens(&carol, bucket(10, 5, 1), now).await.unwrap(), 500);
}

async fn a_bucket_is_one_for_all_clients(redis: Redis) {
    let alice = user("alice");
    let now = 1_760_000_000_000;
    for _ in 0..5 {
        assert_eq!(redis.take_tokens(&alice, &[bucket(10, 5, 1)], now).await.unwrap(), Ok(()));
    }
    assert_eq!(
        redis.take_tokens(&alice, &[bucket(10, 5, 1)], now).await.unwrap(),
        Err(100),
        "a tenth of a second each"
    );
    assert_eq!(redis.take_tokens(&alice, &[bucket(10, 5, 3)], now).await.unwrap(), Err(300));
    assert_eq!(
        redis.take_tokens(&user("bob"), &[bucket(10, 5, 1)], now).await.unwrap(),
        Ok(()),
        "everybody has their own"
    );
    assert_eq!(redis.take_tokens(&alice, &[bucket(10, 5, 1)], now + 99).await.unwrap(), Err(1));
    assert_eq!(
        redis.take_tokens(&alice, &[bucket(10, 5, 1)], now + 100).await.unwrap(),
        Ok(()),
        "exactly as told"
    );
    assert_eq!(redis.take_tokens(&alice, &[bucket(10, 5, 1)], now + 100).await.unwrap(), Err(100));
    assert_eq!(
        redis.take_tokens(&alice, &[bucket(10, 5, 9)], now + 100).await.unwrap(),
        Err(500),
        "a full bucket's worth"
    );
    assert_eq!(redis.take_tokens(&alice, &[bucket(10, 5, 9)], now + 600).await.unwrap(), Ok(()));
    assert_eq!(
        redis.take_tokens(&alice, &[bucket(0, 5, 9)], now).await.unwrap(),
        Ok(()),
        "no rate, no limit"
    );
    // A node whose clock was an hour ahead locks nobody out for an hour.
    let carol = user("carol");
    assert_eq!(redis.take_tokens(&carol, &[bucket(10, 5, 5)], now + 3_600_000).await.unwrap(), Ok(()));
    assert_eq!(redis.take_tokens(&carol, &[bucket(10, 5, 1)], now).await.unwrap(), Err(100));
    // A rate that does not divide a second is kept on the whole.
    let dave = user("dave");
    let mut passed = Vec::new();
    for ms in 0..=1_000 {
        while redis.take_tokens(&dave, &[bucket(3, 4, 1)], now + ms).await.unwrap().is_ok() {
            passed.push(ms);
        }
    }
    assert_eq!(passed, [0, 0, 0, 0, 334, 667, 1_000], "four at once and three a second");
}

/// Two clients, as two nodes would have them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_share_a_bucket() {
    let config = RedisConfig { prefix: servers::fresh_prefix(), ..RedisConfig::new(servers::shared_url()) };
    let nodes = [Redis::new(config.clone()).unwrap(), Redis::new(config).unwrap()];
    let now = 1_760_000_000_000;
    let tasks: Vec<_> = (0..20)
        .map(|n| {
            let node = nodes[n % 2].clone();
            tokio::spawn(async move {
                node.take_tokens(&user("alice"), &[bucket(1, 7, 1)], now).await.unwrap().is_ok()
            })
        })
        .collect();
    let mut passed = 0;
    for task in tasks {
        passed += u32::from(task.await.unwrap());
    }
    assert_eq!(passed, 7);
}

/// Two gateways between which a user's requests alternate. Each lets a portion pass and charges it
/// afterwards, as gateways do with the budget of requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_that_spend_in_turn_get_one_rate() {
    const RATE: u32 = 1_000;
    const BURST: u32 = 2_000;
    const PORTION: u32 = 100;
    const SECS: u32 = 10;
    let config = RedisConfig { prefix: servers::fresh_prefix(), ..RedisConfig::new(servers::shared_url()) };
    let nodes = [Redis::new(config.clone()).unwrap(), Redis::new(config).unwrap()];
    let portion = TokenBucket { name: "requests", ..bucket(RATE, BURST, PORTION) };
    let (mut held_until, mut spent) = ([0; 2], 0);
    for ms in (0..u64::from(SECS) * 1_000).step_by(10) {
        for (node, held_until) in nodes.iter().zip(&mut held_until) {
            if *held_until <= ms {
                spent += PORTION;
                let wait = node.charge_tokens(&user("alice"), portion, 1_760_000_000_000 + ms).await.unwrap();
                *held_until = ms + wait;
            }
        }
    }
    let allowed = BURST + RATE * SECS;
    let fair = allowed - PORTION..=allowed + 2 * PORTION;
    assert!(fair.contains(&spent), "{spent} were spent, and one rate is {allowed}");
}

async fn nodes_are_listed_until_they_expire(redis: Redis) {
    let clock = Arc::new(ManualClock::new(1_760_000_000_000));
    let directory = RedisDirectory::new(redis, clock.clone());
    let ttl = Duration::from_secs(10);
    assert_eq!(directory.members(NodeRole::App).await.unwrap(), [] as [&str; 0]);
    directory.announce(NodeRole::App, "10.0.0.2:7000", ttl).await.unwrap();
    directory.announce(NodeRole::App, "10.0.0.1:7000", ttl).await.unwrap();
    directory.announce(NodeRole::Gateway, "10.0.0.3:7000", ttl).await.unwrap();
    assert_eq!(directory.members(NodeRole::App).await.unwrap(), ["10.0.0.1:7000", "10.0.0.2:7000"]);
    assert_eq!(directory.members(NodeRole::Gateway).await.unwrap(), ["10.0.0.3:7000"]);
    clock.advance(9_999);
    assert_eq!(directory.members(NodeRole::App).await.unwrap().len(), 2);
    directory.announce(NodeRole::App, "10.0.0.2:7000", ttl).await.unwrap();
    clock.advance(1);
    assert_eq!(directory.members(NodeRole::App).await.unwrap(), ["10.0.0.2:7000"], "the other one is silent");
    directory.withdraw(NodeRole::App, "10.0.0.2:7000").await.unwrap();
    directory.withdraw(NodeRole::App, "10.0.0.2:7000").await.unwrap();
    assert_eq!(directory.members(NodeRole::App).await.unwrap(), [] as [&str; 0]);
}

fn entry(n: u128, clock: &dyn Clock) -> SessionEntry {
    SessionEntry {
        user_id: user(&format!("user{n}")),
        device: DeviceId::new("phone").unwrap(),
        session_id: SessionId(n),
        gateway: "gateway one".into(),
        connected_at: clock.now_ms(),
    }
}

/// More than fit one batch, of users all over a cluster; and a watch that outlives the day its
/// index is kept for.
async fn many_sessions_are_refreshed_together(redis: Redis) {
    let clock = Arc::new(ManualClock::new(1_760_000_000_000));
    let sessions = RedisSessions::new(redis, clock.clone());
    let ttl = Duration::from_secs(3 * 3600);
    let mut all = Vec::new();
    for n in 0..2_500u128 {
        let entry = entry(n, &*clock);
        if n % 10 == 0 {
            sessions.register(&entry, ttl, 8).await.unwrap();
        }
        all.push((entry.user_id, entry.session_id));
    }
    let star = user("star");
    sessions.watch(&entry(10, &*clock), std::slice::from_ref(&star), ttl).await.unwrap();
    for _ in 0..15 {
        clock.advance(2 * 3600 * 1000);
        let there = sessions.refresh(&all, ttl).await.unwrap();
        assert_eq!(there, (0..2_500).map(|n| n % 10 == 0).collect::<Vec<_>>());
        sessions.watch(&entry(20, &*clock), std::slice::from_ref(&star), ttl).await.unwrap();
    }
    let watchers = sessions.watchers(&star).await.unwrap();
    assert_eq!(watchers.iter().map(|w| w.session_id.0).collect::<Vec<_>>(), [10, 20]);
    assert_eq!(&*watchers[0].gateway, "gateway one");
}

#[tokio::test]
async fn a_flush_takes_our_keys_only() {
    let server = RedisServer::start(&[]);
    let (ours, theirs) = (servers::connect(&server.url()), servers::connect(&server.url()));
    server.cli(&["SET", "somebody", "else"]);
    let id = conversation("alice", "bob");
    for redis in [&ours, &theirs] {
        for n in 0..1_500 {
            redis.raise_seq(&conversation("alice", &format!("user{n}")), 1).await.unwrap();
        }
        redis.raise_seq(&id, 7).await.unwrap();
    }
    RedisSessions::new(ours.clone(), Arc::new(ManualClock::new(1))).flush().await.unwrap();
    assert_eq!(ours.take_seq(&id).await.unwrap(), None);
    assert_eq!(theirs.take_seq(&id).await.unwrap(), Some(8));
    assert_eq!(server.cli(&["DBSIZE"]), "1502");
}

#[tokio::test]
async fn a_flush_reaches_every_master() {
    let cluster = RedisCluster::shared();
    let (ours, theirs) = (cluster.connect(), cluster.connect());
    let ids: Vec<_> = (0..60).map(|n| conversation("alice", &format!("user{n}"))).collect();
    for id in &ids {
        ours.raise_seq(id, 1).await.unwrap();
        theirs.raise_seq(id, 1).await.unwrap();
    }
    RedisSessions::new(ours.clone(), Arc::new(ManualClock::new(1))).flush().await.unwrap();
    for id in &ids {
        assert_eq!(ours.take_seq(id).await.unwrap(), None);
        assert_eq!(theirs.take_seq(id).await.unwrap(), Some(2));
    }
}
