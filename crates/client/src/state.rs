//! The client's half of the contract as plain state: frames in, frames and events out.
//!
//! This module has no timer, clock, randomness or socket. Its driver
//!
//! 1. reports what happened ([`connected`](ClientState::connected), [`frame`](ClientState::frame),
//!    [`disconnected`](ClientState::disconnected), [`retry`](ClientState::retry)) or what the application asks for
//!    ([`send`](ClientState::send), [`read`](ClientState::read) …),
//! 2. writes every [`next_frame`](ClientState::next_frame), and delivers every
//!    [`next_event`](ClientState::next_event) and
//!    [`next_query_result`](ClientState::next_query_result) to the application,
//! 3. calls `retry` after the delay that [`take_retry_ms`](ClientState::take_retry_ms) returns.
//!
//! Acks and reads are created in `next_frame`, so a batch of messages needs one per conversation.

mod conversation;
mod incoming;
mod outbox;
mod repair;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bluetick_protocol::{
    Auth, Bye, ClientFrame, ClientMsgId, ConversationId, DeviceId, ErrorCode, Hello, HistoryQuery,
    InConversation, InboxQuery, MessageId, Receipt, Ref, Send, Seq, SessionId, UserId, Watch, WireError,
    check_send, limits,
};

use crate::{Draft, Event, HistoryRange, QueryResult, Refusal, RequestId, Saved, Tick};
use conversation::ConversationState;
use outbox::SendOutbox;
use repair::{MissingRange, Repairs};

/// Unconfirmed messages that the outbox holds at most.
pub const OUTBOX_MAX: usize = 10_000;
/// Sends in flight at most. It is below the number of frames that the server reads ahead, so acks are
/// not delayed behind sends.
pub const IN_FLIGHT_MAX: usize = 32;
/// Requests of the application in flight at most.
pub const REQUESTS_MAX: usize = 256;
/// Conversations whose ticks are requested after a reconnect, the most recent first.
const TICKS_ASKED_MAX: usize = 32;

const _: () = assert!(IN_FLIGHT_MAX < limits::REQUESTS_AHEAD_MAX);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionPhase {
    Offline,
    /// The hello is written, the welcome has not come.
    Greeting,
    /// Between `welcome` and `caught_up`.
    Draining,
    Live,
}

/// A request in flight, by its numeric `ref`.
#[derive(Debug)]
enum PendingRequest {
    /// Made by the application. The frame is kept, because it is sent again after a reconnect.
    Application(ClientFrame),
    Repair(ConversationId, MissingRange),
    Ticks,
    Read(ConversationId, Seq),
    Watch,
}

/// The state of one device.
///
/// Report what happened ([`connected`](Self::connected), [`frame`](Self::frame),
/// [`disconnected`](Self::disconnected), [`retry`](Self::retry)) or what the application asks for, then
/// take every frame, event and query result, and call `retry` after the delay of
/// [`take_retry_ms`](Self::take_retry_ms).
#[derive(Debug)]
pub struct ClientState {
    device: DeviceId,
    /// Makes message ids unique across all starts of all devices.
    nonce: u64,
    messages_named: u64,
    user: Option<UserId>,
    phase: ConnectionPhase,
    /// The last session of this process. It is not saved, because a saved state may lack messages
    /// that this session acked.
    last_session: Option<SessionId>,
    cursor: Option<MessageId>,
    /// Whether `conversations` has every conversation of the last `caught_up`.
    knows_all: bool,
    /// The cursor's next value once no repair is open. It must not pass a missing message.
    cursor_owed: Option<MessageId>,
    /// Set between a `reset` and the next `caught_up`. Gaps are ignored then, because the application
    /// reloads everything.
    resetting: bool,
    max_body_bytes: usize,
    /// When the present session began, by the server's clock.
    server_time: u64,
    outbox: SendOutbox,
    conversations: BTreeMap<ConversationId, ConversationState>,
    /// Conversations that may have an ack or a read to write.
    owing: BTreeSet<ConversationId>,
    repairs: Repairs,
    pending_requests: BTreeMap<i64, PendingRequest>,
    last_ref: i64,
    watched: Vec<UserId>,
    retry_ms: Option<u64>,
    bye: Option<Bye>,
    frames: VecDeque<ClientFrame>,
    events: VecDeque<Event>,
    query_results: VecDeque<(RequestId, Result<QueryResult, WireError>)>,
}

