//! The client's requests: those that wait, the one in progress, and which call to the app server
//! each becomes.

use std::{
    collections::VecDeque,
    task::{Context, Poll},
    time::Duration,
};

use bluetick_protocol::{
    ClientFrame, Done, ErrorCode, ErrorFrame, Pong, Presence, Ref, Send as SendFrame, ServerFrame, WireError,
    limits,
};
use bluetick_store::SessionEntry;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::{Identity, SessionHost, token_profile::take_token_profile};
use crate::{
    App, SendRequest,
    slot::{poll_slot, ready},
};

/// How much memory waiting requests may take.
pub(super) const WAITING_BYTES_MAX: usize = 256 * 1024;
/// How long the session reads nothing at most after a request beyond its budget.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// The requests of a session: those that wait, and the one in progress. Receipts have a queue of
/// their own.
pub(super) struct RequestQueue {
    waiting: VecDeque<ClientFrame>,
    in_progress: Option<BoxFuture<'static, Answered>>,
    /// Most sends in one batch.
    batch_max: usize,
    /// Nothing is read from the client before this time: its last request was beyond its budget.
    paused_until: Option<Instant>,
}

/// What to work on next.
#[derive(Debug, PartialEq)]
pub(super) enum NextRequest {
    /// Sends that arrived one after another.
    Batch(Vec<SendFrame>),
    Single(ClientFrame),
}

impl RequestQueue {
    pub(super) fn new() -> RequestQueue {
        RequestQueue {
            waiting: VecDeque::new(),
            in_progress: None,
            batch_max: limits::REQUESTS_AHEAD_MAX,
            paused_until: None,
        }
    }

    pub(super) fn push(&mut self, frame: ClientFrame) {
        self.waiting.push_back(frame);
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Drops every waiting request but sends.
    pub(super) fn keep_sends(&mut self) {
        self.waiting.retain(|frame| matches!(frame, ClientFrame::Send(_)));
    }

    pub(super) fn is_working(&self) -> bool {
        self.in_progress.is_some()
    }

    /// How many more frames may be read from the client, besides the `receipts` that wait. Above
    /// the high-water mark of the outbound queue requests wait here until this is 0, so that acks
    /// and pongs between them still count. From then on everything waits in the socket, until the
    /// client reads.
    pub(super) fn room(&self, receipts: usize) -> usize {
        if self.paused_until.is_some() || self.waiting_bytes() >= WAITING_BYTES_MAX {
            return 0;
        }
        limits::REQUESTS_AHEAD_MAX.saturating_sub(self.waiting.len() + receipts)
    }

    /// About how much memory the waiting requests take. Only sends and watches can be large.
    fn waiting_bytes(&self) -> usize {
        let bytes = |frame: &ClientFrame| match frame {
            ClientFrame::Send(send) => send.body.len() + send.meta.as_ref().map_or(0, |m| m.as_str().len()),
            ClientFrame::Watch(watch) => watch.users.len() * limits::USER_ID_MAX_BYTES,
            _ => 0,
        };
        self.waiting.iter().map(bytes).sum()
    }

    /// Takes the next request, if none is in progress.
    pub(super) fn next(&mut self) -> Option<NextRequest> {
        if self.in_progress.is_some() {
            return None;
        }
        let first = match self.waiting.pop_front()? {
            ClientFrame::Send(send) => send,
            other => return Some(NextRequest::Single(other)),
        };
        let mut sends = Vec::with_capacity(self.batch_max.min(self.waiting.len() + 1));
        sends.push(first);
        while sends.len() < self.batch_max
            && let Some(ClientFrame::Send(send)) =
                self.waiting.pop_front_if(|frame| matches!(frame, ClientFrame::Send(_)))
        {
            sends.push(send);
        }
        Some(NextRequest::Batch(sends))
    }

    pub(super) fn work_on(&mut self, request: BoxFuture<'static, Answered>) {
        self.in_progress = Some(request);
    }

    pub(super) fn poll_answered(&mut self, cx: &mut Context<'_>) -> Poll<Answered> {
        poll_slot(&mut self.in_progress, cx)
    }

    pub(super) async fn answered(&mut self) -> Answered {
        ready(&mut self.in_progress).await
    }

    /// Adapts to the answers of the request that was in progress.
    pub(super) fn learn(&mut self, answered: &Answered, now: Instant) {
        if answered.is_batch {
            self.adapt_batch(&answered.frames);
        }
        // Refusing a request costs as much as serving one. So a client beyond its budget is not
        // read for a moment.
        let limited = answered.frames.iter().filter_map(|frame| match frame {
            ServerFrame::Error(e) if e.error.code == ErrorCode::RateLimited => e.error.retry_after_ms,
            _ => None,
        });
        if let Some(ms) = limited.max() {
            self.paused_until = Some(now + Duration::from_millis(ms).min(PAUSE_MAX));
        }
    }

    /// Sends that failed together are retried together: in smaller batches some of them get
    /// through.
    fn adapt_batch(&mut self, answers: &[ServerFrame]) {
        let failed = |frame: &ServerFrame| matches!(frame, ServerFrame::Error(e) if e.error.code == ErrorCode::Unavailable);
        if answers.iter().any(failed) {
            self.batch_max = (self.batch_max.min(answers.len()) / 2).max(1);
        } else if answers.len() >= self.batch_max {
            self.batch_max = (self.batch_max * 2).min(limits::REQUESTS_AHEAD_MAX);
        }
    }

    pub(super) fn end_pause(&mut self, now: Instant) {
        self.paused_until = self.paused_until.filter(|&until| until > now);
    }

    /// When the session reads from the client again, if it does not now.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.paused_until
    }
}

