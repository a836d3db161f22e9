//! How each frame of the server changes the state.

use bluetick_protocol::{
    Boundaries, Bye, CaughtUp, ClientFrame, ClientMsgId, ConversationId, ErrorCode, ErrorFrame,
    InConversation, InboxPage, MessageFrame, Ref, Sent, ServerFrame, StatusAnswer, Ticks, UserId, Welcome,
    WireError, limits,
};

use super::{
    ClientState, ConnectionPhase, PendingRequest, TICKS_ASKED_MAX, conversation::MessageSource,
    outbox::SendRefusal,
};
use crate::{Event, QueryResult, RequestId};

impl ClientState {
    /// Takes one frame of the server.
    pub fn frame(&mut self, frame: ServerFrame) {
        match frame {
            ServerFrame::Welcome(welcome) => self.on_welcome(welcome),
            ServerFrame::Sent(sent) => self.on_sent(sent),
            ServerFrame::Message(message) => self.on_message(message),
            ServerFrame::CaughtUp(caught_up) => self.on_caught_up(caught_up),
            ServerFrame::Reset(reset) => {
                self.resetting = true;
                self.events.push_back(Event::Reset { reason: reset.reason });
            }
            ServerFrame::Ticks(ticks) => self.on_ticks(ticks),
            ServerFrame::Typing(typing) => self.events.push_back(Event::Typing(typing)),
            ServerFrame::Presence(presence) => self.events.push_back(Event::Presence(presence)),
            ServerFrame::Inbox(page) => {
                self.learn_from_inbox(&page);
                self.on_response(page.reference.clone(), Ok(QueryResult::Inbox(page)));
            }
            ServerFrame::History(page) => {
                self.on_response(page.reference.clone(), Ok(QueryResult::History(page)))
            }
            ServerFrame::Status(status) => {
                self.learn_from_status(&status);
                self.on_response(status.reference.clone(), Ok(QueryResult::Status(status)));
            }
            ServerFrame::Done(done) => self.on_done(&done.reference),
            ServerFrame::Error(error) => self.on_error(error),
            ServerFrame::Bye(bye) => {
                if matches!(bye.code, ErrorCode::FrameTooLarge | ErrorCode::NotJson) {
                    self.fail_longest_send(&bye);
                }
                self.bye = Some(bye);
            }
            ServerFrame::Pong(_) => {}
        }
    }

    fn on_welcome(&mut self, welcome: Welcome) {
        if self.user.as_ref().is_some_and(|user| *user != welcome.user_id) {
            self.start_over_as_another();
        }
        self.user = Some(welcome.user_id.clone());
        self.last_session = Some(welcome.session_id);
        self.phase = ConnectionPhase::Draining;
        self.max_body_bytes = welcome.max_body_bytes;
        self.server_time = welcome.server_time;
        self.fail_too_old();
        let event = Event::Connected { user_id: welcome.user_id, server_time: welcome.server_time };
        self.events.push_back(event);
        for asked in self.pending_requests.values() {
            if let PendingRequest::Application(frame) = asked {
                self.frames.push_back(frame.clone());
            }
        }
        if !self.watched.is_empty() {
            self.write_watch();
        }
        self.owe_reads();
    }

    fn fail_too_old(&mut self) {
        for client_msg_id in self.outbox.remove_too_old(self.server_time) {
            let why = "the message was first sent more than 30 days ago; send it again if it is still wanted";
            let error = WireError::new(ErrorCode::BadRequest, why);
            self.events.push_back(Event::SendFailed { client_msg_id, error });
        }
    }

    /// The token belongs to another user than the saved state: no data of one may reach the other.
    fn start_over_as_another(&mut self) {
        self.cursor = None;
        self.knows_all = false;
        self.conversations.clear();
        self.resetting = true;
        let error = WireError::new(ErrorCode::Unauthorized, "this device now belongs to another user");
        for send in self.outbox.drain() {
            let event = Event::SendFailed { client_msg_id: send.client_msg_id, error: error.clone() };
            self.events.push_back(event);
        }
        self.events.push_back(Event::Reset { reason: error.message });
    }

