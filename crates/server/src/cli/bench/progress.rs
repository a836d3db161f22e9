//! A line on the terminal that says how far it is.

use std::{
    io::{IsTerminal, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

const EVERY: Duration = Duration::from_millis(250);

/// Counts, and shows the count while any clone lives. Without a terminal it only counts.
#[derive(Clone)]
pub struct Progress(Arc<Shown>);

struct Shown {
    done: Arc<AtomicU64>,
    showing: Option<tokio::task::JoinHandle<()>>,
}

impl Progress {
    pub fn start(what: &'static str, of: u64) -> Progress {
        let done = Arc::new(AtomicU64::new(0));
        let showing = std::io::stderr().is_terminal().then(|| tokio::spawn(show(what, of, done.clone())));
        Progress(Arc::new(Shown { done, showing }))
    }

    /// Counts without showing.
    pub fn hidden() -> Progress {
        Progress(Arc::new(Shown { done: Arc::default(), showing: None }))
    }

    pub fn step(&self, by: u64) {
        self.0.done.fetch_add(by, Ordering::Relaxed);
    }
}

async fn show(what: &'static str, of: u64, done: Arc<AtomicU64>) {
    let begun = Instant::now();
    loop {
        tokio::time::sleep(EVERY).await;
        let done = done.load(Ordering::Relaxed);
        let rate = done as f64 / begun.elapsed().as_secs_f64();
        // A terminal that is gone has nobody to tell.
        let _ = write!(std::io::stderr(), "\r\x1b[K{done} of {of} {what}, {rate:.0}/s");
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some(showing) = &self.showing {
            showing.abort();
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
