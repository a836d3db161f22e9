//! Somebody with many conversations looks at pages of the inbox, here and there.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use bluetick_client::RawConnection;
use bluetick_protocol::{ClientFrame, ErrorCode, InboxEntry, InboxPage, InboxQuery, Ref, ServerFrame};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{
    connect::{Server, plain_id},
    frames,
    meter::Meter,
    patience::PATIENCE,
    process::{MemoryWatch, Process},
    report::{InboxReport, PageStage},
    stage::StageClock,
};
use crate::progress::Progress;

/// Rows of a page.
pub const PAGE: u32 = 20;
/// First messages that are under way at a time.
const AT_ONCE: usize = 256;
/// The same positions in every run.
const SEED: u64 = 20;

pub async fn run(
    server: &Arc<Server>,
    conversations: u32,
    duration: Duration,
    rest: Duration,
    process: Option<Process>,
) -> Result<InboxReport, String> {
    let memory = MemoryWatch::start(process);
    let me = format!("bench-inbox-{conversations}");
    let mut connection = server.join(&plain_id(&me)).await?;
    let mut known = walk(&mut connection).await?;
    let peers: HashSet<String> = known.peers().collect();
    let missing: Vec<String> =
        (0..conversations).map(|n| format!("bench-peer-{n}")).filter(|peer| !peers.contains(peer)).collect();
    let made = missing.len() as u32;
    if made > 0 {
        write_to(&mut connection, &missing).await?;
        known = walk(&mut connection).await?;
    }
    let mut violations = known.check(conversations);

    let progress = Progress::start("pages", 0);
    let meter = Meter::default();
    let clock = StageClock::start(process);
    let begun = Instant::now();
    let mut chance = StdRng::seed_from_u64(SEED);
    let whole = known.pages.iter().take_while(|page| page.len() == PAGE as usize).count();
    if whole == 0 {
        return Err(format!("the inbox of {me} has no whole page: {}", violations.join("; ")));
    }
    while begun.elapsed() < duration {
        let at = chance.random_range(0..whole);
        let asked = Instant::now();
        let page = ask(&mut connection, known.starts[at].clone()).await?;
        meter.record(begun.elapsed().as_micros() as u64, asked.elapsed().as_micros() as u64);
        progress.step(1);
        if page.conversations != known.pages[at] {
            violations.push(format!(
                "page {at} of {me} is not what it was: {}",
                difference(&page, &known.pages[at])
            ));
        }
    }
    drop(progress);
    let stage = clock.stop(meter.count(), &meter);
    connection.close().await;
    Ok(InboxReport {
        conversations,
        conversations_made: made,
        rows_per_page: PAGE,
        inbox: PageStage::of(stage),
        page: meter.summary(),
        memory: memory.stop(rest).await,
        violations,
    })
}

/// An inbox as it is: where each page starts, and what is in it.
struct Known {
    starts: Vec<Option<String>>,
    pages: Vec<Vec<InboxEntry>>,
}

impl Known {
    fn peers(&self) -> impl Iterator<Item = String> {
        self.pages.iter().flatten().map(|entry| entry.peer.user_id.to_string())
    }

    /// Whether it is whole: every conversation once, the newest first, and no page too short.
    fn check(&self, conversations: u32) -> Vec<String> {
        let mut violations = Vec::new();
        let rows: usize = self.pages.iter().map(Vec::len).sum();
        let peers: HashSet<String> = self.peers().collect();
        if rows != peers.len() || rows != conversations as usize {
            let peers = peers.len();
            violations.push(format!(
                "the inbox shows {rows} rows with {peers} peers for {conversations} conversations"
            ));
        }
        if !self.pages.iter().flatten().is_sorted_by(|a, b| a.last_message_ts >= b.last_message_ts) {
            violations.push("the inbox is not in order: the newest do not come first".into());
        }
        let last = self.pages.len().saturating_sub(1);
        let short = |page: &Vec<InboxEntry>| page.len() != PAGE as usize;
        for (at, page) in self.pages.iter().enumerate().filter(|(at, page)| *at < last && short(page)) {
            violations.push(format!("page {at} has {} rows, and it is not the last", page.len()));
        }
        violations
    }
}

fn difference(page: &InboxPage, before: &[InboxEntry]) -> String {
    let rows = page.conversations.len();
    match page.conversations.iter().zip(before).find(|(now, before)| now != before) {
        Some((now, before)) => format!("{now:?} where {before:?} was"),
        None => format!("{rows} rows where {} were", before.len()),
    }
}

/// Asks for one page after the other, to the end.
async fn walk(connection: &mut RawConnection) -> Result<Known, String> {
    let mut known = Known { starts: Vec::new(), pages: Vec::new() };
    let mut before = None;
    loop {
        let page = ask(connection, before.clone()).await?;
        known.starts.push(before);
        known.pages.push(page.conversations);
        before = page.next;
        if before.is_none() {
            return Ok(known);
        }
    }
}

async fn ask(connection: &mut RawConnection, before: Option<String>) -> Result<InboxPage, String> {
    let question = InboxQuery { reference: None, limit: Some(PAGE), before };
    connection.send_frame(&ClientFrame::Inbox(question)).await.map_err(|e| e.to_string())?;
    let answer = connection.next_where(PATIENCE, |frame| match frame {
        ServerFrame::Inbox(page) => Some(Ok(page)),
        ServerFrame::Error(refusal) => Some(Err(refusal.error.message)),
        ServerFrame::Bye(bye) => Some(Err(bye.reason)),
        _ => None,
    });
    answer.await.map_err(|e| format!("a page of the inbox did not come: {e}"))?
}

/// Writes once to each of them.
async fn write_to(connection: &mut RawConnection, peers: &[String]) -> Result<(), String> {
    let progress = Progress::start("conversations made", peers.len() as u64);
    let run = crate::target::now_ms();
    let failed = |e: bluetick_client::RawError| format!("a conversation could not be made: {e}");
    let mut waiting: Vec<u32> = (0..peers.len() as u32).rev().collect();
    let mut unanswered = 0;
    while unanswered > 0 || !waiting.is_empty() {
        while unanswered < AT_ONCE
            && let Some(n) = waiting.pop()
        {
            let send = frames::send(n, run, &peers[n as usize], 0, 40);
            connection.feed_text(send).await.map_err(failed)?;
            unanswered += 1;
        }
        connection.flush().await.map_err(failed)?;
        match connection.next_frame(PATIENCE).await.map_err(failed)? {
            ServerFrame::Sent(_) => {
                unanswered -= 1;
                progress.step(1);
            }
            ServerFrame::Error(refusal) => match (refusal.error.code, refusal.reference) {
                (ErrorCode::RateLimited, Some(Ref::Number(n))) => {
                    unanswered -= 1;
                    waiting.push(n as u32);
                    let wait = refusal.error.retry_after_ms.unwrap_or(100);
                    tokio::time::sleep(Duration::from_millis(wait)).await;
                }
                _ => return Err(format!("a conversation could not be made: {}", refusal.error.message)),
            },
            ServerFrame::Bye(bye) => return Err(format!("sent away: {}", bye.reason)),
            _ => {}
        }
    }
    Ok(())
}
