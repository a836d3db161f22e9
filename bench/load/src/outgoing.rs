//! What a sender has sent, what was answered and what was ticked; and what the server broke of it.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use bluetick_client::RawError;
use bluetick_protocol::{ErrorCode, ErrorFrame, Ref, Seq, ServerFrame};

use super::{
    frames::{self, Frame},
    patience::PATIENCE,
    plan::{Pace, SharedPlan},
};
use crate::progress::Progress;

/// What was sent, answered and ticked.
pub struct Books {
    pub me: String,
    pub to: String,
    pair: u32,
    pub plan: SharedPlan,
    progress: Progress,
    /// How many it sends, if there is time.
    messages: u32,
    next: u32,
    /// Refused for now, by their numbers, with the moments that they count from.
    again: VecDeque<(u32, u64)>,
    pub paused_until: Option<Instant>,
    unanswered: HashMap<u32, u64>,
    last_answered: Option<u32>,
    /// Stored and not yet ticked, in order: when each was sent.
    pub unticked: VecDeque<(Seq, u64)>,
    last_seq: Option<Seq>,
    delivered: Seq,
    pub stored: u32,
    pub refused: u64,
    /// Messages that left later than at their moment because too many were unanswered.
    pub held_back: u64,
    /// There was no room at the moments of messages before this one.
    no_room_before: u32,
    pub violations: Vec<String>,
}

impl Books {
    pub fn new(me: String, to: String, pair: u32, plan: SharedPlan, progress: Progress) -> Books {
        Books {
            me,
            to,
            pair,
            messages: plan.messages_of(pair),
            plan,
            progress,
            next: 0,
            again: VecDeque::new(),
            paused_until: None,
            unanswered: HashMap::new(),
            last_answered: None,
            unticked: VecDeque::new(),
            last_seq: None,
            delivered: 0,
            stored: 0,
            refused: 0,
            held_back: 0,
            no_room_before: 0,
            violations: Vec::new(),
        }
    }

    /// A message before the first was stored and ticked under this seq.
    pub fn begin_after(&mut self, seq: Seq) {
        self.last_seq = Some(seq);
        self.delivered = seq;
    }

    /// Whether all was sent that will be, and answered.
    pub fn is_done(&self) -> bool {
        if !self.unanswered.is_empty() {
            return false;
        }
        let all_sent = self.again.is_empty() && self.next >= self.messages;
        all_sent || self.is_over(self.plan.micros())
    }

    pub fn awaits_answers(&self) -> bool {
        !self.unanswered.is_empty()
    }

    fn is_over(&self, now: u64) -> bool {
        now >= self.plan.send_until().as_micros() as u64
    }

    pub fn ticked(&self) -> u32 {
        self.stored - self.unticked.len() as u32
    }

    /// Messages that had their moment and were never sent.
    pub fn unsent(&self) -> u64 {
        match self.plan.pace {
            Pace::InFlight(_) => 0,
            Pace::At(_) => u64::from(self.messages - self.next) + self.again.len() as u64,
        }
    }

    /// The next send, if there is one to be written now.
    pub fn next_send(&mut self) -> Option<String> {
        let now = self.plan.micros();
        if self.is_over(now) || self.paused_until.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        self.paused_until = None;
        if self.unanswered.len() >= self.plan.in_flight() {
            if let Pace::At(schedule) = self.plan.pace {
                self.no_room_before = schedule.due(self.pair, now);
            }
            return None;
        }
        let (n, begun) = self.again.pop_front().or_else(|| self.next_message(now))?;
        self.unanswered.insert(n, begun);
        Some(frames::send(n, self.plan.run, &self.to, begun, self.plan.body_bytes))
    }

    /// The number of the next message, and the time that it counts from.
    fn next_message(&mut self, now: u64) -> Option<(u32, u64)> {
        if self.next >= self.messages {
            return None;
        }
        let n = self.next;
        let begun = match self.plan.pace {
            Pace::InFlight(_) => now,
            Pace::At(schedule) => Some(schedule.moment(self.pair, n)).filter(|moment| *moment <= now)?,
        };
        self.next += 1;
        self.plan.meters.left.record(now, now - begun);
        self.held_back += u64::from(n < self.no_room_before);
        Some((n, begun))
    }

