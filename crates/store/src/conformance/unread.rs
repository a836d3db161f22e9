//! `conversations`: the unread count, which never drifts (R11).

use bluetick_protocol::{ConversationId, Side, UserId};

use super::fixture::{Dice, Fixture};
use crate::testing::{conversation, message, user};

/// Counts by hand, from the messages and the read boundary.
async fn by_hand(t: &Fixture, user: &UserId, id: &ConversationId) -> u64 {
    let side = id.side_of(user).unwrap();
    let read = t.store.status.status(user, id).await.unwrap().last_read_seq;
    let messages = t.all(id).await;
    let unread = messages.iter().filter(|m| m.seq > read && m.from != side && !m.void && !m.withheld);
    unread.count() as u64
}

pub async fn own_messages_are_never_counted(t: &Fixture) {
    let id = conversation("alice~bob");
    t.send_many(&id, Side::Low, 3).await;
    t.send_many(&id, Side::High, 2).await;
    t.send_many(&id, Side::Low, 1).await;
    assert_eq!(t.unread(&user("alice"), &id).await, 2);
    assert_eq!(t.unread(&user("bob"), &id).await, 4);
}

pub async fn a_read_leaves_what_came_after_it(t: &Fixture) {
    let (bob, id) = (user("bob"), conversation("alice~bob"));
    t.send_many(&id, Side::Low, 5).await;
    for (read, left) in [(2, 3), (1, 3), (4, 1), (5, 0)] {
        t.store.status.advance(&bob, &id, 0, read).await.unwrap();
        assert_eq!(t.unread(&bob, &id).await, left, "after a read up to {read}");
    }
    t.send_many(&id, Side::Low, 2).await;
    assert_eq!(t.unread(&bob, &id).await, 2);
    t.store.status.advance(&bob, &id, 0, 1_000).await.unwrap();
    assert_eq!(t.unread(&bob, &id).await, 0, "a read past the end reads what is there");
    t.send_many(&id, Side::Low, 1).await;
    assert_eq!(t.unread(&bob, &id).await, 1, "and not what comes later");
}

pub async fn an_ack_reads_nothing(t: &Fixture) {
    let (bob, id) = (user("bob"), conversation("alice~bob"));
    t.send_many(&id, Side::Low, 5).await;
    t.store.status.advance(&bob, &id, 5, 0).await.unwrap();
    assert_eq!(t.unread(&bob, &id).await, 5);
}

pub async fn a_reply_reads_what_it_implies(t: &Fixture) {
    let (bob, id) = (user("bob"), conversation("alice~bob"));
    t.send_many(&id, Side::Low, 5).await;
    t.send(message(&id, Side::High, "r1").seen_seq(3)).await;
    assert_eq!(t.unread(&bob, &id).await, 2, "what had not been seen when it was written stays unread");
    t.store.status.advance(&bob, &id, 5, 0).await.unwrap();
    t.send(message(&id, Side::High, "r2")).await;
    assert_eq!(t.unread(&bob, &id).await, 0);
    assert_eq!(t.unread(&user("alice"), &id).await, 2);
}

pub async fn total_unread_is_the_sum(t: &Fixture) {
    let mike = user("mike");
    assert_eq!(t.store.conversations.total_unread(&mike).await.unwrap(), 0);
    for (text, n) in [("alice~mike", 3), ("mike~zoe", 4), ("bob~mike", 1)] {
        let id = conversation(text);
        t.send_many(&id, id.side_of(&mike).unwrap().other(), n).await;
    }
    t.send_many(&conversation("alice~zoe"), Side::Low, 9).await;
    assert_eq!(t.store.conversations.total_unread(&mike).await.unwrap(), 8);
    t.store.status.advance(&mike, &conversation("mike~zoe"), 0, 3).await.unwrap();
    assert_eq!(t.store.conversations.total_unread(&mike).await.unwrap(), 5);
}

pub async fn unread_is_exact_under_random_interleavings(t: &Fixture) {
    for seed in 0..4u64 {
        let mut dice = Dice::new(seed);
        let id = conversation(&format!("alice{seed}~bob{seed}"));
        let members = Side::BOTH.map(|side| id.member(side));
        for step in 0..120 {
            let last = t.store.messages.last_seq(&id).await.unwrap();
            if dice.one_in(3) {
                let reader = dice.pick(&members);
                let (delivered, read) = (dice.below(last + 3), dice.below(last + 3));
                t.store
                    .status
                    .advance(reader, &id, delivered, if dice.one_in(2) { read } else { 0 })
                    .await
                    .unwrap();
            } else {
                let new = message(&id, dice.side(), &format!("m{}", dice.below(90)))
                    .withheld(dice.one_in(5))
                    .seen_seq(dice.one_in(3).then(|| dice.below(last + 2)))
                    .undelivered(dice.one_in(2));
                t.send(new).await;
            }
            for member in &members {
                let expected =
                    if t.row(member, &id).await.is_some() { by_hand(t, member, &id).await } else { 0 };
                assert_eq!(t.unread(member, &id).await, expected, "seed {seed}, step {step}, {member}");
                assert_eq!(t.store.conversations.total_unread(member).await.unwrap(), expected);
            }
        }
    }
}

pub async fn unread_is_exact_under_concurrency(t: &Fixture) {
    let id = conversation("alice~bob");
    let tasks: Vec<_> = (0..16u64)
        .map(|n| {
            let (store, id) = (t.store.clone(), id.clone());
            tokio::spawn(async move {
                let mut dice = Dice::new(n);
                for i in 0..20 {
                    let side = dice.side();
                    if dice.one_in(2) {
                        let withheld = dice.one_in(4);
                        let new = message(&id, side, &format!("t{n}-{i}")).withheld(withheld);
                        super::fixture::send(&store, new).await;
                    } else {
                        store.status.advance(&id.member(side), &id, 0, dice.below(100)).await.unwrap();
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    for member in Side::BOTH.map(|side| id.member(side)) {
        assert_eq!(t.unread(&member, &id).await, by_hand(t, &member, &id).await, "{member}");
    }
}

pub async fn a_recount_agrees(t: &Fixture) {
    let (bob, id) = (user("bob"), conversation("alice~bob"));
    assert_eq!(t.store.conversations.recount(&bob, &id).await.unwrap(), (0, 0), "there is no row to mend");
    assert_eq!(t.row(&bob, &id).await, None, "and none is made");
    t.send_many(&id, Side::Low, 5).await;
    t.send(message(&id, Side::Low, "w").withheld(true)).await;
    t.store.status.advance(&bob, &id, 0, 2).await.unwrap();
    let before = t.row(&bob, &id).await;
    assert_eq!(t.store.conversations.recount(&bob, &id).await.unwrap(), (3, 3), "it was right before");
    assert_eq!(t.row(&bob, &id).await, before);
}
