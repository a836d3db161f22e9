//! A session of one of the recipient's devices, a step at a time: register, read what is pending,
//! send within the window, take acks, settle the pending row, close.
//!
//! What it owes its device is one lane: the next seq to send and the highest that is known to
//! exist. The first read finds where the lane begins. A read and the sending of what it brought are
//! one step, because stored messages do not change in between. A delete and the read after it are
//! two, and the session may close between them.

use crate::{
    model::Delivery,
    rules::RulePart,
    scenarios::Sight,
    state::{Frame, MessageNo, Sender, Seq, SessionSet, State, Stored},
    worker::wake_all,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Registering,
    ReadingRows,
    ReadingInbox { row: Option<Seq> },
    Live,
    Closing(Closing),
    Gone,
}

/// What a closing session has left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Closing {
    CountDebt(Debt),
    MoveRow {
        from: Seq,
        to: Seq,
    },
    WriteRow {
        first_unacked: Seq,
    },
    /// Only without R3: the get found no row.
    PutRow {
        first_unacked: Seq,
    },
    LookAgain,
}

/// What was taken and not acked, and the row that the session had taken on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Debt {
    pub from: From,
    pub row: Option<Seq>,
}

/// Where to read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum From {
    Seq(Seq),
    /// The first seq is not known yet.
    Since {
        since: Seq,
        at_most: Option<Seq>,
    },
}

/// The periodic look of a session that somebody failed to tell of something. Other looks find
/// nothing new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Look {
    NotDue,
    Due,
    /// The rows are read, the inbox is not.
    ReadingInbox {
        row: Option<Seq>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Session {
    pub device: usize,
    pub phase: Phase,
    /// Where a lane begins if the plan does not say.
    pub since: Option<Seq>,
    /// Everything from here to `next` has been sent in this session.
    pub start: Seq,
    pub next: Option<Seq>,
    /// The lowest seq known to be owed, where `next` is not known.
    pub at_most: Option<Seq>,
    pub head: Seq,
    /// The pending row that this session has taken on.
    pub row: Option<Seq>,
    /// There may be a row that it does not know.
    pub row_unknown: bool,
    /// The row was deleted, and the messages have not been read again yet.
    pub settling: bool,
    pub look: Look,
    /// Sent and not acked: the window.
    pub unacked: Vec<Frame>,
    pub acked: Seq,
    /// Its first plan was empty. A session with something to drain is served by its cursor and its
    /// row if it ends before it begins.
    pub caught_up: bool,
}

/// A message as a worker hands it over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handed {
    pub seq: Seq,
    pub message: MessageNo,
    pub look_for_row: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOver {
    Taken,
    Refused,
}

impl Session {
    fn new(device: usize, phase: Phase) -> Session {
        Session {
            device,
            phase,
            since: None,
            start: 0,
            next: None,
            at_most: None,
            head: 0,
            row: None,
            row_unknown: false,
            settling: false,
            look: Look::NotDue,
            unacked: Vec::new(),
            acked: 0,
            caught_up: false,
        }
    }

    /// A session that just connected.
    pub fn connecting(device: usize, model: &Delivery) -> Session {
        Session::new(device, opening(model))
    }

    /// Whether it has written a row and not done the second lookup yet.
    pub fn owes_a_wake(&self) -> bool {
        matches!(self.phase, Phase::Closing(Closing::LookAgain))
    }

    /// The remains of a session that ended.
    pub fn gone(device: usize) -> Session {
        Session::new(device, Phase::Gone)
    }

    pub fn is_gone(&self) -> bool {
        self.phase == Phase::Gone
    }

    /// Whether it accepts hand-overs.
    pub fn is_open(&self) -> bool {
        !matches!(self.phase, Phase::Closing(_) | Phase::Gone)
    }

    /// It missed a notice. A session that has not read the rows yet finds the message anyway.
    pub fn expect_look(&mut self) {
        if matches!(self.phase, Phase::ReadingInbox { .. } | Phase::Live) {
            self.look = Look::Due;
        }
    }

    fn is_live(&self) -> bool {
        self.phase == Phase::Live
    }

    fn is_behind(&self) -> bool {
        match self.next {
            Some(next) => next <= self.head,
            None => self.at_most.is_some() || self.head > 0,
        }
    }

    fn begin_at(&mut self, seq: Seq) {
        (self.start, self.next) = (seq, Some(seq));
    }

    fn owe_at_most(&mut self, seq: Seq) {
        self.at_most = Some(self.at_most.map_or(seq, |known| known.min(seq)));
    }

    /// Takes a pending row on. Where to begin is left to the first read.
    fn take_row(&mut self, row: Seq) {
        self.row = Some(row);
        self.head = self.head.max(row);
        if self.next.is_none() {
            self.owe_at_most(row);
        }
    }

    fn debt(&self, model: &Delivery) -> Option<Debt> {
        let from = match self.next {
            Some(next) => {
                // A row that is being removed may cover more than was read.
                let may_be_more = self.settling && model.holds(RulePart::R5SettlingIsDebt);
                let unsent = Some(next).filter(|&next| next <= self.head || may_be_more);
                let unacked = self.unacked.iter().map(|frame| frame.seq).min();
                From::Seq([unsent, unacked].into_iter().flatten().min()?)
            }
            None if !self.caught_up => From::Seq(self.at_most.filter(|&first| first <= self.head)?),
            None if self.head == 0 => return None,
            None => From::Since { since: self.since?, at_most: self.at_most },
        };
        Some(Debt { from, row: self.row })
    }
}

fn opening(model: &Delivery) -> Phase {
    match model.holds(RulePart::R1RegisterThenRead) {
        true => Phase::Registering,
        false => Phase::ReadingRows,
    }
}

/// What a session can do of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Register,
    ReadRows,
    ReadInbox,
    Read,
    CloseHole,
    LookAtRow,
    /// The two halves of reconciliation.
    LookForRows,
    LookForMessages,
    DeleteRow,
    ReadAgain,
    /// It finds its entry gone.
    Refresh,
    Close,
    Pay(Closing),
}

