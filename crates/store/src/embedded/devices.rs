//! `devices`, and the owner of each provider's token (`push_tokens`): small rows that change
//! together.

use async_trait::async_trait;
use bluetick_protocol::{DeviceId, UserId};
use xxhash_rust::xxh3::Xxh3;

use super::{
    Embedded, StoreCore,
    bytes::{ByteReader, FORMAT, Malformed, check_format, put_str, put_u64},
    rows::{RowSpace, RowTransaction, key_parts, row_key, user_prefix},
};
use crate::{DeviceRow, Devices, Result, StoreError};

/// A registration is stored as JSON, as the client gives it, so that providers can change.
pub(super) fn encode(row: &DeviceRow) -> Result<Vec<u8>> {
    let registration = serde_json::to_string(&row.registration).map_err(|e| {
        StoreError::Unsupported(format!("a registration that cannot be written as JSON: {e}"))
    })?;
    let mut out = vec![FORMAT];
    put_u64(&mut out, row.registered_at);
    put_str(&mut out, &registration);
    Ok(out)
}

pub(super) fn decode(key: &[u8], value: &[u8]) -> Result<DeviceRow, Malformed> {
    let (user_id, device) = place(key)?;
    let r = &mut ByteReader(value);
    check_format(r)?;
    let registered_at = r.u64()?;
    let registration =
        serde_json::from_str(r.str()?).map_err(|_| Malformed("a stored registration does not parse"))?;
    r.end()?;
    Ok(DeviceRow { user_id, device, registration, registered_at })
}

fn place(key: &[u8]) -> Result<(UserId, DeviceId), Malformed> {
    let (user, device) = key_parts(key)?;
    let user = UserId::new(user).map_err(|_| Malformed("not a user id"))?;
    Ok((user, DeviceId::new(device).map_err(|_| Malformed("not a device id"))?))
}

impl StoreCore {
    /// The key of a provider's token.
    fn token_key(&self, row: &DeviceRow) -> [u8; 16] {
        let mut hash = Xxh3::with_seed(self.seed);
        hash.update(row.token_name().as_bytes());
        hash.digest128().to_be_bytes()
    }
}

impl RowTransaction<'_> {
    fn device(&self, key: &[u8]) -> Result<Option<DeviceRow>> {
        let value = self.get(RowSpace::Devices, key)?;
        Ok(value.map(|value| decode(key, &value)).transpose()?)
    }

    /// The key of the device that owns a token.
    fn owner(&self, token: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(value) = self.get(RowSpace::PushTokens, token)? else {
            return Ok(None);
        };
        let r = &mut ByteReader(&value);
        check_format(r)?;
        Ok(Some(r.0.to_vec()))
    }

    /// Removes a device's row and frees its token.
    fn remove_device(&mut self, key: &[u8], row: &DeviceRow) {
        self.remove(RowSpace::PushTokens, self.shared.token_key(row));
        self.remove(RowSpace::Devices, key);
    }

    fn register(&mut self, row: &DeviceRow) -> Result<Option<(UserId, DeviceId)>> {
        let key = row_key(row.user_id.as_str(), row.device.as_str());
        if let Some(before) = self.device(&key)? {
            self.remove_device(&key, &before);
        }
        let token = self.shared.token_key(row);
        let taken = match self.owner(&token)? {
            Some(other) => {
                self.remove(RowSpace::Devices, other.as_slice());
                Some(place(&other)?)
            }
            None => None,
        };
        let mut owner = vec![FORMAT];
        owner.extend_from_slice(&key);
        self.put(RowSpace::PushTokens, token, owner);
        self.put(RowSpace::Devices, key, encode(row)?);
        Ok(taken)
    }

    pub(super) fn forget_devices(&mut self, user: &UserId) -> Result<()> {
        for (key, value) in self.under(RowSpace::Devices, &user_prefix(user.as_str()))? {
            let row = decode(&key, &value)?;
            self.remove_device(&key, &row);
        }
        Ok(())
    }
}

#[async_trait]
impl Devices for Embedded {
    async fn register(&self, row: DeviceRow) -> Result<Option<(UserId, DeviceId)>> {
        self.transact(move |tx| tx.register(&row)).await
    }

    async fn unregister(&self, user: &UserId, device: &DeviceId, registered_at: Option<u64>) -> Result<bool> {
        let key = row_key(user.as_str(), device.as_str());
        self.transact(move |tx| {
            let there = tx.device(&key)?;
            let there = there.filter(|row| registered_at.is_none_or(|at| row.registered_at == at));
            if let Some(row) = &there {
                tx.remove_device(&key, row);
            }
            Ok(there.is_some())
        })
        .await
    }

    async fn devices_of(&self, user: &UserId) -> Result<Vec<DeviceRow>> {
        let prefix = user_prefix(user.as_str());
        self.blocking(move |shared| {
            let rows = shared.rows.under(&shared.engine, RowSpace::Devices, &prefix)?;
            rows.iter().map(|(key, value)| Ok(decode(key, value)?)).collect()
        })
        .await
    }
}
