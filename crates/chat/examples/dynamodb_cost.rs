//! What each operation costs on DynamoDB, in its own units, and how many round trips a send waits for.
//!
//! ```text
//! scripts/services start && eval "$(scripts/services env)"
//! cargo run --release -p bluetick-chat --features cluster --example dynamodb_cost
//! ```
//!
//! Units are what DynamoDB says each call consumed (`ConsumedCapacity`), summed by table. A write unit is a kilobyte
//! written (twice that in a transaction, and as much where a condition fails), a read unit four kilobytes read
//! consistently. Round trips are measured: a proxy in front of DynamoDB holds every request back for a while, and the
//! time of a send is divided by that.

use std::{
    collections::BTreeMap,
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bluetick_chat::{
    ChatConfig, ChatService, Gateways, HandOver, HandingOver, InboxApi, PlanApi, PlanRequest, RangeApi,
    RangeRequest, ReadFrom, ReceiptApi, ReceiptRequest, SendApi, SendRequest, SessionEvent, SettleApi,
    SettleRequest, Unlimited,
};
use bluetick_protocol::{
    ClientMsgId, ConversationId, DeviceId, InboxQuery, MessageId, Send as SendFrame, Seq, SessionId, UserId,
};
use bluetick_store::{
    DistributedConfig, RedisConfig, RedisMode, SessionEntry, Store, SystemClock,
    dynamo::{CreateOptions, Dynamo, DynamoConfig, Units, create_tables},
};
use futures_util::future::Either;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// How long the proxy holds a request back.
const DELAY: Duration = Duration::from_millis(200);
const TTL: Duration = Duration::from_secs(3_600);

/// Everybody who is registered takes everything.
struct AlwaysThere;

impl Gateways for AlwaysThere {
    fn hand_over(&self, _to: &SessionEntry, _event: SessionEvent) -> HandingOver {
        Either::Left(ready(HandOver::Taken))
    }
}

struct World {
    node: ChatService,
    store: Store,
    dynamo: Dynamo,
    next: AtomicU64,
}

type Bill = BTreeMap<(&'static str, Units), f64>;

impl World {
    async fn open(endpoint: &str, redis: &str, prefix: &str, first: u64) -> World {
        let config = DistributedConfig {
            dynamo: DynamoConfig {
                endpoint: Some(endpoint.to_owned()),
                table_prefix: prefix.to_owned(),
                deadline: Duration::from_secs(20),
                ..DynamoConfig::default()
            },
            redis: RedisConfig {
                urls: vec![redis.to_owned()],
                mode: RedisMode::Single,
                prefix: prefix.to_owned(),
                deadline: Duration::from_secs(5),
            },
            idempotency_window: Duration::from_secs(30 * 24 * 3600),
            objects: None,
            cold_after: None,
        };
        let clock = Arc::new(SystemClock);
        let (store, _, dynamo) = Store::distributed(config, clock.clone()).await.expect("the store opens");
        let options = CreateOptions {
            point_in_time_recovery: false,
            deletion_protection: false,
            ..CreateOptions::default()
        };
        create_tables(&dynamo, &options).await.expect("the tables are made");
        let gateways = Arc::new(AlwaysThere);
        let node =
            ChatService::new(store.clone(), gateways, clock, ChatConfig::default(), Arc::new(Unlimited));
        World { node, store, dynamo, next: AtomicU64::new(first) }
    }

    fn frame(&self, to: &str, seen_seq: Option<Seq>) -> SendFrame {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        SendFrame {
            reference: None,
            client_msg_id: ClientMsgId::new(&format!("cost-{n}")).expect("an id"),
            to: Some(user(to)),
            conversation_id: None,
            body: "a line as people write them, not long and not short, about what was said before".into(),
            attachment: None,
            meta: None,
            seen_seq,
        }
    }

    async fn send(&self, from: &str, to: &str, seen_seq: Option<Seq>) -> Seq {
        let request = SendRequest { user: user(from), session: None, sends: vec![self.frame(to, seen_seq)] };
        let answers = self.node.send(request).await;
        answers.into_iter().next().expect("an answer").expect("it is sent").seq
    }

    async fn connect(&self, name: &str) {
        let entry = SessionEntry {
            user_id: user(name),
            device: DeviceId::new("phone").expect("an id"),
            session_id: SessionId(u128::from(self.next.fetch_add(1, Ordering::Relaxed)) + 1),
            gateway: "here".into(),
            connected_at: 0,
        };
        self.store.sessions.register(&entry, TTL, 10).await.expect("registered");
    }

    fn receipt(&self, name: &str, id: &ConversationId, seq: Seq) -> ReceiptRequest {
        ReceiptRequest { user: user(name), session: None, conversation_id: id.clone(), seq, again: false }
    }

    /// What an operation consumed, on average over a few runs.
    async fn bill<T>(&self, name: &str, runs: u32, mut operation: impl AsyncFnMut(u32) -> T) {
        let mut sum = Bill::new();
        for run in 0..runs {
            let before = self.dynamo.units();
            operation(run).await;
            for (what, units) in self.dynamo.units() {
                *sum.entry(what).or_default() += units - before.get(&what).copied().unwrap_or_default();
            }
        }
        let total = |kind| sum.iter().filter(|(what, _)| what.1 == kind).map(|(_, units)| units).sum::<f64>();
        let list = |kind| {
            let parts: Vec<_> = sum
                .iter()
                .filter(|(what, units)| what.1 == kind && **units > 0.0)
                .map(|(what, units)| format!("{} {:.1}", what.0, units / f64::from(runs)))
                .collect();
            parts.join(", ")
        };
        println!(
            "{name:<34} {:>5.1} W  {:>5.1} R   W: {}   R: {}",
            total(Units::Write) / f64::from(runs),
            total(Units::Read) / f64::from(runs),
            list(Units::Write),
            list(Units::Read),
        );
    }
}

fn user(name: &str) -> UserId {
    UserId::new(name).expect("a user id")
}

fn between(a: &str, b: &str) -> ConversationId {
    ConversationId::between(&user(a), &user(b)).expect("two users")
}

/// Holds back everything that goes to the server, by a fixed time.
async fn slow_proxy(to: String) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let to = to.clone();
            tokio::spawn(async move {
                let Ok(server) = tokio::net::TcpStream::connect(&to).await else { return };
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                    (client.into_split(), server.into_split());
                let back =
                    tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
                let mut buffer = vec![0; 65_536];
                while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
                    // The parts of one request are held back once.
                    if buffer.starts_with(b"POST ") {
                        tokio::time::sleep(DELAY).await;
                    }
                    if to_server.write_all(&buffer[..read]).await.is_err() {
                        break;
                    }
                }
                back.abort();
            });
        }
    });
    address
}

