//! `push_outbox`: small rows that are also all in memory, sorted by user and by due time. A send
//! that owes a notification reads no disk, and a claim reads only what is due. A row takes less
//! than 200 bytes of memory. There is one for each conversation with something owed: few, unless a
//! provider is down.
//!
//! A claim is kept in memory only: no other process can hold one, so after a restart every row is
//! due. That saves a log record per claim, and a restarted server does not wait for the claims of
//! the one that died. The result of a failed attempt (`postpone`) is durable.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use bluetick_protocol::{ConversationId, DeviceId, Seq, UserId};
use parking_lot::Mutex;

use super::{
    Embedded,
    bytes::{ByteReader, FORMAT, Malformed, check_format, put_str, put_u64},
    engine::{Engine, Space, user_key},
    rows::{Bytes, RowChange, RowSpace, RowTransaction, key_parts, user_prefix},
};
use crate::{OwedPush, PushOutbox, Result};

/// A row without its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PushOutboxRow {
    pub seq: Seq,
    pub due_at: u64,
    pub attempts: u32,
    pub clear: bool,
    pub devices: Box<[DeviceId]>,
}

impl PushOutboxRow {
    fn of(owed: &OwedPush) -> PushOutboxRow {
        PushOutboxRow {
            seq: owed.seq,
            due_at: owed.due_at,
            attempts: owed.attempts,
            clear: owed.clear,
            devices: owed.devices.as_slice().into(),
        }
    }

