//! Everything that one step of the model can see or change.
//!
//! There is one conversation with one sender and one recipient. The systems are the rows that this
//! conversation has in them; the workers and sessions are what each has found out so far and which
//! step comes next.

use std::{collections::BTreeMap, fmt};

use crate::{
    model::Delivery,
    rules::RulePart,
    scenarios::{Device as Kind, Faults, Scenario, Sight},
    session::{Handed, Session},
    worker::Attempt,
};

pub type Seq = u8;

/// Which of the sender's messages it is: it stands for the `client_msg_id` and for the body.
pub type MessageNo = u8;

/// What a seq of the `messages` table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stored {
    Message(MessageNo),
    Void,
}

/// A message on its way to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    pub seq: Seq,
    pub message: MessageNo,
}

/// An event that an app server has sent to a session, and that has not arrived. No request waits
/// for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InFlight {
    pub to: usize,
    pub event: Event,
    pub by: Sender,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    Message(Handed),
    /// A pending row was written.
    Wake,
}

/// Whose background an event is sent from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sender {
    Worker(usize),
    /// The app server that paid the debts of a closing session.
    Closing,
    /// It has given up on the event, which may still arrive.
    Nobody,
}

/// A set of sessions, by their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SessionSet(u8);

impl SessionSet {
    pub fn insert(&mut self, session: usize) {
        self.0 |= 1 << session;
    }

    pub fn remove(&mut self, session: usize) {
        self.0 &= !(1 << session);
    }

    pub fn contains(self, session: usize) -> bool {
        self.0 & 1 << session != 0
    }

    /// Those that are in this set and not in the other.
    pub fn without(self, other: SessionSet) -> SessionSet {
        SessionSet(self.0 & !other.0)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..8).filter(move |&session| self.contains(session))
    }
}

/// A device of the recipient's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Device {
    /// Its cursor. A device without one is served from pending rows and from what no device has
    /// acked.
    pub cursor: Option<Seq>,
    /// The messages it has, by the seq under which each first arrived.
    pub held: BTreeMap<Seq, MessageNo>,
    /// The session it listens to.
    pub session: Option<usize>,
    /// It does not reconnect, and nothing is owed to it.
    pub left: bool,
}

impl Device {
    /// Takes a frame. A duplicate is dropped, as a client does.
    pub fn take(&mut self, frame: Frame) {
        self.held.entry(frame.seq).or_insert(frame.message);
        self.cursor = self.cursor.map(|cursor| cursor.max(frame.seq));
    }

    pub fn holds(&self, message: MessageNo) -> bool {
        self.held.values().any(|&held| held == message)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The `messages` table.
    pub messages: BTreeMap<Seq, Stored>,
    /// The durable record of each `client_msg_id`: the seq under which it is stored.
    pub remembered: Vec<Option<Seq>>,
    /// The sequence service.
    pub counter: Seq,
    /// The recipient's row of `conversations` and place in the inbox order: the highest seq they
    /// speak of.
    pub inbox: Seq,
    /// The recipient's row of `pending_deliveries`: first_undelivered_seq.
    pub pending: Option<Seq>,
    /// A delete of that row in flight: a duplicate, or one of a session that has closed.
    pub late_delete: Option<Seq>,
    /// The recipient's row of `message_status`: last_delivered_seq.
    pub delivered: Seq,
    /// The session store.
    pub registry: SessionSet,
    pub workers: Vec<Attempt>,
    /// Sorted, so that states differ only in content.
    pub in_flight: Vec<InFlight>,
    pub sessions: Vec<Session>,
    pub devices: Vec<Device>,
    /// Faults that may still happen.
    pub faults: Faults,
    /// A session sent a seq after a higher one.
    pub out_of_order: bool,
    /// The sights that the scenario waits for and that have been seen.
    pub seen: u32,
    /// The sights that are worth remembering.
    pub wanted: u32,
}

impl State {
    pub fn new(scenario: &Scenario) -> State {
        let Scenario { messages, devices, faults, sights, flow, .. } = *scenario;
        let device = |kind: &Kind| Device {
            cursor: (*kind == Kind::WithCursor).then_some(0),
            held: BTreeMap::new(),
            session: None,
            left: *kind == Kind::Left,
        };
        State {
            messages: BTreeMap::new(),
            remembered: vec![None; messages.into()],
            counter: 0,
            inbox: 0,
            pending: None,
            late_delete: None,
            delivered: 0,
            registry: SessionSet::default(),
            workers: (0..messages).map(|message| Attempt::first(message, flow)).collect(),
            in_flight: Vec::new(),
            sessions: Vec::new(),
            devices: devices.iter().map(device).collect(),
            faults,
            out_of_order: false,
            seen: 0,
            wanted: sights.iter().fold(0, |bits, sight| bits | sight.bit()),
        }
    }

    pub fn last_seq(&self) -> Seq {
        self.messages.last_key_value().map_or(0, |(&seq, _)| seq)
    }

    /// Writes the pending row: `absent or greater`, in one step.
    pub fn note_undelivered(&mut self, seq: Seq) {
        self.pending = Some(self.pending.map_or(seq, |first| first.min(seq)));
    }

    /// Deletes the pending row if it is this one. Returns whether it did.
    pub fn delete_row(&mut self, row: Seq, model: &Delivery) -> bool {
        let is_equal = self.pending == Some(row) || !model.holds(RulePart::R4DeleteIfEqual);
        if is_equal {
            self.pending = None;
        }
        is_equal
    }

    pub fn send_late(&mut self, event: InFlight) {
        let place = self.in_flight.partition_point(|other| *other <= event);
        self.in_flight.insert(place, event);
    }

    /// Removes an event from those in flight.
    pub fn take_in_flight(&mut self, event: InFlight) {
        if let Some(place) = self.in_flight.iter().position(|other| *other == event) {
            self.in_flight.remove(place);
        }
    }

    /// A process crashed that was about to tell sessions of a row or a message. Each of them
    /// reconciles later.
    pub fn lose_notice(&mut self) {
        for session in self.sessions.iter_mut().filter(|session| session.is_open()) {
            session.expect_look();
        }
    }

    pub fn see(&mut self, sight: Sight) {
        self.seen |= sight.bit() & self.wanted;
    }

    pub fn saw(&self, sight: Sight) -> bool {
        self.seen & sight.bit() != 0
    }

    /// Whether a session is some device's.
    pub fn is_attached(&self, session: usize) -> bool {
        self.devices.iter().any(|device| device.session == Some(session))
    }

    /// A session number that neither the session store nor a worker still holds.
    pub fn free_session(&self) -> usize {
        let is_known = |session: usize| {
            let tries = |w: &Attempt| w.found.contains(session) || w.slow.contains(session);
            self.registry.contains(session)
                || self.workers.iter().any(tries)
                || self.in_flight.iter().any(|event| event.to == session)
        };
        let is_free = |&number: &usize| self.sessions[number].is_gone() && !is_known(number);
        (0..self.sessions.len()).find(is_free).unwrap_or(self.sessions.len())
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stored = |(seq, stored): (&Seq, &Stored)| match stored {
            Stored::Message(message) => format!("{seq}:m{message}"),
            Stored::Void => format!("{seq}:void"),
        };
        let messages: Vec<_> = self.messages.iter().map(stored).collect();
        let registry: Vec<_> = self.registry.iter().collect();
        write!(f, "messages {messages:?} row {:?} sessions {registry:?}", self.pending)?;
        match self.in_flight.len() {
            0 => Ok(()),
            events => write!(f, " in flight {events}"),
        }
    }
}
