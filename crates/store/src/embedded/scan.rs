//! A walk over everything in an embedded store, for `bluetick migrate`.
//!
//! The store is opened with its lock, as a server would, so nobody writes meanwhile; a checkpoint
//! then brings everything into the engine. The order is that of the engine's keys: conversations by
//! id, each with its messages by seq and then its members' rows; users, each with everything kept
//! by user (a mute, for example, needs no conversation); attachments, each with the conversations
//! that refer to it. The order is stable, so a walk can resume where an earlier one stopped. Cold
//! messages are read from their objects and appear at their place.

use std::{ops::Bound, sync::Arc};

use bluetick_protocol::{MessageId, Profile, S3Ref, Seq, Side, UserId};
use tokio::sync::mpsc;
use xxhash_rust::xxh3::Xxh3;

use super::{
    Embedded, EmbeddedConfig, StoreCore, attachments,
    cold::reads::{counts, missing},
    committer::WriteOp,
    conversation::ConversationState,
    devices,
    engine::{Space, conversation_id},
    mutes, not_before,
    push_outbox::{self, PushOutboxRow},
    rows::{key_parts, user_prefix},
    user_row::UserRow,
};
use crate::{
    AttachmentRow, Clock, Content, MemberRow, PageLimit, PendingRow, Result, SentId, ShownMessage,
    StoreError, WalkPage as Page, WalkPlace as Place,
};

/// Records in a page: one batch of DynamoDB.
const PAGE_RECORDS: usize = 25;
const PAGE_BYTES: usize = 256 * 1024;
/// Pages that are read ahead.
const AHEAD: usize = 32;
const READ: PageLimit = PageLimit { messages: 500, bytes: 4 << 20 };

/// Which store this is, and in which state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceIdentity {
    /// The same for a directory and its copies, and for no other.
    pub name: String,
    /// The lsn of the last write: the same number means the same contents.
    pub last_write: u64,
    pub last_message_id: MessageId,
    /// The node part of the ids that were minted here.
    pub node: u16,
}

/// An embedded store that is opened only to read all of it.
pub struct EmbeddedSource {
    embedded: Embedded,
    identity: SourceIdentity,
    messages: u64,
}

impl EmbeddedSource {
    /// Opens an existing store and brings everything into the engine.
    pub async fn open(config: EmbeddedConfig, clock: Arc<dyn Clock>) -> Result<EmbeddedSource> {
        let dir = config.dir.display().to_string();
        if !config.dir.join("VERSION").exists() {
            return Err(StoreError::Unusable(format!(
                "there is no store in {dir}; give the data directory of the server to move"
            )));
        }
        let node = config.node;
        let opened = tokio::task::spawn_blocking(move || Embedded::open(config, clock)).await;
        let embedded = opened.map_err(|e| StoreError::Unusable(format!("cannot open {dir}: {e}")))??;
        drop(embedded.ask(WriteOp::Checkpoint).await?);
        let (meta, messages) = embedded
            .blocking(|shared| {
                let messages = shared.engine.all_convs().map(|conv| conv.map(|conv| conv.last_seq));
                Ok((shared.engine.meta()?, messages.sum::<Result<u64>>()?))
            })
            .await?;
        let mut name = Xxh3::with_seed(meta.seed);
        name.update(b"bluetick embedded store");
        let identity = SourceIdentity {
            name: format!("{:032x}", name.digest128()),
            last_write: meta.lsn,
            last_message_id: meta.last_message_id,
            node,
        };
        Ok(EmbeddedSource { embedded, identity, messages })
    }

    pub fn identity(&self) -> &SourceIdentity {
        &self.identity
    }

    /// How many messages there are.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// At most `limit` attachments after one, in the order of their references.
    pub async fn attachments(&self, after: Option<&S3Ref>, limit: usize) -> Result<Vec<AttachmentRow>> {
        let after = after.cloned();
        self.embedded
            .blocking(move |shared| {
                let start = after.as_ref().map_or(Bound::Unbounded, |after| Bound::Excluded(after.as_str()));
                let rows = shared.engine.rows_from(Space::Attachments, start).take(limit);
                rows.map(|row| Ok(attachments::decode(&row?.1)?)).collect()
            })
            .await
    }