    // ---- messages ----

    fn on_message(&mut self, message: MessageFrame) {
        let before = message.seq.saturating_sub(1);
        // A conversation that did not exist when this device caught up begins with seq 1.
        let (resetting, base) = (self.resetting, if self.knows_all { 0 } else { before });
        let seen = self.conversation(&message.conversation_id).seen_since(base);
        if resetting {
            seen.settle(before);
        }
        if seen.lacks_before(message.seq) {
            return self.hold_behind_gap(message);
        }
        let id = message.conversation_id.clone();
        self.take(message, MessageSource::Stream);
        self.release_held(&id);
    }

    /// Takes a message with no gap before it.
    pub(super) fn take(&mut self, message: MessageFrame, source: MessageSource) {
        let own = self.user.as_ref() == Some(&message.sender);
        let fresh = self.conversation(&message.conversation_id).take(&message, own, source);
        if !own {
            self.owing.insert(message.conversation_id.clone());
        }
        // An own message of the outbox is reported by `Sent` when the server confirms it.
        if fresh && !(own && self.outbox.contains(&message.client_msg_id)) {
            self.events.push_back(Event::Message(message));
        }
    }

    fn on_sent(&mut self, sent: Sent) {
        self.conversation(&sent.conversation_id).own_sent(sent.seq, sent.message_id, sent.duplicate);
        self.release_held(&sent.conversation_id);
        if self.outbox.remove(&sent.client_msg_id).is_some() {
            self.events.push_back(Event::Sent(sent));
        }
    }

    fn on_caught_up(&mut self, caught_up: CaughtUp) {
        self.phase = ConnectionPhase::Live;
        let knew_all = std::mem::replace(&mut self.knows_all, caught_up.heads.len() < limits::HEADS_MAX);
        for head in caught_up.heads {
            let (resetting, base) = (self.resetting, if knew_all { 0 } else { head.last_seq });
            let seen = self.conversation(&head.conversation_id).seen_since(base);
            if resetting {
                seen.settle(head.last_seq);
            }
            if seen.settled() < head.last_seq {
                self.repair_up_to(head.conversation_id, head.last_seq);
            }
        }
        self.resetting = false;
        self.ack_again();
        self.move_cursor(caught_up.cursor);
        self.ask_for_ticks();
        self.events.push_back(Event::CaughtUp);
    }

    // ---- receipts ----

    /// An ack may have been lost with the connection, and the server need not deliver its messages
    /// again.
    fn ack_again(&mut self) {
        for (id, conversation) in &mut self.conversations {
            if conversation.ack_again() {
                self.owing.insert(id.clone());
            }
        }
    }

    /// Requests the ticks that may have changed while the device was offline.
    fn ask_for_ticks(&mut self) {
        let mut unfinished: Vec<_> = self
            .conversations
            .iter()
            .filter_map(|(id, conversation)| Some((conversation.unfinished_tick()?, id.clone())))
            .collect();
        unfinished.sort_unstable_by(|a, b| b.cmp(a));
        for (_, conversation_id) in unfinished.into_iter().take(TICKS_ASKED_MAX) {
            let number = self.next_ref();
            self.pending_requests.insert(number, PendingRequest::Ticks);
            let query = InConversation { reference: Some(Ref::Number(number)), conversation_id };
            self.frames.push_back(ClientFrame::Status(query));
        }
    }

    fn on_ticks(&mut self, ticks: Ticks) {
        let boundaries =
            Boundaries { last_delivered_seq: ticks.last_delivered_seq, last_read_seq: ticks.last_read_seq };
        if self.user.as_ref() == Some(&ticks.user_id) {
            self.merge_own(&ticks.conversation_id, &boundaries);
        } else {
            self.merge_peer(&ticks.conversation_id, &boundaries);
        }
    }

