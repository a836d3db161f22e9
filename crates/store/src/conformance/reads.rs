//! `messages`: reading by position.

use bluetick_protocol::{MessageId, Seq, Side};

use super::fixture::Fixture;
use crate::{
    PageLimit,
    testing::{conversation, message},
};

fn seqs(messages: &[std::sync::Arc<crate::Message>]) -> Vec<Seq> {
    messages.iter().map(|m| m.seq).collect()
}

pub async fn reading_forward_pages_by_count(t: &Fixture) {
    let id = conversation("alice~bob");
    t.send_many(&id, Side::Low, 10).await;
    let read =
        async |from, n| seqs(&t.store.messages.read_from(&id, from, PageLimit::messages(n)).await.unwrap());
    assert_eq!(read(1, 4).await, [1, 2, 3, 4]);
    assert_eq!(read(5, 4).await, [5, 6, 7, 8]);
    assert_eq!(read(9, 4).await, [9, 10], "the last page is short");
    assert_eq!(read(0, 2).await, [1, 2], "0 is before the first");
    assert_eq!(read(10, 1).await, [10]);
    assert!(read(11, 4).await.is_empty(), "there is nothing past the last");
    assert!(read(Seq::MAX, 4).await.is_empty());
}

pub async fn reading_backward_pages_by_count(t: &Fixture) {
    let id = conversation("alice~bob");
    t.send_many(&id, Side::Low, 10).await;
    let read = async |before, n| {
        seqs(&t.store.messages.read_before(&id, before, PageLimit::messages(n)).await.unwrap())
    };
    assert_eq!(read(Seq::MAX, 4).await, [7, 8, 9, 10], "the newest page, in order");
    assert_eq!(read(7, 4).await, [3, 4, 5, 6], "the page just before a seq, without it");
    assert_eq!(read(3, 4).await, [1, 2]);
    assert!(read(1, 4).await.is_empty());
    assert!(read(0, 4).await.is_empty());
    assert_eq!(read(50, 1).await, [10]);
}

pub async fn pages_are_bounded_by_bytes(t: &Fixture) {
    let id = conversation("alice~bob");
    for (n, bytes) in [10_000, 10_000, 50_000, 10_000, 10_000].into_iter().enumerate() {
        let body = "x".repeat(bytes);
        t.send(message(&id, Side::Low, &format!("m{n}")).body(body)).await;
    }
    // Far from a border, so that neither the first message nor what a backend counts beside the
    // bodies matters.
    let limit = PageLimit { messages: 100, bytes: 35_000 };
    let forward = t.store.messages.read_from(&id, 1, limit).await.unwrap();
    assert_eq!(seqs(&forward), [1, 2], "the one that would go far beyond the limit waits for the next page");
    let backward = t.store.messages.read_before(&id, Seq::MAX, limit).await.unwrap();
    assert_eq!(seqs(&backward), [4, 5], "backwards it is the newest that fit");
}

pub async fn one_message_comes_however_large(t: &Fixture) {
    let id = conversation("alice~bob");
    for n in 0..3 {
        let body = "x".repeat(10_000);
        t.send(message(&id, Side::Low, &format!("m{n}")).body(body)).await;
    }
    for limit in [PageLimit { messages: 5, bytes: 100 }, PageLimit { messages: 5, bytes: 0 }] {
        let forward = t.store.messages.read_from(&id, 2, limit).await.unwrap();
        assert_eq!(seqs(&forward), [2], "a message larger than a page must not stop a reader");
        let backward = t.store.messages.read_before(&id, 3, limit).await.unwrap();
        assert_eq!(seqs(&backward), [2]);
    }
}

pub async fn an_unknown_conversation_is_empty(t: &Fixture) {
    t.send_many(&conversation("alice~bob"), Side::Low, 2).await;
    for id in ["alice~bobby", "alice~bo", "a~b", "bob~carol"].map(conversation) {
        let limit = PageLimit::messages(10);
        assert!(t.store.messages.read_from(&id, 1, limit).await.unwrap().is_empty(), "{id}");
        assert!(t.store.messages.read_before(&id, Seq::MAX, limit).await.unwrap().is_empty(), "{id}");
        assert_eq!(t.store.messages.last_seq(&id).await.unwrap(), 0, "{id}");
    }
}

pub async fn find_by_message_id(t: &Fixture) {
    let mut sent = Vec::new();
    for id in ["alice~bob", "alice~carol"].map(conversation) {
        for n in 0..5 {
            t.clock.advance(n % 2);
            sent.push(t.send(message(&id, Side::Low, &format!("m{n}"))).await.message);
        }
    }
    for message in &sent {
        let found = t.store.messages.find(message.message_id).await.unwrap();
        assert_eq!(found.as_ref(), Some(message));
    }
    for unknown in [MessageId(0), MessageId(12_345), MessageId::MAX] {
        assert_eq!(t.store.messages.find(unknown).await.unwrap(), None, "{unknown}");
    }
}

/// A real hole needs a backend that can be disturbed; that everything else is left alone holds on
/// all.
pub async fn closing_what_is_no_hole_changes_nothing(t: &Fixture) {
    let id = conversation("alice~bob");
    t.send_many(&id, Side::Low, 3).await;
    let before = t.all(&id).await;
    for seq in 1..=3 {
        t.store.messages.close_hole(&id, seq).await.unwrap();
    }
    assert_eq!(t.all(&id).await, before, "a message is never made void by closing a hole");
    assert_eq!(t.send_many(&id, Side::Low, 1).await, 4);
}