#[tokio::main]
async fn main() {
    let variable = |name| {
        std::env::var(name).unwrap_or_else(|_| {
            panic!("{name} is not set: run `scripts/services start`, then eval \"$(scripts/services env)\"")
        })
    };
    let (endpoint, redis) = (variable("BLUETICK_TEST_DYNAMODB"), variable("BLUETICK_TEST_REDIS"));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let prefix = format!("cost{}-", now.as_millis());
    let world = World::open(&endpoint, &redis, &prefix, 0).await;
    costs(&world).await;

    let slow = slow_proxy(endpoint.trim_start_matches("http://").to_owned()).await;
    let far = World::open(&slow, &redis, &prefix, 1_000_000).await;
    round_trips(&far).await;
}

async fn costs(world: &World) {
    println!("units per operation (mean of 10), body of 80 bytes\n");
    // The first message makes rows and fills the copies of block flags; what follows is the usual case.
    world.connect("bob").await;
    world.bill("first message of a conversation", 1, async |_| world.send("alice", "bob", None).await).await;
    let ab = between("alice", "bob");
    world.bill("online send", 10, async |_| world.send("alice", "bob", Some(0)).await).await;
    let seq = world.send("bob", "alice", Some(2)).await;
    world.send("alice", "bob", Some(seq)).await;

    world.send("alice", "carol", None).await;
    let ac = between("alice", "carol");
    let settle = async |id: &ConversationId| {
        let carol = id.member(bluetick_protocol::Side::High);
        if let Some(row) = world.store.pending.pending_row(&carol, id).await.expect("the row") {
            world.store.pending.settle(&carol, id, row, None).await.expect("settled");
        }
    };
    let mut firsts = Vec::new();
    for n in 0..10 {
        let name = format!("offline{n}");
        world.send("alice", &name, None).await;
        settle(&between("alice", &name)).await;
        firsts.push(name);
    }
    world
        .bill("offline first send", 10, async |n| world.send("alice", &firsts[n as usize], Some(0)).await)
        .await;
    world.bill("offline further send", 10, async |_| world.send("alice", "carol", Some(0)).await).await;
    let row = world.store.pending.pending_row(&user("carol"), &ac).await.expect("the row");
    println!("{:<34} carol's pending row says {row:?} after 11 messages", "");

    let bob_from = 1;
    world
        .bill("ack", 10, async |n| {
            world.node.ack(world.receipt("bob", &ab, bob_from + u64::from(n))).await.expect("acked")
        })
        .await;
    let last = world.store.messages.last_seq(&ab).await.expect("the end");
    world
        .bill("read up to the end", 1, async |_| world.node.read(world.receipt("bob", &ab, last)).await)
        .await;
    for _ in 0..10 {
        world.send("alice", "bob", Some(0)).await;
    }
    world
        .bill("read up to the middle", 8, async |n| {
            world.node.read(world.receipt("bob", &ab, last + 1 + u64::from(n))).await
        })
        .await;

    for n in 0..40 {
        let peer = format!("peer{n:02}");
        match n % 2 {
            0 => {
                let seq = world.send("dave", &peer, None).await;
                let receipt = world.receipt(&peer, &between("dave", &peer), seq);
                world.node.ack(receipt).await.expect("acked");
                seq
            }
            _ => world.send(&peer, "dave", None).await,
        };
    }
    let inbox = async |_| {
        let query = InboxQuery { reference: None, limit: Some(20), before: None };
        let page = world.node.inbox(user("dave"), query).await.expect("a page");
        assert_eq!(page.conversations.len(), 20);
    };
    world.bill("inbox page of 20, order unknown", 1, inbox).await;
    world.bill("inbox page of 20 (10 with ticks)", 10, inbox).await;

    for (history, name) in [(0, "drain of 50"), (500, "drain of 50, after 500 others")] {
        let receiver = format!("erin{history}");
        let id = between("alice", &receiver);
        for _ in 0..history {
            world.send("alice", &receiver, Some(0)).await;
        }
        if history > 0 {
            world.node.ack(world.receipt(&receiver, &id, history)).await.expect("acked");
            settle(&id).await;
        }
        for _ in 0..50 {
            world.send("alice", &receiver, Some(0)).await;
        }
        world
            .bill(name, 1, async |_| {
                let request = PlanRequest {
                    user: user(&receiver),
                    cursor: None,
                    heads: false,
                    undelivered_after: None,
                };
                let plan = world.node.plan(request).await.expect("a plan");
                let lane = plan.lanes.first().expect("a lane");
                let row = lane.row.expect("a row");
                let range = RangeRequest {
                    user: user(&receiver),
                    conversation_id: id.clone(),
                    // As of a session whose device has seen nothing newer: from the row on.
                    from: ReadFrom::Since { since: MessageId::MAX, at_most: row },
                    max_messages: 100,
                    max_bytes: usize::MAX,
                };
                let range = world.node.read_range(range).await.expect("messages");
                assert_eq!(range.messages.len(), 50);
                world.node.ack(world.receipt(&receiver, &id, range.next_seq - 1)).await.expect("acked");
                let settle = SettleRequest { user: user(&receiver), conversation_id: id.clone(), row };
                world.node.settle(settle).await.expect("settled");
            })
            .await;
    }
}

async fn round_trips(world: &World) {
    println!("\nround trips to DynamoDB that a send waits for (its time / {} ms)\n", DELAY.as_millis());
    let measure = async |name: &str, to: &str, from: &str, seen: Option<Seq>| {
        let begun = Instant::now();
        world.send(from, to, seen).await;
        println!("{name:<34} {:.2}", begun.elapsed().as_secs_f64() / DELAY.as_secs_f64());
    };
    // The first send of a process also takes its lease.
    world.send("alice", "bob", Some(0)).await;
    world.send("alice", "carol", Some(0)).await;
    measure("online send", "bob", "alice", Some(0)).await;
    measure("offline further send", "carol", "alice", Some(0)).await;
    let last = world.store.messages.last_seq(&between("alice", "bob")).await.expect("the end");
    world.send("bob", "alice", None).await;
    measure("reply that implies a read", "alice", "bob", Some(last)).await;
    measure("first message to somebody new", "frank", "alice", Some(0)).await;
    measure("the second one", "frank", "alice", Some(0)).await;
}
