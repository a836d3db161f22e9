//! The model as the checker sees it: which actions a state allows, and what each of them does.
//!
//! Modelled are one conversation; every step of a send as its own action; the sessions of one or
//! two devices with their window, their pending row and their end; the session store; the sequence
//! counter; and the faults of a scenario, at any moment. Not modelled are time (an overlap is a
//! number of seqs, a deadline may pass at any moment), several conversations, own sends, read
//! receipts, pushes, and lanes that are let go when nothing happens in them. A closing session's
//! store calls do not fail. The periodic look of a session is modelled where it can find something:
//! after a crash of somebody who had yet to tell a session of a row or of a message.
//!
//! The hedge is the fault `delays`: a hand-over, or a wake, that is not answered in time is in
//! flight from then on. Its request goes on without it, and it arrives at any later moment.

use std::fmt;

use stateright::{Model, Property};

use crate::{
    properties,
    rules::{RulePart, RuleParts},
    scenarios::{Scenario, Start},
    session::{self, Closing, Session, Step},
    state::{Frame, InFlight, Sender, Seq, SessionSet, State},
    worker::{self, Answer, Attempt},
};

#[derive(Clone, Debug)]
pub struct Delivery {
    pub scenario: Scenario,
    pub rules: RuleParts,
    /// Checks only this property, and stops at its shortest counterexample.
    pub only: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    Work { worker: usize, step: worker::Step },
    Connect { device: usize },
    Session { session: usize, step: session::Step },
    TakeAndAck { session: usize },
    LateDelete { row: Seq },
    Arrive(InFlight),
    Fault(Fault),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    Flush,
    Expire {
        session: usize,
    },
    LostLookup {
        worker: usize,
    },
    LostHandOver {
        worker: usize,
    },
    /// A hand-over is not answered within the hedge.
    DelayHandOver {
        worker: usize,
    },
    /// A wake is not answered within the hedge.
    DelayWake {
        worker: usize,
        to: usize,
    },
    DelayWakeOfClosing {
        session: usize,
        to: usize,
    },
    /// An event in flight is not answered by its deadline. It still arrives, or it never does.
    Overdue {
        event: InFlight,
        arrives: bool,
    },
    DeleteTwice {
        session: usize,
    },
    DeleteInFlight {
        session: usize,
    },
    /// `took`: this many frames in flight still reach the device, whose acks are lost.
    Disconnect {
        device: usize,
        took: usize,
    },
    Crash {
        session: usize,
        took: usize,
    },
    Retry {
        message: u8,
    },
    CrashWorker {
        worker: usize,
    },
    /// The app server that wakes sessions for a closed one crashes.
    CrashWaker {
        event: InFlight,
    },
    FallBack {
        to: u8,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Work { worker, step } => write!(f, "worker {worker}: {step:?}"),
            Action::Connect { device } => write!(f, "device {device}: Connect"),
            Action::Session { session, step } => write!(f, "session {session}: {step:?}"),
            Action::TakeAndAck { session } => {
                write!(f, "session {session}: its device takes a message and acks")
            }
            Action::LateDelete { row } => write!(f, "the late delete of row {row} arrives"),
            Action::Arrive(InFlight { to, event, .. }) => write!(f, "session {to}: {event:?} arrives late"),
            Action::Fault(fault) => write!(f, "FAULT {fault:?}"),
        }
    }
}

impl Delivery {
    pub fn holds(&self, rule: RulePart) -> bool {
        self.rules.hold(rule)
    }

    pub fn window(&self) -> usize {
        self.scenario.window
    }

    /// Whether nothing is left to do.
    pub fn is_quiet(&self, state: &State) -> bool {
        let is_over = state.workers.iter().all(Attempt::is_done);
        is_over && state.devices.iter().all(|device| device.session.is_some() || device.left) && {
            let mut steps = Vec::new();
            self.steps(state, &mut steps);
            steps.is_empty()
        }
    }

    /// Steps that need no fault.
    pub fn steps(&self, state: &State, actions: &mut Vec<Action>) {
        for (worker, attempt) in state.workers.iter().enumerate().filter(|(_, attempt)| !attempt.is_done()) {
            actions.push(Action::Work { worker, step: attempt.step });
        }
        let may_connect = match self.scenario.start {
            Start::OfflineFirst => state.workers.iter().all(Attempt::is_done),
            Start::AckedElsewhere => state.sessions.iter().all(Session::is_gone),
            Start::Anytime | Start::StaleEntry | Start::Connected => true,
        };
        for (device, it) in state.devices.iter().enumerate() {
            match it.session {
                None if may_connect && !it.left => actions.push(Action::Connect { device }),
                Some(session) if !state.sessions[session].unacked.is_empty() => {
                    actions.push(Action::TakeAndAck { session });
                }
                _ => {}
            }
        }
        actions.extend(state.late_delete.map(|row| Action::LateDelete { row }));
        let mut in_flight = state.in_flight.clone();
        in_flight.dedup();
        actions.extend(in_flight.into_iter().map(Action::Arrive));
        for session in 0..state.sessions.len() {
            let steps = session::steps(state, session, self);
            actions.extend(steps.into_iter().map(|step| Action::Session { session, step }));
        }
    }

