//! What is served from memory: the rows and messages that the log holds and the engine does not yet have, and a
//! bounded number of rows that it has.
//!
//! Like a memtable in two generations: *active* takes what the committer publishes; a checkpoint turns it into
//! *frozen*, writes that to the engine, and drops it. A reader looks at active, frozen, clean and engine, in this
//! order. Only the committer changes any of it, and only with what is durable (R15).

use std::{collections::BTreeSet, hash::Hash, ops::Range, sync::Arc};

use bluetick_protocol::{ConversationId, Seq, Side, UserId};
use foldhash::{HashMap, HashMapExt};
use parking_lot::Mutex;
use quick_cache::UnitWeighter;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    engine::{Engine, Space},
    state::{Conv, MessageEntry, UserRow},
};
use crate::{InboxPosition, Message, PageLimit, Result};

const SHARDS: usize = 64;

/// With the hasher that the other maps have: they are asked for with every send.
type Cache<K, V> = quick_cache::unsync::Cache<K, V, UnitWeighter, foldhash::fast::RandomState>;

fn cache<K: Eq + Hash, V>(items: usize) -> Cache<K, V> {
    Cache::with(items, items as u64, UnitWeighter, Default::default(), Default::default())
}

/// A conversation that changed since the last checkpoint.
#[derive(Debug, Clone)]
pub(super) struct DirtyConversation {
    pub conv: Arc<Conv>,
    /// The messages of this generation, without gaps.
    pub entries: Vec<MessageEntry>,
    pub pending_touched: bool,
    /// `members` needs rows: the conversation, or a member's row in it, is new or gone.
    pub members_touched: bool,
    pub erased: bool,
}

#[derive(Debug, Default, Clone)]
pub(super) struct DirtyUser {
    pub row: Option<Arc<UserRow>>,
    /// The user's conversations that changed in this generation.
    pub convs: Vec<ConversationId>,
}

/// What the committer publishes of one conversation.
pub(super) struct Published {
    pub conv: Conv,
    pub entries: Vec<MessageEntry>,
    pub pending_touched: bool,
    pub members_touched: bool,
    pub erased: bool,
}

struct ConvShard {
    active: HashMap<ConversationId, DirtyConversation>,
    frozen: Arc<HashMap<ConversationId, DirtyConversation>>,
    clean: Cache<ConversationId, Arc<Conv>>,
    /// Raised when frozen rows were dropped: a row read from the engine before that may be stale.
    drops: u64,
}

struct UserShard {
    active: HashMap<UserId, DirtyUser>,
    frozen: Arc<HashMap<UserId, DirtyUser>>,
    clean: Cache<UserId, Arc<UserRow>>,
    inboxes: Cache<UserId, InboxOrder>,
    drops: u64,
}

/// A user's conversations, in order, for the caller to look at one by one, and the count of drops before they were read.
pub(super) struct Candidates {
    pub ids: BTreeSet<ConversationId>,
    drops: u64,
}

/// `inbox:{user}`: the user's conversations by time of the last message.
#[derive(Debug, Clone, Default)]
struct InboxOrder {
    order: BTreeSet<InboxPosition>,
    ts: HashMap<ConversationId, u64>,
}

impl InboxOrder {
    fn page(&self, after: Option<&InboxPosition>, at_least_ts: u64, limit: usize) -> Vec<InboxPosition> {
        let positions = match after {
            Some(after) => self.order.range(..after),
            None => self.order.range(..),
        };
        positions.rev().take_while(|p| p.last_message_ts >= at_least_ts).take(limit).cloned().collect()
    }

