//! One who receives and acks: the socket of it. What came is looked at in `incoming.rs`.

use std::time::Duration;

use bluetick_client::{RawConnection, RawError};
use bluetick_protocol::{ClientFrame, ConversationId, Receipt, Ref};
use tokio::sync::oneshot;

use super::{connect::plain_id, frames, incoming::Books, patience::Patience, plan::Acks};

/// Frames taken in a row before they are acked.
const BATCH: usize = 256;
/// How long a receiver that has everything listens for a message too many.
const AFTERMATH: Duration = Duration::from_millis(300);

pub struct Receiver {
    pub connection: RawConnection,
    pub books: Books,
    patience: Patience,
}

impl Receiver {
    pub fn new(connection: RawConnection, books: Books) -> Receiver {
        Receiver { connection, books, patience: Patience::new() }
    }

    /// Receives and acks until it has as many as were stored, which it learns when the sender knows.
    pub async fn receive_all(&mut self, mut stored: oneshot::Receiver<u32>) -> Result<(), String> {
        let mut owed = None;
        while owed.is_none_or(|owed| self.books.received < owed) {
            tokio::select! {
                biased;
                heard = hear(&mut self.connection, &mut self.books, &mut self.patience, owed.is_some()) => heard?,
                count = &mut stored, if owed.is_none() => {
                    owed = Some(count.map_err(|_| format!("{}: the sender failed", self.books.me))?);
                    self.patience.renew();
                }
            }
            self.ack().await?;
        }
        Ok(())
    }

    /// Receives and acks what was kept for it while it was away.
    pub async fn catch_up(&mut self) -> Result<(), String> {
        while !self.books.caught_up {
            hear(&mut self.connection, &mut self.books, &mut self.patience, true).await?;
            self.ack().await?;
        }
        Ok(())
    }

    /// Waits until the server knows everything acked: that is what the sender's tick shows. Receipts are answered in their order,
    /// where they ask for it.
    pub async fn await_acked(&mut self) -> Result<(), String> {
        let Some(seq) = self.books.last_seq else {
            return Ok(());
        };
        let conversation_id: ConversationId = plain_id(&self.books.conversation);
        let ack = ClientFrame::Ack(Receipt { reference: Some(Ref::Number(0)), conversation_id, seq });
        self.patience.renew();
        self.connection.send_frame(&ack).await.map_err(|e| self.books.failed(&e))?;
        while !self.books.acked {
            hear(&mut self.connection, &mut self.books, &mut self.patience, true).await?;
        }
        Ok(())
    }

    /// Listens a moment longer for what should not come.
    pub async fn listen_on(&mut self) -> Result<(), String> {
        let listening = async {
            loop {
                hear(&mut self.connection, &mut self.books, &mut self.patience, false).await?;
            }
        };
        tokio::time::timeout(AFTERMATH, listening).await.unwrap_or(Ok(()))
    }

    async fn ack(&mut self) -> Result<(), String> {
        if self.books.unacked.is_empty() {
            return Ok(());
        }
        let first = match self.books.plan.acks {
            Acks::Each => 0,
            Acks::Last => self.books.unacked.len() - 1,
        };
        for seq in &self.books.unacked[first..] {
            let ack = frames::ack(&self.books.conversation, *seq);
            self.connection.feed_text(ack).await.map_err(|e| self.books.failed(&e))?;
        }
        self.books.unacked.clear();
        self.connection.flush().await.map_err(|e| self.books.failed(&e))
    }
}

/// Takes what has come, and what comes next if nothing has. Only if something is owed can it take too long.
async fn hear(
    connection: &mut RawConnection,
    books: &mut Books,
    patience: &mut Patience,
    owed: bool,
) -> Result<(), String> {
    let mut broken = Ok(());
    tokio::select! {
        biased;
        taken = connection.next_texts(BATCH, |text| {
            if broken.is_ok() {
                broken = books.take(text);
            }
        }) => {
            patience.renew();
            taken.map_err(|e| books.failed(&e))?;
            broken
        }
        over = patience.rings() => match over && owed {
            true => Err(books.failed(&RawError::Timeout)),
            false => Ok(()),
        }
    }
}
