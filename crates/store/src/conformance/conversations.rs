//! `conversations`: what a member's inbox shows, and in which order.

use bluetick_protocol::{ConversationId, Side, UserId};

use super::fixture::{Fixture, START_MS};
use crate::{
    ActiveConversation, ConversationRow, InboxPosition, preview_of,
    testing::{conversation, message, user},
};

pub async fn a_send_updates_both_rows(t: &Fixture) {
    let (alice, bob, id) = (user("alice"), user("bob"), conversation("alice~bob"));
    assert_eq!(t.row(&alice, &id).await, None, "there is no row before the first message");
    t.clock.advance(17);
    let body = format!("first\n line  {}", "x".repeat(200));
    t.send(message(&id, Side::Low, "m1").body(body.clone())).await;
    let expected = ConversationRow {
        user_id: alice.clone(),
        conversation_id: id.clone(),
        peer_id: bob.clone(),
        peer_wrote: false,
        peer_name: None,
        avatar_url: None,
        last_message_preview: preview_of(&body, None),
        last_message_ts: START_MS + 17,
        last_seq: 1,
        last_sender: alice.clone(),
        unread_count: 0,
    };
    assert_eq!(t.row(&alice, &id).await, Some(expected.clone()), "the sender's row");
    let expected = ConversationRow {
        user_id: bob.clone(),
        peer_id: alice,
        peer_wrote: true,
        unread_count: 1,
        ..expected
    };
    assert_eq!(t.row(&bob, &id).await, Some(expected), "the receiver's row");
}

pub async fn a_row_is_updated_in_place(t: &Fixture) {
    let (alice, id) = (user("alice"), conversation("alice~bob"));
    for n in 1..=6 {
        t.clock.advance(5);
        let from = Side::BOTH[n as usize % 2];
        t.send(message(&id, from, &format!("m{n}"))).await;
        let rows = t.store.conversations.conversations_of(&alice).await.unwrap();
        assert_eq!(rows.len(), 1, "one row per conversation, never one per message");
        assert_eq!((rows[0].last_seq, rows[0].last_message_ts), (n, START_MS + 5 * n));
        assert_eq!(rows[0].last_message_preview, format!("m{n}"));
        assert_eq!(rows[0].last_sender, id.member(from));
        let (inbox, more) = t.store.conversations.inbox(&alice, None, 10).await.unwrap();
        assert_eq!((inbox, more), (rows, false), "the inbox shows the same row, once");
    }
}

pub async fn a_row_is_always_there_while_it_is_updated(t: &Fixture) {
    let (bob, id) = (user("bob"), conversation("alice~bob"));
    t.send_many(&id, Side::Low, 1).await;
    let writer = tokio::spawn({
        let (store, clock, id) = (t.store.clone(), t.clock.clone(), id.clone());
        async move {
            for n in 0..100 {
                clock.advance(1);
                super::fixture::send(&store, message(&id, Side::Low, &format!("w{n}"))).await;
            }
        }
    });
    let mut last_seq = 0;
    while !writer.is_finished() {
        let (inbox, _) = t.store.conversations.inbox(&bob, None, 10).await.unwrap();
        assert_eq!(inbox.len(), 1, "a row that is updated is neither gone nor there twice");
        assert!(inbox[0].last_seq >= last_seq, "and never goes back");
        last_seq = inbox[0].last_seq;
        let rows = t.store.conversations.conversations_of(&bob).await.unwrap();
        assert!(rows.len() == 1 && rows[0].last_seq >= last_seq, "all reads show the same row");
        tokio::task::yield_now().await;
    }
    writer.await.unwrap();
    assert_eq!(t.row(&bob, &id).await.unwrap().last_seq, 101);
}

pub async fn withheld_messages_leave_the_receiver_alone(t: &Fixture) {
    let (alice, bob, id) = (user("alice"), user("bob"), conversation("alice~bob"));
    t.send(message(&id, Side::Low, "seen")).await;
    t.clock.advance(1_000);
    t.send(message(&conversation("bob~carol"), Side::High, "newer")).await;
    let before = t.store.conversations.inbox(&bob, None, 10).await.unwrap();
    let active = t.store.conversations.active_since(&bob, 0, 10).await.unwrap();
    t.clock.advance(1_000);
    let new = message(&id, Side::Low, "hidden").withheld(true).undelivered(true);
    let sent = t.send(new).await;
    assert!(sent.message.withheld && sent.message.seq == 2, "it is stored under the next seq");
    assert_eq!(
        t.store.conversations.inbox(&bob, None, 10).await.unwrap(),
        before,
        "neither row nor order changes"
    );
    assert_eq!(t.store.conversations.active_since(&bob, 0, 10).await.unwrap(), active);
    assert_eq!(t.store.conversations.total_unread(&bob).await.unwrap(), 2);
    let row = t.row(&alice, &id).await.unwrap();
    assert_eq!(
        (row.last_seq, row.last_message_preview.as_str()),
        (2, "hidden"),
        "the sender sees what they sent"
    );
    assert_eq!(t.all(&id).await[1], sent.message, "a read of the messages has it, marked");

    t.send(message(&id, Side::Low, "seen-again")).await;
    let row = t.row(&bob, &id).await.unwrap();
    assert_eq!((row.last_seq, row.unread_count), (3, 2), "what was withheld is not counted later either");
}