impl ClientState {
    /// `nonce` must be random for every start. Message ids are derived from it, and the server takes
    /// a new message with a used id for a repetition.
    pub fn new(device: DeviceId, nonce: u64, saved: Option<Saved>) -> Self {
        let saved = saved.unwrap_or_default();
        let conversations = saved
            .conversations
            .into_iter()
            .map(|(id, kept)| (id, ConversationState::restore(kept)))
            .collect();
        ClientState {
            device,
            nonce,
            messages_named: 0,
            user: saved.user,
            phase: ConnectionPhase::Offline,
            last_session: None,
            cursor: saved.cursor,
            knows_all: saved.knows_all,
            cursor_owed: None,
            resetting: false,
            max_body_bytes: limits::BODY_HARD_MAX_BYTES,
            server_time: 0,
            outbox: SendOutbox::restore(saved.outbox, &saved.first_sent_at),
            conversations,
            owing: BTreeSet::new(),
            repairs: Repairs::default(),
            pending_requests: BTreeMap::new(),
            last_ref: 0,
            watched: Vec::new(),
            retry_ms: None,
            bye: None,
            frames: VecDeque::new(),
            events: VecDeque::new(),
            query_results: VecDeque::new(),
        }
    }

    /// The state to store, so that the device can resume from here. It covers every event, taken or
    /// not: store it only after those events were handled.
    pub fn saved(&self) -> Saved {
        let conversations = self
            .conversations
            .iter()
            .map(|(id, conversation)| (id.clone(), conversation.kept.clone()))
            .collect();
        Saved {
            user: self.user.clone(),
            cursor: self.cursor,
            knows_all: self.knows_all,
            outbox: self.outbox.sends().cloned().collect(),
            first_sent_at: self.outbox.first_sent_at(),
            conversations,
        }
    }

    // ---- the connection ----

    /// A connection was opened. The next frame is `hello`.
    pub fn connected(&mut self, token: String) {
        self.disconnected();
        self.bye = None;
        self.phase = ConnectionPhase::Greeting;
        let (device, cursor, resumes) = (self.device.clone(), self.cursor, self.last_session);
        let hello = Hello { reference: None, token, device, cursor, resumes };
        self.frames.push_back(ClientFrame::Hello(hello));
    }

    /// The connection ended. Frames in flight may or may not have arrived; the next connection
    /// repeats what matters.
    pub fn disconnected(&mut self) {
        self.phase = ConnectionPhase::Offline;
        self.frames.clear();
        self.owing.clear();
        self.repairs = Repairs::default();
        self.cursor_owed = None;
        self.resetting = false;
        self.retry_ms = None;
        self.pending_requests.retain(|_, asked| matches!(asked, PendingRequest::Application(_)));
        self.outbox.disconnected();
        for conversation in self.conversations.values_mut() {
            conversation.disconnected();
        }
    }

    /// The server's reason for ending the session, if it gave one.
    pub fn bye(&self) -> Option<&Bye> {
        self.bye.as_ref()
    }

    /// A fresh token for the running session.
    pub fn authenticate(&mut self, token: String) {
        if self.phase != ConnectionPhase::Offline {
            self.frames.push_back(ClientFrame::Auth(Auth { reference: None, token }));
        }
    }

    /// The delay before the next call of [`retry`](Self::retry), returned once for each new delay.
    pub fn take_retry_ms(&mut self) -> Option<u64> {
        self.retry_ms.take()
    }

    /// The delay is over: repeats what the server refused temporarily.
    pub fn retry(&mut self) {
        self.outbox.release_held();
        self.owe_reads();
        self.resume_repairs();
    }

    fn retry_later(&mut self, ms: u64) {
        self.retry_ms = Some(self.retry_ms.map_or(ms, |other| other.max(ms)));
    }

    // ---- calls of the application ----

    /// Adds a message to the outbox, online or offline. A message whose id is in the outbox already
    /// is not added again.
    pub fn send(&mut self, draft: Draft) -> Result<ClientMsgId, Refusal> {
        if draft.body.len() > self.max_body_bytes {
            return Err(self.body_too_large().into());
        }
        let id = match draft.client_msg_id {
            Some(id) if self.outbox.contains(&id) => return Ok(id),
            Some(id) => id,
            None => self.new_id()?,
        };
        // Fixed now: the author has not seen what arrives before the message is sent. Always given,
        // because its absence stands for everything that the user's other devices received.
        let seen_seq = draft.seen_seq.or_else(|| Some(self.received_from(&draft.to).unwrap_or(0)));
        let send = check_send(Send {
            reference: Some(Ref::Text(id.to_string())),
            client_msg_id: id.clone(),
            to: Some(draft.to),
            conversation_id: None,
            body: draft.body,
            attachment: draft.attachment,
            meta: draft.meta,
            seen_seq,
        })?;
        self.outbox.push(send)?;
        Ok(id)
    }