/// The steps that a session can make now.
pub fn steps(state: &State, number: usize, model: &Delivery) -> Vec<Step> {
    let session = &state.sessions[number];
    let mut steps = Vec::new();
    match session.phase {
        Phase::Registering => steps.push(Step::Register),
        Phase::ReadingRows => steps.push(Step::ReadRows),
        Phase::ReadingInbox { .. } => steps.push(Step::ReadInbox),
        Phase::Live => {
            let is_behind = session.is_behind();
            // A session whose device is gone sends to nobody, and its debts are the same.
            if is_behind && session.unacked.len() < model.window() && state.is_attached(number) {
                let at_hole = model.holds(RulePart::R8CloseHoles)
                    && session.next.is_some_and(|next| !state.messages.contains_key(&next));
                steps.push(if at_hole { Step::CloseHole } else { Step::Read });
            }
            let all_acked = session.unacked.is_empty() || !model.holds(RulePart::R4AckThenDelete);
            // One thing at a time.
            if let Look::ReadingInbox { .. } = session.look {
                steps.push(Step::LookForMessages);
                return with_close(state, number, steps);
            }
            if session.look == Look::Due && !session.settling && model.holds(RulePart::PeriodicLook) {
                steps.push(Step::LookForRows);
            }
            if session.settling {
                steps.push(Step::ReadAgain);
            } else if session.row_unknown {
                steps.push(Step::LookAtRow);
            } else if session.row.is_some() && !is_behind && all_acked {
                steps.push(Step::DeleteRow);
            }
            if !state.registry.contains(number) && !session.settling {
                steps.push(Step::Refresh);
            }
        }
        Phase::Closing(closing) => steps.push(Step::Pay(closing)),
        Phase::Gone => {}
    }
    with_close(state, number, steps)
}

/// A session that notices that its device is gone closes, whatever it is about to do.
fn with_close(state: &State, number: usize, mut steps: Vec<Step>) -> Vec<Step> {
    if state.sessions[number].is_open() && !state.is_attached(number) {
        steps.push(Step::Close);
    }
    steps
}

