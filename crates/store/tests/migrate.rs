//! Moving an embedded store into DynamoDB, against real servers. `scripts/services start` runs
//! them.
#![cfg(feature = "cluster")]
#![allow(clippy::unwrap_used)]

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use aws_sdk_dynamodb::{
    Client,
    config::{BehaviorVersion, Credentials, Region},
    types::AttributeValue,
};
use bluetick_protocol::{
    ConversationId, DeviceId, Mute, Profile, PushContent, PushKeys, PushRegistration, PushSubscription,
    PushTarget, S3Ref, Seq, Side, UserId,
};
use bluetick_store::{
    Announced, AttachmentRow, ContentKind, DeviceRow, DistributedConfig, EmbeddedConfig, EmbeddedSource,
    ManualClock, NewMessage, OwedPush, PageLimit, RedisConfig, RedisMode, Registry, Store, StoreError,
    UploadQuota, UploadState,
    conformance::{
        START_MS,
        model::{same_as_model, still_same_as_model},
    },
    dynamo::{
        CreateOptions, Difference, Dynamo, DynamoConfig, KindComparison, Loader, MigrationStart,
        create_tables,
    },
    testing,
};

fn service(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run `scripts/services start`, then eval \"$(scripts/services env)\"")
    })
}

/// Tables and keys that no other test has, in this run or another on the same servers.
fn config() -> DistributedConfig {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("m{}x{}x{next}-", since.as_micros(), std::process::id());
    DistributedConfig {
        dynamo: DynamoConfig {
            endpoint: Some(service("BLUETICK_TEST_DYNAMODB")),
            table_prefix: name.clone(),
            deadline: Duration::from_secs(20),
            ..DynamoConfig::default()
        },
        redis: RedisConfig {
            urls: vec![service("BLUETICK_TEST_REDIS")],
            mode: RedisMode::Single,
            prefix: name,
            deadline: Duration::from_secs(5),
        },
        idempotency_window: Duration::from_secs(30 * 24 * 3600),
        objects: None,
        cold_after: None,
    }
}

/// Empty tables, and who fills them.
struct MigrationTarget {
    config: DistributedConfig,
    clock: Arc<ManualClock>,
    loader: Loader,
}

impl MigrationTarget {
    async fn new(clock: &Arc<ManualClock>) -> MigrationTarget {
        let config = config();
        let dynamo = Dynamo::new(config.dynamo.clone()).await.unwrap();
        // The clock of these tests is not the server's, which would forget by its own.
        let options = CreateOptions {
            ttl: false,
            point_in_time_recovery: false,
            deletion_protection: false,
            ..CreateOptions::default()
        };
        create_tables(&dynamo, &options).await.unwrap();
        let redis = Registry::redis(config.redis.clone(), clock.clone()).unwrap().redis;
        let loader = Loader::new(dynamo, redis, clock.clone());
        MigrationTarget { config, clock: clock.clone(), loader }
    }

    async fn store(&self) -> Store {
        Store::distributed(self.config.clone(), self.clock.clone()).await.unwrap().0
    }

    async fn refuses(&self, source: &EmbeddedSource, start_over: bool) -> String {
        match self.loader.begin(source.identity(), start_over).await {
            Err(StoreError::Unusable(why)) => why,
            other => panic!("it is not refused: {other:?}"),
        }
    }

    async fn move_all(&self, source: &EmbeddedSource) -> Vec<KindComparison> {
        self.loader.load(source, |_| ()).await.unwrap();
        self.loader.compare(source, |_| ()).await.unwrap()
    }

    /// Past all that Bluetick does, for what only a mistake would do.
    async fn raw(&self) -> Client {
        let http = aws_smithy_http_client::Builder::new().build_http();
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(http)
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("local", "local", None, None, "local"))
            .endpoint_url(service("BLUETICK_TEST_DYNAMODB"));
        Client::from_conf(config.build())
    }

    fn table(&self, name: &str) -> String {
        format!("{}{name}", self.config.dynamo.table_prefix)
    }
}

fn embedded(dir: &Path, clock: &Arc<ManualClock>) -> Store {
    for _ in 0..200 {
        match Store::embedded(EmbeddedConfig::new(dir), clock.clone()) {
            Ok(store) => return store,
            Err(StoreError::Unusable(why)) if why.contains("in use") => {
                std::thread::sleep(Duration::from_millis(25));
            }
            Err(e) => panic!("the store does not open: {e}"),
        }
    }
    panic!("the directory stays locked");
}

