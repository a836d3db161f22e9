//! What a crash, a restart or a backup leaves of the cold tier.

use std::{path::Path, sync::Arc};

use bluetick_protocol::UserId;

use super::*;
use crate::{
    ColdConfig, ColdObjects, Content, Conversations, EmbeddedConfig, EmbeddedSource, Maintenance,
    ManualClock, MessageStatus, Messages, NewMessage, Objects, embedded::committer::WriteOp, restore,
    testing::message,
};

struct ColdFixture {
    dir: tempfile::TempDir,
    objects: Arc<ColdObjects>,
}

impl ColdFixture {
    fn new() -> ColdFixture {
        let objects = ColdObjects::new(Objects::memory(), ColdConfig::default());
        ColdFixture { dir: tempfile::tempdir().unwrap(), objects: Arc::new(objects) }
    }

    fn config(&self, dir: &Path) -> EmbeddedConfig {
        let objects = Some(self.objects.clone());
        EmbeddedConfig { checkpoint_bytes: 1 << 30, objects, ..EmbeddedConfig::new(dir) }
    }

    fn open(&self) -> Embedded {
        open(self.config(self.dir.path()))
    }
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(1_760_000_000_000))
}

/// The threads of a store that was just dropped may hold the directory's lock a moment longer.
fn open(config: EmbeddedConfig) -> Embedded {
    for _ in 0..200 {
        match Embedded::open(config.clone(), clock()) {
            Ok(store) => return store,
            Err(StoreError::Unusable(why)) if why.contains("in use") => {
                std::thread::sleep(std::time::Duration::from_millis(25));
            }
            Err(e) => panic!("the store does not open: {e}"),
        }
    }
    panic!("the directory stays locked");
}

fn id() -> ConversationId {
    ConversationId::new("alice~bob").unwrap()
}

fn bob() -> UserId {
    UserId::new("bob").unwrap()
}

fn new(n: usize) -> NewMessage {
    message(&id(), Side::Low, &format!("m{n}")).body(format!("message {n}")).withheld(n.is_multiple_of(5))
}

async fn send(store: &Embedded, numbers: Range<usize>) {
    for sent in store.commit_sends(numbers.map(new).collect()).await {
        sent.unwrap();
    }
}

/// Messages 1 to 30, flushed to the engine.
async fn filled(store: &Embedded) -> Vec<Arc<Message>> {
    send(store, 1..31).await;
    store.advance(&bob(), &id(), 29, 0).await.unwrap();
    store.checkpoint().await.unwrap();
    store.read_from(&id(), 1, PageLimit::messages(100)).await.unwrap()
}

async fn record(store: &Embedded, objects: &ColdObjects, messages: &[Arc<Message>]) -> ColdRun {
    let seen = store.movable(&id()).await.unwrap().unwrap();
    let run = objects.write(messages).await.unwrap();
    assert!(store.record(&run, None, &seen).await.unwrap());
    run
}

/// Bob's unread count after a seq: of five messages, one is withheld.
fn unread_behind(seq: Seq) -> u64 {
    (seq + 1..=30).filter(|seq| seq % 5 != 0).count() as u64
}

async fn unread(store: &Embedded) -> u64 {
    store.conversation(&bob(), &id()).await.unwrap().unwrap().unread_count
}

#[tokio::test]
async fn a_crash_leaves_copies_that_are_found_again() {
    let place = ColdFixture::new();
    let store = place.open();
    let messages = filled(&store).await;
    let first = record(&store, &place.objects, &messages[..10]).await;
    store.drop_hot(&messages[..10]).await.unwrap();
    let second = record(&store, &place.objects, &messages[10..20]).await;
    // Removed from the middle; the rest stays.
    store.drop_hot(&messages[12..15]).await.unwrap();
    drop(store);

    let store = place.open();
    assert_eq!(store.runs_from(&id(), 1, 9).await.unwrap(), [first, second], "from the log");
    let left: Vec<Seq> = store.leftovers(&id(), 9).await.unwrap().iter().map(|m| m.seq).collect();
    assert_eq!(left, [11, 12, 16, 17, 18, 19, 20]);
    let candidates = store.candidates(cold_shard(&id()), None, 0, 9).await.unwrap();
    assert_eq!(candidates.len(), 1);
    // A message outside of every run is never removed.
    store.drop_hot(&messages).await.unwrap();
    assert_eq!(store.leftovers(&id(), 9).await.unwrap(), []);
    let hot = store.read_from(&id(), 1, PageLimit::messages(100)).await.unwrap();
    assert_eq!(hot, messages[20..]);
    let hot = store.read_before(&id(), 31, PageLimit::messages(100)).await.unwrap();
    assert_eq!(hot, messages[20..]);
    store.shut().await.unwrap();
}