/// Makes a step of a session.
pub fn step(state: &mut State, number: usize, step: Step, model: &Delivery) {
    match step {
        Step::Register => register(state, number, model),
        Step::ReadRows => state.sessions[number].phase = Phase::ReadingInbox { row: state.pending },
        Step::ReadInbox => read_inbox(state, number, model),
        Step::Read => read(state, number, model),
        Step::CloseHole => {
            if let Some(hole) = state.sessions[number].next {
                state.messages.entry(hole).or_insert(Stored::Void);
                state.see(Sight::HoleClosed);
            }
        }
        Step::LookAtRow => {
            state.sessions[number].row_unknown = false;
            if let Some(row) = state.pending {
                state.sessions[number].take_row(row);
            }
        }
        Step::LookForRows => state.sessions[number].look = Look::ReadingInbox { row: state.pending },
        Step::LookForMessages => look(state, number, model),
        Step::DeleteRow => delete_row(state, number, model),
        Step::ReadAgain => {
            let last_seq = state.last_seq();
            let session = &mut state.sessions[number];
            session.settling = false;
            if last_seq > session.head {
                session.head = last_seq;
                state.see(Sight::FoundByReadingAgain);
            }
        }
        Step::Refresh => refresh(state, number, model),
        Step::Close => close(state, number, model),
        Step::Pay(closing) => pay(state, number, closing, SessionSet::default(), model),
    }
}

/// A device's new session takes the place of its old one, in the session store and altogether.
fn register(state: &mut State, number: usize, model: &Delivery) {
    let device = state.sessions[number].device;
    for other in 0..state.sessions.len() {
        let session = &state.sessions[other];
        if other != number && session.device == device && state.registry.contains(other) {
            state.registry.remove(other);
            if session.is_open() {
                close(state, other, model);
            }
        }
    }
    state.registry.insert(number);
    state.sessions[number].phase = match model.holds(RulePart::R1RegisterThenRead) {
        true => Phase::ReadingRows,
        false => Phase::Live,
    };
}

/// The rest of the plan of a session that registers.
fn read_inbox(state: &mut State, number: usize, model: &Delivery) {
    let Phase::ReadingInbox { row } = state.sessions[number].phase else { return };
    plan(state, number, row, model);
    state.sessions[number].phase = match model.holds(RulePart::R1RegisterThenRead) {
        true => Phase::Live,
        false => Phase::Registering,
    };
}

/// The second half of reconciliation: the same plan, from where the last one was made.
fn look(state: &mut State, number: usize, model: &Delivery) {
    let session = &mut state.sessions[number];
    let Look::ReadingInbox { row } = session.look else { return };
    session.look = Look::NotDue;
    let (head, known_row) = (session.head, session.row);
    plan(state, number, row, model);
    let session = &state.sessions[number];
    if session.head > head || session.row != known_row {
        state.see(Sight::FoundByLook);
    }
}

/// Takes on the pending row, what the inbox says happened since the cursor, and how far the
/// conversation goes.
fn plan(state: &mut State, number: usize, row: Option<Seq>, model: &Delivery) {
    let last_seq = state.last_seq();
    let session = &state.sessions[number];
    let cursor = state.devices[session.device].cursor.filter(|_| model.holds(RulePart::R6ResumeByCursor));
    // A session that registers again continues from its last plan, whatever its device has.
    let by_cursor = session.since.or(cursor.map(|cursor| cursor + 1));
    let resumes = by_cursor.is_some_and(|since| state.inbox >= since);
    let is_new = session.since.is_none() && state.devices[session.device].cursor.is_none();
    let is_message = |seq| matches!(state.messages.get(&seq), Some(Stored::Message(_)));
    let undelivered =
        is_new && model.holds(RulePart::R6Undelivered) && (state.delivered + 1..=state.inbox).any(is_message);
    if undelivered && row.is_none() {
        state.see(Sight::FoundWithoutRow);
    }

    let session = &mut state.sessions[number];
    let resumes = resumes || undelivered;
    session.caught_up |= session.since.is_none() && row.is_none() && !resumes;
    session.since = Some(by_cursor.unwrap_or(last_seq + 1));
    if row.is_some() || resumes {
        session.head = session.head.max(last_seq);
    }
    if let Some(row) = row {
        session.take_row(row);
    }
}

