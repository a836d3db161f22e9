//! `message_status`: two boundaries that only grow, and the read that a reply implies (R10).

use bluetick_protocol::{Seq, Side};

use super::fixture::Fixture;
use crate::{
    StatusRow,
    testing::{conversation, message, user},
};

/// A user's boundaries in `alice~bob`.
fn row(name: &str, last_delivered_seq: Seq, last_read_seq: Seq) -> StatusRow {
    StatusRow {
        user_id: user(name),
        conversation_id: conversation("alice~bob"),
        last_delivered_seq,
        last_read_seq,
    }
}

pub async fn no_row_before_the_first_receipt(t: &Fixture) {
    let (bob, id) = (user("bob"), conversation("alice~bob"));
    t.send_many(&id, Side::Low, 3).await;
    assert_eq!(t.store.status.statuses_of(&bob).await.unwrap(), [], "a message makes no row");
    assert_eq!(t.store.status.status(&bob, &id).await.unwrap(), row("bob", 0, 0), "zeros stand for no row");
    let nothing = t.store.status.advance(&bob, &id, 0, 0).await.unwrap();
    assert!(!nothing.moved);
    assert_eq!(t.store.status.statuses_of(&bob).await.unwrap(), [], "nor does a receipt of nothing");
    t.store.status.advance(&bob, &id, 1, 0).await.unwrap();
    assert_eq!(t.store.status.statuses_of(&bob).await.unwrap(), [row("bob", 1, 0)], "the first ack does");

    let ids = ["bob~zoe", "bob~carol"].map(conversation);
    for id in &ids {
        t.send_many(id, Side::High, 1).await;
        t.store.status.advance(&bob, id, 1, 1).await.unwrap();
    }
    let rows = t.store.status.statuses_of(&bob).await.unwrap();
    let listed: Vec<_> = rows.iter().map(|r| r.conversation_id.as_str()).collect();
    assert_eq!(listed, ["alice~bob", "bob~carol", "bob~zoe"], "rows come in order of conversation");
}

pub async fn receipts_only_grow(t: &Fixture) {
    let (bob, id) = (user("bob"), conversation("alice~bob"));
    t.send_many(&id, Side::Low, 9).await;
    let steps = [
        ((5, 0), (5, 0), true),
        ((3, 0), (5, 0), false),
        ((5, 2), (5, 2), true),
        ((0, 1), (5, 2), false),
        ((7, 2), (7, 2), true),
        ((7, 2), (7, 2), false),
        ((0, 7), (7, 7), true),
        ((0, 0), (7, 7), false),
    ];
    for ((delivered, read), (is_delivered, is_read), moved) in steps {
        let advanced = t.store.status.advance(&bob, &id, delivered, read).await.unwrap();
        assert_eq!(advanced.row, row("bob", is_delivered, is_read), "after ({delivered}, {read})");
        assert_eq!(advanced.moved, moved, "after ({delivered}, {read})");
        assert_eq!(t.store.status.status(&bob, &id).await.unwrap(), advanced.row);
    }
    assert_eq!(
        t.store.status.status(&user("alice"), &id).await.unwrap(),
        row("alice", 0, 0),
        "each has their own"
    );
}

pub async fn read_implies_delivered(t: &Fixture) {
    let (bob, id) = (user("bob"), conversation("alice~bob"));
    t.send_many(&id, Side::Low, 5).await;
    let advanced = t.store.status.advance(&bob, &id, 1, 4).await.unwrap();
    assert_eq!(advanced.row, row("bob", 4, 4));
    let advanced = t.store.status.advance(&bob, &id, 5, 0).await.unwrap();
    assert_eq!(advanced.row, row("bob", 5, 4), "delivered does not imply read");
}

pub async fn receipts_are_clamped_to_the_last_seq(t: &Fixture) {
    let (bob, id) = (user("bob"), conversation("alice~bob"));
    t.send_many(&id, Side::Low, 3).await;
    let advanced = t.store.status.advance(&bob, &id, Seq::MAX, 2).await.unwrap();
    assert_eq!(advanced.row, row("bob", 3, 2));
    let advanced = t.store.status.advance(&bob, &id, 0, 1_000_000).await.unwrap();
    assert_eq!(advanced.row, row("bob", 3, 3));
    t.send_many(&id, Side::Low, 1).await;
    assert_eq!(
        t.store.status.status(&bob, &id).await.unwrap(),
        row("bob", 3, 3),
        "a receipt from the future does not tick what comes later"
    );
}

pub async fn receipts_do_not_cover_what_is_withheld_at_the_end(t: &Fixture) {
    let (bob, id) = (user("bob"), conversation("alice~bob"));
    t.send_many(&id, Side::Low, 2).await;
    t.send(message(&id, Side::Low, "unseen").withheld(true)).await;
    let advanced = t.store.status.advance(&bob, &id, 3, 3).await.unwrap();
    assert_eq!(
        (advanced.row.last_delivered_seq, advanced.row.last_read_seq),
        (2, 2),
        "a single tick for ever"
    );
}

