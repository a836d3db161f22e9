//! The messages on a link.
//!
//! A link is one stream in each direction: batches of calls one way, batches of answers the other, in any order,
//! matched by an id. Payloads are JSON, so that processes of two versions understand each other during an upgrade: new
//! fields have a default, and unknown fields are ignored. A long payload is split into parts, and parts of other calls
//! are sent between them.

use bytes::Bytes;

/// The path of the only gRPC method.
pub const OPEN: &str = "/bluetick.cluster.v2.Link/Open";
/// Headers of a link: the nonces of both sides, and the listener's name and proof.
pub const NONCE: &str = "bluetick-nonce";
pub const NAME: &str = "bluetick-name";
pub const PROOF: &str = "bluetick-proof";
/// The largest part of a payload.
pub const PART_MAX_BYTES: usize = 128 * 1024;
/// The approximate size of a batch: what does not fit goes into the next one.
pub const BATCH_MAX_BYTES: usize = 512 * 1024;
/// The most calls or answers in one batch.
pub const BATCH_MAX: usize = 256;

#[derive(Clone, PartialEq, prost::Message)]
pub struct CallBatch {
    #[prost(message, repeated, tag = "1")]
    pub calls: Vec<CallPart>,
    /// The caller's proof, in the first message, which has no calls.
    #[prost(bytes = "bytes", tag = "2")]
    pub proof: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CallPart {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// How long the caller waits, counted from the moment of sending.
    #[prost(uint32, tag = "2")]
    pub deadline_ms: u32,
    #[prost(bytes = "bytes", tag = "3")]
    pub payload: Bytes,
    /// More parts follow.
    #[prost(bool, tag = "4")]
    pub more: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AnswerBatch {
    #[prost(message, repeated, tag = "1")]
    pub answers: Vec<AnswerPart>,
    /// This process is shutting down: it answers the calls it has, and takes no new ones.
    #[prost(bool, tag = "2")]
    pub draining: bool,
    /// The caller's proof was accepted: in the first message, which has no answers.
    #[prost(bool, tag = "3")]
    pub accepted: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AnswerPart {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(bytes = "bytes", tag = "2")]
    pub payload: Bytes,
    #[prost(bool, tag = "3")]
    pub more: bool,
}

/// Splits a payload into parts, in order. The flag says whether more follow.
pub fn parts(mut payload: Bytes) -> impl Iterator<Item = (Bytes, bool)> {
    let mut done = false;
    std::iter::from_fn(move || {
        if done {
            return None;
        }
        let part = payload.split_to(payload.len().min(PART_MAX_BYTES));
        done = payload.is_empty();
        Some((part, !done))
    })
}

/// Joins the parts of one payload.
#[derive(Debug, Default)]
pub struct Assembly(Vec<u8>);

impl Assembly {
    /// Adds a part. Returns the payload with the last one.
    pub fn add(&mut self, part: Bytes, more: bool) -> Option<Bytes> {
        if !more && self.0.is_empty() {
            return Some(part);
        }
        self.0.extend_from_slice(&part);
        (!more).then(|| std::mem::take(&mut self.0).into())
    }
}

/// Removes as many items from the front as fit into a batch, and at least one.
fn next_batch<T>(waiting: &mut std::collections::VecDeque<T>, size: impl Fn(&T) -> usize) -> Vec<T> {
    let mut bytes = 0;
    let fits = |item: &T| {
        bytes += size(item);
        bytes <= BATCH_MAX_BYTES
    };
    let count = waiting.iter().take(BATCH_MAX).take_while(scan(fits)).count().max(1).min(waiting.len());
    waiting.drain(..count).collect()
}

/// The parts waiting to be sent. Payloads of one part are sent between the parts of long ones, so that a large payload
/// does not delay the others.
#[derive(Debug)]
pub struct PartQueue<T> {
    short: std::collections::VecDeque<T>,
    long: std::collections::VecDeque<T>,
}

impl<T> Default for PartQueue<T> {
    fn default() -> Self {
        PartQueue { short: Default::default(), long: Default::default() }
    }
}

impl<T> PartQueue<T> {
    /// Queues the parts of one payload.
    pub fn push(&mut self, parts: impl IntoIterator<Item = T>) {
        let mut parts = parts.into_iter();
        let Some(first) = parts.next() else { return };
        match parts.next() {
            None => self.short.push_back(first),
            Some(second) => self.long.extend([first, second].into_iter().chain(parts)),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.short.is_empty() && self.long.is_empty()
    }

    /// Removes the next batch: payloads of one part as they fit, and one part of a long payload.
    pub fn next_batch(&mut self, size: impl Fn(&T) -> usize) -> Vec<T> {
        let mut batch = match self.short.is_empty() {
            true => Vec::new(),
            false => next_batch(&mut self.short, size),
        };
        batch.extend(self.long.pop_front());
        batch
    }
}

fn scan<T>(mut fits: impl FnMut(&T) -> bool) -> impl FnMut(&&T) -> bool {
    move |item| fits(item)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn short_payloads_go_between_the_parts_of_a_long_one() {
        let mut waiting = PartQueue::default();
        waiting.push(["long-1", "long-2", "long-3"]);
        waiting.push(["a"]);
        assert_eq!(waiting.next_batch(|_| 1), ["a", "long-1"]);
        waiting.push(["b"]);
        assert_eq!(waiting.next_batch(|_| 1), ["b", "long-2"]);
        assert_eq!(waiting.next_batch(|_| 1), ["long-3"]);
        assert!(waiting.is_empty());
    }

    #[test]
    fn a_payload_is_what_it_was_after_the_way_in_parts() {
        for length in [0, 1, PART_MAX_BYTES, PART_MAX_BYTES + 1, 5 * PART_MAX_BYTES + 3] {
            let payload: Bytes = (0..length).map(|n| n as u8).collect::<Vec<_>>().into();
            let mut assembly = Assembly::default();
            let pieces: Vec<_> = parts(payload.clone()).collect();
            assert_eq!(pieces.len(), length.div_ceil(PART_MAX_BYTES).max(1));
            let mut whole = pieces.into_iter().filter_map(|(part, more)| assembly.add(part, more));
            assert_eq!(whole.next(), Some(payload));
            assert_eq!(whole.next(), None);
        }
    }

    #[test]
    fn a_batch_is_bounded_and_never_empty() {
        let mut waiting: VecDeque<usize> = [BATCH_MAX_BYTES + 1, 10, BATCH_MAX_BYTES, 1].into();
        assert_eq!(next_batch(&mut waiting, |n| *n), [BATCH_MAX_BYTES + 1]);
        assert_eq!(next_batch(&mut waiting, |n| *n), [10]);
        assert_eq!(next_batch(&mut waiting, |n| *n), [BATCH_MAX_BYTES]);
        waiting.extend(vec![1; 2 * BATCH_MAX]);
        assert_eq!(next_batch(&mut waiting, |n| *n).len(), BATCH_MAX);
    }
}
