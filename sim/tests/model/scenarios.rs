//! What happens around the rules: how many messages, which devices, which faults and how many of
//! each. All else is left open, and the checker tries it in every order.

use crate::worker::Flow;

/// The kinds of device a recipient can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    WithCursor,
    /// It is promised what no other device of its user has taken.
    WithoutCursor,
    /// It had a session and does not reconnect.
    Left,
}

/// Where the devices are when the first message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Offline, and each connects at any moment.
    Anytime,
    /// Offline, and none connects before every message is sent.
    OfflineFirst,
    /// Offline, but the session store has the entry of a session that crashed before.
    StaleEntry,
    /// Connected.
    Connected,
    /// Connected. The first message is stored and on its way to them, and a device that has left
    /// since has acked it. A disconnected device reconnects when its old session is gone.
    AckedElsewhere,
}

/// How often each fault may happen, at any moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// The session store loses every entry, under live sessions.
    pub flushes: u8,
    /// A gateway is paused beyond the TTL of an entry, which expires.
    pub expiries: u8,
    /// The session store does not answer a worker's first lookup, so everybody counts as offline.
    pub lost_lookups: u8,
    /// A hand-over is not confirmed by its deadline, although the session took it. One that is late
    /// arrives after the deadline, or never.
    pub lost_hand_overs: u8,
    /// A session does not answer a hand-over, or a wake, within the hedge. The request goes on
    /// without it, and the event arrives at some later moment. Further events of the request to the
    /// same session are late as well.
    pub delays: u8,
    /// The delete of a row is sent twice, because its answer is late, and the table comes to the
    /// second one later.
    pub late_deletes: u8,
    /// A connection breaks while the delete of a row is on its way: its session closes, and the
    /// table comes to the delete later.
    pub deletes_in_flight: u8,
    /// A device's connection breaks; its session notices at some later time and closes.
    pub disconnects: u8,
    /// A session crashes, and its entry stays.
    pub crashes: u8,
    /// A client retries although its first attempt is in progress or answered.
    pub retries: u8,
    /// A worker crashes in the middle of a send; the client, who has no answer, sends again. Or it
    /// crashes after its answer, and its events in flight are lost.
    pub worker_crashes: u8,
    /// The sequence counter falls back.
    pub fallbacks: u8,
}

impl Faults {
    pub const NONE: Faults = Faults {
        flushes: 0,
        expiries: 0,
        lost_lookups: 0,
        lost_hand_overs: 0,
        delays: 0,
        late_deletes: 0,
        deletes_in_flight: 0,
        disconnects: 0,
        crashes: 0,
        retries: 0,
        worker_crashes: 0,
        fallbacks: 0,
    };
}

/// Something that must be seen to happen in a scenario, or it shows nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    Live,
    WindowFull,
    RowDrained,
    FoundByReadingAgain,
    Woken,
    HoleClosed,
    SeqRefused,
    Duplicate,
    EntryRemoved,
    DrainedAnew,
    DebtPaid,
    FoundWithoutRow,
    AcceptedLate,
    RefusedLate,
    FoundByLook,
}

