//! Every interleaving of a few senders with the sessions of a recipient, checked against the rules
//! of delivery.
//!
//! For each rule there is a scenario in which every property holds with the rule, in every order of
//! events, and in which one breaks without it. `cargo test --test model -- --nocapture` prints the
//! number of states of each scenario and the shortest counterexample of each loss.

mod circles;
mod model;
mod properties;
mod rules;
mod scenarios;
mod session;
mod state;
mod worker;

use stateright::{Checker, Expectation, Model};

use crate::{
    model::Delivery,
    properties::{ACKED_STAYS, IN_ORDER, NOTHING_LOST, ROWS_GONE, STORED_ONCE, TICKS_ARE_TRUE},
    rules::{RulePart, RuleParts},
    scenarios::Scenario,
};

/// Explores a whole scenario with every rule in force.
fn holds(scenario: Scenario) {
    holds_under(scenario, RuleParts::all());
}

fn holds_under(scenario: Scenario, rules: RuleParts) {
    let model = Delivery { scenario, rules, only: None };
    let checker = model.checker().spawn_bfs().join();
    let states = checker.unique_state_count();
    println!("{}: {states} states, {} deep", scenario.name, checker.max_depth());
    for property in checker.model().properties() {
        let found = checker.discoveries().contains_key(property.name);
        match property.expectation {
            Expectation::Sometimes => assert!(found, "{}: never seen: {}", scenario.name, property.name),
            _ if found => {
                let way = shortest(scenario, rules, property.name).unwrap_or_default();
                panic!("{}: broken: {}\n{way}", scenario.name, property.name);
            }
            _ => {}
        }
    }
    assert!(states >= scenario.states, "{}: only {states} states", scenario.name);
}

/// Finds the shortest counterexample of a property.
fn breaks(scenario: Scenario, rules: RuleParts, property: &'static str) {
    let way = shortest(scenario, rules, property);
    let Some(way) = way else { panic!("{}: holds with {rules:?}: {property}", scenario.name) };
    println!("{}: broken: {property}\n{way}", scenario.name);
}

fn shortest(scenario: Scenario, rules: RuleParts, property: &'static str) -> Option<String> {
    let model = Delivery { scenario, rules, only: Some(property) };
    let checker = model.checker().spawn_bfs().join();
    let path = checker.discovery(property)?;
    let steps = path.into_vec();
    let mut way = String::new();
    for (i, (before, action)) in steps.iter().enumerate() {
        let after = steps.get(i + 1).map_or(before, |(after, _)| after);
        if let Some(action) = action {
            way += &format!("  {:>2}. {:<62} {after}\n", i + 1, action.to_string());
        }
    }
    Some(way)
}

/// A rule in its scenario: every property holds with it, and `property` breaks without it.
fn needs(rule: RulePart, scenario: Scenario, property: &'static str) {
    holds(scenario);
    breaks(scenario, RuleParts::all().without(rule), property);
}

/// The same where a device without a cursor is served from pending rows alone. All rules together
/// hold as well.
fn needs_of_the_rows(rule: RulePart, scenario: Scenario, property: &'static str) {
    holds(scenario);
    holds_under(Scenario { sights: &[], ..scenario }, RuleParts::rows_alone());
    breaks(scenario, RuleParts::rows_alone().without(rule), property);
}

#[test]
fn the_textbook_flow_loses_a_message_without_any_fault() {
    breaks(scenarios::ONE_MESSAGE, RuleParts::textbook_flow(), NOTHING_LOST);
    breaks(scenarios::ONE_MESSAGE_TO_A_CURSOR, RuleParts::textbook_flow(), NOTHING_LOST);
}

#[test]
fn r1_register_then_read() {
    needs(RulePart::R1RegisterThenRead, scenarios::NO_FAULT, NOTHING_LOST);
}

#[test]
fn r2_store_then_look_up() {
    needs(RulePart::R2StoreThenLookUp, scenarios::SECOND_DEVICE, NOTHING_LOST);
}

#[test]
fn r2_look_again() {
    needs_of_the_rows(RulePart::R2LookAgain, scenarios::NO_FAULT, NOTHING_LOST);
}

#[test]
fn r2_a_row_may_ride_along() {
    holds(scenarios::ROW_RIDES_ALONG);
}

#[test]
fn r3_the_row_keeps_the_minimum() {
    needs(RulePart::R3KeepMinimum, scenarios::ACKED_ELSEWHERE, NOTHING_LOST);
}

