//! The engine (fjall, an LSM tree) behind the log. Only checkpoints write to it, as sorted runs
//! that bypass its journal: the log is the journal.

use std::{
    ops::{Bound, Range},
    path::Path,
    sync::Arc,
};

use bluetick_protocol::{ConversationId, MessageId, Seq, UserId};
use fjall::{
    Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot, compaction::Leveled,
};

use super::{
    bytes::{ByteReader, FORMAT, check_format, put_u64},
    conversation::ConversationState,
    rows::{Bytes, RowMap},
    sent_ids::SentIds,
    user_row::UserRow,
};
use crate::{Result, StoreError};

/// A key and its new value, or `None` for a tombstone.
pub(super) type EngineChange = (Vec<u8>, Option<Vec<u8>>);

/// The keyspaces, by their names on disk. The comment of `mod.rs` describes each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    Messages,
    Conversations,
    Members,
    PendingDeliveries,
    Users,
    Devices,
    PushTokens,
    PushOutbox,
    Mutes,
    ColdRuns,
    Attachments,
    AttachmentClaims,
    UnclaimedAttachments,
    OwnedAttachments,
    UploadUsage,
    NotBefore,
    Meta,
}

impl Space {
    pub(super) const ALL: [Space; 17] = [
        Space::Messages,
        Space::Conversations,
        Space::Members,
        Space::PendingDeliveries,
        Space::Users,
        Space::Devices,
        Space::PushTokens,
        Space::PushOutbox,
        Space::Mutes,
        Space::ColdRuns,
        Space::Attachments,
        Space::AttachmentClaims,
        Space::UnclaimedAttachments,
        Space::OwnedAttachments,
        Space::UploadUsage,
        Space::NotBefore,
        Space::Meta,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Space::Messages => "messages",
            Space::Conversations => "conversations",
            Space::Members => "members",
            Space::PendingDeliveries => "pending_deliveries",
            Space::Users => "users",
            Space::Devices => "devices",
            Space::PushTokens => "push_tokens",
            Space::PushOutbox => "push_outbox",
            Space::Mutes => "mutes",
            Space::ColdRuns => "cold_runs",
            Space::Attachments => "attachments",
            Space::AttachmentClaims => "attachment_claims",
            Space::UnclaimedAttachments => "unclaimed_attachments",
            Space::OwnedAttachments => "owned_attachments",
            Space::UploadUsage => "upload_usage",
            Space::NotBefore => "not_before",
            Space::Meta => "meta",
        }
    }
}

/// How far the engine has come, written at the end of each checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CheckpointMeta {
    /// Every record up to this one is in the engine.
    pub lsn: u64,
    pub last_message_id: MessageId,
    /// The seed of all hashes, drawn once, so that nobody outside can construct a collision.
    pub seed: u64,
}

pub(super) struct Engine {
    db: Database,
    spaces: [Keyspace; Space::ALL.len()],
    pub(super) sent_ids: SentIds,
}

/// Sorted runs of messages in level 0 before a compaction.
const MESSAGE_COMPACTION_RUNS: u8 = 8;
const META_KEY: &[u8] = b"checkpoint";

pub(super) fn broken(e: fjall::Error) -> StoreError {
    StoreError::Corrupt(format!("the engine failed: {e}"))
}

/// Partition key user, sort key conversation. No id contains a zero byte.
pub(super) fn user_key(user: &str, id: &ConversationId) -> Vec<u8> {
    let mut key = Vec::with_capacity(user.len() + 1 + id.as_str().len());
    key.extend_from_slice(user.as_bytes());
    key.push(0);
    key.extend_from_slice(id.as_str().as_bytes());
    key
}

impl Engine {
    pub(super) fn open(dir: &Path, cache_bytes: u64, window_ms: u64) -> Result<Engine> {
        let db = Database::builder(dir)
            .cache_size(cache_bytes)
            .worker_threads(1)
            .max_journaling_size(64 * 1024 * 1024)
            .open()
            .map_err(|e| StoreError::Unusable(format!("cannot open the engine in {}: {e}", dir.display())))?;
        let mut spaces = Vec::with_capacity(Space::ALL.len());
        for space in Space::ALL {
            spaces.push(db.keyspace(space.name(), || options(space)).map_err(broken)?);
        }
        let spaces = spaces.try_into().map_err(|_| StoreError::Corrupt("keyspaces are missing".into()))?;
        let sent_ids = SentIds::open(db.clone(), window_ms)?;
        Ok(Engine { db, spaces, sent_ids })
    }

    pub(super) fn space(&self, space: Space) -> &Keyspace {
        &self.spaces[space as usize]
    }