    fn faults(&self, state: &State, actions: &mut Vec<Action>) {
        let left = &state.faults;
        let mut faults = Vec::new();
        let deletes = |&session: &usize| session::steps(state, session, self).contains(&Step::DeleteRow);
        if left.late_deletes > 0 {
            let sessions = (0..state.sessions.len()).filter(deletes);
            faults.extend(sessions.map(|session| Fault::DeleteTwice { session }));
        }
        if left.deletes_in_flight > 0 {
            let sessions = (0..state.sessions.len()).filter(deletes);
            faults.extend(sessions.map(|session| Fault::DeleteInFlight { session }));
        }
        if left.flushes > 0 && !state.registry.is_empty() {
            faults.push(Fault::Flush);
        }
        if left.expiries > 0 {
            faults.extend(state.registry.iter().map(|session| Fault::Expire { session }));
        }
        for (worker, attempt) in state.workers.iter().enumerate() {
            if left.lost_lookups > 0 && attempt.step == worker::Step::LookUp && !state.registry.is_empty() {
                faults.push(Fault::LostLookup { worker });
            }
            if left.lost_hand_overs > 0 && attempt.step == worker::Step::HandOver {
                faults.push(Fault::LostHandOver { worker });
            }
            let has_in_flight = || state.in_flight.iter().any(|event| event.by == Sender::Worker(worker));
            let has_work = || !attempt.is_done() || has_in_flight();
            if left.worker_crashes > 0 && attempt.has_begun() && has_work() {
                faults.push(Fault::CrashWorker { worker });
            }
            if left.delays > 0 && attempt.step == worker::Step::HandOver {
                faults.push(Fault::DelayHandOver { worker });
            }
            if left.delays > 0 && attempt.step == worker::Step::LookAgain {
                let awaited = state.registry.without(attempt.slow).iter();
                faults.extend(awaited.map(|to| Fault::DelayWake { worker, to }));
            }
            if left.retries > 0 && attempt.has_begun() {
                faults.push(Fault::Retry { message: attempt.message });
            }
        }
        for (session, it) in state.sessions.iter().enumerate() {
            if left.delays > 0 && it.owes_a_wake() {
                let woken = state.registry.iter();
                faults.extend(woken.map(|to| Fault::DelayWakeOfClosing { session, to }));
            }
        }
        for &event in state.in_flight.iter().filter(|event| event.by != Sender::Nobody) {
            if left.lost_hand_overs > 0 {
                faults.extend([true, false].map(|arrives| Fault::Overdue { event, arrives }));
            }
            if left.worker_crashes > 0 && event.by == Sender::Closing {
                faults.push(Fault::CrashWaker { event });
            }
        }
        if left.disconnects > 0 {
            for (device, it) in state.devices.iter().enumerate() {
                let Some(session) = it.session else { continue };
                let on_their_way = state.sessions[session].unacked.len();
                faults.extend((0..=on_their_way).map(|took| Fault::Disconnect { device, took }));
            }
        }
        if left.crashes > 0 {
            for (session, it) in state.sessions.iter().enumerate().filter(|(_, it)| !it.is_gone()) {
                let on_their_way = if state.is_attached(session) { it.unacked.len() } else { 0 };
                faults.extend((0..=on_their_way).map(|took| Fault::Crash { session, took }));
            }
        }
        if left.fallbacks > 0 {
            faults.extend((0..state.counter).map(|to| Fault::FallBack { to }));
        }
        actions.extend(faults.into_iter().map(Action::Fault));
    }

    fn connect(&self, state: &mut State, device: usize) -> usize {
        let session = state.free_session();
        if session == state.sessions.len() {
            state.sessions.push(Session::gone(device));
        }
        state.sessions[session] = Session::connecting(device, self);
        state.devices[device].session = Some(session);
        session
    }

    fn connect_all(&self, state: &mut State) {
        for device in 0..state.devices.len() {
            if state.devices[device].left {
                continue;
            }
            let session = self.connect(state, device);
            for step in [Step::Register, Step::ReadRows, Step::ReadInbox] {
                session::step(state, session, step, self);
            }
        }
    }

