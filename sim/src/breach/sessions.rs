//! The session store as a gateway's sessions see it, with R1 or R12 broken.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bluetick_protocol::{SessionId, UserId};
use bluetick_store::{Result, SessionEntry, SessionStore};
use parking_lot::Mutex;

use super::{Breach, Breaches};

/// Registrations that were answered and have not taken effect (R1).
pub(super) struct Deferred {
    registry: Arc<dyn SessionStore>,
    state: Mutex<DeferredState>,
}

#[derive(Default)]
struct DeferredState {
    /// The sessions whose registration was deferred once. A later one takes effect at once.
    known: BTreeSet<SessionId>,
    waiting: BTreeMap<(UserId, SessionId), Registration>,
}

struct Registration {
    entry: SessionEntry,
    ttl: Duration,
    max: usize,
}

impl Deferred {
    pub(super) fn new(registry: Arc<dyn SessionStore>) -> Deferred {
        Deferred { registry, state: Mutex::default() }
    }

    /// Keeps the registration for later, unless the session is known.
    fn defer(&self, entry: &SessionEntry, ttl: Duration, max: usize) -> bool {
        let mut state = self.state.lock();
        let is_new = state.known.insert(entry.session_id);
        if is_new {
            let key = (entry.user_id.clone(), entry.session_id);
            state.waiting.insert(key, Registration { entry: entry.clone(), ttl, max });
        }
        is_new
    }

    fn forget(&self, user: &UserId, session: SessionId) {
        self.state.lock().waiting.remove(&(user.clone(), session));
    }

    /// Makes the user's registrations take effect. Returns the sessions that they end.
    pub(super) async fn register(&self, user: &UserId) -> Vec<SessionEntry> {
        let waiting: Vec<Registration> = {
            let mut state = self.state.lock();
            let all = (user.clone(), SessionId(0))..=(user.clone(), SessionId(u128::MAX));
            let keys: Vec<_> = state.waiting.range(all).map(|(key, _)| key.clone()).collect();
            keys.iter().filter_map(|key| state.waiting.remove(key)).collect()
        };
        let mut ended = Vec::new();
        for Registration { entry, ttl, max } in waiting {
            ended.extend(self.registry.register(&entry, ttl, max).await.unwrap_or_default());
        }
        ended
    }
}

pub(super) struct BreachingSessions {
    pub inner: Arc<dyn SessionStore>,
    pub breaches: Breaches,
    pub deferred: Arc<Deferred>,
}

#[async_trait]
impl SessionStore for BreachingSessions {
    async fn register(&self, entry: &SessionEntry, ttl: Duration, max: usize) -> Result<Vec<SessionEntry>> {
        if self.breaches.contains(Breach::R1) && self.deferred.defer(entry, ttl, max) {
            return Ok(Vec::new());
        }
        self.inner.register(entry, ttl, max).await
    }

    async fn refresh(&self, sessions: &[(UserId, SessionId)], ttl: Duration) -> Result<Vec<bool>> {
        let alive = self.inner.refresh(sessions, ttl).await;
        match self.breaches.contains(Breach::R12) {
            true => Ok(vec![true; sessions.len()]),
            false => alive,
        }
    }

    async fn unregister(&self, user: &UserId, session: SessionId) -> Result<bool> {
        self.deferred.forget(user, session);
        self.inner.unregister(user, session).await
    }

    async fn lookup(&self, user: &UserId) -> Result<Vec<SessionEntry>> {
        self.inner.lookup(user).await
    }

    async fn last_seen(&self, user: &UserId) -> Result<Option<u64>> {
        self.inner.last_seen(user).await
    }

    async fn set_last_seen(&self, user: &UserId, ms: u64) -> Result<()> {
        self.inner.set_last_seen(user, ms).await
    }

    async fn watch(&self, watcher: &SessionEntry, users: &[UserId], ttl: Duration) -> Result<()> {
        self.inner.watch(watcher, users, ttl).await
    }

    async fn watchers(&self, user: &UserId) -> Result<Vec<SessionEntry>> {
        self.inner.watchers(user).await
    }

    async fn flush(&self) -> Result<()> {
        self.inner.flush().await
    }
}
