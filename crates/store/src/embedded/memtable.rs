//! The memtable: rows and messages that are in the log and not yet in the engine, and a bounded
//! cache of rows that are.
//!
//! There are two: the committer publishes to the *active* one; a checkpoint turns it into the
//! *frozen* one, flushes that to the engine and drops it. A reader checks active, frozen, cache
//! (`clean`) and engine, in this order. Only the committer publishes, and only what is durable
//! (R15).

mod inbox;
mod reads;

use std::{collections::BTreeSet, hash::Hash, sync::Arc};

use bluetick_protocol::{ConversationId, Side, UserId};
use foldhash::{HashMap, HashMapExt};
use parking_lot::Mutex;
use quick_cache::UnitWeighter;
use xxhash_rust::xxh3::xxh3_64;

pub(super) use self::inbox::Candidates;
use self::inbox::InboxOrder;
use super::{conversation::ConversationState, engine::Engine, entry::MessageEntry, user_row::UserRow};
use crate::Result;

const SHARDS: usize = 64;

/// Uses the hasher of the other maps: every send looks rows up here.
type Cache<K, V> = quick_cache::unsync::Cache<K, V, UnitWeighter, foldhash::fast::RandomState>;

fn cache<K: Eq + Hash, V>(items: usize) -> Cache<K, V> {
    Cache::with(items, items as u64, UnitWeighter, Default::default(), Default::default())
}

/// A conversation with changes that the engine does not have yet: of one group while the committer
/// works on it, of every group since the last checkpoint in the memtable.
#[derive(Debug, Clone)]
pub(super) struct DirtyConversation {
    pub conv: Arc<ConversationState>,
    /// The new messages, without gaps in their seqs.
    pub entries: Vec<MessageEntry>,
    /// A member's pending row changed: the checkpoint writes `pending_deliveries`.
    pub pending_touched: bool,
    /// A member's row appeared or went: the checkpoint writes `members`.
    pub members_touched: bool,
    /// A member was erased: the checkpoint voids what they wrote before.
    pub erased: bool,
}

impl DirtyConversation {
    pub(super) fn unchanged(conv: Arc<ConversationState>) -> DirtyConversation {
        DirtyConversation {
            conv,
            entries: Vec::new(),
            pending_touched: false,
            members_touched: false,
            erased: false,
        }
    }

    /// Adds the changes of a later group.
    fn merge(&mut self, later: DirtyConversation) {
        let DirtyConversation { conv, mut entries, pending_touched, members_touched, erased } = later;
        self.conv = conv;
        self.entries.append(&mut entries);
        self.pending_touched |= pending_touched;
        self.members_touched |= members_touched;
        self.erased |= erased;
    }
}

#[derive(Debug, Default, Clone)]
pub(super) struct DirtyUser {
    pub row: Option<Arc<UserRow>>,
    /// The user's conversations that changed.
    pub convs: Vec<ConversationId>,
}

struct ConvShard {
    active: HashMap<ConversationId, DirtyConversation>,
    frozen: Arc<HashMap<ConversationId, DirtyConversation>>,
    clean: Cache<ConversationId, Arc<ConversationState>>,
    /// Counts dropped memtables: a row read from the engine before a drop may be stale and must not
    /// be cached.
    drop_count: u64,
}

struct UserShard {
    active: HashMap<UserId, DirtyUser>,
    frozen: Arc<HashMap<UserId, DirtyUser>>,
    clean: Cache<UserId, Arc<UserRow>>,
    inboxes: Cache<UserId, InboxOrder>,
    drop_count: u64,
}

#[derive(Default)]
pub(super) struct FrozenMemtable {
    pub convs: Vec<Arc<HashMap<ConversationId, DirtyConversation>>>,
    pub users: Vec<Arc<HashMap<UserId, DirtyUser>>>,
}

pub(super) struct Memtable {
    convs: Vec<Mutex<ConvShard>>,
    users: Vec<Mutex<UserShard>>,
}

fn shard_of(text: &str) -> usize {
    xxh3_64(text.as_bytes()) as usize % SHARDS
}

impl Memtable {
    /// `rows` is about how many clean conversations are cached.
    pub(super) fn new(rows: usize) -> Memtable {
        let each = (rows / SHARDS).max(16);
        let conv = || ConvShard {
            active: HashMap::new(),
            frozen: Arc::default(),
            clean: cache(each),
            drop_count: 0,
        };
        let user = || UserShard {
            active: HashMap::new(),
            frozen: Arc::default(),
            clean: cache(each),
            inboxes: cache(each / 4 + 4),
            drop_count: 0,
        };
        Memtable {
            convs: (0..SHARDS).map(|_| Mutex::new(conv())).collect(),
            users: (0..SHARDS).map(|_| Mutex::new(user())).collect(),
        }
    }

    fn conv_shard(&self, id: &ConversationId) -> &Mutex<ConvShard> {
        &self.convs[shard_of(id.as_str())]
    }

    fn user_shard(&self, user: &str) -> &Mutex<UserShard> {
        &self.users[shard_of(user)]
    }

