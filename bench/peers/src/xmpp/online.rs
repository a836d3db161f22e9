//! Both of a pair are there: one writes, the other answers each message with a receipt (XEP-0184).

use std::{
    collections::VecDeque,
    fmt::Write as _,
    time::{Duration, Instant},
};

use tokio::time::timeout;

use super::{
    Account, HOST, Latency, PATIENCE, RESOURCE, Target, all, body,
    client::Client,
    complaints, log_in, receiver_of, sender_of,
    stanza::{attribute, element, text_of},
};
use crate::results::{Stage, StageClock};

/// A closed loop: `in_flight` messages of each pair wait for their receipt until the time is over.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub pairs: u32,
    pub in_flight: usize,
    pub body_bytes: usize,
    /// To one device of the receiver's, and not to the receiver, whom the server must look up.
    pub full_addresses: bool,
    pub duration: Duration,
}

pub async fn online(target: Target, plan: Plan) -> Result<Stage, String> {
    let mut receivers = log_in(target, (0..plan.pairs).map(receiver_of)).await?;
    let mut senders = log_in(target, (0..plan.pairs).map(sender_of)).await?;
    for client in receivers.iter_mut().chain(&mut senders) {
        client.appear();
        client.round_trip(|_| ()).await?;
    }
    let epoch = Instant::now();
    let clock = StageClock::start(target.tree);
    let pairs = senders.into_iter().zip(receivers);
    let pairs = all(pairs.map(|(sender, receiver)| Pair::new(sender, receiver, plan, epoch).chat())).await?;
    let mut stage = clock.stop(pairs.iter().map(|pair| pair.receipted).sum());

    let (mut received, mut receipted) = (Latency::default(), Latency::default());
    let mut accounts = Vec::with_capacity(pairs.len());
    let mut sent = 0;
    for pair in pairs {
        received.add(&pair.to_receive);
        receipted.add(&pair.to_receipt);
        sent += u64::from(pair.next);
        if pair.errors > 0 {
            stage.complaints.push(format!("{} got {} errors", pair.sender.user, pair.errors));
        }
        accounts.push(pair.account);
    }
    stage.to_receive = Some(received.summary());
    stage.to_receipt = Some(receipted.summary());
    stage.complaints.extend(complaints(sent, &accounts));
    if stage.messages < sent {
        stage.complaints.push(format!("{} of {sent} receipts were lost", sent - stage.messages));
    }
    Ok(stage)
}

struct Pair {
    sender: Client,
    receiver: Client,
    plan: Plan,
    epoch: Instant,
    next: u32,
    /// Sent and without a receipt: number and time of each.
    waiting: VecDeque<(u32, u64)>,
    receipted: u64,
    errors: u64,
    account: Account,
    to_receive: Latency,
    to_receipt: Latency,
}

impl Pair {
    fn new(sender: Client, receiver: Client, plan: Plan, epoch: Instant) -> Pair {
        Pair {
            sender,
            receiver,
            plan,
            epoch,
            next: 0,
            waiting: VecDeque::new(),
            receipted: 0,
            errors: 0,
            account: Account::default(),
            to_receive: Latency::default(),
            to_receipt: Latency::default(),
        }
    }

    fn micros(&self) -> u64 {
        self.epoch.elapsed().as_micros() as u64
    }

    async fn chat(mut self) -> Result<Pair, String> {
        loop {
            if self.epoch.elapsed() < self.plan.duration {
                self.write_messages();
                self.sender.flush().await?;
            } else if self.waiting.is_empty() {
                return Ok(self);
            }
            let read = async {
                tokio::select! {
                    read = self.sender.read() => read,
                    read = self.receiver.read() => read,
                }
            };
            match timeout(PATIENCE, read).await {
                Ok(read) => read?,
                // What is missing is said in the end.
                Err(_) => return Ok(self),
            }
            self.take_messages()?;
            self.receiver.flush().await?;
            self.take_receipts()?;
        }
    }

    /// As many as may be under way.
    fn write_messages(&mut self) {
        while self.waiting.len() < self.plan.in_flight {
            let (n, now) = (self.next, self.micros());
            let (to, body) = (&self.receiver.user, body(n, now, self.plan.body_bytes));
            let resource = if self.plan.full_addresses { format!("/{RESOURCE}") } else { String::new() };
            // Writing to a string cannot fail.
            let _ = write!(
                self.sender.out,
                "<message to='{to}@{HOST}{resource}' type='chat' id='{n}'><body>{body}</body>\
                 <request xmlns='urn:xmpp:receipts'/></message>"
            );
            self.next += 1;
            self.waiting.push_back((n, now));
        }
    }

    /// The receiver's side: each message is checked and answered.
    fn take_messages(&mut self) -> Result<(), String> {
        let mut receipts = String::new();
        let now = self.micros();
        while let Some(stanza) = self.receiver.next()? {
            if !stanza.starts_with("<message") {
                continue;
            }
            let Some((n, begun)) = self.account.take(text_of(stanza, "body")) else {
                continue;
            };
            self.to_receive.record(now.saturating_sub(begun));
            let _ = write!(
                receipts,
                "<message to='{}@{HOST}/{RESOURCE}' type='chat' id='r{n}'>\
                 <received xmlns='urn:xmpp:receipts' id='{n}'/></message>",
                self.sender.user
            );
        }
        self.receiver.out.push_str(&receipts);
        Ok(())
    }

    /// The sender's side: a message is done when its receipt is here.
    fn take_receipts(&mut self) -> Result<(), String> {
        let now = self.micros();
        while let Some(stanza) = self.sender.next()? {
            if !stanza.starts_with("<message") {
                continue;
            }
            let receipt = element(stanza, "received").and_then(|received| attribute(received, "id"));
            let Some(n) = receipt.and_then(|id| id.parse::<u32>().ok()) else {
                self.errors += 1;
                continue;
            };
            if let Some(at) = self.waiting.iter().position(|(waiting, _)| *waiting == n)
                && let Some((_, begun)) = self.waiting.remove(at)
            {
                self.receipted += 1;
                self.to_receipt.record(now.saturating_sub(begun));
            }
        }
        Ok(())
    }
}