    fn to(&self, user_id: UserId, conversation_id: ConversationId) -> OwedPush {
        OwedPush {
            user_id,
            conversation_id,
            seq: self.seq,
            clear: self.clear,
            attempts: self.attempts,
            devices: self.devices.to_vec(),
            due_at: self.due_at,
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        put_u64(&mut out, self.seq);
        out.push(u8::from(self.clear));
        put_u64(&mut out, u64::from(self.attempts));
        put_u64(&mut out, self.due_at);
        put_u64(&mut out, self.devices.len() as u64);
        for device in &self.devices {
            put_str(&mut out, device.as_str());
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<PushOutboxRow, Malformed> {
        let r = &mut ByteReader(bytes);
        check_format(r)?;
        let (seq, clear) = (r.u64()?, r.u8()? != 0);
        let attempts = u32::try_from(r.u64()?).map_err(|_| Malformed("too many attempts"))?;
        let due_at = r.u64()?;
        let mut devices = Vec::new();
        for _ in 0..r.u64()? {
            devices.push(r.device()?);
        }
        r.end()?;
        Ok(PushOutboxRow { seq, due_at, attempts, clear, devices: devices.into() })
    }
}

/// The row with the ids from its key.
pub(super) fn owed_of(key: &[u8], row: &PushOutboxRow) -> Result<OwedPush, Malformed> {
    let (user, id) = key_parts(key)?;
    let user = UserId::new(user).map_err(|_| Malformed("not a user id"))?;
    Ok(row.to(user, ConversationId::new(id).map_err(|_| Malformed("not a conversation id"))?))
}

/// Every row of the outbox as it is durable, except that a claim moves the due time.
#[derive(Default)]
pub(super) struct PushOutboxIndex(Mutex<PushRowsByDueTime>);

#[derive(Default)]
struct PushRowsByDueTime {
    rows: BTreeMap<Bytes, PushOutboxRow>,
    due: BTreeSet<(u64, Bytes)>,
}

impl PushRowsByDueTime {
    fn set(&mut self, key: Bytes, row: Option<PushOutboxRow>) {
        let due_at = row.as_ref().map(|row| row.due_at);
        let before = match row {
            Some(row) => self.rows.insert(key.clone(), row),
            None => self.rows.remove(&key),
        };
        if let Some(before) = before {
            self.due.remove(&(before.due_at, key.clone()));
        }
        self.due.extend(due_at.map(|due_at| (due_at, key)));
    }
}

impl PushOutboxIndex {
    /// Loads the rows that the engine has.
    pub(super) fn load(engine: &Engine) -> Result<PushOutboxIndex> {
        let mut index = PushRowsByDueTime::default();
        for row in engine.rows_under(Space::PushOutbox, &[]) {
            let (key, value) = row?;
            let row = PushOutboxRow::decode(&value)?;
            owed_of(&key, &row)?;
            index.set(key, Some(row));
        }
        Ok(PushOutboxIndex(Mutex::new(index)))
    }

    /// Makes every row due: claims of the previous process have ended.
    pub(super) fn make_due(&self, now: u64) {
        let mut index = self.0.lock();
        let waiting: Vec<_> = index.rows.iter().filter(|(_, row)| row.due_at > now).collect();
        let waiting: Vec<_> = waiting.into_iter().map(|(key, row)| (key.clone(), row.clone())).collect();
        for (key, row) in waiting {
            index.set(key, Some(PushOutboxRow { due_at: now, ..row }));
        }
    }

    /// Applies durable changes.
    pub(super) fn publish<'a>(&self, changes: impl Iterator<Item = &'a RowChange>) {
        let mut index = None;
        for change in changes.filter(|change| change.space == RowSpace::PushOutbox) {
            // A row that does not decode was refused when it was read.
            let row = change.value.as_deref().and_then(|value| PushOutboxRow::decode(value).ok());
            index.get_or_insert_with(|| self.0.lock()).set(change.key.clone(), row);
        }
    }

    fn get(&self, key: &[u8]) -> Option<PushOutboxRow> {
        self.0.lock().rows.get(key).cloned()
    }

    fn claim(&self, now: u64, until: u64, limit: usize) -> Result<Vec<OwedPush>> {
        let mut index = self.0.lock();
        let due = index.due.iter().take_while(|(due_at, _)| *due_at <= now).take(limit);
        let due: Vec<Bytes> = due.map(|(_, key)| key.clone()).collect();
        let mut claimed = Vec::with_capacity(due.len());
        for key in due {
            if let Some(row) = index.rows.get(&key).cloned() {
                let row = PushOutboxRow { due_at: until, ..row };
                claimed.push(owed_of(&key, &row)?);
                index.set(key, Some(row));
            }
        }
        Ok(claimed)
    }

    fn under(&self, user: &UserId) -> Result<Vec<OwedPush>> {
        let prefix: Bytes = user_prefix(user.as_str()).into();
        let index = self.0.lock();
        let under = index.rows.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        under.map(|(key, row)| Ok(owed_of(key, row)?)).collect()
    }
}

impl RowChange {
    /// Refuses a row of the outbox that cannot be decoded, since it would stay in memory.
    pub(super) fn check(&self) -> Result<(), Malformed> {
        if let (RowSpace::PushOutbox, Some(value)) = (self.space, &self.value) {
            owed_of(&self.key, &PushOutboxRow::decode(value)?)?;
        }
        Ok(())
    }
}

impl RowTransaction<'_> {
    fn owed(&self, user: &UserId, id: &ConversationId) -> Result<Option<OwedPush>> {
        let key = user_key(user.as_str(), id);
        let row = match self.touched(RowSpace::PushOutbox, &key) {
            Some(value) => value.as_deref().map(PushOutboxRow::decode).transpose()?,
            None => self.shared.push_outbox.get(&key),
        };
        Ok(row.map(|row| row.to(user.clone(), id.clone())))
    }

    fn set_owed(&mut self, owed: &OwedPush) {
        let key = user_key(owed.user_id.as_str(), &owed.conversation_id);
        self.put(RowSpace::PushOutbox, key, PushOutboxRow::of(owed).encode());
    }

    pub(super) fn owe(&mut self, owed: &OwedPush) -> Result<()> {
        if self.owed(&owed.user_id, &owed.conversation_id)?.is_none_or(|there| owed.replaces(&there)) {
            self.set_owed(owed);
        }
        Ok(())
    }
}

#[async_trait]
impl PushOutbox for Embedded {
    async fn owe(&self, owed: OwedPush) -> Result<()> {
        self.transact(move |tx| tx.owe(&owed)).await
    }

    async fn claim(&self, now: u64, until: u64, limit: usize) -> Result<Vec<OwedPush>> {
        self.shared.push_outbox.claim(now, until, limit)
    }

    async fn postpone(&self, taken: &OwedPush, later: &OwedPush) -> Result<bool> {
        let (taken, later) = (taken.clone(), later.clone());
        self.transact(move |tx| {
            let there = tx.owed(&taken.user_id, &taken.conversation_id)?;
            let same = there.is_some_and(|there| there.is_as_taken(&taken));
            if same {
                tx.set_owed(&later);
            }
            Ok(same)
        })
        .await
    }

    async fn paid(&self, owed: &OwedPush) -> Result<()> {
        let owed = owed.clone();
        self.transact(move |tx| {
            let there = tx.owed(&owed.user_id, &owed.conversation_id)?;
            if there.is_some_and(|there| there.is_paid_by(&owed)) {
                tx.remove(RowSpace::PushOutbox, user_key(owed.user_id.as_str(), &owed.conversation_id));
            }
            Ok(())
        })
        .await
    }

    async fn owed_to(&self, user: &UserId) -> Result<Vec<OwedPush>> {
        self.shared.push_outbox.under(user)
    }
}
