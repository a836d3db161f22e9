//! `push_outbox`: what devices are owed, one row a conversation, claimed by one at a time.

use std::collections::BTreeSet;

use bluetick_protocol::{ConversationId, DeviceId, Seq, Side};

use super::fixture::{Fixture, START_MS};
use crate::{
    OwedPush,
    testing::{conversation, message, user},
};

fn owed(id: &ConversationId, seq: Seq, due_at: u64) -> OwedPush {
    OwedPush::new(user("bob"), id.clone(), seq, due_at)
}

impl Fixture {
    async fn owed_to_bob(&self) -> Vec<OwedPush> {
        self.store.push_outbox.owed_to(&user("bob")).await.unwrap()
    }

    /// Claims until nothing more is found.
    async fn claim_all(&self, now: u64, until: u64) -> Vec<OwedPush> {
        let mut all = Vec::new();
        loop {
            let found = self.store.push_outbox.claim(now, until, 3).await.unwrap();
            assert!(found.len() <= 3);
            if found.is_empty() {
                all.sort_by_key(|owed: &OwedPush| owed.conversation_id.clone());
                return all;
            }
            all.extend(found);
        }
    }
}

pub async fn a_conversation_is_owed_the_latest(t: &Fixture) {
    let (outbox, id) = (&t.store.push_outbox, conversation("alice~bob"));
    outbox.owe(owed(&id, 2, 100)).await.unwrap();
    outbox.owe(owed(&id, 1, 90)).await.unwrap();
    assert_eq!(t.owed_to_bob().await, [owed(&id, 2, 100)], "what comes late changes nothing");
    outbox.owe(owed(&id, 2, 200)).await.unwrap();
    assert_eq!(t.owed_to_bob().await, [owed(&id, 2, 100)], "nor does the same once more");
    outbox.owe(owed(&id, 3, 110)).await.unwrap();
    assert_eq!(t.owed_to_bob().await, [owed(&id, 3, 110)]);
    let clear = OwedPush { clear: true, ..owed(&id, 3, 120) };
    outbox.owe(clear.clone()).await.unwrap();
    assert_eq!(t.owed_to_bob().await, [clear.clone()], "that it was read replaces that it is there");
    outbox.owe(owed(&id, 3, 130)).await.unwrap();
    assert_eq!(t.owed_to_bob().await, [clear], "and not the other way round");
    outbox.owe(owed(&id, 4, 140)).await.unwrap();
    assert_eq!(t.owed_to_bob().await, [owed(&id, 4, 140)]);
    assert_eq!(outbox.owed_to(&user("alice")).await.unwrap(), []);
}

pub async fn what_is_due_is_claimed_once(t: &Fixture) {
    let outbox = &t.store.push_outbox;
    let ids = ["alice~bob", "bob~carol", "bob~dave", "bob~eve", "bob~zoe"].map(conversation);
    for (n, id) in ids.iter().enumerate() {
        outbox.owe(owed(id, 1, 100 + n as u64)).await.unwrap();
    }
    assert_eq!(t.claim_all(99, 500).await, [], "nothing is due yet");
    let claimed = t.claim_all(103, 500).await;
    let expected: Vec<_> = ids[..4].iter().map(|id| owed(id, 1, 500)).collect();
    assert_eq!(claimed, expected, "rows come with the time until which they are the claimer's");
    assert_eq!(t.claim_all(103, 500).await, [], "nobody gets them twice");
    assert_eq!(t.claim_all(499, 700).await, [owed(&ids[4], 1, 700)]);
    assert_eq!(t.claim_all(500, 600).await.len(), 4, "but who claimed and died loses nothing");
}

