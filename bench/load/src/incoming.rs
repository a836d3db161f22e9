//! What a receiver got, and what was wrong with it: every message must come once and in order.

use bluetick_client::RawError;
use bluetick_protocol::{CaughtUp, Seq, ServerFrame};

use super::{
    frames::{self, Frame, Message},
    patience::PATIENCE,
    plan::SharedPlan,
};
use crate::progress::Progress;

/// Where the messages come from, and with that, what their latency is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Straight from the sender: counted from when they were sent.
    Live,
    /// Of this run, kept while the receiver was away: counted from when it came back, in microseconds.
    Kept { since: u64 },
    /// The same, of whatever runs there were.
    Left { since: u64 },
}

/// What came, and what was wrong with it.
pub struct Books {
    pub me: String,
    pub from: String,
    pub plan: SharedPlan,
    progress: Progress,
    source: Source,
    run: String,
    seen: Vec<bool>,
    last_n: Option<u32>,
    /// Messages that came before one with a lower number: fine only if the server had put some off.
    pub out_of_order: u64,
    pub received: u32,
    pub conversation: String,
    pub last_seq: Option<Seq>,
    pub unacked: Vec<Seq>,
    pub caught_up: bool,
    /// The server has answered an ack that asked for it.
    pub acked: bool,
    pub violations: Vec<String>,
}

impl Books {
    pub fn new(me: String, from: String, source: Source, plan: SharedPlan, progress: Progress) -> Books {
        Books {
            me,
            from,
            source,
            run: format!("{:x}-", plan.run),
            plan,
            progress,
            seen: Vec::new(),
            last_n: None,
            out_of_order: 0,
            received: 0,
            conversation: String::new(),
            last_seq: None,
            unacked: Vec::new(),
            caught_up: false,
            acked: false,
            violations: Vec::new(),
        }
    }

    /// A message before the first has come under this seq.
    pub fn begin_after(&mut self, seq: Seq) {
        self.last_seq = Some(seq);
    }

    pub fn take(&mut self, text: &str) -> Result<(), String> {
        match frames::read(text)? {
            Frame::Message(message) => self.check(&message),
            Frame::Other(other) => match *other {
                ServerFrame::CaughtUp(end) => self.check_end(&end),
                ServerFrame::Done(_) => self.acked = true,
                ServerFrame::Bye(bye) => return Err(format!("{} was sent away: {}", self.me, bye.reason)),
                ServerFrame::Error(e) => {
                    return Err(format!("{}: the server refused: {}", self.me, e.error.message));
                }
                _ => {}
            },
            _ => {}
        }
        Ok(())
    }

    fn check(&mut self, message: &Message<'_>) {
        let (me, seq) = (&self.me, message.seq);
        if message.sender != self.from {
            self.violations.push(format!("{me} got a message of {}", message.sender));
            return;
        }
        if self.conversation.is_empty() {
            self.conversation = message.conversation_id.clone().into_owned();
        }
        if message.conversation_id != self.conversation {
            self.violations.push(format!("{me} got a message in {}", message.conversation_id));
            return;
        }
        if let Some(last) = self.last_seq.filter(|last| seq != last + 1) {
            self.violations.push(format!("{me} got {seq} after {last} of {}", self.conversation));
        }
        self.last_seq = Some(seq);
        self.unacked.push(seq);
        let begun = match self.source {
            Source::Live => self.check_run(message),
            Source::Kept { since } => self.check_run(message).map(|_| since),
            Source::Left { since } => Some(since),
        };
        if let Some(begun) = begun {
            let now = self.plan.micros();
            self.plan.meters.received.record(now, now.saturating_sub(begun));
            self.received += 1;
            self.progress.step(1);
        }
    }

    /// Whether this message was sent in this run and has not come before; and when it was sent.
    fn check_run(&mut self, message: &Message<'_>) -> Option<u64> {
        let me = &self.me;
        let ours = message.client_msg_id.starts_with(&self.run);
        let Some((n, begun)) = frames::read_body(&message.body).filter(|_| ours) else {
            self.violations.push(format!("{me} got a message that was not sent in this run"));
            return None;
        };
        if self.seen.len() <= n as usize {
            self.seen.resize(n as usize + 1, false);
        }
        if std::mem::replace(&mut self.seen[n as usize], true) {
            self.violations.push(format!("{me} got message {n} of {} twice", self.from));
            return None;
        }
        self.out_of_order += u64::from(self.last_n.is_some_and(|last| n < last));
        self.last_n = Some(n);
        Some(begun)
    }

