//! Push registrations of a user's devices, and muted conversations.

use async_trait::async_trait;
use bluetick_protocol::{
    ConversationId, DeviceId, Mute, PushDeviceCard, PushRegistration, UserId, WireError, limits,
};
use bluetick_store::DeviceRow;

use crate::{AppResult, ChatService, PushApi, wire};

#[async_trait]
impl PushApi for ChatService {
    async fn put_push(
        &self,
        user: UserId,
        device: DeviceId,
        registration: PushRegistration,
    ) -> AppResult<PushDeviceCard> {
        registration.target.check().map_err(ChatService::bad_request)?;
        let row =
            DeviceRow { user_id: user.clone(), device, registration, registered_at: self.clock.now_ms() };
        let taken = self.store.devices.register(row.clone()).await.map_err(wire)?;
        if let Some((other, device)) = taken.filter(|(other, _)| *other != user) {
            tracing::info!(from = %other, %device, to = %user, "a push token has moved to another user");
        }
        let mut devices = self.store.devices.devices_of(&user).await.map_err(wire)?;
        // A phone that is set up again has another device id, so the oldest of too many is removed.
        devices.sort_by_key(|row| std::cmp::Reverse(row.registered_at));
        for old in devices.iter().skip(limits::PUSH_DEVICES_MAX) {
            let removed = self.store.devices.unregister(&user, &old.device, Some(old.registered_at));
            removed.await.map_err(wire)?;
        }
        Ok(card(&row))
    }

    async fn delete_push(&self, user: UserId, device: DeviceId) -> AppResult<()> {
        self.store.devices.unregister(&user, &device, None).await.map_err(wire)?;
        Ok(())
    }

    async fn push_devices(&self, user: UserId) -> AppResult<Vec<PushDeviceCard>> {
        Ok(self.store.devices.devices_of(&user).await.map_err(wire)?.iter().map(card).collect())
    }

    /// Mutes a conversation that the user is in.
    async fn mute(&self, user: UserId, mute: Mute) -> AppResult<()> {
        self.member_of(&user, &mute.conversation_id).await?;
        if mute.until.is_some_and(|until| until <= self.clock.now_ms()) {
            return Err(ChatService::bad_request(
                "\"until\" must be a time to come, in milliseconds since 1970",
            ));
        }
        let muted = self.store.users.mutes_of(&user).await.map_err(wire)?;
        if muted.len() >= limits::MUTES_MAX && muted.iter().all(|m| m.conversation_id != mute.conversation_id)
        {
            return Err(ChatService::bad_request("you have muted as many conversations as one may"));
        }
        self.store.users.mute(&user, mute).await.map_err(wire)
    }

    async fn unmute(&self, user: UserId, id: ConversationId) -> AppResult<()> {
        id.side_of(&user).ok_or_else(WireError::not_found)?;
        self.store.users.unmute(&user, &id).await.map_err(wire)
    }

    /// The conversations that are muted now, without expired mutes.
    async fn mutes(&self, user: UserId) -> AppResult<Vec<Mute>> {
        let mut mutes = self.store.users.mutes_of(&user).await.map_err(wire)?;
        let now = self.clock.now_ms();
        mutes.retain(|mute| mute.until.is_none_or(|until| until > now));
        Ok(mutes)
    }
}

fn card(row: &DeviceRow) -> PushDeviceCard {
    PushDeviceCard {
        device: row.device.clone(),
        provider: row.registration.target.provider(),
        content: row.registration.content,
        registered_at: row.registered_at,
    }
}