#[tokio::test]
async fn what_is_left_behind_is_found_where_nothing_else_is_to_move() {
    let place = ColdFixture::new();
    let store = place.open();
    let messages = filled(&store).await;
    record(&store, &place.objects, &messages[..29]).await;
    store.drop_hot(&messages[..28]).await.unwrap();
    let shard = cold_shard(&id());
    assert_eq!(store.candidates(shard, None, 0, 9).await.unwrap().len(), 1);
    store.drop_hot(&messages[28..29]).await.unwrap();
    assert_eq!(store.candidates(shard, None, 0, 9).await.unwrap(), []);
    store.shut().await.unwrap();
}

#[tokio::test]
async fn nothing_is_recorded_behind_what_is_left() {
    let place = ColdFixture::new();
    let store = place.open();
    let messages = filled(&store).await;
    record(&store, &place.objects, &messages[..10]).await;
    store.drop_hot(&messages[1..10]).await.unwrap();
    let seen = store.movable(&id()).await.unwrap().unwrap();
    let next = place.objects.write(&messages[10..20]).await.unwrap();
    assert!(!store.record(&next, None, &seen).await.unwrap());
    store.drop_hot(&messages[..1]).await.unwrap();
    assert!(store.record(&next, None, &seen).await.unwrap());
    let left: Vec<Seq> = store.leftovers(&id(), 99).await.unwrap().iter().map(|m| m.seq).collect();
    assert_eq!(left, (11..=20).collect::<Vec<_>>());
    store.shut().await.unwrap();
}

#[tokio::test]
async fn who_has_nothing_old_is_no_candidate() {
    let place = ColdFixture::new();
    let store = place.open();
    let messages = filled(&store).await;
    let (shard, window) = (cold_shard(&id()), store.shared.config.idempotency_window_ms);
    let found = async |now| store.candidates(shard, None, now, 9).await.unwrap().len();
    assert_eq!(found(messages[0].ts + window).await, 0);
    assert_eq!(found(messages[0].ts + window + 1).await, 1);
    record(&store, &place.objects, &messages[..20]).await;
    store.drop_hot(&messages[..20]).await.unwrap();
    assert_eq!(found(messages[20].ts + window).await, 0);
    assert_eq!(found(messages[20].ts + window + 1).await, 1);
    store.shut().await.unwrap();
}

#[tokio::test]
async fn runs_are_read_over_memory_and_engine() {
    let place = ColdFixture::new();
    let store = place.open();
    let messages = filled(&store).await;
    let mut runs = Vec::new();
    for end in [5, 10, 15] {
        runs.push(record(&store, &place.objects, &messages[end - 5..end]).await);
        store.drop_hot(&messages[end - 5..end]).await.unwrap();
        if end == 10 {
            store.checkpoint().await.unwrap();
        }
    }
    // The run in memory is replaced, and one in the engine gets another object.
    let seen = store.movable(&id()).await.unwrap().unwrap();
    let longer = place.objects.write(&messages[10..20]).await.unwrap();
    assert!(store.record(&longer, runs.last(), &seen).await.unwrap());
    let anew = ColdRun { object: "elsewhere".into(), ..runs[1].clone() };
    assert!(store.swap(&runs[1], &anew).await.unwrap());
    let expected = [runs[0].clone(), anew, longer];
    for checkpointed in [false, true] {
        for from in 0..=21 {
            for limit in 1..4 {
                let found = store.runs_from(&id(), from, limit).await.unwrap();
                let wanted = expected.iter().filter(|run| run.last_seq >= from).take(limit).cloned();
                assert_eq!(found, wanted.collect::<Vec<_>>(), "{from} {limit} {checkpointed}");
            }
        }
        assert_eq!(store.all_runs(Some(&expected[0]), 9).await.unwrap(), expected[1..]);
        assert_eq!(store.movable(&id()).await.unwrap().unwrap().from, 21);
        store.checkpoint().await.unwrap();
    }
    store.shut().await.unwrap();
}