    fn check_end(&mut self, end: &CaughtUp) {
        self.caught_up = true;
        let head = end.heads.iter().find(|head| head.conversation_id.as_str() == self.conversation);
        if let (Some(last), Some(head)) = (self.last_seq, head)
            && head.last_seq != last
        {
            let (me, head) = (&self.me, head.last_seq);
            self.violations
                .push(format!("{me} was told of {head} as the last message, and {last} came last"));
        }
    }

    pub fn failed(&self, e: &RawError) -> String {
        match e {
            RawError::Timeout => format!(
                "{}: nothing came for {} s; it has {} messages of {}",
                self.me,
                PATIENCE.as_secs(),
                self.received,
                self.from
            ),
            other => format!("{}: {other}", self.me),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan, plan::Pace};

    fn books(source: Source) -> Books {
        let plan = plan::for_tests(Pace::InFlight(1));
        Books::new("bench-1".into(), "bench-0".into(), source, plan, Progress::hidden())
    }

    fn message(n: u32, seq: Seq) -> String {
        format!(
            r#"{{"type":"message","conversation_id":"bench-0~bench-1","seq":{seq},"message_id":"1","client_msg_id":"ab-{n}","sender":"bench-0","receiver":"bench-1","body":"{n} 1000 xxx","ts":1}}"#
        )
    }

    fn after(source: Source, texts: &[String]) -> Books {
        let mut books = books(source);
        texts.iter().for_each(|text| books.take(text).unwrap());
        books
    }

    #[test]
    fn what_comes_once_and_in_order_is_fine_and_each_is_to_be_acked() {
        let books = after(Source::Live, &[message(0, 7), message(1, 8), message(2, 9)]);
        assert_eq!((books.received, books.out_of_order, books.violations.len()), (3, 0, 0));
        assert_eq!(books.unacked, [7, 8, 9]);
        assert!(books.plan.meters.received.summary().p50_ms >= 999.0, "counted from what the body says");
    }

    #[test]
    fn what_the_server_breaks_is_found() {
        let twice = after(Source::Live, &[message(0, 1), message(0, 2)]);
        assert!(twice.violations[0].contains("twice"), "{:?}", twice.violations);
        assert_eq!(twice.received, 1);
        let again = after(Source::Live, &[message(0, 1), message(1, 2), message(1, 2)]);
        assert_eq!(again.violations.len(), 2, "a seq again, a message again: {:?}", again.violations);
        let gap = after(Source::Live, &[message(0, 1), message(1, 3)]);
        assert!(gap.violations[0].contains("3 after 1"), "{:?}", gap.violations);
        let swapped = after(Source::Live, &[message(1, 1), message(0, 2)]);
        assert_eq!(swapped.out_of_order, 1);
        let stranger = after(Source::Live, &[message(0, 1).replace("bench-0\"", "mallory\"")]);
        assert_eq!((stranger.received, stranger.violations.len()), (0, 1));
        let earlier = after(Source::Live, &[message(0, 1).replace("ab-0", "aa-0")]);
        assert!(earlier.violations[0].contains("not sent in this run"), "{:?}", earlier.violations);
    }

    #[test]
    fn what_was_left_may_be_of_any_run_and_must_be_whole() {
        let since = Source::Left { since: 0 };
        let end = |last: Seq| {
            format!(
                r#"{{"type":"caught_up","cursor":"9","heads":[{{"conversation_id":"bench-0~bench-1","last_seq":{last}}}]}}"#
            )
        };
        let left = [message(8, 4).replace("ab-", "1-"), message(0, 5).replace("ab-", "2-")];
        let whole = after(since, &[left.to_vec(), vec![end(5)]].concat());
        assert!(whole.caught_up && whole.violations.is_empty(), "{:?}", whole.violations);
        assert_eq!(whole.received, 2);
        let cut = after(since, &[left.to_vec(), vec![end(6)]].concat());
        assert!(cut.violations[0].contains("6 as the last"), "{:?}", cut.violations);
        assert!(after(Source::Kept { since: 0 }, &left).violations.len() == 2, "those are of other runs");
    }
}
