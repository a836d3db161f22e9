//! R13: what waits for a socket is bounded in encoded bytes, and a reader is judged by bytes a second.

use std::time::Duration;

use bluetick_chat::HistoryApi as _;
use bluetick_protocol::{ErrorCode, HistoryPage, HistoryQuery, Seq, ServerFrame, limits};
use serde_json::json;

use crate::harness::{Client, Setup, World, conversation, message, phone, user};

/// Stores messages whose bodies begin with a number and are filled up with this.
async fn send_many(world: &World, count: usize, bytes: usize, filling: &str) {
    for n in 1..=count {
        world.clock.advance(1);
        let number = format!("{n:08}");
        let body = number.clone() + &filling.repeat(bytes - number.len());
        let send = bluetick_protocol::Send { body, ..message("bob", &number) };
        world.send_frame("alice", send).await.unwrap();
    }
}

fn ask_for_history(client: &Client, after: Option<Seq>) {
    client.say(json!({"type": "history", "conversation_id": "alice~bob", "after_seq": after, "limit": 200}));
}

fn histories(client: &Client) -> usize {
    client.frames().iter().filter(|frame| matches!(frame, ServerFrame::History(_))).count()
}

async fn page(world: &World, after_seq: Option<Seq>, before_seq: Option<Seq>) -> HistoryPage {
    let query = HistoryQuery {
        reference: None,
        conversation_id: conversation("alice~bob"),
        after_seq,
        before_seq,
        limit: Some(200),
    };
    let page = world.node.history(user("bob"), query).await.unwrap();
    let bytes = ServerFrame::History(page.clone()).to_text().len();
    let first = page.messages.first().map_or(0, |m| ServerFrame::Message(m.clone()).to_text().len());
    assert!(bytes <= limits::PAGE_ENCODED_MAX_BYTES.max(first) + 1024, "{bytes} bytes in a page");
    page
}

