//! One who writes and one who receives. Each keeps account of what the server owes it and finds out what it broke.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use bluetick_client::{RawConnection, RawError};
use bluetick_protocol::{
    ClientFrame, ConversationId, ErrorCode, MessageFrame, Ref, Send, Seq, ServerFrame, Ticks, UserId,
};
use tokio::sync::oneshot;

use super::{
    connect::{PATIENCE, ack, plain_id},
    report::Latency,
};
use crate::cli::progress::Progress;

/// Frames taken in a row before answering them.
const BATCH: usize = 256;
/// How long a receiver that has everything listens for a message too many.
const AFTERMATH: Duration = Duration::from_millis(300);

/// What all pairs of a run have in common.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Makes the ids of this run different from those of any other.
    pub run: u64,
    /// The zero of all times in bodies.
    pub epoch: Instant,
    pub messages: u32,
    pub in_flight: usize,
    pub body_bytes: usize,
    pub send_until: Instant,
}

impl Plan {
    fn micros(&self) -> u64 {
        self.epoch.elapsed().as_micros() as u64
    }

    /// The body says which message it is and when it was sent.
    fn body(&self, n: u32) -> String {
        let mut body = format!("{n} {} ", self.micros());
        let padding = self.body_bytes.saturating_sub(body.len());
        body.extend(std::iter::repeat_n('x', padding));
        body
    }
}