/// The answer to a request.
pub(super) struct Answered {
    pub frames: Vec<ServerFrame>,
    /// A fresh token was accepted.
    pub identity: Option<Identity>,
    /// The session must end.
    pub end: Option<WireError>,
    /// Whether the frames answer a batch of sends.
    pub is_batch: bool,
}

impl Answered {
    pub(super) fn frames(frames: Vec<ServerFrame>) -> Answered {
        Answered { frames, identity: None, end: None, is_batch: false }
    }
}

pub(super) fn error_frame(reference: Option<Ref>, error: WireError) -> ServerFrame {
    metrics::counter!("bluetick_errors_total", "code" => error.code.as_str()).increment(1);
    ServerFrame::Error(ErrorFrame { reference, error })
}

fn done(reference: Option<Ref>) -> Vec<ServerFrame> {
    reference.into_iter().map(|reference| ServerFrame::Done(Done { reference })).collect()
}

impl SessionHost {
    /// Stores sends that arrived one after another in one commit.
    pub(super) fn send_batch(
        &self,
        entry: &SessionEntry,
        sends: Vec<SendFrame>,
    ) -> BoxFuture<'static, Answered> {
        let app = self.app.clone();
        let (user, session) = (entry.user_id.clone(), Some(entry.session_id));
        Box::pin(async move {
            let references: Vec<_> = sends.iter().map(|send| send.reference.clone()).collect();
            let answers = app.send(SendRequest { user, session, sends }).await;
            let frames = answers.into_iter().zip(references).map(|(answer, reference)| match answer {
                Ok(sent) => ServerFrame::Sent(sent),
                Err(e) => error_frame(reference, e),
            });
            Answered { is_batch: true, ..Answered::frames(frames.collect()) }
        })
    }

    /// Answers any other request.
    pub(super) fn request(&self, entry: &SessionEntry, frame: ClientFrame) -> BoxFuture<'static, Answered> {
        let (app, tokens, gateway) = (self.app.clone(), self.tokens.clone(), self.gateway.clone());
        let (entry, server_time) = (entry.clone(), self.clock.now_ms());
        Box::pin(async move {
            if let ClientFrame::Auth(auth) = frame {
                return match tokens.check(&auth.token).await {
                    Ok(identity) if identity.user == entry.user_id => {
                        take_token_profile(&*app, &gateway, &identity).await;
                        Answered { identity: Some(identity), ..Answered::frames(done(auth.reference)) }
                    }
                    Ok(_) => {
                        let why =
                            WireError::new(ErrorCode::Unauthorized, "the fresh token names another user");
                        Answered { end: Some(why), ..Answered::frames(Vec::new()) }
                    }
                    // The old token is still valid: a bad fresh one is an error, not the end of the
                    // session.
                    Err(e) => Answered::frames(vec![error_frame(auth.reference, e)]),
                };
            }
            let reference = frame.reference().cloned();
            match answer(&*app, entry, frame, server_time).await {
                Ok(frames) => Answered::frames(frames),
                Err(e) => Answered::frames(vec![error_frame(reference, e)]),
            }
        })
    }
}

