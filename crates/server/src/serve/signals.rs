//! The signals that end the server.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::ServeError;

/// SIGTERM and SIGINT.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn listen() -> Result<Self, ServeError> {
        let listen = |kind| signal(kind).map_err(ServeError::Signals);
        Ok(Signals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// Returns at the first signal. A second one exits at once: everything that was acknowledged is
    /// durable, so nothing is lost.
    pub(super) async fn wait_and_guard(mut self) -> &'static str {
        let first = self.next().await;
        tokio::spawn(async move {
            let second = self.next().await;
            tracing::warn!(signal = second, "exiting at once");
            std::process::exit(130);
        });
        first
    }
}
