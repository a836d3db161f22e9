//! Between the state and the application: who waits for what, and the events that are on their way.

use std::collections::{HashMap, VecDeque};

use bluetick_protocol::{ClientMsgId, ErrorCode};
use tokio::sync::mpsc::{self, error::TrySendError};

use crate::{
    ClientState, Error, Event, RequestId,
    connection::{Confirmation, DeskCommand, Query, Reply},
};

pub(crate) struct Desk {
    pub(crate) state: ClientState,
    confirmations: HashMap<ClientMsgId, Confirmation>,
    replies: HashMap<RequestId, Reply>,
    /// What the application has not made room for. The socket is not read meanwhile, so it stays short.
    backlog: VecDeque<Event>,
    events: mpsc::Sender<Event>,
}

impl Desk {
    pub(crate) fn new(state: ClientState, events: mpsc::Sender<Event>) -> Self {
        Desk {
            state,
            confirmations: HashMap::new(),
            replies: HashMap::new(),
            backlog: VecDeque::new(),
            events,
        }
    }

    /// Whether the application should take events before more is read.
    pub(crate) fn is_full(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Waits until the application has taken an event.
    pub(crate) async fn room(&self) {
        let _ = self.events.reserve().await;
    }

    /// Answers who waits, and hands events on as far as there is room.
    pub(crate) fn hand_on(&mut self) {
        self.collect();
        while let Some(event) = self.backlog.pop_front() {
            if let Err(TrySendError::Full(event)) = self.events.try_send(event) {
                self.backlog.push_front(event);
                break;
            }
        }
    }

    fn collect(&mut self) {
        while let Some((id, answer)) = self.state.next_answer() {
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

    /// Tells something of the connection's, behind all that came before it.
    pub(crate) fn tell(&mut self, event: Event) {
        self.collect();
        // Of two in a row only the later one is of use, and an application that reads nothing must not cost memory.
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

    pub(crate) fn serve(&mut self, command: DeskCommand) {
        match command {
            DeskCommand::Post { draft, taken, confirmed } => {
                let posted = self.state.send(draft).map_err(Error::from);
                if let (Ok(id), Some(confirmed)) = (&posted, confirmed) {
                    // The same id again is the same message: who asked last waits for it.
                    if let Some(before) = self.confirmations.insert(id.clone(), confirmed) {
                        let _ = before.send(Err(Error::Cancelled));
                    }
                }
                let _ = taken.send(posted);
            }
            DeskCommand::Cancel(id, answer) => {
                self.confirm(&id, || Err(Error::Cancelled));
                let _ = answer.send(self.state.cancel(&id));
            }
            DeskCommand::Ask(query, reply) => self.ask(query, reply),
            DeskCommand::Read(conversation, seq) => self.state.read(conversation, seq),
            DeskCommand::Typing(conversation) => self.state.typing(conversation),
            DeskCommand::Watch(users, taken) => {
                let _ = taken.send(self.state.watch(users).map_err(Error::from));
            }
            DeskCommand::Save => {
                self.collect();
                let saved = Box::new(self.state.saved());
                self.tell(Event::Saved(saved));
            }
        }
    }

    fn ask(&mut self, query: Query, reply: Reply) {
        // Those who gave up waiting make room for those who still do.
        let state = &mut self.state;
        self.replies.retain(|id, waiting| {
            let waits = !waiting.is_closed();
            if !waits {
                state.forget(*id);
            }
            waits
        });
        let asked = match query {
            Query::Inbox { limit, before } => state.inbox(limit, before),
            Query::History { conversation, range, limit } => state.history(conversation, range, limit),
            Query::Status(conversation) => state.status(conversation),
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

    /// The last words; who still waits learns that the client is closed.
    pub(crate) async fn close(mut self, code: Option<ErrorCode>, reason: String) {
        self.serve(DeskCommand::Save);
        self.tell(Event::Closed { code, reason });
        self.confirmations.clear();
        self.replies.clear();
        for event in self.backlog {
            if self.events.send(event).await.is_err() {
                return;
            }
        }
    }
}