    /// Walks over everything from a place on.
    pub fn walk(&self, from: Option<Place>) -> Walk {
        let (sender, pages) = mpsc::channel(AHEAD);
        let shared = self.embedded.shared.clone();
        tokio::task::spawn_blocking(move || {
            let now_ms = shared.clock.now_ms();
            let mut walker = Walker { shared: &shared, now_ms, sender: &sender, page: Vec::new(), bytes: 0 };
            if let Err(error) = walker.walk(from) {
                // The receiver may be gone, and then needs no error.
                let _ = sender.blocking_send(Err(error));
            }
        });
        Walk { pages }
    }

    pub async fn close(self) -> Result<()> {
        self.embedded.shut().await
    }
}

/// A running walk. Dropping it ends it.
pub struct Walk {
    pages: mpsc::Receiver<Result<Page>>,
}

impl Walk {
    /// The next page, or `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Page>> {
        self.pages.recv().await
    }
}

struct Walker<'a> {
    shared: &'a StoreCore,
    now_ms: u64,
    sender: &'a mpsc::Sender<Result<Page>>,
    page: Vec<Content>,
    bytes: usize,
}

impl Walker<'_> {
    fn walk(&mut self, from: Option<Place>) -> Result<()> {
        let all = Bound::Unbounded;
        let (conversations, users, attachments) = match &from {
            None => (Some(all), Some(all), all),
            Some(Place::Conversation { id, .. }) => (Some(Bound::Included(id.as_str())), Some(all), all),
            Some(Place::User(user)) => (None, Some(Bound::Included(user.as_str())), all),
            Some(Place::Attachment(s3_ref)) => (None, None, Bound::Included(s3_ref.as_str())),
        };
        let mut last = None;
        if let Some(start) = conversations {
            for conv in self.shared.engine.convs_from(start) {
                let conv = conv?;
                let first = match &from {
                    Some(Place::Conversation { id, seq }) if *id == conv.id => *seq,
                    _ => 1,
                };
                last = Some(self.conversation(&conv, first)?);
            }
        }
        if let Some(start) = users {
            last = self.users(start)?.or(last);
        }
        last = self.attachments(attachments)?.or(last);
        match last {
            Some(place) => self.flush(place),
            None => Ok(()),
        }
    }

    fn conversation(&mut self, conv: &ConversationState, first: Seq) -> Result<Place> {
        let (mut from, border) = (first.max(1), self.shared.last_cold_seq(&conv.id)?);
        while from <= border {
            for message in self.cold_page(conv, from, READ.messages)? {
                from = message.seq + 1;
                self.message(conv.masked_message(message))?;
            }
        }
        loop {
            let entries = self.shared.engine.entries(&conv.id, from, Seq::MAX, READ)?;
            let Some(last) = entries.last().map(|entry| entry.message.seq) else { break };
            for entry in entries {
                self.message(conv.masked(entry).message)?;
            }
            from = last + 1;
        }
        let place = Place::Conversation { id: conv.id.clone(), seq: conv.last_seq };
        for side in Side::BOTH {
            for content in self.member(conv, side)? {
                self.push(content, &place)?;
            }
        }
        Ok(place)
    }

    /// Cold messages from a seq on, at least one. The walk has its own thread, which may block.
    fn cold_page(
        &self,
        conv: &ConversationState,
        from: Seq,
        most: usize,
    ) -> Result<Vec<Arc<crate::Message>>> {
        let page = self.shared.cold_page(&conv.id, from, most);
        let page = tokio::runtime::Handle::current().block_on(page)?;
        page.map(|(_, messages)| messages).ok_or_else(|| missing(&conv.id, from))
    }

    fn message(&mut self, message: Arc<crate::Message>) -> Result<()> {
        let place = Place::Conversation { id: message.conversation_id.clone(), seq: message.seq };
        if let Some(sent_id) = self.sent_id(&message)? {
            self.push(Content::SentId(sent_id), &place)?;
        }
        // The append assigns the seq, so no void here closed a hole.
        self.push(Content::Message { message, hole: false }, &place)
    }

    /// The idempotency record that a retry of this message would find.
    fn sent_id(&self, message: &crate::Message) -> Result<Option<SentId>> {
        let window_ms = self.shared.config.idempotency_window_ms;
        // A record is as old as its message, so most messages need no lookup.
        if message.ts < self.now_ms.saturating_sub(window_ms) {
            return Ok(None);
        }
        let hash = self.shared.hash(&message.conversation_id, message.from, &message.client_msg_id);
        let known = self.shared.engine.sent_ids.record(hash, self.now_ms)?;
        Ok(known.filter(|(seq, _)| *seq == message.seq).map(|(seq, ts)| SentId {
            conversation_id: message.conversation_id.clone(),
            from: message.from,
            client_msg_id: message.client_msg_id.clone(),
            seq,
            message_id: message.message_id,
            expires_at: (ts + window_ms).div_ceil(1_000),
        }))
    }

    /// The rows of one member, separate as other stores keep them.
    fn member(&self, conv: &ConversationState, side: Side) -> Result<Vec<Content>> {
        let (member, user_id) = (conv.member(side), conv.id.member(side));
        let mut contents = Vec::new();
        contents.extend(member.pending.map(|first_undelivered_seq| {
            Content::Pending(PendingRow {
                receiver_id: user_id,
                conversation_id: conv.id.clone(),
                first_undelivered_seq,
            })
        }));
        if member.delivered.seq > 0 || member.notified > 0 {
            contents.push(Content::Status { row: conv.status_row(side), notified: member.notified });
        }
        if conv.last_seq > 0 {
            let peer = self.shared.engine.user(&conv.id.member(side.other()))?.unwrap_or_default();
            // What was counted before the member was erased is not theirs any more.
            let counted_last = self.last_counted(conv, side)?;
            let counted_last = if counted_last > member.erased { counted_last } else { 0 };
            contents.push(Content::Conversation(MemberRow {
                conversation_id: conv.id.clone(),
                side,
                shown: member.last.as_ref().map(|last| ShownMessage {
                    seq: last.seq,
                    ts: last.ts,
                    preview: last.preview.text().to_string(),
                    sender: conv.id.member(last.from),
                    message_id: last.message_id,
                }),
                peer: peer.profile_for(&conv.id.member(side)).clone(),
                unread: conv.unread(side),
                counted_seq: conv.last_seq,
                counted_last,
                read_seq: member.read.seq,
                erased_up_to: member.erased,
                concerned: conv.concerns(side),
            }));
        }
        Ok(contents)
    }

    /// The last message that counts or counted as unread for a member. The counter in each message
    /// grows with the seq, so it is the first message with the full count, found by binary search.
    fn last_counted(&self, conv: &ConversationState, side: Side) -> Result<Seq> {
        let other = side.other();
        let all = conv.counted[other.index()];
        if all == conv.member(other).erased_counted {
            return Ok(0);
        }
        // The runs hold the count at their ends. If all was counted by then, the message is in the
        // first such run.
        for row in self.shared.runs_of(&conv.id)? {
            if row.counted[other.index()] >= all {
                let (first, last) = (row.run.first_seq, row.run.last_seq);
                let messages = self.cold_page(conv, first, usize::MAX)?;
                let counted = messages.iter().rev().find(|m| m.seq <= last && counts(m, other));
                return counted.map(|m| m.seq).ok_or_else(|| {
                    StoreError::Corrupt(format!("no message {first} to {last} of {} counts", conv.id))
                });
            }
        }
        let (mut low, mut high) = (self.shared.last_cold_seq(&conv.id)? + 1, conv.last_seq);
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = self.shared.engine.entry(&conv.id, middle)?;
            let entry = entry.ok_or_else(|| missing(&conv.id, middle))?;
            match entry.counted[other.index()] >= all {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        Ok(low)
    }

    /// Everything kept by user. A user need not have a row of each kind, so all kinds are merged.
    fn users(&mut self, start: Bound<&str>) -> Result<Option<Place>> {
        let engine = &self.shared.engine;
        let spaces = [Space::Users, Space::Devices, Space::Mutes, Space::PushOutbox, Space::NotBefore];
        let mut walks = spaces.map(|space| engine.rows_from(space, start).peekable());
        let mut last = None;
        loop {
            let mut next: Option<UserId> = None;
            for walk in &mut walks {
                let user = match walk.peek() {
                    Some(Ok((key, _))) => user_of(key)?,
                    Some(Err(error)) => return Err(error.clone()),
                    None => continue,
                };
                next = Some(next.map_or(user.clone(), |least| least.min(user)));
            }
            let Some(user) = next else { return Ok(last) };
            let place = Place::User(user.clone());
            for (space, walk) in spaces.into_iter().zip(&mut walks) {
                while let Some(row) = walk.next_if(|row| row.as_ref().is_ok_and(|(key, _)| is_of(key, &user)))
                {
                    let (key, value) = row?;
                    for content in content_of(space, &user, &key, &value)? {
                        self.push(content, &place)?;
                    }
                }
            }
            last = Some(place);
        }
    }

    fn attachments(&mut self, start: Bound<&str>) -> Result<Option<Place>> {
        let engine = &self.shared.engine;
        let mut last = None;
        for row in engine.rows_from(Space::Attachments, start) {
            let row = attachments::decode(&row?.1)?;
            let (s3_ref, place) = (row.s3_ref.clone(), Place::Attachment(row.s3_ref.clone()));
            self.push(Content::Attachment(row), &place)?;
            let claims = user_prefix(s3_ref.as_str());
            for claim in engine.rows_from(Space::AttachmentClaims, Bound::Included(s3_ref.as_str())) {
                let key = claim?.0;
                if !key.starts_with(&claims) {
                    break;
                }
                let conversation_id = conversation_id(key_parts(&key)?.1.as_bytes())?;
                self.push(Content::Claim { s3_ref: s3_ref.clone(), conversation_id }, &place)?;
            }
            last = Some(place);
        }
        Ok(last)
    }

    fn push(&mut self, content: Content, place: &Place) -> Result<()> {
        self.bytes += content.weight();
        self.page.push(content);
        match self.page.len() >= PAGE_RECORDS || self.bytes >= PAGE_BYTES {
            true => self.flush(place.clone()),
            false => Ok(()),
        }
    }

    fn flush(&mut self, place: Place) -> Result<()> {
        self.bytes = 0;
        let contents = std::mem::take(&mut self.page);
        if contents.is_empty() {
            return Ok(());
        }
        let gone = |_| StoreError::unavailable("the reader of this store");
        self.sender.blocking_send(Ok(Page { contents, place })).map_err(gone)
    }
}

