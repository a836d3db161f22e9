//! The inbox order: it answers only when complete, in the order of positions, is capped, and loses
//! nothing in a rebuild.

use std::{collections::BTreeMap, time::Duration};

use bluetick_protocol::ConversationId;
use bluetick_store::{INBOX_CAP, InboxPosition, InboxRead, Redis, conformance::Dice};

use crate::{
    conversation, on_both, servers,
    servers::{RedisServer, eventually},
    user,
};

on_both! {
    nothing_is_read_off_an_incomplete_set
    a_rebuild_loses_no_touch
    rebuilds_at_once_leave_a_complete_set
    what_is_removed_does_not_come_back
    pages_follow_the_positions
    since_lists_what_is_new
    a_full_set_says_where_it_ends
    rebuilds_and_sends_at_once_agree
}

const BUILT: u64 = 1_760_000_000_000;

fn page(ids: &[(&ConversationId, u64)], more: bool) -> InboxRead {
    let ids = ids.iter().map(|(id, ts)| ((*id).clone(), *ts)).collect();
    InboxRead::Page { ids, more, built_at: BUILT }
}

async fn build(redis: &Redis, name: &str, rows: &[(ConversationId, u64)]) {
    let token = redis.inbox_begin(&user(name)).await.unwrap();
    assert!(redis.inbox_finish(&user(name), &token, rows, BUILT).await.unwrap());
}

async fn nothing_is_read_off_an_incomplete_set(redis: Redis) {
    let (alice, bob) = (user("alice"), conversation("alice", "bob"));
    assert_eq!(redis.inbox_page(&alice, None, 10).await.unwrap(), InboxRead::Incomplete);
    redis.inbox_touch(&alice, &bob, 5).await.unwrap();
    assert_eq!(redis.inbox_page(&alice, None, 10).await.unwrap(), InboxRead::Incomplete, "one is not all");
    let token = redis.inbox_begin(&alice).await.unwrap();
    redis.inbox_touch(&alice, &bob, 5).await.unwrap();
    assert_eq!(redis.inbox_since(&alice, 0, 10).await.unwrap(), InboxRead::Incomplete);
    assert!(!redis.inbox_finish(&alice, "another", &[], BUILT).await.unwrap(), "only with the right token");
    assert_eq!(redis.inbox_page(&alice, None, 10).await.unwrap(), InboxRead::Incomplete);
    assert!(redis.inbox_finish(&alice, &token, &[], BUILT).await.unwrap());
    assert_eq!(redis.inbox_page(&alice, None, 10).await.unwrap(), page(&[(&bob, 5)], false));
    redis.inbox_forget(&alice).await.unwrap();
    assert_eq!(redis.inbox_page(&alice, None, 10).await.unwrap(), InboxRead::Incomplete);
    redis.inbox_touch(&alice, &bob, 6).await.unwrap();
    assert_eq!(redis.inbox_page(&alice, None, 10).await.unwrap(), InboxRead::Incomplete);

    build(&redis, "carol", &[]).await;
    assert_eq!(
        redis.inbox_page(&user("carol"), None, 10).await.unwrap(),
        page(&[], false),
        "an empty inbox is one"
    );
}

async fn a_rebuild_loses_no_touch(redis: Redis) {
    let alice = user("alice");
    let [bob, carol, dave] = ["bob", "carol", "dave"].map(|name| conversation("alice", name));
    let token = redis.inbox_begin(&alice).await.unwrap();
    // Read: bob at 10, carol at 20. Meanwhile bob is at 30, dave is new, and carol's is told late.
    redis.inbox_touch(&alice, &bob, 30).await.unwrap();
    redis.inbox_touch(&alice, &dave, 25).await.unwrap();
    redis.inbox_touch(&alice, &carol, 15).await.unwrap();
    assert!(
        redis.inbox_finish(&alice, &token, &[(bob.clone(), 10), (carol.clone(), 20)], BUILT).await.unwrap()
    );
    let expected = page(&[(&bob, 30), (&dave, 25), (&carol, 20)], false);
    assert_eq!(redis.inbox_page(&alice, None, 10).await.unwrap(), expected);
    redis.inbox_touch(&alice, &bob, 1).await.unwrap();
    assert_eq!(redis.inbox_page(&alice, None, 10).await.unwrap(), expected, "it never moves down");
    // Forgotten in the middle: what was read must not become a set that lacks what came before it
    // was open again.
    let token = redis.inbox_begin(&alice).await.unwrap();
    redis.inbox_forget(&alice).await.unwrap();
    redis.inbox_touch(&alice, &bob, 40).await.unwrap();
    assert!(!redis.inbox_finish(&alice, &token, &[(bob.clone(), 30)], BUILT).await.unwrap());
    assert_eq!(redis.inbox_page(&alice, None, 10).await.unwrap(), InboxRead::Incomplete);
}

