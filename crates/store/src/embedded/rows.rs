//! Small rows: everything with a key of its own that is neither a message nor part of a
//! conversation's or a user's row.
//!
//! They change in transactions ([`RowTransaction`]) that run in the committer's thread; the changes
//! of one transaction are in one group of the log, all or none. Until a checkpoint the rows are in
//! memory, in an active and a frozen memtable as in `memtable.rs`. A new kind of row needs a new
//! [`RowSpace`] and nothing else here.

use std::{cmp::Ordering, collections::BTreeMap, ops::Range, sync::Arc};

use bluetick_protocol::ConversationId;
use foldhash::HashMap;
use parking_lot::RwLock;

use super::{
    Embedded, StoreCore,
    bytes::{ByteReader, Malformed, put_bytes, put_u64},
    committer::{OnCommit, Overlay, WriteOp},
    conversation::ConversationState,
    engine::{Engine, EngineChange, Space},
};
use crate::Result;

/// A key or a value.
pub(super) type Bytes = Arc<[u8]>;

/// A keyspace of small rows, by its number in the log. Numbers never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum RowSpace {
    Devices = 1,
    PushTokens = 2,
    PushOutbox = 3,
    Mutes = 4,
    ColdRuns = 5,
    Attachments = 6,
    AttachmentClaims = 7,
    UnclaimedAttachments = 8,
    OwnedAttachments = 9,
    UploadUsage = 10,
    NotBefore = 11,
}

impl RowSpace {
    pub(super) const ALL: [RowSpace; 11] = [
        RowSpace::Devices,
        RowSpace::PushTokens,
        RowSpace::PushOutbox,
        RowSpace::Mutes,
        RowSpace::ColdRuns,
        RowSpace::Attachments,
        RowSpace::AttachmentClaims,
        RowSpace::UnclaimedAttachments,
        RowSpace::OwnedAttachments,
        RowSpace::UploadUsage,
        RowSpace::NotBefore,
    ];

    pub(super) fn space(self) -> Space {
        match self {
            RowSpace::Devices => Space::Devices,
            RowSpace::PushTokens => Space::PushTokens,
            RowSpace::PushOutbox => Space::PushOutbox,
            RowSpace::Mutes => Space::Mutes,
            RowSpace::ColdRuns => Space::ColdRuns,
            RowSpace::Attachments => Space::Attachments,
            RowSpace::AttachmentClaims => Space::AttachmentClaims,
            RowSpace::UnclaimedAttachments => Space::UnclaimedAttachments,
            RowSpace::OwnedAttachments => Space::OwnedAttachments,
            RowSpace::UploadUsage => Space::UploadUsage,
            RowSpace::NotBefore => Space::NotBefore,
        }
    }
}

/// A row after a write: a value, or nothing (a tombstone).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowChange {
    pub space: RowSpace,
    pub key: Bytes,
    pub value: Option<Bytes>,
}

impl RowChange {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.space as u8);
        put_bytes(out, &self.key);
        out.push(u8::from(self.value.is_some()));
        if let Some(value) = &self.value {
            put_bytes(out, value);
        }
    }

    pub(super) fn read(r: &mut ByteReader<'_>) -> Result<RowChange, Malformed> {
        let number = r.u8()?;
        let space = RowSpace::ALL.into_iter().find(|space| *space as u8 == number);
        let space = space.ok_or(Malformed("a kind of row that this version does not know"))?;
        let key = r.bytes()?.into();
        let value = match r.u8()? {
            0 => None,
            1 => Some(r.bytes()?.into()),
            _ => return Err(Malformed("neither a value nor a tombstone")),
        };
        Ok(RowChange { space, key, value })
    }
}

/// Encodes the changes of one record.
pub(super) fn put_changes(out: &mut Vec<u8>, changes: &[RowChange]) {
    put_u64(out, changes.len() as u64);
    for change in changes {
        change.encode(out);
    }
}

pub(super) fn changes(r: &mut ByteReader<'_>) -> Result<Vec<RowChange>, Malformed> {
    let mut changes = Vec::new();
    for _ in 0..r.u64()? {
        changes.push(RowChange::read(r)?);
    }
    Ok(changes)
}