    fn fail(&self, state: &mut State, fault: Fault) {
        match fault {
            Fault::Flush => {
                state.faults.flushes -= 1;
                state.registry = Default::default();
            }
            Fault::Expire { session } => {
                state.faults.expiries -= 1;
                state.registry.remove(session);
            }
            Fault::LostLookup { worker } => {
                state.faults.lost_lookups -= 1;
                worker::step(state, worker, self, Answer::Never);
            }
            Fault::LostHandOver { worker } => {
                state.faults.lost_hand_overs -= 1;
                worker::step(state, worker, self, Answer::Never);
            }
            Fault::DelayHandOver { worker } => {
                state.faults.delays -= 1;
                let to = state.workers[worker].found.iter().next().unwrap_or_default();
                worker::step(state, worker, self, Answer::Late(to));
            }
            Fault::DelayWake { worker, to } => {
                state.faults.delays -= 1;
                worker::step(state, worker, self, Answer::Late(to));
            }
            Fault::DelayWakeOfClosing { session, to } => {
                state.faults.delays -= 1;
                let mut late = SessionSet::default();
                late.insert(to);
                session::pay(state, session, Closing::LookAgain, late, self);
            }
            Fault::Overdue { event, arrives } => {
                state.faults.lost_hand_overs -= 1;
                state.take_in_flight(event);
                if arrives {
                    state.send_late(InFlight { by: Sender::Nobody, ..event });
                }
                if self.holds(RulePart::R12StaleIsMiss) {
                    state.registry.remove(event.to);
                }
            }
            Fault::DeleteTwice { session } => {
                state.faults.late_deletes -= 1;
                state.late_delete = state.sessions[session].row;
                session::step(state, session, Step::DeleteRow, self);
            }
            Fault::DeleteInFlight { session } => {
                state.faults.deletes_in_flight -= 1;
                session::close_while_deleting(state, session, self);
            }
            Fault::Disconnect { device, took } => {
                state.faults.disconnects -= 1;
                detach(state, device, took);
            }
            Fault::Crash { session, took } => {
                state.faults.crashes -= 1;
                let device = state.sessions[session].device;
                if state.is_attached(session) {
                    detach(state, device, took);
                }
                let loses_wake = state.sessions[session].owes_a_wake();
                state.sessions[session] = Session::gone(device);
                if loses_wake {
                    state.lose_notice();
                }
            }
            Fault::Retry { message } => {
                state.faults.retries -= 1;
                state.workers.push(Attempt::again(message));
            }
            Fault::CrashWorker { worker } => {
                state.faults.worker_crashes -= 1;
                let in_flight = state.in_flight.len();
                state.in_flight.retain(|event| event.by != Sender::Worker(worker));
                let attempt = &state.workers[worker];
                let loses_wake = attempt.step == worker::Step::LookAgain;
                if !attempt.is_done() {
                    state.workers[worker] = Attempt::again(attempt.message);
                }
                if loses_wake || state.in_flight.len() < in_flight {
                    state.lose_notice();
                }
            }
            Fault::CrashWaker { event } => {
                state.faults.worker_crashes -= 1;
                state.take_in_flight(event);
                state.lose_notice();
            }
            Fault::FallBack { to } => {
                state.faults.fallbacks -= 1;
                state.counter = to;
            }
        }
    }
}

/// A device loses its session; some of what was on its way it still takes.
fn detach(state: &mut State, device: usize, took: usize) {
    let Some(session) = state.devices[device].session.take() else { return };
    for &frame in &state.sessions[session].unacked[..took] {
        state.devices[device].take(frame);
    }
}

impl Model for Delivery {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State::new(&self.scenario);
        match self.scenario.start {
            Start::Anytime | Start::OfflineFirst => {}
            Start::StaleEntry => {
                state.sessions.push(Session::gone(0));
                state.registry.insert(0);
            }
            Start::Connected => self.connect_all(&mut state),
            Start::AckedElsewhere => {
                self.connect_all(&mut state);
                while !state.workers[0].is_done() {
                    worker::step(&mut state, 0, self, Answer::InTime);
                }
                state.delivered = 1;
                for device in state.devices.iter_mut().filter(|device| device.left) {
                    device.take(Frame { seq: 1, message: 0 });
                }
            }
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.steps(state, actions);
        self.faults(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Work { worker, .. } => worker::step(&mut state, worker, self, Answer::InTime),
            Action::Connect { device } => {
                self.connect(&mut state, device);
            }
            Action::Session { session, step } => session::step(&mut state, session, step, self),
            Action::TakeAndAck { session } => session::take_ack(&mut state, session),
            Action::LateDelete { row } => {
                state.late_delete = None;
                state.delete_row(row, self);
            }
            Action::Arrive(event) => worker::arrive(&mut state, event, self),
            Action::Fault(fault) => self.fail(&mut state, fault),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = properties::all(self.scenario.sights);
        properties.retain(|property| self.only.is_none_or(|only| property.name == only));
        properties
    }
}
