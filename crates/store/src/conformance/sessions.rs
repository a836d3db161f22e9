//! The session store: who is connected where, until when, and who watches whom (R12).

use std::time::Duration;

use bluetick_protocol::{DeviceId, SessionId, UserId};

use super::fixture::{Fixture, START_MS};
use crate::{Clock, SessionEntry, testing::user};

const TTL: Duration = Duration::from_secs(30);
const TTL_MS: u64 = 30_000;
const MAX: usize = 8;

/// A session that connects a millisecond after the one before it.
async fn connect(
    t: &Fixture,
    name: &str,
    device: &str,
    id: u128,
    max: usize,
) -> (SessionEntry, Vec<SessionEntry>) {
    t.clock.advance(1);
    let entry = SessionEntry {
        user_id: user(name),
        device: DeviceId::new(device).unwrap(),
        session_id: SessionId(id),
        gateway: format!("gateway-{}", id % 2).into(),
        connected_at: t.clock.now_ms(),
    };
    let ended = t.store.sessions.register(&entry, TTL, max).await.unwrap();
    (entry, ended)
}

async fn lookup(t: &Fixture, name: &str) -> Vec<SessionEntry> {
    t.store.sessions.lookup(&user(name)).await.unwrap()
}

/// Who watches, in an order of our own: the trait promises none.
async fn watchers(t: &Fixture, of: &UserId) -> Vec<SessionId> {
    let mut ids: Vec<_> = t.store.sessions.watchers(of).await.unwrap().iter().map(|e| e.session_id).collect();
    ids.sort();
    ids
}

pub async fn lookup_is_oldest_first(t: &Fixture) {
    assert_eq!(lookup(t, "bob").await, []);
    // Ids and device names that sort otherwise.
    let (first, ended) = connect(t, "bob", "tablet", 9, MAX).await;
    assert_eq!(ended, []);
    let (second, _) = connect(t, "bob", "phone", 3, MAX).await;
    let (third, _) = connect(t, "bob", "laptop", 5, MAX).await;
    connect(t, "bobby", "phone", 4, MAX).await;
    assert_eq!(lookup(t, "bob").await, [first, second, third], "entries come back whole, oldest first");
}

pub async fn a_device_has_one_session(t: &Fixture) {
    let (old, _) = connect(t, "bob", "phone", 1, MAX).await;
    let (laptop, _) = connect(t, "bob", "laptop", 2, MAX).await;
    connect(t, "carol", "phone", 3, MAX).await;
    let (new, ended) = connect(t, "bob", "phone", 4, MAX).await;
    assert_eq!(ended, [old], "the same device's older session must end");
    assert_eq!(lookup(t, "bob").await, [laptop, new], "and is out of the store already");
    assert_eq!(lookup(t, "carol").await.len(), 1, "another user's device of the same name is another device");
}

pub async fn registering_again_ends_nobody(t: &Fixture) {
    let (entry, _) = connect(t, "bob", "phone", 1, 1).await;
    let ended = t.store.sessions.register(&entry, TTL, 1).await.unwrap();
    assert_eq!(ended, [], "a session that registers anew does not end itself");
    assert_eq!(lookup(t, "bob").await, [entry]);
}

pub async fn the_oldest_goes_beyond_the_maximum(t: &Fixture) {
    let (a, _) = connect(t, "bob", "a", 11, 3).await;
    let (b, _) = connect(t, "bob", "b", 10, 3).await;
    let (c, ended) = connect(t, "bob", "c", 9, 3).await;
    assert_eq!(ended, [], "the maximum itself is allowed");
    let (d, ended) = connect(t, "bob", "d", 8, 3).await;
    assert_eq!(ended, [a]);
    let (b2, ended) = connect(t, "bob", "b", 7, 3).await;
    assert_eq!(ended, [b], "a replaced session makes room by itself");
    assert_eq!(lookup(t, "bob").await, [c.clone(), d.clone(), b2.clone()]);
    let (e, ended) = connect(t, "bob", "e", 6, 2).await;
    assert_eq!(ended, [c, d], "a lowered maximum ends as many as it takes, oldest first");
    assert_eq!(lookup(t, "bob").await, [b2, e]);
}

pub async fn an_entry_expires(t: &Fixture) {
    let (first, _) = connect(t, "bob", "phone", 1, MAX).await;
    t.clock.advance(TTL_MS / 2);
    let (second, _) = connect(t, "bob", "laptop", 2, MAX).await;
    t.clock.advance(TTL_MS / 2 - 2);
    assert_eq!(lookup(t, "bob").await, [first, second.clone()]);
    t.clock.advance(2);
    assert_eq!(lookup(t, "bob").await, [second.clone()], "each entry has its own TTL");
    assert!(
        t.store.sessions.unregister(&user("bob"), second.session_id).await.unwrap(),
        "an expired entry is not a session that is left"
    );
    assert_eq!(lookup(t, "bob").await, []);
}

