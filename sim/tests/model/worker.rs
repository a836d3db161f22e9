//! A send on an app worker, a step at a time. Between any two steps everybody else may do anything.
//!
//! Each attempt at a message has a worker of its own, so that two messages can overtake each other
//! at every step, and so that a retry can run beside the attempt it repeats.

use crate::{
    model::Delivery,
    rules::RulePart,
    scenarios::Sight,
    session::{self, HandOver, Handed},
    state::{Event, InFlight, MessageNo, Sender, Seq, SessionSet, State, Stored},
};

/// The step that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    LookForOriginal,
    /// The lookup before the store. It decides whether the row is written with the message, and,
    /// only without R2, which sessions get the message.
    LookUpEarly,
    TakeSeq,
    PutMessage,
    RaiseCounter,
    UpdateInbox,
    LookUp,
    HandOver,
    /// A repeated delivery of what a device has acked leaves no row.
    SeeIfAcked,
    WriteRow,
    /// Only without R3: the read found no row.
    PutRow,
    LookAgain,
    /// The sender was told `sent`.
    Answered,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attempt {
    pub message: MessageNo,
    pub step: Step,
    pub seq: Seq,
    /// The sessions that a lookup found and that have not been tried yet.
    pub found: SessionSet,
    /// The sessions that have not answered a hand-over within the hedge.
    pub slow: SessionSet,
    pub taken: bool,
    /// The pending row was written along with the message.
    pub row_written: bool,
    /// It repeats the delivery of a stored message.
    pub duplicate: bool,
}

impl Attempt {
    /// A first attempt, which has no original.
    pub fn first(message: MessageNo, flow: Flow) -> Attempt {
        Attempt::new(message, start(flow))
    }

    /// A further attempt at the same message.
    pub fn again(message: MessageNo) -> Attempt {
        Attempt::new(message, Step::LookForOriginal)
    }

    fn new(message: MessageNo, step: Step) -> Attempt {
        Attempt {
            message,
            step,
            seq: 0,
            found: SessionSet::default(),
            slow: SessionSet::default(),
            taken: false,
            row_written: false,
            duplicate: false,
        }
    }

    pub fn has_begun(&self) -> bool {
        self.seq > 0 || self.is_done()
    }

    pub fn is_done(&self) -> bool {
        self.step == Step::Answered
    }
}

/// How a scenario's workers go about a send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// Store, look up, hand over, and write the row if no session accepted the message.
    #[default]
    StoreThenLookUp,
    /// A lookup ahead of the store decides whether the row is written along with the message; the
    /// lookup after the store decides whom it is handed to.
    RowRidesAlong,
}

/// The first step of a send that repeats none.
fn start(flow: Flow) -> Step {
    match flow {
        Flow::StoreThenLookUp => Step::TakeSeq,
        Flow::RowRidesAlong => Step::LookUpEarly,
    }
}

/// When whom a worker asks answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    InTime,
    /// The session does not answer within the hedge. The event arrives later.
    Late(usize),
    Never,
}

/// Makes the next step of a worker.
pub fn step(state: &mut State, worker: usize, model: &Delivery, answer: Answer) {
    let answers = answer != Answer::Never;
    let by = Sender::Worker(worker);
    let mut own = state.workers[worker].clone();
    own.step = match own.step {
        Step::LookForOriginal => match state.remembered[usize::from(own.message)] {
            Some(seq) if model.holds(RulePart::R9RememberSends) => repeat(state, &mut own, seq, model),
            _ => start(model.scenario.flow),
        },
        Step::LookUpEarly => {
            let found = if answers { state.registry } else { SessionSet::default() };
            if model.holds(RulePart::R2StoreThenLookUp) {
                own.row_written = found.is_empty();
                Step::TakeSeq
            } else {
                own.found = found;
                Step::PutMessage
            }
        }
        Step::TakeSeq => {
            state.counter += 1;
            own.seq = state.counter;
            match model.holds(RulePart::R2StoreThenLookUp) {
                true => Step::PutMessage,
                false => Step::LookUpEarly,
            }
        }
        Step::PutMessage => put_message(state, &mut own, model),
        Step::RaiseCounter => {
            state.counter = state.counter.max(state.last_seq());
            Step::TakeSeq
        }
        Step::UpdateInbox => {
            state.inbox = state.inbox.max(own.seq);
            match () {
                _ if own.row_written => write_row(&own),
                _ if model.holds(RulePart::R2StoreThenLookUp) => Step::LookUp,
                _ => next_hand_over(&mut own, model),
            }
        }
        Step::LookUp => {
            own.found = if answers { state.registry } else { SessionSet::default() };
            next_hand_over(&mut own, model)
        }
        Step::HandOver => {
            hand_over(state, &mut own, model, answer, by);
            next_hand_over(&mut own, model)
        }
        Step::SeeIfAcked if state.delivered < own.seq => Step::WriteRow,
        Step::SeeIfAcked if own.row_written => {
            own.row_written = false;
            Step::LookUp
        }
        Step::SeeIfAcked => Step::Answered,
        Step::WriteRow if model.holds(RulePart::R3KeepMinimum) => {
            state.note_undelivered(own.seq);
            after_row(&own, model)
        }
        Step::WriteRow if state.pending.is_none() => Step::PutRow,
        Step::WriteRow => after_row(&own, model),
        Step::PutRow => {
            state.pending = Some(own.seq);
            after_row(&own, model)
        }
        Step::LookAgain => {
            if let Answer::Late(session) = answer {
                own.slow.insert(session);
            }
            wake_all(state, own.slow, by, model);
            Step::Answered
        }
        Step::Answered => Step::Answered,
    };
    if own.is_done() {
        // What it learned before no longer matters.
        own = Attempt::new(own.message, Step::Answered);
    }
    state.workers[worker] = own;
}