pub async fn many_claimers_share(t: &Fixture) {
    for n in 0..30 {
        t.store.push_outbox.owe(owed(&conversation(&format!("bob~c{n:02}")), 1, 100)).await.unwrap();
    }
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let store = t.store.clone();
            tokio::spawn(async move {
                let (mut mine, mut empty) = (Vec::new(), 0);
                while empty < 3 {
                    let found = store.push_outbox.claim(100, 500, 4).await.unwrap();
                    empty = if found.is_empty() { empty + 1 } else { 0 };
                    mine.extend(found.into_iter().map(|owed| owed.conversation_id));
                }
                mine
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    assert_eq!(all.len(), 30, "each row went to one of them");
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 30);
}

pub async fn a_row_is_postponed_and_paid_only_as_it_was(t: &Fixture) {
    let (outbox, id) = (&t.store.push_outbox, conversation("alice~bob"));
    outbox.owe(owed(&id, 1, 100)).await.unwrap();
    let left = vec![DeviceId::new("phone").unwrap(), DeviceId::new("tablet").unwrap()];
    let later = OwedPush { attempts: 2, devices: left, ..owed(&id, 1, 300) };
    assert!(outbox.postpone(&owed(&id, 1, 0), &later).await.unwrap());
    assert_eq!(t.owed_to_bob().await, [later.clone()]);
    // Who took it before that try knows nothing of who still lacks it.
    assert!(!outbox.postpone(&owed(&id, 1, 0), &owed(&id, 1, 200)).await.unwrap());
    outbox.paid(&owed(&id, 1, 0)).await.unwrap();
    assert_eq!(t.owed_to_bob().await, [later.clone()]);
    assert_eq!(t.claim_all(299, 500).await, []);
    assert_eq!(t.claim_all(300, 400).await, [OwedPush { due_at: 400, ..later.clone() }]);

    outbox.owe(owed(&id, 2, 110)).await.unwrap();
    assert_eq!(t.owed_to_bob().await, [owed(&id, 2, 110)], "a later message begins anew, for all devices");
    assert!(!outbox.postpone(&later, &later).await.unwrap());
    outbox.paid(&later).await.unwrap();
    assert_eq!(t.owed_to_bob().await, [owed(&id, 2, 110)], "what came after stays owed");
    let clear = OwedPush { clear: true, ..owed(&id, 2, 120) };
    outbox.owe(clear.clone()).await.unwrap();
    outbox.paid(&owed(&id, 2, 0)).await.unwrap();
    assert_eq!(t.owed_to_bob().await, [clear.clone()]);
    outbox.paid(&clear).await.unwrap();
    assert_eq!(t.owed_to_bob().await, []);
    assert!(!outbox.postpone(&clear, &clear).await.unwrap(), "nothing is made anew");
    outbox.owe(owed(&id, 3, 100)).await.unwrap();
    outbox.paid(&owed(&id, 5, 0)).await.unwrap();
    assert_eq!(t.owed_to_bob().await, [], "what is later pays for what was before");
}

pub async fn an_undelivered_send_owes_with_its_row(t: &Fixture) {
    let (id, due_at) = (conversation("alice~bob"), START_MS + 100);
    let offline = |name: &str| message(&id, Side::Low, name).undelivered(true).push_due(due_at);
    t.send(message(&id, Side::Low, "online")).await;
    assert_eq!(t.owed_to_bob().await, []);
    t.send(offline("m2")).await;
    assert_eq!(t.owed_to_bob().await, [owed(&id, 2, due_at)]);
    t.send(offline("m3").push_due(None)).await;
    assert_eq!(t.owed_to_bob().await, [owed(&id, 2, due_at)], "only what asks for it");
    t.send(offline("m4").withheld(true)).await;
    assert_eq!(t.owed_to_bob().await, [owed(&id, 2, due_at)], "what is withheld notifies nobody");
    t.send(offline("m5")).await;
    assert_eq!(t.owed_to_bob().await, [owed(&id, 5, due_at)]);

    // A retry owes what its first run did not come to, and nothing that was notified.
    t.store.push_outbox.paid(&owed(&id, 5, 0)).await.unwrap();
    assert!(t.send(offline("m5")).await.duplicate);
    assert_eq!(t.owed_to_bob().await, [owed(&id, 5, due_at)]);
    t.store.push_outbox.paid(&owed(&id, 5, 0)).await.unwrap();
    t.store.status.raise_notified(&user("bob"), &id, 5).await.unwrap();
    assert!(t.send(offline("m5")).await.duplicate);
    assert_eq!(t.owed_to_bob().await, []);
}

pub async fn what_was_notified_only_grows(t: &Fixture) {
    let (bob, id) = (user("bob"), conversation("alice~bob"));
    let status = &t.store.status;
    t.send_many(&id, Side::Low, 5).await;
    assert_eq!(status.notified(&bob, &id).await.unwrap().1, 0);
    for (raised, is) in [(2, 2), (1, 2), (4, 4)] {
        status.raise_notified(&bob, &id, raised).await.unwrap();
        assert_eq!(status.notified(&bob, &id).await.unwrap().1, is);
    }
    assert_eq!(status.statuses_of(&bob).await.unwrap(), [], "it is no receipt");
    let advanced = status.advance(&bob, &id, 3, 2).await.unwrap();
    assert!(advanced.moved);
    assert_eq!(advanced.read_before, 0);
    let (row, notified) = status.notified(&bob, &id).await.unwrap();
    assert_eq!((row.last_delivered_seq, row.last_read_seq, notified), (3, 2, 4), "and receipts leave it");
    assert_eq!(status.advance(&bob, &id, 5, 5).await.unwrap().read_before, 2);
    assert_eq!(status.notified(&bob, &id).await.unwrap().1, 4);
    assert_eq!(status.statuses_of(&bob).await.unwrap().len(), 1);
    assert_eq!(status.notified(&user("alice"), &id).await.unwrap().1, 0);
}

pub async fn erasing_leaves_nothing_owed(t: &Fixture) {
    let (bob, ids) = (user("bob"), ["alice~bob", "bob~carol"].map(conversation));
    for id in &ids {
        t.send_many(id, if id == &ids[0] { Side::Low } else { Side::High }, 2).await;
        t.store.push_outbox.owe(owed(id, 2, 100)).await.unwrap();
        t.store.status.raise_notified(&bob, id, 1).await.unwrap();
    }
    t.store.maintenance.erase_member(&bob, &ids[0]).await.unwrap();
    assert_eq!(t.owed_to_bob().await, [owed(&ids[1], 2, 100)]);
    assert_eq!(t.store.status.notified(&bob, &ids[0]).await.unwrap().1, 0);
    assert_eq!(t.store.status.notified(&bob, &ids[1]).await.unwrap().1, 1);
    t.store.maintenance.erase_user(&bob).await.unwrap();
    assert_eq!(t.owed_to_bob().await, []);
}
