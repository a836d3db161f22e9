//! The sends of the benchmark. Send number `n` is the same in every run, so nothing is drawn while
//! the clock runs.

use std::path::Path;

use bluetick_protocol::{ConversationId, Side};
use bluetick_store::{Committed, NewMessage, Store, testing::message};

pub const BODY_BYTES: usize = 200;
const BODIES: usize = 1024;
const WORDS: &[&str] = &[
    "the", "train", "is", "late", "again", "so", "start", "without", "me", "and", "keep", "some", "cake",
    "tomorrow", "works", "better", "see", "you", "at", "seven", "ok", "no", "yes", "maybe", "bring", "both",
    "keys", "thanks", "häuser", "weather", "looks", "fine",
];

pub struct Workload {
    conversations: Vec<ConversationId>,
    bodies: Vec<String>,
}

impl Workload {
    pub fn new(conversations: usize) -> Workload {
        let conversation = |n: usize| {
            // Users have a handful of conversations each; ids are as long as an application's would
            // be.
            let (low, high) = (format!("user-{:06}", n / 5), format!("user-{:06}", 500_000 + n));
            ConversationId::new(&format!("{low}~{high}")).expect("made of two plain ids in order")
        };
        Workload {
            conversations: (0..conversations).map(conversation).collect(),
            bodies: (0..BODIES as u64).map(body).collect(),
        }
    }

    pub fn message(&self, n: u64) -> NewMessage {
        let drawn = scramble(n);
        let conversation = &self.conversations[(drawn >> 8) as usize % self.conversations.len()];
        let from = if drawn & 1 == 0 { Side::Low } else { Side::High };
        message(conversation, from, &format!("{drawn:016x}"))
            .body(self.bodies[(drawn >> 48) as usize % BODIES].clone())
            .undelivered(drawn & 2 == 0)
    }

    pub async fn send(&self, store: &Store, n: u64) -> Result<Committed, String> {
        let answers = store.messages.commit_sends(vec![self.message(n)]).await;
        let committed =
            answers.into_iter().next().ok_or("a send got no answer")?.map_err(|e| e.to_string())?;
        match committed.duplicate {
            true => Err(format!("send {n} was taken for a duplicate")),
            false => Ok(committed),
        }
    }

    pub async fn send_and_receipt(&self, store: &Store, n: u64) -> Result<(), String> {
        let message = self.send(store, n).await?.message;
        let advanced =
            store.status.advance(&message.receiver(), &message.conversation_id, message.seq, 0).await;
        advanced.map(drop).map_err(|e| e.to_string())
    }

    /// Sends `from..to` as fast as it goes, many in a call: to have a history, not to measure.
    pub async fn fill(&self, store: &Store, from: u64, to: u64) -> Result<(), String> {
        const AT_ONCE: u64 = 1024;
        let mut next = from;
        while next < to {
            let end = to.min(next + AT_ONCE);
            let sends = (next..end).map(|n| self.message(n)).collect();
            for answer in store.messages.commit_sends(sends).await {
                answer.map_err(|e| e.to_string())?;
            }
            next = end;
        }
        Ok(())
    }
}

/// How many bytes of log one of these sends takes.
pub async fn record_bytes(dir: &Path, workload: &Workload) -> Result<usize, String> {
    const SENDS: u64 = 1000;
    let store = crate::open(dir)?;
    let before = store.maintenance.health().await.log_bytes;
    workload.fill(&store, 0, SENDS).await?;
    let written = store.maintenance.health().await.log_bytes - before;
    store.maintenance.close().await.map_err(|e| e.to_string())?;
    Ok((written / SENDS) as usize)
}

fn body(n: u64) -> String {
    let mut text = String::with_capacity(BODY_BYTES + 8);
    for word in 0.. {
        text.push_str(WORDS[scramble(n << 32 | word) as usize % WORDS.len()]);
        if text.len() >= BODY_BYTES {
            break;
        }
        text.push(' ');
    }
    while text.len() > BODY_BYTES {
        text.pop();
    }
    text
}

/// A bijection that spreads a counter over all numbers (splitmix64).
fn scramble(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
