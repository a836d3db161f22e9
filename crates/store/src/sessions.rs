//! The session store (connection registry): `ws:{user}` → sessions and their gateways, with a TTL
//! refreshed by heartbeat; `last_seen:{user}`; and who watches whose presence. A hint, never the
//! truth: losing all of it loses no message.

mod memory;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bluetick_protocol::{DeviceId, SessionId, UserId};
use serde::{Deserialize, Serialize};

use crate::Result;
pub use memory::MemorySessions;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEntry {
    pub user_id: UserId,
    pub device: DeviceId,
    pub session_id: SessionId,
    /// The gateway that holds the socket.
    pub gateway: Arc<str>,
    pub connected_at: u64,
}

#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Adds the entry. Returns the sessions that it replaces, which are already removed: the same
    /// device's older session, and the user's oldest beyond `max_sessions`.
    async fn register(
        &self,
        entry: &SessionEntry,
        ttl: Duration,
        max_sessions: usize,
    ) -> Result<Vec<SessionEntry>>;

    /// Extends the TTL of existing entries. Returns for each whether it existed: a refresh never
    /// recreates an entry (R12).
    async fn refresh(&self, sessions: &[(UserId, SessionId)], ttl: Duration) -> Result<Vec<bool>>;

    /// Removes the entry if it still names this session (R12). Returns whether the user has no
    /// session left.
    async fn unregister(&self, user: &UserId, session: SessionId) -> Result<bool>;

    /// The user's live sessions, oldest first.
    async fn lookup(&self, user: &UserId) -> Result<Vec<SessionEntry>>;

    /// When the user was last connected, in milliseconds since 1970.
    async fn last_seen(&self, user: &UserId) -> Result<Option<u64>>;

    async fn set_last_seen(&self, user: &UserId, ms: u64) -> Result<()>;

    /// Replaces the list of users that a session watches; an empty list ends the watch.
    async fn watch(&self, watcher: &SessionEntry, users: &[UserId], ttl: Duration) -> Result<()>;

    /// The sessions that watch a user.
    async fn watchers(&self, user: &UserId) -> Result<Vec<SessionEntry>>;

    /// Deletes every entry, as a restart of the registry would.
    async fn flush(&self) -> Result<()>;
}