async fn rebuilds_at_once_leave_a_complete_set(redis: Redis) {
    let alice = user("alice");
    let [bob, carol] = ["bob", "carol"].map(|name| conversation("alice", name));
    let first = redis.inbox_begin(&alice).await.unwrap();
    let second = redis.inbox_begin(&alice).await.unwrap();
    redis.inbox_touch(&alice, &carol, 7).await.unwrap();
    assert!(redis.inbox_finish(&alice, &first, &[(bob.clone(), 5)], BUILT).await.unwrap());
    let expected = page(&[(&carol, 7), (&bob, 5)], false);
    assert_eq!(redis.inbox_page(&alice, None, 10).await.unwrap(), expected);
    redis.inbox_finish(&alice, &second, &[(bob.clone(), 5)], BUILT).await.unwrap();
    assert_eq!(redis.inbox_page(&alice, None, 10).await.unwrap(), expected);
    // A later rebuild of a complete set never takes it away from readers.
    let third = redis.inbox_begin(&alice).await.unwrap();
    assert_eq!(redis.inbox_page(&alice, None, 10).await.unwrap(), expected);
    assert!(redis.inbox_finish(&alice, &third, &[(bob.clone(), 9)], BUILT + 1).await.unwrap());
    let ids = vec![(bob, 9), (carol, 7)];
    let expected = InboxRead::Page { ids, more: false, built_at: BUILT + 1 };
    assert_eq!(redis.inbox_page(&alice, None, 10).await.unwrap(), expected);
}

async fn what_is_removed_does_not_come_back(redis: Redis) {
    let alice = user("alice");
    let [bob, carol] = ["bob", "carol"].map(|name| conversation("alice", name));
    build(&redis, "alice", &[(bob.clone(), 5), (carol.clone(), 6)]).await;
    let token = redis.inbox_begin(&alice).await.unwrap();
    redis.inbox_remove(&alice, &bob).await.unwrap();
    let read_before = [(bob.clone(), 5), (carol.clone(), 6)];
    assert!(!redis.inbox_finish(&alice, &token, &read_before, BUILT).await.unwrap());
    assert_eq!(redis.inbox_page(&alice, None, 10).await.unwrap(), page(&[(&carol, 6)], false));
}

/// Random pages against a sorted list, with many equal times and names that sort by bytes.
async fn pages_follow_the_positions(redis: Redis) {
    let alice = user("alice");
    let mut dice = Dice::new(4);
    let mut rows = BTreeMap::new();
    for n in 0..300 {
        let name = match n % 4 {
            0 => format!("U{n}"),
            1 => format!("u{n}"),
            2 => format!("_{n}"),
            _ => format!("a{n}.@"),
        };
        rows.insert(conversation("alice", &name), 1_000 + dice.below(8));
    }
    let listed: Vec<_> = rows.iter().map(|(id, ts)| (id.clone(), *ts)).collect();
    build(&redis, "alice", &listed).await;
    let mut sorted: Vec<_> = listed
        .iter()
        .map(|(id, ts)| InboxPosition { last_message_ts: *ts, conversation_id: id.clone() })
        .collect();
    sorted.sort();
    sorted.reverse();
    for _ in 0..200 {
        // A position that is in the list, or one that is not.
        let after = match dice.below(5) {
            0 => None,
            1 => Some(InboxPosition {
                last_message_ts: 998 + dice.below(12),
                conversation_id: conversation("alice", &format!("u{}x", dice.below(300))),
            }),
            _ => Some(dice.pick(&sorted).clone()),
        };
        let limit = 1 + dice.below(40) as usize;
        let rest: Vec<_> = sorted.iter().filter(|p| after.as_ref().is_none_or(|after| *p < after)).collect();
        let expected: Vec<_> =
            rest.iter().take(limit).map(|p| (&p.conversation_id, p.last_message_ts)).collect();
        let read = redis.inbox_page(&alice, after.as_ref(), limit).await.unwrap();
        assert_eq!(read, page(&expected, rest.len() > limit), "after {after:?}, {limit}");
    }
    let last = InboxPosition { last_message_ts: u64::MAX, conversation_id: conversation("alice", "zz") };
    let InboxRead::Page { ids, .. } = redis.inbox_page(&alice, Some(&last), 1).await.unwrap() else {
        panic!("a page");
    };
    assert_eq!(ids[0].0, sorted[0].conversation_id);
}

