//! Profiles and blocks.

use bluetick_protocol::{ConversationId, ErrorCode, Profile, UserCard, UserId, WireError, limits};

use crate::{Answer, Node, wire};

impl Node {
    pub(crate) async fn card(&self, user: UserId) -> Answer<UserCard> {
        let Profile { name, avatar_url } = self.store.users.profile(&user).await.map_err(wire)?;
        Ok(UserCard { user_id: user, name, avatar_url })
    }

    pub(crate) async fn change_profile(&self, user: UserId, profile: Profile) -> Answer<UserCard> {
        let tidy = |text: Option<String>| text.map(|t| t.trim().to_owned()).filter(|t| !t.is_empty());
        let profile = Profile { name: tidy(profile.name), avatar_url: tidy(profile.avatar_url) };
        if profile
            .name
            .as_ref()
            .is_some_and(|n| n.len() > limits::NAME_MAX_BYTES || n.contains(char::is_control))
        {
            return Err(Node::bad_request(
                "\"name\" may be at most 128 bytes long, without control characters",
            ));
        }
        if let Some(url) = &profile.avatar_url
            && (url.len() > limits::AVATAR_URL_MAX_BYTES
                || !(url.starts_with("https://") || url.starts_with("http://")))
        {
            return Err(Node::bad_request(
                "\"avatar_url\" must be an http or https address of at most 1024 bytes",
            ));
        }
        self.store.users.put_profile(&user, profile).await.map_err(wire)?;
        self.card(user).await
    }

    /// Somebody else's card: for those who share a conversation with them.
    pub(crate) async fn card_for(&self, user: UserId, other: UserId) -> Answer<UserCard> {
        if user != other {
            let unknown =
                || WireError::new(ErrorCode::NotFound, "no such user that you have a conversation with");
            let id = ConversationId::between(&user, &other).ok_or_else(unknown)?;
            let row = self.store.conversations.conversation(&user, &id).await.map_err(wire)?;
            row.ok_or_else(unknown)?;
        }
        self.card(other).await
    }

    pub(crate) async fn change_block(&self, user: UserId, other: UserId, blocked: bool) -> Answer<()> {
        if user == other {
            return Err(WireError::new(ErrorCode::ToSelf, "you cannot block yourself"));
        }
        if blocked && self.store.users.blocked_by(&user).await.map_err(wire)?.len() >= limits::BLOCKS_MAX {
            return Err(Node::bad_request("you block as many users as one may"));
        }
        self.store.users.set_block(&user, &other, blocked).await.map_err(wire)
    }
}
