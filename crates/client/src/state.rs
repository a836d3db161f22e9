//! The client's half of the contract as plain state: frames in, frames and events out.
//!
//! Nothing here sleeps, reads a clock, draws a random number or touches a socket. Whoever drives it
//!
//! 1. says what happened ([`connected`](ClientState::connected), [`frame`](ClientState::frame),
//!    [`disconnected`](ClientState::disconnected), [`retry`](ClientState::retry)) or what the application wants
//!    ([`send`](ClientState::send), [`read`](ClientState::read) …),
//! 2. writes every [`next_frame`](ClientState::next_frame), hands on every [`next_event`](ClientState::next_event)
//!    and [`next_answer`](ClientState::next_answer),
//! 3. calls `retry` as long after as [`take_retry_ms`](ClientState::take_retry_ms) says.
//!
//! Acks and reads are made when frames are asked for, so those of a batch of messages become one per conversation.

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

use crate::{Answer, Draft, Event, HistoryRange, Refused, RequestId, Saved, Tick};
use conversation::Conversation;
use outbox::Outbox;
use repair::{Missing, Repairs};

/// Messages that may wait for the server's confirmation.
pub const OUTBOX_MAX: usize = 10_000;
/// Messages written and not yet confirmed; below what the server reads ahead, so that acks are never stuck behind.
pub const IN_FLIGHT_MAX: usize = 32;
/// Requests of the application's that may wait for an answer.
pub const REQUESTS_MAX: usize = 256;
/// Conversations whose ticks are asked for after a reconnect, the most recent first.
const TICKS_ASKED_MAX: usize = 32;

const _: () = assert!(IN_FLIGHT_MAX < limits::REQUESTS_AHEAD_MAX);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Down,
    /// The hello is written, the welcome has not come.
    Greeting,
    Up {
        caught_up: bool,
    },
}

/// What a numbered `ref` stands for.
#[derive(Debug)]
enum Asked {
    /// The application waits; the frame is kept, because it is asked again after a reconnect.
    ByApplication(ClientFrame),
    Repair(ConversationId, Missing),
    Ticks,
    Read(ConversationId, Seq),
    Watch,
}

/// One device's state. See the module's words for how to drive it.
#[derive(Debug)]
pub struct ClientState {
    device: DeviceId,
    /// Makes message ids differ from those of every other start of every device.
    nonce: u64,
    messages_named: u64,
    user: Option<UserId>,
    link: Link,
    /// The last session since this start. It is not saved: what is saved may be older than what was acked.
    last_session: Option<SessionId>,
    cursor: Option<MessageId>,
    /// Every conversation that the user had when this device last caught up is known here.
    knows_all: bool,
    /// Where the cursor may go once no repair is open: it must never pass a message that is still missing.
    cursor_owed: Option<MessageId>,
    /// Between a `reset` and the next `caught_up` gaps mean nothing: the application loads everything anew.
    resetting: bool,
    max_body_bytes: usize,
    /// When the present session began, by the server's clock.
    server_time: u64,
    outbox: Outbox,
    conversations: BTreeMap<ConversationId, Conversation>,
    /// Conversations that may owe an ack or a read.
    owing: BTreeSet<ConversationId>,
    repairs: Repairs,
    asked: BTreeMap<i64, Asked>,
    last_ref: i64,
    watched: Vec<UserId>,
    retry_ms: Option<u64>,
    bye: Option<Bye>,
    frames: VecDeque<ClientFrame>,
    events: VecDeque<Event>,
    answers: VecDeque<(RequestId, Result<Answer, WireError>)>,
}

impl ClientState {
    /// `nonce` must be drawn at random for every start: the ids of messages are made from it, and an id used
    /// twice would make the server take a new message for a repetition.
    pub fn new(device: DeviceId, nonce: u64, saved: Option<Saved>) -> Self {
        let saved = saved.unwrap_or_default();
        let conversations =
            saved.conversations.into_iter().map(|(id, kept)| (id, Conversation::restore(kept))).collect();
        ClientState {
            device,
            nonce,
            messages_named: 0,
            user: saved.user,
            link: Link::Down,
            last_session: None,
            cursor: saved.cursor,
            knows_all: saved.knows_all,
            cursor_owed: None,
            resetting: false,
            max_body_bytes: limits::BODY_HARD_MAX_BYTES,
            server_time: 0,
            outbox: Outbox::restore(saved.outbox, &saved.first_sent_at),
            conversations,
            owing: BTreeSet::new(),
            repairs: Repairs::default(),
            asked: BTreeMap::new(),
            last_ref: 0,
            watched: Vec::new(),
            retry_ms: None,
            bye: None,
            frames: VecDeque::new(),
            events: VecDeque::new(),
            answers: VecDeque::new(),
        }
    }

