//! The session store in memory: used by a single node, and the model for the others.
//!
//! Two sharded maps, each shard with its own lock: sessions by user, and watchers by watched user.
//! A session is one shared object in both, so its TTL is one number: a refresh is an atomic store
//! under a read lock, and a watch ends with its session.
//!
//! Lock order: a session's watch list, then a shard of `watched`. The lock of a `sessions` shard is
//! released before either. An expired session is invisible at once and is removed by the next
//! reader that finds it. A growing shard sweeps for the others.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bluetick_protocol::{SessionId, UserId, limits};
use foldhash::{HashMap, HashMapExt};
use parking_lot::{Mutex, RwLock};
use xxhash_rust::xxh3::xxh3_64;

use crate::{Clock, Result, SessionEntry, SessionStore};

const SHARDS: usize = 64;
/// A shard with fewer sessions than this is never swept.
const SWEEP_FLOOR: usize = 64;
/// Users whose last connection is remembered. It is only displayed, so the rest may be forgotten.
const LAST_SEEN_MAX_USERS: usize = 1_000_000;

pub struct MemorySessions {
    clock: Arc<dyn Clock>,
    sessions: Vec<RwLock<Shard>>,
    watched: Vec<RwLock<HashMap<UserId, Watchers>>>,
    last_seen: quick_cache::sync::Cache<UserId, u64>,
}

/// Ordered, so that the order of results is deterministic.
type Watchers = BTreeMap<SessionId, Arc<LiveSession>>;

struct Shard {
    /// Each list oldest first.
    users: HashMap<UserId, Vec<Arc<LiveSession>>>,
    /// Sessions in all lists, expired ones included.
    count: usize,
    /// The count at which the next sweep is due: twice what the last one left, so that a sweep
    /// costs amortized O(1) per session.
    sweep_at: usize,
}

struct LiveSession {
    entry: SessionEntry,
    expires_at: AtomicU64,
    watch: Mutex<WatchList>,
}

#[derive(Default)]
struct WatchList {
    users: Vec<UserId>,
    /// Set once the session is removed, so that a late `watch` adds nothing.
    ended: bool,
}

impl LiveSession {
    fn is_live(&self, now_ms: u64) -> bool {
        now_ms < self.expires_at.load(Ordering::Acquire)
    }

    fn extend(&self, now_ms: u64, ttl: Duration) {
        self.expires_at.store(now_ms.saturating_add(ttl.as_millis() as u64), Ordering::Release);
    }

    fn is(&self, session: SessionId) -> bool {
        self.entry.session_id == session
    }
}

impl Default for Shard {
    fn default() -> Self {
        Shard { users: HashMap::new(), count: 0, sweep_at: SWEEP_FLOOR }
    }
}

impl Shard {
    fn live(&self, user: &UserId, now_ms: u64) -> impl Iterator<Item = &Arc<LiveSession>> {
        self.users.get(user).into_iter().flatten().filter(move |s| s.is_live(now_ms))
    }

    /// Removes and returns the user's sessions that fulfil a condition, in order.
    fn take(
        &mut self,
        user: &UserId,
        mut condition: impl FnMut(&LiveSession) -> bool,
    ) -> Vec<Arc<LiveSession>> {
        let Some(list) = self.users.get_mut(user) else {
            return Vec::new();
        };
        let taken: Vec<_> = list.extract_if(.., |s| condition(s)).collect();
        if list.is_empty() {
            self.users.remove(user);
        }
        self.count -= taken.len();
        taken
    }

    /// Inserts a session after those that connected no later.
    fn insert(&mut self, session: Arc<LiveSession>) {
        let list = self.users.entry(session.entry.user_id.clone()).or_default();
        let at = list.partition_point(|s| s.entry.connected_at <= session.entry.connected_at);
        list.insert(at, session);
        self.count += 1;
    }

    fn sweep_if_due(&mut self, now_ms: u64) -> Vec<Arc<LiveSession>> {
        let mut expired = Vec::new();
        if self.count >= self.sweep_at {
            self.users.retain(|_, list| {
                expired.extend(list.extract_if(.., |s| !s.is_live(now_ms)));
                !list.is_empty()
            });
            self.count -= expired.len();
            self.sweep_at = SWEEP_FLOOR.max(2 * self.count);
        }
        expired
    }
}

fn shard_of<'a, T>(shards: &'a [T], user: &UserId) -> &'a T {
    &shards[xxh3_64(user.as_str().as_bytes()) as usize % SHARDS]
}

fn entries(sessions: &[Arc<LiveSession>]) -> Vec<SessionEntry> {
    sessions.iter().map(|s| s.entry.clone()).collect()
}