#[tokio::test]
async fn what_memory_holds_is_not_moved() {
    let place = ColdFixture::new();
    let store = place.open();
    let messages = filled(&store).await;
    send(&store, 31..36).await;
    let seen = store.movable(&id()).await.unwrap().unwrap();
    assert_eq!((seen.from, seen.up_to), (1, 30));
    let all = store.read_from(&id(), 1, PageLimit::messages(100)).await.unwrap();
    assert_eq!(all[..30], messages);
    let run = place.objects.write(&all[..32]).await.unwrap();
    assert!(!store.record(&run, None, &seen).await.unwrap());
    store.checkpoint().await.unwrap();
    assert_eq!(store.movable(&id()).await.unwrap().unwrap().up_to, 34);
    assert!(store.record(&run, None, &seen).await.unwrap());
    store.shut().await.unwrap();
}

#[tokio::test]
async fn an_erasure_in_the_same_group_is_seen() {
    let place = ColdFixture::new();
    let store = place.open();
    let messages = filled(&store).await;
    let seen = store.movable(&id()).await.unwrap().unwrap();
    let run = place.objects.write(&messages[..10]).await.unwrap();
    let row = RunRow { run, counted: [8, 0] };
    // While the committer is busy, both wait in its queue; then they share a group.
    let busy = store.transact(|_| {
        std::thread::sleep(std::time::Duration::from_millis(200));
        Ok(())
    });
    let erased = store.ask(|reply| WriteOp::Erase { id: id(), side: Side::Low, reply });
    let recorded = store.transact(move |tx| tx.record(&row, None, &seen));
    let (busy, erased, recorded) = tokio::join!(busy, erased, recorded);
    busy.and(erased).unwrap();
    assert!(!recorded.unwrap());
    store.shut().await.unwrap();
}

#[tokio::test]
async fn a_count_that_needs_a_missing_object_fails() {
    let place = ColdFixture::new();
    let store = place.open();
    let messages = filled(&store).await;
    let run = record(&store, &place.objects, &messages[..20]).await;
    store.drop_hot(&messages[..20]).await.unwrap();
    place.objects.delete(&run.object).await.unwrap();
    let mut reply = new(99);
    (reply.from, reply.seen_seq) = (Side::High, Some(7));
    for failed in
        [store.advance(&bob(), &id(), 0, 7).await.map(drop), store.recount(&bob(), &id()).await.map(drop)]
    {
        assert!(
            matches!(&failed, Err(StoreError::Damaged { object, .. }) if *object == run.object),
            "{failed:?}"
        );
    }
    // A send does not need the object: it only implies no read.
    assert!(store.commit_sends(vec![reply]).await.remove(0).unwrap().implied_read.is_none());
    assert_eq!(unread(&store).await, unread_behind(0));
    // The row of a run holds the count at its end, and below a boundary no count is needed.
    store.advance(&bob(), &id(), 0, 20).await.unwrap();
    assert_eq!(unread(&store).await, unread_behind(20));
    store.advance(&bob(), &id(), 3, 4).await.unwrap();
    assert_eq!(unread(&store).await, unread_behind(20));
    store.shut().await.unwrap();
}

#[tokio::test]
async fn a_repeated_send_of_what_is_cold_has_its_answer() {
    let place = ColdFixture::new();
    let store = place.open();
    let messages = filled(&store).await;
    record(&store, &place.objects, &messages[..20]).await;
    store.drop_hot(&messages[..20]).await.unwrap();
    let again = store.commit_sends(vec![new(3)]).await.remove(0).unwrap();
    assert!(again.duplicate);
    assert_eq!(again.message, messages[2]);
    store.shut().await.unwrap();
}

/// A run that was recorded after the checkpoint of a backup, and whose hot copies were removed
/// before the backup was written.
#[tokio::test]
async fn a_backup_lacks_nothing_that_was_dropped() {
    let place = ColdFixture::new();
    let store = place.open();
    let messages = filled(&store).await;
    let first = record(&store, &place.objects, &messages[..5]).await;
    store.drop_hot(&messages[..5]).await.unwrap();
    store.checkpoint().await.unwrap();
    let second = record(&store, &place.objects, &messages[5..20]).await;
    store.drop_hot(&messages[..20]).await.unwrap();
    let snapshot = store.shared.snapshot();
    let (mut keys, mut hot) = (Vec::new(), 0);
    snapshot
        .for_each(|space, key, value| {
            match space {
                "cold_runs" => keys.push(RunRow::decode(key, value)?.run),
                "messages" => hot += MessageEntry::of_run(&id(), value, 0..Seq::MAX).count(),
                _ => {}
            }
            Ok(())
        })
        .unwrap();
    assert_eq!((keys, hot), (vec![first.clone(), second.clone()], 10));

    let mut backup = Vec::new();
    let mut sink = |chunk: Vec<u8>| {
        backup.extend(chunk);
        Ok(())
    };
    store.backup(&mut sink).await.unwrap();
    store.shut().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("restored");
    restore(&mut backup.as_slice(), &dir).unwrap();
    let store = open(place.config(&dir));
    assert_eq!(store.runs_from(&id(), 0, 9).await.unwrap(), [first, second]);
    store.advance(&bob(), &id(), 0, 13).await.unwrap();
    assert_eq!(unread(&store).await, unread_behind(13));
    store.shut().await.unwrap();
}

