//! The session store as one process reaches it.

use std::{fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;
use bluetick_protocol::{SessionId, UserId};
use bluetick_store::{MemorySessions, Result, SessionEntry, SessionStore};
use futures_util::FutureExt;

use crate::{process::Process, sim::Sim};

pub struct SimRegistry {
    pub sim: Arc<Sim>,
    pub process: Arc<Process>,
    pub inner: Arc<MemorySessions>,
    /// Whether it always answers.
    pub reliable: bool,
}

impl SimRegistry {
    async fn step<T: Send + Debug + 'static>(
        &self,
        what: impl FnOnce() -> String,
        op: impl FnOnce(&MemorySessions) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inner = self.inner.clone();
        match self.reliable {
            true => self.sim.reliable_step(&self.process, what, move || op(&inner)).await,
            false => self.sim.step(&self.process, what, move || op(&inner)).await,
        }
    }
}

fn now<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    call.now_or_never().unwrap_or_else(|| Err(crate::sim::unavailable()))
}

#[async_trait]
impl SessionStore for SimRegistry {
    async fn register(&self, entry: &SessionEntry, ttl: Duration, max: usize) -> Result<Vec<SessionEntry>> {
        let added = entry.clone();
        let what = || format!("register {} {} {}", entry.user_id, entry.device, entry.session_id);
        let notices = self.sim.notices.clone();
        let register = move |inner: &MemorySessions| {
            let known = now(inner.lookup(&added.user_id))?;
            let displaced = now(inner.register(&added, ttl, max))?;
            if !known.iter().any(|entry| entry.session_id == added.session_id) {
                notices.registered(added.session_id);
            }
            Ok(displaced)
        };
        self.step(what, register).await
    }

    async fn refresh(&self, sessions: &[(UserId, SessionId)], ttl: Duration) -> Result<Vec<bool>> {
        let refreshed = sessions.to_vec();
        let what = || format!("refresh {sessions:?}");
        self.step(what, move |inner| now(inner.refresh(&refreshed, ttl))).await
    }

    async fn unregister(&self, user: &UserId, session: SessionId) -> Result<bool> {
        let of = user.clone();
        let what = || format!("unregister {user} {session}");
        self.step(what, move |inner| now(inner.unregister(&of, session))).await
    }

    async fn lookup(&self, user: &UserId) -> Result<Vec<SessionEntry>> {
        let of = user.clone();
        let found = move |inner: &MemorySessions| now(inner.lookup(&of)).map(ShortEntries);
        Ok(self.step(|| format!("look up {user}"), found).await?.0)
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

/// Entries with a short form for the trace.
struct ShortEntries(Vec<SessionEntry>);

impl Debug for ShortEntries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let short = |e: &SessionEntry| format!("{} {} at {}", e.device, e.session_id, e.gateway);
        f.debug_list().entries(self.0.iter().map(short)).finish()
    }
}