/// If all messages precede the device, a lane that begins at its row misses none of them.
#[test]
fn r3_the_minimum_is_enough_to_begin_at() {
    let at_the_row = RuleParts::rows_alone().without(RulePart::R10BeginAtFirstUnacked);
    holds_under(scenarios::CRASH_WHILE_DRAINING, at_the_row);
    breaks(scenarios::CRASH_WHILE_DRAINING, at_the_row.without(RulePart::R3KeepMinimum), NOTHING_LOST);
}

#[test]
fn r4_ack_then_delete() {
    needs_of_the_rows(RulePart::R4AckThenDelete, scenarios::CRASH_WHILE_DRAINING, NOTHING_LOST);
}

#[test]
fn r4_delete_if_equal() {
    needs_of_the_rows(RulePart::R4DeleteIfEqual, scenarios::LATE_DELETE, NOTHING_LOST);
}

#[test]
fn r4_read_again() {
    needs(RulePart::R4ReadAgain, scenarios::LOST_LOOKUP, NOTHING_LOST);
}

#[test]
fn r5_a_row_that_is_being_removed_is_a_debt() {
    needs_of_the_rows(RulePart::R5SettlingIsDebt, scenarios::LOST_LOOKUP_AND_DISCONNECT, NOTHING_LOST);
}

#[test]
fn r5_pay_debts() {
    needs_of_the_rows(RulePart::R5PayDebts, scenarios::DISCONNECT, NOTHING_LOST);
}

#[test]
fn r6_resume_by_cursor() {
    needs(RulePart::R6ResumeByCursor, scenarios::CRASH, NOTHING_LOST);
}

#[test]
fn r6_what_is_owed_does_not_hide_the_cursor() {
    // `r2_store_then_look_up` shows in the same scenario that everything holds with it.
    breaks(scenarios::SECOND_DEVICE, RuleParts::all().without(RulePart::R6RowAndCursor), NOTHING_LOST);
}

#[test]
fn r6_what_no_device_has_acked_is_found_without_a_row() {
    needs(RulePart::R6Undelivered, scenarios::CRASH_WITHOUT_CURSOR, NOTHING_LOST);
    needs(RulePart::R6Undelivered, scenarios::ALL_CRASH, NOTHING_LOST);
}

/// The delete of a row may take effect after its session has closed and a sender has relied on the
/// row. A device without a cursor still finds the message, because no device has acked it; one with
/// a cursor finds it by the cursor.
#[test]
fn r6_a_delete_that_comes_after_its_session_has_closed_hides_nothing() {
    needs(RulePart::R6Undelivered, scenarios::DELETE_IN_FLIGHT, NOTHING_LOST);
    holds_under(scenarios::DELETE_IN_FLIGHT_TO_A_CURSOR, RuleParts::rows_alone());
}

#[test]
fn r7_one_stream() {
    needs(RulePart::R7OneStream, scenarios::DRAIN_AND_LIVE, IN_ORDER);
}

#[test]
fn r8_fence_seqs() {
    needs(RulePart::R8FenceSeqs, scenarios::FALLBACK, ACKED_STAYS);
}

#[test]
fn r8_close_holes() {
    needs(RulePart::R8CloseHoles, scenarios::HOLE, ACKED_STAYS);
}

#[test]
fn r9_remember_sends() {
    needs(RulePart::R9RememberSends, scenarios::RETRY, STORED_ONCE);
}

#[test]
fn r9_deliver_again() {
    needs(RulePart::R9DeliverAgain, scenarios::WORKER_CRASH, NOTHING_LOST);
}

#[test]
fn r10_a_tick_covers_only_what_some_device_has() {
    needs(RulePart::R10BeginAtFirstUnacked, scenarios::NO_FAULT, TICKS_ARE_TRUE);
    breaks(scenarios::NO_FAULT, RuleParts::all().without(RulePart::R10BeginAtFirstUnacked), NOTHING_LOST);
}

#[test]
fn r12_a_stale_entry_is_a_miss() {
    needs_of_the_rows(RulePart::R12StaleIsMiss, scenarios::STALE_ENTRY, NOTHING_LOST);
}

#[test]
fn r12_a_hand_over_that_is_not_confirmed_is_a_miss() {
    holds(scenarios::LOST_HAND_OVER);
}

#[test]
fn r12_a_lost_entry_is_noticed() {
    needs(RulePart::R12DrainAnew, scenarios::FLUSH, NOTHING_LOST);
}

