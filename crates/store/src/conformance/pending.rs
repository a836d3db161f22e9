//! `pending_deliveries`: one row per pending conversation, which keeps the minimum (R3, R4, R5).

use bluetick_protocol::{Seq, Side};

use super::fixture::{Dice, Fixture};
use crate::{
    Noted, PendingRow,
    testing::{conversation, message, user},
};

pub async fn the_row_keeps_the_minimum(t: &Fixture) {
    let (bob, id) = (user("bob"), conversation("alice~bob"));
    t.send_many(&id, Side::Low, 50).await;
    assert_eq!(t.store.pending.pending_row(&bob, &id).await.unwrap(), None);
    let steps = [(43, 43, true), (42, 42, true), (44, 42, false), (42, 42, false), (7, 7, true)];
    for (seq, first_undelivered_seq, written) in steps {
        let noted = t.store.pending.note_undelivered(&bob, &id, seq).await.unwrap();
        assert_eq!(noted, Noted { first_undelivered_seq, written }, "after noting {seq}");
        assert_eq!(t.store.pending.pending_row(&bob, &id).await.unwrap(), Some(first_undelivered_seq));
    }
    assert_eq!(
        t.store.pending.pending_row(&user("alice"), &id).await.unwrap(),
        None,
        "the peer's is another row"
    );
}

pub async fn the_minimum_holds_under_concurrent_notes(t: &Fixture) {
    let (bob, id) = (user("bob"), conversation("alice~bob"));
    t.send_many(&id, Side::Low, 40).await;
    let mut dice = Dice::new(7);
    for round in 0..10 {
        let seqs: Vec<Seq> = (0..32).map(|_| 1 + dice.below(40)).collect();
        let notes: Vec<_> = seqs
            .iter()
            .map(|&seq| {
                let (store, bob, id) = (t.store.clone(), bob.clone(), id.clone());
                tokio::spawn(
                    async move { (seq, store.pending.note_undelivered(&bob, &id, seq).await.unwrap()) },
                )
            })
            .collect();
        for note in notes {
            let (seq, noted) = note.await.unwrap();
            assert!(noted.first_undelivered_seq <= seq, "the row holds at most what was noted");
        }
        let least = *seqs.iter().min().unwrap();
        assert_eq!(
            t.store.pending.pending_row(&bob, &id).await.unwrap(),
            Some(least),
            "round {round}: {seqs:?}"
        );
        assert!(t.store.pending.settle(&bob, &id, least, None).await.unwrap());
    }
}

pub async fn the_row_is_written_with_the_message(t: &Fixture) {
    let (bob, id) = (user("bob"), conversation("alice~bob"));
    let undelivered = |name: &str| message(&id, Side::Low, name).undelivered(true);
    t.send(undelivered("m1")).await;
    t.send(undelivered("m2")).await;
    assert_eq!(t.store.pending.pending_row(&bob, &id).await.unwrap(), Some(1), "the second costs nothing");
    assert!(t.store.pending.settle(&bob, &id, 1, None).await.unwrap());
    t.send(undelivered("m3")).await;
    let expected =
        PendingRow { receiver_id: bob.clone(), conversation_id: id.clone(), first_undelivered_seq: 3 };
    assert_eq!(t.store.pending.pending_of(&bob).await.unwrap(), [expected]);
    assert_eq!(
        t.store.pending.pending_of(&user("alice")).await.unwrap(),
        [],
        "the sender owes itself nothing"
    );

    t.send(message(&id, Side::High, "w").withheld(true).undelivered(true)).await;
    assert_eq!(
        t.store.pending.pending_of(&user("alice")).await.unwrap(),
        [],
        "what is withheld is pending for nobody"
    );
}

pub async fn a_message_that_was_delivered_writes_no_row(t: &Fixture) {
    let id = conversation("alice~bob");
    t.send_many(&id, Side::Low, 3).await;
    assert_eq!(t.store.pending.pending_of(&user("bob")).await.unwrap(), []);
    t.store.status.advance(&user("bob"), &id, 3, 0).await.unwrap();
    assert_eq!(t.store.pending.pending_of(&user("bob")).await.unwrap(), [], "nor does an ack");
}