#[tokio::test]
async fn a_walk_finds_what_is_cold() {
    let place = ColdFixture::new();
    let store = place.open();
    let messages = filled(&store).await;
    let walk = async || {
        let source = EmbeddedSource::open(place.config(place.dir.path()), clock()).await.unwrap();
        let (mut walk, mut all) = (source.walk(None), Vec::new());
        while let Some(page) = walk.next().await {
            all.extend(page.unwrap().contents);
        }
        source.close().await.unwrap();
        all
    };
    store.shut().await.unwrap();
    drop(store);
    let hot: Vec<Content> = walk().await;
    // All but the last: what Bob has to read last is cold too, because the last one is withheld.
    for part in [0..7, 7..29] {
        let store = place.open();
        record(&store, &place.objects, &messages[part.clone()]).await;
        store.drop_hot(&messages[part]).await.unwrap();
        store.shut().await.unwrap();
        drop(store);
        assert_eq!(walk().await, hot);
    }
    let rows = |content: &&Content| matches!(content, Content::Conversation(row) if row.counted_last == 29);
    assert_eq!(hot.iter().filter(rows).count(), 1);
}

#[tokio::test]
async fn a_directory_of_the_version_before_is_opened_and_marked() {
    let place = ColdFixture::new();
    let store = place.open();
    let messages = filled(&store).await;
    store.shut().await.unwrap();
    drop(store);
    // A directory of an older version lacks the newer keyspaces.
    let version = place.dir.path().join("VERSION");
    std::fs::write(&version, "2\n").unwrap();
    let engine = crate::embedded::Engine::open(&place.dir.path().join("engine"), 1 << 20, 1).unwrap();
    for space in [Space::ColdRuns, Space::Attachments, Space::AttachmentClaims, Space::UnclaimedAttachments] {
        engine.forget_space(space);
    }
    // And it has a row for each message.
    let entries = engine.entries(&id(), 0, Seq::MAX, PageLimit::messages(100)).unwrap();
    let singles = entries.iter().map(|entry| {
        let mut value = Vec::new();
        entry.encode(&mut value);
        (message_key(&id(), entry.message.seq), Some(value))
    });
    engine.ingest(Space::Messages, singles.collect()).unwrap();
    drop(engine);
    let store = place.open();
    assert_eq!(std::fs::read_to_string(&version).unwrap(), "5\n");
    assert_eq!(store.read_from(&id(), 1, PageLimit::messages(100)).await.unwrap(), messages);
    let run = record(&store, &place.objects, &messages[..5]).await;
    store.checkpoint().await.unwrap();
    assert_eq!(store.all_runs(None, 9).await.unwrap(), [run]);
    store.drop_hot(&messages[..5]).await.unwrap();
    assert!(store.leftovers(&id(), 9).await.unwrap().is_empty());
    assert_eq!(store.read_from(&id(), 6, PageLimit::messages(100)).await.unwrap(), messages[5..]);
    store.shut().await.unwrap();
}

#[test]
fn a_row_that_is_cut_or_longer_is_malformed() {
    let run = ColdRun {
        conversation_id: id(),
        first_seq: 1,
        last_seq: 1 << 40,
        object: "cold/x".into(),
        bytes: 1 << 30,
        index_bytes: 77,
        first_ts: 1,
        last_ts: u64::MAX,
        least_id: MessageId(3),
        greatest_id: MessageId(4),
    };
    let row = RunRow { run, counted: [5, 1 << 33] };
    let (key, value) = (row.key(), row.encode());
    assert_eq!(RunRow::decode(&key, &value).unwrap(), row);
    for end in 0..value.len() {
        assert!(RunRow::decode(&key, &value[..end]).is_err());
    }
    assert!(RunRow::decode(&key, &[value.as_slice(), &[0]].concat()).is_err());
    assert!(RunRow::decode(&key[..8], &value).is_err());
}
