//! Messages that the server has not confirmed, in the order in which they were written.

use std::collections::{BTreeMap, VecDeque};

use bluetick_protocol::{ClientMsgId, Json, Send, WireError};

use super::{IN_FLIGHT_MAX, OUTBOX_MAX};
use crate::Refused;

/// The wait after a refusal that names none: doubled with each, up to the cap.
const RETRY_BASE_MS: u64 = 1_000;
const RETRY_CAP_MS: u64 = 30_000;
/// For this long the server remembers the id of a message. A message that was first sent earlier
/// may be stored already, and would be stored a second time.
const RESEND_MAX_MS: u64 = 30 * 24 * 3600 * 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Waiting,
    /// Written to the connection that is up now.
    InFlight,
    /// Refused for now; goes out again when the retry timer fires.
    Held,
}

#[derive(Debug)]
struct Entry {
    send: Send,
    progress: Progress,
    refusals: u32,
    /// When it was first written to a connection, by the server's clock.
    first_sent_at: Option<u64>,
}

/// What an error means for the message it names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    NotOurs,
    RetryAfterMs(u64),
    Failed,
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    entries: VecDeque<Entry>,
    in_flight: usize,
}

impl Outbox {
    pub(super) fn restore(sends: Vec<Send>, first_sent_at: &BTreeMap<ClientMsgId, u64>) -> Self {
        let restored = |send: Send| Entry {
            first_sent_at: first_sent_at.get(&send.client_msg_id).copied(),
            ..Entry::new(send)
        };
        Outbox { entries: sends.into_iter().map(restored).collect(), in_flight: 0 }
    }

    pub(super) fn first_sent_at(&self) -> BTreeMap<ClientMsgId, u64> {
        let sent = |entry: &Entry| Some((entry.send.client_msg_id.clone(), entry.first_sent_at?));
        self.entries.iter().filter_map(sent).collect()
    }

    /// Removes the messages that the server may have stored and forgotten.
    pub(super) fn remove_too_old(&mut self, now: u64) -> Vec<ClientMsgId> {
        let is_too_old =
            |entry: &Entry| entry.first_sent_at.is_some_and(|at| now.saturating_sub(at) > RESEND_MAX_MS);
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

    pub(super) fn push(&mut self, send: Send) -> Result<(), Refused> {
        if self.entries.len() >= OUTBOX_MAX {
            return Err(Refused::OutboxFull);
        }
        self.entries.push_back(Entry::new(send));
        Ok(())
    }

    /// The next message to write. One that is held stops those behind it, so that the order of writing is kept.
    pub(super) fn next(&mut self, now: u64) -> Option<Send> {
        if self.in_flight >= IN_FLIGHT_MAX {
            return None;
        }
        let entry = self.entries.iter_mut().find(|entry| entry.progress != Progress::InFlight)?;
        if entry.progress == Progress::Held {
            return None;
        }
        entry.progress = Progress::InFlight;
        entry.first_sent_at.get_or_insert(now);
        self.in_flight += 1;
        Some(entry.send.clone())
    }

    pub(super) fn remove(&mut self, id: &ClientMsgId) -> Option<Send> {
        let entry = self.entries.remove(self.position(id)?)?;
        if entry.progress == Progress::InFlight {
            self.in_flight -= 1;
        }
        Some(entry.send)
    }

    pub(super) fn refused(&mut self, id: &ClientMsgId, error: &WireError) -> Verdict {
        let Some(at) = self.position(id) else {
            return Verdict::NotOurs;
        };
        if !error.code.is_retryable() {
            self.remove(id);
            return Verdict::Failed;
        }
        let entry = &mut self.entries[at];
        if entry.progress == Progress::InFlight {
            self.in_flight -= 1;
        }
        entry.progress = Progress::Held;
        entry.refusals = entry.refusals.saturating_add(1);
        let own = RETRY_BASE_MS.saturating_mul(1 << (entry.refusals - 1).min(16)).min(RETRY_CAP_MS);
        Verdict::RetryAfterMs(error.retry_after_ms.unwrap_or(own))
    }

    /// The longest message that is on its way: the one to blame when the server found a frame too large.
    pub(super) fn longest_in_flight(&self) -> Option<ClientMsgId> {
        let in_flight = self.entries.iter().filter(|entry| entry.progress == Progress::InFlight);
        let json_len = |json: &Option<Json>| json.as_ref().map_or(0, |json| json.as_str().len());
        let longest = in_flight.max_by_key(|entry| {
            let Send { body, attachment, meta, .. } = &entry.send;
            body.len() + json_len(attachment) + json_len(meta)
        })?;
        Some(longest.send.client_msg_id.clone())
    }

    pub(super) fn release_held(&mut self) {
        for entry in &mut self.entries {
            if entry.progress == Progress::Held {
                entry.progress = Progress::Waiting;
            }
        }
    }

    /// Whatever was on its way may or may not have arrived: all of it goes out again, with the same ids.
    pub(super) fn disconnected(&mut self) {
        for entry in &mut self.entries {
            entry.progress = Progress::Waiting;
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

impl Entry {
    fn new(send: Send) -> Self {
        Entry { send, progress: Progress::Waiting, refusals: 0, first_sent_at: None }
    }
}