/// Where a lane begins: at what the cursor or the plan asks for, at what is known to be owed, or at
/// the first message that no device has acked, whichever comes first.
fn beginning(state: &State, since: Seq, at_most: Option<Seq>, model: &Delivery) -> Seq {
    let first = match at_most {
        Some(known) if model.holds(RulePart::R6RowAndCursor) => known.min(since),
        Some(known) => known,
        None => since,
    };
    let is_owed = |seq: &Seq| state.messages.get(seq) != Some(&Stored::Void);
    let first_owed = (state.delivered + 1..first).find(is_owed);
    first_owed.filter(|_| model.holds(RulePart::R10BeginAtFirstUnacked)).unwrap_or(first)
}

/// Sends what comes next, as far as the window and the first hole allow.
fn read(state: &mut State, number: usize, model: &Delivery) {
    let (last_seq, window) = (state.last_seq(), model.window());
    let session = &state.sessions[number];
    let first = beginning(state, session.since.unwrap_or(1), session.at_most, model);
    let session = &mut state.sessions[number];
    session.head = session.head.max(last_seq);
    if session.next.is_none() {
        session.begin_at(first);
    }
    let Some(mut next) = session.next else { return };
    let mut frames = Vec::new();
    while next <= last_seq && session.unacked.len() + frames.len() < window {
        match state.messages.get(&next) {
            Some(&Stored::Message(message)) => frames.push(Frame { seq: next, message }),
            Some(Stored::Void) => {}
            None if model.holds(RulePart::R8CloseHoles) => break,
            None => {}
        }
        next += 1;
    }
    state.sessions[number].next = Some(next);
    for frame in frames {
        send(state, number, frame);
    }
    if state.sessions[number].unacked.len() == window && next <= last_seq {
        state.see(Sight::WindowFull);
    }
}

fn send(state: &mut State, number: usize, frame: Frame) {
    let session = &mut state.sessions[number];
    let sent = session.unacked.iter().map(|frame| frame.seq).max().unwrap_or(0).max(session.acked);
    session.unacked.push(frame);
    state.out_of_order |= frame.seq < sent;
}

/// A live message: sent if it is the next one and nothing is behind, else remembered.
pub fn hand_over(state: &mut State, to: usize, handed: Handed, model: &Delivery) -> HandOver {
    let Handed { seq, message, look_for_row } = handed;
    let window = model.window();
    let Some(session) = state.sessions.get_mut(to).filter(|session| session.is_open()) else {
        return HandOver::Refused;
    };
    session.row_unknown |= look_for_row;
    if session.next.is_none() && session.at_most.is_none() && session.head == 0 && seq == 1 {
        session.begin_at(1);
    }
    let has_room = session.unacked.len() < window;
    let is_caught_up = session.is_live() && !session.is_behind();
    match session.next {
        // It was sent in this session, or some device had acked it when this lane began.
        Some(next) if seq < next => {}
        next if has_room && (next == Some(seq) && is_caught_up || !model.holds(RulePart::R7OneStream)) => {
            session.head = session.head.max(seq);
            if next == Some(seq) {
                session.next = Some(seq + 1);
            } else if next.is_none() {
                session.owe_at_most(seq);
            }
            send(state, to, Frame { seq, message });
            state.see(Sight::Live);
        }
        next => {
            session.head = session.head.max(seq);
            if next.is_none() {
                session.owe_at_most(seq);
            }
        }
    }
    HandOver::Taken
}

/// A pending row was written: the session must read it.
pub fn wake(state: &mut State, to: usize) -> HandOver {
    let Some(session) = state.sessions.get_mut(to).filter(|session| session.is_open()) else {
        return HandOver::Refused;
    };
    session.row_unknown = true;
    state.see(Sight::Woken);
    HandOver::Taken
}

