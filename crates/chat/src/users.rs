//! Profiles and blocks.

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, ErrorCode, Profile, UserCard, UserId, WireError, limits};

use crate::{AppResult, ChatService, Exhausted, ProfileSource, UserApi, rate_limited, wire};

#[async_trait]
impl UserApi for ChatService {
    async fn profile(&self, user: UserId) -> AppResult<UserCard> {
        let stored = self.store.users.profile(&user).await.map_err(wire)?;
        let Profile { name, avatar_url } = self.config.profiles.clean(stored);
        Ok(UserCard { user_id: user, name, avatar_url })
    }

    async fn put_profile(&self, user: UserId, profile: Profile) -> AppResult<UserCard> {
        let why = match self.config.profiles.source {
            ProfileSource::User => None,
            ProfileSource::Token => Some("names and avatars come from the tokens on this server"),
            ProfileSource::Server => Some("names and avatars are set by the operator of this server"),
        };
        if let Some(why) = why {
            return Err(WireError::new(ErrorCode::ProfileManaged, why));
        }
        let profile = self.config.profiles.check(profile).map_err(ChatService::bad_request)?;
        self.store_profile(&user, profile).await?;
        self.profile(user).await
    }

    /// Takes the profile from a token. Nobody can correct what the issuer wrote, so invalid parts
    /// are removed.
    async fn token_profile(&self, user: UserId, profile: Profile) -> AppResult<()> {
        if self.config.profiles.source != ProfileSource::Token {
            return Ok(());
        }
        let profile = self.config.profiles.clean(profile);
        self.store_profile(&user, profile).await
    }

    /// Another user's card, for those who may see it. A user who may not be seen looks like one who
    /// does not exist.
    async fn user_card(&self, user: UserId, other: UserId) -> AppResult<UserCard> {
        if user != other && !self.may_see(&user, &other).await? {
            return Err(WireError::new(ErrorCode::NotFound, "no such user who has written to you"));
        }
        self.profile(other).await
    }

    async fn set_block(&self, user: UserId, other: UserId, blocked: bool) -> AppResult<()> {
        if user == other {
            return Err(WireError::new(ErrorCode::ToSelf, "you cannot block yourself"));
        }
        if blocked && self.store.users.blocked_by(&user).await.map_err(wire)?.len() >= limits::BLOCKS_MAX {
            return Err(ChatService::bad_request("you block as many users as one may"));
        }
        self.store.users.set_block(&user, &other, blocked).await.map_err(wire)
    }

    async fn blocks(&self, user: UserId) -> AppResult<Vec<UserId>> {
        self.store.users.blocked_by(&user).await.map_err(wire)
    }
}

impl ChatService {
    /// A change is copied into a row for each of the user's conversations; an unchanged profile
    /// costs nothing.
    async fn store_profile(&self, user: &UserId, profile: Profile) -> AppResult<()> {
        if self.store.users.profile(user).await.map_err(wire)? == profile {
            return Ok(());
        }
        self.budget.take_profile_change(user).await.map_err(|ms| rate_limited(Exhausted::Profile, ms))?;
        self.store.users.put_profile(user, profile).await.map_err(wire)
    }

    /// The one rule of who sees whom, for presence and profiles; the copies in inboxes follow it.
    /// `other` has written to `user` and does not block them.
    pub(crate) async fn may_see(&self, user: &UserId, other: &UserId) -> AppResult<bool> {
        let Some(id) = ConversationId::between(user, other) else { return Ok(false) };
        let row = self.store.conversations.conversation(user, &id).await.map_err(wire)?;
        Ok(row.is_some_and(|row| row.peer_wrote)
            && !self.store.users.blocks(other, user).await.map_err(wire)?)
    }
}
