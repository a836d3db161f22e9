//! Between the state and the application: dispatches commands to the state, and its events and results
//! to the callers that wait for them.

use std::collections::{HashMap, VecDeque};

use bluetick_protocol::{ClientMsgId, ErrorCode};
use tokio::sync::mpsc::{self, error::TrySendError};

use crate::{
    ClientState, Error, Event, RequestId,
    connection::{ClientQuery, Confirmation, ReplySender, StateCommand},
};

pub(crate) struct ClientDispatcher {
    pub(crate) state: ClientState,
    confirmations: HashMap<ClientMsgId, Confirmation>,
    replies: HashMap<RequestId, ReplySender>,
    /// Events that the application's channel has no room for. The socket is not read meanwhile, so
    /// the backlog stays short.
    backlog: VecDeque<Event>,
    events: mpsc::Sender<Event>,
}

impl ClientDispatcher {
    pub(crate) fn new(state: ClientState, events: mpsc::Sender<Event>) -> Self {
        ClientDispatcher {
            state,
            confirmations: HashMap::new(),
            replies: HashMap::new(),
            backlog: VecDeque::new(),
            events,
        }
    }

    /// Whether the application has to take events before the socket is read again.
    pub(crate) fn is_full(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Waits until the application's channel has room.
    pub(crate) async fn wait_for_room(&self) {
        let _ = self.events.reserve().await;
    }

    /// Resolves waiting calls, and delivers events as far as there is room.
    pub(crate) fn deliver_events(&mut self) {
        self.collect();
        while let Some(event) = self.backlog.pop_front() {
            if let Err(TrySendError::Full(event)) = self.events.try_send(event) {
                self.backlog.push_front(event);
                break;
            }
        }
    }

    fn collect(&mut self) {
        while let Some((id, answer)) = self.state.next_query_result() {
            if let Some(reply) = self.replies.remove(&id) {
                let _ = reply.send(answer.map_err(Error::Wire));
            }
        }
        while let Some(event) = self.state.next_event() {
            match &event {
                Event::Sent(sent) => self.confirm(&sent.client_msg_id, || Ok(sent.clone())),
                Event::SendFailed { client_msg_id, error } => {
                    self.confirm(client_msg_id, || Err(Error::Wire(error.clone())));
                }
                _ => {}
            }
            self.backlog.push_back(event);
        }
    }

    fn confirm(&mut self, id: &ClientMsgId, answer: impl FnOnce() -> Result<bluetick_protocol::Sent, Error>) {
        if let Some(confirmation) = self.confirmations.remove(id) {
            let _ = confirmation.send(answer());
        }
    }

    /// Adds an event of the connection, after all earlier events.
    pub(crate) fn push_event(&mut self, event: Event) {
        self.collect();
        // Of two in a row only the later one matters, and an application that takes no events must
        // not cost memory.
        let superseded = matches!(
            (self.backlog.back(), &event),
            (Some(Event::Saved(_)), Event::Saved(_))
                | (Some(Event::Disconnected { .. }), Event::Disconnected { .. })
        );
        if superseded {
            self.backlog.pop_back();
        }
        self.backlog.push_back(event);
    }

    pub(crate) fn execute(&mut self, command: StateCommand) {
        match command {
            StateCommand::Post { draft, taken, confirmed } => {
                let posted = self.state.send(draft).map_err(Error::from);
                if let (Ok(id), Some(confirmed)) = (&posted, confirmed) {
                    // The same id is the same message: the last caller waits for it.
                    if let Some(before) = self.confirmations.insert(id.clone(), confirmed) {
                        let _ = before.send(Err(Error::Cancelled));
                    }
                }
                let _ = taken.send(posted);
            }
            StateCommand::Cancel(id, answer) => {
                self.confirm(&id, || Err(Error::Cancelled));
                let _ = answer.send(self.state.cancel(&id));
            }
            StateCommand::Ask(query, reply) => self.ask(query, reply),
            StateCommand::Read(conversation, seq) => self.state.read(conversation, seq),
            StateCommand::Typing(conversation) => self.state.typing(conversation),
            StateCommand::Watch(users, taken) => {
                let _ = taken.send(self.state.watch(users).map_err(Error::from));
            }
            StateCommand::Save => {
                self.collect();
                let saved = Box::new(self.state.saved());
                self.push_event(Event::Saved(saved));
            }
        }
    }

    fn ask(&mut self, query: ClientQuery, reply: ReplySender) {
        // Requests whose callers gave up make room for new ones.
        let state = &mut self.state;
        self.replies.retain(|id, waiting| {
            let waits = !waiting.is_closed();
            if !waits {
                state.forget(*id);
            }
            waits
        });
        let asked = match query {
            ClientQuery::Inbox { limit, before } => state.inbox(limit, before),
            ClientQuery::History { conversation, range, limit } => state.history(conversation, range, limit),
            ClientQuery::Status(conversation) => state.status(conversation),
        };
        match asked {
            Ok(id) => {
                self.replies.insert(id, reply);
            }
            Err(refused) => {
                let _ = reply.send(Err(refused.into()));
            }
        }
    }

    /// Delivers the last events. Waiting calls end with [`Error::Closed`].
    pub(crate) async fn close(mut self, code: Option<ErrorCode>, reason: String) {
        self.execute(StateCommand::Save);
        self.push_event(Event::Closed { code, reason });
        self.confirmations.clear();
        self.replies.clear();
        for event in self.backlog {
            if self.events.send(event).await.is_err() {
                return;
            }
        }
    }
}
