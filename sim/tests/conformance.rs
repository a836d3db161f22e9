//! The store of the simulator keeps what every store keeps, as long as nothing fails.

use bluetick_sim::stepwise;
use bluetick_store::{conformance::Fixture, conformance_tests};

conformance_tests!(in_steps stepwise, || Fixture::new(|clock| stepwise(clock)));