pub async fn settle_removes_only_what_was_read(t: &Fixture) {
    let (bob, id) = (user("bob"), conversation("alice~bob"));
    t.send_many(&id, Side::Low, 9).await;
    let pending = &t.store.pending;
    assert!(!pending.settle(&bob, &id, 1, None).await.unwrap(), "there is no row");
    pending.note_undelivered(&bob, &id, 5).await.unwrap();
    assert!(!pending.settle(&bob, &id, 6, None).await.unwrap());
    pending.note_undelivered(&bob, &id, 3).await.unwrap();
    assert!(!pending.settle(&bob, &id, 5, None).await.unwrap(), "a lower seq was noted since it was read");
    assert_eq!(pending.pending_row(&bob, &id).await.unwrap(), Some(3), "a settle that fails changes nothing");
    assert!(pending.settle(&bob, &id, 3, None).await.unwrap());
    assert_eq!(pending.pending_row(&bob, &id).await.unwrap(), None);
    assert_eq!(pending.pending_of(&bob).await.unwrap(), []);
    let noted = pending.note_undelivered(&bob, &id, 8).await.unwrap();
    assert_eq!(
        noted,
        Noted { first_undelivered_seq: 8, written: true },
        "a removed row leaves no minimum behind"
    );
}

pub async fn settle_moves_only_what_was_read(t: &Fixture) {
    let (bob, id) = (user("bob"), conversation("alice~bob"));
    t.send_many(&id, Side::Low, 9).await;
    let pending = &t.store.pending;
    assert!(!pending.settle(&bob, &id, 1, Some(4)).await.unwrap(), "a move makes no row");
    assert_eq!(pending.pending_row(&bob, &id).await.unwrap(), None);
    pending.note_undelivered(&bob, &id, 2).await.unwrap();
    assert!(!pending.settle(&bob, &id, 1, Some(4)).await.unwrap());
    assert!(pending.settle(&bob, &id, 2, Some(6)).await.unwrap(), "a closing session moves its row up");
    assert_eq!(pending.pending_row(&bob, &id).await.unwrap(), Some(6));
    assert!(pending.settle(&bob, &id, 6, Some(6)).await.unwrap(), "moving it to where it is succeeds");
    pending.note_undelivered(&bob, &id, 7).await.unwrap();
    assert_eq!(pending.pending_row(&bob, &id).await.unwrap(), Some(6), "the moved row is the minimum now");
}

pub async fn one_of_many_settles_wins(t: &Fixture) {
    let (bob, id) = (user("bob"), conversation("alice~bob"));
    t.send_many(&id, Side::Low, 40).await;
    t.store.pending.note_undelivered(&bob, &id, 1).await.unwrap();
    let settles: Vec<_> = (2..=33)
        .map(|to: Seq| {
            let (store, bob, id) = (t.store.clone(), bob.clone(), id.clone());
            tokio::spawn(async move { (to, store.pending.settle(&bob, &id, 1, Some(to)).await.unwrap()) })
        })
        .collect();
    let mut winners = Vec::new();
    for settle in settles {
        let (to, won) = settle.await.unwrap();
        winners.extend(won.then_some(to));
    }
    assert_eq!(winners.len(), 1, "a compare-and-swap succeeds once: {winners:?}");
    assert_eq!(t.store.pending.pending_row(&bob, &id).await.unwrap(), Some(winners[0]));
}

pub async fn rows_come_in_order_of_conversation(t: &Fixture) {
    let mike = user("mike");
    let ids = ["mike~zoe", "alice~mike", "mike~nora", "bob~mike"].map(conversation);
    for id in &ids {
        let from = id.side_of(&mike).unwrap().other();
        t.send(message(id, from, "m").undelivered(true)).await;
    }
    t.send(message(&conversation("alice~mike2"), Side::Low, "m").undelivered(true)).await;
    let rows = t.store.pending.pending_of(&mike).await.unwrap();
    let listed: Vec<_> = rows.iter().map(|r| r.conversation_id.as_str()).collect();
    assert_eq!(listed, ["alice~mike", "bob~mike", "mike~nora", "mike~zoe"]);
    assert!(rows.iter().all(|r| r.receiver_id == mike && r.first_undelivered_seq == 1));
}