    /// What to store so that the device can go on from here. Covers every event, taken or not: store it only
    /// after the events before it were handled.
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

    /// A connection is open: says hello on it.
    pub fn connected(&mut self, token: String) {
        self.disconnected();
        self.bye = None;
        self.link = Link::Greeting;
        let (device, cursor, resumes) = (self.device.clone(), self.cursor, self.last_session);
        let hello = Hello { reference: None, token, device, cursor, resumes };
        self.frames.push_back(ClientFrame::Hello(hello));
    }

    /// The connection is gone. What was under way is unknown; what must be said again will be.
    pub fn disconnected(&mut self) {
        self.link = Link::Down;
        self.frames.clear();
        self.owing.clear();
        self.repairs = Repairs::default();
        self.cursor_owed = None;
        self.resetting = false;
        self.retry_ms = None;
        self.asked.retain(|_, asked| matches!(asked, Asked::ByApplication(_)));
        self.outbox.disconnected();
        for conversation in self.conversations.values_mut() {
            conversation.disconnected();
        }
    }

    /// Why the server ended the session, if it said so.
    pub fn bye(&self) -> Option<&Bye> {
        self.bye.as_ref()
    }

    /// A fresh token for the running session.
    pub fn authenticate(&mut self, token: String) {
        if self.link != Link::Down {
            self.frames.push_back(ClientFrame::Auth(Auth { reference: None, token }));
        }
    }

    /// How long to wait before calling [`retry`](Self::retry); told once for each new wait.
    pub fn take_retry_ms(&mut self) -> Option<u64> {
        self.retry_ms.take()
    }

    /// The wait is over: what the server refused for the moment is tried again.
    pub fn retry(&mut self) {
        self.outbox.release_held();
        self.owe_reads();
        self.resume_repairs();
    }

    fn retry_later(&mut self, ms: u64) {
        self.retry_ms = Some(self.retry_ms.map_or(ms, |other| other.max(ms)));
    }

    // ---- what the application wants ----

