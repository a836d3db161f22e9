//! What is specific to the embedded store: its directory, its restarts.

#![allow(clippy::unwrap_used)]

use std::{path::Path, sync::Arc, time::Duration};

use bluetick_protocol::{
    ConversationId, DeviceId, Mute, PushContent, PushRegistration, PushTarget, S3Ref, Side, UserId,
};
use bluetick_store::{
    Announced, AttachmentRow, Content, ContentKind, DeviceRow, EmbeddedConfig, EmbeddedSource, ManualClock,
    NewMessage, OwedPush, PageLimit, Store, StoreError, UploadQuota, UploadState, WalkPlace,
    conformance::model::{same_as_model, still_same_as_model},
    restore, testing,
};

const START_MS: u64 = 1_760_000_000_000;

fn open(dir: &Path, checkpoint_bytes: u64, clock: &Arc<ManualClock>) -> Store {
    let config = EmbeddedConfig { checkpoint_bytes, ..EmbeddedConfig::new(dir) };
    // The threads of a store that was just dropped may hold the directory's lock a moment longer.
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
    testing::message(&ConversationId::new("alice~bob").unwrap(), Side::Low, &format!("m{n}"))
        .body(format!("message {n}"))
        .undelivered(true)
}

/// Random operations with a restart after each seed; the rows must equal the model's every time.
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
async fn it_can_tell_without_reading_messages_whether_all_is_acked() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(START_MS));
    let id = ConversationId::new("alice~bob").unwrap();
    let store = open(dir.path(), 1 << 20, &clock);
    store.messages.commit_sends((1..=3).map(message).collect()).await;
    store.status.advance(&user("bob"), &id, 3, 0).await.unwrap();
    store.maintenance.close().await.unwrap();
    drop(store);
    let store = open(dir.path(), 1 << 20, &clock);
    for name in ["alice", "bob"] {
        assert!(store.status.has_acked_all(&user(name), &id).await.unwrap(), "{name}");
    }
    store.messages.commit_sends(vec![message(4)]).await;
    assert!(!store.status.has_acked_all(&user("bob"), &id).await.unwrap());
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
    std::fs::write(dir.path().join("VERSION"), "99\n").unwrap();
    assert!(refused(dir.path()).contains("format 99"));
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

#[tokio::test]
async fn a_directory_of_the_format_before_is_opened_and_marked() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(START_MS));
    let version = dir.path().join("VERSION");
    let store = open(dir.path(), 1 << 30, &clock);
    store.messages.commit_sends(vec![message(1)]).await.remove(0).unwrap();
    assert_eq!(std::fs::read_to_string(&version).unwrap(), "5\n");
    store.maintenance.close().await.unwrap();
    drop(store);
    std::fs::write(&version, "1\n").unwrap();
    let store = open(dir.path(), 1 << 30, &clock);
    assert_eq!(std::fs::read_to_string(&version).unwrap(), "5\n", "older versions refuse it from now on");
    let id = ConversationId::new("alice~bob").unwrap();
    assert_eq!(store.messages.last_seq(&id).await.unwrap(), 1);
}

#[tokio::test]
async fn a_backup_holds_every_row() {
    let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let clock = Arc::new(ManualClock::new(START_MS));
    let (store, model) = (open(dir.path(), 1 << 30, &clock), Store::memory(clock.clone()));
    same_as_model(&store, &model, &clock, 7).await;
    let mut backup = Vec::new();
    let mut sink = |bytes: Vec<u8>| {
        backup.extend(bytes);
        Ok(())
    };
    store.maintenance.backup(&mut sink).await.unwrap();
    restore(&mut backup.as_slice(), copy.path()).unwrap();
    let restored = open(copy.path(), 1 << 30, &clock);
    still_same_as_model(&restored, &model, &clock, 7).await;
    // The hashes of tokens did not change either.
    same_as_model(&restored, &model, &clock, 8).await;
}

fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

fn device_of(name: &str, token: &str) -> DeviceRow {
    let target = PushTarget::Fcm { token: token.into() };
    DeviceRow {
        user_id: user(name),
        device: DeviceId::new("phone").unwrap(),
        registration: PushRegistration { target, content: PushContent::Preview },
        registered_at: 5,
    }
}

#[tokio::test]
async fn a_claim_ends_with_the_process_and_an_attempt_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(START_MS));
    let store = open(dir.path(), 1 << 30, &clock);
    let (now, day) = (START_MS, 24 * 3600 * 1000);
    let due = message(1).push_due(now);
    let other = ConversationId::new("bob~carol").unwrap();
    let later = testing::message(&other, Side::High, "m1").body("message 1").undelivered(true).push_due(now);
    store.messages.commit_sends(vec![due, later]).await.into_iter().for_each(|sent| drop(sent.unwrap()));
    let claimed = store.push_outbox.claim(now, now + day, 10).await.unwrap();
    assert_eq!(claimed.len(), 2);
    let failed = OwedPush { attempts: 1, due_at: now + 1_000, ..claimed[1].clone() };
    assert!(store.push_outbox.postpone(&failed, &failed).await.unwrap());
    drop(store);
    let store = open(dir.path(), 1 << 30, &clock);
    let again = store.push_outbox.claim(now, now + day, 10).await.unwrap();
    let expected = [claimed[0].clone(), OwedPush { due_at: now + day, ..failed }];
    assert_eq!(again, expected, "nobody holds anything any more, and that it failed once is kept");
}