impl Sight {
    pub fn bit(self) -> u32 {
        1 << self as u32
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub messages: u8,
    pub devices: &'static [Device],
    /// How many messages a session sends ahead of the acks.
    pub window: usize,
    pub faults: Faults,
    pub flow: Flow,
    pub start: Start,
    pub sights: &'static [Sight],
    /// The least number of states for the scenario to be meaningful.
    pub states: usize,
}

const PLAIN: Scenario = Scenario {
    name: "",
    messages: 2,
    devices: &[Device::WithoutCursor],
    window: 1,
    faults: Faults::NONE,
    flow: Flow::StoreThenLookUp,
    start: Start::Anytime,
    sights: &[],
    states: 1,
};

pub const ONE_MESSAGE: Scenario = Scenario {
    name: "a device without a cursor connects while a message is sent",
    messages: 1,
    sights: &[Sight::Live, Sight::RowDrained, Sight::Woken],
    ..PLAIN
};

pub const ONE_MESSAGE_TO_A_CURSOR: Scenario = Scenario {
    name: "a device with a cursor connects while a message is sent",
    devices: &[Device::WithCursor],
    ..ONE_MESSAGE
};

pub const NO_FAULT: Scenario = Scenario {
    name: "a device without a cursor connects while two messages are sent",
    sights: &[Sight::Live, Sight::RowDrained, Sight::Woken],
    states: 3_300,
    ..PLAIN
};

pub const ROW_RIDES_ALONG: Scenario = Scenario {
    name: "the same, the row riding along with the message",
    flow: Flow::RowRidesAlong,
    sights: &[Sight::Live, Sight::RowDrained],
    states: 10_000,
    ..NO_FAULT
};

pub const THREE_AT_ONCE: Scenario = Scenario {
    name: "three messages at once to a live session, of which one may miss it",
    messages: 3,
    window: 2,
    faults: Faults { lost_lookups: 1, ..Faults::NONE },
    start: Start::Connected,
    sights: &[Sight::RowDrained],
    states: 60_000,
    ..PLAIN
};

pub const SECOND_DEVICE: Scenario = Scenario {
    name: "two devices with cursors connect while two messages are sent",
    devices: &[Device::WithCursor, Device::WithCursor],
    sights: &[Sight::Live, Sight::RowDrained],
    states: 400_000,
    ..PLAIN
};

pub const LOST_LOOKUP: Scenario = Scenario {
    name: "the session store does not answer a first lookup",
    faults: Faults { lost_lookups: 1, ..Faults::NONE },
    sights: &[Sight::FoundByReadingAgain, Sight::Woken],
    states: 7_700,
    ..PLAIN
};

pub const LOST_LOOKUP_AND_DISCONNECT: Scenario = Scenario {
    name: "the session store does not answer twice, and the connection breaks",
    faults: Faults { lost_lookups: 2, disconnects: 1, ..Faults::NONE },
    start: Start::Connected,
    sights: &[Sight::FoundByReadingAgain, Sight::DebtPaid],
    states: 76_000,
    ..PLAIN
};

pub const LATE_DELETE: Scenario = Scenario {
    name: "the delete of a row comes twice, and a first lookup gets no answer",
    faults: Faults { late_deletes: 1, lost_lookups: 1, ..Faults::NONE },
    sights: &[Sight::RowDrained, Sight::Woken],
    states: 12_000,
    ..PLAIN
};

/// A sender who finds the row writes none, and then the row goes: nobody is left who would read
/// past it.
pub const DELETE_IN_FLIGHT: Scenario = Scenario {
    name: "a connection breaks while the delete of a row is on its way",
    faults: Faults { deletes_in_flight: 1, ..Faults::NONE },
    sights: &[Sight::DebtPaid, Sight::FoundWithoutRow],
    states: 3_000,
    ..PLAIN
};

pub const DELETE_IN_FLIGHT_TO_A_CURSOR: Scenario = Scenario {
    name: "the same, of a device with a cursor",
    devices: &[Device::WithCursor],
    sights: &[Sight::DebtPaid],
    ..DELETE_IN_FLIGHT
};

pub const CRASH_WHILE_DRAINING: Scenario = Scenario {
    name: "sessions crash while they drain",
    messages: 3,
    window: 2,
    faults: Faults { crashes: 2, ..Faults::NONE },
    start: Start::OfflineFirst,
    sights: &[Sight::RowDrained, Sight::WindowFull],
    states: 3_000,
    ..PLAIN
};

pub const FLUSH: Scenario = Scenario {
    name: "the session store is flushed under a live session",
    faults: Faults { flushes: 1, ..Faults::NONE },
    sights: &[Sight::Live, Sight::RowDrained, Sight::DrainedAnew],
    states: 26_000,
    ..PLAIN
};

pub const EXPIRY: Scenario = Scenario {
    name: "a gateway of one of two devices is paused beyond the TTL",
    messages: 1,
    devices: &[Device::WithCursor, Device::WithCursor],
    faults: Faults { expiries: 1, ..Faults::NONE },
    sights: &[Sight::Live, Sight::DrainedAnew],
    states: 20_000,
    ..PLAIN
};

pub const STALE_ENTRY: Scenario = Scenario {
    name: "the session store names a session that crashed",
    start: Start::StaleEntry,
    sights: &[Sight::Live, Sight::EntryRemoved],
    states: 5_800,
    ..PLAIN
};

pub const LOST_HAND_OVER: Scenario = Scenario {
    name: "a hand-over is taken and not confirmed",
    faults: Faults { lost_hand_overs: 1, ..Faults::NONE },
    sights: &[Sight::Live, Sight::DrainedAnew],
    states: 38_000,
    ..PLAIN
};

pub const DISCONNECT: Scenario = Scenario {
    name: "a connection breaks, and the device without a cursor comes back",
    start: Start::Connected,
    faults: Faults { disconnects: 1, ..Faults::NONE },
    sights: &[Sight::DebtPaid],
    states: 21_000,
    ..PLAIN
};

/// Where a row is needed for its seq: what a device has acked is brought by nothing else to one
/// without a cursor.
pub const ACKED_ELSEWHERE: Scenario = Scenario {
    name: "a connection breaks, and what is on its way is acked by a device that has left",
    devices: &[Device::WithoutCursor, Device::Left],
    start: Start::AckedElsewhere,
    faults: Faults { disconnects: 1, lost_lookups: 1, ..Faults::NONE },
    sights: &[Sight::RowDrained, Sight::DebtPaid],
    states: 700,
    ..PLAIN
};

pub const CRASH: Scenario = Scenario {
    name: "a session crashes, and the device with a cursor comes back",
    devices: &[Device::WithCursor],
    faults: Faults { crashes: 1, ..Faults::NONE },
    sights: &[Sight::Live, Sight::EntryRemoved],
    states: 60_000,
    ..PLAIN
};

pub const CRASH_WITHOUT_CURSOR: Scenario = Scenario {
    name: "a session crashes, and the device without a cursor comes back",
    devices: &[Device::WithoutCursor],
    sights: &[Sight::Live, Sight::EntryRemoved, Sight::FoundWithoutRow],
    states: 10_000,
    ..CRASH
};

/// All processes stop at once: no session writes a row.
pub const ALL_CRASH: Scenario = Scenario {
    name: "the sessions of two devices without cursors crash",
    messages: 1,
    devices: &[Device::WithoutCursor, Device::WithoutCursor],
    faults: Faults { crashes: 2, ..Faults::NONE },
    start: Start::Connected,
    sights: &[Sight::Live, Sight::FoundWithoutRow],
    states: 1_000,
    ..PLAIN
};

pub const DRAIN_AND_LIVE: Scenario = Scenario {
    name: "live messages arrive during the drain",
    messages: 3,
    devices: &[Device::WithCursor],
    window: 2,
    sights: &[Sight::Live, Sight::RowDrained],
    states: 330_000,
    ..PLAIN
};

pub const FALLBACK: Scenario = Scenario {
    name: "the sequence counter falls back",
    devices: &[Device::WithCursor],
    faults: Faults { fallbacks: 1, ..Faults::NONE },
    sights: &[Sight::Live, Sight::SeqRefused],
    states: 14_000,
    ..PLAIN
};

pub const HOLE: Scenario = Scenario {
    name: "a worker is slow, or lost, between its seq and its message",
    devices: &[Device::WithCursor],
    faults: Faults { worker_crashes: 1, ..Faults::NONE },
    sights: &[Sight::Live, Sight::HoleClosed, Sight::SeqRefused],
    states: 29_000,
    ..PLAIN
};

pub const RETRY: Scenario = Scenario {
    name: "a client sends again what is still under way",
    devices: &[Device::WithCursor],
    faults: Faults { retries: 1, ..Faults::NONE },
    sights: &[Sight::Live, Sight::Duplicate],
    states: 310_000,
    ..PLAIN
};

pub const WORKER_CRASH: Scenario = Scenario {
    name: "a worker crashes, and the client sends again",
    faults: Faults { worker_crashes: 1, ..Faults::NONE },
    sights: &[Sight::Live, Sight::Duplicate],
    states: 26_000,
    ..PLAIN
};

pub const DISCONNECT_ANYTIME: Scenario = Scenario {
    name: "a device connects and its connection breaks twice, at any moment",
    messages: 1,
    faults: Faults { disconnects: 2, ..Faults::NONE },
    start: Start::Anytime,
    states: 110_000,
    ..DISCONNECT
};

pub const TWO_CRASHES: Scenario = Scenario {
    name: "sessions crash twice, a window of two",
    devices: &[Device::WithCursor],
    window: 2,
    faults: Faults { crashes: 2, ..Faults::NONE },
    start: Start::Connected,
    sights: &[Sight::Live, Sight::EntryRemoved],
    states: 86_000,
    ..PLAIN
};

pub const SECOND_DEVICE_CRASHES: Scenario = Scenario {
    name: "one of two devices crashes",
    devices: &[Device::WithCursor, Device::WithCursor],
    faults: Faults { crashes: 1, ..Faults::NONE },
    start: Start::Connected,
    sights: &[Sight::Live, Sight::EntryRemoved],
    states: 63_000,
    ..PLAIN
};

pub const MIXED_DEVICES: Scenario = Scenario {
    name: "two kinds of device, a flush and a broken connection",
    messages: 1,
    devices: &[Device::WithCursor, Device::WithoutCursor],
    faults: Faults { flushes: 1, disconnects: 1, ..Faults::NONE },
    start: Start::Connected,
    sights: &[Sight::DebtPaid, Sight::DrainedAnew],
    states: 400_000,
    ..PLAIN
};

pub const TWO_WITHOUT_CURSOR: Scenario = Scenario {
    name: "two devices without cursors, and two broken connections",
    messages: 1,
    devices: &[Device::WithoutCursor, Device::WithoutCursor],
    faults: Faults { disconnects: 2, ..Faults::NONE },
    start: Start::Connected,
    sights: &[Sight::DebtPaid],
    states: 210_000,
    ..PLAIN
};

/// The hedge: the pending row is written while the hand-over is in flight, which is accepted later.
pub const SLOW_HAND_OVER: Scenario = Scenario {
    name: "a device connects, and two hand-overs or wakes are late",
    faults: Faults { delays: 2, ..Faults::NONE },
    sights: &[Sight::Live, Sight::RowDrained, Sight::Woken, Sight::AcceptedLate],
    states: 40_000,
    ..PLAIN
};

pub const SLOW_HAND_OVER_WITH_ROW: Scenario = Scenario {
    name: "the same, the row riding along with the message",
    flow: Flow::RowRidesAlong,
    sights: &[Sight::Live, Sight::RowDrained, Sight::AcceptedLate],
    states: 140_000,
    ..SLOW_HAND_OVER
};

pub const SLOW_AND_DISCONNECT: Scenario = Scenario {
    name: "a hand-over is late, and the connection breaks",
    faults: Faults { delays: 1, disconnects: 1, ..Faults::NONE },
    start: Start::Connected,
    sights: &[Sight::DebtPaid, Sight::AcceptedLate, Sight::RefusedLate],
    states: 210_000,
    ..SLOW_HAND_OVER
};

pub const SLOW_AND_CRASH: Scenario = Scenario {
    name: "a hand-over is late, and the session crashes",
    faults: Faults { delays: 1, crashes: 1, ..Faults::NONE },
    start: Start::Connected,
    sights: &[Sight::AcceptedLate, Sight::RefusedLate],
    states: 100_000,
    ..SLOW_HAND_OVER
};

pub const SLOW_AND_CRASH_TO_A_CURSOR: Scenario = Scenario {
    name: "the same, of a device with a cursor",
    devices: &[Device::WithCursor],
    ..SLOW_AND_CRASH
};

pub const SLOW_AND_FLUSH: Scenario = Scenario {
    name: "a hand-over is late, and the session store is flushed",
    faults: Faults { delays: 1, flushes: 1, ..Faults::NONE },
    start: Start::Connected,
    sights: &[Sight::AcceptedLate, Sight::DrainedAnew],
    states: 33_000,
    ..SLOW_HAND_OVER
};

pub const SLOW_AND_OVERDUE: Scenario = Scenario {
    name: "a hand-over is late, and its deadline passes",
    faults: Faults { delays: 1, lost_hand_overs: 1, ..Faults::NONE },
    start: Start::Connected,
    sights: &[Sight::AcceptedLate, Sight::DrainedAnew],
    states: 71_000,
    ..SLOW_HAND_OVER
};

/// One accepts, and the answer does not wait for the other. Or both are late.
pub const ONE_OF_TWO_SLOW: Scenario = Scenario {
    name: "two kinds of device, late hand-overs and a broken connection",
    messages: 1,
    devices: &[Device::WithCursor, Device::WithoutCursor],
    faults: Faults { delays: 2, disconnects: 1, ..Faults::NONE },
    start: Start::Connected,
    sights: &[Sight::DebtPaid, Sight::AcceptedLate, Sight::RefusedLate],
    states: 130_000,
    ..SLOW_HAND_OVER
};

pub const TWO_SLOW_AND_CRASH: Scenario = Scenario {
    name: "two devices without cursors, late hand-overs and a crash",
    devices: &[Device::WithoutCursor, Device::WithoutCursor],
    faults: Faults { delays: 2, crashes: 1, ..Faults::NONE },
    sights: &[Sight::AcceptedLate, Sight::RefusedLate],
    states: 34_000,
    ..ONE_OF_TWO_SLOW
};

pub const TWO_SLOW_AND_FLUSH: Scenario = Scenario {
    name: "two kinds of device, late hand-overs and a flush",
    faults: Faults { delays: 2, flushes: 1, ..Faults::NONE },
    sights: &[Sight::AcceptedLate, Sight::DrainedAnew],
    states: 61_000,
    ..ONE_OF_TWO_SLOW
};

/// What an app server has in its background dies with it, after its answer: nobody repeats it.
pub const SLOW_AND_WORKER_CRASH: Scenario = Scenario {
    name: "hand-overs are late, and their worker crashes",
    faults: Faults { delays: 2, worker_crashes: 1, ..Faults::NONE },
    start: Start::Connected,
    sights: &[Sight::AcceptedLate, Sight::Duplicate, Sight::FoundByLook],
    states: 190_000,
    ..SLOW_HAND_OVER
};

pub const SLOW_AND_WORKER_CRASH_OF_TWO: Scenario = Scenario {
    name: "the same, of one message to two devices with cursors",
    messages: 1,
    devices: &[Device::WithCursor, Device::WithCursor],
    states: 17_000,
    ..SLOW_AND_WORKER_CRASH
};

pub const SLOW_FLUSH_AND_DISCONNECT: Scenario = Scenario {
    name: "two events are late, a flush and a broken connection",
    messages: 1,
    faults: Faults { delays: 2, flushes: 1, disconnects: 1, ..Faults::NONE },
    start: Start::Connected,
    sights: &[Sight::DebtPaid, Sight::DrainedAnew, Sight::AcceptedLate, Sight::RefusedLate],
    states: 130_000,
    ..SLOW_HAND_OVER
};

pub const SLOW_DISCONNECT_AND_CRASH: Scenario = Scenario {
    name: "two events are late, a broken connection and a crash",
    faults: Faults { delays: 2, disconnects: 1, crashes: 1, ..Faults::NONE },
    sights: &[Sight::DebtPaid, Sight::AcceptedLate, Sight::RefusedLate],
    states: 130_000,
    ..SLOW_FLUSH_AND_DISCONNECT
};
