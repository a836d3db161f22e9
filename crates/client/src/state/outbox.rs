//! The messages that the server has not confirmed, in the order in which they were written.

use std::collections::{BTreeMap, VecDeque};

use bluetick_protocol::{ClientMsgId, Json, Send, WireError};

use super::{IN_FLIGHT_MAX, OUTBOX_MAX};
use crate::Refusal;

/// The delay after a refusal without `retry_after_ms`, doubled with each up to the cap.
const RETRY_BASE_MS: u64 = 1_000;
const RETRY_CAP_MS: u64 = 30_000;
/// For this long the server remembers the id of a message. A message that was first sent earlier
/// may be stored already, and would be stored a second time.
const RESEND_MAX_MS: u64 = 30 * 24 * 3600 * 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendProgress {
    Waiting,
    /// Written to the current connection.
    InFlight,
    /// Refused temporarily; sent again when the retry timer fires.
    Held,
}

#[derive(Debug)]
struct OutboxEntry {
    send: Send,
    progress: SendProgress,
    refusals: u32,
    /// When it was first written to a connection, by the server's clock.
    first_sent_at: Option<u64>,
}

/// What an error means for the message that it names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SendRefusal {
    UnknownMessage,
    RetryAfterMs(u64),
    Failed,
}

#[derive(Debug, Default)]
pub(super) struct SendOutbox {
    entries: VecDeque<OutboxEntry>,
    in_flight: usize,
}

impl SendOutbox {
    pub(super) fn restore(sends: Vec<Send>, first_sent_at: &BTreeMap<ClientMsgId, u64>) -> Self {
        let restored = |send: Send| OutboxEntry {
            first_sent_at: first_sent_at.get(&send.client_msg_id).copied(),
            ..OutboxEntry::new(send)
        };
        SendOutbox { entries: sends.into_iter().map(restored).collect(), in_flight: 0 }
    }

    pub(super) fn first_sent_at(&self) -> BTreeMap<ClientMsgId, u64> {
        let sent = |entry: &OutboxEntry| Some((entry.send.client_msg_id.clone(), entry.first_sent_at?));
        self.entries.iter().filter_map(sent).collect()
    }

    /// Removes the messages that the server may have stored and forgotten.
    pub(super) fn remove_too_old(&mut self, now: u64) -> Vec<ClientMsgId> {
        let is_too_old = |entry: &OutboxEntry| {
            entry.first_sent_at.is_some_and(|at| now.saturating_sub(at) > RESEND_MAX_MS)
        };
        let too_old = self.entries.iter().filter(|entry| is_too_old(entry));
        let ids: Vec<_> = too_old.map(|entry| entry.send.client_msg_id.clone()).collect();
        self.entries.retain(|entry| !is_too_old(entry));
        ids
    }

    pub(super) fn sends(&self) -> impl Iterator<Item = &Send> {
        self.entries.iter().map(|entry| &entry.send)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn contains(&self, id: &ClientMsgId) -> bool {
        self.position(id).is_some()
    }

    pub(super) fn push(&mut self, send: Send) -> Result<(), Refusal> {
        if self.entries.len() >= OUTBOX_MAX {
            return Err(Refusal::OutboxFull);
        }
        self.entries.push_back(OutboxEntry::new(send));
        Ok(())
    }

    /// The next message to write. A held message blocks those behind it, to keep their order.
    pub(super) fn next(&mut self, now: u64) -> Option<Send> {
        if self.in_flight >= IN_FLIGHT_MAX {
            return None;
        }
        let entry = self.entries.iter_mut().find(|entry| entry.progress != SendProgress::InFlight)?;
        if entry.progress == SendProgress::Held {
            return None;
        }
        entry.progress = SendProgress::InFlight;
        entry.first_sent_at.get_or_insert(now);
        self.in_flight += 1;
        Some(entry.send.clone())
    }

    pub(super) fn remove(&mut self, id: &ClientMsgId) -> Option<Send> {
        let entry = self.entries.remove(self.position(id)?)?;
        if entry.progress == SendProgress::InFlight {
            self.in_flight -= 1;
        }
        Some(entry.send)
    }

    pub(super) fn refused(&mut self, id: &ClientMsgId, error: &WireError) -> SendRefusal {
        let Some(at) = self.position(id) else {
            return SendRefusal::UnknownMessage;
        };
        if !error.code.is_retryable() {
            self.remove(id);
            return SendRefusal::Failed;
        }
        let entry = &mut self.entries[at];
        if entry.progress == SendProgress::InFlight {
            self.in_flight -= 1;
        }
        entry.progress = SendProgress::Held;
        entry.refusals = entry.refusals.saturating_add(1);
        let own = RETRY_BASE_MS.saturating_mul(1 << (entry.refusals - 1).min(16)).min(RETRY_CAP_MS);
        SendRefusal::RetryAfterMs(error.retry_after_ms.unwrap_or(own))
    }

    /// The longest message in flight.
    pub(super) fn longest_in_flight(&self) -> Option<ClientMsgId> {
        let in_flight = self.entries.iter().filter(|entry| entry.progress == SendProgress::InFlight);
        let json_len = |json: &Option<Json>| json.as_ref().map_or(0, |json| json.as_str().len());
        let longest = in_flight.max_by_key(|entry| {
            let Send { body, attachment, meta, .. } = &entry.send;
            body.len() + json_len(attachment) + json_len(meta)
        })?;
        Some(longest.send.client_msg_id.clone())
    }

    pub(super) fn release_held(&mut self) {
        for entry in &mut self.entries {
            if entry.progress == SendProgress::Held {
                entry.progress = SendProgress::Waiting;
            }
        }
    }

    /// Messages in flight may or may not have arrived: all are sent again with the same ids.
    pub(super) fn disconnected(&mut self) {
        for entry in &mut self.entries {
            entry.progress = SendProgress::Waiting;
        }
        self.in_flight = 0;
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = Send> {
        self.in_flight = 0;
        std::mem::take(&mut self.entries).into_iter().map(|entry| entry.send)
    }

    fn position(&self, id: &ClientMsgId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.send.client_msg_id == *id)
    }
}

impl OutboxEntry {
    fn new(send: Send) -> Self {
        OutboxEntry { send, progress: SendProgress::Waiting, refusals: 0, first_sent_at: None }
    }
}