pub async fn a_withheld_message_makes_no_row_for_the_receiver(t: &Fixture) {
    let (alice, bob, id) = (user("alice"), user("bob"), conversation("alice~bob"));
    t.send(message(&id, Side::Low, "hidden").withheld(true)).await;
    assert_eq!(t.row(&bob, &id).await, None);
    assert_eq!(t.store.conversations.conversations_of(&bob).await.unwrap(), []);
    assert_eq!(t.store.conversations.inbox(&bob, None, 10).await.unwrap(), (vec![], false));
    assert_eq!(t.store.conversations.active_since(&bob, 0, 10).await.unwrap(), []);
    assert_eq!(t.store.conversations.total_unread(&bob).await.unwrap(), 0);
    assert_eq!(t.row(&alice, &id).await.unwrap().last_seq, 1);
    t.send(message(&id, Side::High, "from-bob")).await;
    let row = t.row(&bob, &id).await.unwrap();
    assert_eq!((row.last_seq, row.unread_count), (2, 0), "bob's own message makes his row");
}

/// Twelve conversations of mike's whose messages come three to a millisecond.
async fn crowded_inbox(t: &Fixture) -> (UserId, Vec<ConversationId>) {
    let mike = user("mike");
    let peers = ["a", "z", "b", "y", "c", "x", "d", "w", "e", "v", "f", "u"];
    let mut ids = Vec::new();
    for (n, peer) in peers.into_iter().enumerate() {
        if n % 3 == 0 {
            t.clock.advance(1);
        }
        let id = ConversationId::between(&mike, &user(peer)).unwrap();
        t.send(message(&id, id.side_of(&mike).unwrap().other(), "m")).await;
        ids.push(id);
    }
    (mike, ids)
}

fn position(row: &ConversationRow) -> InboxPosition {
    InboxPosition { last_message_ts: row.last_message_ts, conversation_id: row.conversation_id.clone() }
}

/// Everything after a position, page by page.
async fn rest_of_inbox(
    t: &Fixture,
    user: &UserId,
    mut after: Option<InboxPosition>,
    limit: usize,
) -> Vec<ConversationRow> {
    let mut rows = Vec::new();
    loop {
        let (page, more) = t.store.conversations.inbox(user, after.as_ref(), limit).await.unwrap();
        assert!(page.len() <= limit, "a page holds at most its limit");
        assert!(!more || page.len() == limit, "a page is full if there is more behind it");
        for row in &page {
            // Checked at once, or a backend that repeats itself would be paged for ever.
            assert!(
                after.as_ref().is_none_or(|after| position(row) < *after),
                "a page lies after its position"
            );
        }
        assert!(!more || !page.is_empty(), "a page that says there is more is not empty");
        after = page.last().map(position).or(after);
        rows.extend(page);
        if !more {
            return rows;
        }
    }
}

