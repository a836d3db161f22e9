//! Tests of the model with a wrong sequence counter (R8), and of what only the model promises.

use std::sync::Arc;

use bluetick_protocol::{ConversationId, Seq, Side, UserId};

use super::*;
use crate::{ManualClock, PageLimit, Store, testing::message};

fn conversation() -> ConversationId {
    ConversationId::new("alice~bob").unwrap()
}

fn bob() -> UserId {
    UserId::new("bob").unwrap()
}

fn disturbed(window_ms: u64) -> (Arc<Memory>, Store, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(1_760_000_000_000));
    let memory = Arc::new(Memory::new(clock.clone()).with_idempotency_window(window_ms));
    (memory.clone(), Store::from_memory(memory, clock.clone()), clock)
}

async fn send(store: &Store, id: &str) -> Seq {
    let new = message(&conversation(), Side::Low, id);
    store.messages.commit_sends(vec![new]).await.remove(0).unwrap().message.seq
}

async fn stored(store: &Store) -> Vec<(Seq, bool)> {
    let messages = store.messages.read_from(&conversation(), 1, PageLimit::messages(100)).await.unwrap();
    messages.iter().map(|m| (m.seq, m.void)).collect()
}

#[tokio::test]
async fn a_counter_that_fell_back_is_fenced_by_the_messages() {
    let (memory, store, _) = disturbed(1_000);
    for id in ["a", "b", "c"] {
        send(&store, id).await;
    }
    memory.fall_back(&conversation(), 1);
    assert_eq!(send(&store, "d").await, 4, "seq 2 is taken, so the counter is raised to the maximum");
    assert_eq!(send(&store, "e").await, 5);
    memory.fall_back(&conversation(), 0);
    assert_eq!(memory.leak_seq(&conversation()), 6, "a leaked seq is fenced as well");
}

#[tokio::test]
async fn a_leaked_seq_is_a_hole_until_a_void_closes_it() {
    let (memory, store, _) = disturbed(1_000);
    send(&store, "a").await;
    assert_eq!(memory.leak_seq(&conversation()), 2);
    assert_eq!(store.messages.last_seq(&conversation()).await.unwrap(), 1, "a leaked seq holds nothing");
    assert_eq!(send(&store, "b").await, 3);
    assert_eq!(stored(&store).await, [(1, false), (3, false)]);
    let before = store.conversations.conversation(&bob(), &conversation()).await.unwrap();

    store.messages.close_hole(&conversation(), 2).await.unwrap();
    store.messages.close_hole(&conversation(), 2).await.unwrap();
    store.messages.close_hole(&conversation(), 3).await.unwrap();
    store.messages.close_hole(&conversation(), 9).await.unwrap();
    assert_eq!(stored(&store).await, [(1, false), (2, true), (3, false)], "only the hole was closed");
    let after = store.conversations.conversation(&bob(), &conversation()).await.unwrap();
    assert_eq!(before, after, "a closed hole shows in no row and counts as nothing unread");
}

#[tokio::test]
async fn a_hole_at_the_end_can_be_closed_and_the_next_send_goes_past_it() {
    let (memory, store, _) = disturbed(1_000);
    send(&store, "a").await;
    memory.leak_seq(&conversation());
    store.messages.close_hole(&conversation(), 2).await.unwrap();
    assert_eq!(store.messages.last_seq(&conversation()).await.unwrap(), 2);
    let row = store.conversations.conversation(&bob(), &conversation()).await.unwrap().unwrap();
    assert_eq!((row.last_seq, row.unread_count, row.last_message_preview.as_str()), (1, 1, "a"));
    assert_eq!(send(&store, "b").await, 3);
}

#[tokio::test]
async fn the_idempotency_window_can_be_set() {
    let (_, store, clock) = disturbed(1_000);
    assert_eq!(send(&store, "a").await, 1);
    clock.advance(999);
    assert_eq!(send(&store, "a").await, 1);
    clock.advance(1);
    assert_eq!(send(&store, "a").await, 2);
}

#[tokio::test]
async fn a_backup_is_refused() {
    let (_, store, _) = disturbed(1_000);
    let refused = store.maintenance.backup(&mut |_| Ok(())).await;
    assert!(matches!(refused, Err(StoreError::Unsupported(_))), "{refused:?}");
}
