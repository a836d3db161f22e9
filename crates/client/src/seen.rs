//! The seqs of one conversation that this device has, as a few ranges.

use bluetick_protocol::Seq;
use serde::{Deserialize, Serialize};

/// Beyond this many ranges, the lowest is dropped. A very old message may then be shown twice, but none
/// is ever hidden.
const RANGES_MAX: usize = 256;

/// The received seqs, and the seq up to which nothing more is expected (`settled`).
///
/// The two differ: a new device expects nothing before its first message, but has not received it
/// either; and a void seq is settled without a message. Only received seqs count as duplicates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenSeqs {
    /// Up to here every seq is received, void, or older than the device. `None` while the device has
    /// only its own messages, which say nothing about the others.
    settled: Option<Seq>,
    /// Received seqs as inclusive ranges, ascending and never touching.
    ranges: Vec<(Seq, Seq)>,
}

impl SeenSeqs {
    /// A conversation in which nothing up to `settled` is expected.
    pub fn from(settled: Seq) -> Self {
        SeenSeqs { settled: Some(settled), ranges: Vec::new() }
    }

    /// Settles up to `before`, if nothing is settled yet.
    pub fn found(&mut self, before: Seq) {
        if self.settled.is_none() {
            self.settle(before);
        }
    }

    /// The seq up to which nothing more is expected.
    pub fn settled(&self) -> Seq {
        self.settled.unwrap_or(0)
    }

    /// Whether this seq was received.
    pub fn contains(&self, seq: Seq) -> bool {
        let at = self.ranges.partition_point(|&(_, end)| end < seq);
        self.ranges.get(at).is_some_and(|&(start, _)| start <= seq)
    }

    /// Adds a received seq. Returns false if it was there already.
    pub fn insert(&mut self, seq: Seq) -> bool {
        let at = self.ranges.partition_point(|&(_, end)| end < seq);
        if self.ranges.get(at).is_some_and(|&(start, _)| start <= seq) {
            return false;
        }
        let joins_left = at > 0 && self.ranges[at - 1].1.checked_add(1) == Some(seq);
        let joins_right = self.ranges.get(at).is_some_and(|&(start, _)| seq.checked_add(1) == Some(start));
        match (joins_left, joins_right) {
            (true, true) => {
                self.ranges[at - 1].1 = self.ranges[at].1;
                self.ranges.remove(at);
            }
            (true, false) => self.ranges[at - 1].1 = seq,
            (false, true) => self.ranges[at].0 = seq,
            (false, false) => self.ranges.insert(at, (seq, seq)),
        }
        if self.ranges.len() > RANGES_MAX {
            let (_, end) = self.ranges.remove(0);
            self.settled = self.settled.max(Some(end));
        }
        if let Some(settled) = self.settled {
            self.settle(settled);
        }
        true
    }

    /// Nothing more is expected up to `seq`.
    pub fn settle(&mut self, seq: Seq) {
        let settled = self.settled().max(seq);
        self.settled = Some(settled);
        let next = settled.saturating_add(1);
        let at = self.ranges.partition_point(|&(_, end)| end < next);
        if let Some(&(start, end)) = self.ranges.get(at)
            && start <= next
        {
            self.settled = Some(end);
        }
    }

    /// Whether a message before `seq` is missing. `settled` always reaches as far as it can.
    pub fn lacks_before(&self, seq: Seq) -> bool {
        self.settled.is_some_and(|settled| seq > settled.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_in_order_stays_one_range() {
        let mut seen = SeenSeqs::from(40);
        for seq in 41..10_000 {
            assert!(!seen.lacks_before(seq));
            assert!(seen.insert(seq));
            assert!(!seen.insert(seq));
        }
        assert_eq!(seen.settled(), 9_999);
        assert_eq!(seen.ranges, [(41, 9_999)]);
    }

    #[test]
    fn a_hole_holds_back_what_is_settled_until_it_closes() {
        let mut seen = SeenSeqs::from(0);
        assert!(seen.insert(1));
        assert!(seen.insert(4));
        assert_eq!(seen.settled(), 1);
        assert!(seen.lacks_before(6));
        assert!(seen.insert(3));
        assert!(seen.insert(2));
        assert_eq!(seen.settled(), 4);
        assert!(!seen.lacks_before(5));
        assert_eq!(seen.ranges, [(1, 4)]);
    }

    #[test]
    fn what_is_settled_without_being_received_is_still_new_when_it_comes() {
        let mut seen = SeenSeqs::from(50);
        assert!(seen.insert(51));
        assert!(seen.insert(49));
        assert!(!seen.insert(49));
        assert_eq!(seen.settled(), 51);
        seen.settle(60);
        assert!(seen.insert(55));
        assert_eq!(seen.settled(), 60);
    }

    #[test]
    fn own_messages_say_nothing_of_what_comes_before_them() {
        let mut seen = SeenSeqs::default();
        assert!(seen.insert(3));
        assert_eq!(seen.settled(), 0);
        assert!(!seen.lacks_before(9));
        seen.found(1);
        assert!(seen.lacks_before(3));
        assert!(seen.insert(2));
        assert_eq!(seen.settled(), 3);
        seen.found(7);
        assert_eq!(seen.settled(), 3, "what is known stays");
    }

    #[test]
    fn many_holes_stay_small() {
        let mut seen = SeenSeqs::from(0);
        for seq in (1..20_000).step_by(2) {
            seen.insert(seq);
        }
        assert_eq!(seen.ranges.len(), RANGES_MAX);
        assert!(!seen.insert(19_999));
    }

    #[test]
    fn the_ends_of_the_number_line_do_not_overflow() {
        let mut seen = SeenSeqs::from(Seq::MAX - 1);
        assert!(seen.insert(Seq::MAX));
        assert!(!seen.insert(Seq::MAX));
        assert!(!seen.lacks_before(Seq::MAX));
        seen.settle(Seq::MAX);
        assert!(seen.insert(0));
    }
}
