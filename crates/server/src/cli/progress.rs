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
const BAR: u64 = 24;

/// Counts, and shows the count while any clone lives. Without a terminal it only counts.
#[derive(Clone)]
pub struct Progress(Arc<ProgressState>);

struct ProgressState {
    done: Arc<AtomicU64>,
    showing: Option<tokio::task::JoinHandle<()>>,
}

impl Progress {
    /// With 0 as `of`, where nobody knows how much there is.
    pub fn start(what: &'static str, of: u64) -> Progress {
        Progress::resume(what, of, 0)
    }

    /// The same, where something was done before.
    pub fn resume(what: &'static str, of: u64, before: u64) -> Progress {
        let done = Arc::new(AtomicU64::new(before));
        let shown = std::io::stderr().is_terminal();
        let showing = shown.then(|| tokio::spawn(show(what, of, before, done.clone())));
        Progress(Arc::new(ProgressState { done, showing }))
    }

    pub fn step(&self, by: u64) {
        self.0.done.fetch_add(by, Ordering::Relaxed);
    }
}

async fn show(what: &'static str, of: u64, before: u64, done: Arc<AtomicU64>) {
    let begun = Instant::now();
    loop {
        tokio::time::sleep(EVERY).await;
        let done = done.load(Ordering::Relaxed);
        let rate = done.saturating_sub(before) as f64 / begun.elapsed().as_secs_f64();
        // A terminal that is gone has nobody to tell.
        let _ = write!(std::io::stderr(), "\r\x1b[K{}", line(what, of, done, rate));
    }
}

fn line(what: &str, of: u64, done: u64, rate: f64) -> String {
    if of == 0 {
        return format!("{done} {what}, {rate:.0}/s");
    }
    // What was done twice must not make it seem more than all.
    let done = done.min(of);
    let full = (done as f64 / of as f64 * BAR as f64) as u64;
    let bar: String = (0..BAR).map(|at| if at < full { '#' } else { '.' }).collect();
    let left = match rate > 0.0 {
        true => format!(", {:.0} s left", (of - done) as f64 / rate),
        false => String::new(),
    };
    format!("[{bar}] {done} of {of} {what}, {rate:.0}/s{left}")
}

impl Drop for ProgressState {
    fn drop(&mut self) {
        if let Some(showing) = &self.showing {
            showing.abort();
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn a_line_says_how_far_it_is_and_how_long_it_takes() {
        assert_eq!(
            line("moved", 100, 50, 10.0),
            "[############............] 50 of 100 moved, 10/s, 5 s left"
        );
        assert_eq!(line("moved", 4, 5, 0.0), "[########################] 4 of 4 moved, 0/s");
        assert_eq!(line("compared", 0, 7, 2.0), "7 compared, 2/s");
    }
}
