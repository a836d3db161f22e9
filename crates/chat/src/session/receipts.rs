//! Acks and reads of the client on their way to the store (R10).
//!
//! Receipts of a conversation that wait are merged into one. They are never refused: beyond the
//! user's budget they wait, and a store that is down gets them again.

use std::{
    collections::BTreeMap,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bluetick_protocol::{ClientFrame, ConversationId, Done, Ref, Seq, ServerFrame};
use bluetick_store::SessionEntry;
use futures_util::future::{BoxFuture, join_all};
use tokio::time::Instant;

use super::{requests::error_frame, timers::RETRY};
use crate::{App, ReceiptRequest, slot::poll_slot, units};

/// How long receipts wait for the user's budget at most: far less than the ack timeout.
const BUDGET_WAIT_MAX: Duration = Duration::from_secs(1);

/// The receipts of a session: those that wait, and those being stored.
#[derive(Default)]
pub(super) struct ReceiptQueue {
    waiting: Receipts,
    storing: Option<BoxFuture<'static, ReceiptsStored>>,
    /// The waiting receipts start at this time: they wait for the budget, or to be retried.
    start_at: Option<Instant>,
}

/// Receipts that are durable, and the frames to answer with.
pub(super) struct ReceiptsStored {
    pub acked: Vec<(ConversationId, Seq)>,
    pub frames: Vec<ServerFrame>,
    /// To be retried.
    pub failed: Receipts,
}

impl ReceiptQueue {
    /// Adds an ack or a read.
    pub(super) fn add(&mut self, frame: ClientFrame) {
        self.waiting.add(frame);
    }

    /// How many of the client's frames wait here.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_storing(&self) -> bool {
        self.storing.is_some()
    }

    /// When the waiting receipts start, if they wait for a time.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.start_at
    }

    fn can_start(&self) -> bool {
        self.storing.is_none() && !self.waiting.is_empty()
    }

    /// Whether the waiting receipts are to be stored now. `take_budget` takes units from the user's
    /// budget, or says after how many milliseconds there will be enough. Receipts wait for it once:
    /// a user who spends the whole budget elsewhere must not starve them.
    pub(super) fn is_due(&mut self, now: Instant, take_budget: impl FnOnce(u32) -> Result<(), u64>) -> bool {
        match self.start_at {
            Some(at) if at > now => false,
            Some(_) => {
                self.start_at = None;
                self.can_start()
            }
            None if !self.can_start() => false,
            None => {
                let taken = take_budget(units::RECEIPT * self.waiting.0.len() as u32);
                let wait = |ms| now + Duration::from_millis(ms).min(BUDGET_WAIT_MAX);
                self.start_at = taken.err().map(wait);
                self.start_at.is_none()
            }
        }
    }

    /// Starts to store the waiting receipts, if there are any and none are being stored.
    pub(super) fn start(&mut self, app: &Arc<dyn App>, entry: &SessionEntry) {
        if self.can_start() {
            let receipts = std::mem::take(&mut self.waiting);
            self.storing = Some(Box::pin(receipts.store(app.clone(), entry.clone())));
        }
    }

    pub(super) fn poll_stored(&mut self, cx: &mut Context<'_>) -> Poll<ReceiptsStored> {
        poll_slot(&mut self.storing, cx)
    }

    pub(super) async fn stored(&mut self) -> ReceiptsStored {
        crate::slot::ready(&mut self.storing).await
    }

    /// Takes back receipts that could not be stored, to retry them in a moment.
    pub(super) fn retry(&mut self, failed: Receipts, now: Instant) {
        self.waiting.put_back(failed);
        self.start_at = Some(now + RETRY);
    }
}

/// The newest ack and read of each conversation.
#[derive(Debug, Default)]
pub(super) struct Receipts(BTreeMap<ConversationId, MergedReceipt>);

#[derive(Debug, Default)]
struct MergedReceipt {
    acked: Seq,
    read: Option<Seq>,
    references: Vec<Ref>,
    /// Whether it was tried before.
    is_retry: bool,
}

