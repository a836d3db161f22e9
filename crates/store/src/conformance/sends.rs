//! `messages`: committing sends. Seqs without gaps, and sends that can be repeated (R8, R9).

use std::collections::{BTreeMap, BTreeSet};

use bluetick_protocol::{Json, Seq, Side};

use super::fixture::{Fixture, send};
use crate::{
    Clock, NewMessage, StoreError,
    testing::{conversation, message, user},
};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

pub async fn seqs_have_no_gap_under_concurrent_writers(t: &Fixture) {
    const WRITERS: usize = 32;
    const SENDS: usize = 8;
    let conversations = [conversation("alice~bob"), conversation("alice~carol")];
    let writers: Vec<_> = (0..WRITERS)
        .map(|w| {
            let (store, to) = (t.store.clone(), conversations[w % 2].clone());
            let from = Side::BOTH[w / 2 % 2];
            tokio::spawn(async move {
                let mut seqs = Vec::new();
                for n in 0..SENDS {
                    seqs.push(send(&store, message(&to, from, &format!("w{w}-{n}"))).await.message.seq);
                }
                seqs
            })
        })
        .collect();
    let mut told: BTreeMap<usize, BTreeSet<Seq>> = BTreeMap::new();
    for (w, writer) in writers.into_iter().enumerate() {
        let seqs = writer.await.unwrap();
        assert!(seqs.is_sorted(), "what one writer sends one after the other has growing seqs: {seqs:?}");
        told.entry(w % 2).or_default().extend(seqs);
    }
    let expected: Vec<Seq> = (1..=(WRITERS / 2 * SENDS) as Seq).collect();
    for (n, id) in conversations.iter().enumerate() {
        assert_eq!(told[&n].iter().copied().collect::<Vec<_>>(), expected, "every seq of {id} is told once");
        let stored: Vec<Seq> = t.all(id).await.iter().map(|m| m.seq).collect();
        assert_eq!(stored, expected, "the seqs of {id} are 1, 2, 3 … with no gap");
        assert_eq!(t.store.messages.last_seq(id).await.unwrap(), *expected.last().unwrap());
    }
}