/// Rows by key: a value, or `None` for a tombstone.
pub(super) type RowMap = BTreeMap<Bytes, Option<Bytes>>;

/// The last change of each changed row, sorted by key.
#[derive(Debug, Default)]
pub(super) struct RowChanges([RowMap; RowSpace::ALL.len()]);

impl RowChanges {
    fn of(&self, space: RowSpace) -> &RowMap {
        &self.0[space as usize - 1]
    }

    pub(super) fn set(&mut self, change: RowChange) {
        self.0[change.space as usize - 1].insert(change.key, change.value);
    }

    pub(super) fn get(&self, space: RowSpace, key: &[u8]) -> Option<&Option<Bytes>> {
        self.of(space).get(key)
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(BTreeMap::len).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(BTreeMap::is_empty)
    }

    pub(super) fn clear(&mut self) {
        self.0.iter_mut().for_each(BTreeMap::clear);
    }

    pub(super) fn take(&mut self) -> impl Iterator<Item = RowChange> + use<> {
        let taken = std::mem::take(self).0;
        RowSpace::ALL.into_iter().zip(taken).flat_map(|(space, rows)| {
            rows.into_iter().map(move |(key, value)| RowChange { space, key, value })
        })
    }

    /// The changes of one keyspace, sorted, for the engine.
    pub(super) fn run(&self, space: RowSpace) -> Vec<EngineChange> {
        let rows = self.of(space).iter();
        rows.map(|(key, value)| (key.to_vec(), value.as_ref().map(|value| value.to_vec()))).collect()
    }

    /// Overlays the changes in a range of keys on older rows.
    fn overlay(&self, space: RowSpace, keys: &Range<Vec<u8>>, rows: &mut RowMap) {
        let between = self.of(space).range::<[u8], _>((
            std::ops::Bound::Included(keys.start.as_slice()),
            std::ops::Bound::Excluded(keys.end.as_slice()),
        ));
        rows.extend(between.map(|(key, value)| (key.clone(), value.clone())));
    }
}

/// The memtable of small rows: what the log holds and the engine does not have yet.
#[derive(Default)]
pub(super) struct SmallRows(RwLock<RowMemtables>);

#[derive(Default)]
struct RowMemtables {
    active: RowChanges,
    frozen: Arc<RowChanges>,
    freezes: u64,
}

impl SmallRows {
    pub(super) fn get(&self, engine: &Engine, space: RowSpace, key: &[u8]) -> Result<Option<Bytes>> {
        {
            let rows = self.0.read();
            if let Some(value) = rows.active.get(space, key).or_else(|| rows.frozen.get(space, key)) {
                return Ok(value.clone());
            }
        }
        engine.row(space.space(), key)
    }

    /// The rows whose keys begin with a prefix, in order.
    pub(super) fn under(
        &self,
        engine: &Engine,
        space: RowSpace,
        prefix: &[u8],
    ) -> Result<Vec<(Bytes, Bytes)>> {
        self.first(engine, space, &prefix_range(prefix), usize::MAX)
    }