async fn since_lists_what_is_new(redis: Redis) {
    let alice = user("alice");
    let ids = ["b", "c", "d", "e"].map(|name| conversation("alice", name));
    let rows: Vec<_> = ids.iter().cloned().zip([10, 20, 20, 30]).collect();
    build(&redis, "alice", &rows).await;
    let since = async |ms, limit| redis.inbox_since(&alice, ms, limit).await.unwrap();
    assert_eq!(since(20, 10).await, page(&[(&ids[3], 30), (&ids[2], 20), (&ids[1], 20)], false));
    assert_eq!(since(20, 2).await, page(&[(&ids[3], 30), (&ids[2], 20)], true));
    assert_eq!(since(21, 10).await, page(&[(&ids[3], 30)], false));
    assert_eq!(since(31, 10).await, page(&[], false));
    let InboxRead::Page { ids: all, more: false, .. } = since(0, 4).await else { panic!("all of them") };
    assert_eq!(all.len(), 4, "markers are no conversations");
}

async fn a_full_set_says_where_it_ends(redis: Redis) {
    let alice = user("alice");
    let id = |n: usize| conversation("alice", &format!("user{n:06}"));
    let full = INBOX_CAP;
    let rows: Vec<_> = (0..full).map(|n| (id(n), 1_000 + n as u64)).collect();
    build(&redis, "alice", &rows).await;
    let bottom = InboxPosition { last_message_ts: 1_001, conversation_id: id(1) };
    let read = redis.inbox_page(&alice, Some(&bottom), 10).await.unwrap();
    assert_eq!(read, page(&[(&id(0), 1_000)], false), "as many as fit are all there");

    redis.inbox_touch(&alice, &id(full), 50_000).await.unwrap();
    assert_eq!(redis.inbox_page(&alice, Some(&bottom), 10).await.unwrap(), InboxRead::BeyondCap);
    let above = InboxPosition { last_message_ts: 1_003, conversation_id: id(3) };
    let read = redis.inbox_page(&alice, Some(&above), 2).await.unwrap();
    assert_eq!(read, page(&[(&id(2), 1_002), (&id(1), 1_001)], true), "a page that is full is good");
    assert_eq!(redis.inbox_page(&alice, Some(&above), 3).await.unwrap(), InboxRead::BeyondCap);
    assert_eq!(redis.inbox_since(&alice, 1_000, 2 * full).await.unwrap(), InboxRead::BeyondCap);
    let InboxRead::Page { ids, more, .. } = redis.inbox_since(&alice, 1_001, 2 * full).await.unwrap() else {
        panic!("nothing newer than what was cut is missing");
    };
    assert_eq!((ids.len(), more), (full, false));

    // Room at the bottom is not for what is older than something that was cut.
    redis.inbox_remove(&alice, &id(5)).await.unwrap();
    redis.inbox_remove(&alice, &id(6)).await.unwrap();
    redis.inbox_touch(&alice, &id(full + 1), 500).await.unwrap();
    assert_eq!(redis.inbox_since(&alice, 1, 2 * full).await.unwrap(), InboxRead::BeyondCap);
    let InboxRead::Page { ids, .. } = redis.inbox_since(&alice, 1_001, 2 * full).await.unwrap() else {
        panic!("still so");
    };
    assert_eq!(ids.len(), full - 2);

    // And a rebuild from more than fit knows it, too.
    let bob = user("bob");
    let rows: Vec<_> =
        (0..full + 5).map(|n| (conversation("bob", &format!("user{n:06}")), 1_000 + n as u64)).collect();
    build(&redis, "bob", &rows).await;
    let InboxRead::Page { ids, more: true, .. } = redis.inbox_page(&bob, None, full).await.unwrap() else {
        panic!("a full page, with more behind it");
    };
    assert_eq!(ids.last().unwrap().1, 1_005);
    assert_eq!(redis.inbox_page(&bob, None, full + 1).await.unwrap(), InboxRead::BeyondCap);
}