    pub fn take(&mut self, text: &str) -> Result<(), String> {
        match frames::read(text)? {
            Frame::Sent(sent) => self.answered(&sent),
            Frame::Ticks(ticks) if ticks.user_id == self.to => {
                self.delivered = self.delivered.max(ticks.last_delivered_seq);
                self.tick();
                Ok(())
            }
            Frame::Other(other) => match *other {
                ServerFrame::Error(refusal) => self.refused(&refusal),
                ServerFrame::Bye(bye) => Err(format!("{} was sent away: {}", self.me, bye.reason)),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn answered(&mut self, sent: &frames::Sent<'_>) -> Result<(), String> {
        let Some((n, begun)) = sent.n.and_then(|n| self.unanswered.remove_entry(&n)) else {
            return Err(format!("{}: a `sent` answers nothing that was asked: {sent:?}", self.me));
        };
        if sent.duplicate {
            return Err(format!("{}: {} was taken for a duplicate", self.me, sent.client_msg_id));
        }
        let (me, seq) = (&self.me, sent.seq);
        if let Some(last) = self.last_seq.filter(|last| seq != last + 1) {
            self.violations.push(format!("{me} was told that {seq} is stored after {last}"));
        }
        // What was refused once takes its place behind others.
        if self.refused == 0 && self.last_answered.map_or(0, |last| last + 1) != n {
            self.violations.push(format!("{me}: message {n} was not stored in the order it was sent in"));
        }
        self.last_seq = Some(seq);
        self.last_answered = Some(n);
        self.stored += 1;
        let now = self.plan.micros();
        self.plan.meters.sent.record(now, now - begun);
        self.progress.step(1);
        self.unticked.push_back((seq, begun));
        self.tick();
        Ok(())
    }

    fn refused(&mut self, refusal: &ErrorFrame) -> Result<(), String> {
        let n = match refusal.reference {
            Some(Ref::Number(n)) => u32::try_from(n).ok(),
            _ => None,
        };
        let asked = n.and_then(|n| self.unanswered.remove_entry(&n));
        match (refusal.error.code, asked) {
            (ErrorCode::RateLimited, Some(asked)) => {
                self.again.push_back(asked);
                self.refused += 1;
                let wait = Duration::from_millis(refusal.error.retry_after_ms.unwrap_or(100));
                self.paused_until = Some(Instant::now() + wait);
                Ok(())
            }
            _ => Err(format!("{}: the server refused: {}", self.me, refusal.error.message)),
        }
    }

    fn tick(&mut self) {
        let now = self.plan.micros();
        while let Some(&(seq, begun)) = self.unticked.front()
            && seq <= self.delivered
        {
            self.unticked.pop_front();
            self.plan.meters.ticked.record(now, now - begun);
        }
    }

    /// What can be said only at the end, when every tick has come.
    pub fn check_ticks(&mut self) {
        let last = self.last_seq.unwrap_or(self.delivered);
        if self.delivered > last {
            let (me, delivered) = (&self.me, self.delivered);
            self.violations.push(format!("{me} got a tick for {delivered}, and {last} is the last it sent"));
        }
    }

    pub fn failed(&self, e: &RawError) -> String {
        match e {
            RawError::Timeout => format!(
                "{}: nothing came for {} s, with {} sends unanswered and {} stored but not ticked",
                self.me,
                PATIENCE.as_secs(),
                self.unanswered.len(),
                self.unticked.len()
            ),
            other => format!("{}: {other}", self.me),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan, schedule::Schedule};

    fn books(pace: Pace) -> Books {
        Books::new("bench-0".into(), "bench-1".into(), 0, plan::for_tests(pace), Progress::hidden())
    }

    fn sent(n: u32, seq: Seq) -> String {
        format!(
            r#"{{"type":"sent","ref":{n},"client_msg_id":"ab-{n}","conversation_id":"bench-0~bench-1","seq":{seq},"message_id":"1","ts":1,"duplicate":false}}"#
        )
    }

    fn ticks(seq: Seq) -> String {
        format!(
            r#"{{"type":"ticks","conversation_id":"bench-0~bench-1","user_id":"bench-1","last_delivered_seq":{seq},"last_read_seq":0}}"#
        )
    }

    #[test]
    fn only_so_many_are_in_flight() {
        let mut books = books(Pace::InFlight(2));
        assert!(books.next_send().is_some() && books.next_send().is_some());
        assert!(books.next_send().is_none(), "two are unanswered");
        books.take(&sent(0, 1)).unwrap();
        assert!(books.next_send().is_some_and(|text| text.contains("\"ref\":2")));
        assert_eq!((books.stored, books.held_back, books.unsent()), (1, 0, 0));
    }

    #[test]
    fn a_message_counts_from_its_moment_and_not_from_when_there_was_time_for_it() {
        let mut books = books(Pace::At(Schedule { rate: 100, pairs: 2 }));
        // A second has passed, and nothing was sent in it.
        for n in 0..50 {
            let text = books.next_send().unwrap();
            assert!(text.contains(&format!("\"body\":\"{n} {} x", n * 20_000)), "{text}");
        }
        books.take(&sent(0, 1)).unwrap();
        assert!(books.plan.meters.sent.summary().max_ms >= 1000.0, "the first is late by all of that second");
        assert!(books.plan.meters.left.summary().max_ms >= 1000.0);
    }

    #[test]
    fn a_server_that_is_too_far_behind_is_said_to_be() {
        let mut books = books(Pace::At(Schedule { rate: 10_000, pairs: 1 }));
        books.messages = 10_000;
        while books.next_send().is_some() {}
        assert_eq!(books.unanswered.len(), plan::BEHIND);
        assert_eq!(books.held_back, 0, "they left late, and not for want of room");
        (0..10).for_each(|n| books.take(&sent(n, Seq::from(n) + 1)).unwrap());
        while books.next_send().is_some() {}
        assert_eq!(books.held_back, 10);
        assert_eq!(books.unsent(), 10_000 - 1010, "if it ended here");
    }

    #[test]
    fn ticks_may_come_before_the_answer_and_cover_all_before_them() {
        let mut books = books(Pace::InFlight(8));
        (0..3).for_each(|_| assert!(books.next_send().is_some()));
        books.take(&sent(0, 5)).unwrap();
        books.take(&ticks(6)).unwrap();
        assert_eq!(books.ticked(), 1);
        books.take(&sent(1, 6)).unwrap();
        books.take(&sent(2, 7)).unwrap();
        assert_eq!((books.ticked(), books.unticked.len()), (2, 1));
        books.take(&ticks(7)).unwrap();
        books.check_ticks();
        assert_eq!((books.ticked(), books.violations.as_slice()), (3, &[][..]));
        books.take(&ticks(8)).unwrap();
        books.check_ticks();
        assert_eq!(books.violations.len(), 1, "nobody sent that: {:?}", books.violations);
    }

    #[test]
    fn answers_that_break_the_order_are_found() {
        let mut gap = books(Pace::InFlight(8));
        (0..3).for_each(|_| assert!(gap.next_send().is_some()));
        gap.take(&sent(0, 1)).unwrap();
        gap.take(&sent(1, 3)).unwrap();
        assert_eq!(gap.violations.len(), 1, "{:?}", gap.violations);
        assert!(gap.take(&sent(1, 4)).is_err(), "answered twice");

        let mut swapped = books(Pace::InFlight(8));
        (0..3).for_each(|_| assert!(swapped.next_send().is_some()));
        swapped.take(&sent(1, 1)).unwrap();
        assert_eq!(swapped.violations.len(), 1, "{:?}", swapped.violations);
    }

    #[test]
    fn what_is_put_off_is_sent_again() {
        let mut books = books(Pace::InFlight(1));
        assert!(books.next_send().is_some());
        let refusal = r#"{"type":"error","ref":0,"code":"rate_limited","message":"slow","retry_after_ms":0}"#;
        books.take(refusal).unwrap();
        assert!(books.next_send().is_some_and(|text| text.contains("\"ref\":0")));
        assert_eq!(books.refused, 1);
        assert!(books.take(r#"{"type":"error","ref":0,"code":"internal","message":"no"}"#).is_err());
    }
}