pub async fn an_expired_session_is_not_replaced(t: &Fixture) {
    connect(t, "bob", "phone", 1, 2).await;
    connect(t, "bob", "laptop", 2, 2).await;
    t.clock.advance(TTL_MS + 1);
    let (new, ended) = connect(t, "bob", "phone", 3, 1).await;
    assert_eq!(ended, [], "nobody has to be told to end what is gone");
    assert_eq!(lookup(t, "bob").await, [new]);
}

pub async fn a_refresh_extends_and_never_recreates(t: &Fixture) {
    let (bob, _) = connect(t, "bob", "phone", 1, MAX).await;
    let (carol, _) = connect(t, "carol", "phone", 2, MAX).await;
    let refresh = async |sessions: &[(&str, u128)]| {
        let sessions: Vec<_> = sessions.iter().map(|(name, id)| (user(name), SessionId(*id))).collect();
        t.store.sessions.refresh(&sessions, TTL).await.unwrap()
    };
    t.clock.advance(TTL_MS - 10);
    let there = refresh(&[("bob", 1), ("bob", 2), ("nobody", 1), ("bob", 1)]).await;
    assert_eq!(there, [true, false, false, true], "an answer for each, in order");
    t.clock.advance(20);
    // Before any lookup: an entry that nobody has cleaned up yet is gone all the same.
    assert_eq!(refresh(&[("carol", 2)]).await, [false], "a refresh that comes too late says so");
    assert_eq!(lookup(t, "carol").await, [], "and brings nothing back");
    assert_eq!(refresh(&[("carol", 2)]).await, [false]);
    assert_eq!(lookup(t, "bob").await, [bob], "what was refreshed lives on");
    assert_eq!(refresh(&[]).await, [] as [bool; 0]);
    let ended = t.store.sessions.register(&carol, TTL, MAX).await.unwrap();
    assert_eq!((ended, lookup(t, "carol").await), (vec![], vec![carol]), "it registers anew");
}

pub async fn unregister_removes_only_its_own(t: &Fixture) {
    let (phone, _) = connect(t, "bob", "phone", 1, MAX).await;
    let (laptop, _) = connect(t, "bob", "laptop", 2, MAX).await;
    let sessions = &t.store.sessions;
    assert!(!sessions.unregister(&user("bob"), SessionId(77)).await.unwrap(), "bob has sessions left");
    assert_eq!(lookup(t, "bob").await, [phone.clone(), laptop.clone()]);
    sessions.unregister(&user("carol"), phone.session_id).await.unwrap();
    assert_eq!(lookup(t, "bob").await.len(), 2, "another user cannot remove it");
    assert!(!sessions.unregister(&user("bob"), phone.session_id).await.unwrap());
    assert_eq!(lookup(t, "bob").await, [laptop.clone()]);
    assert!(sessions.unregister(&user("bob"), laptop.session_id).await.unwrap(), "that was the last one");
    assert_eq!(lookup(t, "bob").await, []);
    assert!(
        sessions.unregister(&user("bob"), laptop.session_id).await.unwrap(),
        "doing it twice is harmless"
    );
}

pub async fn a_late_unregister_leaves_the_new_session(t: &Fixture) {
    let (old, _) = connect(t, "bob", "phone", 1, MAX).await;
    let (new, _) = connect(t, "bob", "phone", 2, MAX).await;
    let alone = t.store.sessions.unregister(&user("bob"), old.session_id).await.unwrap();
    assert!(!alone, "the new session is left");
    assert_eq!(lookup(t, "bob").await, [new]);
}

pub async fn last_seen_is_kept(t: &Fixture) {
    let bob = user("bob");
    assert_eq!(t.store.sessions.last_seen(&bob).await.unwrap(), None);
    t.store.sessions.set_last_seen(&bob, START_MS).await.unwrap();
    t.store.sessions.set_last_seen(&bob, START_MS + 5).await.unwrap();
    t.clock.advance(100 * TTL_MS);
    assert_eq!(
        t.store.sessions.last_seen(&bob).await.unwrap(),
        Some(START_MS + 5),
        "it outlives the session"
    );
    assert_eq!(t.store.sessions.last_seen(&user("carol")).await.unwrap(), None);
}

