//! The cold tier: what is in a run is read as if it were hot, and nothing that is counted or shown
//! changes by it.

use std::sync::Arc;

use bluetick_protocol::{ConversationId, Seq, Side};

use super::fixture::Fixture;
use crate::{
    COLD_SHARDS, Clock as _, ColdCandidate, ColdRun, EnlistPlace, Message, PageLimit, StoreError, cold_shard,
    testing::{conversation, message},
};

const DAY: u64 = 24 * 3_600_000;

/// `n` messages of both sides, acked by both, all of them at rest.
async fn settled(t: &Fixture, id: &ConversationId, n: usize) -> Vec<Arc<Message>> {
    for i in 0..n {
        let side = if i % 3 == 0 { Side::High } else { Side::Low };
        t.clock.advance(1_000);
        t.send(message(id, side, &format!("m{i}"))).await;
    }
    for side in Side::BOTH {
        t.store.status.advance(&id.member(side), id, n as Seq, 0).await.unwrap();
    }
    t.store.maintenance.checkpoint().await.unwrap();
    t.all(id).await
}

/// Moves everything from the border up to a seq, as the mover does. Returns the run.
async fn move_up_to(t: &Fixture, id: &ConversationId, up_to: Seq) -> ColdRun {
    let run = write_up_to(t, id, up_to).await;
    drop_all(t, id).await;
    run
}

async fn write_up_to(t: &Fixture, id: &ConversationId, up_to: Seq) -> ColdRun {
    let cold = &t.store.cold;
    let seen = cold.runs.movable(id).await.unwrap().unwrap();
    assert!(up_to <= seen.up_to, "{up_to} is not to be moved: {seen:?}");
    let wanted = PageLimit { messages: (up_to + 1 - seen.from) as usize, bytes: usize::MAX };
    let messages = cold.hot.read_from(id, seen.from, wanted).await.unwrap();
    let run = cold.objects().unwrap().write(&messages).await.unwrap();
    assert!(cold.runs.record(&run, None, &seen).await.unwrap());
    run
}

async fn drop_all(t: &Fixture, id: &ConversationId) {
    loop {
        let some = t.store.cold.runs.leftovers(id, 7).await.unwrap();
        if some.is_empty() {
            return;
        }
        t.store.cold.runs.drop_hot(&some).await.unwrap();
    }
}

/// Both ways, by pages of all sizes, what is read is what was sent.
async fn reads_as(t: &Fixture, id: &ConversationId, expected: &[Arc<Message>]) {
    assert_eq!(t.all(id).await, expected);
    for size in [1, 7, 50] {
        let limit = PageLimit::messages(size);
        for from in (1..=expected.len() as Seq).step_by(5) {
            let page = t.store.messages.read_from(id, from, limit).await.unwrap();
            let end = (from as usize - 1 + size).min(expected.len());
            assert_eq!(page, expected[from as usize - 1..end], "from {from} by {size}");
        }
        for before in (1..=expected.len() as Seq + 1).step_by(5) {
            let page = t.store.messages.read_before(id, before, limit).await.unwrap();
            let begin = (before as usize - 1).saturating_sub(size);
            assert_eq!(page, expected[begin..before as usize - 1], "before {before} by {size}");
        }
    }
}

pub async fn what_is_cold_is_read_as_if_it_were_hot(t: &Fixture) {
    let id = conversation("alice~bob");
    let messages = settled(t, &id, 60).await;
    let first = move_up_to(t, &id, 21).await;
    reads_as(t, &id, &messages).await;
    let second = move_up_to(t, &id, 40).await;
    reads_as(t, &id, &messages).await;
    assert_eq!((first.first_seq, first.last_seq, second.first_seq, second.last_seq), (1, 21, 22, 40));
    let hot = t.store.cold.hot.read_from(&id, 1, PageLimit::messages(100)).await.unwrap();
    assert_eq!(hot, messages[40..], "what was moved is hot no more");
    assert_eq!(t.store.messages.last_seq(&id).await.unwrap(), 60);
    assert_eq!(t.store.messages.find(messages[3].message_id).await.unwrap().as_ref(), Some(&messages[3]));
    // What follows goes on where it was.
    let next = t.send(message(&id, Side::Low, "next")).await.message;
    assert_eq!(next.seq, 61);
}

