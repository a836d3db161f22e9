//! Claims of owed notifications: late, concurrent, and behind a long outbox.

use super::*;

fn owed(peer: usize, due_at: u64) -> OwedPush {
    OwedPush {
        user_id: UserId::new("bob").unwrap(),
        conversation_id: ConversationId::new(&format!("bob~c{peer:05}")).unwrap(),
        seq: 1,
        clear: false,
        attempts: 0,
        devices: Vec::new(),
        due_at,
    }
}

#[tokio::test]
async fn a_claim_that_comes_too_late_gets_nothing() {
    let t = world().await;
    // Two have read the row while it was due.
    let seen = owed(1, 100);
    t.rows.owe(seen.clone()).await.unwrap();
    let first = t.rows.claim_one(seen.clone(), 500).await.unwrap();
    assert_eq!(first, Some(OwedPush { due_at: 500, ..seen.clone() }));
    assert_eq!(t.rows.claim_one(seen.clone(), 500).await.unwrap(), None, "though it says the same now");
    // Another message, or nothing more, in the meantime.
    let next = OwedPush { seq: 2, ..seen.clone() };
    t.rows.owe(next.clone()).await.unwrap();
    assert_eq!(t.rows.claim_one(seen.clone(), 500).await.unwrap(), None, "what is due is not what was read");
    t.rows.paid(&next).await.unwrap();
    assert_eq!(t.rows.claim_one(next, 500).await.unwrap(), None);
    assert_eq!(t.rows.owed_to(&seen.user_id).await.unwrap(), [], "a claim makes no row");
}

#[tokio::test]
async fn what_is_due_behind_more_than_one_look_is_found_by_another() {
    let t = world().await;
    let later: Vec<_> = (0..4_500).map(|n| (Table::PushOutbox, owed_item(&owed(n, 900)))).collect();
    for batch in later.chunks(25) {
        t.rows.dynamo.put_batch(batch.to_vec()).await.unwrap();
    }
    let due: Vec<_> = (5_000..5_010).map(|n| owed(n, 100)).collect();
    for owed in &due {
        t.rows.owe(owed.clone()).await.unwrap();
    }
    let (mut claimed, mut looks) = (Vec::new(), 0);
    while claimed.len() < due.len() {
        claimed.extend(t.rows.claim(100, 500, 3).await.unwrap());
        looks += 1;
        assert!(looks < 20, "{} were found", claimed.len());
    }
    claimed.sort_by_key(|owed| owed.conversation_id.clone());
    let expected: Vec<_> = due.into_iter().map(|owed| OwedPush { due_at: 500, ..owed }).collect();
    assert_eq!(claimed, expected);
}

#[tokio::test]
async fn two_nodes_share_what_is_due() {
    let t = world().await;
    let other = Arc::new(DynamoStore::new(
        t.rows.dynamo.clone(),
        t.rows.redis.clone(),
        t.clock.clone(),
        30 * 24 * 3_600_000,
    ));
    for n in 0..60 {
        t.rows.owe(owed(n, 100)).await.unwrap();
    }
    let all_of = async |rows: &DynamoStore| {
        let mut mine = Vec::new();
        loop {
            let found = rows.claim(100, 500, 7).await.unwrap();
            if found.is_empty() {
                return mine;
            }
            mine.extend(found.into_iter().map(|owed| owed.conversation_id));
        }
    };
    let (one, two) = tokio::join!(all_of(&t.rows), all_of(&other));
    let mut all = [one, two].concat();
    assert_eq!(all.len(), 60);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 60, "each row went to one of them");
}