    pub(super) fn meta(&self) -> Result<CheckpointMeta> {
        let Some(bytes) = self.space(Space::Meta).get(META_KEY).map_err(broken)? else {
            return Ok(CheckpointMeta::default());
        };
        let r = &mut ByteReader(&bytes);
        check_format(r)?;
        Ok(CheckpointMeta { lsn: r.u64()?, last_message_id: MessageId(r.u64()?), seed: r.u64()? })
    }

    pub(super) fn put_meta(&self, meta: CheckpointMeta) -> Result<()> {
        let mut value = vec![FORMAT];
        put_u64(&mut value, meta.lsn);
        put_u64(&mut value, meta.last_message_id.0);
        put_u64(&mut value, meta.seed);
        self.ingest(Space::Meta, vec![(META_KEY.to_vec(), Some(value))])
    }

    pub(super) fn conv(&self, id: &ConversationId) -> Result<Option<ConversationState>> {
        match self.space(Space::Conversations).get(id.as_str()).map_err(broken)? {
            None => Ok(None),
            Some(bytes) => Ok(Some(ConversationState::decode(id.clone(), &bytes)?)),
        }
    }

    pub(super) fn all_convs(&self) -> impl Iterator<Item = Result<ConversationState>> {
        self.convs_from(Bound::Unbounded)
    }

    /// Conversations in the order of their ids.
    pub(super) fn convs_from(
        &self,
        start: Bound<&str>,
    ) -> impl Iterator<Item = Result<ConversationState>> + use<> {
        self.space(Space::Conversations).range::<&str, _>((start, Bound::Unbounded)).map(|item| {
            let (key, value) = item.into_inner().map_err(broken)?;
            Ok(ConversationState::decode(conversation_id(&key)?, &value)?)
        })
    }

    /// The first conversations under a user's key in `members` or `pending_deliveries`.
    pub(super) fn conversations_under(
        &self,
        space: Space,
        user: &UserId,
        most: usize,
    ) -> Result<Vec<ConversationId>> {
        let mut prefix = user.as_str().as_bytes().to_vec();
        prefix.push(0);
        let mut ids = Vec::new();
        for item in self.space(space).prefix(&prefix).take(most) {
            let key = item.key().map_err(broken)?;
            ids.push(conversation_id(&key[prefix.len()..])?);
        }
        Ok(ids)
    }

    /// A user's conversations after one of them, at most `most`.
    pub(super) fn members_after(
        &self,
        user: &UserId,
        after: &ConversationId,
        most: usize,
    ) -> Result<Vec<ConversationId>> {
        let mut from = user.as_str().as_bytes().to_vec();
        from.push(0);
        // Ids are printable, so no key of the user reaches this end.
        let mut to = from.clone();
        if let Some(last) = to.last_mut() {
            *last = 1;
        }
        let prefix = from.len();
        from.extend_from_slice(after.as_str().as_bytes());
        let mut ids = Vec::new();
        let behind = (std::ops::Bound::Excluded(from), std::ops::Bound::Excluded(to));
        for item in self.space(Space::Members).range(behind).take(most) {
            let key = item.key().map_err(broken)?;
            ids.push(conversation_id(&key[prefix..])?);
        }
        Ok(ids)
    }

    pub(super) fn user(&self, user: &UserId) -> Result<Option<UserRow>> {
        match self.space(Space::Users).get(user.as_str()).map_err(broken)? {
            None => Ok(None),
            Some(bytes) => Ok(Some(UserRow::decode(&bytes)?)),
        }
    }

