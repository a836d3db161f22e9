//! Old messages of a cluster: moved from DynamoDB into a bucket by whichever app server is asked, and read through any.

use std::{sync::Arc, time::Duration};

use bluetick_protocol::{Seq, Side};
use bluetick_store::{
    DistributedConfig, ManualClock, RedisConfig, RedisMode, Store, dynamo::DynamoConfig, testing::message,
};

use crate::{attachments, harness::*, tables::service};

const DAY: u64 = 24 * 3_600_000;
const ID: &str = "alice~bob";
const MESSAGES: u64 = 1_500;

/// Two years of a conversation, written as by app servers of then, which knew no cold tier.
async fn fill(prefix: &str) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let begin = now - 730 * DAY;
    let clock = Arc::new(ManualClock::new(begin));
    let config = DistributedConfig {
        dynamo: DynamoConfig {
            endpoint: Some(service("BLUETICK_TEST_DYNAMODB")),
            table_prefix: prefix.to_owned(),
            deadline: Duration::from_secs(20),
            ..DynamoConfig::default()
        },
        redis: RedisConfig {
            urls: vec![service("BLUETICK_TEST_REDIS")],
            mode: RedisMode::Single,
            prefix: prefix.to_owned(),
            deadline: Duration::from_secs(5),
        },
        idempotency_window: Duration::from_secs(30 * 24 * 3600),
        objects: None,
        cold_after: None,
    };
    let (store, _, _) = Store::distributed(config, clock.clone()).await.unwrap();
    let id = conversation(ID);
    for from in (1..=MESSAGES).step_by(25) {
        let new = |seq: u64| message(&id, Side::Low, &format!("phone-{seq}")).body(format!("message {seq}"));
        for committed in store.messages.commit_sends((from..from + 25).map(new).collect()).await {
            committed.unwrap();
        }
        clock.advance(729 * DAY * 25 / MESSAGES);
    }
    store.status.advance(&id.member(Side::High), &id, MESSAGES, 0).await.unwrap();
    store.maintenance.close().await.unwrap();
}

async fn is_whole(person: &mut Person, messages: u64) {
    let (mut before, mut seqs) = (None, Vec::new());
    loop {
        let page = person.history(ID, None, before, 50).await;
        assert!(page.messages.iter().all(|m| m.body == format!("message {}", m.seq)));
        seqs.extend(page.messages.iter().rev().map(|m| m.seq));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(seqs, (1..=messages).rev().collect::<Vec<Seq>>());
}

#[tokio::test]
async fn two_years_go_into_the_bucket_and_are_read_from_there() {
    let mut server = attachments::server();
    let prefix = server.deployment.cluster().tables.prefix.clone();
    fill(&prefix).await;
    let mut alice = server.connect("alice", "phone").await;
    is_whole(&mut alice, MESSAGES).await;
    // Nobody listed it when it was written: it is found by a look at all conversations.
    let moved = |args: &[&str]| {
        let output = server.run(args);
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{said}");
        said
    };
    assert!(moved(&["cold", "run"]).contains("moved 0 messages"));
    let said = moved(&["cold", "run", "--all"]);
    assert!(said.contains("looked at 1 conversations, moved 14"), "{said}");
    is_whole(&mut alice, MESSAGES).await;
    let mut bob = server.connect("bob", "phone").await;
    is_whole(&mut bob, MESSAGES).await;
    bob.read(ID, 1_000).await;
    let unread = async |bob: &mut Person| bob.inbox(None, None).await.conversations[0].unread_count;
    while unread(&mut bob).await == MESSAGES {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(unread(&mut bob).await, MESSAGES - 1_000);
    assert!(moved(&["cold", "verify"]).contains("with 14"));
    assert!(moved(&["cold", "status"]).contains("s3://"));
    assert_eq!(alice.send("bob", "message 1501").await.seq, MESSAGES + 1);
    is_whole(&mut bob, MESSAGES + 1).await;
    // What Alice wrote is erased in the bucket as well.
    moved(&["erase", "--user", "alice", "--yes"]);
    assert!(bob.history(ID, None, None, 50).await.messages.is_empty());
    assert!(bob.history(ID, Some(0), None, 50).await.messages.is_empty());
}
