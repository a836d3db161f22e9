//! How fast a user may send: a token bucket each, whatever device or door the sends come through.

use std::num::NonZeroU32;

use bluetick_chat::SendBudget;
use bluetick_protocol::UserId;
use governor::{
    DefaultKeyedRateLimiter, Quota, RateLimiter,
    clock::{Clock as _, DefaultClock},
};

pub struct Buckets {
    buckets: DefaultKeyedRateLimiter<UserId>,
    clock: DefaultClock,
}

impl Buckets {
    /// `None` for a rate of 0, which means no limit.
    pub fn new(per_second: u32, burst: u32) -> Option<Self> {
        let rate = NonZeroU32::new(per_second)?;
        let quota = Quota::per_second(rate).allow_burst(NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN));
        Some(Buckets { buckets: RateLimiter::keyed(quota), clock: DefaultClock::default() })
    }

    /// Forgets the users whose bucket is full again: a full bucket is what a new one is.
    pub fn sweep(&self) {
        self.buckets.retain_recent();
        self.buckets.shrink_to_fit();
    }
}

impl SendBudget for Buckets {
    fn take(&self, user: &UserId) -> Result<(), u64> {
        match self.buckets.check_key(user) {
            Ok(()) => Ok(()),
            Err(not_until) => {
                let wait = not_until.wait_time_from(self.clock.now());
                // Rounded up: a client that waits exactly this long must find a token.
                Err((wait.as_micros().div_ceil(1000) as u64).max(1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_the_next_one_is_told_when() {
        let buckets = Buckets::new(10, 5).unwrap();
        let (alice, bob) = (UserId::new("alice").unwrap(), UserId::new("bob").unwrap());
        assert!((0..5).all(|_| buckets.take(&alice).is_ok()));
        let wait = buckets.take(&alice).unwrap_err();
        assert!((1..=100).contains(&wait), "{wait}");
        assert!(buckets.take(&bob).is_ok(), "everybody has their own");
        std::thread::sleep(std::time::Duration::from_millis(wait));
        assert!(buckets.take(&alice).is_ok());
    }

    #[test]
    fn who_stopped_sending_takes_no_memory() {
        let buckets = Buckets::new(1000, 1).unwrap();
        for n in 0..1000 {
            let _ = buckets.take(&UserId::new(&format!("u{n}")).unwrap());
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        buckets.sweep();
        assert!(buckets.buckets.is_empty());
        assert!(Buckets::new(0, 1).is_none());
    }
}
