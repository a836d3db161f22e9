//! Redis and DynamoDB that are down, throttled, or lose answers.

use super::*;

/// A store in the same world whose Redis is somewhere else, or nowhere.
fn with_redis(t: &DynamoFixture, url: &str) -> Arc<DynamoStore> {
    let redis = RedisConfig {
        urls: vec![url.to_owned()],
        mode: RedisMode::Single,
        prefix: "nowhere-".into(),
        deadline: Duration::from_millis(200),
    };
    let redis = Redis::new(redis).unwrap();
    Arc::new(DynamoStore::new(t.rows.dynamo.clone(), redis, t.clock.clone(), 30 * 24 * 3_600_000))
}

#[tokio::test]
async fn without_redis_everything_is_stored_and_found() {
    let t = world().await;
    let bob = UserId::new("bob").unwrap();
    t.send("m1").await;
    assert_eq!(t.rows.inbox(&bob, None, 10).await.unwrap().0.len(), 1, "the order is complete in Redis");
    let alone = with_redis(&t, "redis://127.0.0.1:9");
    t.clock.advance(1_000);
    let new = |name: &str, id: &ConversationId| message(id, Side::Low, name);
    let other = ConversationId::new("bob~carol").unwrap();
    let batch = vec![new("m2", &t.id), new("m3", &t.id), new("c1", &other), new("m4", &t.id)];
    let seqs: Vec<_> =
        alone.commit_sends(batch).await.into_iter().map(|sent| sent.unwrap().message.seq).collect();
    assert_eq!(seqs, [2, 3, 1, 4]);
    let (inbox, _) = alone.inbox(&bob, None, 10).await.unwrap();
    let listed: Vec<_> = inbox.iter().map(|row| (row.conversation_id.as_str(), row.unread_count)).collect();
    assert_eq!(listed, [("bob~carol", 0), ("alice~bob", 4)]);

    // Who can reach Redis finds a set there that says it is complete and lacks what was sent
    // meanwhile. A device that resumes must not be told by it.
    let active = t.rows.active_since(&bob, START_MS + 500, 10).await.unwrap();
    let active: Vec<_> = active.iter().map(|c| c.conversation_id.as_str()).collect();
    assert_eq!(active, ["bob~carol", "alice~bob"]);
    // The counter in Redis is behind as well, and the table knows.
    assert_eq!(t.send("m5").await, (5, false));
    assert_eq!(t.send("m6").await, (6, false));
}

#[tokio::test]
async fn a_redis_that_was_emptied_is_filled_again() {
    let t = world().await;
    let bob = UserId::new("bob").unwrap();
    for name in ["m1", "m2", "m3"] {
        t.send(name).await;
    }
    assert_eq!(t.rows.inbox(&bob, None, 10).await.unwrap().0.len(), 1);
    let sessions = crate::RedisSessions::new(t.rows.redis.clone(), t.clock.clone());
    crate::SessionStore::flush(&sessions).await.unwrap();
    let other = ConversationId::new("bob~carol").unwrap();
    let new = message(&other, Side::Low, "c1");
    t.rows.commit_sends(vec![new]).await.remove(0).unwrap();
    let (inbox, more) = t.rows.inbox(&bob, None, 10).await.unwrap();
    assert_eq!((inbox.len(), more), (2, false), "one new place makes no inbox");
    assert_eq!(t.send("m4").await, (4, false));
}

#[tokio::test]
async fn a_block_is_seen_at_once_by_another_node() {
    let t = world().await;
    let (alice, bob) = (UserId::new("alice").unwrap(), UserId::new("bob").unwrap());
    let node = Arc::new(DynamoStore::new(
        t.rows.dynamo.clone(),
        t.rows.redis.clone(),
        t.clock.clone(),
        30 * 24 * 3_600_000,
    ));
    use crate::Users as _;
    assert!(!node.blocks(&bob, &alice).await.unwrap());
    for blocked in [true, false, true] {
        t.rows.set_block(&bob, &alice, blocked).await.unwrap();
        assert_eq!(node.blocks(&bob, &alice).await.unwrap(), blocked);
        assert_eq!(node.blocks(&bob, &alice).await.unwrap(), blocked, "nor does a copy say otherwise");
    }
}