    fn learn_from_status(&mut self, status: &StatusAnswer) {
        self.merge_own(&status.conversation_id, &status.own);
        self.merge_peer(&status.conversation_id, &status.peer);
    }

    fn learn_from_inbox(&mut self, page: &InboxPage) {
        for entry in &page.conversations {
            self.merge_peer(&entry.conversation_id, &entry.peer_status);
        }
    }

    fn merge_own(&mut self, id: &ConversationId, boundaries: &Boundaries) {
        if self.conversation(id).merge_own(boundaries)
            && let Some(me) = self.user.clone()
        {
            let merged = self.conversation(id).kept.own.clone();
            self.tell_ticks(id, me, merged);
        }
    }

    fn merge_peer(&mut self, id: &ConversationId, boundaries: &Boundaries) {
        if self.conversation(id).merge_peer(boundaries)
            && let Some(peer) = self.user.as_ref().and_then(|me| id.peer_of(me))
        {
            let merged = self.conversation(id).kept.peer.clone();
            self.tell_ticks(id, peer, merged);
        }
    }

    fn tell_ticks(&mut self, id: &ConversationId, user_id: UserId, merged: Boundaries) {
        self.events.push_back(Event::Ticks(Ticks {
            conversation_id: id.clone(),
            user_id,
            last_delivered_seq: merged.last_delivered_seq,
            last_read_seq: merged.last_read_seq,
        }));
    }

    // ---- responses ----

    fn on_response(&mut self, reference: Option<Ref>, response: Result<QueryResult, WireError>) {
        let Some(Ref::Number(number)) = reference else {
            return;
        };
        match self.pending_requests.remove(&number) {
            Some(PendingRequest::Application(_)) => {
                self.query_results.push_back((RequestId(number), response))
            }
            Some(PendingRequest::Repair(id, missing)) => match response {
                Ok(QueryResult::History(page)) => self.repaired(id, missing, Ok(page)),
                Ok(_) => {}
                Err(error) => self.repaired(id, missing, Err(error)),
            },
            Some(PendingRequest::Read(id, _)) => self.on_read_refused(&id, response.err()),
            Some(PendingRequest::Ticks | PendingRequest::Watch) | None => {}
        }
    }

    fn on_read_refused(&mut self, id: &ConversationId, error: Option<WireError>) {
        let Some(error) = error else { return };
        if error.code.is_retryable() {
            self.conversation(id).read_lost();
            self.retry_later(error.retry_after_ms.unwrap_or(2_000));
        } else {
            self.conversation(id).read_refused();
        }
    }

    fn on_done(&mut self, reference: &Ref) {
        let Ref::Number(number) = reference else { return };
        if let Some(PendingRequest::Read(id, seq)) = self.pending_requests.remove(number) {
            self.conversation(&id).read_confirmed(seq);
        }
    }

    fn on_error(&mut self, error: ErrorFrame) {
        match error.reference {
            Some(Ref::Text(name)) => {
                let Ok(id) = ClientMsgId::new(&name) else { return };
                match self.outbox.refused(&id, &error.error) {
                    SendRefusal::UnknownMessage => {}
                    SendRefusal::RetryAfterMs(ms) => self.retry_later(ms),
                    SendRefusal::Failed => {
                        let event = Event::SendFailed { client_msg_id: id, error: error.error };
                        self.events.push_back(event);
                    }
                }
            }
            reference => self.on_response(reference, Err(error.error)),
        }
    }

    /// A message that makes the server hang up would do so in every session and block the messages
    /// behind it. The longest one in flight is the likeliest cause.
    fn fail_longest_send(&mut self, bye: &Bye) {
        if let Some(id) = self.outbox.longest_in_flight() {
            self.fail_send(&id, WireError::new(bye.code, bye.reason.clone()));
        }
    }
}