pub async fn pages_end_by_bytes_across_the_border(t: &Fixture) {
    let id = conversation("alice~bob");
    for i in 0..60 {
        // The last twenty are long.
        let mut new = message(&id, Side::Low, &format!("m{i}"));
        new.body = if i < 40 { format!("short {i}") } else { format!("long {i} {}", "x".repeat(1_000)) };
        t.send(new).await;
    }
    t.store.status.advance(&id.member(Side::High), &id, 60, 0).await.unwrap();
    t.store.maintenance.checkpoint().await.unwrap();
    let messages = t.all(&id).await;
    move_up_to(t, &id, 30).await;
    for bytes in [1, 500, 3_000, 7_000, 15_000, 30_000] {
        let limit = PageLimit { messages: 50, bytes };
        let mut before = 61;
        while before > 1 {
            let page = t.store.messages.read_before(&id, before, limit).await.unwrap();
            let first = page.first().expect("a page has at least one message").seq;
            assert!(
                page == messages[first as usize - 1..before as usize - 1],
                "before {before} of {bytes} bytes"
            );
            before = first;
        }
        let mut from = 1;
        while from <= 60 {
            let page = t.store.messages.read_from(&id, from, limit).await.unwrap();
            let last = page.last().expect("a page has at least one message").seq;
            assert!(page == messages[from as usize - 1..last as usize], "from {from} of {bytes} bytes");
            from = last + 1;
        }
    }
}

pub async fn runs_are_found_by_any_of_their_seqs(t: &Fixture) {
    let [id, other] = ["alice~bob", "alice~bobby"].map(conversation);
    settled(t, &id, 30).await;
    settled(t, &other, 10).await;
    let runs = &t.store.cold.runs;
    assert_eq!(runs.runs_from(&id, 1, 10).await.unwrap(), []);
    let [a, b] = [move_up_to(t, &id, 10).await, move_up_to(t, &id, 25).await];
    let c = move_up_to(t, &other, 5).await;
    assert_eq!(runs.runs_from(&id, 0, 10).await.unwrap(), [a.clone(), b.clone()]);
    assert_eq!(runs.runs_from(&id, 10, 1).await.unwrap(), [a.clone()]);
    assert_eq!(runs.runs_from(&id, 11, 10).await.unwrap(), [b.clone()]);
    assert_eq!(runs.runs_from(&id, 25, 10).await.unwrap(), [b.clone()]);
    assert_eq!(runs.runs_from(&id, 26, 10).await.unwrap(), []);
    let mut all: Vec<ColdRun> = Vec::new();
    loop {
        let page = runs.all_runs(all.last(), 2).await.unwrap();
        if page.is_empty() {
            break;
        }
        all.extend(page);
    }
    all.sort_by_key(|run| (run.conversation_id.clone(), run.last_seq));
    assert_eq!(all, [a, b, c]);
}

pub async fn a_record_is_made_once(t: &Fixture) {
    let id = conversation("alice~bob");
    let messages = settled(t, &id, 20).await;
    let cold = &t.store.cold;
    let seen = cold.runs.movable(&id).await.unwrap().unwrap();
    assert_eq!((seen.from, seen.up_to, seen.last_run.is_none()), (1, 19, true));
    let objects = cold.objects().unwrap();
    let short = objects.write(&messages[..5]).await.unwrap();
    let long = objects.write(&messages[..9]).await.unwrap();
    let whole = objects.write(&messages).await.unwrap();
    let late = objects.write(&messages[5..9]).await.unwrap();
    assert!(!cold.runs.record(&whole, None, &seen).await.unwrap(), "the highest seq stays");
    assert!(!cold.runs.record(&late, None, &seen).await.unwrap(), "a run begins where the last one ended");
    assert!(cold.runs.record(&short, None, &seen).await.unwrap());
    assert!(!cold.runs.record(&long, None, &seen).await.unwrap(), "somebody was faster");
    let seen = cold.runs.movable(&id).await.unwrap().unwrap();
    assert_eq!((seen.from, seen.last_run.as_ref()), (6, Some(&short)));
    // A short run is written anew together with what follows it.
    assert!(cold.runs.record(&long, Some(&short), &seen).await.unwrap());
    assert_eq!(cold.runs.runs_from(&id, 1, 10).await.unwrap(), [long.clone()]);
    assert!(!cold.runs.swap(&short, &long).await.unwrap(), "it is there no more");
    drop_all(t, &id).await;
    reads_as(t, &id, &messages).await;
}

