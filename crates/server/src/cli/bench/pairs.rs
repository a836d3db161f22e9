//! The two ways in which pairs are put to work: both connected, or the receiver away while the sender writes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bluetick_store::{Clock, SystemClock};
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::{sync::oneshot, task::JoinSet};

use super::{
    BenchOptions,
    connect::{self, Server, user},
    pair::{Plan, Receiver, Sender},
    process::{MemoryWatch, Process},
    report::{ChatReport, Latency, Load, OfflineReport, Stage},
};
use crate::cli::progress::Progress;

/// Users that come back at a time.
const RETURNING_AT_ONCE: usize = 64;

impl BenchOptions {
    fn plan(&self) -> Plan {
        let now = Instant::now();
        Plan {
            run: SystemClock.now_ms(),
            epoch: now,
            messages: self.messages,
            in_flight: self.in_flight as usize,
            body_bytes: self.body_bytes as usize,
            send_until: now + Duration::from_secs(self.duration.into()),
        }
    }

    fn load(&self) -> Load {
        Load {
            pairs: self.pairs,
            messages_per_sender: self.messages,
            in_flight: self.in_flight,
            body_bytes: self.body_bytes,
        }
    }

    fn most(&self) -> u64 {
        u64::from(self.pairs) * u64::from(self.messages)
    }
}

fn sender_of(pair: u32) -> u32 {
    2 * pair
}

fn receiver_of(pair: u32) -> u32 {
    2 * pair + 1
}

pub async fn chat(
    server: &Arc<Server>,
    options: &BenchOptions,
    process: Option<Process>,
) -> Result<ChatReport, String> {
    let memory = MemoryWatch::start(process);
    let progress = Progress::start("connected", u64::from(options.pairs) * 2);
    let pairs = 0..options.pairs;
    let receivers = server.join_all(pairs.clone().map(|p| user(receiver_of(p))), || progress.step(1)).await?;
    let senders = server.join_all(pairs.clone().map(|p| user(sender_of(p))), || progress.step(1)).await?;
    drop(progress);

    let progress = Progress::start("delivered", options.most());
    let plan = options.plan();
    let clock = StageClock::start(process);
    let (mut sending, mut receiving) = (JoinSet::new(), JoinSet::new());
    for (pair, (to, from)) in pairs.zip(receivers.into_iter().zip(senders)) {
        let (sender, receiver) = (user(sender_of(pair)), user(receiver_of(pair)));
        let (told, stored) = oneshot::channel();
        let mut receives =
            Receiver::new(receiver.clone(), sender.clone(), to, plan.clone(), progress.clone());
        let mut sends = Sender::new(sender, receiver, from, plan.clone(), Progress::hidden());
        receiving.spawn(async move { receives.receive_all(stored).await.map(|()| receives) });
        sending.spawn(async move {
            sends.send_all().await?;
            // Nobody listens only if the receiver failed, and then its error is the one to show.
            let _ = told.send(sends.stored);
            sends.await_ticks().await.map(|()| sends)
        });
    }
    let (senders, receivers) = tokio::try_join!(all(sending), all(receiving))?;
    let messages = senders.iter().map(|s| u64::from(s.stored)).sum();
    let chat = clock.stop(messages);
    drop(progress);
    let mut outcome = Outcome::default();
    outcome.add_senders(&senders);
    let receivers = listen_on(receivers).await?;
    outcome.add_receivers(&receivers);
    leave(senders, receivers).await;
    Ok(ChatReport {
        load: options.load(),
        chat,
        send_to_sent: outcome.sent.summary(),
        send_to_receive: outcome.received.summary(),
        send_to_tick: outcome.ticked.summary(),
        memory: memory.stop().await,
        rate_limited: outcome.rate_limited,
        violations: outcome.violations,
    })
}