/// The device takes the next frame and its ack arrives.
pub fn take_ack(state: &mut State, number: usize) {
    let session = &mut state.sessions[number];
    let frame = session.unacked.remove(0);
    session.acked = session.acked.max(frame.seq);
    // An ack is cumulative.
    let acked = session.acked;
    session.unacked.retain(|frame| frame.seq > acked);
    let device = session.device;
    state.devices[device].take(frame);
    state.delivered = state.delivered.max(frame.seq);
}

/// All that was drained for the row is acked. It goes if it still holds what was read.
fn delete_row(state: &mut State, number: usize, model: &Delivery) {
    let Some(row) = state.sessions[number].row else { return };
    let is_gone = state.delete_row(row, model);
    if is_gone {
        state.see(Sight::RowDrained);
    }
    let session = &mut state.sessions[number];
    session.row = None;
    session.row_unknown |= !is_gone;
    session.settling = model.holds(RulePart::R4ReadAgain);
}

/// The session closes, its device gone, while the delete of its row is on its way.
pub fn close_while_deleting(state: &mut State, number: usize, model: &Delivery) {
    state.late_delete = state.sessions[number].row;
    state.sessions[number].settling = model.holds(RulePart::R4ReadAgain);
    close(state, number, model);
}

fn refresh(state: &mut State, number: usize, model: &Delivery) {
    let device = state.sessions[number].device;
    let is_replaced =
        state.registry.iter().any(|i| state.sessions.get(i).is_some_and(|s| s.device == device));
    if !model.holds(RulePart::R12DrainAnew) {
        state.registry.insert(number);
    } else if !is_replaced {
        state.sessions[number].phase = opening(model);
        // It drains again, which finds what reconciliation would.
        state.sessions[number].look = Look::NotDue;
        state.see(Sight::DrainedAnew);
    } else {
        close(state, number, model);
    }
}

/// It refuses hand-overs from here on, and leaves the session store. That this is one step hides
/// nothing: who looked it up before is refused just as one who would find it between the two.
fn close(state: &mut State, number: usize, model: &Delivery) {
    state.registry.remove(number);
    let session = &mut state.sessions[number];
    let phase = match session.debt(model).filter(|_| model.holds(RulePart::R5PayDebts)) {
        Some(debt) => Phase::Closing(Closing::CountDebt(debt)),
        None => Phase::Gone,
    };
    *session = Session::new(session.device, phase);
    for device in state.devices.iter_mut().filter(|device| device.session == Some(number)) {
        device.session = None;
    }
}

/// Writes down what a closing session owes, a step at a time. The wakes of `late` sessions are
/// delayed.
pub fn pay(state: &mut State, number: usize, step: Closing, late: SessionSet, model: &Delivery) {
    let next = match step {
        Closing::CountDebt(debt) => {
            let first_unacked = match debt.from {
                From::Seq(first) => first,
                From::Since { since, at_most } => beginning(state, since, at_most, model),
            };
            match debt.row {
                _ if first_unacked > state.last_seq() => None,
                // A row before the debt covers it and is moved up to the first unacked message.
                Some(row) if row <= first_unacked => Some(Closing::MoveRow { from: row, to: first_unacked }),
                _ => Some(Closing::WriteRow { first_unacked }),
            }
        }
        Closing::MoveRow { from, to } if state.pending == Some(from) => {
            state.pending = Some(to);
            Some(Closing::LookAgain)
        }
        Closing::MoveRow { to, .. } => Some(Closing::WriteRow { first_unacked: to }),
        Closing::WriteRow { first_unacked } if model.holds(RulePart::R3KeepMinimum) => {
            state.note_undelivered(first_unacked);
            Some(Closing::LookAgain)
        }
        Closing::WriteRow { first_unacked } if state.pending.is_none() => {
            Some(Closing::PutRow { first_unacked })
        }
        Closing::WriteRow { .. } => Some(Closing::LookAgain),
        Closing::PutRow { first_unacked } => {
            state.pending = Some(first_unacked);
            Some(Closing::LookAgain)
        }
        Closing::LookAgain => {
            state.see(Sight::DebtPaid);
            if model.holds(RulePart::R2LookAgain) {
                wake_all(state, late, Sender::Closing, model);
            }
            None
        }
    };
    state.sessions[number].phase = next.map_or(Phase::Gone, Phase::Closing);
}