    /// The first rows in a range of keys, in order, at most `limit`.
    pub(super) fn first(
        &self,
        engine: &Engine,
        space: RowSpace,
        keys: &Range<Vec<u8>>,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>> {
        self.between(space, keys, |recent| {
            first_of(recent, engine.rows_between(space.space(), keys.clone()), limit)
        })
    }

    /// The last row in a range of keys.
    pub(super) fn last(
        &self,
        engine: &Engine,
        space: RowSpace,
        keys: &Range<Vec<u8>>,
    ) -> Result<Option<(Bytes, Bytes)>> {
        self.between(space, keys, |recent| {
            last_of(recent, engine.rows_between(space.space(), keys.clone()).rev())
        })
    }

    /// Merges the rows of a range in memory with those in the engine.
    fn between<T>(
        &self,
        space: RowSpace,
        keys: &Range<Vec<u8>>,
        merge: impl Fn(RowMap) -> Result<T>,
    ) -> Result<T> {
        loop {
            let (recent, freezes) = self.recent(space, keys);
            let merged = merge(recent)?;
            // Rows that were frozen meanwhile may have reached the engine: then the two halves are
            // of different moments, and the read is repeated.
            if self.0.read().freezes == freezes {
                return Ok(merged);
            }
        }
    }

    /// The rows of a range in memory, and the number of freezes so far.
    pub(super) fn recent(&self, space: RowSpace, keys: &Range<Vec<u8>>) -> (RowMap, u64) {
        let (rows, mut recent) = (self.0.read(), BTreeMap::new());
        rows.frozen.overlay(space, keys, &mut recent);
        rows.active.overlay(space, keys, &mut recent);
        (recent, rows.freezes)
    }

    /// Makes durable changes visible.
    pub(super) fn publish(&self, changes: impl Iterator<Item = RowChange>) {
        let mut rows = self.0.write();
        changes.for_each(|change| rows.active.set(change));
    }

    pub(super) fn freeze(&self) -> Arc<RowChanges> {
        let mut rows = self.0.write();
        rows.freezes += 1;
        rows.frozen = Arc::new(std::mem::take(&mut rows.active));
        rows.frozen.clone()
    }

    pub(super) fn drop_frozen(&self) {
        let _freed_after_the_lock = std::mem::take(&mut self.0.write().frozen);
    }
}

/// The first rows of both, in order; `recent` wins. Reads no more of `rest` than needed.
fn first_of(
    recent: RowMap,
    rest: impl Iterator<Item = Result<(Bytes, Bytes)>>,
    limit: usize,
) -> Result<Vec<(Bytes, Bytes)>> {
    let (mut recent, mut rest) = (recent.into_iter().peekable(), rest.peekable());
    let mut found = Vec::new();
    while found.len() < limit {
        let order = match (recent.peek(), rest.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (Some((new, _)), Some(Ok((old, _)))) => new.cmp(old),
            (_, Some(_)) => Ordering::Greater,
        };
        if order.is_ge() {
            let row = rest.next().transpose()?;
            found.extend(row.filter(|_| order.is_gt()));
        }
        if order.is_le() {
            found.extend(recent.next().and_then(|(key, value)| Some((key, value?))));
        }
    }
    Ok(found)
}

/// The last row of both; `recent` wins. `rest` is sorted from its end.
fn last_of(
    recent: RowMap,
    rest: impl Iterator<Item = Result<(Bytes, Bytes)>>,
) -> Result<Option<(Bytes, Bytes)>> {
    let mut rest = rest.skip_while(|row| row.as_ref().is_ok_and(|(key, _)| recent.contains_key(key)));
    let old = rest.next().transpose()?;
    let new = recent.iter().rev().find_map(|(key, value)| Some((key.clone(), value.clone()?)));
    Ok(old.max(new))
}

/// A transaction over small rows. It runs in the committer's thread and returns the callback that
/// answers its caller.
pub(super) type RowTransactionFn = Box<dyn FnOnce(&mut RowTransaction<'_>) -> OnCommit + Send>;

/// What a transaction reads and writes: the rows as the group leaves them so far, with its own
/// changes.
pub(super) struct RowTransaction<'a> {
    pub shared: &'a StoreCore,
    group: &'a RowChanges,
    convs: &'a HashMap<ConversationId, Overlay>,
    changes: Vec<RowChange>,
}

impl<'a> RowTransaction<'a> {
    pub(super) fn new(
        shared: &'a StoreCore,
        group: &'a RowChanges,
        convs: &'a HashMap<ConversationId, Overlay>,
    ) -> RowTransaction<'a> {
        RowTransaction { shared, group, convs, changes: Vec::new() }
    }

    /// A conversation as the group leaves it so far.
    pub(super) fn conv(&self, id: &ConversationId) -> Result<Option<Arc<ConversationState>>> {
        match self.convs.get(id) {
            Some(overlay) => Ok(Some(overlay.dirty.conv.clone())),
            None => self.shared.memtable.conv(&self.shared.engine, id),
        }
    }

    /// The last row in a range of keys.
    pub(super) fn last(&self, space: RowSpace, keys: &Range<Vec<u8>>) -> Result<Option<(Bytes, Bytes)>> {
        let recent = self.recent(space, keys);
        last_of(recent, self.shared.engine.rows_between(space.space(), keys.clone()).rev())
    }

