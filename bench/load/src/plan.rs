//! What all pairs of a run have in common.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{meter::Meter, schedule::Schedule};

/// Sends of one user that may be unanswered when each has its moment: a server that is further behind than this is
/// said to be so.
pub const BEHIND: usize = 1000;

#[derive(Debug, Clone, Copy)]
pub enum Pace {
    /// The next when there are fewer unanswered than this.
    InFlight(usize),
    /// Each at its moment.
    At(Schedule),
}

/// What the receivers ack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    Each,
    /// The newest of those that came together, which covers them all.
    Last,
}

pub struct Plan {
    /// Makes the ids of this run different from those of any other.
    pub run: u64,
    /// The zero of all times.
    pub epoch: Instant,
    /// Of each sender.
    pub messages: u32,
    pub pace: Pace,
    pub body_bytes: usize,
    pub duration: Duration,
    pub acks: Acks,
    pub meters: Meters,
}

/// Latencies by what they are counted to. All begin when a message was sent or, if it had its moment, at that.
#[derive(Default)]
pub struct Meters {
    pub left: Meter,
    pub sent: Meter,
    pub received: Meter,
    pub ticked: Meter,
}

impl Plan {
    pub fn micros(&self) -> u64 {
        self.epoch.elapsed().as_micros() as u64
    }

    /// How many messages a pair's sender is to send in all; without moments, at most.
    pub fn messages_of(&self, pair: u32) -> u32 {
        match self.pace {
            Pace::InFlight(_) => self.messages,
            Pace::At(schedule) => {
                let last = (self.duration.as_micros() as u64).saturating_sub(1);
                schedule.due(pair, last).min(self.messages)
            }
        }
    }

    /// When the last message may leave. What should have left earlier gets as long again.
    pub fn send_until(&self) -> Duration {
        match self.pace {
            Pace::InFlight(_) => self.duration,
            Pace::At(_) => 2 * self.duration,
        }
    }

    pub fn in_flight(&self) -> usize {
        match self.pace {
            Pace::InFlight(most) => most,
            Pace::At(_) => BEHIND,
        }
    }
}

pub type SharedPlan = Arc<Plan>;

/// A plan that was begun a second ago.
#[cfg(test)]
pub fn for_tests(pace: Pace) -> SharedPlan {
    Arc::new(Plan {
        run: 0xab,
        epoch: Instant::now() - Duration::from_secs(1),
        messages: 1000,
        pace,
        body_bytes: 40,
        duration: Duration::from_secs(10),
        acks: Acks::Each,
        meters: Meters::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_with_moments_ends_with_its_time_or_its_messages() {
        let schedule = Schedule { rate: 100, pairs: 2 };
        let plan = for_tests(Pace::At(schedule));
        assert_eq!(plan.messages_of(0), 500, "fifty a second for ten seconds");
        let schedule = Schedule { rate: 1000, pairs: 2 };
        assert_eq!(for_tests(Pace::At(schedule)).messages_of(1), 1000);
        assert_eq!(for_tests(Pace::InFlight(8)).messages_of(1), 1000);
    }
}
