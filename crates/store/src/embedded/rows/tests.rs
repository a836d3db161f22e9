//! What a crash or a refused group leaves of small rows.

use std::{fs, path::Path};

use bluetick_protocol::{
    ConversationId, DeviceId, Mute, PushContent, PushRegistration, PushTarget, Side, UserId,
};

use super::*;
use crate::{
    DeviceRow, Devices, EmbeddedConfig, ManualClock, MessageStatus, Messages, NewMessage, OwedPush,
    PushOutbox, StoreError, Users,
    embedded::committer::{PreparedSends, ReadForSend},
    testing::message,
};

fn open(config: EmbeddedConfig) -> Embedded {
    Embedded::open(config, Arc::new(ManualClock::new(1_760_000_000_000))).unwrap()
}

fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

fn conversation(text: &str) -> ConversationId {
    ConversationId::new(text).unwrap()
}

fn device(name: &str, registered_at: u64) -> DeviceRow {
    DeviceRow {
        user_id: user(name),
        device: DeviceId::new("phone").unwrap(),
        registration: PushRegistration {
            target: PushTarget::Fcm { token: "shared".into() },
            content: PushContent::Sender,
        },
        registered_at,
    }
}

/// From alice to bob, who is offline.
pub(in crate::embedded) fn send(name: &str) -> NewMessage {
    message(&conversation("alice~bob"), Side::Low, name).undelivered(true).push_due(100)
}

#[derive(Debug, PartialEq)]
struct Everything {
    devices: Vec<DeviceRow>,
    mutes: Vec<Mute>,
    owed: Vec<OwedPush>,
    notified: u64,
}

