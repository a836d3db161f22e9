//! Devices, and the push outbox.

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, DeviceId, Seq, UserId};

use super::{Memory, MemoryTables};
use crate::{DeviceRow, Devices, OwedPush, PushOutbox, Result};

#[async_trait]
impl Devices for Memory {
    async fn register(&self, row: DeviceRow) -> Result<Option<(UserId, DeviceId)>> {
        let mut state = self.write()?;
        let place = (row.user_id.clone(), row.device.clone());
        let token = row.token_name();
        let mut devices = state.devices.iter();
        let taken = devices.find(|(key, other)| **key != place && other.token_name() == token);
        let taken = taken.map(|(key, _)| key.clone());
        if let Some(key) = &taken {
            state.devices.remove(key);
        }
        state.devices.insert(place, row);
        Ok(taken)
    }

    async fn unregister(&self, user: &UserId, device: &DeviceId, registered_at: Option<u64>) -> Result<bool> {
        let mut state = self.write()?;
        let key = (user.clone(), device.clone());
        let unchanged =
            |row: &DeviceRow| registered_at.is_none_or(|registered_at| row.registered_at == registered_at);
        let removes = state.devices.get(&key).is_some_and(unchanged);
        if removes {
            state.devices.remove(&key);
        }
        Ok(removes)
    }

    async fn devices_of(&self, user: &UserId) -> Result<Vec<DeviceRow>> {
        let state = self.read();
        Ok(state.devices.values().filter(|row| row.user_id == *user).cloned().collect())
    }
}

impl MemoryTables {
    pub(super) fn notified_of(&self, user: &UserId, id: &ConversationId) -> Seq {
        self.notified.get(user).and_then(|rows| rows.get(id)).copied().unwrap_or(0)
    }

    pub(super) fn owe(&mut self, owed: OwedPush) {
        let key = (owed.user_id.clone(), owed.conversation_id.clone());
        if self.push_outbox.get(&key).is_none_or(|there| owed.replaces(there)) {
            self.push_outbox.insert(key, owed);
        }
    }
}

#[async_trait]
impl PushOutbox for Memory {
    async fn owe(&self, owed: OwedPush) -> Result<()> {
        self.write()?.owe(owed);
        Ok(())
    }

    async fn claim(&self, now: u64, until: u64, limit: usize) -> Result<Vec<OwedPush>> {
        let mut state = self.write()?;
        let due = state.push_outbox.values_mut().filter(|owed| owed.due_at <= now).take(limit);
        Ok(due
            .map(|owed| {
                owed.due_at = until;
                owed.clone()
            })
            .collect())
    }

    async fn postpone(&self, taken: &OwedPush, later: &OwedPush) -> Result<bool> {
        let mut state = self.write()?;
        let key = (taken.user_id.clone(), taken.conversation_id.clone());
        Ok(match state.push_outbox.get_mut(&key).filter(|there| there.is_as_taken(taken)) {
            Some(there) => {
                *there = later.clone();
                true
            }
            None => false,
        })
    }

    async fn paid(&self, owed: &OwedPush) -> Result<()> {
        let mut state = self.write()?;
        let key = (owed.user_id.clone(), owed.conversation_id.clone());
        if state.push_outbox.get(&key).is_some_and(|there| there.is_paid_by(owed)) {
            state.push_outbox.remove(&key);
        }
        Ok(())
    }

    async fn owed_to(&self, user: &UserId) -> Result<Vec<OwedPush>> {
        let state = self.read();
        Ok(state.push_outbox.values().filter(|owed| owed.user_id == *user).cloned().collect())
    }
}