pub async fn watchers_follow_the_watch(t: &Fixture) {
    let (alice, _) = connect(t, "alice", "phone", 1, MAX).await;
    let (laptop, _) = connect(t, "alice", "laptop", 2, MAX).await;
    let (bob, carol, dave) = (user("bob"), user("carol"), user("dave"));
    let sessions = &t.store.sessions;
    sessions.watch(&alice, &[bob.clone(), carol.clone()], TTL).await.unwrap();
    sessions.watch(&laptop, &[carol.clone(), carol.clone()], TTL).await.unwrap();
    assert_eq!(
        sessions.watchers(&bob).await.unwrap(),
        [alice.clone()],
        "a watcher is known by its whole entry"
    );
    assert_eq!(watchers(t, &carol).await, [SessionId(1), SessionId(2)], "each session watches once");
    assert_eq!(watchers(t, &dave).await, []);
    sessions.watch(&alice, &[dave.clone(), carol.clone()], TTL).await.unwrap();
    assert_eq!(watchers(t, &bob).await, [], "a watch replaces the one before");
    assert_eq!(watchers(t, &carol).await, [SessionId(1), SessionId(2)]);
    assert_eq!(watchers(t, &dave).await, [SessionId(1)]);
    sessions.watch(&alice, &[], TTL).await.unwrap();
    assert_eq!(watchers(t, &dave).await, [], "an empty list ends it");
    assert_eq!(watchers(t, &carol).await, [SessionId(2)]);
}

pub async fn a_watch_ends_with_its_session(t: &Fixture) {
    let star = user("star");
    let sessions = &t.store.sessions;
    let watch =
        async |entry: &SessionEntry| sessions.watch(entry, std::slice::from_ref(&star), TTL).await.unwrap();

    let (gone, _) = connect(t, "alice", "phone", 1, MAX).await;
    watch(&gone).await;
    sessions.unregister(&gone.user_id, gone.session_id).await.unwrap();
    assert_eq!(watchers(t, &star).await, [], "it ends when the session is unregistered");
    watch(&gone).await;
    assert_eq!(watchers(t, &star).await, [], "and a late one leaves nothing behind");

    let (replaced, _) = connect(t, "bob", "phone", 2, MAX).await;
    watch(&replaced).await;
    let (new, _) = connect(t, "bob", "phone", 3, MAX).await;
    assert_eq!(watchers(t, &star).await, [], "it ends when the session is replaced");
    watch(&new).await;
    sessions.unregister(&replaced.user_id, replaced.session_id).await.unwrap();
    assert_eq!(watchers(t, &star).await, [SessionId(3)], "the old session's end leaves the new one's watch");

    t.clock.advance(TTL_MS + 1);
    assert_eq!(watchers(t, &star).await, [], "it ends when the session expires");
}

pub async fn a_refresh_keeps_the_watch(t: &Fixture) {
    let star = user("star");
    let (alice, _) = connect(t, "alice", "phone", 1, MAX).await;
    t.store.sessions.watch(&alice, std::slice::from_ref(&star), TTL).await.unwrap();
    for _ in 0..3 {
        t.clock.advance(TTL_MS - 10);
        let there =
            t.store.sessions.refresh(&[(alice.user_id.clone(), alice.session_id)], TTL).await.unwrap();
        assert_eq!(there, [true]);
    }
    assert_eq!(watchers(t, &star).await, [SessionId(1)], "a watch lives as long as its session");
}

pub async fn a_flush_forgets_everything(t: &Fixture) {
    let star = user("star");
    let (alice, _) = connect(t, "alice", "phone", 1, MAX).await;
    connect(t, "bob", "phone", 2, MAX).await;
    t.store.sessions.watch(&alice, std::slice::from_ref(&star), TTL).await.unwrap();
    t.store.sessions.flush().await.unwrap();
    assert_eq!(lookup(t, "alice").await, []);
    assert_eq!(lookup(t, "bob").await, []);
    assert_eq!(watchers(t, &star).await, []);
    let there = t.store.sessions.refresh(&[(user("bob"), SessionId(2))], TTL).await.unwrap();
    assert_eq!(there, [false], "a session finds out by its refresh");
    assert!(t.store.sessions.unregister(&user("alice"), SessionId(1)).await.unwrap());
    let ended = t.store.sessions.register(&alice, TTL, MAX).await.unwrap();
    assert_eq!((ended, lookup(t, "alice").await), (vec![], vec![alice]), "and registers anew");
}

pub async fn concurrent_registrations_of_a_device_leave_one(t: &Fixture) {
    let entries: Vec<_> = (0..32u128)
        .map(|n| SessionEntry {
            user_id: user("bob"),
            device: DeviceId::new("phone").unwrap(),
            session_id: SessionId(n),
            gateway: "g".into(),
            connected_at: START_MS,
        })
        .collect();
    let tasks: Vec<_> = entries
        .iter()
        .map(|entry| {
            let (sessions, entry) = (t.store.sessions.clone(), entry.clone());
            tokio::spawn(async move { sessions.register(&entry, TTL, MAX).await.unwrap() })
        })
        .collect();
    let mut ended = Vec::new();
    for task in tasks {
        ended.extend(task.await.unwrap());
    }
    let mut all = lookup(t, "bob").await;
    assert_eq!(all.len(), 1, "one session of the device is left");
    all.extend(ended);
    all.sort_by_key(|e| e.session_id);
    assert_eq!(all, entries, "and each of the others was given to exactly one to end");
}