    fn new_id(&mut self) -> Result<ClientMsgId, Refusal> {
        self.messages_named += 1;
        ClientMsgId::new(&format!("{:016x}-{}", self.nonce, self.messages_named))
            .map_err(|e| Refusal::Invalid(WireError::new(ErrorCode::InvalidId, e.to_string())))
    }

    /// Removes a message from the outbox. If the server has stored it already, it stays sent.
    pub fn cancel(&mut self, id: &ClientMsgId) -> bool {
        self.outbox.remove(id).is_some()
    }

    /// The user has read the conversation up to `seq`. An offline read is kept and sent later.
    pub fn read(&mut self, conversation: ConversationId, seq: Seq) {
        self.conversation(&conversation).read(seq);
        self.owing.insert(conversation);
    }

    /// The user is typing. It is dropped while offline, because it would be stale later.
    pub fn typing(&mut self, conversation_id: ConversationId) {
        if self.is_up() {
            self.frames.push_back(ClientFrame::Typing(InConversation { reference: None, conversation_id }));
        }
    }

    /// Subscribes to the presence of these users, in place of those watched before. The subscription
    /// is kept across reconnects.
    pub fn watch(&mut self, users: Vec<UserId>) -> Result<(), Refusal> {
        if users.len() > limits::WATCH_MAX_USERS {
            let why = format!("at most {} users can be watched", limits::WATCH_MAX_USERS);
            return Err(WireError::new(ErrorCode::BadRequest, why).into());
        }
        self.watched = users;
        self.write_watch();
        Ok(())
    }

    /// Requests a page of conversations, newest first.
    pub fn inbox(&mut self, limit: Option<u32>, before: Option<String>) -> Result<RequestId, Refusal> {
        self.ask(|reference| ClientFrame::Inbox(InboxQuery { reference: Some(reference), limit, before }))
    }

    /// Requests a page of history for display. Its messages do not count as received.
    pub fn history(
        &mut self,
        conversation_id: ConversationId,
        range: HistoryRange,
        limit: Option<u32>,
    ) -> Result<RequestId, Refusal> {
        let (after_seq, before_seq) = match range {
            HistoryRange::Newest => (None, None),
            HistoryRange::Before(seq) => (None, Some(seq)),
            HistoryRange::After(seq) => (Some(seq), None),
        };
        self.ask(|reference| {
            let reference = Some(reference);
            ClientFrame::History(HistoryQuery { reference, conversation_id, after_seq, before_seq, limit })
        })
    }

    /// Requests how far both members of a conversation have received and read.
    pub fn status(&mut self, conversation_id: ConversationId) -> Result<RequestId, Refusal> {
        self.ask(|reference| {
            ClientFrame::Status(InConversation { reference: Some(reference), conversation_id })
        })
    }

    /// Drops a request whose result is no longer needed.
    pub fn forget(&mut self, request: RequestId) {
        if matches!(self.pending_requests.get(&request.0), Some(PendingRequest::Application(_))) {
            self.pending_requests.remove(&request.0);
        }
    }

    // ---- state ----

    /// The user of the last `welcome`; `None` before the first one.
    pub fn user(&self) -> Option<&UserId> {
        self.user.as_ref()
    }

    /// The message_id up to which the device holds everything.
    pub fn cursor(&self) -> Option<MessageId> {
        self.cursor
    }