    /// Puts a message into the outbox, whether connected or not. One whose id is in it already is there, and stays as it is.
    pub fn send(&mut self, draft: Draft) -> Result<ClientMsgId, Refused> {
        if draft.body.len() > self.max_body_bytes {
            return Err(self.body_too_large().into());
        }
        let id = match draft.client_msg_id {
            Some(id) if self.outbox.contains(&id) => return Ok(id),
            Some(id) => id,
            None => self.new_id()?,
        };
        // Fixed when the message is written: what comes in before it goes out was not seen by its author.
        // A device that knows nothing says so: left out, it would stand for what the user's other devices have.
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

    fn new_id(&mut self) -> Result<ClientMsgId, Refused> {
        self.messages_named += 1;
        ClientMsgId::new(&format!("{:016x}-{}", self.nonce, self.messages_named))
            .map_err(|e| Refused::Invalid(WireError::new(ErrorCode::InvalidId, e.to_string())))
    }

    /// Takes a message out of the outbox. The server may have it already; then it stays sent.
    pub fn cancel(&mut self, id: &ClientMsgId) -> bool {
        self.outbox.remove(id).is_some()
    }

    /// The user has read the conversation up to here. Made offline, it is kept and said later.
    pub fn read(&mut self, conversation: ConversationId, seq: Seq) {
        self.conversation(&conversation).read(seq);
        self.owing.insert(conversation);
    }

    /// The user is typing; nobody wants to hear of it later, so offline it is forgotten.
    pub fn typing(&mut self, conversation_id: ConversationId) {
        if self.is_up() {
            self.frames.push_back(ClientFrame::Typing(InConversation { reference: None, conversation_id }));
        }
    }

    /// Whose presence to hear of, in place of whoever was watched before; kept across reconnects.
    pub fn watch(&mut self, users: Vec<UserId>) -> Result<(), Refused> {
        if users.len() > limits::WATCH_MAX_USERS {
            let why = format!("at most {} users can be watched", limits::WATCH_MAX_USERS);
            return Err(WireError::new(ErrorCode::BadRequest, why).into());
        }
        self.watched = users;
        self.write_watch();
        Ok(())
    }

    /// A page of the conversations, newest first.
    pub fn inbox(&mut self, limit: Option<u32>, before: Option<String>) -> Result<RequestId, Refused> {
        self.ask(|reference| ClientFrame::Inbox(InboxQuery { reference: Some(reference), limit, before }))
    }

    /// A page of history. It is the application's alone: what it shows does not count as received.
    pub fn history(
        &mut self,
        conversation_id: ConversationId,
        range: HistoryRange,
        limit: Option<u32>,
    ) -> Result<RequestId, Refused> {
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

    /// How far both members of a conversation have received and read.
    pub fn status(&mut self, conversation_id: ConversationId) -> Result<RequestId, Refused> {
        self.ask(|reference| {
            ClientFrame::Status(InConversation { reference: Some(reference), conversation_id })
        })
    }

    /// Nobody waits for this answer any more.
    pub fn forget(&mut self, request: RequestId) {
        if matches!(self.asked.get(&request.0), Some(Asked::ByApplication(_))) {
            self.asked.remove(&request.0);
        }
    }

    // ---- what is known ----

    /// Who the server says we are; unknown until the first welcome of the device's life.
    pub fn user(&self) -> Option<&UserId> {
        self.user.as_ref()
    }

    /// The message_id up to which the device holds everything.
    pub fn cursor(&self) -> Option<MessageId> {
        self.cursor
    }

    /// Whether the server has welcomed this connection.
    pub fn is_up(&self) -> bool {
        matches!(self.link, Link::Up { .. })
    }

    /// Whether what was waiting when the session began has come.
    pub fn is_caught_up(&self) -> bool {
        self.link == Link::Up { caught_up: true }
    }

    /// Whether the server has not yet confirmed a read that was written to it.
    pub fn awaits_receipts(&self) -> bool {
        self.asked.values().any(|asked| matches!(asked, Asked::Read(..)))
    }

    /// Messages that the server has not confirmed, oldest first.
    pub fn outbox(&self) -> impl Iterator<Item = &Send> {
        self.outbox.sends()
    }

    /// How many there are.
    pub fn outbox_len(&self) -> usize {
        self.outbox.len()
    }

    /// The tick of a message of one's own.
    pub fn tick_of(&self, conversation: &ConversationId, seq: Seq) -> Tick {
        self.conversations.get(conversation).map_or(Tick::Single, |known| known.tick_of(seq))
    }

    // ---- what comes out ----

    /// The next frame to write, acks first.
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

    /// The next thing that the application should hear of.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next answer to an [`inbox`](Self::inbox), [`history`](Self::history) or [`status`](Self::status).
    pub fn next_answer(&mut self) -> Option<(RequestId, Result<Answer, WireError>)> {
        self.answers.pop_front()
    }

    // ---- shared by the modules below ----

    fn conversation(&mut self, id: &ConversationId) -> &mut Conversation {
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

    fn ask(&mut self, frame: impl FnOnce(Ref) -> ClientFrame) -> Result<RequestId, Refused> {
        let waiting = self.asked.values().filter(|asked| matches!(asked, Asked::ByApplication(_))).count();
        if waiting >= REQUESTS_MAX {
            return Err(Refused::Busy);
        }
        let number = self.next_ref();
        let frame = frame(Ref::Number(number));
        if self.is_up() {
            self.frames.push_back(frame.clone());
        }
        self.asked.insert(number, Asked::ByApplication(frame));
        Ok(RequestId(number))
    }

    fn write_watch(&mut self) {
        if self.is_up() {
            let number = self.next_ref();
            self.asked.insert(number, Asked::Watch);
            let watch = Watch { reference: Some(Ref::Number(number)), users: self.watched.clone() };
            self.frames.push_back(ClientFrame::Watch(watch));
        }
    }

    fn owe_reads(&mut self) {
        let unread = self.conversations.iter().filter(|(_, conversation)| conversation.owes_read());
        self.owing.extend(unread.map(|(id, _)| id.clone()));
    }

    /// One ack and one read for each conversation, however many messages came since the last time.
    fn write_receipts(&mut self) {
        for id in std::mem::take(&mut self.owing) {
            let Some(conversation) = self.conversations.get_mut(&id) else {
                continue;
            };
            let (ack, read) = (conversation.take_ack(), conversation.take_read());
            if let Some((seq, message_id)) = ack {
                let receipt = Receipt { reference: None, conversation_id: id.clone(), seq };
                self.frames.push_back(ClientFrame::Ack(receipt));
                // Before the drain is over an ack says nothing about other conversations: theirs may still come.
                if self.is_caught_up() {
                    self.move_cursor(message_id);
                }
            }
            if let Some(seq) = read {
                let number = self.next_ref();
                self.asked.insert(number, Asked::Read(id.clone(), seq));
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
        if self.repairs.are_done() {
            self.cursor = self.cursor.max(self.cursor_owed.take());
        }
    }
}