/// Sits before DynamoDB and spoils the next requests of a kind.
struct Spoiler {
    endpoint: String,
    /// How many requests are answered by a refusal instead of being passed on.
    throttle: Arc<AtomicU64>,
    /// How many answers to `TransactWriteItems` get lost on their way back.
    lose: Arc<AtomicU64>,
}

fn take_one(count: &AtomicU64) -> bool {
    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

async fn spoiler() -> Spoiler {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let to = service("BLUETICK_TEST_DYNAMODB").trim_start_matches("http://").to_owned();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (throttle, lose) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let spoil = (throttle.clone(), lose.clone());
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (to, (throttle, lose)) = (to.clone(), spoil.clone());
            tokio::spawn(async move {
                let mut server = tokio::net::TcpStream::connect(&to).await.unwrap();
                let mut buffer = vec![0; 1 << 20];
                // One request at a time on a connection; each of these fits one read.
                while let Ok(read @ 1..) = client.read(&mut buffer).await {
                    let transaction =
                        buffer[..read].windows(18).any(|window| window == b"TransactWriteItems");
                    if take_one(&throttle) {
                        let body = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"slow down"}"#;
                        let head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/x-amz-json-1.0\r\nconnection: close";
                        let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                        let _ = client.write_all(answer.as_bytes()).await;
                        return;
                    }
                    server.write_all(&buffer[..read]).await.unwrap();
                    let Ok(read @ 1..) = server.read(&mut buffer).await else { return };
                    if transaction && take_one(&lose) {
                        return;
                    }
                    if client.write_all(&buffer[..read]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    Spoiler { endpoint, throttle, lose }
}

async fn through(spoiler: &Spoiler, t: &DynamoFixture, deadline: Duration) -> DynamoStore {
    let config = DynamoConfig {
        endpoint: Some(spoiler.endpoint.clone()),
        table_prefix: t.rows.dynamo.name_of(Table::Messages).trim_end_matches("messages").to_owned(),
        deadline,
        ..DynamoConfig::default()
    };
    let dynamo = Dynamo::new(config).await.unwrap();
    DynamoStore::new(dynamo, t.rows.redis.clone(), t.clock.clone(), 30 * 24 * 3_600_000)
}

#[tokio::test]
async fn a_table_that_is_throttled_is_asked_again_and_in_the_end_named() {
    let t = world().await;
    let spoiler = spoiler().await;
    let store = through(&spoiler, &t, Duration::from_secs(10)).await;
    spoiler.throttle.store(4, Ordering::SeqCst);
    let sent = store.commit_sends(vec![t.new_message("m1")]).await.remove(0).unwrap();
    assert_eq!((sent.message.seq, sent.duplicate), (1, false));
    assert_eq!(spoiler.throttle.load(Ordering::SeqCst), 0);

    let hasty = through(&spoiler, &t, Duration::from_millis(200)).await;
    spoiler.throttle.store(u64::MAX, Ordering::SeqCst);
    match hasty.commit_sends(vec![t.new_message("m2")]).await.remove(0) {
        Err(StoreError::Unavailable { what, retry_after }) => {
            assert!(what.contains("throttled"), "{what}");
            assert!(retry_after >= Duration::from_secs(1));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_answer_that_got_lost_leaves_one_message_that_is_no_duplicate() {
    let t = world().await;
    let spoiler = spoiler().await;
    let store = through(&spoiler, &t, Duration::from_secs(10)).await;
    spoiler.lose.store(1, Ordering::SeqCst);
    let sent = store.commit_sends(vec![t.new_message("m1")]).await.remove(0).unwrap();
    assert_eq!((sent.message.seq, sent.duplicate), (1, false), "the row in its way is its own");
    spoiler.lose.store(1, Ordering::SeqCst);
    let batch = ["m2", "m3", "m4"].map(|name| t.new_message(name)).to_vec();
    let seqs: Vec<_> = store
        .commit_sends(batch)
        .await
        .into_iter()
        .map(|sent| sent.unwrap())
        .map(|sent| (sent.message.seq, sent.duplicate))
        .collect();
    assert_eq!(seqs, [(2, false), (3, false), (4, false)]);
    assert_eq!(t.stored().await.len(), 4);
    assert_eq!(t.bobs().await, Some((4, 4)));
}

#[tokio::test]
async fn a_registration_whose_answer_got_lost_says_whom_it_took_the_token_from() {
    let t = world().await;
    let spoiler = spoiler().await;
    let store = through(&spoiler, &t, Duration::from_secs(10)).await;
    let phone = DeviceId::new("phone").unwrap();
    let row = |user: &str, token: &str| DeviceRow {
        user_id: UserId::new(user).unwrap(),
        device: phone.clone(),
        registration: PushRegistration {
            target: PushTarget::Fcm { token: token.into() },
            content: PushContent::Sender,
        },
        registered_at: START_MS,
    };
    let (alice, bob) = (row("alice", "shared"), row("bob", "shared"));
    t.rows.register(alice.clone()).await.unwrap();
    t.rows.register(row("bob", "old")).await.unwrap();
    spoiler.lose.store(1, Ordering::SeqCst);
    let taken = store.register(bob.clone()).await.unwrap();
    assert_eq!(spoiler.lose.load(Ordering::SeqCst), 0);
    assert_eq!(taken, Some((alice.user_id.clone(), phone.clone())));
    assert_eq!(t.rows.devices_of(&alice.user_id).await.unwrap(), []);
    assert_eq!(t.rows.devices_of(&bob.user_id).await.unwrap(), std::slice::from_ref(&bob));
    assert_eq!(t.rows.register(row("carol", "old")).await.unwrap(), None, "the old token is free");

    spoiler.lose.store(1, Ordering::SeqCst);
    assert!(store.unregister(&bob.user_id, &phone, Some(START_MS)).await.unwrap(), "and so a removal");
    assert_eq!(t.rows.devices_of(&bob.user_id).await.unwrap(), []);
    assert_eq!(t.rows.register(alice).await.unwrap(), None);
}

#[tokio::test]
async fn health_names_what_fails() {
    let t = world().await;
    use crate::Maintenance as _;
    assert!(t.rows.health().await.refusing.is_none() && t.rows.health().await.degraded.is_none());
    let alone = with_redis(&t, "redis://127.0.0.1:9");
    let health = alone.health().await;
    assert!(health.refusing.is_none(), "messages queue without Redis");
    assert!(health.degraded.is_some_and(|why| why.contains("Redis")));
    let nowhere = DynamoConfig {
        endpoint: Some("http://127.0.0.1:9".into()),
        deadline: Duration::from_millis(300),
        ..DynamoConfig::default()
    };
    let nowhere = Dynamo::new(nowhere).await.unwrap();
    let rows = DynamoStore::new(nowhere, t.rows.redis.clone(), t.clock.clone(), 1_000);
    assert!(rows.health().await.refusing.is_some_and(|why| why.contains("DynamoDB")));
}

#[tokio::test]
async fn a_store_opens_while_its_servers_are_down() {
    let config = crate::DistributedConfig {
        dynamo: DynamoConfig {
            endpoint: Some("http://127.0.0.1:9".into()),
            deadline: Duration::from_millis(200),
            ..DynamoConfig::default()
        },
        redis: RedisConfig {
            urls: vec!["redis://127.0.0.1:9".into()],
            mode: RedisMode::Single,
            prefix: "x-".into(),
            deadline: Duration::from_millis(200),
        },
        idempotency_window: Duration::from_secs(60),
        objects: None,
        cold_after: None,
    };
    let clock = Arc::new(ManualClock::new(START_MS));
    let (store, _, _) = Store::distributed(config, clock).await.unwrap();
    let id = ConversationId::new("alice~bob").unwrap();
    assert!(matches!(store.messages.last_seq(&id).await, Err(StoreError::Unavailable { .. })));
}
