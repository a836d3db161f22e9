//! What only the embedded store can get wrong: its directory, its restarts.

#![allow(clippy::unwrap_used)]

use std::{path::Path, sync::Arc, time::Duration};

use bluetick_protocol::{ClientMsgId, ConversationId, Side};
use bluetick_store::{
    EmbeddedConfig, ManualClock, NewMessage, PageLimit, Store, StoreError,
    conformance::model::{same_as_model, still_same_as_model},
};

const START_MS: u64 = 1_760_000_000_000;

fn open(dir: &Path, checkpoint_bytes: u64, clock: &Arc<ManualClock>) -> Store {
    let config = EmbeddedConfig { checkpoint_bytes, ..EmbeddedConfig::new(dir) };
    // The threads of a store that was just dropped may need a moment to let go of the directory.
    for _ in 0..200 {
        match Store::embedded(config.clone(), clock.clone()) {
            Ok(store) => return store,
            Err(StoreError::Unusable(why)) if why.contains("in use") => {
                std::thread::sleep(Duration::from_millis(25))
            }
            Err(e) => panic!("the store does not open: {e}"),
        }
    }
    panic!("the directory stays locked");
}

fn message(n: u64) -> NewMessage {
    NewMessage {
        conversation_id: ConversationId::new("alice~bob").unwrap(),
        from: Side::Low,
        client_msg_id: ClientMsgId::new(&format!("m{n}")).unwrap(),
        body: format!("message {n}"),
        attachment: None,
        meta: None,
        withheld: false,
        seen_seq: None,
        undelivered: true,
        push_due: None,
    }
}

/// Random operations, a restart in between each seed, and the rows of the model every time.
async fn survives_restarts(checkpoint_bytes: u64, close: bool) {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(START_MS));
    let model = Store::memory(clock.clone());
    for seed in 1..=6 {
        let store = open(dir.path(), checkpoint_bytes, &clock);
        for before in 1..seed {
            still_same_as_model(&store, &model, &clock, before).await;
        }
        same_as_model(&store, &model, &clock, seed).await;
        if close {
            store.maintenance.close().await.unwrap();
        }
    }
}

#[tokio::test]
async fn everything_is_there_after_a_restart_from_the_log_alone() {
    survives_restarts(1 << 30, false).await;
}

#[tokio::test]
async fn everything_is_there_after_restarts_between_checkpoints() {
    survives_restarts(20_000, false).await;
}

#[tokio::test]
async fn everything_is_there_after_a_clean_end() {
    survives_restarts(1 << 30, true).await;
}

#[tokio::test]
async fn message_ids_grow_even_if_the_clock_fell_back_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(START_MS));
    let store = open(dir.path(), 1 << 20, &clock);
    let first = store.messages.commit_sends(vec![message(1)]).await.remove(0).unwrap();
    drop(store);
    clock.set(START_MS - 3_600_000);
    let store = open(dir.path(), 1 << 20, &clock);
    let second = store.messages.commit_sends(vec![message(2)]).await.remove(0).unwrap();
    assert!(second.message.message_id > first.message.message_id);
}

#[tokio::test]
async fn a_log_cut_anywhere_in_its_last_group_opens_to_what_was_acknowledged_before() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(START_MS));
    let store = open(dir.path(), 1 << 30, &clock);
    for n in 1..=3 {
        store.messages.commit_sends(vec![message(n)]).await.remove(0).unwrap();
    }
    let segment = || {
        let mut logs: Vec<_> =
            std::fs::read_dir(dir.path().join("log")).unwrap().map(|item| item.unwrap().path()).collect();
        logs.sort();
        logs.pop().unwrap()
    };
    let before = std::fs::metadata(segment()).unwrap().len();
    store.messages.commit_sends(vec![message(4)]).await.remove(0).unwrap();
    let whole = std::fs::read(segment()).unwrap();
    drop(store);
    for cut in (before..whole.len() as u64).step_by(7) {
        std::fs::write(segment(), &whole[..cut as usize]).unwrap();
        let store = open(dir.path(), 1 << 30, &clock);
        let id = ConversationId::new("alice~bob").unwrap();
        let stored = store.messages.read_from(&id, 1, PageLimit::messages(10)).await.unwrap();
        assert_eq!(stored.len(), 3, "cut at {cut}");
    }
}

#[tokio::test]
async fn a_directory_in_use_or_of_a_newer_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(START_MS));
    let refused =
        |dir: &Path| Store::embedded(EmbeddedConfig::new(dir), clock.clone()).err().unwrap().to_string();
    let store = open(dir.path(), 1 << 20, &clock);
    assert!(refused(dir.path()).contains("in use"));
    drop(store);
    std::fs::write(dir.path().join("VERSION"), "3\n").unwrap();
    assert!(refused(dir.path()).contains("format 3"));
}

#[tokio::test]
async fn a_full_disk_refuses_sends_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(START_MS));
    let config = EmbeddedConfig { free_space_floor_bytes: u64::MAX, ..EmbeddedConfig::new(dir.path()) };
    let store = Store::embedded(config, clock).unwrap();
    let refused = store.messages.commit_sends(vec![message(1)]).await.remove(0);
    assert!(matches!(refused, Err(StoreError::Full(_))));
    assert!(store.maintenance.health().await.refusing.is_some());
    let id = ConversationId::new("alice~bob").unwrap();
    assert_eq!(store.messages.last_seq(&id).await.unwrap(), 0, "nothing of it is visible");
}