pub async fn all_is_acked_only_when_it_is(t: &Fixture) {
    let (alice, bob, id) = (user("alice"), user("bob"), conversation("alice~bob"));
    // A backend that cannot tell says no, here already.
    let tells = t.store.status.has_acked_all(&bob, &id).await.unwrap();
    let check = async |when: &str, alices: bool, bobs: bool| {
        for (member, expected) in [(&alice, alices), (&bob, bobs)] {
            let said = t.store.status.has_acked_all(member, &id).await.unwrap();
            assert_eq!(said, expected && tells, "{member} {when}");
        }
    };
    t.send_many(&id, Side::Low, 3).await;
    check("with three of alice's", true, false).await;
    t.store.status.advance(&bob, &id, 2, 0).await.unwrap();
    check("with one of them left", true, false).await;
    t.store.status.advance(&bob, &id, 3, 0).await.unwrap();
    check("with none of them left", true, true).await;
    t.send(message(&id, Side::Low, "unseen").withheld(true)).await;
    check("with one that bob never sees", true, true).await;
    t.send_many(&id, Side::High, 20).await;
    check("with twenty of bob's", false, true).await;
    t.send_many(&id, Side::Low, 1).await;
    check("with one more for bob", false, false).await;
    t.store.status.advance(&alice, &id, 24, 24).await.unwrap();
    check("with all of bob's acked", true, false).await;
}

pub async fn nothing_is_made_without_messages(t: &Fixture) {
    let (bob, id) = (user("bob"), conversation("alice~bob"));
    let advanced = t.store.status.advance(&bob, &id, 5, 5).await.unwrap();
    assert_eq!((advanced.row, advanced.moved), (row("bob", 0, 0), false));
    assert_eq!(t.store.status.statuses_of(&bob).await.unwrap(), []);
    assert_eq!(t.row(&bob, &id).await, None);
    assert_eq!(t.store.messages.last_seq(&id).await.unwrap(), 0);
}

pub async fn concurrent_receipts_merge_to_the_maximum(t: &Fixture) {
    let (bob, id) = (user("bob"), conversation("alice~bob"));
    t.send_many(&id, Side::Low, 64).await;
    let receipts: Vec<_> = (1..=32u64)
        .map(|n| {
            let (store, bob, id) = (t.store.clone(), bob.clone(), id.clone());
            let (delivered, read) = (n * 37 % 61, n * 11 % 31);
            tokio::spawn(async move {
                let advanced = store.status.advance(&bob, &id, delivered, read).await.unwrap();
                assert!(advanced.row.last_delivered_seq >= delivered && advanced.row.last_read_seq >= read);
                (delivered, read)
            })
        })
        .collect();
    let (mut delivered, mut read) = (0, 0);
    for receipt in receipts {
        let (d, r) = receipt.await.unwrap();
        (delivered, read) = (delivered.max(d), read.max(r));
    }
    let merged = row("bob", delivered.max(read), read);
    assert_eq!(t.store.status.status(&bob, &id).await.unwrap(), merged);
    assert_eq!(t.unread(&bob, &id).await, 64 - read, "and unread follows");
}

pub async fn a_reply_reads_what_its_sender_had_seen(t: &Fixture) {
    let (bob, id) = (user("bob"), conversation("alice~bob"));
    let reply = |name: &str, seen| message(&id, Side::High, name).seen_seq(seen);
    t.send_many(&id, Side::Low, 3).await;
    t.store.status.advance(&bob, &id, 3, 0).await.unwrap();
    let sent = t.send(reply("r1", 2)).await;
    assert_eq!(
        sent.implied_read.map(|a| a.row),
        Some(row("bob", 3, 2)),
        "what was seen, not what was delivered"
    );
    assert_eq!(t.store.status.status(&bob, &id).await.unwrap(), row("bob", 3, 2));

    let sent = t.send(reply("r2", 1)).await;
    assert_eq!(sent.implied_read, None, "nothing moved");
    assert_eq!(t.store.status.status(&bob, &id).await.unwrap(), row("bob", 3, 2));

    let sent = t.send(reply("r3", Seq::MAX)).await;
    assert_eq!(sent.message.seq, 6);
    assert_eq!(
        sent.implied_read.map(|a| a.row),
        Some(row("bob", 5, 5)),
        "clamped to the last message before the reply"
    );
    assert_eq!(t.store.status.statuses_of(&user("alice")).await.unwrap(), [], "the other side read nothing");
}

pub async fn a_reply_reads_what_was_delivered_if_it_does_not_say(t: &Fixture) {
    let (bob, id) = (user("bob"), conversation("alice~bob"));
    t.send_many(&id, Side::Low, 3).await;
    let sent = t.send(message(&id, Side::High, "r1")).await;
    assert_eq!(sent.implied_read, None, "nothing was delivered, so nothing was read");
    assert_eq!(t.store.status.statuses_of(&bob).await.unwrap(), []);
    t.store.status.advance(&bob, &id, 2, 0).await.unwrap();
    let sent = t.send(message(&id, Side::High, "r2")).await;
    assert_eq!(sent.implied_read.map(|a| a.row), Some(row("bob", 2, 2)));
    let sent = t.send(message(&id, Side::High, "r3")).await;
    assert_eq!(sent.implied_read, None, "the second reply reads nothing more");
    assert_eq!(t.store.status.status(&bob, &id).await.unwrap(), row("bob", 2, 2));
}

pub async fn a_first_message_implies_nothing(t: &Fixture) {
    let id = conversation("alice~bob");
    let sent = t.send(message(&id, Side::Low, "m1").seen_seq(5)).await;
    assert_eq!(sent.implied_read, None, "there was nothing to read before it");
    let sent = t.send(message(&id, Side::Low, "m2").seen_seq(0)).await;
    assert_eq!(sent.implied_read, None);
    assert_eq!(t.store.status.statuses_of(&user("alice")).await.unwrap(), []);
}
