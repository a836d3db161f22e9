//! One who writes: the socket of it. What it is owed is in `outgoing.rs`.

use std::sync::Arc;

use bluetick_client::{RawConnection, RawError};
use tokio::sync::Notify;

use super::{outgoing::Books, patience::Patience, plan::Pace};

/// Frames taken, or sends written, in a row.
const BATCH: usize = 256;

pub struct Sender {
    pub connection: RawConnection,
    pub books: Books,
    /// Told when the moment of a message has come.
    pub wake: Arc<Notify>,
    patience: Patience,
    awaits_ticks: bool,
}

impl Sender {
    pub fn new(connection: RawConnection, books: Books) -> Sender {
        Sender { connection, books, wake: Arc::default(), patience: Patience::new(), awaits_ticks: false }
    }

    /// Sends until the plan is over and every send is answered.
    pub async fn send_all(&mut self) -> Result<(), String> {
        loop {
            self.fill().await.map_err(|e| self.books.failed(&e))?;
            if self.books.is_done() {
                return Ok(());
            }
            self.listen().await?;
        }
    }

    /// Waits until everything that was stored has its second tick.
    pub async fn await_ticks(&mut self) -> Result<(), String> {
        self.patience.renew();
        self.awaits_ticks = true;
        while !self.books.unticked.is_empty() {
            self.listen().await?;
        }
        Ok(())
    }

    /// Writes what is to be sent by now.
    async fn fill(&mut self) -> Result<(), RawError> {
        let mut written = 0;
        while written < BATCH
            && let Some(text) = self.books.next_send()
        {
            self.connection.feed_text(text).await?;
            written += 1;
        }
        if written == 0 {
            return Ok(());
        }
        self.patience.renew();
        self.connection.flush().await
    }

    async fn listen(&mut self) -> Result<(), String> {
        if let Some(until) = self.books.paused_until {
            self.patience.wake_at(until);
        }
        let books = &mut self.books;
        let has_moments = matches!(books.plan.pace, Pace::At(_));
        let mut broken = Ok(());
        tokio::select! {
            biased;
            taken = self.connection.next_texts(BATCH, |text| {
                if broken.is_ok() {
                    broken = books.take(text);
                }
            }) => {
                self.patience.renew();
                taken.map_err(|e| self.books.failed(&e))?;
                broken
            }
            () = self.wake.notified(), if has_moments => Ok(()),
            over = self.patience.rings() => match over && (self.awaits_ticks || self.books.awaits_answers()) {
                true => Err(self.books.failed(&RawError::Timeout)),
                false => Ok(()),
            }
        }
    }
}
