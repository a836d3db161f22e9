//! Taking in the client's frames: requests and receipts are queued, started one after another, and
//! answered.

use std::task::{Context, Poll};

use bluetick_protocol::{ClientFrame, decode};
use tokio::time::Instant;

use super::{Answered, End, ReceiptsStored, Session, TokenLifetime};
use crate::{
    Exhausted,
    budget::units_of,
    rate_limited,
    session::{
        FrameSink, FrameSource, Incoming,
        hello::{not_text, too_large},
        requests::{NextRequest, WAITING_BYTES_MAX, error_frame},
    },
};

impl<R: FrameSource, W: FrameSink> Session<'_, R, W> {
    /// Takes in the frames that are there, so that work on them begins with all of them. Ready if
    /// there was one.
    pub(super) fn poll_frames(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        let room = self.requests.room(self.receipts.len());
        let frames_max = if self.outbound.is_congested() { 0 } else { room };
        let (mut frames, mut bytes) = (0, 0);
        while frames < frames_max && bytes < WAITING_BYTES_MAX {
            let Poll::Ready(incoming) = self.source.poll_next(cx) else { break };
            frames += 1;
            match incoming {
                Incoming::Text(text) => {
                    bytes += text.as_ref().len();
                    self.take_frame(text.as_ref())?;
                }
                Incoming::Alive => {}
                Incoming::Binary => return Poll::Ready(Err(Some(not_text()))),
                Incoming::TooLarge => return Poll::Ready(Err(Some(too_large()))),
                Incoming::Closed => return Poll::Ready(Err(None)),
            }
        }
        if frames > 0 { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn take_frame(&mut self, text: &str) -> Result<(), End> {
        match decode(text) {
            Ok(frame @ (ClientFrame::Ack(_) | ClientFrame::Read(_))) => self.receipts.add(frame),
            Ok(frame) => self.requests.push(frame),
            Err(e) if e.is_fatal() => return Err(Some(e.error)),
            Err(e) => self.outbound.push(&error_frame(e.reference, e.error)),
        }
        Ok(())
    }

    /// Starts the next request and the waiting receipts, unless some are in progress.
    pub(super) fn start_requests(&mut self, now: Instant) {
        match self.outbound.is_below_high_water() {
            true => self.start_request(),
            false => self.outbound.wake_when_written(true),
        }
        // Acks of a slow reader still count. Their answers are bounded by the number of frames that
        // are read.
        let (budget, user) = (&self.host.budget, &self.entry.user_id);
        if self.receipts.is_due(now, |units| budget.take(user, units)) {
            self.start_receipts();
        }
    }

    pub(super) fn start_request(&mut self) {
        let Some(next) = self.requests.next() else { return };
        let request = match next {
            NextRequest::Batch(sends) => {
                // The lanes remember what this session sent itself.
                self.timers.active(Instant::now());
                self.host.send_batch(&self.entry, sends)
            }
            NextRequest::Single(frame) => {
                let units = units_of(&frame);
                if units > 0
                    && let Err(ms) = self.host.budget.take(&self.entry.user_id, units)
                {
                    let why = rate_limited(Exhausted::Requests, ms);
                    let refused = error_frame(frame.reference().cloned(), why);
                    Box::pin(std::future::ready(Answered::frames(vec![refused])))
                } else {
                    if let ClientFrame::Watch(watch) = &frame {
                        self.registration.watch(watch.users.clone());
                    }
                    self.host.request(&self.entry, frame)
                }
            }
        };
        self.requests.work_on(request);
    }

    pub(super) fn start_receipts(&mut self) {
        self.receipts.start(&self.host.app, &self.entry);
    }

    pub(super) fn take_answer(&mut self, answered: Answered) -> Result<(), End> {
        let now = Instant::now();
        self.requests.learn(&answered, now);
        self.outbound.push_all(answered.frames);
        if let Some(identity) = answered.identity {
            self.token = TokenLifetime::new(&identity, now);
        }
        match answered.end {
            None => Ok(()),
            end => Err(end),
        }
    }

    pub(super) fn take_stored_receipts(&mut self, stored: ReceiptsStored) {
        let ReceiptsStored { acked, frames, failed } = stored;
        self.outbound.push_all(frames);
        if self.take_acks(acked) {
            self.timers.window_moved();
        }
        if !failed.is_empty() {
            let now = Instant::now();
            self.receipts.retry(failed, now);
            // The acks came; that they could not be stored is not the client's fault.
            self.timers.restart_ack_timeout(now);
        }
    }
}