/// When a message of this body was sent, and its number.
fn read_body(body: &str) -> Option<(u32, u64)> {
    let mut parts = body.split(' ');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

pub struct Sender {
    pub me: UserId,
    pub to: UserId,
    pub connection: RawConnection,
    pub plan: Plan,
    pub progress: Progress,
    next: u32,
    /// Refused for now, by their numbers.
    again: Vec<u32>,
    paused_until: Option<Instant>,
    unanswered: HashMap<u32, u64>,
    /// Stored and not yet ticked: when each was sent.
    unticked: BTreeMap<Seq, u64>,
    delivered: Seq,
    pub stored: u32,
    pub refused: u64,
    pub sent: Latency,
    pub ticked: Latency,
}

impl Sender {
    pub fn new(me: UserId, to: UserId, connection: RawConnection, plan: Plan, progress: Progress) -> Sender {
        Sender {
            me,
            to,
            connection,
            plan,
            progress,
            next: 0,
            again: Vec::new(),
            paused_until: None,
            unanswered: HashMap::new(),
            unticked: BTreeMap::new(),
            delivered: 0,
            stored: 0,
            refused: 0,
            sent: Latency::new(),
            ticked: Latency::new(),
        }
    }

    /// Sends until the plan is over and every send is answered.
    pub async fn send_all(&mut self) -> Result<(), String> {
        loop {
            self.fill().await.map_err(|e| self.failed(&e))?;
            if self.unanswered.is_empty() && self.paused_until.is_none() {
                return Ok(());
            }
            self.take_frames().await?;
        }
    }

    /// Waits until everything that was stored has its second tick.
    pub async fn await_ticks(&mut self) -> Result<(), String> {
        while !self.unticked.is_empty() {
            self.take_frames().await?;
        }
        Ok(())
    }

    /// Keeps as many sends under way as the plan says.
    async fn fill(&mut self) -> Result<(), RawError> {
        let now = Instant::now();
        if now >= self.plan.send_until {
            self.paused_until = None;
            return Ok(());
        }
        if self.paused_until.is_some_and(|until| now < until) {
            return Ok(());
        }
        self.paused_until = None;
        let mut fed = false;
        while self.unanswered.len() < self.plan.in_flight {
            let n = match self.again.pop() {
                Some(n) => n,
                None if self.next < self.plan.messages => {
                    self.next += 1;
                    self.next - 1
                }
                None => break,
            };
            let send = Send {
                reference: Some(Ref::Number(i64::from(n))),
                client_msg_id: plain_id(&format!("{:x}-{n}", self.plan.run)),
                to: Some(self.to.clone()),
                conversation_id: None,
                body: self.plan.body(n),
                attachment: None,
                meta: None,
                seen_seq: None,
            };
            self.unanswered.insert(n, self.plan.micros());
            self.connection.feed_frame(&ClientFrame::Send(send)).await?;
            fed = true;
        }
        if fed { self.connection.flush().await } else { Ok(()) }
    }

    async fn take_frames(&mut self) -> Result<(), String> {
        let mut wait = match self.paused_until {
            Some(until) => until.saturating_duration_since(Instant::now()).min(PATIENCE),
            None => PATIENCE,
        };
        for taken in 0..BATCH {
            match self.connection.next_frame(wait).await {
                Ok(frame) => self.take(frame)?,
                Err(RawError::Timeout) if taken > 0 || self.paused_until.is_some() => break,
                Err(e) => return Err(self.failed(&e)),
            }
            wait = Duration::ZERO;
        }
        Ok(())
    }

    fn take(&mut self, frame: ServerFrame) -> Result<(), String> {
        match frame {
            ServerFrame::Sent(sent) => {
                let begun = match sent.reference {
                    Some(Ref::Number(n)) => u32::try_from(n).ok().and_then(|n| self.unanswered.remove(&n)),
                    _ => None,
                };
                let Some(begun) = begun else {
                    return Err(format!("{}: a `sent` answers nothing that was asked: {sent:?}", self.me));
                };
                if sent.duplicate {
                    return Err(format!("{}: {} was taken for a duplicate", self.me, sent.client_msg_id));
                }
                self.stored += 1;
                self.sent.record(self.plan.micros() - begun);
                self.progress.step(1);
                self.unticked.insert(sent.seq, begun);
                self.tick();
            }
            ServerFrame::Ticks(Ticks { user_id, last_delivered_seq, .. }) if user_id == self.to => {
                self.delivered = self.delivered.max(last_delivered_seq);
                self.tick();
            }
            ServerFrame::Error(refusal) => {
                let n = match refusal.reference {
                    Some(Ref::Number(n)) => u32::try_from(n).ok().filter(|n| self.unanswered.contains_key(n)),
                    _ => None,
                };
                match (refusal.error.code, n) {
                    (ErrorCode::RateLimited, Some(n)) => {
                        self.unanswered.remove(&n);
                        self.again.push(n);
                        self.refused += 1;
                        let wait = Duration::from_millis(refusal.error.retry_after_ms.unwrap_or(100));
                        self.paused_until = Some(Instant::now() + wait);
                    }
                    _ => {
                        return Err(format!("{}: the server refused: {}", self.me, refusal.error.message));
                    }
                }
            }
            ServerFrame::Bye(bye) => return Err(format!("{} was sent away: {}", self.me, bye.reason)),
            _ => {}
        }
        Ok(())
    }

    fn tick(&mut self) {
        let now = self.plan.micros();
        while let Some(first) = self.unticked.first_entry()
            && *first.key() <= self.delivered
        {
            self.ticked.record(now - first.remove());
        }
    }

    fn failed(&self, e: &RawError) -> String {
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

pub struct Receiver {
    pub me: UserId,
    pub from: UserId,
    pub connection: RawConnection,
    plan: Plan,
    progress: Progress,
    seen: Vec<bool>,
    pub received: u32,
    last_seq: Option<Seq>,
    /// What the next ack says: everything up to here.
    unacked: Option<(ConversationId, Seq)>,
    pub violations: Vec<String>,
    pub latency: Latency,
}

impl Receiver {
    pub fn new(
        me: UserId,
        from: UserId,
        connection: RawConnection,
        plan: Plan,
        progress: Progress,
    ) -> Receiver {
        let seen = vec![false; plan.messages as usize];
        Receiver {
            me,
            from,
            connection,
            plan,
            progress,
            seen,
            received: 0,
            last_seq: None,
            unacked: None,
            violations: Vec::new(),
            latency: Latency::new(),
        }
    }

    /// Receives and acks until it has as many as were stored, which it learns when the sender knows.
    pub async fn receive_all(&mut self, mut stored: oneshot::Receiver<u32>) -> Result<(), String> {
        let mut owed = None;
        let mut patience = tokio::time::Instant::now() + PATIENCE;
        while owed.is_none_or(|owed| self.received < owed) {
            let frame = tokio::select! {
                biased;
                frame = self.connection.next_frame(2 * PATIENCE) => frame,
                count = &mut stored, if owed.is_none() => {
                    owed = Some(count.map_err(|_| format!("{}: the sender failed", self.me))?);
                    patience = tokio::time::Instant::now() + PATIENCE;
                    continue;
                }
                _ = tokio::time::sleep_until(patience), if owed.is_some() => Err(RawError::Timeout),
            };
            self.take(frame)?;
            for _ in 1..BATCH {
                match self.connection.next_frame(Duration::ZERO).await {
                    Err(RawError::Timeout) => break,
                    frame => self.take(frame)?,
                }
            }
            self.ack().await?;
            patience = tokio::time::Instant::now() + PATIENCE;
        }
        Ok(())
    }

    /// Listens a moment longer for what should not come.
    pub async fn listen_on(&mut self) -> Result<(), String> {
        loop {
            match self.connection.next_frame(AFTERMATH).await {
                Err(RawError::Timeout) => return Ok(()),
                frame => self.take(frame)?,
            }
        }
    }

    fn take(&mut self, frame: Result<ServerFrame, RawError>) -> Result<(), String> {
        match frame {
            Ok(ServerFrame::Message(message)) => self.check(message),
            Ok(ServerFrame::Bye(bye)) => return Err(format!("{} was sent away: {}", self.me, bye.reason)),
            Ok(_) => {}
            Err(RawError::Timeout) => {
                return Err(format!(
                    "{}: nothing came for {} s; it has {} messages of {}",
                    self.me,
                    PATIENCE.as_secs(),
                    self.received,
                    self.from
                ));
            }
            Err(e) => return Err(format!("{}: {e}", self.me)),
        }
        Ok(())
    }

    fn check(&mut self, message: MessageFrame) {
        let now = self.plan.micros();
        let (me, seq) = (&self.me, message.seq);
        if message.sender != self.from {
            self.violations.push(format!("{me} got a message of {}", message.sender));
            return;
        }
        if self.last_seq.is_some_and(|last| seq != last + 1) {
            let last = self.last_seq.unwrap_or_default();
            self.violations.push(format!("{me} got {seq} after {last} of {}", message.conversation_id));
        }
        self.last_seq = Some(seq);
        self.unacked = Some((message.conversation_id, seq));
        let run = format!("{:x}-", self.plan.run);
        let read = read_body(&message.body).filter(|_| message.client_msg_id.as_str().starts_with(&run));
        match read.map(|(n, begun)| (self.seen.get_mut(n as usize), n, begun)) {
            Some((Some(seen), n, begun)) => {
                if std::mem::replace(seen, true) {
                    self.violations.push(format!("{me} got message {n} of {} twice", self.from));
                    return;
                }
                self.received += 1;
                self.latency.record(now.saturating_sub(begun));
                self.progress.step(1);
            }
            _ => self.violations.push(format!("{me} got a message that was not sent in this run")),
        }
    }

    async fn ack(&mut self) -> Result<(), String> {
        match self.unacked.take() {
            None => Ok(()),
            Some((conversation_id, seq)) => {
                let sent = self.connection.send_frame(&ack(conversation_id, seq)).await;
                sent.map_err(|e| format!("{}: {e}", self.me))
            }
        }
    }
}