pub async fn copies_are_read_once(t: &Fixture) {
    let id = conversation("alice~bob");
    let messages = settled(t, &id, 40).await;
    write_up_to(t, &id, 30).await;
    reads_as(t, &id, &messages).await;
    let leftovers = t.store.cold.runs.leftovers(&id, 100).await.unwrap();
    assert_eq!(leftovers, messages[..30]);
    // Some of the copies are dropped, from the middle: as a crash may leave it.
    t.store.cold.runs.drop_hot(&leftovers[10..20]).await.unwrap();
    reads_as(t, &id, &messages).await;
    t.store.cold.runs.drop_hot(&leftovers[..5]).await.unwrap();
    reads_as(t, &id, &messages).await;
    drop_all(t, &id).await;
    reads_as(t, &id, &messages).await;
}

pub async fn what_may_move_says_what_is_not_settled(t: &Fixture) {
    let id = conversation("alice~bob");
    assert!(t.store.cold.runs.movable(&id).await.unwrap().is_none());
    for i in 0..10 {
        let mut new = message(&id, Side::Low, &format!("m{i}"));
        new.undelivered = i == 7;
        t.send(new).await;
    }
    t.store.status.advance(&id.member(Side::High), &id, 6, 0).await.unwrap();
    t.store.maintenance.checkpoint().await.unwrap();
    let seen = t.store.cold.runs.movable(&id).await.unwrap().unwrap();
    assert_eq!((seen.from, seen.up_to), (1, 9));
    assert_eq!(seen.delivered[Side::High.index()], 6);
    assert_eq!(seen.pending, [None, Some(8)]);
    let settled = t.all(&id).await.iter().take_while(|m| seen.is_settled(m)).count();
    assert_eq!(settled, 6);
}

pub async fn counts_are_exact_across_the_border(t: &Fixture) {
    let id = conversation("alice~bob");
    settled(t, &id, 60).await;
    let [alice, bob] = Side::BOTH.map(|side| id.member(side));
    let before = [t.unread(&alice, &id).await, t.unread(&bob, &id).await];
    assert_eq!(before, [20, 40]);
    move_up_to(t, &id, 13).await;
    move_up_to(t, &id, 45).await;
    assert_eq!([t.unread(&alice, &id).await, t.unread(&bob, &id).await], before);
    // A read that ends in the first run, in the second, and behind both. Of every three messages,
    // the first is Bob's.
    let mut read = 0;
    for up_to in [8, 13, 14, 44, 45, 46, 58] {
        t.store.status.advance(&bob, &id, 0, up_to).await.unwrap();
        read = up_to.max(read);
        let alices = (read + 1..=60).filter(|seq| (seq - 1) % 3 != 0).count() as u64;
        assert_eq!(t.unread(&bob, &id).await, alices, "read up to {up_to}");
        t.store.status.advance(&alice, &id, 0, up_to).await.unwrap();
        let bobs = (read + 1..=60).filter(|seq| (seq - 1) % 3 == 0).count() as u64;
        assert_eq!(t.unread(&alice, &id).await, bobs, "read up to {up_to}");
    }
    for user in [&alice, &bob] {
        let (said, says) = t.store.conversations.recount(user, &id).await.unwrap();
        assert_eq!(said, says, "a recount agrees");
    }
}

pub async fn a_reply_reads_across_the_border(t: &Fixture) {
    let id = conversation("alice~bob");
    settled(t, &id, 30).await;
    move_up_to(t, &id, 20).await;
    let bob = id.member(Side::High);
    let mut reply = message(&id, Side::High, "reply");
    reply.seen_seq = Some(11);
    t.send(reply).await;
    assert_eq!(t.store.status.status(&bob, &id).await.unwrap().last_read_seq, 11);
    let alices = (12..=30u64).filter(|seq| (seq - 1) % 3 != 0).count() as u64;
    assert_eq!(t.unread(&bob, &id).await, alices);
}

pub async fn a_recount_counts_what_is_cold(t: &Fixture) {
    let id = conversation("alice~bob");
    settled(t, &id, 30).await;
    move_up_to(t, &id, 20).await;
    for side in Side::BOTH {
        let user = id.member(side);
        let unread = t.unread(&user, &id).await;
        assert_eq!(t.store.conversations.recount(&user, &id).await.unwrap(), (unread, unread));
    }
}