    fn set(&mut self, id: &ConversationId, ts: u64) {
        let old = self.ts.insert(id.clone(), ts);
        if old == Some(ts) {
            return;
        }
        if let Some(old) = old {
            self.order.remove(&InboxPosition { last_message_ts: old, conversation_id: id.clone() });
        }
        self.order.insert(InboxPosition { last_message_ts: ts, conversation_id: id.clone() });
    }
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
    /// `rows` is about how many clean conversations are kept.
    pub(super) fn new(rows: usize) -> Memtable {
        let each = (rows / SHARDS).max(16);
        let conv =
            || ConvShard { active: HashMap::new(), frozen: Arc::default(), clean: cache(each), drops: 0 };
        let user = || UserShard {
            active: HashMap::new(),
            frozen: Arc::default(),
            clean: cache(each),
            inboxes: cache(each / 4 + 4),
            drops: 0,
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

    /// A conversation's rows as they are durable now.
    pub(super) fn conv(&self, engine: &Engine, id: &ConversationId) -> Result<Option<Arc<Conv>>> {
        let drops = {
            let shard = self.conv_shard(id).lock();
            let dirty = shard.active.get(id).or_else(|| shard.frozen.get(id));
            if let Some(conv) = dirty.map(|d| &d.conv).or_else(|| shard.clean.get(id)) {
                return Ok(Some(conv.clone()));
            }
            shard.drops
        };
        let Some(conv) = engine.conv(id)?.map(Arc::new) else {
            return Ok(None);
        };
        let mut shard = self.conv_shard(id).lock();
        if shard.drops == drops {
            shard.clean.insert(id.clone(), conv.clone());
        }
        Ok(Some(conv))
    }

    /// One entry, from memory or the engine.
    pub(super) fn entry(
        &self,
        engine: &Engine,
        id: &ConversationId,
        seq: Seq,
    ) -> Result<Option<MessageEntry>> {
        {
            let shard = self.conv_shard(id).lock();
            let generations = [shard.active.get(id), shard.frozen.get(id)];
            // The newest rows say what is erased, wherever the entry is.
            if let Some(newest) = generations.into_iter().flatten().next()
                && let Some(entry) = generations.into_iter().flatten().find_map(|d| find(&d.entries, seq))
            {
                return Ok(Some(mask(&newest.conv, entry.clone())));
            }
        }
        let Some(entry) = engine.entry(id, seq)? else {
            return Ok(None);
        };
        Ok(match self.conv(engine, id)? {
            Some(conv) => Some(mask(&conv, entry)),
            None => Some(entry),
        })
    }

    /// The first seq in memory, and the entries there with seqs in a range: at most `max`, from its front or its end.
    fn recent(
        &self,
        id: &ConversationId,
        range: Range<Seq>,
        max: usize,
        from_end: bool,
    ) -> (Seq, Vec<MessageEntry>) {
        let shard = self.conv_shard(id).lock();
        let generations = [shard.frozen.get(id), shard.active.get(id)];
        let runs: Vec<&[MessageEntry]> =
            generations.into_iter().flatten().map(|d| d.entries.as_slice()).collect();
        let border = runs.iter().find_map(|run| run.first()).map_or(Seq::MAX, |e| e.message.seq);
        let within = |run: &[MessageEntry]| {
            let first = run.first().map_or(0, |e| e.message.seq);
            let place =
                |seq: Seq| usize::try_from(seq.saturating_sub(first)).unwrap_or(usize::MAX).min(run.len());
            place(range.start)..place(range.end)
        };
        let found = runs.iter().flat_map(|run| &run[within(run)]);
        let entries = match from_end {
            false => found.take(max).cloned().collect(),
            true => {
                let skip = found.clone().count().saturating_sub(max);
                found.skip(skip).cloned().collect()
            }
        };
        (border, entries)
    }

    /// Whether an entry is in the engine alone, and so is everything before it.
    pub(super) fn rests(&self, id: &ConversationId, seq: Seq) -> bool {
        seq < self.recent(id, 0..0, 0, false).0
    }

    /// The last seq that is in the engine alone, if the last of the conversation is `last_seq`.
    pub(super) fn last_at_rest(&self, id: &ConversationId, last_seq: Seq) -> Seq {
        last_seq.min(self.recent(id, 0..0, 0, false).0.saturating_sub(1))
    }

    /// Whether every entry from `seq` on is in memory, so that reading them needs no disk.
    pub(super) fn holds_from(&self, id: &ConversationId, seq: Seq) -> bool {
        let shard = self.conv_shard(id).lock();
        let first = |d: Option<&DirtyConversation>| d.and_then(|d| d.entries.first()).map(|e| e.message.seq);
        let oldest = first(shard.frozen.get(id)).or_else(|| first(shard.active.get(id)));
        let last = shard.active.get(id).or_else(|| shard.frozen.get(id)).or(None).map(|d| d.conv.last_seq);
        let last = last.or_else(|| shard.clean.get(id).map(|conv| conv.last_seq));
        oldest.is_some_and(|oldest| oldest <= seq) || last.is_some_and(|last| last < seq)
    }

    pub(super) fn read_from(
        &self,
        engine: &Engine,
        id: &ConversationId,
        from: Seq,
        limit: PageLimit,
    ) -> Result<Vec<MessageEntry>> {
        let Some(conv) = self.conv(engine, id)? else {
            return Ok(Vec::new());
        };
        if from > conv.last_seq {
            return Ok(Vec::new());
        }
        let (border, mut recent) = self.recent(id, from..Seq::MAX, limit.messages, false);
        let mut entries = match from < border {
            true => engine.entries(id, from, border, limit)?,
            false => Vec::new(),
        };
        let whole = entries.last().is_none_or(|e| e.message.seq + 1 == border);
        if whole {
            let mut bytes: usize = entries.iter().map(|e| e.message.content_bytes()).sum();
            let room = limit.messages.saturating_sub(entries.len());
            let fitting = recent.iter().take(room).take_while(|e| {
                bytes += e.message.content_bytes();
                bytes <= limit.bytes
            });
            // A page holds at least one message, however long it is.
            let fitting = fitting.count().max(room.min(usize::from(entries.is_empty())));
            recent.truncate(fitting);
            match entries.is_empty() {
                true => entries = recent,
                false => entries.append(&mut recent),
            }
        }
        Ok(entries.into_iter().map(|e| mask(&conv, e)).collect())
    }

    /// The engine is not looked at below `floor`.
    pub(super) fn read_before(
        &self,
        engine: &Engine,
        id: &ConversationId,
        floor: Seq,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<MessageEntry>> {
        let Some(conv) = self.conv(engine, id)? else {
            return Ok(Vec::new());
        };
        let (border, recent) = self.recent(id, 0..before, limit.messages, true);
        let (mut entries, mut bytes) = (Vec::new(), 0usize);
        for entry in recent.into_iter().rev() {
            bytes += entry.message.content_bytes();
            if entries.len() >= limit.messages || (bytes > limit.bytes && !entries.is_empty()) {
                entries.reverse();
                return Ok(entries.into_iter().map(|e| mask(&conv, e)).collect());
            }
            entries.push(entry);
        }
        entries.reverse();
        let room = limit.messages.saturating_sub(entries.len());
        if room > 0 {
            let room = PageLimit { messages: room, bytes: limit.bytes };
            let mut older = engine.entries_before(id, floor, before.min(border), room)?;
            // The page as a whole keeps to the limit: the oldest go first.
            let fits = older.iter().rev().take_while(|e| {
                bytes += e.message.content_bytes();
                bytes <= limit.bytes
            });
            let fits = fits.count().max(usize::from(entries.is_empty() && !older.is_empty()));
            older.drain(..older.len() - fits);
            older.append(&mut entries);
            entries = older;
        }
        Ok(entries.into_iter().map(|e| mask(&conv, e)).collect())
    }

    pub(super) fn user(&self, engine: &Engine, user: &UserId) -> Result<Arc<UserRow>> {
        let drops = {
            let shard = self.user_shard(user.as_str()).lock();
            for dirty in [shard.active.get(user), shard.frozen.get(user)].into_iter().flatten() {
                if let Some(row) = &dirty.row {
                    return Ok(row.clone());
                }
            }
            if let Some(row) = shard.clean.get(user) {
                return Ok(row.clone());
            }
            shard.drops
        };
        let row = Arc::new(engine.user(user)?.unwrap_or_default());
        let mut shard = self.user_shard(user.as_str()).lock();
        if shard.drops == drops {
            shard.clean.insert(user.clone(), row.clone());
        }
        Ok(row)
    }

    /// A user's conversations by `members` or `pending_deliveries`, and all that changed lately.
    pub(super) fn candidates(&self, engine: &Engine, space: Space, user: &UserId) -> Result<Candidates> {
        self.first_candidates(engine, space, user, usize::MAX)
    }

    /// The same, if they are no more than so many and the rows of all of them are in memory.
    pub(super) fn few_candidates(
        &self,
        engine: &Engine,
        space: Space,
        user: &UserId,
        most: usize,
    ) -> Result<Option<Candidates>> {
        let found = self.first_candidates(engine, space, user, most + 1)?;
        let few = found.ids.len() <= most && found.ids.iter().all(|id| self.is_in_memory(id));
        Ok(few.then_some(found))
    }

    /// Of those that the engine has, the first ones.
    fn first_candidates(
        &self,
        engine: &Engine,
        space: Space,
        user: &UserId,
        most: usize,
    ) -> Result<Candidates> {
        let mut found = {
            let shard = self.user_shard(user.as_str()).lock();
            let dirty = [shard.active.get(user), shard.frozen.get(user)];
            let ids = dirty.into_iter().flatten().flat_map(|dirty| dirty.convs.iter().cloned()).collect();
            Candidates { ids, drops: shard.drops }
        };
        if found.ids.len() < most {
            // The engine is read last: what leaves memory in between is already there.
            found.ids.extend(engine.conversations_under(space, user, most)?);
        }
        Ok(found)
    }

    /// At most so many of a user's conversations behind one of them, in order.
    pub(super) fn candidates_after(
        &self,
        engine: &Engine,
        user: &UserId,
        after: Option<&ConversationId>,
        most: usize,
    ) -> Result<BTreeSet<ConversationId>> {
        let mut ids: BTreeSet<ConversationId> = {
            let shard = self.user_shard(user.as_str()).lock();
            let dirty = [shard.active.get(user), shard.frozen.get(user)].into_iter().flatten();
            let ids = dirty.flat_map(|dirty| &dirty.convs);
            ids.filter(|id| after.is_none_or(|after| *id > after)).cloned().collect()
        };
        // The engine is read last: what leaves memory in between is already there.
        ids.extend(match after {
            Some(after) => engine.members_after(user, after, most)?,
            None => engine.conversations_under(Space::Members, user, most)?,
        });
        while ids.len() > most {
            ids.pop_last();
        }
        Ok(ids)
    }

    /// All conversations of a user whose inbox is in memory, in order, if they are no more than so many and their rows are
    /// in memory too.
    pub(super) fn few_in_inbox(&self, user: &UserId, most: usize) -> Option<Vec<ConversationId>> {
        let mut ids: Vec<ConversationId> = {
            let shard = self.user_shard(user.as_str()).lock();
            let inbox = shard.inboxes.get(user).filter(|inbox| inbox.ts.len() <= most)?;
            inbox.ts.keys().cloned().collect()
        };
        if !ids.iter().all(|id| self.is_in_memory(id)) {
            return None;
        }
        ids.sort();
        Some(ids)
    }

    fn is_in_memory(&self, id: &ConversationId) -> bool {
        let shard = self.conv_shard(id).lock();
        shard.active.contains_key(id) || shard.frozen.contains_key(id) || shard.clean.peek(id).is_some()
    }

    /// Positions of a user's inbox, newest first; made of the candidates that are given, if there is none yet.
    pub(super) fn inbox(
        &self,
        engine: &Engine,
        user: &UserId,
        mut candidates: Option<Candidates>,
        after: Option<&InboxPosition>,
        at_least_ts: u64,
        limit: usize,
    ) -> Result<Vec<InboxPosition>> {
        if let Some(inbox) = self.user_shard(user.as_str()).lock().inboxes.get(user) {
            return Ok(inbox.page(after, at_least_ts, limit));
        }
        loop {
            let Candidates { ids, drops } = match candidates.take() {
                Some(candidates) => candidates,
                None => self.candidates(engine, Space::Members, user)?,
            };
            let mut inbox = InboxOrder::default();
            for id in ids {
                if let Some(conv) = self.conv(engine, &id)? {
                    place(&mut inbox, user, &conv);
                }
            }
            let mut shard = self.user_shard(user.as_str()).lock();
            if shard.drops != drops {
                continue;
            }
            // What changed while the rows were read is still among the dirty ones: look at those once more, now
            // that nothing can be published past this lock.
            for dirty in [shard.active.get(user), shard.frozen.get(user)].into_iter().flatten() {
                for id in &dirty.convs {
                    if let Some(conv) = self.dirty_conv(id) {
                        place(&mut inbox, user, &conv);
                    }
                }
            }
            let page = inbox.page(after, at_least_ts, limit);
            shard.inboxes.insert(user.clone(), inbox);
            return Ok(page);
        }
    }

    fn dirty_conv(&self, id: &ConversationId) -> Option<Arc<Conv>> {
        let shard = self.conv_shard(id).lock();
        shard.active.get(id).or_else(|| shard.frozen.get(id)).map(|dirty| dirty.conv.clone())
    }

    /// The conversations that are not, or not wholly, in the engine yet.
    pub(super) fn dirty_ids(&self) -> BTreeSet<ConversationId> {
        let mut ids = BTreeSet::new();
        for shard in &self.convs {
            let shard = shard.lock();
            ids.extend(shard.active.keys().chain(shard.frozen.keys()).cloned());
        }
        ids
    }

    /// Whether the inbox can be read without loading it.
    pub(super) fn has_inbox(&self, user: &UserId) -> bool {
        self.user_shard(user.as_str()).lock().inboxes.peek(user).is_some()
    }

    /// Makes durable changes visible.
    pub(super) fn publish(&self, published: Published) {
        let Published { conv, mut entries, pending_touched, members_touched, erased } = published;
        let conv = Arc::new(conv);
        let first_touch = {
            let mut shard = self.conv_shard(&conv.id).lock();
            match shard.active.get_mut(&conv.id) {
                Some(dirty) => {
                    dirty.conv = conv.clone();
                    dirty.entries.append(&mut entries);
                    dirty.pending_touched |= pending_touched;
                    dirty.members_touched |= members_touched;
                    dirty.erased |= erased;
                    false
                }
                None => {
                    let dirty = DirtyConversation {
                        conv: conv.clone(),
                        entries,
                        pending_touched,
                        members_touched,
                        erased,
                    };
                    shard.active.insert(conv.id.clone(), dirty);
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

    /// Turns everything active into frozen. Between two groups of the committer, so it is a moment of the log.
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

    /// Lets go of what is frozen, once the engine has it. The checkpoint does it, and not the committer: to free so
    /// many messages takes a while, and nobody should wait for it.
    pub(super) fn drop_frozen(&self) {
        // Users first: whoever loads an inbox and finds a conversation among the user's dirty ones must still find its
        // rows in memory.
        for shard in &self.users {
            let _freed_after_the_lock = {
                let mut shard = shard.lock();
                let frozen = std::mem::take(&mut shard.frozen);
                shard.drops += 1;
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
            let clean: Vec<Arc<Conv>> = frozen.values().map(|dirty| dirty.conv.with_previews()).collect();
            let _freed_after_the_lock = {
                let mut shard = shard.lock();
                shard.drops += 1;
                for conv in clean {
                    shard.clean.insert(conv.id.clone(), conv);
                }
                std::mem::take(&mut shard.frozen)
            };
        }
    }
}

fn place(inbox: &mut InboxOrder, user: &UserId, conv: &Conv) {
    if let Some(last) = conv.id.side_of(user).and_then(|side| conv.member(side).last.as_ref()) {
        inbox.set(&conv.id, last.ts);
    }
}

fn find(entries: &[MessageEntry], seq: Seq) -> Option<&MessageEntry> {
    let first = entries.first()?.message.seq;
    entries.get(usize::try_from(seq.checked_sub(first)?).ok()?)
}

/// An erased message is void from the moment the erasure is durable, wherever its bytes still are.
pub(super) fn mask(conv: &Conv, entry: MessageEntry) -> MessageEntry {
    match is_erased(conv, &entry.message) {
        true => entry.voided(),
        false => entry,
    }
}

/// The same of a message that is not in `messages`.
pub(super) fn mask_message(conv: &Conv, message: Arc<Message>) -> Arc<Message> {
    match is_erased(conv, &message) {
        true => Arc::new(message.voided()),
        false => message,
    }
}

pub(super) fn is_erased(conv: &Conv, message: &Message) -> bool {
    !message.void && message.seq <= conv.member(message.from).erased
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        EmbeddedConfig, ManualClock, Messages,
        embedded::{Embedded, committer::WriteOp, rows::tests::send},
    };

    /// A conversation that began and left memory after the candidates were read is in neither of them.
    #[tokio::test]
    async fn an_inbox_of_candidates_that_were_read_too_early_lacks_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_760_000_000_000));
        let store = Embedded::open(EmbeddedConfig::new(dir.path()), clock).unwrap();
        let (hot, engine, bob) = (&store.shared.memtable, &store.shared.engine, UserId::new("bob").unwrap());
        let early = hot.few_candidates(engine, Space::Members, &bob, 9).unwrap().unwrap();
        assert!(early.ids.is_empty());
        store.commit_sends(vec![send("m1")]).await.remove(0).unwrap();
        store.ask(WriteOp::Checkpoint).await.unwrap();
        let inbox = hot.inbox(engine, &bob, Some(early), None, 0, 9).unwrap();
        assert_eq!(inbox.len(), 1);
        store.shut().await.unwrap();
    }
}