/// The user in a key: all of it, or the part before a zero byte.
fn user_part(key: &[u8]) -> &[u8] {
    key.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn is_of(key: &[u8], user: &UserId) -> bool {
    user_part(key) == user.as_str().as_bytes()
}

fn user_of(key: &[u8]) -> Result<UserId> {
    std::str::from_utf8(user_part(key))
        .ok()
        .and_then(|text| UserId::new(text).ok())
        .ok_or_else(|| StoreError::Corrupt("a key holds no user id".into()))
}

/// The records that a row kept by user stands for.
fn content_of(space: Space, user: &UserId, key: &[u8], value: &[u8]) -> Result<Vec<Content>> {
    let user_id = user.clone();
    Ok(match space {
        Space::Devices => vec![Content::Device(devices::decode(key, value)?)],
        Space::Mutes => vec![Content::Mute { user_id, mute: mutes::decode(key, value)? }],
        Space::NotBefore => vec![Content::NotBefore { user_id, secs: not_before::decode(value)? }],
        Space::PushOutbox => vec![Content::Owed(push_outbox::owed_of(key, &PushOutboxRow::decode(value)?)?)],
        _ => {
            let row = UserRow::decode(value)?;
            let blocks: Vec<_> = row
                .blocked
                .keys()
                .map(|blocked| Content::Block {
                    user_id: user.clone(),
                    blocked: blocked.clone(),
                    profile: row.profile_for(blocked).clone(),
                })
                .collect();
            let profile = Some(row.profile).filter(|profile| *profile != Profile::default());
            let profile = profile.map(|profile| Content::Profile { user_id, profile });
            profile.into_iter().chain(blocks).collect()
        }
    })
}