impl Receipts {
    fn len(&self) -> usize {
        self.0.values().map(|receipt| 1 + receipt.references.len()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, frame: ClientFrame) {
        let (receipt, is_read) = match frame {
            ClientFrame::Ack(receipt) => (receipt, false),
            ClientFrame::Read(receipt) => (receipt, true),
            _ => return,
        };
        let kept = self.0.entry(receipt.conversation_id).or_default();
        // Read implies delivered.
        kept.acked = kept.acked.max(receipt.seq);
        if is_read {
            kept.read = kept.read.max(Some(receipt.seq));
        }
        kept.references.extend(receipt.reference);
    }

    fn put_back(&mut self, failed: Receipts) {
        for (id, receipt) in failed.0 {
            let kept = self.0.entry(id).or_default();
            kept.acked = kept.acked.max(receipt.acked);
            kept.read = kept.read.max(receipt.read);
            kept.is_retry = true;
        }
    }

    /// Makes the receipts durable.
    async fn store(self, app: Arc<dyn App>, entry: SessionEntry) -> ReceiptsStored {
        let store_one = |(id, receipt): (ConversationId, MergedReceipt)| {
            let (app, entry) = (app.clone(), entry.clone());
            async move {
                let request = |seq| ReceiptRequest {
                    user: entry.user_id.clone(),
                    session: Some(entry.session_id),
                    conversation_id: id.clone(),
                    seq,
                    again: receipt.is_retry,
                };
                let mut outcome = Ok(());
                if receipt.read.is_none_or(|read| read < receipt.acked) {
                    outcome = app.ack(request(receipt.acked)).await;
                }
                if let (Some(read), Ok(())) = (receipt.read, &outcome) {
                    outcome = app.read(request(read)).await;
                }
                (id, receipt, outcome)
            }
        };
        let mut stored =
            ReceiptsStored { acked: Vec::new(), frames: Vec::new(), failed: Receipts::default() };
        for (id, receipt, outcome) in join_all(self.0.into_iter().map(store_one)).await {
            match outcome {
                Ok(()) => {
                    let done = |reference| ServerFrame::Done(Done { reference });
                    stored.frames.extend(receipt.references.into_iter().map(done));
                    stored.acked.push((id, receipt.acked));
                }
                Err(e) => {
                    let mut references = receipt.references.iter().cloned().map(Some).collect::<Vec<_>>();
                    if e.code.is_retryable() {
                        // Receipts with a reference get the error. The merged receipt is retried as
                        // a whole, because the client cannot repeat those without one.
                        let retried = MergedReceipt { references: Vec::new(), ..receipt };
                        stored.failed.0.insert(id, retried);
                    } else if references.is_empty() {
                        references.push(None);
                    }
                    let error = |reference| error_frame(reference, e.clone());
                    stored.frames.extend(references.into_iter().map(error));
                }
            }
        }
        stored
    }
}

#[cfg(test)]
mod tests {
    use bluetick_protocol::Receipt;

    use super::*;

    fn receipt(peer: &str, seq: Seq) -> Receipt {
        let conversation_id = ConversationId::new(&format!("{peer}~bob")).unwrap();
        Receipt { reference: None, conversation_id, seq }
    }

    #[test]
    fn receipts_of_a_conversation_become_one_with_the_highest_seqs() {
        let mut receipts = Receipts::default();
        receipts.add(ClientFrame::Ack(receipt("alice", 5)));
        receipts.add(ClientFrame::Read(receipt("alice", 3)));
        receipts.add(ClientFrame::Ack(Receipt { reference: Some(Ref::Number(1)), ..receipt("alice", 4) }));
        receipts.add(ClientFrame::Read(receipt("adam", 7)));
        let seqs: Vec<_> = receipts.0.values().map(|kept| (kept.acked, kept.read)).collect();
        assert_eq!(seqs, [(7, Some(7)), (5, Some(3))]);
        assert_eq!(receipts.len(), 3, "a reference is memory that a client can use up");
    }

    #[test]
    fn a_retry_never_takes_back_what_came_since() {
        let (mut failed, mut queue) = (Receipts::default(), ReceiptQueue::default());
        failed.add(ClientFrame::Read(receipt("alice", 3)));
        queue.add(ClientFrame::Ack(receipt("alice", 9)));
        let now = Instant::now();
        queue.retry(failed, now);
        let kept = queue.waiting.0.values().next().unwrap();
        assert_eq!((kept.acked, kept.read, kept.is_retry), (9, Some(3), true));
        assert!(!queue.is_due(now, |_| Ok(())));
        assert!(queue.is_due(now + RETRY, |_| panic!("its budget was taken before")));
    }

    #[test]
    fn receipts_wait_once_for_their_budget() {
        let (now, mut queue) = (Instant::now(), ReceiptQueue::default());
        assert!(!queue.is_due(now, |_| panic!("nothing waits")));
        queue.add(ClientFrame::Ack(receipt("alice", 1)));
        queue.add(ClientFrame::Ack(receipt("adam", 1)));
        assert!(!queue.is_due(now, |units| Err(60_000 * u64::from(units))));
        assert_eq!(queue.deadline(), Some(now + BUDGET_WAIT_MAX));
        assert!(queue.is_due(now + BUDGET_WAIT_MAX, |_| panic!("a second time")));
        assert!(queue.is_due(now, |units| if units == 2 * units::RECEIPT { Ok(()) } else { Err(1) }));
    }
}
