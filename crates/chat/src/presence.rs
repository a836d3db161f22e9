//! Presence and typing. They are sent to users who may see the user ([`ChatService::may_see`]),
//! never stored, and never sent across a block.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, Presence, Typing, UserId, WireError};
use bluetick_store::SessionEntry;
use parking_lot::Mutex;

use crate::{AppResult, ChatService, PresenceApi, SessionEvent, wire};

/// A watch expires this long after its session.
const WATCH_TTL: Duration = Duration::from_secs(24 * 3600);
/// Shorter than the delay before a session announces that the user is offline, so that an older
/// announcement never suppresses it.
const TOLD_JUST_NOW_MS: u64 = 1_000;
/// The shortest interval between two typing notices of a user in a conversation.
pub(crate) const TYPING_EVERY: Duration = Duration::from_secs(1);
/// Most typing notices that are remembered. Beyond that typing is dropped: it is worthless later.
const TYPING_KEPT_MAX: usize = 10_000;

/// When typing was last sent, by user and conversation.
#[derive(Debug, Default)]
pub(crate) struct TypingLimit(Mutex<BTreeMap<(UserId, ConversationId), u64>>);

impl TypingLimit {
    /// Whether typing may be sent now. Otherwise it is dropped before any lookup.
    fn allows(&self, user: &UserId, id: &ConversationId, now_ms: u64) -> bool {
        let recent = |told_ms: u64| told_ms <= now_ms && now_ms - told_ms < TYPING_EVERY.as_millis() as u64;
        let mut told = self.0.lock();
        let key = (user.clone(), id.clone());
        if told.get(&key).is_some_and(|&at| recent(at)) {
            return false;
        }
        if told.len() >= TYPING_KEPT_MAX {
            told.retain(|_, at| recent(*at));
        }
        let room = told.len() < TYPING_KEPT_MAX;
        if room {
            told.insert(key, now_ms);
        }
        room
    }
}

#[async_trait]
impl PresenceApi for ChatService {
    async fn watch(&self, watcher: SessionEntry, users: Vec<UserId>) -> AppResult<Vec<Presence>> {
        let (mut watched, mut answers) = (Vec::new(), Vec::with_capacity(users.len()));
        for user in users {
            let presence = match self.may_see(&watcher.user_id, &user).await? {
                true => {
                    watched.push(user.clone());
                    self.presence_of(user).await
                }
                // A user who may not know gets the same answer as for somebody who was never
                // online.
                false => Presence { user_id: user, online: false, last_seen: None },
            };
            answers.push(presence);
        }
        self.store.sessions.watch(&watcher, &watched, WATCH_TTL).await.map_err(wire)?;
        Ok(answers)
    }

    async fn presence_changed(&self, user: UserId, online: bool) -> AppResult<()> {
        // A device reconnected while another was leaving: the user was never offline.
        if !online && !self.sessions_of(&user).await.is_empty() {
            return Ok(());
        }
        let now = self.clock.now_ms();
        // Several devices that leave together each announce it: the first one has.
        let told = self.store.sessions.last_seen(&user).await.unwrap_or_default();
        if !online && told.is_some_and(|told| told <= now && now - told < TOLD_JUST_NOW_MS) {
            return Ok(());
        }
        // Only a recent `offline` may suppress another one. A recent `online` must not suppress the
        // `offline` that follows, so it is recorded as older.
        let noted = if online { now.saturating_sub(TOLD_JUST_NOW_MS) } else { now };
        self.store.sessions.set_last_seen(&user, noted).await.map_err(wire)?;
        let presence = Presence { user_id: user.clone(), online, last_seen: Some(now) };
        let mut watchers = Vec::new();
        for watcher in self.store.sessions.watchers(&user).await.map_err(wire)? {
            if !self.store.users.blocks(&user, &watcher.user_id).await.map_err(wire)? {
                watchers.push(watcher);
            }
        }
        self.fanout.hand_over_all(&watchers, &[], |_| SessionEvent::Presence(presence.clone())).await;
        Ok(())
    }

    async fn typing(&self, user: UserId, id: ConversationId) -> AppResult<()> {
        id.side_of(&user).ok_or_else(WireError::not_found)?;
        if !self.typing.allows(&user, &id, self.clock.now_ms()) {
            return Ok(());
        }
        let side = self.member_of(&user, &id).await?;
        let peer = id.member(side.other());
        for (one, other) in [(&peer, &user), (&user, &peer)] {
            if self.store.users.blocks(one, other).await.map_err(wire)? {
                return Ok(());
            }
        }
        let typing = Typing { conversation_id: id, user_id: user };
        let sessions = self.sessions_of(&peer).await;
        self.fanout.hand_over_all(&sessions, &[], |_| SessionEvent::Typing(typing.clone())).await;
        Ok(())
    }
}

impl ChatService {
    async fn presence_of(&self, user: UserId) -> Presence {
        let online = !self.sessions_of(&user).await.is_empty();
        let last_seen = self.store.sessions.last_seen(&user).await.unwrap_or_default();
        Presence { user_id: user, online, last_seen }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_is_told_once_a_second_and_what_is_kept_of_it_is_bounded() {
        let limit = TypingLimit::default();
        let user = |n: usize| UserId::new(&format!("u{n}")).unwrap();
        let allows = |n: usize, now_ms: u64| {
            limit.allows(&user(n), &ConversationId::between(&user(n), &user(n + 1)).unwrap(), now_ms)
        };
        assert!(allows(1, 5_000) && !allows(1, 5_000) && !allows(1, 5_999));
        assert!(allows(2, 5_000), "everybody for themselves");
        assert!(allows(1, 6_000));
        // A clock that was set back must not block typing.
        assert!(allows(1, 3_000));
        for n in 0..2 * TYPING_KEPT_MAX {
            allows(n, 20_000);
        }
        assert!(limit.0.lock().len() <= TYPING_KEPT_MAX);
        assert!(allows(1, 30_000), "room is made when a second is over");
    }
}