    /// Whether the server has welcomed this connection.
    pub fn is_up(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Draining | ConnectionPhase::Live)
    }

    /// Whether the session has caught up.
    pub fn is_caught_up(&self) -> bool {
        self.phase == ConnectionPhase::Live
    }

    /// Whether a written read is not confirmed yet.
    pub fn awaits_receipts(&self) -> bool {
        self.pending_requests.values().any(|asked| matches!(asked, PendingRequest::Read(..)))
    }

    /// The unconfirmed messages, oldest first.
    pub fn outbox(&self) -> impl Iterator<Item = &Send> {
        self.outbox.sends()
    }

    /// The number of unconfirmed messages.
    pub fn outbox_len(&self) -> usize {
        self.outbox.len()
    }

    /// The tick of an own message.
    pub fn tick_of(&self, conversation: &ConversationId, seq: Seq) -> Tick {
        self.conversations.get(conversation).map_or(Tick::Single, |known| known.tick_of(seq))
    }

    // ---- output ----

    /// The next frame to write, receipts before sends.
    pub fn next_frame(&mut self) -> Option<ClientFrame> {
        if self.frames.is_empty() && self.is_up() {
            self.write_receipts();
            while self.frames.is_empty() {
                let Some(send) = self.outbox.next(self.server_time) else { break };
                if send.body.len() <= self.max_body_bytes {
                    self.frames.push_back(ClientFrame::Send(send));
                } else {
                    let error = self.body_too_large();
                    self.fail_send(&send.client_msg_id, error);
                }
            }
        }
        self.frames.pop_front()
    }

    /// The next event for the application.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next result of an [`inbox`](Self::inbox), [`history`](Self::history) or [`status`](Self::status).
    pub fn next_query_result(&mut self) -> Option<(RequestId, Result<QueryResult, WireError>)> {
        self.query_results.pop_front()
    }

    // ---- shared by the modules below ----

    fn conversation(&mut self, id: &ConversationId) -> &mut ConversationState {
        self.conversations.entry(id.clone()).or_default()
    }

    fn received_from(&self, peer: &UserId) -> Option<Seq> {
        let id = ConversationId::between(self.user.as_ref()?, peer)?;
        Some(self.conversations.get(&id)?.kept.heard)
    }

    fn body_too_large(&self) -> WireError {
        let why = format!("the body is longer than {} bytes", self.max_body_bytes);
        WireError::new(ErrorCode::BodyTooLarge, why)
    }

    fn fail_send(&mut self, id: &ClientMsgId, error: WireError) {
        if self.outbox.remove(id).is_some() {
            self.events.push_back(Event::SendFailed { client_msg_id: id.clone(), error });
        }
    }

    fn next_ref(&mut self) -> i64 {
        self.last_ref += 1;
        self.last_ref
    }

    fn ask(&mut self, frame: impl FnOnce(Ref) -> ClientFrame) -> Result<RequestId, Refusal> {
        let waiting = self
            .pending_requests
            .values()
            .filter(|asked| matches!(asked, PendingRequest::Application(_)))
            .count();
        if waiting >= REQUESTS_MAX {
            return Err(Refusal::Busy);
        }
        let number = self.next_ref();
        let frame = frame(Ref::Number(number));
        if self.is_up() {
            self.frames.push_back(frame.clone());
        }
        self.pending_requests.insert(number, PendingRequest::Application(frame));
        Ok(RequestId(number))
    }

    fn write_watch(&mut self) {
        if self.is_up() {
            let number = self.next_ref();
            self.pending_requests.insert(number, PendingRequest::Watch);
            let watch = Watch { reference: Some(Ref::Number(number)), users: self.watched.clone() };
            self.frames.push_back(ClientFrame::Watch(watch));
        }
    }

    fn owe_reads(&mut self) {
        let unread = self.conversations.iter().filter(|(_, conversation)| conversation.owes_read());
        self.owing.extend(unread.map(|(id, _)| id.clone()));
    }

    /// Writes one ack and one read per conversation, however many messages came since the last call.
    fn write_receipts(&mut self) {
        for id in std::mem::take(&mut self.owing) {
            let Some(conversation) = self.conversations.get_mut(&id) else {
                continue;
            };
            let (ack, read) = (conversation.take_ack(), conversation.take_read());
            if let Some((seq, message_id)) = ack {
                let receipt = Receipt { reference: None, conversation_id: id.clone(), seq };
                self.frames.push_back(ClientFrame::Ack(receipt));
                // During a drain, an ack says nothing about other conversations, whose messages may
                // still come.
                if self.is_caught_up() {
                    self.move_cursor(message_id);
                }
            }
            if let Some(seq) = read {
                let number = self.next_ref();
                self.pending_requests.insert(number, PendingRequest::Read(id.clone(), seq));
                let receipt = Receipt { reference: Some(Ref::Number(number)), conversation_id: id, seq };
                self.frames.push_back(ClientFrame::Read(receipt));
            }
        }
    }

    fn move_cursor(&mut self, to: MessageId) {
        self.cursor_owed = self.cursor_owed.max(Some(to));
        self.settle_cursor();
    }

    fn settle_cursor(&mut self) {
        if self.repairs.is_empty() {
            self.cursor = self.cursor.max(self.cursor_owed.take());
        }
    }
}
