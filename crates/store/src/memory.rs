//! The backend in memory: the reference model that every other backend is compared with.
//!
//! One mutex over ordered maps, so that runs are deterministic. Everything that can be derived is
//! derived at each read: a `conversations` row and its unread count from the messages, the profile
//! copies from the profiles. That is slow and cannot drift, which is the point of a model.
//!
//! Stored are the messages with their idempotency records, the pending and status rows, profiles,
//! blocks, mutes, revocations, devices, the push outbox, attachments, and the runs of the cold
//! tier. The sequence counter is stored beside the messages, because on the backend for many
//! machines it can be wrong: [`Memory::fall_back`] and [`Memory::leak_seq`] make it so (R8).

mod attachments;
mod cold;
mod commit;
mod conversation;
mod directory;
#[cfg(test)]
mod disturbed;
mod push;
mod rows;
mod steps;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bluetick_protocol::{Boundaries, ConversationId, DeviceId, MessageId, Mute, Profile, S3Ref, Seq, UserId};
use parking_lot::{Mutex, MutexGuard};

use crate::{AttachmentRow, Clock, DeviceRow, Noted, OwedPush, Result, StoreError, UploadUsage};
use conversation::MemoryConversation;
pub use directory::MemoryDirectory;
pub use steps::TablePut;

const IDEMPOTENCY_DEFAULT_WINDOW_MS: u64 = 30 * 24 * 60 * 60 * 1000;
/// There is one in a process, so one node number mints every id.
const NODE: u16 = 0;

pub struct Memory {
    clock: Arc<dyn Clock>,
    idempotency_window_ms: u64,
    state: Mutex<MemoryTables>,
}

#[derive(Default)]
struct MemoryTables {
    conversations: BTreeMap<ConversationId, MemoryConversation>,
    pending: BTreeMap<UserId, BTreeMap<ConversationId, Seq>>,
    status: BTreeMap<UserId, BTreeMap<ConversationId, Boundaries>>,
    profiles: BTreeMap<UserId, Profile>,
    /// With the profile that the blocked user still sees.
    blocks: BTreeMap<UserId, BTreeMap<UserId, Profile>>,
    mutes: BTreeMap<UserId, BTreeMap<ConversationId, Mute>>,
    not_before: BTreeMap<UserId, u64>,
    notified: BTreeMap<UserId, BTreeMap<ConversationId, Seq>>,
    devices: BTreeMap<(UserId, DeviceId), DeviceRow>,
    push_outbox: BTreeMap<(UserId, ConversationId), OwedPush>,
    attachments: BTreeMap<S3Ref, (AttachmentRow, BTreeSet<ConversationId>)>,
    upload_usage: BTreeMap<UserId, UploadUsage>,
    cold_leases: BTreeMap<u16, (String, u64)>,
    /// The last minted id: the next is greater even if the clock went back.
    last_id: MessageId,
    closed: bool,
}

impl Memory {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Memory { clock, idempotency_window_ms: IDEMPOTENCY_DEFAULT_WINDOW_MS, state: Mutex::default() }
    }

    /// For how long a `client_msg_id` is remembered (R9).
    pub fn with_idempotency_window(mut self, ms: u64) -> Self {
        self.idempotency_window_ms = ms;
        self
    }

    /// Sets the sequence counter back, like a Redis that lost its last writes.
    pub fn fall_back(&self, conversation: &ConversationId, to: Seq) {
        let mut state = self.state.lock();
        let counter = &mut state.conversation_mut(conversation).counter;
        *counter = to.min(*counter);
    }

    /// Takes a seq that is never written, like a writer that crashed: a hole.
    pub fn leak_seq(&self, conversation: &ConversationId) -> Seq {
        self.state.lock().conversation_mut(conversation).next_seq()
    }

    /// Removes a message as if it had never been written: a hole before others.
    pub fn lose(&self, conversation: &ConversationId, seq: Seq) {
        self.state.lock().conversation_mut(conversation).messages.remove(&seq);
    }

    fn read(&self) -> MutexGuard<'_, MemoryTables> {
        self.state.lock()
    }

    /// The tables for a write; an error if the store is closed.
    fn write(&self) -> Result<MutexGuard<'_, MemoryTables>> {
        let state = self.state.lock();
        if state.closed { Err(StoreError::unavailable("the store, which is closed,")) } else { Ok(state) }
    }
}

impl MemoryTables {
    fn conversation_mut(&mut self, id: &ConversationId) -> &mut MemoryConversation {
        self.conversations.entry(id.clone()).or_default()
    }

    fn last_seq(&self, id: &ConversationId) -> Seq {
        self.conversations.get(id).map_or(0, MemoryConversation::last_seq)
    }

    fn mint(&mut self, now_ms: u64) -> MessageId {
        self.last_id = MessageId::mint(self.last_id, now_ms, NODE);
        self.last_id
    }

    fn boundaries(&self, user: &UserId, id: &ConversationId) -> Boundaries {
        self.status.get(user).and_then(|rows| rows.get(id)).cloned().unwrap_or_default()
    }

    /// Max-merges boundaries, clamped to the last seq; returns them and whether they moved. A row
    /// appears with the first ack or read, so a row of zeros is not created.
    fn raise(&mut self, user: &UserId, id: &ConversationId, delivered: Seq, read: Seq) -> (Boundaries, bool) {
        let before = self.boundaries(user, id);
        let Some(side) = id.side_of(user) else { return (before, false) };
        // The last message this member may see: a receipt never covers a withheld message after it.
        let last = self.conversations.get(id).and_then(|c| c.shown_to(side)).map_or(0, |m| m.seq);
        let last_read_seq = before.last_read_seq.max(read.min(last));
        let last_delivered_seq = before.last_delivered_seq.max(delivered.min(last)).max(last_read_seq);
        let after = Boundaries { last_delivered_seq, last_read_seq };
        let moved = after != before;
        if moved {
            self.status.entry(user.clone()).or_default().insert(id.clone(), after.clone());
        }
        (after, moved)
    }

    /// The pending row keeps the minimum (R3).
    fn note(&mut self, receiver: &UserId, id: &ConversationId, seq: Seq) -> Noted {
        let rows = self.pending.entry(receiver.clone()).or_default();
        match rows.get(id) {
            Some(&first_undelivered_seq) if first_undelivered_seq <= seq => {
                Noted { first_undelivered_seq, written: false }
            }
            _ => {
                rows.insert(id.clone(), seq);
                Noted { first_undelivered_seq: seq, written: true }
            }
        }
    }
}