pub async fn erasing_reaches_what_is_cold(t: &Fixture) {
    let id = conversation("alice~bob");
    let messages = settled(t, &id, 40).await;
    let run = move_up_to(t, &id, 25).await;
    let [alice, bob] = Side::BOTH.map(|side| id.member(side));
    let of_alice = messages.iter().filter(|m| m.from == Side::Low);
    let cold = of_alice.clone().filter(|m| m.seq <= 25).count() as u64;
    let seen = t.store.cold.runs.movable(&id).await.unwrap().unwrap();
    assert_eq!(t.store.cold.erase(&id, Side::Low, false).await.unwrap(), cold);
    t.store.maintenance.erase_member(&alice, &id).await.unwrap();
    assert_eq!(t.store.cold.erase(&id, Side::Low, true).await.unwrap(), 0, "once is enough");
    let expected: Vec<_> =
        messages.iter().map(|m| if m.from == Side::Low { Arc::new(m.voided()) } else { m.clone() }).collect();
    reads_as(t, &id, &expected).await;
    assert_eq!(t.unread(&bob, &id).await, 0);
    let info = t.store.cold.objects().unwrap().objects().info(&run.object).await.unwrap();
    assert_eq!(info, None, "the old object is gone");
    let listed = t.store.cold.objects().unwrap().list(&id).await.unwrap();
    assert_eq!(listed.len(), 1, "and a new one is in its place");
    // Whoever had read the messages before the erasure records nothing of them.
    let stale = t.store.cold.objects().unwrap().write(&messages[25..30]).await.unwrap();
    assert!(!t.store.cold.runs.record(&stale, None, &seen).await.unwrap());
}

pub async fn a_missing_object_is_named(t: &Fixture) {
    let id = conversation("alice~bob");
    settled(t, &id, 20).await;
    let run = move_up_to(t, &id, 10).await;
    t.store.cold.objects().unwrap().delete(&run.object).await.unwrap();
    let limit = PageLimit::messages(5);
    for page in [
        t.store.messages.read_from(&id, 3, limit).await,
        t.store.messages.read_before(&id, 13, limit).await,
        t.store.messages.read_before(&id, 6, limit).await,
    ] {
        match page {
            Err(StoreError::Damaged { object, .. }) => assert_eq!(object, run.object),
            other => panic!("a page that cannot be read is {other:?}"),
        }
    }
    assert_eq!(
        t.store.messages.read_from(&id, 11, limit).await.unwrap().len(),
        5,
        "the rest is not touched by it"
    );
    let mut reply = message(&id, Side::High, "reply");
    reply.seen_seq = Some(5);
    assert_eq!(t.send(reply).await.message.seq, 21, "nor is who goes on talking");
}

pub async fn candidates_are_found_and_come_back(t: &Fixture) {
    let ids: Vec<_> = (0..30).map(|n| conversation(&format!("alice~bob{n:02}"))).collect();
    for id in &ids {
        settled(t, id, 3).await;
    }
    let mut place = Some(EnlistPlace::default());
    while let Some(from) = place {
        place = t.store.cold.runs.enlist(0, from).await.unwrap().1;
    }
    t.clock.advance(400 * DAY);
    let runs = &t.store.cold.runs;
    let now = t.clock.now_ms();
    let mut found: Vec<ConversationId> = Vec::new();
    for shard in 0..COLD_SHARDS {
        let mut after: Option<ColdCandidate> = None;
        loop {
            let page = runs.candidates(shard, after.as_ref(), now, 2).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some(last.clone());
            assert!(page.iter().all(|c| cold_shard(&c.conversation_id) == shard));
            for candidate in &page {
                found.push(candidate.conversation_id.clone());
                runs.looked_at(candidate, Some(now + DAY)).await.unwrap();
            }
        }
    }
    found.sort();
    found.dedup();
    assert_eq!(found, ids);
}

pub async fn a_shard_has_one_holder(t: &Fixture) {
    let runs = &t.store.cold.runs;
    let now = t.clock.now_ms();
    assert!(runs.lease(3, "a", now, now + 100).await.unwrap());
    assert!(runs.lease(3, "a", now + 10, now + 110).await.unwrap(), "who has it keeps it");
    assert!(!runs.lease(3, "b", now + 50, now + 150).await.unwrap());
    assert!(runs.lease(4, "b", now + 50, now + 150).await.unwrap(), "another shard is another matter");
    assert!(runs.lease(3, "b", now + 110, now + 210).await.unwrap(), "it ended");
    assert!(!runs.lease(3, "a", now + 120, now + 220).await.unwrap());
}