    /// The value under a key.
    pub(super) fn row(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.space(space).get(key).map_err(broken)?.map(|value| (*value).into()))
    }

    /// The rows whose keys begin with a prefix, in order.
    pub(super) fn rows_under(
        &self,
        space: Space,
        prefix: &[u8],
    ) -> impl Iterator<Item = Result<(Bytes, Bytes)>> + use<> {
        self.space(space).prefix(prefix).map(whole_row)
    }

    /// The rows in a range of keys, in order.
    pub(super) fn rows_between(
        &self,
        space: Space,
        keys: Range<Vec<u8>>,
    ) -> impl DoubleEndedIterator<Item = Result<(Bytes, Bytes)>> + use<> {
        self.space(space).range(keys).map(whole_row)
    }

    /// The rows from a key on, in order.
    pub(super) fn rows_from(
        &self,
        space: Space,
        start: Bound<&str>,
    ) -> impl Iterator<Item = Result<(Bytes, Bytes)>> + use<> {
        self.space(space).range::<&str, _>((start, Bound::Unbounded)).map(whole_row)
    }

    /// The seq that a `client_msg_id` got within the idempotency window.
    pub(super) fn sent_id(&self, hash: u128, now_ms: u64) -> Result<Option<Seq>> {
        Ok(self.sent_ids.record(hash, now_ms)?.map(|(seq, _)| seq))
    }

    /// Writes sorted changes as one sorted run. It is durable when this returns.
    pub(super) fn ingest(&self, space: Space, changes: Vec<EngineChange>) -> Result<()> {
        ingest_into(self.space(space), changes)
    }

    /// Whether the engine's background work has stopped after an error, such as a full disk during
    /// a compaction. It then compacts nothing and creates no keyspace until it is reopened.
    pub(super) fn has_given_up(&self) -> bool {
        matches!(self.db.persist(PersistMode::Buffer), Err(fjall::Error::Poisoned))
    }

    /// Every row for a backup. It includes the cold runs recorded since the last checkpoint: the
    /// hot copies of their messages may already be removed from the engine.
    pub(super) fn snapshot(&self, recent_runs: RowMap) -> EngineSnapshot {
        let mut spaces: Vec<(String, Keyspace)> =
            Space::ALL.iter().map(|s| (s.name().to_owned(), self.space(*s).clone())).collect();
        spaces.extend(self.sent_ids.spaces());
        EngineSnapshot { snapshot: self.db.snapshot(), spaces, recent_runs }
    }

    /// Deletes a keyspace, to make the directory of an older version.
    #[cfg(test)]
    pub(super) fn forget_space(&self, space: Space) {
        self.db.delete_keyspace(self.space(space).clone()).unwrap();
    }

    /// Fills a keyspace of a new engine with sorted rows, for a restore.
    pub(super) fn fill(&self, name: &str, changes: Vec<EngineChange>) -> Result<()> {
        if let Some(space) = Space::ALL.into_iter().find(|s| s.name() == name) {
            return self.ingest(space, changes);
        }
        self.sent_ids.fill(name, changes)
    }
}

pub(super) struct EngineSnapshot {
    snapshot: Snapshot,
    spaces: Vec<(String, Keyspace)>,
    recent_runs: RowMap,
}

impl EngineSnapshot {
    pub(super) fn for_each(&self, mut row: impl FnMut(&str, &[u8], &[u8]) -> Result<()>) -> Result<()> {
        let nothing = RowMap::new();
        for (name, space) in &self.spaces {
            let recent = if *name == Space::ColdRuns.name() { &self.recent_runs } else { &nothing };
            let mut recent = recent.iter().peekable();
            for item in self.snapshot.iter(space) {
                let (key, value) = item.into_inner().map_err(broken)?;
                while let Some((new, value)) = recent.next_if(|(new, _)| ***new < *key) {
                    value.iter().try_for_each(|value| row(name, new, value))?;
                }
                match recent.next_if(|(new, _)| ***new == *key) {
                    Some((_, value)) => value.iter().try_for_each(|value| row(name, &key, value))?,
                    None => row(name, &key, &value)?,
                }
            }
            for (new, value) in recent {
                value.iter().try_for_each(|value| row(name, new, value))?;
            }
        }
        Ok(())
    }
}

pub(super) fn ingest_into(space: &Keyspace, changes: Vec<EngineChange>) -> Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let mut ingestion = space.start_ingestion().map_err(broken)?;
    for (key, value) in changes {
        match value {
            Some(value) => ingestion.write(key, value),
            None => ingestion.write_tombstone(key),
        }
        .map_err(broken)?;
    }
    ingestion.finish().map_err(broken)
}

fn options(space: Space) -> KeyspaceCreateOptions {
    let options = KeyspaceCreateOptions::default();
    match space {
        // Messages are compressed below the first levels: compressing at every checkpoint would
        // cost a send more than the log does. More runs than usual are merged at a time, because
        // each merge rewrites a good part of what is there.
        Space::Messages => options
            .data_block_size_policy(fjall::config::BlockSizePolicy::all(8 * 1024))
            .compaction_strategy(Arc::new(Leveled::default().with_l0_threshold(MESSAGE_COMPACTION_RUNS))),
        _ => options,
    }
}

fn whole_row(item: fjall::Guard) -> Result<(Bytes, Bytes)> {
    let (key, value) = item.into_inner().map_err(broken)?;
    Ok(((*key).into(), (*value).into()))
}

pub(super) fn conversation_id(bytes: &[u8]) -> Result<ConversationId> {
    std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| ConversationId::new(text).ok())
        .ok_or_else(|| StoreError::Corrupt("a key holds no conversation id".into()))
}