pub async fn offline(
    server: &Arc<Server>,
    options: &BenchOptions,
    process: Option<Process>,
) -> Result<OfflineReport, String> {
    let memory = MemoryWatch::start(process);
    let pairs = 0..options.pairs;
    let progress = Progress::start("connected", u64::from(options.pairs) * 2);
    // They take what an earlier run left for them, and go.
    let receivers = server.join_all(pairs.clone().map(|p| user(receiver_of(p))), || progress.step(1)).await?;
    connect::close_all(receivers).await;
    let senders = server.join_all(pairs.clone().map(|p| user(sender_of(p))), || progress.step(1)).await?;
    drop(progress);

    let progress = Progress::start("stored", options.most());
    let plan = options.plan();
    let clock = StageClock::start(process);
    let mut sending = JoinSet::new();
    for (pair, connection) in pairs.zip(senders) {
        let (me, to) = (user(sender_of(pair)), user(receiver_of(pair)));
        let mut sends = Sender::new(me, to, connection, plan.clone(), progress.clone());
        sending.spawn(async move { sends.send_all().await.map(|()| sends) });
    }
    let mut senders = all(sending).await?;
    let messages = senders.iter().map(|s| u64::from(s.stored)).sum();
    let store = clock.stop(messages);
    drop(progress);

    let progress = Progress::start("drained", messages);
    let clock = StageClock::start(process);
    let owed: Vec<_> = senders.iter().map(|s| (s.to.clone(), s.me.clone(), s.stored)).collect();
    let draining = owed.into_iter().map(|(me, from, stored)| {
        let (plan, progress) = (plan.clone(), progress.clone());
        async move {
            let connection = server.hello(&me).await?;
            let mut receives = Receiver::new(me, from, connection, plan, progress);
            let (told, owed) = oneshot::channel();
            let _ = told.send(stored);
            receives.receive_all(owed).await?;
            Ok::<_, String>(receives)
        }
    });
    let receivers: Vec<_> = stream::iter(draining).buffer_unordered(RETURNING_AT_ONCE).try_collect().await?;
    let drain = clock.stop(messages);
    drop(progress);
    for sender in &mut senders {
        sender.await_ticks().await?;
    }
    let mut outcome = Outcome::default();
    outcome.add_senders(&senders);
    let receivers = listen_on(receivers).await?;
    outcome.add_receivers(&receivers);
    leave(senders, receivers).await;
    Ok(OfflineReport {
        load: options.load(),
        store,
        drain,
        send_to_sent: outcome.sent.summary(),
        memory: memory.stop().await,
        rate_limited: outcome.rate_limited,
        violations: outcome.violations,
    })
}

/// How long a stage takes, and what it costs the server.
struct StageClock {
    begun: Instant,
    process: Option<Process>,
    cpu: Option<Duration>,
}

impl StageClock {
    fn start(process: Option<Process>) -> StageClock {
        StageClock { begun: Instant::now(), process, cpu: process.and_then(|p| p.cpu()) }
    }

    fn stop(self, messages: u64) -> Stage {
        let seconds = self.begun.elapsed().as_secs_f64();
        let cpu_now = self.process.and_then(|p| p.cpu());
        let spent = cpu_now.zip(self.cpu).map(|(now, before)| now.saturating_sub(before));
        let count = messages.max(1) as f64;
        Stage {
            messages,
            seconds,
            messages_per_second: messages as f64 / seconds.max(1e-9),
            server_cpu_micros_per_message: spent.map(|spent| spent.as_secs_f64() * 1e6 / count),
        }
    }
}

#[derive(Default)]
struct Outcome {
    sent: Latency,
    ticked: Latency,
    received: Latency,
    rate_limited: u64,
    violations: Vec<String>,
}

impl Outcome {
    fn add_senders(&mut self, senders: &[Sender]) {
        for sender in senders {
            self.sent.add(&sender.sent);
            self.ticked.add(&sender.ticked);
            self.rate_limited += sender.refused;
        }
    }

    fn add_receivers(&mut self, receivers: &[Receiver]) {
        for receiver in receivers {
            self.received.add(&receiver.latency);
            self.violations.extend(receiver.violations.iter().cloned());
        }
    }
}

/// Waits for all of them; the first that fails ends the others.
async fn all<T: 'static>(mut tasks: JoinSet<Result<T, String>>) -> Result<Vec<T>, String> {
    let mut done = Vec::with_capacity(tasks.len());
    while let Some(task) = tasks.join_next().await {
        done.push(task.map_err(|e| e.to_string())??);
    }
    Ok(done)
}

/// Everything that was owed has come: is there something that was not?
async fn listen_on(receivers: Vec<Receiver>) -> Result<Vec<Receiver>, String> {
    let mut listening = JoinSet::new();
    for mut receiver in receivers {
        listening.spawn(async move { receiver.listen_on().await.map(|()| receiver) });
    }
    all(listening).await
}

async fn leave(senders: Vec<Sender>, receivers: Vec<Receiver>) {
    let senders = senders.into_iter().map(|s| s.connection);
    connect::close_all(senders.chain(receivers.into_iter().map(|r| r.connection)).collect()).await;
}