async fn everything(store: &Embedded) -> Everything {
    let (mut devices, mut mutes, mut owed) = (Vec::new(), Vec::new(), Vec::new());
    for name in ["alice", "bob"].map(user) {
        devices.extend(store.devices_of(&name).await.unwrap());
        mutes.extend(store.mutes_of(&name).await.unwrap());
        owed.extend(store.owed_to(&name).await.unwrap());
    }
    let (_, notified) = store.notified(&user("bob"), &conversation("alice~bob")).await.unwrap();
    Everything { devices, mutes, owed, notified }
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// The engine has all or some rows of a checkpoint, but not its `meta`: the log is replayed over
/// them.
#[tokio::test]
async fn a_checkpoint_that_was_cut_off_is_replayed_over_its_own_rows() {
    let (dir, aside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = EmbeddedConfig { checkpoint_bytes: 1 << 30, ..EmbeddedConfig::new(dir.path()) };
    let store = open(config.clone());
    let mute = |until| Mute { conversation_id: conversation("alice~bob"), until };
    store.register(device("alice", 1)).await.unwrap();
    store.mute(&user("alice"), mute(None)).await.unwrap();
    store.commit_sends(vec![send("m1")]).await.remove(0).unwrap();
    drop(store.ask(WriteOp::Checkpoint).await.unwrap());
    let before = store.shared.engine.meta().unwrap();

    store.register(device("bob", 2)).await.unwrap();
    store.unmute(&user("alice"), &conversation("alice~bob")).await.unwrap();
    store.mute(&user("bob"), mute(Some(7))).await.unwrap();
    let owed = store.claim(100, 200, 1).await.unwrap().remove(0);
    store.raise_notified(&user("bob"), &conversation("alice~bob"), 1).await.unwrap();
    store.paid(&owed).await.unwrap();
    store.commit_sends(vec![send("m2"), send("m3")]).await.into_iter().for_each(|sent| drop(sent.unwrap()));
    let expected = everything(&store).await;
    assert_eq!(expected.devices, [device("bob", 2)]);
    assert_eq!(expected.mutes, [mute(Some(7))]);
    assert_eq!(expected.owed.iter().map(|owed| owed.seq).collect::<Vec<_>>(), [3]);
    assert_eq!(expected.notified, 1);

    // Once without any of the checkpoint's writes, once with all but the last.
    copy(&dir.path().join("log"), aside.path());
    store.shut().await.unwrap();
    drop(store);
    let store = open(config.clone());
    assert_eq!(everything(&store).await, expected, "from the engine alone");
    store.shut().await.unwrap();
    drop(store);
    let engine = Engine::open(&dir.path().join("engine"), 1 << 20, config.idempotency_window_ms).unwrap();
    engine.put_meta(before).unwrap();
    drop(engine);
    copy(aside.path(), &dir.path().join("log"));
    let store = open(config);
    assert_eq!(everything(&store).await, expected, "from both");
    assert_eq!(
        store.register(device("alice", 3)).await.unwrap(),
        Some((user("bob"), DeviceId::new("phone").unwrap())),
        "and the token is known to be whose it is"
    );
    store.shut().await.unwrap();
}

#[tokio::test]
async fn a_refused_group_leaves_nothing_owed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(EmbeddedConfig { free_space_floor_bytes: u64::MAX, ..EmbeddedConfig::new(dir.path()) });
    let read = vec![ReadForSend { hash: 1, seen: None }];
    let prepared = PreparedSends { sends: vec![send("m1")], read, looked_up_at: 0 };
    let refused = store.ask(|reply| WriteOp::Sends(prepared, reply)).await;
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
    assert_eq!(store.owed_to(&user("bob")).await.unwrap(), []);
    assert_eq!(store.claim(u64::MAX, u64::MAX, 9).await.unwrap(), []);
    // Rows that need little space still pass, and the refused group has left nothing.
    store.mute(&user("bob"), Mute { conversation_id: conversation("alice~bob"), until: None }).await.unwrap();
    assert_eq!(everything(&store).await.mutes.len(), 1);
    store.shut().await.unwrap();
}

/// The changes of one transaction are durable together, in one record or several.
#[tokio::test]
async fn a_step_over_many_rows_is_one_write() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(EmbeddedConfig::new(dir.path()));
    let rows = 2_500u32;
    store
        .transact(move |tx| {
            for n in 0..rows {
                tx.put(RowSpace::Mutes, row_key("alice", &format!("alice~u{n:05}")), vec![1, 0, 0]);
            }
            assert_eq!(tx.under(RowSpace::Mutes, b"alice\0").unwrap().len(), rows as usize);
            Ok(())
        })
        .await
        .unwrap();
    let failed: Result<()> = store
        .transact(|tx| {
            tx.forget_under(RowSpace::Mutes, b"alice\0")?;
            Err(StoreError::Unsupported("this".into()))
        })
        .await;
    assert!(failed.is_err());
    assert_eq!(
        store.mutes_of(&user("alice")).await.unwrap().len(),
        rows as usize,
        "a step that fails does nothing"
    );
    drop(store);
    let store = loop {
        // The threads may hold the directory's lock a moment longer.
        match Embedded::open(EmbeddedConfig::new(dir.path()), Arc::new(ManualClock::new(0))) {
            Ok(store) => break store,
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(20)),
        }
    };
    assert_eq!(store.mutes_of(&user("alice")).await.unwrap().len(), rows as usize);
    store.shut().await.unwrap();
}

proptest::proptest! {
    /// A user's rows are never found under another user whose id begins alike.
    #[test]
    fn keys_lead_back_to_their_parts(
        one in "[A-Za-z0-9._@+|:=-]{1,128}", other in "[A-Za-z0-9._@+|:=-]{1,128}", more in "[+|:=-]{1,4}",
    ) {
        let Some(id) = ConversationId::between(&user(&one), &user(&other)) else { return Ok(()) };
        let key = row_key(&one, id.as_str());
        proptest::prop_assert_eq!(key_parts(&key).unwrap(), (one.as_str(), id.as_str()));
        proptest::prop_assert!(key.starts_with(&user_prefix(&one)));
        let longer = one.clone() + &more;
        proptest::prop_assert!(!key.starts_with(&user_prefix(&longer)));
        proptest::prop_assert!(!row_key(&longer, id.as_str()).starts_with(&user_prefix(&one)));
    }
}
