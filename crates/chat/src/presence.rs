//! Presence and typing: told to who shares a conversation, never stored, never across a block.

use std::time::Duration;

use bluetick_protocol::{ConversationId, Presence, Typing, UserId};
use bluetick_store::SessionEntry;

use crate::{Answer, Event, Node, wire};

/// A watch outlives its session by no more than this.
const WATCH_TTL: Duration = Duration::from_secs(24 * 3600);

impl Node {
    pub(crate) async fn watch_users(
        &self,
        watcher: SessionEntry,
        users: Vec<UserId>,
    ) -> Answer<Vec<Presence>> {
        let (mut watched, mut answers) = (Vec::new(), Vec::with_capacity(users.len()));
        for user in users {
            let presence = match self.may_see(&watcher.user_id, &user).await? {
                true => {
                    watched.push(user.clone());
                    self.presence_of(user).await
                }
                // Whoever may not know gets the same answer as for somebody who was never there.
                false => Presence { user_id: user, online: false, last_seen: None },
            };
            answers.push(presence);
        }
        self.store.sessions.watch(&watcher, &watched, WATCH_TTL).await.map_err(wire)?;
        Ok(answers)
    }

    async fn presence_of(&self, user: UserId) -> Presence {
        let online = !self.sessions_of(&user).await.is_empty();
        let last_seen = self.store.sessions.last_seen(&user).await.unwrap_or_default();
        Presence { user_id: user, online, last_seen }
    }

    /// Whether `watcher` shares a conversation with `user` and is not blocked by them.
    async fn may_see(&self, watcher: &UserId, user: &UserId) -> Answer<bool> {
        let Some(id) = ConversationId::between(watcher, user) else {
            return Ok(false);
        };
        if self.store.conversations.conversation(watcher, &id).await.map_err(wire)?.is_none() {
            return Ok(false);
        }
        // A conversation that only the watcher wrote in, unseen behind a block, shares nothing.
        let shared = self.store.conversations.conversation(user, &id).await.map_err(wire)?.is_some();
        Ok(shared && !self.store.users.blocks(user, watcher).await.map_err(wire)?)
    }

    pub(crate) async fn tell_presence(&self, user: UserId, online: bool) -> Answer<()> {
        // A device that came back while another was leaving: the user never was offline.
        if !online && !self.sessions_of(&user).await.is_empty() {
            return Ok(());
        }
        let now = self.clock.now_ms();
        self.store.sessions.set_last_seen(&user, now).await.map_err(wire)?;
        let presence = Presence { user_id: user.clone(), online, last_seen: Some(now) };
        for watcher in self.store.sessions.watchers(&user).await.map_err(wire)? {
            if !self.store.users.blocks(&user, &watcher.user_id).await.map_err(wire)? {
                self.hand_over(&watcher, Event::Presence(presence.clone())).await;
            }
        }
        Ok(())
    }

    pub(crate) async fn tell_typing(&self, user: UserId, id: ConversationId) -> Answer<()> {
        let side = self.member_of(&user, &id).await?;
        let peer = id.member(side.other());
        for (one, other) in [(&peer, &user), (&user, &peer)] {
            if self.store.users.blocks(one, other).await.map_err(wire)? {
                return Ok(());
            }
        }
        let typing = Typing { conversation_id: id, user_id: user };
        for session in self.sessions_of(&peer).await {
            self.hand_over(&session, Event::Typing(typing.clone())).await;
        }
        Ok(())
    }
}
