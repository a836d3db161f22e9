//! `users`: profiles and blocks, which share one row for each user; mutes and revocations are small
//! rows (`mutes.rs`, `not_before.rs`).

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, Mute, Profile, UserId};

use super::{Embedded, committer::WriteOp};
use crate::{Result, Users};

#[async_trait]
impl Users for Embedded {
    async fn profile(&self, user: &UserId) -> Result<Profile> {
        Ok(self.shared.memtable.user(&self.shared.engine, user)?.profile.clone())
    }

    async fn put_profile(&self, user: &UserId, profile: Profile) -> Result<()> {
        let user = user.clone();
        self.ask(|reply| WriteOp::Profile { user, profile, reply }).await
    }

    async fn blocks(&self, user: &UserId, other: &UserId) -> Result<bool> {
        Ok(self.shared.memtable.user(&self.shared.engine, user)?.blocked.contains_key(other))
    }

    async fn set_block(&self, user: &UserId, other: &UserId, blocked: bool) -> Result<()> {
        let (user, other) = (user.clone(), other.clone());
        self.ask(|reply| WriteOp::Block { user, other, blocked, reply }).await
    }

    async fn blocked_by(&self, user: &UserId) -> Result<Vec<UserId>> {
        Ok(self.shared.memtable.user(&self.shared.engine, user)?.blocked.keys().cloned().collect())
    }

    async fn mute(&self, user: &UserId, mute: Mute) -> Result<()> {
        self.put_mute(user, &mute).await
    }

    async fn unmute(&self, user: &UserId, conversation: &ConversationId) -> Result<()> {
        self.remove_mute(user, conversation).await
    }

    async fn muted(&self, user: &UserId, conversation: &ConversationId) -> Result<Option<Mute>> {
        self.mute_of(user, conversation)
    }

    async fn mutes_of(&self, user: &UserId) -> Result<Vec<Mute>> {
        self.mutes(user).await
    }

    async fn not_before(&self, user: &UserId) -> Result<Option<u64>> {
        self.not_before_of(user)
    }

    async fn raise_not_before(&self, user: &UserId, secs: u64) -> Result<()> {
        self.put_not_before(user, secs).await
    }
}