#[tokio::test]
async fn a_walk_finds_everything_that_is_kept_by_user() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(START_MS));
    let store = open(dir.path(), 1 << 30, &clock);
    let id = ConversationId::new("alice~bob").unwrap();
    store.messages.commit_sends(vec![message(1).push_due(9)]).await.remove(0).unwrap();
    store.status.raise_notified(&user("bob"), &id, 1).await.unwrap();
    // A user with nothing else, ids that begin alike, a conversation without messages.
    for (name, token) in [("bob", "one"), ("bob-2", "two"), ("alice", "three")] {
        store.devices.register(device_of(name, token)).await.unwrap();
    }
    store.users.set_block(&user("bob"), &user("mallory"), true).await.unwrap();
    let mute = Mute { conversation_id: ConversationId::new("bob~zoe").unwrap(), until: Some(3) };
    store.users.mute(&user("zoe"), mute.clone()).await.unwrap();
    store.users.raise_not_before(&user("bob"), 7).await.unwrap();
    store.users.raise_not_before(&user("yves"), 8).await.unwrap();
    let owed = store.push_outbox.owed_to(&user("bob")).await.unwrap();
    store.maintenance.close().await.unwrap();
    drop(store);

    let source = EmbeddedSource::open(EmbeddedConfig::new(dir.path()), clock).await.unwrap();
    let all = walked(&source, None).await;
    let of = |kind: ContentKind| {
        all.iter().filter(move |content| content.kind() == kind).cloned().collect::<Vec<_>>()
    };
    let devices = [("alice", "three"), ("bob", "one"), ("bob-2", "two")];
    assert_eq!(
        of(ContentKind::Devices),
        devices.map(|(name, token)| Content::Device(device_of(name, token)))
    );
    assert_eq!(of(ContentKind::Mutes), [Content::Mute { user_id: user("zoe"), mute }]);
    let revoked = [("bob", 7), ("yves", 8)];
    let revoked = revoked.map(|(name, secs)| Content::NotBefore { user_id: user(name), secs });
    assert_eq!(of(ContentKind::NotBefore), revoked);
    assert_eq!(of(ContentKind::PushOutbox), [Content::Owed(owed[0].clone())]);
    assert!(
        matches!(&of(ContentKind::MessageStatus)[..], [Content::Status { row, notified: 1 }] if row.user_id == user("bob"))
    );
    let rest = walked(&source, Some(WalkPlace::User(user("bob-2")))).await;
    assert_eq!(rest, all[all.len() - 3..], "a walk goes on at a user");
    source.close().await.unwrap();
}

#[tokio::test]
async fn attachments_are_there_after_a_restart_and_are_not_left_behind_by_a_move() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(START_MS));
    let id = ConversationId::new("alice~bob").unwrap();
    let rows = [1, 2, 3].map(|n| AttachmentRow {
        s3_ref: S3Ref::mint(START_MS + u64::from(n), [n; 10]),
        owner: user("alice"),
        name: format!("{n}.pdf"),
        mime: "application/pdf".into(),
        bytes: 7,
        sha256: "ab".repeat(32),
        upload_id: None,
        state: UploadState::Expected,
        claimed: false,
    });
    let store = open(dir.path(), 1 << 30, &clock);
    for row in &rows {
        let announced = store.attachments.announce(row.clone(), &UploadQuota::default()).await.unwrap();
        assert_eq!(announced, Announced::Done);
        assert!(store.attachments.uploaded(&row.s3_ref).await.unwrap());
    }
    assert!(store.attachments.claim(&rows[1].s3_ref, &id).await.unwrap());
    drop(store);
    // From the log, from log and engine, and from the engine.
    for _ in 0..3 {
        let store = open(dir.path(), 1 << 30, &clock);
        assert!(store.attachments.is_claimed_by(&rows[1].s3_ref, &id).await.unwrap());
        assert!(store.attachments.attachment(&rows[1].s3_ref).await.unwrap().unwrap().claimed);
        let unclaimed = store.attachments.unclaimed(START_MS + 3, 9).await.unwrap();
        assert_eq!(unclaimed, [AttachmentRow { state: UploadState::Uploaded, ..rows[0].clone() }]);
        store.maintenance.checkpoint().await.unwrap();
        store.attachments.forget(&rows[2].s3_ref).await.unwrap();
        assert_eq!(store.attachments.unclaimed(u64::MAX, 9).await.unwrap(), unclaimed);
        let usage = store.attachments.upload_usage(&user("alice")).await.unwrap();
        assert_eq!((usage.total_bytes, usage.day_bytes), (2 * 4096, 3 * 4096));
    }
    let store = open(dir.path(), 1 << 30, &clock);
    store.maintenance.close().await.unwrap();
    drop(store);
    // An export finds both, and the claim.
    let source = EmbeddedSource::open(EmbeddedConfig::new(dir.path()), clock).await.unwrap();
    let walked = walked(&source, None).await;
    assert_eq!(walked.iter().filter(|content| matches!(content, Content::Attachment(_))).count(), 2);
    assert_eq!(walked.iter().filter(|content| matches!(content, Content::Claim { .. })).count(), 1);
}

async fn walked(source: &EmbeddedSource, from: Option<WalkPlace>) -> Vec<Content> {
    let (mut walk, mut all) = (source.walk(from), Vec::new());
    while let Some(page) = walk.next().await {
        all.extend(page.unwrap().contents);
    }
    all
}
