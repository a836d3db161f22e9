//! The receivers are away while the senders write, and come back.

use std::{collections::HashMap, sync::Arc};

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::task::JoinSet;

use super::{
    BenchOptions,
    chat::{all, leave, listen_on, start_pacer, violations},
    connect::{self, Server, receiver_of, sender_of},
    incoming::{self, Source},
    meter::Meter,
    outgoing,
    plan::{Acks, Plan, SharedPlan},
    process::{MemoryWatch, Process},
    receiver::Receiver,
    report::{OfflineReport, OpenLoop},
    sender::Sender,
    stage::StageClock,
};
use crate::progress::Progress;

/// Users that come back at a time.
const RETURNING_AT_ONCE: usize = 64;

/// Stores, drains, or stores and then drains.
pub async fn run(
    server: &Arc<Server>,
    options: &BenchOptions,
    process: Option<Process>,
) -> Result<OfflineReport, String> {
    let memory = MemoryWatch::start(process);
    let mut report = OfflineReport { load: options.load(), ..OfflineReport::default() };
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    let mut run = None;
    if options.offline {
        if options.drain {
            // They take what an earlier run left for them, and go: what comes later is of this run.
            let users = (0..options.pairs).map(receiver_of);
            connect::close_all(server.join_all(users, || ()).await?).await;
        }
        let plan = store(server, options, process, &mut senders, &mut report).await?;
        run = Some(plan.run);
    }
    if options.drain {
        receivers = drain(server, options, process, run, &mut report).await?;
        for sender in &mut senders {
            sender.await_ticks().await?;
        }
        receivers = listen_on(receivers).await?;
    }
    report.violations = violations(&mut senders, &receivers);
    report.violations.extend(unkept(options, &senders, &receivers));
    leave(senders, receivers).await;
    Ok(OfflineReport { memory: memory.stop(options.rest()).await, ..report })
}

async fn store(
    server: &Server,
    options: &BenchOptions,
    process: Option<Process>,
    senders: &mut Vec<Sender>,
    report: &mut OfflineReport,
) -> Result<SharedPlan, String> {
    let progress = Progress::start("connected", options.pairs.into());
    let connections = server.join_all((0..options.pairs).map(sender_of), || progress.step(1)).await?;
    drop(progress);
    let progress = Progress::start("stored", options.expected());
    let clock = StageClock::start(process);
    let plan = Arc::new(options.plan());
    let mut wake = Vec::new();
    let mut sending = JoinSet::new();
    for (pair, connection) in (0..options.pairs).zip(connections) {
        let (me, to) = (sender_of(pair).to_string(), receiver_of(pair).to_string());
        let mut sends =
            Sender::new(connection, outgoing::Books::new(me, to, pair, plan.clone(), progress.clone()));
        wake.push(sends.wake.clone());
        sending.spawn(async move { sends.send_all().await.map(|()| sends) });
    }
    let pacer = start_pacer(&plan, wake);
    *senders = all(sending).await?;
    let messages = senders.iter().map(|s| u64::from(s.books.stored)).sum();
    report.store = Some(clock.stop(messages, &plan.meters.sent));
    drop((pacer, progress));
    report.send_to_sent = Some(plan.meters.sent.summary());
    report.open_loop = OpenLoop::of(&plan, senders);
    report.rate_limited = senders.iter().map(|s| s.books.refused).sum();
    Ok(plan)
}

/// Lets the receivers come back, take everything and ack it. Without the number of a run it may be of any.
async fn drain(
    server: &Server,
    options: &BenchOptions,
    process: Option<Process>,
    run: Option<u64>,
    report: &mut OfflineReport,
) -> Result<Vec<Receiver>, String> {
    let waiting = report.store.as_ref().map_or(0, |stage| stage.messages);
    let progress = Progress::start("drained", waiting);
    let clock = StageClock::start(process);
    let plan = Plan { acks: Acks::Last, ..options.plan() };
    let plan = Arc::new(Plan { run: run.unwrap_or(plan.run), ..plan });
    let caught_up = Meter::default();
    let draining = (0..options.pairs).map(|pair| {
        let (plan, progress, caught_up) = (plan.clone(), progress.clone(), &caught_up);
        async move {
            let since = plan.micros();
            let source = if run.is_some() { Source::Kept { since } } else { Source::Left { since } };
            let connection = server.hello(&receiver_of(pair)).await?;
            let (me, from) = (receiver_of(pair).to_string(), sender_of(pair).to_string());
            let books = incoming::Books::new(me, from, source, plan.clone(), progress);
            let mut receives = Receiver::new(connection, books);
            receives.catch_up().await?;
            let now = plan.micros();
            caught_up.record(now, now - since);
            receives.await_acked().await?;
            Ok::<_, String>(receives)
        }
    });
    let receivers: Vec<_> = stream::iter(draining).buffered(RETURNING_AT_ONCE).try_collect().await?;
    let messages = receivers.iter().map(|r| u64::from(r.books.received)).sum();
    report.drain = Some(clock.stop(messages, &plan.meters.received));
    report.return_to_receive = Some(plan.meters.received.summary());
    report.return_to_caught_up = Some(caught_up.summary());
    Ok(receivers)
}

/// What only both sides together can tell.
fn unkept(options: &BenchOptions, senders: &[Sender], receivers: &[Receiver]) -> Vec<String> {
    let mut found = Vec::new();
    let mut came: HashMap<_, _> = receivers.iter().map(|r| (r.books.me.as_str(), r.books.received)).collect();
    for outgoing::Books { me, to, stored, .. } in senders.iter().map(|s| &s.books) {
        if let Some(received) = came.remove(to.as_str()).filter(|received| received != stored) {
            found.push(format!(
                "{to} got {received} of the {stored} messages of {me} before it was caught up"
            ));
        }
    }
    if !options.drain {
        for books in senders.iter().map(|s| &s.books).filter(|books| books.ticked() > 0) {
            found.push(format!("{} got ticks of {}, who is away", books.me, books.to));
        }
    }
    found
}