impl MemorySessions {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        MemorySessions {
            clock,
            sessions: (0..SHARDS).map(|_| RwLock::default()).collect(),
            watched: (0..SHARDS).map(|_| RwLock::default()).collect(),
            last_seen: quick_cache::sync::Cache::new(LAST_SEEN_MAX_USERS),
        }
    }

    fn sessions_of(&self, user: &UserId) -> &RwLock<Shard> {
        shard_of(&self.sessions, user)
    }

    /// Ends the watches of removed sessions.
    fn end(&self, sessions: &[Arc<LiveSession>]) {
        for session in sessions {
            let mut watch = session.watch.lock();
            watch.ended = true;
            self.unwatch(session, std::mem::take(&mut watch.users));
        }
    }

    fn unwatch(&self, session: &LiveSession, users: Vec<UserId>) {
        for user in users {
            let mut watched = shard_of(&self.watched, &user).write();
            if let Some(watchers) = watched.get_mut(&user) {
                watchers.remove(&session.entry.session_id);
                if watchers.is_empty() {
                    watched.remove(&user);
                }
            }
        }
    }

    /// Removes a user's expired sessions, for a caller that found one under a read lock.
    fn remove_expired(&self, user: &UserId, now_ms: u64) {
        let expired = self.sessions_of(user).write().take(user, |s| !s.is_live(now_ms));
        self.end(&expired);
    }
}

#[async_trait]
impl SessionStore for MemorySessions {
    async fn register(
        &self,
        entry: &SessionEntry,
        ttl: Duration,
        max_sessions: usize,
    ) -> Result<Vec<SessionEntry>> {
        let now_ms = self.clock.now_ms();
        let (user, id) = (&entry.user_id, entry.session_id);
        let session = Arc::new(LiveSession {
            entry: entry.clone(),
            expires_at: AtomicU64::new(0),
            watch: Mutex::default(),
        });
        session.extend(now_ms, ttl);

        let (gone, ended) = {
            let mut shard = self.sessions_of(user).write();
            let mut gone = shard.sweep_if_due(now_ms);
            // A session that registers again does not replace itself.
            gone.extend(shard.take(user, |s| !s.is_live(now_ms) || s.is(id)));
            let mut ended = shard.take(user, |s| s.entry.device == entry.device);
            let mut beyond = (shard.live(user, now_ms).count() + 1).saturating_sub(max_sessions.max(1));
            ended.extend(shard.take(user, |_| {
                let oldest = beyond > 0;
                beyond = beyond.saturating_sub(1);
                oldest
            }));
            shard.insert(session);
            (gone, ended)
        };
        self.end(&gone);
        self.end(&ended);
        Ok(entries(&ended))
    }

    async fn refresh(&self, sessions: &[(UserId, SessionId)], ttl: Duration) -> Result<Vec<bool>> {
        let now_ms = self.clock.now_ms();
        let refresh_one = |(user, id): &(UserId, SessionId)| {
            let shard = self.sessions_of(user).read();
            let found = shard.live(user, now_ms).find(|s| s.is(*id));
            found.inspect(|s| s.extend(now_ms, ttl)).is_some()
        };
        Ok(sessions.iter().map(refresh_one).collect())
    }

    async fn unregister(&self, user: &UserId, session: SessionId) -> Result<bool> {
        let now_ms = self.clock.now_ms();
        let (gone, alone) = {
            let mut shard = self.sessions_of(user).write();
            let gone = shard.take(user, |s| s.is(session) || !s.is_live(now_ms));
            (gone, !shard.users.contains_key(user))
        };
        self.end(&gone);
        Ok(alone)
    }

    async fn lookup(&self, user: &UserId) -> Result<Vec<SessionEntry>> {
        let now_ms = self.clock.now_ms();
        let (mut live, mut all) = (Vec::new(), 0);
        if let Some(sessions) = self.sessions_of(user).read().users.get(user) {
            all = sessions.len();
            live.reserve_exact(all);
            live.extend(sessions.iter().filter(|s| s.is_live(now_ms)).map(|s| s.entry.clone()));
        }
        if live.len() < all {
            self.remove_expired(user, now_ms);
        }
        Ok(live)
    }

    async fn last_seen(&self, user: &UserId) -> Result<Option<u64>> {
        Ok(self.last_seen.get(user))
    }

    async fn set_last_seen(&self, user: &UserId, ms: u64) -> Result<()> {
        self.last_seen.insert(user.clone(), ms);
        Ok(())
    }