pub async fn the_inbox_is_newest_first(t: &Fixture) {
    let mike = user("mike");
    let ids = ["alice~mike", "mike~zoe", "bob~mike"].map(conversation);
    for id in &ids {
        t.clock.advance(10);
        t.send_many(id, Side::Low, 1).await;
    }
    let order = async || {
        let rows = rest_of_inbox(t, &mike, None, 10).await;
        rows.iter().map(|r| r.conversation_id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(order().await, ["bob~mike", "mike~zoe", "alice~mike"]);
    t.clock.advance(10);
    t.send_many(&ids[1], Side::High, 1).await;
    assert_eq!(order().await, ["mike~zoe", "bob~mike", "alice~mike"], "a message brings its conversation up");
    t.store.status.advance(&mike, &ids[0], 1, 1).await.unwrap();
    assert_eq!(order().await, ["mike~zoe", "bob~mike", "alice~mike"], "a read does not");
    let listed = t.store.conversations.conversations_of(&mike).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|r| r.conversation_id.as_str()).collect();
    assert_eq!(listed, ["alice~mike", "bob~mike", "mike~zoe"], "all rows come in order of conversation");
}

pub async fn the_inbox_pages_through_equal_timestamps(t: &Fixture) {
    let (mike, ids) = crowded_inbox(t).await;
    let whole = rest_of_inbox(t, &mike, None, 100).await;
    assert_eq!(whole.len(), ids.len());
    assert!(
        whole.is_sorted_by(|a, b| position(a) > position(b)),
        "newest first; equal times by conversation, the greater first: {:?}",
        whole.iter().map(position).collect::<Vec<_>>()
    );
    for limit in 1..=ids.len() + 1 {
        assert_eq!(rest_of_inbox(t, &mike, None, limit).await, whole, "in pages of {limit}");
    }
}

pub async fn changes_between_pages_lose_and_repeat_nothing(t: &Fixture) {
    let (mike, _) = crowded_inbox(t).await;
    let whole = rest_of_inbox(t, &mike, None, 100).await;
    let (first, more) = t.store.conversations.inbox(&mike, None, 4).await.unwrap();
    assert!(more && first[..] == whole[..4]);
    let after = first.last().map(position);
    t.clock.advance(1);
    // The row that the position was taken from, one already shown, and one that was still to come.
    for moved in [3, 1, 7] {
        t.send_many(&whole[moved].conversation_id, Side::Low, 1).await;
    }
    let rest: Vec<_> = rest_of_inbox(t, &mike, after, 3).await;
    let mut expected = whole[4..].to_vec();
    expected.remove(3);
    assert_eq!(rest, expected, "what moved up is not repeated, what did not move comes exactly once");
    let again = rest_of_inbox(t, &mike, None, 5).await;
    assert_eq!(again.len(), whole.len());
    assert!(
        again[..3].iter().any(|row| row.conversation_id == whole[7].conversation_id),
        "what moved is at the top"
    );
}

pub async fn active_since_lists_what_is_new(t: &Fixture) {
    let mike = user("mike");
    let ids = ["alice~mike", "mike~zoe", "bob~mike"].map(conversation);
    let mut expected = Vec::new();
    for (n, id) in ids.iter().enumerate() {
        t.clock.set(START_MS + 100 * n as u64);
        t.send_many(id, Side::Low, n).await;
        let last = t.send(message(id, Side::High, "last")).await.message;
        expected.insert(
            0,
            ActiveConversation {
                conversation_id: id.clone(),
                last_seq: last.seq,
                last_message_id: last.message_id,
            },
        );
    }
    let since = async |ms, limit| t.store.conversations.active_since(&mike, ms, limit).await.unwrap();
    assert_eq!(since(0, 10).await, expected);
    assert_eq!(since(START_MS + 100, 10).await, expected[..2], "a message at that very moment counts");
    assert_eq!(since(START_MS + 101, 10).await, expected[..1]);
    assert_eq!(since(START_MS + 201, 10).await, []);
    assert_eq!(since(0, 2).await, expected[..2], "the limit keeps the newest");
    assert_eq!(t.store.conversations.active_since(&user("nobody"), 0, 10).await.unwrap(), []);
}

pub async fn a_stranger_sees_no_row(t: &Fixture) {
    let id = conversation("alice~bob");
    t.send_many(&id, Side::Low, 1).await;
    for name in ["carol", "alic", "alice.", "bo", "bobb"] {
        assert_eq!(t.row(&user(name), &id).await, None, "{name}");
        assert_eq!(t.store.conversations.conversations_of(&user(name)).await.unwrap(), [], "{name}");
        assert_eq!(
            t.store.conversations.inbox(&user(name), None, 5).await.unwrap(),
            (vec![], false),
            "{name}"
        );
        assert_eq!(t.store.conversations.total_unread(&user(name)).await.unwrap(), 0, "{name}");
    }
}

async fn undelivered(t: &Fixture, of: &UserId) -> Vec<ConversationId> {
    let page = t.store.conversations.undelivered(of, None, 100).await.unwrap();
    assert_eq!(page.next, None, "there is no more than was asked for");
    page.conversations
}

pub async fn undelivered_is_what_no_device_has_acked(t: &Fixture) {
    let (alice, bob) = (user("alice"), user("bob"));
    let (id, other) = (conversation("alice~bob"), conversation("bob~carol"));
    assert_eq!(undelivered(t, &bob).await, []);
    t.send_many(&id, Side::Low, 5).await;
    assert_eq!(undelivered(t, &bob).await, [id.clone()], "there is no pending row, and nobody has acked");
    assert_eq!(undelivered(t, &alice).await, [], "what one wrote oneself is not owed to one");
    t.store.status.advance(&bob, &id, 3, 0).await.unwrap();
    assert_eq!(undelivered(t, &bob).await, [id.clone()]);
    // Written by another device, which had not seen the last two.
    t.send(message(&id, Side::High, "reply").seen_seq(3)).await;
    assert_eq!(undelivered(t, &bob).await, [id.clone()], "one's own message is the last, and hides nothing");
    assert_eq!(undelivered(t, &alice).await, [id.clone()], "and she has not got the reply");
    t.send_many(&other, Side::High, 1).await;
    assert_eq!(undelivered(t, &bob).await, [id.clone(), other.clone()]);
    t.store.status.advance(&bob, &id, 5, 0).await.unwrap();
    assert_eq!(undelivered(t, &bob).await, [other.clone()], "delivered is enough: nothing is read");
    t.store.status.advance(&bob, &other, 1, 1).await.unwrap();
    assert_eq!(undelivered(t, &bob).await, [], "what is read is delivered");
    t.send_many(&id, Side::Low, 1).await;
    assert_eq!(undelivered(t, &bob).await, [id]);
}

pub async fn undelivered_is_nothing_that_the_user_may_not_see(t: &Fixture) {
    let (alice, bob, id) = (user("alice"), user("bob"), conversation("alice~bob"));
    t.send(message(&id, Side::Low, "withheld").withheld(true)).await;
    assert_eq!(undelivered(t, &bob).await, [], "withheld from the first");
    t.send(message(&id, Side::Low, "seen")).await;
    assert_eq!(undelivered(t, &bob).await, [id.clone()]);
    t.store.status.advance(&bob, &id, 2, 0).await.unwrap();
    t.send(message(&id, Side::Low, "withheld-again").withheld(true)).await;
    assert_eq!(undelivered(t, &bob).await, []);
    t.send(message(&id, Side::Low, "seen-again")).await;
    assert_eq!(undelivered(t, &bob).await, [id.clone()]);
    t.store.maintenance.erase_member(&alice, &id).await.unwrap();
    assert_eq!(undelivered(t, &bob).await, [], "nothing is left of it");
}

pub async fn undelivered_leaves_out_what_was_written_before_an_erasure(t: &Fixture) {
    let (bob, id) = (user("bob"), conversation("alice~bob"));
    t.send_many(&id, Side::Low, 2).await;
    t.store.maintenance.erase_member(&bob, &id).await.unwrap();
    assert_eq!(undelivered(t, &bob).await, []);
    t.send(message(&id, Side::High, "back-again")).await;
    assert_eq!(undelivered(t, &bob).await, [], "what he writes then brings nothing back");
    t.send(message(&id, Side::Low, "welcome-back")).await;
    assert_eq!(undelivered(t, &bob).await, [id]);
}

pub async fn undelivered_pages_through_all_conversations(t: &Fixture) {
    let bob = user("bob");
    let ids: Vec<ConversationId> = (0..23).map(|n| conversation(&format!("bob~friend{n:02}"))).collect();
    for id in &ids {
        t.send_many(id, Side::High, 1).await;
    }
    let strangers = [conversation("alice~carol"), conversation("bobby~friend07")];
    for id in &strangers {
        t.send_many(id, Side::High, 1).await;
    }
    for id in ids.iter().step_by(3) {
        t.store.status.advance(&bob, id, 1, 0).await.unwrap();
    }
    let owed: Vec<ConversationId> =
        ids.iter().enumerate().filter(|(n, _)| n % 3 != 0).map(|(_, id)| id.clone()).collect();
    // Whoever connects has their inbox read first.
    for inbox_is_known in [false, true] {
        if inbox_is_known {
            assert_eq!(t.store.conversations.active_since(&bob, 0, 100).await.unwrap().len(), ids.len());
        }
        for limit in [1, 2, 5, 23, 24] {
            let (mut found, mut after, mut pages) = (Vec::new(), None, 0);
            loop {
                let page = t.store.conversations.undelivered(&bob, after.as_ref(), limit).await.unwrap();
                assert!(page.conversations.len() <= limit, "a page looks at no more than it was told to");
                found.extend(page.conversations);
                pages += 1;
                assert!(pages <= ids.len() + 1, "the pages come to an end");
                match page.next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
            assert_eq!(found, owed, "{limit} at a time");
        }
    }
}
