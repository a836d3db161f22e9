//! Whether a run can return to an earlier state. If none can, every run ends, because the number of
//! states is finite.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use stateright::Model;

use crate::{model::Delivery, state::State};

/// A state on the current path, and its successors that have not been tried.
struct Passed {
    print: u64,
    untried: Vec<State>,
}

/// Follows every run depth first.
pub fn are_possible(model: &Delivery) -> bool {
    let (mut on_the_way, mut left_behind) = (BTreeSet::new(), BTreeSet::new());
    let mut way = vec![Passed { print: 0, untried: model.init_states() }];
    while let Some(passed) = way.last_mut() {
        let Some(state) = passed.untried.pop() else {
            on_the_way.remove(&passed.print);
            left_behind.insert(passed.print);
            way.pop();
            continue;
        };
        let print = fingerprint(&state);
        if left_behind.contains(&print) {
            continue;
        }
        if !on_the_way.insert(print) {
            return true;
        }
        way.push(Passed { print, untried: model.next_states(&state) });
    }
    false
}

fn fingerprint(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}
