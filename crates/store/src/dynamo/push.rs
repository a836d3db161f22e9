//! Devices and the notifications that they are owed.

use async_trait::async_trait;
use bluetick_protocol::{DeviceId, UserId};

use super::DynamoStore;
use crate::{DeviceRow, Devices, OwedPush, PushOutbox, Result};

#[async_trait]
impl Devices for DynamoStore {
    async fn register(&self, _row: DeviceRow) -> Result<Option<(UserId, DeviceId)>> {
        unimplemented!()
    }

    async fn unregister(
        &self,
        _user: &UserId,
        _device: &DeviceId,
        _registered_at: Option<u64>,
    ) -> Result<bool> {
        unimplemented!()
    }

    async fn devices_of(&self, _user: &UserId) -> Result<Vec<DeviceRow>> {
        unimplemented!()
    }
}

#[async_trait]
impl PushOutbox for DynamoStore {
    async fn owe(&self, _owed: OwedPush) -> Result<()> {
        unimplemented!()
    }

    async fn claim(&self, _now: u64, _until: u64, _limit: usize) -> Result<Vec<OwedPush>> {
        unimplemented!()
    }

    async fn postpone(&self, _owed: &OwedPush) -> Result<bool> {
        unimplemented!()
    }

    async fn paid(&self, _owed: &OwedPush) -> Result<()> {
        unimplemented!()
    }

    async fn owed_to(&self, _user: &UserId) -> Result<Vec<OwedPush>> {
        unimplemented!()
    }
}
