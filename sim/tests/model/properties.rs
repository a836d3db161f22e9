//! The properties. Some hold in every state; the rest hold at rest, when only faults can still
//! happen and every device is connected.

use stateright::Property;

use crate::{
    model::Delivery,
    scenarios::Sight,
    state::{Device, State, Stored},
};

pub const NOTHING_LOST: &str = "every message that was sent is held by whom it is owed to";
pub const ROWS_GONE: &str = "no pending row is left when all is delivered";
pub const IN_ORDER: &str = "a session sends in seq order";
pub const ACKED_STAYS: &str = "what is acked is held, and does not change";
pub const STORED_ONCE: &str = "no message is stored under two seqs";
pub const TICKS_ARE_TRUE: &str = "a double tick is only on what a device holds";
const COMES_TO_REST: &str = "it comes to rest after every fault";

/// Every property, and a `sometimes` for each of the sights.
pub fn all(sights: &[Sight]) -> Vec<Property<Delivery>> {
    let mut properties = vec![
        Property::<Delivery>::always(NOTHING_LOST, |model, state| {
            !model.is_quiet(state) || nothing_lost(state)
        }),
        Property::<Delivery>::always(ROWS_GONE, |model, state| {
            !model.is_quiet(state) || state.pending.is_none()
        }),
        Property::<Delivery>::always(IN_ORDER, |_, state| !state.out_of_order),
        Property::<Delivery>::always(ACKED_STAYS, |_, state| acked_stays(state)),
        Property::<Delivery>::always(STORED_ONCE, |_, state| stored_once(state)),
        Property::<Delivery>::always(TICKS_ARE_TRUE, |_, state| ticks_are_true(state)),
        Property::<Delivery>::sometimes(COMES_TO_REST, |model, state| {
            state.faults == Default::default() && model.is_quiet(state)
        }),
    ];
    properties.extend(sights.iter().map(|&sight| seen(sight)));
    properties
}

/// A device with a cursor must have every message. Without one, some device of the user must have
/// it.
fn nothing_lost(state: &State) -> bool {
    let mut messages = 0..state.remembered.len() as u8;
    messages.all(|message| {
        let holds = |device: &Device| device.holds(message);
        let stays = || state.devices.iter().filter(|device| !device.left);
        stays().any(holds) && stays().filter(|device| device.cursor.is_some()).all(holds)
    })
}

/// From the first seq of a session to its last ack the device has every message of the table, and
/// nothing can be inserted in between.
fn acked_stays(state: &State) -> bool {
    let unchanged = |device: &Device| {
        device.held.iter().all(|(seq, &held)| state.messages.get(seq) == Some(&Stored::Message(held)))
    };
    let covered = |device: &Device| {
        let Some(session) = device.session.map(|number| &state.sessions[number]) else { return true };
        (session.start.max(1)..=session.acked).all(|seq| match state.messages.get(&seq) {
            Some(Stored::Void) => true,
            Some(Stored::Message(_)) => device.held.contains_key(&seq),
            None => false,
        })
    };
    state.devices.iter().all(|device| unchanged(device) && covered(device))
}

fn stored_once(state: &State) -> bool {
    let times = |message| state.messages.values().filter(|&&s| s == Stored::Message(message)).count();
    (0..state.remembered.len() as u8).all(|message| times(message) <= 1)
}

fn ticks_are_true(state: &State) -> bool {
    (1..=state.delivered).all(|seq| match state.messages.get(&seq) {
        Some(Stored::Void) => true,
        Some(Stored::Message(_)) => state.devices.iter().any(|device| device.held.contains_key(&seq)),
        None => false,
    })
}

fn seen(sight: Sight) -> Property<Delivery> {
    macro_rules! saw {
        ($sight:expr, $name:literal) => {
            Property::<Delivery>::sometimes($name, |_, state| state.saw($sight))
        };
    }
    match sight {
        Sight::Live => saw!(Sight::Live, "a message is delivered live"),
        Sight::WindowFull => saw!(Sight::WindowFull, "the window is full and there is more"),
        Sight::RowDrained => saw!(Sight::RowDrained, "a row is drained and deleted"),
        Sight::FoundByReadingAgain => {
            saw!(Sight::FoundByReadingAgain, "the read after the delete finds something")
        }
        Sight::Woken => saw!(Sight::Woken, "a second lookup wakes a session"),
        Sight::HoleClosed => saw!(Sight::HoleClosed, "a hole is closed"),
        Sight::SeqRefused => saw!(Sight::SeqRefused, "a seq turns out to be taken"),
        Sight::Duplicate => saw!(Sight::Duplicate, "a retry finds its original"),
        Sight::EntryRemoved => saw!(Sight::EntryRemoved, "a stale entry is removed"),
        Sight::DrainedAnew => saw!(Sight::DrainedAnew, "a session registers and drains anew"),
        Sight::FoundWithoutRow => {
            saw!(Sight::FoundWithoutRow, "a device without a cursor finds what has no row")
        }
        Sight::AcceptedLate => {
            saw!(Sight::AcceptedLate, "a session accepts a message whose row is written meanwhile")
        }
        Sight::RefusedLate => saw!(Sight::RefusedLate, "a delayed hand-over is refused"),
        Sight::FoundByLook => saw!(Sight::FoundByLook, "a session finds what nobody told it of"),
        Sight::DebtPaid => saw!(Sight::DebtPaid, "a closing session writes down what it owes"),
    }
}