    /// A watch lives exactly as long as its session, whose TTL a refresh extends; so the TTL given
    /// here is not needed.
    async fn watch(&self, watcher: &SessionEntry, users: &[UserId], _ttl: Duration) -> Result<()> {
        let now_ms = self.clock.now_ms();
        let session = {
            let shard = self.sessions_of(&watcher.user_id).read();
            shard.live(&watcher.user_id, now_ms).find(|s| s.is(watcher.session_id)).cloned()
        };
        let Some(session) = session else { return Ok(()) };
        let mut watch = session.watch.lock();
        if watch.ended {
            return Ok(());
        }
        self.unwatch(&session, std::mem::take(&mut watch.users));
        watch.users = users.iter().take(limits::WATCH_MAX_USERS).cloned().collect();
        for user in &watch.users {
            let mut watched = shard_of(&self.watched, user).write();
            watched.entry(user.clone()).or_default().insert(watcher.session_id, session.clone());
        }
        Ok(())
    }

    async fn watchers(&self, user: &UserId) -> Result<Vec<SessionEntry>> {
        let now_ms = self.clock.now_ms();
        let watched = shard_of(&self.watched, user).read();
        let watchers = watched.get(user).into_iter().flat_map(|watchers| watchers.values());
        Ok(watchers.filter(|s| s.is_live(now_ms)).map(|s| s.entry.clone()).collect())
    }

    async fn flush(&self) -> Result<()> {
        for shard in &self.sessions {
            let shard = std::mem::take(&mut *shard.write());
            for sessions in shard.users.into_values() {
                self.end(&sessions);
            }
        }
        self.last_seen.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManualClock;
    use bluetick_protocol::DeviceId;

    const TTL: Duration = Duration::from_secs(30);

    fn entry(n: usize) -> SessionEntry {
        SessionEntry {
            user_id: UserId::new(&format!("user{n}")).unwrap(),
            device: DeviceId::new("phone").unwrap(),
            session_id: SessionId(n as u128),
            gateway: "g1".into(),
            connected_at: n as u64,
        }
    }

    fn kept(store: &MemorySessions) -> (usize, usize) {
        let sessions =
            store.sessions.iter().map(|s| s.read().users.values().map(Vec::len).sum::<usize>()).sum();
        let watched = store.watched.iter().map(|w| w.read().values().map(BTreeMap::len).sum::<usize>()).sum();
        let counted: usize = store.sessions.iter().map(|s| s.read().count).sum();
        assert_eq!(sessions, counted, "the shards' counts follow their lists");
        (sessions, watched)
    }

    #[tokio::test]
    async fn sessions_that_crashed_do_not_pile_up() {
        let clock = Arc::new(ManualClock::new(1_000));
        let store = MemorySessions::new(clock.clone());
        let star = UserId::new("star").unwrap();
        for n in 0..100_000 {
            clock.advance(10);
            store.register(&entry(n), TTL, 8).await.unwrap();
            store.watch(&entry(n), std::slice::from_ref(&star), TTL).await.unwrap();
        }
        // 3,000 are live at a time; a shard may hold as many expired ones, and its floor.
        let (sessions, watched) = kept(&store);
        assert!(sessions <= 2 * 3_000 + SHARDS * SWEEP_FLOOR, "{sessions} are kept");
        assert_eq!(sessions, watched, "a watch is kept as long as its session and no longer");
        assert_eq!(store.watchers(&star).await.unwrap().len(), 3_000);
    }

    #[tokio::test]
    async fn an_expired_session_is_removed_by_who_meets_it() {
        let clock = Arc::new(ManualClock::new(1_000));
        let store = MemorySessions::new(clock.clone());
        let star = UserId::new("star").unwrap();
        for n in 0..10 {
            store.register(&entry(n), TTL, 8).await.unwrap();
            store.watch(&entry(n), std::slice::from_ref(&star), TTL).await.unwrap();
        }
        clock.advance(30_001);
        for n in 0..10 {
            assert!(store.lookup(&entry(n).user_id).await.unwrap().is_empty());
        }
        assert_eq!(kept(&store), (0, 0));
        assert!(store.watched.iter().all(|w| w.read().is_empty()), "nor is an empty list of watchers kept");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_watch_that_races_with_the_end_of_its_session_leaves_nothing() {
        let store = Arc::new(MemorySessions::new(Arc::new(ManualClock::new(1_000))));
        let star = UserId::new("star").unwrap();
        for n in 0..2_000 {
            store.register(&entry(n), TTL, 8).await.unwrap();
            let watching = tokio::spawn({
                let (store, star) = (store.clone(), star.clone());
                async move { store.watch(&entry(n), &[star], TTL).await.unwrap() }
            });
            store.unregister(&entry(n).user_id, SessionId(n as u128)).await.unwrap();
            watching.await.unwrap();
            assert_eq!(kept(&store), (0, 0), "round {n}");
        }
    }
}