#[test]
fn r12_a_pause_beyond_the_ttl_is_noticed() {
    needs(RulePart::R12DrainAnew, scenarios::EXPIRY, NOTHING_LOST);
}

#[test]
fn three_messages_at_once() {
    holds(scenarios::THREE_AT_ONCE);
}

#[test]
fn two_kinds_of_device() {
    holds(scenarios::MIXED_DEVICES);
}

#[test]
fn two_devices_without_cursors() {
    holds(scenarios::TWO_WITHOUT_CURSOR);
}

#[test]
fn a_disconnect_at_any_moment() {
    holds(scenarios::DISCONNECT_ANYTIME);
}

#[test]
fn two_crashes() {
    holds(scenarios::TWO_CRASHES);
}

#[test]
fn one_of_two_devices_crashes() {
    holds(scenarios::SECOND_DEVICE_CRASHES);
}

/// A hand-over that no session answers within the hedge continues while the row is written and the
/// sender is answered.
#[test]
fn hedge_the_row_is_written_meanwhile() {
    needs_of_the_rows(RulePart::R2LookAgain, scenarios::SLOW_HAND_OVER, NOTHING_LOST);
    breaks(scenarios::SLOW_HAND_OVER, RuleParts::all().without(RulePart::R2WakeTheSlow), ROWS_GONE);
    holds(scenarios::SLOW_HAND_OVER_WITH_ROW);
}

#[test]
fn hedge_and_disconnect() {
    needs_of_the_rows(RulePart::R2LookAgain, scenarios::SLOW_AND_DISCONNECT, NOTHING_LOST);
    for rule in [RulePart::R2RowBeforeAnswer, RulePart::R5PayDebts] {
        breaks(scenarios::SLOW_AND_DISCONNECT, RuleParts::rows_alone().without(rule), NOTHING_LOST);
    }
}

#[test]
fn hedge_and_crash() {
    needs(RulePart::R6Undelivered, scenarios::SLOW_AND_CRASH, NOTHING_LOST);
    needs(RulePart::R6ResumeByCursor, scenarios::SLOW_AND_CRASH_TO_A_CURSOR, NOTHING_LOST);
    breaks(scenarios::SLOW_AND_CRASH, RuleParts::all().without(RulePart::R2LookAgain), ROWS_GONE);
}

#[test]
fn hedge_and_flush() {
    needs_of_the_rows(RulePart::R12DrainAnew, scenarios::SLOW_AND_FLUSH, NOTHING_LOST);
    breaks(scenarios::SLOW_AND_FLUSH, RuleParts::all().without(RulePart::R2LookAgain), ROWS_GONE);
}

#[test]
fn hedge_and_deadline() {
    needs(RulePart::R12DrainAnew, scenarios::SLOW_AND_OVERDUE, NOTHING_LOST);
}

#[test]
fn hedge_with_two_kinds_of_device() {
    needs(RulePart::R2LookAgain, scenarios::ONE_OF_TWO_SLOW, ROWS_GONE);
    holds(scenarios::TWO_SLOW_AND_CRASH);
    holds(scenarios::TWO_SLOW_AND_FLUSH);
}

#[test]
fn hedge_and_worker_crash() {
    needs(RulePart::PeriodicLook, scenarios::SLOW_AND_WORKER_CRASH, NOTHING_LOST);
    needs(RulePart::PeriodicLook, scenarios::SLOW_AND_WORKER_CRASH_OF_TWO, NOTHING_LOST);
}

#[test]
fn hedge_and_two_other_faults() {
    holds(scenarios::SLOW_FLUSH_AND_DISCONNECT);
    holds(scenarios::SLOW_DISCONNECT_AND_CRASH);
}

/// Otherwise a run might never come to rest, and its final properties would never be checked.
#[test]
fn nothing_goes_round_in_circles() {
    for scenario in [
        scenarios::NO_FAULT,
        scenarios::FLUSH,
        scenarios::CRASH,
        scenarios::DISCONNECT,
        scenarios::WORKER_CRASH,
        scenarios::DISCONNECT_ANYTIME,
        scenarios::CRASH_WITHOUT_CURSOR,
        scenarios::DELETE_IN_FLIGHT,
        scenarios::SLOW_FLUSH_AND_DISCONNECT,
        scenarios::SLOW_AND_WORKER_CRASH,
        scenarios::SLOW_AND_OVERDUE,
    ] {
        let model = Delivery { scenario, rules: RuleParts::all(), only: None };
        assert!(!circles::are_possible(&model), "{}: goes round in circles", scenario.name);
    }
}
