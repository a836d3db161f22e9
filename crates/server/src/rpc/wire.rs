//! What travels between gateways and app servers.
//!
//! A link is one stream each way. On it go batches: calls one way, answers the other, in any order, told apart by an
//! id. Their payloads are JSON, so that processes of two versions understand each other while a cluster is upgraded:
//! a field that is new has a default, and one that is unknown is passed over. A payload that is long goes in parts,
//! and those of other calls go between them.

use bytes::Bytes;

/// The one method of the one service.
pub const OPEN: &str = "/bluetick.cluster.v2.Link/Open";
/// What the headers of a link are called: the nonces both ways, and who listens and how it proves itself.
pub const NONCE: &str = "bluetick-nonce";
pub const NAME: &str = "bluetick-name";
pub const PROOF: &str = "bluetick-proof";
/// The longest part of a payload.
pub const PART_MAX_BYTES: usize = 128 * 1024;
/// About how long a batch gets: beyond it what waits goes into the next.
pub const BATCH_MAX_BYTES: usize = 512 * 1024;
/// How many calls or answers one batch has at most.
pub const BATCH_MAX: usize = 256;

#[derive(Clone, PartialEq, prost::Message)]
pub struct Calls {
    #[prost(message, repeated, tag = "1")]
    pub calls: Vec<Call>,
    /// In the first message, which has no calls: how the caller proves itself.
    #[prost(bytes = "bytes", tag = "2")]
    pub proof: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Call {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// How long the caller waits, from when this was sent.
    #[prost(uint32, tag = "2")]
    pub deadline_ms: u32,
    #[prost(bytes = "bytes", tag = "3")]
    pub payload: Bytes,
    /// More parts follow.
    #[prost(bool, tag = "4")]
    pub more: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Answers {
    #[prost(message, repeated, tag = "1")]
    pub answers: Vec<Part>,
    /// This process is going down: what it was asked it still answers, new calls belong elsewhere.
    #[prost(bool, tag = "2")]
    pub draining: bool,
    /// In the first message, which has no answers: the caller's proof was accepted, calls may come.
    #[prost(bool, tag = "3")]
    pub accepted: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Part {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(bytes = "bytes", tag = "2")]
    pub payload: Bytes,
    #[prost(bool, tag = "3")]
    pub more: bool,
}

/// Cuts a payload into parts, in order; the flag says whether more follow.
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

/// Puts the parts of one payload together again.
#[derive(Debug, Default)]
pub struct Assembly(Vec<u8>);

impl Assembly {
    /// Takes a part. Gives the whole once its last part is here.
    pub fn add(&mut self, part: Bytes, more: bool) -> Option<Bytes> {
        if !more && self.0.is_empty() {
            return Some(part);
        }
        self.0.extend_from_slice(&part);
        (!more).then(|| std::mem::take(&mut self.0).into())
    }
}

/// Takes what fits a batch from the front of what waits.
fn next_batch<T>(waiting: &mut std::collections::VecDeque<T>, size: impl Fn(&T) -> usize) -> Vec<T> {
    let mut bytes = 0;
    let fits = |item: &T| {
        bytes += size(item);
        bytes <= BATCH_MAX_BYTES
    };
    let count = waiting.iter().take(BATCH_MAX).take_while(scan(fits)).count().max(1).min(waiting.len());
    waiting.drain(..count).collect()
}

/// What waits to be sent, in parts. Between the parts of a long payload go the short ones of others: nobody's answer
/// waits for somebody's megabytes.
#[derive(Debug)]
pub struct Waiting<T> {
    short: std::collections::VecDeque<T>,
    long: std::collections::VecDeque<T>,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Waiting { short: Default::default(), long: Default::default() }
    }
}

impl<T> Waiting<T> {
    /// Takes the parts of one payload.
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

    /// Takes what fits a batch: short ones, and one part of a long one.
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
        let mut waiting = Waiting::default();
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
