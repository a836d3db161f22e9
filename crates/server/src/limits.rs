//! How fast a user may send: a token bucket each, whatever device or door the sends come through. Where there are many
//! nodes, `shared` has a second one for all of them.

#[cfg(feature = "cluster")]
pub mod shared;

use std::{future::ready, num::NonZeroU32};

use bluetick_chat::{SendBudget, Taking};
use bluetick_protocol::UserId;
use futures_util::future::Either;
use governor::{
    DefaultKeyedRateLimiter, Quota, RateLimiter,
    clock::{Clock as _, DefaultClock},
};

pub struct Buckets {
    buckets: DefaultKeyedRateLimiter<UserId>,
    clock: DefaultClock,
    burst: NonZeroU32,
}

impl Buckets {
    /// `None` for a rate of 0, which means no limit.
    pub fn new(per_second: u32, burst: u32) -> Option<Self> {
        let rate = NonZeroU32::new(per_second)?;
        let burst = NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN);
        let buckets = RateLimiter::keyed(Quota::per_second(rate).allow_burst(burst));
        Some(Buckets { buckets, clock: DefaultClock::default(), burst })
    }

    /// Forgets the users whose bucket is full again: a full bucket is what a new one is.
    pub fn sweep(&self) {
        self.buckets.retain_recent();
        self.buckets.shrink_to_fit();
    }
}

impl SendBudget for Buckets {
    fn take<'a>(&'a self, user: &'a UserId, n: u32) -> Taking<'a> {
        Either::Left(ready(self.take_now(user, n)))
    }
}

impl Buckets {
    fn take_now(&self, user: &UserId, n: u32) -> Result<(), u64> {
        // More than a bucket holds costs a full one: it could never be had otherwise.
        let Some(n) = NonZeroU32::new(n.min(self.burst.get())) else { return Ok(()) };
        match self.buckets.check_key_n(user, n) {
            Ok(Ok(())) | Err(_) => Ok(()),
            Ok(Err(not_until)) => {
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

    #[tokio::test]
    async fn a_burst_passes_and_the_next_one_is_told_when() {
        let buckets = Buckets::new(10, 5).unwrap();
        let (alice, bob) = (UserId::new("alice").unwrap(), UserId::new("bob").unwrap());
        for _ in 0..5 {
            buckets.take(&alice, 1).await.unwrap();
        }
        let wait = buckets.take(&alice, 1).await.unwrap_err();
        assert!((1..=100).contains(&wait), "{wait}");
        assert!(buckets.take(&bob, 1).await.is_ok(), "everybody has their own");
        tokio::time::sleep(std::time::Duration::from_millis(wait)).await;
        assert!(buckets.take(&alice, 1).await.is_ok());
    }

    #[tokio::test]
    async fn several_are_taken_together_or_not_at_all() {
        let buckets = Buckets::new(1, 5).unwrap();
        let (alice, bob) = (UserId::new("alice").unwrap(), UserId::new("bob").unwrap());
        buckets.take(&alice, 3).await.unwrap();
        let wait = buckets.take(&alice, 3).await.unwrap_err();
        assert!((1..=1000).contains(&wait), "{wait}");
        buckets.take(&alice, 2).await.unwrap();
        buckets.take(&bob, 100).await.unwrap();
        assert!(buckets.take(&bob, 1).await.is_err(), "more than the bucket holds costs all of it");
        buckets.take(&alice, 0).await.unwrap();
    }

    #[tokio::test]
    async fn who_stopped_sending_takes_no_memory() {
        let buckets = Buckets::new(1000, 1).unwrap();
        for n in 0..1000 {
            let _ = buckets.take(&UserId::new(&format!("u{n}")).unwrap(), 1).await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        buckets.sweep();
        assert!(buckets.buckets.is_empty());
        assert!(Buckets::new(0, 1).is_none());
    }
}
