//! Another user, who sends a message now and then while an attack runs, and notes how long each takes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bluetick_client::RawConnection;
use bluetick_protocol::{ClientFrame, ServerFrame};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::people::{Stage, message};

const SEND_EVERY: Duration = Duration::from_millis(50);
/// A send that takes longer counts as failed.
const SENT_WITHIN: Duration = Duration::from_secs(10);

pub struct Bystander {
    seen: Arc<Seen>,
    sending: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    delays: Mutex<Vec<Duration>>,
    failed: AtomicU64,
    leaves: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
pub struct Delay {
    pub p99_ms: f64,
    pub failed: u64,
}

impl Bystander {
    pub async fn start(stage: &Stage) -> Result<Bystander, String> {
        let (connection, _) = stage.connect(&stage.user("bystander"), "phone").await?;
        let seen = Arc::new(Seen::default());
        let friend = stage.user("friend");
        let sending = tokio::spawn(send_now_and_then(connection, friend, seen.clone()));
        Ok(Bystander { seen, sending })
    }

    /// Forgets what was measured so far.
    pub fn reset(&self) {
        self.seen.delays.lock().clear();
        self.seen.failed.store(0, Ordering::Relaxed);
    }

    pub fn delay(&self) -> Delay {
        let mut delays = self.seen.delays.lock().clone();
        delays.sort_unstable();
        let at = (delays.len() * 99).div_ceil(100).saturating_sub(1);
        let p99 = delays.get(at).copied().unwrap_or_default();
        Delay { p99_ms: p99.as_secs_f64() * 1e3, failed: self.seen.failed.load(Ordering::Relaxed) }
    }

    pub async fn stop(self) -> Delay {
        self.seen.leaves.store(true, Ordering::Relaxed);
        let delay = self.delay();
        // One that still waits for an answer is left behind.
        let _ = tokio::time::timeout(SENT_WITHIN, self.sending).await;
        delay
    }
}

async fn send_now_and_then(
    mut connection: RawConnection,
    friend: bluetick_protocol::UserId,
    seen: Arc<Seen>,
) {
    for n in 0u64.. {
        if seen.leaves.load(Ordering::Relaxed) {
            break;
        }
        let frame = ClientFrame::Send(message(&friend, &format!("b-{n}"), "hello".into()));
        let began = Instant::now();
        let sent = async {
            connection.send_frame(&frame).await.ok()?;
            let answer = connection.next_where(SENT_WITHIN, |frame| match frame {
                ServerFrame::Sent(_) => Some(true),
                ServerFrame::Error(_) | ServerFrame::Bye(_) => Some(false),
                _ => None,
            });
            answer.await.ok().filter(|sent| *sent)
        };
        match sent.await {
            Some(_) => seen.delays.lock().push(began.elapsed()),
            None => drop(seen.failed.fetch_add(1, Ordering::Relaxed)),
        }
        tokio::time::sleep(SEND_EVERY).await;
    }
    connection.close().await;
}