pub async fn a_send_is_stored_as_it_was_given(t: &Fixture) {
    let id = conversation("alice~bob");
    let new = message(&id, Side::High, "m!~1")
        .body("hé\n\"quoted\" \u{1F426} \0 end")
        .attachment(Some(Json::from_text(r#"{"s3_ref":"a/b","bytes":17}"#).unwrap()))
        .meta(Some(Json::from_text(r#"{"k":[1,{"x":null}]}"#).unwrap()));
    let sent = t.send(new.clone()).await;
    assert!(!sent.duplicate);
    assert_eq!(sent.implied_read, None);
    let stored = &sent.message;
    assert_eq!((stored.seq, stored.ts), (1, t.clock.now_ms()), "the first seq is 1, and ts is the clock's");
    assert_eq!((&stored.conversation_id, stored.from), (&id, Side::High));
    assert_eq!((stored.sender(), stored.receiver()), (user("bob"), user("alice")));
    assert_eq!((&stored.client_msg_id, &stored.body), (&new.client_msg_id, &new.body));
    assert_eq!((&stored.attachment, &stored.meta), (&new.attachment, &new.meta));
    assert!(!stored.void && !stored.withheld);
    assert_eq!(t.all(&id).await, [sent.message], "what is read is what the sender was told");

    let empty = t.send(message(&id, Side::Low, "empty").body(String::new())).await;
    assert_eq!(t.all(&id).await[1], empty.message, "an empty body (an attachment alone) is a message too");
}

pub async fn one_client_msg_id_at_once_is_one_message(t: &Fixture) {
    let id = conversation("alice~bob");
    let tries: Vec<_> = (0..20)
        .map(|_| {
            let (store, new) = (t.store.clone(), message(&id, Side::Low, "same"));
            tokio::spawn(async move { send(&store, new).await })
        })
        .collect();
    let mut results = Vec::new();
    for attempt in tries {
        results.push(attempt.await.unwrap());
    }
    assert_eq!(results.iter().filter(|r| !r.duplicate).count(), 1, "exactly one of them is the original");
    for result in &results {
        assert_eq!(result.message, results[0].message, "all are told of the same message");
    }
    assert_eq!(t.all(&id).await.len(), 1, "one message is stored");
    assert_eq!(t.unread(&user("bob"), &id).await, 1, "and counted once");
}

pub async fn a_client_msg_id_belongs_to_its_sender_and_conversation(t: &Fixture) {
    let (ab, ac) = (conversation("alice~bob"), conversation("alice~carol"));
    let first = t.send(message(&ab, Side::Low, "same")).await;
    let other_sender = t.send(message(&ab, Side::High, "same")).await;
    let elsewhere = t.send(message(&ac, Side::Low, "same")).await;
    assert!(!other_sender.duplicate, "another sender's id is another message");
    assert!(!elsewhere.duplicate, "in another conversation it is another message");
    assert_eq!((first.message.seq, other_sender.message.seq, elsewhere.message.seq), (1, 2, 1));
    for (id, from, original) in
        [(&ab, Side::Low, first), (&ab, Side::High, other_sender), (&ac, Side::Low, elsewhere)]
    {
        let again = t.send(message(id, from, "same")).await;
        assert!(again.duplicate);
        assert_eq!(again.message, original.message, "each of them finds its own original");
    }
}

pub async fn a_client_msg_id_is_forgotten_after_the_window(t: &Fixture) {
    let id = conversation("alice~bob");
    t.send(message(&id, Side::Low, "m")).await;
    t.clock.advance(29 * DAY_MS);
    let late = t.send(message(&id, Side::Low, "m")).await;
    assert!(late.duplicate && late.message.seq == 1, "after 29 days it is remembered");
    t.clock.advance(2 * DAY_MS);
    let new = t.send(message(&id, Side::Low, "m")).await;
    assert!(!new.duplicate && new.message.seq == 2, "after 31 days it is a new message");
    let again = t.send(message(&id, Side::Low, "m")).await;
    assert!(again.duplicate && again.message.seq == 2, "which is remembered from then on");
}

pub async fn a_duplicate_changes_nothing(t: &Fixture) {
    let (id, alice, bob) = (conversation("alice~bob"), user("alice"), user("bob"));
    t.send(message(&id, Side::Low, "first")).await;
    t.clock.advance(1_000);
    t.send(message(&id, Side::High, "second")).await;
    let before = (t.all(&id).await, t.row(&alice, &id).await, t.row(&bob, &id).await);
    t.clock.advance(1_000);
    let again = t.send(message(&id, Side::Low, "first").seen_seq(2)).await;
    assert!(again.duplicate);
    assert_eq!(again.implied_read, None, "a retry implies no read");
    let after = (t.all(&id).await, t.row(&alice, &id).await, t.row(&bob, &id).await);
    assert_eq!(before, after);
    assert_eq!(t.store.status.statuses_of(&alice).await.unwrap(), []);
}

pub async fn a_client_msg_id_with_other_content_is_a_conflict(t: &Fixture) {
    let (id, bob) = (conversation("alice~bob"), user("bob"));
    let json = |text: &str| Some(Json::from_text(text).unwrap());
    let original = message(&id, Side::Low, "m")
        .attachment(json(r#"{"s3_ref":"a","bytes":1}"#))
        .meta(json(r#"{"k":[1,2],"l":"x"}"#));
    let sent = t.send(original.clone()).await;
    t.send(message(&id, Side::High, "reply")).await;
    let before = (t.all(&id).await, t.row(&bob, &id).await, t.row(&user("alice"), &id).await);
    let others = [
        ("body", original.clone().body("other")),
        ("body", original.clone().body(String::new())),
        ("attachment", original.clone().attachment(json(r#"{"s3_ref":"b","bytes":1}"#))),
        ("attachment", original.clone().attachment(None)),
        ("meta", original.clone().meta(json(r#"{"k":[2,1],"l":"x"}"#))),
        ("meta", original.clone().meta(None)),
    ];
    for (what, other) in others {
        // What a repetition would do besides: note the row, imply a read.
        let other = other.undelivered(true).seen_seq(2);
        let error = t.store.messages.commit_sends(vec![other]).await.remove(0).unwrap_err();
        let StoreError::ClientMsgIdConflict(why) = &error else { panic!("{error:?}") };
        for named in [r#""m""#, "message 1 of alice~bob", what] {
            assert!(why.contains(named), "{why}");
        }
    }
    let after = (t.all(&id).await, t.row(&bob, &id).await, t.row(&user("alice"), &id).await);
    assert_eq!(before, after, "nothing is stored");
    assert_eq!(t.store.pending.pending_row(&bob, &id).await.unwrap(), None, "nor noted");
    assert_eq!(t.store.status.statuses_of(&user("alice")).await.unwrap(), [], "nor read");

    let spelt_otherwise = original.meta(json(r#"{ "l":"x", "k":[1, 2] }"#));
    let again = t.send(spelt_otherwise).await;
    assert!(again.duplicate, "spaces and the order of keys are no content");
    assert_eq!(again.message, sent.message);
}

pub async fn a_conflict_concerns_one_send_of_a_batch(t: &Fixture) {
    let id = conversation("alice~bob");
    t.send(message(&id, Side::Low, "old")).await;
    let batch = vec![
        message(&id, Side::Low, "new-1"),
        message(&id, Side::Low, "old").body("other"),
        message(&id, Side::Low, "new-2"),
        message(&id, Side::Low, "new-2").body("other"),
        message(&id, Side::Low, "new-3"),
    ];
    let told: Vec<_> = t.store.messages.commit_sends(batch).await.into_iter().map(|r| r.ok()).collect();
    let stored: Vec<_> = told.iter().map(|r| r.as_ref().map(|c| c.message.body.as_str())).collect();
    assert_eq!(stored, [Some("new-1"), None, Some("new-2"), None, Some("new-3")]);
    let bodies: Vec<_> = t.all(&id).await.iter().filter(|m| !m.void).map(|m| m.body.clone()).collect();
    assert_eq!(bodies, ["old", "new-1", "new-2", "new-3"]);
}

pub async fn of_two_contents_at_once_one_is_stored(t: &Fixture) {
    let id = conversation("alice~bob");
    let tries: Vec<_> = (0..20)
        .map(|n| {
            let body = ["this", "that"][n % 2].to_owned();
            let (store, new) = (t.store.clone(), message(&id, Side::Low, "same").body(body));
            tokio::spawn(async move { store.messages.commit_sends(vec![new]).await.remove(0) })
        })
        .collect();
    let mut won = BTreeSet::new();
    let (mut stored, mut conflicts) = (0, 0);
    for attempt in tries {
        match attempt.await.unwrap() {
            Ok(committed) => {
                stored += u32::from(!committed.duplicate);
                won.insert(committed.message.body.clone());
            }
            Err(StoreError::ClientMsgIdConflict(_)) => conflicts += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((stored, won.len(), conflicts), (1, 1, 10), "one wins, and its repetitions with it: {won:?}");
    assert_eq!(t.all(&id).await.iter().filter(|m| !m.void).count(), 1);
}

pub async fn an_erased_message_conflicts_with_nothing(t: &Fixture) {
    let id = conversation("alice~bob");
    t.send(message(&id, Side::Low, "m")).await;
    t.send(message(&id, Side::High, "reply")).await;
    t.store.maintenance.erase_member(&user("alice"), &id).await.unwrap();
    let late = message(&id, Side::Low, "m").body("other");
    let told = t.store.messages.commit_sends(vec![late]).await.remove(0);
    assert!(told.is_ok(), "{told:?}");
}

pub async fn a_duplicate_notes_the_pending_row_again(t: &Fixture) {
    let (id, bob) = (conversation("alice~bob"), user("bob"));
    t.send(message(&id, Side::Low, "m1")).await;
    t.send(message(&id, Side::Low, "m2")).await;
    assert_eq!(t.store.pending.pending_row(&bob, &id).await.unwrap(), None);
    t.send(message(&id, Side::Low, "m2").undelivered(true)).await;
    assert_eq!(
        t.store.pending.pending_row(&bob, &id).await.unwrap(),
        Some(2),
        "a retry runs the delivery steps again, with the original's seq"
    );
    t.send(message(&id, Side::High, "w").withheld(true)).await;
    t.send(message(&id, Side::High, "w").undelivered(true)).await;
    assert_eq!(
        t.store.pending.pending_row(&user("alice"), &id).await.unwrap(),
        None,
        "what was withheld stays withheld, whatever the retry says"
    );
}

pub async fn a_duplicate_of_what_was_acked_leaves_no_row(t: &Fixture) {
    let (id, bob) = (conversation("alice~bob"), user("bob"));
    t.send(message(&id, Side::Low, "m1")).await;
    t.send(message(&id, Side::Low, "m2")).await;
    t.store.status.advance(&bob, &id, 1, 0).await.unwrap();
    t.send(message(&id, Side::Low, "m1").undelivered(true)).await;
    assert_eq!(t.store.pending.pending_row(&bob, &id).await.unwrap(), None, "a device has it");
    t.send(message(&id, Side::Low, "m2").undelivered(true)).await;
    assert_eq!(t.store.pending.pending_row(&bob, &id).await.unwrap(), Some(2), "no device has said so");
}

pub async fn a_batch_is_committed_in_order(t: &Fixture) {
    let (ab, cd) = (conversation("alice~bob"), conversation("carol~dave"));
    let batch: Vec<NewMessage> =
        (0..60).map(|n| message(if n % 3 == 0 { &cd } else { &ab }, Side::Low, &format!("m{n}"))).collect();
    let results = t.store.messages.commit_sends(batch.clone()).await;
    assert_eq!(results.len(), batch.len(), "every send has a result");
    for (new, result) in batch.iter().zip(&results) {
        let stored = &result.as_ref().expect("each succeeds").message;
        assert_eq!(stored.client_msg_id, new.client_msg_id, "results come in the order of the sends");
    }
    for id in [&ab, &cd] {
        let expected: Vec<_> =
            batch.iter().filter(|n| n.conversation_id == *id).map(|n| n.body.clone()).collect();
        let stored: Vec<_> = t.all(id).await.iter().map(|m| m.body.clone()).collect();
        assert_eq!(stored, expected, "the order of a batch is the order of seqs");
    }
    assert!(t.store.messages.commit_sends(Vec::new()).await.is_empty(), "an empty batch has no results");
}

pub async fn results_are_independent(t: &Fixture) {
    let (ab, cd) = (conversation("alice~bob"), conversation("carol~dave"));
    t.send(message(&ab, Side::Low, "old")).await;
    let batch = vec![
        message(&ab, Side::Low, "old"),
        message(&ab, Side::Low, "new"),
        message(&cd, Side::High, "new"),
        message(&ab, Side::Low, "new"),
        message(&ab, Side::High, "reply"),
    ];
    let results: Vec<_> =
        t.store.messages.commit_sends(batch).await.into_iter().map(|r| r.unwrap()).collect();
    let told: Vec<_> = results.iter().map(|r| (r.message.seq, r.duplicate)).collect();
    assert_eq!(
        told,
        [(1, true), (2, false), (1, false), (2, true), (3, false)],
        "a duplicate, of an earlier send or of one in the same batch, takes no seq from the others"
    );
}

pub async fn message_ids_grow_with_the_seq(t: &Fixture) {
    let id = conversation("alice~bob");
    let mut ids = BTreeSet::new();
    for n in 0..50u64 {
        match n % 10 {
            3 => t.clock.advance(1),
            7 => t.clock.set(t.clock.now_ms() - 2),
            _ => {}
        }
        let sent = t.send(message(&id, Side::BOTH[n as usize % 2], &format!("m{n}"))).await;
        assert!(
            ids.last().is_none_or(|last| *last < sent.message.message_id),
            "ids grow, even if the clock falls back"
        );
        ids.insert(sent.message.message_id);
    }
    let stored: Vec<_> = t.all(&id).await.iter().map(|m| m.message_id).collect();
    assert_eq!(stored, ids.into_iter().collect::<Vec<_>>());
}