/// The message is stored already: its delivery is run again.
fn repeat(state: &mut State, own: &mut Attempt, seq: Seq, model: &Delivery) -> Step {
    state.see(Sight::Duplicate);
    (own.seq, own.duplicate) = (seq, true);
    match model.holds(RulePart::R9DeliverAgain) {
        true => Step::UpdateInbox,
        false => Step::Answered,
    }
}

/// Message and record in one conditional write.
fn put_message(state: &mut State, own: &mut Attempt, model: &Delivery) -> Step {
    let original = state.remembered[usize::from(own.message)];
    if let Some(seq) = original.filter(|_| model.holds(RulePart::R9RememberSends)) {
        return repeat(state, own, seq, model);
    }
    if state.messages.contains_key(&own.seq) && model.holds(RulePart::R8FenceSeqs) {
        state.see(Sight::SeqRefused);
        own.found = SessionSet::default();
        return Step::RaiseCounter;
    }
    state.messages.insert(own.seq, Stored::Message(own.message));
    state.remembered[usize::from(own.message)] = Some(own.seq);
    Step::UpdateInbox
}

fn next_hand_over(own: &mut Attempt, model: &Delivery) -> Step {
    let relies_on_slow = !own.slow.is_empty() && !model.holds(RulePart::R2RowBeforeAnswer);
    match () {
        _ if !own.found.is_empty() => Step::HandOver,
        _ if own.taken || own.row_written || relies_on_slow => Step::Answered,
        _ => write_row(own),
    }
}

fn write_row(own: &Attempt) -> Step {
    match own.duplicate {
        true => Step::SeeIfAcked,
        false => Step::WriteRow,
    }
}

/// Hands the message to one of the sessions that were found. One whose answer does not come by the
/// deadline may have taken it all the same.
fn hand_over(state: &mut State, own: &mut Attempt, model: &Delivery, answer: Answer, by: Sender) {
    let Some(to) = own.found.iter().next() else { return };
    own.found.remove(to);
    // The first run of a repeated send may have left a row that no session knows of.
    let look_for_row = own.row_written || own.duplicate;
    let handed = Handed { seq: own.seq, message: own.message, look_for_row };
    if let Answer::Late(_) = answer {
        own.slow.insert(to);
        return state.send_late(InFlight { to, event: Event::Message(handed), by });
    }
    let outcome = session::hand_over(state, to, handed, model);
    match if answer == Answer::InTime { outcome } else { HandOver::Refused } {
        HandOver::Taken => own.taken = true,
        HandOver::Refused if model.holds(RulePart::R12StaleIsMiss) => {
            state.see(Sight::EntryRemoved);
            state.registry.remove(to);
        }
        HandOver::Refused => own.taken = true,
    }
}

/// An event that was in flight arrives.
pub fn arrive(state: &mut State, event: InFlight, model: &Delivery) {
    state.take_in_flight(event);
    let InFlight { to, event, by } = event;
    let outcome = match event {
        Event::Wake => session::wake(state, to),
        Event::Message(handed) => {
            let has_row = state.pending.is_some_and(|first| first <= handed.seq);
            let outcome = session::hand_over(state, to, handed, model);
            match outcome {
                HandOver::Taken if has_row => state.see(Sight::AcceptedLate),
                HandOver::Taken => {}
                HandOver::Refused => state.see(Sight::RefusedLate),
            }
            outcome
        }
    };
    if outcome == HandOver::Refused && by != Sender::Nobody && model.holds(RulePart::R12StaleIsMiss) {
        state.registry.remove(to);
    }
}

fn after_row(own: &Attempt, model: &Delivery) -> Step {
    match () {
        // The lookup after the store is the second one.
        _ if own.row_written => Step::LookUp,
        _ if model.holds(RulePart::R2LookAgain) => Step::LookAgain,
        _ => Step::Answered,
    }
}

/// The second lookup: every session found is told to read its pending row. Those of them that are
/// slow hear of it later.
pub fn wake_all(state: &mut State, slow: SessionSet, by: Sender, model: &Delivery) {
    for session in state.registry.without(slow).iter() {
        if session::wake(state, session) == HandOver::Refused && model.holds(RulePart::R12StaleIsMiss) {
            state.registry.remove(session);
        }
    }
    if model.holds(RulePart::R2WakeTheSlow) {
        for to in state.registry.iter().filter(|&session| slow.contains(session)) {
            state.send_late(InFlight { to, event: Event::Wake, by });
        }
    }
}