async fn answer(
    app: &dyn App,
    entry: SessionEntry,
    frame: ClientFrame,
    server_time: u64,
) -> Result<Vec<ServerFrame>, WireError> {
    let user = entry.user_id.clone();
    Ok(match frame {
        ClientFrame::Typing(f) => {
            app.typing(user, f.conversation_id).await?;
            done(f.reference)
        }
        ClientFrame::Inbox(query) => vec![ServerFrame::Inbox(app.inbox(user, query).await?)],
        ClientFrame::History(query) => vec![ServerFrame::History(app.history(user, query).await?)],
        ClientFrame::Status(f) => {
            let mut status = app.status(user, f.conversation_id).await?;
            status.reference = f.reference;
            vec![ServerFrame::Status(status)]
        }
        ClientFrame::Watch(watch) => {
            let told: Vec<Presence> = app.watch(entry, watch.users).await?;
            let mut frames: Vec<_> = told.into_iter().map(ServerFrame::Presence).collect();
            frames.extend(done(watch.reference));
            frames
        }
        ClientFrame::Ping(ping) => vec![ServerFrame::Pong(Pong { reference: ping.reference, server_time })],
        ClientFrame::Hello(_) => {
            return Err(WireError::new(
                ErrorCode::BadRequest,
                "hello was said already; use auth for a fresh token",
            ));
        }
        // Sends, receipts and auth do not come here.
        ClientFrame::Send(_) | ClientFrame::Ack(_) | ClientFrame::Read(_) | ClientFrame::Auth(_) => {
            Vec::new()
        }
    })
}

#[cfg(test)]
mod tests {
    use bluetick_protocol::{ClientMsgId, Ping, UserId};

    use super::*;

    fn send(n: usize) -> SendFrame {
        SendFrame {
            reference: None,
            client_msg_id: ClientMsgId::new(&n.to_string()).unwrap(),
            to: Some(UserId::new("bob").unwrap()),
            conversation_id: None,
            body: "x".repeat(100),
            attachment: None,
            meta: None,
            seen_seq: None,
        }
    }

    fn ping() -> ClientFrame {
        ClientFrame::Ping(Ping { reference: None })
    }

    fn answers(codes: &[ErrorCode]) -> Answered {
        let error = |code: &ErrorCode| error_frame(None, WireError::new(*code, "no").retry_after(60_000));
        Answered { is_batch: true, ..Answered::frames(codes.iter().map(error).collect()) }
    }

    #[tokio::test(start_paused = true)]
    async fn sends_in_a_row_are_one_batch_and_one_request_is_in_progress() {
        let mut queue = RequestQueue::new();
        [ClientFrame::Send(send(1)), ClientFrame::Send(send(2)), ping(), ClientFrame::Send(send(3))]
            .into_iter()
            .for_each(|frame| queue.push(frame));
        assert_eq!(queue.next(), Some(NextRequest::Batch(vec![send(1), send(2)])));
        queue.work_on(Box::pin(std::future::ready(answers(&[]))));
        assert!(queue.is_working() && queue.next().is_none());
        queue.answered().await;
        assert_eq!(queue.next(), Some(NextRequest::Single(ping())));
        assert_eq!(queue.next(), Some(NextRequest::Batch(vec![send(3)])));
        assert_eq!(queue.next(), None);
    }

    #[test]
    fn batches_shrink_when_the_store_fails_and_grow_again() {
        let (mut queue, now) = (RequestQueue::new(), Instant::now());
        queue.learn(&answers(&[ErrorCode::Unavailable; 8]), now);
        assert_eq!(queue.batch_max, 4);
        queue.learn(&answers(&[ErrorCode::Unavailable]), now);
        assert_eq!(queue.batch_max, 1);
        for _ in 0..20 {
            queue.learn(&answers(&vec![ErrorCode::BadRequest; queue.batch_max]), now);
        }
        assert_eq!(queue.batch_max, limits::REQUESTS_AHEAD_MAX);
    }

    #[test]
    fn a_client_beyond_its_budget_is_not_read_for_a_moment() {
        let (mut queue, now) = (RequestQueue::new(), Instant::now());
        queue.learn(&answers(&[ErrorCode::RateLimited]), now);
        assert_eq!((queue.room(0), queue.deadline()), (0, Some(now + PAUSE_MAX)));
        queue.end_pause(now + PAUSE_MAX);
        assert_eq!((queue.room(0), queue.deadline()), (limits::REQUESTS_AHEAD_MAX, None));
    }

    #[test]
    fn what_waits_is_bounded_in_number_and_in_bytes() {
        let mut queue = RequestQueue::new();
        queue.push(ping());
        assert_eq!(queue.room(3), limits::REQUESTS_AHEAD_MAX - 4);
        queue.push(ClientFrame::Send(SendFrame { body: "x".repeat(WAITING_BYTES_MAX), ..send(1) }));
        assert_eq!(queue.room(0), 0);
        queue.keep_sends();
        assert!(matches!(queue.next(), Some(NextRequest::Batch(_))));
        assert_eq!(queue.room(0), limits::REQUESTS_AHEAD_MAX);
    }
}
