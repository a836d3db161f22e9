//! Both of each pair are connected: one writes, the other acks.

use std::sync::Arc;

use bluetick_client::RawConnection;
use bluetick_protocol::Seq;
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::{sync::oneshot, task::JoinSet};

use super::{
    BenchOptions,
    connect::{self, Server, receiver_of, sender_of},
    incoming::{self, Source},
    outgoing,
    plan::{Pace, Plan},
    process::{MemoryWatch, Process},
    receiver::Receiver,
    report::{ChatReport, OpenLoop},
    schedule::Pacer,
    sender::Sender,
    stage::StageClock,
    warm,
};
use crate::progress::Progress;

/// Pairs that exchange their first message at a time.
const WARMING_AT_ONCE: usize = 64;

pub async fn run(
    server: &Arc<Server>,
    options: &BenchOptions,
    process: Option<Process>,
) -> Result<ChatReport, String> {
    let memory = MemoryWatch::start(process);
    let progress = Progress::start("connected", u64::from(options.pairs) * 2);
    let pairs = 0..options.pairs;
    let receivers = server.join_all(pairs.clone().map(receiver_of), || progress.step(1)).await?;
    let senders = server.join_all(pairs.clone().map(sender_of), || progress.step(1)).await?;
    drop(progress);
    let pairs: Vec<_> = warm_up(senders, receivers).await?;

    let progress = Progress::start("delivered", options.expected());
    let clock = StageClock::start(process);
    let plan = Arc::new(options.plan());
    let (mut sending, mut receiving) = (JoinSet::new(), JoinSet::new());
    let mut wake = Vec::new();
    for (pair, (from, to, last)) in (0..).zip(pairs) {
        let (me, peer) = (sender_of(pair).to_string(), receiver_of(pair).to_string());
        let (told, stored) = oneshot::channel();
        let books =
            incoming::Books::new(peer.clone(), me.clone(), Source::Live, plan.clone(), progress.clone());
        let mut receives = Receiver::new(to, books);
        receives.books.begin_after(last);
        let mut sends =
            Sender::new(from, outgoing::Books::new(me, peer, pair, plan.clone(), Progress::hidden()));
        sends.books.begin_after(last);
        wake.push(sends.wake.clone());
        receiving.spawn(async move { receives.receive_all(stored).await.map(|()| receives) });
        sending.spawn(async move {
            sends.send_all().await?;
            // Nobody listens only if the receiver failed, and then its error is the one to show.
            let _ = told.send(sends.books.stored);
            sends.await_ticks().await.map(|()| sends)
        });
    }
    let pacer = start_pacer(&plan, wake);
    let (mut senders, receivers) = tokio::try_join!(all(sending), all(receiving))?;
    let messages = senders.iter().map(|s| u64::from(s.books.stored)).sum();
    let chat = clock.stop(messages, &plan.meters.received);
    drop((pacer, progress));

    let receivers = listen_on(receivers).await?;
    let violations = violations(&mut senders, &receivers);
    let report = ChatReport {
        load: options.load(),
        chat,
        send_to_sent: plan.meters.sent.summary(),
        send_to_receive: plan.meters.received.summary(),
        send_to_tick: plan.meters.ticked.summary(),
        open_loop: OpenLoop::of(&plan, &senders),
        memory: None,
        rate_limited: senders.iter().map(|s| s.books.refused).sum(),
        violations,
    };
    leave(senders, receivers).await;
    Ok(ChatReport { memory: memory.stop(options.rest()).await, ..report })
}

/// Both of each pair, and the seq after which the run begins.
async fn warm_up(
    senders: Vec<RawConnection>,
    receivers: Vec<RawConnection>,
) -> Result<Vec<(RawConnection, RawConnection, Seq)>, String> {
    let run = crate::target::now_ms();
    let warming =
        (0..).zip(senders.into_iter().zip(receivers)).map(|(pair, (mut from, mut to))| async move {
            let last = warm::up(&mut from, &mut to, &receiver_of(pair), run).await?;
            Ok::<_, String>((from, to, last))
        });
    stream::iter(warming).buffered(WARMING_AT_ONCE).try_collect().await
}

/// Where each message has its moment, somebody has to say when it is there.
pub fn start_pacer(plan: &Plan, wake: Vec<Arc<tokio::sync::Notify>>) -> Option<Pacer> {
    match plan.pace {
        Pace::InFlight(_) => None,
        Pace::At(schedule) => Some(Pacer::start(schedule, plan.epoch, plan.send_until(), wake)),
    }
}

/// Waits for all of them; the first that fails ends the others.
pub async fn all<T: 'static>(mut tasks: JoinSet<Result<T, String>>) -> Result<Vec<T>, String> {
    let mut done = Vec::with_capacity(tasks.len());
    while let Some(task) = tasks.join_next().await {
        done.push(task.map_err(|e| e.to_string())??);
    }
    Ok(done)
}

/// Everything that was owed has come: is there something that was not?
pub async fn listen_on(receivers: Vec<Receiver>) -> Result<Vec<Receiver>, String> {
    let mut listening = JoinSet::new();
    for mut receiver in receivers {
        listening.spawn(async move { receiver.listen_on().await.map(|()| receiver) });
    }
    all(listening).await
}

/// What the server did that it must not do, as both sides saw it.
pub fn violations(senders: &mut [Sender], receivers: &[Receiver]) -> Vec<String> {
    let put_off = senders.iter().any(|s| s.books.refused > 0);
    let mut found = Vec::new();
    for sender in senders {
        sender.books.check_ticks();
        found.append(&mut sender.books.violations);
    }
    for incoming::Books { me, out_of_order, violations, .. } in receivers.iter().map(|r| &r.books) {
        found.extend(violations.iter().cloned());
        if *out_of_order > 0 && !put_off {
            found.push(format!("{me} got {out_of_order} messages out of the order they were sent in"));
        }
    }
    found
}

pub async fn leave(senders: Vec<Sender>, receivers: Vec<Receiver>) {
    let senders = senders.into_iter().map(|s| s.connection);
    connect::close_all(senders.chain(receivers.into_iter().map(|r| r.connection)).collect()).await;
}