    /// A conversation's state as it is durable now.
    pub(super) fn conv(
        &self,
        engine: &Engine,
        id: &ConversationId,
    ) -> Result<Option<Arc<ConversationState>>> {
        let drop_count = {
            let shard = self.conv_shard(id).lock();
            let dirty = shard.active.get(id).or_else(|| shard.frozen.get(id));
            if let Some(conv) = dirty.map(|d| &d.conv).or_else(|| shard.clean.get(id)) {
                return Ok(Some(conv.clone()));
            }
            shard.drop_count
        };
        let Some(conv) = engine.conv(id)?.map(Arc::new) else {
            return Ok(None);
        };
        let mut shard = self.conv_shard(id).lock();
        if shard.drop_count == drop_count {
            shard.clean.insert(id.clone(), conv.clone());
        }
        Ok(Some(conv))
    }

    pub(super) fn user(&self, engine: &Engine, user: &UserId) -> Result<Arc<UserRow>> {
        let drop_count = {
            let shard = self.user_shard(user.as_str()).lock();
            for dirty in [shard.active.get(user), shard.frozen.get(user)].into_iter().flatten() {
                if let Some(row) = &dirty.row {
                    return Ok(row.clone());
                }
            }
            if let Some(row) = shard.clean.get(user) {
                return Ok(row.clone());
            }
            shard.drop_count
        };
        let row = Arc::new(engine.user(user)?.unwrap_or_default());
        let mut shard = self.user_shard(user.as_str()).lock();
        if shard.drop_count == drop_count {
            shard.clean.insert(user.clone(), row.clone());
        }
        Ok(row)
    }

    /// The conversations with changes that the engine does not have yet.
    pub(super) fn dirty_ids(&self) -> BTreeSet<ConversationId> {
        let mut ids = BTreeSet::new();
        for shard in &self.convs {
            let shard = shard.lock();
            ids.extend(shard.active.keys().chain(shard.frozen.keys()).cloned());
        }
        ids
    }

    /// Makes durable changes visible.
    pub(super) fn publish(&self, group: DirtyConversation) {
        let (conv, erased) = (group.conv.clone(), group.erased);
        let first_touch = {
            let mut shard = self.conv_shard(&conv.id).lock();
            match shard.active.get_mut(&conv.id) {
                Some(dirty) => {
                    dirty.merge(group);
                    false
                }
                None => {
                    shard.active.insert(conv.id.clone(), group);
                    true
                }
            }
        };
        for side in Side::BOTH {
            let user = conv.id.member_str(side);
            let mut shard = self.user_shard(user).lock();
            if first_touch {
                match shard.active.get_mut(user) {
                    Some(dirty) => dirty.convs.push(conv.id.clone()),
                    None => {
                        let dirty = DirtyUser { row: None, convs: vec![conv.id.clone()] };
                        shard.active.insert(conv.id.member(side), dirty);
                    }
                }
            }
            if shard.inboxes.is_empty() {
                continue;
            }
            if erased {
                shard.inboxes.remove(user);
            } else if let Some(last) = &conv.member(side).last
                && let Some(mut inbox) = shard.inboxes.get_mut(user)
            {
                inbox.set(&conv.id, last.ts);
            }
        }
    }

    pub(super) fn publish_user(&self, user: &UserId, row: UserRow) {
        let mut shard = self.user_shard(user.as_str()).lock();
        shard.active.entry(user.clone()).or_default().row = Some(Arc::new(row));
    }

    /// Freezes the active memtable. Called between two groups, so that it ends at a record of the
    /// log.
    pub(super) fn freeze(&self) -> FrozenMemtable {
        let mut frozen = FrozenMemtable::default();
        for shard in &self.convs {
            let mut shard = shard.lock();
            shard.frozen = Arc::new(std::mem::take(&mut shard.active));
            frozen.convs.push(shard.frozen.clone());
        }
        for shard in &self.users {
            let mut shard = shard.lock();
            shard.frozen = Arc::new(std::mem::take(&mut shard.active));
            frozen.users.push(shard.frozen.clone());
        }
        frozen
    }

    /// Drops the frozen memtable, once the engine has it. Called by the checkpoint thread: freeing
    /// so many messages takes a while, and no send should wait for it.
    pub(super) fn drop_frozen(&self) {
        // Users first: whoever builds an inbox and finds a conversation among the user's dirty ones
        // must still find its state in memory.
        for shard in &self.users {
            let _freed_after_the_lock = {
                let mut shard = shard.lock();
                let frozen = std::mem::take(&mut shard.frozen);
                shard.drop_count += 1;
                for (user, dirty) in frozen.iter() {
                    if let Some(row) = &dirty.row {
                        shard.clean.insert(user.clone(), row.clone());
                    }
                }
                frozen
            };
        }
        for shard in &self.convs {
            let frozen = shard.lock().frozen.clone();
            let clean: Vec<Arc<ConversationState>> =
                frozen.values().map(|dirty| dirty.conv.with_previews()).collect();
            let _freed_after_the_lock = {
                let mut shard = shard.lock();
                shard.drop_count += 1;
                for conv in clean {
                    shard.clean.insert(conv.id.clone(), conv);
                }
                std::mem::take(&mut shard.frozen)
            };
        }
    }
}