    /// The rows of a range in memory, with the changes of the group and of this transaction. The
    /// engine must be read after it: rows that leave memory in between are already there. No freeze
    /// can come in between, because the committer's thread does it.
    fn recent(&self, space: RowSpace, keys: &Range<Vec<u8>>) -> RowMap {
        let (mut recent, _) = self.shared.rows.recent(space, keys);
        self.group.overlay(space, keys, &mut recent);
        let own = self.changes.iter().filter(|change| change.space == space);
        let own = own.filter(|change| *keys.start <= *change.key && *change.key < *keys.end);
        recent.extend(own.map(|change| (change.key.clone(), change.value.clone())));
        recent
    }

    /// The value that this group gives a row, if it changes the row.
    pub(super) fn touched(&self, space: RowSpace, key: &[u8]) -> Option<&Option<Bytes>> {
        let own = self.changes.iter().rev().find(|change| change.space == space && *change.key == *key);
        own.map(|change| &change.value).or_else(|| self.group.get(space, key))
    }

    pub(super) fn get(&self, space: RowSpace, key: &[u8]) -> Result<Option<Bytes>> {
        match self.touched(space, key) {
            Some(value) => Ok(value.clone()),
            None => self.shared.rows.get(&self.shared.engine, space, key),
        }
    }

    /// The rows whose keys begin with a prefix, in order.
    pub(super) fn under(&self, space: RowSpace, prefix: &[u8]) -> Result<Vec<(Bytes, Bytes)>> {
        let keys = prefix_range(prefix);
        let recent = self.recent(space, &keys);
        first_of(recent, self.shared.engine.rows_between(space.space(), keys), usize::MAX)
    }

    pub(super) fn put(&mut self, space: RowSpace, key: impl Into<Bytes>, value: Vec<u8>) {
        self.changes.push(RowChange { space, key: key.into(), value: Some(value.into()) });
    }

    pub(super) fn remove(&mut self, space: RowSpace, key: impl Into<Bytes>) {
        self.changes.push(RowChange { space, key: key.into(), value: None });
    }

    /// Removes a row if it exists.
    pub(super) fn forget(&mut self, space: RowSpace, key: Vec<u8>) -> Result<()> {
        if self.get(space, &key)?.is_some() {
            self.remove(space, key);
        }
        Ok(())
    }

    pub(super) fn forget_under(&mut self, space: RowSpace, prefix: &[u8]) -> Result<()> {
        for (key, _) in self.under(space, prefix)? {
            self.remove(space, key);
        }
        Ok(())
    }

    /// The changes to write.
    pub(super) fn into_changes(self) -> Vec<RowChange> {
        self.changes
    }
}

impl Embedded {
    /// Runs a transaction in the committer's thread and waits until its changes are durable. A
    /// transaction that fails changes nothing.
    pub(super) async fn transact<T: Send + 'static>(
        &self,
        decide: impl FnOnce(&mut RowTransaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.ask(|reply| {
            WriteOp::Transaction(Box::new(move |tx| {
                let done = decide(tx);
                if done.is_err() {
                    tx.changes.clear();
                }
                Box::new(move |outcome: Result<()>| drop(reply.send(outcome.and(done))))
            }))
        })
        .await
    }
}

/// Partition key user, sort key anything. No id contains a zero byte.
pub(super) fn row_key(user: &str, rest: &str) -> Vec<u8> {
    let mut key = user_prefix(user);
    key.extend_from_slice(rest.as_bytes());
    key
}

pub(super) fn user_prefix(user: &str) -> Vec<u8> {
    let mut prefix = Vec::with_capacity(user.len() + 1 + 64);
    prefix.extend_from_slice(user.as_bytes());
    prefix.push(0);
    prefix
}

/// The keys that begin with a prefix. Prefixes end with the zero byte behind an id.
fn prefix_range(prefix: &[u8]) -> Range<Vec<u8>> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    prefix.to_vec()..end
}

/// The two parts of such a key.
pub(super) fn key_parts(key: &[u8]) -> Result<(&str, &str), Malformed> {
    let text = std::str::from_utf8(key).map_err(|_| Malformed("a key is not text"))?;
    text.split_once('\0').ok_or(Malformed("a key lacks its second part"))
}

#[cfg(test)]
pub(super) mod tests;