#[tokio::test(start_paused = true)]
async fn pages_end_where_they_would_be_too_long_on_the_wire_and_cover_everything() {
    let world = World::new();
    send_many(&world, 20, 16 * 1024, "\u{1}").await;
    for (kind, bytes) in [("one\"\n", 3000), ("plain", 16 * 1024)] {
        for n in 0..30 {
            let body = kind.repeat(bytes / kind.len());
            let send = bluetick_protocol::Send { body, ..message("bob", &format!("{kind:?}{n}")) };
            world.send_frame("alice", send).await.unwrap();
        }
    }
    let (mut forwards, mut after, mut pages) = (Vec::new(), Some(0), 0);
    while let Some(from) = after {
        let page = page(&world, Some(from), None).await;
        assert_eq!(page.from_seq, from + 1);
        assert_eq!(page.messages.last().map(|m| m.seq), Some(page.to_seq));
        assert_eq!(page.next, Some(page.to_seq).filter(|&to| to < 80));
        forwards.extend(page.messages.iter().map(|m| m.seq));
        (after, pages) = (page.next, pages + 1);
    }
    assert_eq!(forwards, (1..=80).collect::<Vec<_>>());
    assert!(pages >= 12, "{pages} pages");
    let (mut backwards, mut before) = (Vec::new(), Some(None));
    while let Some(until) = before {
        let page = page(&world, None, until).await;
        assert_eq!(page.to_seq, until.unwrap_or(81) - 1);
        assert_eq!(page.messages.first().map(|m| m.seq), Some(page.from_seq));
        assert_eq!(page.next, Some(page.from_seq).filter(|&from| from > 1));
        backwards.extend(page.messages.iter().rev().map(|m| m.seq));
        before = page.next.map(Some);
    }
    assert_eq!(backwards, (1..=80).rev().collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_body_longer_than_a_page_has_a_page_of_its_own() {
    let mut setup = Setup::default();
    setup.chat.max_body_bytes = limits::BODY_HARD_MAX_BYTES;
    let world = World::with(setup);
    send_many(&world, 3, 100_000, "\u{1}").await;
    for seq in 1..=3 {
        let page = page(&world, Some(seq - 1), None).await;
        assert_eq!((page.messages.len(), page.to_seq), (1, seq));
        let page = self::page(&world, None, Some(seq + 1)).await;
        assert_eq!((page.messages.len(), page.from_seq), (1, seq));
    }
}

#[tokio::test(start_paused = true)]
async fn no_request_is_started_while_too_much_waits_for_the_socket() {
    let world = World::new();
    send_many(&world, 40, 16 * 1024, "\u{1}").await;
    let bob = world.connected(phone("bob").without_acks()).await;
    assert_eq!(bob.messages().len(), 40);
    bob.take_only(0);
    for _ in 0..8 {
        ask_for_history(&bob, Some(0));
    }
    bob.send("carol", "behind-the-histories");
    bob.ack("alice~bob", 40);
    world.quiet().await;
    assert!(world.inbox("carol").await.is_empty(), "nobody reads the answers, so there are no more");
    assert_eq!(world.status("bob", "alice~bob").await.own.last_delivered_seq, 40, "acks still count");
    bob.take_only(usize::MAX);
    world.quiet().await;
    assert_eq!((histories(&bob), bob.sent().len()), (8, 1));
    assert_eq!(world.inbox("carol").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reader_at_a_fair_rate_stays_though_its_acks_are_behind_its_requests() {
    let world = World::new();
    send_many(&world, 40, 16 * 1024, "\u{1}").await;
    let bob = world.connect(phone("bob").without_acks());
    world.quiet().await;
    for _ in 0..70 {
        ask_for_history(&bob, Some(0));
    }
    bob.ack("alice~bob", 40);
    // An answer takes some 200 KiB: about 20 KiB a second.
    let mut taken = 0;
    while histories(&bob) < 70 {
        bob.take_only(1);
        world.pass(Duration::from_secs(10)).await;
        assert!(!bob.has_ended(), "ended after {} histories: {:?}", histories(&bob), bob.bye());
        taken += 1;
        assert!(taken < 400);
    }
    bob.take_only(usize::MAX);
    world.quiet().await;
    assert_eq!(world.status("bob", "alice~bob").await.own.last_delivered_seq, 40);
    assert_eq!(bob.bye(), None);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_a_little_now_and_then_is_ended() {
    let world = World::new();
    send_many(&world, 4, 3000, "x").await;
    let bob = world.connected(phone("bob")).await;
    bob.take_only(0);
    for _ in 0..40 {
        ask_for_history(&bob, Some(0));
    }
    // Some 12 KiB every seven seconds, of nearly 500 KiB.
    for _ in 0..2 {
        bob.take_only(1);
        world.pass(Duration::from_secs(7)).await;
        assert!(!bob.has_ended());
    }
    for _ in 0..3 {
        bob.take_only(1);
        world.pass(Duration::from_secs(7)).await;
    }
    assert!(bob.has_ended(), "a trickle does not keep a backlog");
    assert!(histories(&bob) < 10);
    world.send("alice", "bob", "later").await;
    let bob = world.connected(phone("bob")).await;
    assert_eq!(bob.bodies(), ["later"]);
}

#[tokio::test(start_paused = true)]
async fn who_is_ended_for_reading_too_slowly_may_still_hear_why() {
    let world = World::new();
    send_many(&world, 4, 3000, "x").await;
    let bob = world.connected(phone("bob")).await;
    bob.take_only(0);
    for _ in 0..40 {
        ask_for_history(&bob, Some(0));
    }
    // It ends after 20 seconds, and has two for its last words.
    world.pass(Duration::from_secs(21)).await;
    bob.take_only(usize::MAX);
    world.pass(Duration::from_secs(2)).await;
    assert_eq!(bob.bye(), Some(ErrorCode::SlowReader));
    assert_eq!(histories(&bob), 0, "what waited was let go");
}