/// Senders write a row and touch; readers rebuild whenever they must, forget now and then, and what
/// they read off a complete set is never behind the rows that were written and told before.
async fn rebuilds_and_sends_at_once_agree(redis: Redis) {
    let rows = std::sync::Arc::new(parking_lot::Mutex::new(BTreeMap::<ConversationId, u64>::new()));
    let told = std::sync::Arc::new(parking_lot::Mutex::new(BTreeMap::<ConversationId, u64>::new()));
    let mut tasks = Vec::new();
    for sender in 0..3u64 {
        let (redis, rows, told) = (redis.clone(), rows.clone(), told.clone());
        tasks.push(tokio::spawn(async move {
            let mut dice = Dice::new(sender);
            for n in 0..150u64 {
                let (id, ts) = (conversation("alice", &format!("user{}", dice.below(40))), 1_000 + n);
                rows.lock().entry(id.clone()).and_modify(|old| *old = ts.max(*old)).or_insert(ts);
                redis.inbox_touch(&user("alice"), &id, ts).await.unwrap();
                told.lock().entry(id).and_modify(|old| *old = ts.max(*old)).or_insert(ts);
            }
        }));
    }
    for reader in 0..3u64 {
        let (redis, rows, told) = (redis.clone(), rows.clone(), told.clone());
        tasks.push(tokio::spawn(async move {
            let (alice, mut dice) = (user("alice"), Dice::new(100 + reader));
            for _ in 0..100 {
                if dice.one_in(10) {
                    redis.inbox_forget(&alice).await.unwrap();
                }
                let before = told.lock().clone();
                match redis.inbox_since(&alice, 0, 1_000).await.unwrap() {
                    InboxRead::Page { ids, .. } => {
                        let read: BTreeMap<_, _> = ids.into_iter().collect();
                        for (id, ts) in before {
                            assert!(read.get(&id).is_some_and(|read| *read >= ts), "{id} at {ts} is missing");
                        }
                    }
                    _ => {
                        let token = redis.inbox_begin(&alice).await.unwrap();
                        let read: Vec<_> = rows.lock().iter().map(|(id, ts)| (id.clone(), *ts)).collect();
                        tokio::time::sleep(Duration::from_millis(dice.below(4))).await;
                        redis.inbox_finish(&alice, &token, &read, BUILT).await.unwrap();
                    }
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

/// A touch that got lost would hide a conversation from a device that resumes, so its order is
/// forgotten.
#[tokio::test]
async fn an_order_that_missed_a_touch_is_forgotten() {
    let server = RedisServer::start(&[]);
    let redis = servers::connect(&server.url());
    let (alice, bob) = (user("alice"), conversation("alice", "bob"));
    build(&redis, "alice", &[(bob.clone(), 1)]).await;
    build(&redis, "carol", &[]).await;
    server.pause();
    redis.inbox_touch(&alice, &bob, 2).await.unwrap_err();
    redis.inbox_touch(&alice, &bob, 3).await.unwrap_err();
    server.resume();
    eventually("the order is gone", async || {
        let read = redis.inbox_page(&alice, None, 10).await;
        matches!(read, Ok(InboxRead::Incomplete)).then_some(())
    })
    .await;
    assert_eq!(redis.inbox_page(&user("carol"), None, 10).await.unwrap(), page(&[], false), "others are not");
}
