//! `devices`: PK user_id, SK device. A second row for each token, under a key that no user can
//! have, names its owner. One transaction writes both, so that a token has one device.

use std::time::Duration;

use async_trait::async_trait;
use bluetick_protocol::{DeviceId, UserId};
use rand::RngExt as _;
use sha2::{Digest as _, Sha256};

use super::{
    DynamoStore,
    item::{Attributes as _, Item, ItemKey, damaged, key, n, s},
    tables::Table,
    write::{Transacted, Write},
};
use crate::{DeviceRow, Devices, Result, StoreError};

/// No user id contains this character.
const TOKEN: &str = "#token#";
const OWNER: &str = "#owner";
/// Attempts to change rows that others change too.
const TRIES: usize = 60;

type UserDevice = (UserId, DeviceId);

fn device_key((user, device): &UserDevice) -> ItemKey {
    key([("user_id", s(user)), ("device", s(device))])
}

fn token_key(token: &str) -> ItemKey {
    key([("user_id", s(format!("{TOKEN}{token}"))), ("device", s(OWNER))])
}

/// A token's name in keys: a hash, because an address may be too long for a key.
/// Collision-resistant.
pub(super) fn token_of(row: &DeviceRow) -> String {
    format!("{:x}", Sha256::digest(row.token_name()))
}

fn place_of(row: &DeviceRow) -> UserDevice {
    (row.user_id.clone(), row.device.clone())
}

fn device_id(item: &Item, name: &str) -> Result<DeviceId> {
    DeviceId::new(item.need_text(name)?).map_err(|e| damaged(name, e))
}

pub(super) fn device_item(row: &DeviceRow) -> Result<Item> {
    let registration = serde_json::to_string(&row.registration).map_err(|e| damaged("registration", e))?;
    let mut item = device_key(&place_of(row));
    item.extend(key([
        ("registration", s(registration)),
        ("token", s(token_of(row))),
        ("registered_at", n(row.registered_at)),
    ]));
    Ok(item)
}

/// The row that names a token's owner.
pub(super) fn token_item(row: &DeviceRow) -> Item {
    let mut item = token_key(&token_of(row));
    item.extend(key([("owner", s(&row.user_id)), ("owner_device", s(&row.device))]));
    item
}

/// The token of an owner row; `None` for a device's row.
pub(super) fn token_in(item: &Item) -> Option<&str> {
    item.text("user_id")?.strip_prefix(TOKEN)
}

pub(super) fn read_device(item: &Item) -> Result<DeviceRow> {
    let registration = serde_json::from_str(item.need_text("registration")?);
    Ok(DeviceRow {
        user_id: item.user("user_id")?,
        device: device_id(item, "device")?,
        registration: registration.map_err(|e| damaged("registration", e))?,
        registered_at: item.need_number("registered_at")?,
    })
}

pub(super) fn read_owner(item: &Item) -> Result<UserDevice> {
    Ok((item.user("owner")?, device_id(item, "owner_device")?))
}

/// Writes a token's row if it is unchanged since it was read.
fn if_owner(write: Write, owner: Option<&UserDevice>) -> Write {
    match owner {
        Some((user, device)) => write
            .only_if("#owner = :user AND #owner_device = :device")
            .value(":user", s(user))
            .value(":device", s(device)),
        None => write.only_if("attribute_not_exists(#owner)"),
    }
}

/// Writes a device's row if it is unchanged since it was read.
fn if_token(write: Write, token: Option<&str>) -> Write {
    match token {
        Some(token) => write.only_if("#token = :token").value(":token", s(token)),
        None => write.only_if("attribute_not_exists(#token)"),
    }
}

async fn pause(round: usize) {
    let pause = rand::rng().random_range(0..5 * (round as u64 + 1));
    tokio::time::sleep(Duration::from_millis(pause)).await;
}

fn busy() -> StoreError {
    StoreError::unavailable("a device with too many concurrent registrations")
}

impl DynamoStore {
    async fn device(&self, place: &UserDevice) -> Result<Option<DeviceRow>> {
        self.dynamo.get(Table::Devices, device_key(place)).await?.as_ref().map(read_device).transpose()
    }

    async fn owner_of(&self, token: &str) -> Result<Option<UserDevice>> {
        self.dynamo.get(Table::Devices, token_key(token)).await?.as_ref().map(read_owner).transpose()
    }

    /// The token in a device's row.
    async fn token_at(&self, place: &UserDevice) -> Result<Option<String>> {
        Ok(self.device(place).await?.map(|row| token_of(&row)))
    }
}

#[async_trait]
impl Devices for DynamoStore {
    async fn register(&self, row: DeviceRow) -> Result<Option<UserDevice>> {
        self.writable()?;
        let (place, token) = (place_of(&row), token_of(&row));
        let (device, owner) = (device_item(&row)?, token_item(&row));
        let mut taken = None;
        for round in 0..TRIES {
            let (before, owned_by) = tokio::try_join!(self.device(&place), self.owner_of(&token))?;
            if before.as_ref() == Some(&row) && owned_by.as_ref() == Some(&place) {
                // The write had succeeded and its answer was lost.
                return Ok(taken);
            }
            let old_token = before.map(|before| token_of(&before));
            let mut writes = vec![
                if_token(Write::put(Table::Devices, device.clone()), old_token.as_deref()),
                if_owner(Write::put(Table::Devices, owner.clone()), owned_by.as_ref()),
            ];
            taken = owned_by.filter(|other| *other != place);
            if let Some(other) = &taken {
                match self.token_at(other).await?.as_ref() == Some(&token) {
                    true => {
                        writes.push(if_token(Write::delete(Table::Devices, device_key(other)), Some(&token)))
                    }
                    // The rows do not match: they were edited by hand.
                    false => taken = None,
                }
            }
            if let Some(old) = old_token.filter(|old| *old != token)
                && self.owner_of(&old).await?.as_ref() == Some(&place)
            {
                writes.push(if_owner(Write::delete(Table::Devices, token_key(&old)), Some(&place)));
            }
            match self.dynamo.transact(&writes).await? {
                Transacted::Done => return Ok(taken),
                Transacted::Refused(_) => pause(round).await,
            }
        }
        Err(busy())
    }

    async fn unregister(&self, user: &UserId, device: &DeviceId, registered_at: Option<u64>) -> Result<bool> {
        self.writable()?;
        let place = (user.clone(), device.clone());
        let mut tried = false;
        for round in 0..TRIES {
            // An earlier attempt of this call removed it, and its answer was lost.
            let Some(row) = self.device(&place).await? else { return Ok(tried) };
            if registered_at.is_some_and(|registered_at| registered_at != row.registered_at) {
                return Ok(false);
            }
            let token = token_of(&row);
            let mut writes = vec![
                Write::delete(Table::Devices, device_key(&place))
                    .only_if("#token = :token AND #registered_at = :registered_at")
                    .value(":token", s(&token))
                    .value(":registered_at", n(row.registered_at)),
            ];
            if self.owner_of(&token).await?.as_ref() == Some(&place) {
                writes.push(if_owner(Write::delete(Table::Devices, token_key(&token)), Some(&place)));
            }
            match self.dynamo.transact(&writes).await? {
                Transacted::Done => return Ok(true),
                Transacted::Refused(_) => pause(round).await,
            }
            tried = true;
        }
        Err(busy())
    }

    async fn devices_of(&self, user: &UserId) -> Result<Vec<DeviceRow>> {
        self.dynamo.query_all(Table::Devices, s(user)).await?.iter().map(read_device).collect()
    }
}