async fn source(dir: &Path, clock: &Arc<ManualClock>) -> EmbeddedSource {
    for _ in 0..200 {
        match EmbeddedSource::open(EmbeddedConfig::new(dir), clock.clone()).await {
            Ok(source) => return source,
            Err(StoreError::Unusable(why)) if why.contains("in use") => {
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
            Err(e) => panic!("the source does not open: {e}"),
        }
    }
    panic!("the directory stays locked");
}

fn same(compared: &[KindComparison]) {
    for one in compared {
        assert!(one.is_same(), "{one:?}");
    }
}

fn conversation(n: usize) -> ConversationId {
    ConversationId::new(&format!("alice~bob{n:03}")).unwrap()
}

fn message(id: &ConversationId, n: usize) -> NewMessage {
    testing::message(id, Side::Low, &format!("m{n}")).body(format!("message {n}")).undelivered(true)
}

/// Conversations with messages in them, all from Alice and waiting.
async fn fill(store: &Store, conversations: usize, messages: usize) {
    for c in 0..conversations {
        let sends = (0..messages).map(|n| message(&conversation(c), n)).collect();
        for sent in store.messages.commit_sends(sends).await {
            sent.unwrap();
        }
    }
}

fn device(user: &str, on: usize, target: PushTarget) -> DeviceRow {
    DeviceRow {
        user_id: UserId::new(user).unwrap(),
        device: DeviceId::new(&format!("device{on:02}")).unwrap(),
        registration: PushRegistration { target, content: PushContent::Sender },
        registered_at: START_MS + on as u64,
    }
}

/// All that belongs to notifications: more devices than one batch takes, and each kind of row with
/// and without what it need not have.
async fn fill_for_push(store: &Store) {
    let keys = PushKeys { p256dh: "p".repeat(87), auth: "a".repeat(22) };
    let subscription = PushSubscription { endpoint: "https://push.example/1".into(), keys };
    let mut devices = vec![
        device(
            "a1",
            98,
            PushTarget::Apns { token: "00ff".into(), topic: Some("org.x".into()), sandbox: true },
        ),
        device("b1", 99, PushTarget::Webpush { subscription }),
    ];
    devices.extend((0..40).map(|n| device("a1", n, PushTarget::Fcm { token: format!("token{n}") })));
    for row in devices {
        store.devices.register(row).await.unwrap();
    }
    let (bob, ids) =
        (UserId::new("b1").unwrap(), ["a1~b1", "b1~c1", "b1~zoe"].map(|id| ConversationId::new(id).unwrap()));
    for (id, until) in ids.iter().zip([None, Some(START_MS)]) {
        store.users.mute(&bob, Mute { conversation_id: id.clone(), until }).await.unwrap();
    }
    for (user, secs) in [("b1", 1_700_000_000), ("nobody-else", 5)] {
        store.users.raise_not_before(&UserId::new(user).unwrap(), secs).await.unwrap();
    }
    for (n, id) in ids.iter().enumerate() {
        let owed = OwedPush {
            user_id: bob.clone(),
            conversation_id: id.clone(),
            // Beyond whatever was owed before.
            seq: 1_000 + n as Seq,
            clear: n == 1,
            attempts: 0,
            devices: Vec::new(),
            due_at: START_MS + n as u64,
        };
        store.push_outbox.owe(owed.clone()).await.unwrap();
        if n == 1 {
            let devices = ["z", "phone"].map(|name| DeviceId::new(name).unwrap()).to_vec();
            let later = OwedPush { attempts: 3, devices, ..owed.clone() };
            assert!(store.push_outbox.postpone(&owed, &later).await.unwrap());
        }
        // The last has nothing else: a row with no receipt in it.
        store.status.raise_notified(&bob, id, 7).await.unwrap();
    }
}

fn attachment(n: usize) -> AttachmentRow {
    AttachmentRow {
        s3_ref: S3Ref::new(&format!("{:012x}{n:020x}", START_MS + n as u64)).unwrap(),
        owner: UserId::new("a1").unwrap(),
        name: format!("{n}.png"),
        mime: "image/png".into(),
        bytes: 10 + n as u64,
        sha256: "00".repeat(32),
        upload_id: Some(format!("upload{n}")).filter(|_| n.is_multiple_of(2)),
        state: UploadState::Expected,
        claimed: false,
    }
}

/// More attachments than one batch takes: some only announced, some there, some claimed once or
/// twice, one to be collected.
async fn fill_with_attachments(store: &Store) {
    let ids = ["a1~b1", "a1~c1"].map(|id| ConversationId::new(id).unwrap());
    for n in 0..40 {
        let row = attachment(n);
        let quota = UploadQuota::default();
        assert_eq!(store.attachments.announce(row.clone(), &quota).await.unwrap(), Announced::Done);
        if n % 4 > 0 {
            assert!(store.attachments.uploaded(&row.s3_ref).await.unwrap());
        }
        for id in ids.iter().take((n % 4).saturating_sub(1)) {
            assert!(store.attachments.claim(&row.s3_ref, id).await.unwrap());
        }
    }
    assert!(store.attachments.collect(&attachment(8).s3_ref).await.unwrap());
}

async fn same_attachments(moved: &Store, model: &Store) {
    let (ours, theirs) = (&moved.attachments, &model.attachments);
    // Usage is not moved: it is derived from what is.
    let owner = attachment(0).owner;
    let usage = theirs.upload_usage(&owner).await.unwrap();
    assert!(usage.total_bytes >= 40 * 4096);
    assert_eq!(ours.upload_usage(&owner).await.unwrap(), usage);
    for s3_ref in (0..41).map(|n| attachment(n).s3_ref) {
        assert_eq!(ours.attachment(&s3_ref).await.unwrap(), theirs.attachment(&s3_ref).await.unwrap());
        for id in ["a1~b1", "a1~c1"].map(|id| ConversationId::new(id).unwrap()) {
            let (ours, theirs) = (ours.is_claimed_by(&s3_ref, &id), theirs.is_claimed_by(&s3_ref, &id));
            assert_eq!(ours.await.unwrap(), theirs.await.unwrap());
        }
    }
    let later = START_MS + 1_000;
    let unclaimed = theirs.unclaimed(later, 100).await.unwrap();
    assert_eq!(unclaimed.len(), 20);
    assert_eq!(ours.unclaimed(later, 100).await.unwrap(), unclaimed);
}

async fn same_for_push(moved: &Store, model: &Store) {
    for user in ["a1", "b1", "c1", "nobody-else"].map(|user| UserId::new(user).unwrap()) {
        let not_before = (moved.users.not_before(&user), model.users.not_before(&user));
        assert_eq!(not_before.0.await.unwrap(), not_before.1.await.unwrap());
        let (ours, theirs) = (moved.devices.devices_of(&user), model.devices.devices_of(&user));
        assert_eq!(ours.await.unwrap(), theirs.await.unwrap());
        assert_eq!(moved.users.mutes_of(&user).await.unwrap(), model.users.mutes_of(&user).await.unwrap());
        // Whoever closes a store gives up what it had claimed, so when it is due may differ.
        let owed = async |store: &Store| {
            let owed = store.push_outbox.owed_to(&user).await.unwrap().into_iter();
            owed.map(|owed| OwedPush { due_at: 0, ..owed }).collect::<Vec<_>>()
        };
        assert_eq!(owed(moved).await, owed(model).await);
        let (ours, theirs) = (moved.status.statuses_of(&user), model.status.statuses_of(&user));
        assert_eq!(ours.await.unwrap(), theirs.await.unwrap());
        for id in ["a1~b1", "b1~c1", "b1~zoe"].map(|id| ConversationId::new(id).unwrap()) {
            let (ours, theirs) = (moved.status.notified(&user, &id), model.status.notified(&user, &id));
            assert_eq!(ours.await.unwrap(), theirs.await.unwrap());
        }
    }
    // Tokens are known to be somebody's.
    let (alice, taker) =
        (UserId::new("a1").unwrap(), device("zoe", 1, PushTarget::Fcm { token: "token33".into() }));
    let taken = moved.devices.register(taker).await.unwrap();
    assert_eq!(taken, Some((alice.clone(), DeviceId::new("device33").unwrap())));
    let left = moved.devices.devices_of(&alice).await.unwrap().len();
    assert_eq!(left + 1, model.devices.devices_of(&alice).await.unwrap().len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_was_done_to_the_source_the_target_has_every_row() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(START_MS)));
    let model = Store::memory(clock.clone());
    let seeds = 1..=6;
    let store = embedded(dir.path(), &clock);
    for seed in seeds.clone() {
        same_as_model(&store, &model, &clock, seed).await;
    }
    for store in [&store, &model] {
        fill_for_push(store).await;
        fill_with_attachments(store).await;
        // Whatever the last seed forgot, this is remembered.
        let last = message(&ConversationId::new("a1~b1").unwrap(), 1_000);
        store.messages.commit_sends(vec![last]).await.remove(0).unwrap();
    }
    store.maintenance.close().await.unwrap();
    drop(store);

    let (source, target) = (source(dir.path(), &clock).await, MigrationTarget::new(&clock).await);
    assert_eq!(target.loader.begin(source.identity(), false).await.unwrap(), MigrationStart::Anew);
    let compared = target.move_all(&source).await;
    same(&compared);
    for one in &compared {
        assert!(one.source.rows > 0, "these operations make no {}", one.kind.name());
    }
    target.loader.finish(source.identity()).await.unwrap();
    assert_eq!(target.loader.begin(source.identity(), false).await.unwrap(), MigrationStart::Done);
    source.close().await.unwrap();

    let moved = target.store().await;
    for seed in seeds.clone() {
        still_same_as_model(&moved, &model, &clock, seed).await;
    }
    same_for_push(&moved, &model).await;
    same_attachments(&moved, &model).await;
    // The same messages again: known ones are duplicates of their originals, forgotten ones get the
    // next seq.
    let (mut duplicates, mut fresh) = (0, 0);
    for seed in seeds {
        for pair in ["a~b", "a~c", "a~d", "b~c", "b~d", "c~d"] {
            let (low, high) = pair.split_once('~').unwrap();
            let id = ConversationId::new(&format!("{low}{seed}~{high}{seed}")).unwrap();
            for original in model.messages.read_from(&id, 1, PageLimit::messages(1_000)).await.unwrap() {
                let again = testing::message(&id, original.from, original.client_msg_id.as_str())
                    .body(&original.body)
                    .attachment(original.attachment.clone())
                    .meta(original.meta.clone());
                let expected = model.messages.commit_sends(vec![again.clone()]).await.remove(0);
                let answered = moved.messages.commit_sends(vec![again]).await.remove(0);
                // An id that was forgotten may have been used again, for a message with other
                // content.
                let brief = |answer: bluetick_store::Result<bluetick_store::Committed>| {
                    let brief = answer.map(|c| (c.message.seq, c.duplicate, c.message.ts));
                    brief.map_err(|error| error.to_string())
                };
                let (answered, expected) = (brief(answered), brief(expected));
                assert_eq!(answered, expected, "{id} {}", original.client_msg_id);
                match answered {
                    Ok((_, true, _)) => duplicates += 1,
                    Ok((_, false, _)) => fresh += 1,
                    Err(why) => assert!(why.contains("names message"), "{why}"),
                }
            }
        }
    }
    assert!(duplicates > 0 && fresh > 0, "{duplicates} duplicates, {fresh} fresh");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_was_cut_off_goes_on_where_it_was() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(START_MS)));
    let store = embedded(dir.path(), &clock);
    fill(&store, 20, 100).await;
    let alice = UserId::new("alice").unwrap();
    let profile = Profile { name: Some("Alice".into()), avatar_url: None };
    store.users.put_profile(&alice, profile.clone()).await.unwrap();
    store.maintenance.close().await.unwrap();
    drop(store);

    let target = MigrationTarget::new(&clock).await;
    let first = source(dir.path(), &clock).await;
    assert_eq!(first.messages(), 2_000);
    target.loader.begin(first.identity(), false).await.unwrap();
    let (moved, paused, cut) = (AtomicU64::new(0), AtomicBool::new(false), tokio::sync::Notify::new());
    let progress = |messages| {
        let moved = moved.fetch_add(messages, Ordering::Relaxed) + messages;
        if moved >= 800 && !paused.swap(true, Ordering::Relaxed) {
            // Long enough for the place to be noted.
            std::thread::sleep(Duration::from_millis(2_200));
        }
        if moved >= 1_000 {
            cut.notify_one();
        }
    };
    tokio::select! {
        biased;
        () = cut.notified() => {}
        _ = target.loader.load(&first, progress) => panic!("it was to be cut off"),
    }
    let halfway = target.loader.compare(&first, |_| ()).await.unwrap();
    let messages = halfway.iter().find(|one| one.kind == ContentKind::Messages).unwrap();
    assert!(messages.target.rows < messages.source.rows, "{messages:?}");
    assert_eq!(messages.differing.len(), 10, "the first are named");
    assert!(messages.differing.iter().all(|(_, how)| *how == Difference::Missing));
    first.close().await.unwrap();

    let second = source(dir.path(), &clock).await;
    let begun = target.loader.begin(second.identity(), false).await.unwrap();
    let MigrationStart::Resumed { moved: noted } = begun else { panic!("{begun:?}") };
    assert!((800..2_000).contains(&noted), "{noted}");
    let left = AtomicU64::new(0);
    let count = |n| {
        left.fetch_add(n, Ordering::Relaxed);
    };
    target.loader.load(&second, count).await.unwrap();
    assert!(left.into_inner() <= 2_000 - noted + 25, "what was moved is not moved again");
    same(&target.loader.compare(&second, |_| ()).await.unwrap());
    let moved = target.store().await;
    assert_eq!(moved.users.profile(&alice).await.unwrap(), profile);
    let next = message(&conversation(3), 1_000);
    assert_eq!(moved.messages.commit_sends(vec![next]).await.remove(0).unwrap().message.seq, 101);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_with_anything_else_in_them_are_refused() {
    let (dir, other, clock) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(START_MS)));
    for dir in [&dir, &other] {
        let store = embedded(dir.path(), &clock);
        fill(&store, 2, 3).await;
        store.maintenance.close().await.unwrap();
    }
    // Somebody's profile, and nothing else.
    let target = MigrationTarget::new(&clock).await;
    let zoe = UserId::new("zoe").unwrap();
    let profile = Profile { name: Some("Zoe".into()), avatar_url: None };
    target.store().await.users.put_profile(&zoe, profile).await.unwrap();
    let ours = source(dir.path(), &clock).await;
    let why = target.refuses(&ours, false).await;
    assert!(why.contains("users already holds something") && why.contains("table_prefix"), "{why}");
    assert!(target.refuses(&ours, true).await.contains("already holds"), "nor are they emptied");

    // A server that is running.
    let target = MigrationTarget::new(&clock).await;
    let store = target.store().await;
    store.messages.commit_sends(vec![message(&conversation(9), 1)]).await.remove(0).unwrap();
    assert!(target.refuses(&ours, false).await.contains("a server uses these tables"));

    // Another source.
    let target = MigrationTarget::new(&clock).await;
    target.loader.begin(ours.identity(), false).await.unwrap();
    let theirs = source(other.path(), &clock).await;
    for start_over in [false, true] {
        assert!(target.refuses(&theirs, start_over).await.contains("another store"));
    }
    same(&target.move_all(&ours).await);

    // The same source, with more in it.
    ours.close().await.unwrap();
    let store = embedded(dir.path(), &clock);
    store.messages.commit_sends(vec![message(&conversation(0), 77)]).await.remove(0).unwrap();
    store.pending.settle(&conversation(1).member(Side::High), &conversation(1), 1, None).await.unwrap();
    store.maintenance.close().await.unwrap();
    drop(store);
    let ours = source(dir.path(), &clock).await;
    assert!(target.refuses(&ours, false).await.contains("--start-over"));
    assert_eq!(target.loader.begin(ours.identity(), true).await.unwrap(), MigrationStart::Anew);
    same(&target.move_all(&ours).await);

    // Once somebody has served from the tables, nothing is overwritten.
    target.loader.finish(ours.identity()).await.unwrap();
    assert!(!target.loader.served_since().await.unwrap());
    clock.advance(60_000);
    let moved = target.store().await;
    moved.messages.commit_sends(vec![message(&conversation(0), 88)]).await.remove(0).unwrap();
    assert!(target.loader.served_since().await.unwrap());
    assert!(target.refuses(&ours, true).await.contains("a server has used these tables"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_damaged_in_the_target_is_named() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(START_MS)));
    let store = embedded(dir.path(), &clock);
    fill(&store, 3, 40).await;
    for n in 1..=3 {
        let target = PushTarget::Fcm { token: format!("token{n}") };
        store.devices.register(device("alice", n, target)).await.unwrap();
    }
    store.maintenance.close().await.unwrap();
    drop(store);
    let (source, target) = (source(dir.path(), &clock).await, MigrationTarget::new(&clock).await);
    target.loader.begin(source.identity(), false).await.unwrap();
    same(&target.move_all(&source).await);

    let (raw, id) = (target.raw().await, conversation(1));
    let text = |text: &str| AttributeValue::S(text.into());
    let number = |n: u64| AttributeValue::N(n.to_string());
    let messages = || target.table("messages");
    let at = |seq| [("conversation_id", text(id.as_str())), ("seq", number(seq))];
    let mut delete = raw.delete_item().table_name(messages());
    for (name, value) in at(7) {
        delete = delete.key(name, value);
    }
    delete.send().await.unwrap();
    // One body, one attribute that is no number any more, and one row too many.
    for (seq, update, value) in [(9, "SET body = :v", text("another")), (11, "SET ts = :v", text("x"))] {
        let mut change = raw.update_item().table_name(messages()).update_expression(update);
        for (name, value) in at(seq) {
            change = change.key(name, value);
        }
        change.expression_attribute_values(":v", value).send().await.unwrap();
    }
    let row = raw.put_item().table_name(target.table("pending_deliveries"));
    let row = row.item("receiver_id", text("zoe")).item("conversation_id", text("alice~zoe"));
    row.item("first_undelivered_seq", number(3)).send().await.unwrap();

    // And a token that nobody would be found by.
    let devices = raw.scan().table_name(target.table("devices")).send().await.unwrap();
    let is_second = |value: Option<&AttributeValue>| value == Some(&text("device02"));
    let index = devices.items().iter().find(|item| is_second(item.get("owner_device"))).unwrap();
    let delete = raw.delete_item().table_name(target.table("devices"));
    let delete = delete.key("user_id", index["user_id"].clone()).key("device", index["device"].clone());
    delete.send().await.unwrap();

    let compared = target.loader.compare(&source, |_| ()).await.unwrap();
    let of = |kind| compared.iter().find(|one| one.kind == kind).unwrap();
    let named = |kind| {
        let names = of(kind).differing.iter().map(|(key, how)| (key.as_str(), *how));
        names.collect::<Vec<_>>()
    };
    let mut found = named(ContentKind::Messages);
    found.sort_by_key(|(key, _)| key.len());
    let (missing, changed) = (Difference::Missing, Difference::Changed);
    assert_eq!(
        found,
        [("alice~bob001 7", missing), ("alice~bob001 9", changed), ("alice~bob001 11", changed)]
    );
    assert_eq!(of(ContentKind::Messages).target.rows, 119);
    assert_eq!(named(ContentKind::PendingDeliveries), [("zoe alice~zoe", Difference::Unknown)]);
    assert_eq!(named(ContentKind::Devices), [("alice device02", changed)]);
    assert_eq!(of(ContentKind::Devices).target.rows, 3, "a token is no record of its own");
    for kind in ContentKind::ALL {
        let damaged =
            matches!(kind, ContentKind::Messages | ContentKind::PendingDeliveries | ContentKind::Devices);
        assert_eq!(of(kind).is_same(), !damaged, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_after_the_move_come_after_those_before_it() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(START_MS)));
    let store = embedded(dir.path(), &clock);
    fill(&store, 1, 1).await;
    let last = store.messages.read_from(&conversation(0), 1, PageLimit::messages(1)).await.unwrap();
    store.maintenance.close().await.unwrap();
    drop(store);
    let (source, target) = (source(dir.path(), &clock).await, MigrationTarget::new(&clock).await);
    clock.set(START_MS - 3_600_000);
    let why = target.refuses(&source, false).await;
    assert!(why.contains("in the future of this machine's clock"), "{why}");
    clock.set(START_MS);
    target.loader.begin(source.identity(), false).await.unwrap();
    same(&target.move_all(&source).await);

    // Whoever gets the source's node number next begins after the last id that was minted under it.
    let leases = target.raw().await.get_item().table_name(target.table("node_leases"));
    let lease = leases.key("node", AttributeValue::N("0".into())).send().await.unwrap();
    let until: u64 = lease.item().unwrap()["expires_at"].as_n().unwrap().parse().unwrap();
    assert_eq!(until, last[0].message_id.ms() + 1);
    let sent = target.store().await.messages.commit_sends(vec![message(&conversation(0), 5)]).await;
    assert!(sent[0].as_ref().unwrap().message.seq == 2);
}

#[tokio::test]
async fn a_store_that_is_in_use_or_not_there_is_refused() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(START_MS)));
    let open = async |dir: &Path| match EmbeddedSource::open(EmbeddedConfig::new(dir), clock.clone()).await {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it opens"),
    };
    let why = open(&dir.path().join("none")).await;
    assert!(why.contains("there is no store in"), "{why}");
    assert!(!dir.path().join("none").exists(), "and none is made");
    let store = embedded(dir.path(), &clock);
    assert!(open(dir.path()).await.contains("in use by another process"));
    drop(store);
}
