//! Rate limits per user, over all devices and connections: token buckets for sends, for their
//! bytes, for the cost of all other requests, and for profile changes. In a cluster, `shared` keeps
//! a second set of buckets in Redis.

#[cfg(feature = "cluster")]
pub mod shared;

use std::{
    collections::{HashMap, hash_map::RandomState},
    future::ready,
    hash::BuildHasher as _,
    time::Instant,
};

use bluetick_chat::{RequestBudget, SendBudget, SendCost, Taking};
use bluetick_protocol::UserId;
use futures_util::future::Either;
use parking_lot::Mutex;

use crate::config::LimitSettings;

const SHARDS: usize = 16;
const NANOS: u64 = 1_000_000_000;

/// The size of a token bucket and its refill rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Tokens in `every_secs`; 0 means no limit.
    pub tokens: u32,
    pub every_secs: u32,
    pub burst: u32,
}

impl Rate {
    pub const NONE: Rate = Rate { tokens: 0, every_secs: 1, burst: 1 };

    pub fn per_second(tokens: u32, burst: u32) -> Rate {
        Rate { tokens, every_secs: 1, burst: burst.max(1) }
    }

    pub fn per_minute(tokens: u32) -> Rate {
        Rate { tokens, every_secs: 60, burst: tokens.max(1) }
    }

    pub fn is_limited(self) -> bool {
        self.tokens > 0
    }

    /// How long the bucket takes to gain so many tokens.
    fn nanos(self, tokens: u32) -> u64 {
        u64::from(tokens) * NANOS * u64::from(self.every_secs) / u64::from(self.tokens.max(1))
    }
}

/// All rates of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    pub sends: Rate,
    pub send_bytes: Rate,
    pub requests: Rate,
    pub profile: Rate,
}

impl Rates {
    pub fn new(limits: &LimitSettings) -> Rates {
        let sends = Rate::per_second(limits.sends_per_second, limits.send_burst);
        Rates {
            sends,
            // Turning off the limit of sends turns off the limit of their bytes too.
            send_bytes: match sends.is_limited() {
                true => Rate::per_second(limits.send_bytes_per_second, limits.send_burst_bytes),
                false => Rate::NONE,
            },
            requests: Rate::per_second(limits.request_units_per_second, limits.request_burst_units),
            profile: Rate::per_minute(limits.profile_changes_per_minute),
        }
    }
}

/// The level of a token bucket, stored as the time at which it is full again, in nanoseconds since
/// the start (GCRA).
#[derive(Debug, Clone, Copy, Default)]
struct BucketLevel(u64);

impl BucketLevel {
    /// The bucket with `n` tokens less, or the nanoseconds until it has them. A cost above the size
    /// takes a full bucket; otherwise it could never be paid.
    fn less(self, rate: Rate, n: u32, now: u64) -> Result<BucketLevel, u64> {
        if !rate.is_limited() || n == 0 {
            return Ok(self);
        }
        let size = rate.nanos(rate.burst);
        let full_at = self.0.max(now) + rate.nanos(n.min(rate.burst));
        match full_at - now > size {
            true => Err(full_at - now - size),
            false => Ok(BucketLevel(full_at)),
        }
    }
}

/// The buckets of one user.
#[derive(Debug, Clone, Copy, Default)]
struct UserBuckets {
    sends: BucketLevel,
    send_bytes: BucketLevel,
    requests: BucketLevel,
    profile: BucketLevel,
    /// Units taken here and not yet charged in Redis.
    unshared: u32,
    /// No request passes before this time, because the shared bucket is overdrawn.
    held_until: u64,
}

impl UserBuckets {
    /// Whether it differs from the buckets of a new user.
    fn is_needed(&self, now: u64) -> bool {
        let buckets = [self.sends, self.send_bytes, self.requests, self.profile];
        self.held_until > now || buckets.iter().any(|bucket| bucket.0 > now)
    }
}

pub struct LocalBuckets {
    shards: Vec<Mutex<HashMap<UserId, UserBuckets>>>,
    hasher: RandomState,
    rates: Rates,
    began: Instant,
}

impl LocalBuckets {
    pub fn new(rates: Rates) -> Self {
        LocalBuckets {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            rates,
            began: Instant::now(),
        }
    }

    /// Removes the users whose buckets are full again, as a new user's are.
    pub fn sweep(&self) {
        let now = self.now();
        for shard in &self.shards {
            let mut accounts = shard.lock();
            accounts.retain(|_, account| account.is_needed(now));
            accounts.shrink_to_fit();
        }
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos().try_into().unwrap_or(u64::MAX)
    }

    fn with<T>(&self, user: &UserId, work: impl FnOnce(&mut UserBuckets, u64) -> T) -> T {
        let shard = self.hasher.hash_one(user) as usize % SHARDS;
        let mut accounts = self.shards[shard].lock();
        // Not `entry`: the user is nearly always there, and `entry` would clone the id.
        if let Some(account) = accounts.get_mut(user) {
            return work(account, self.now());
        }
        work(accounts.entry(user.clone()).or_default(), self.now())
    }

    fn take_sends(&self, user: &UserId, cost: SendCost) -> Result<(), u64> {
        let Rates { sends, send_bytes, .. } = self.rates;
        if !sends.is_limited() && !send_bytes.is_limited() {
            return Ok(());
        }
        let taken = self.with(user, |account, now| {
            let left = (
                account.sends.less(sends, cost.messages, now),
                account.send_bytes.less(send_bytes, cost.bytes, now),
            );
            match left {
                (Ok(messages), Ok(bytes)) => {
                    (account.sends, account.send_bytes) = (messages, bytes);
                    Ok(())
                }
                (messages, bytes) => Err(messages.err().max(bytes.err()).unwrap_or_default()),
            }
        });
        taken.map_err(millis)
    }

    fn take_profile(&self, user: &UserId) -> Result<(), u64> {
        let taken = self.with(user, |account, now| {
            account.profile = account.profile.less(self.rates.profile, 1, now)?;
            Ok::<(), u64>(())
        });
        taken.map_err(millis)
    }

    /// Takes units. Returns the units not yet charged in Redis once they reach `share_at`.
    fn take_units(&self, user: &UserId, units: u32, share_at: u32) -> Result<Option<u32>, u64> {
        if !self.rates.requests.is_limited() {
            return Ok(None);
        }
        let taken = self.with(user, |account, now| {
            if account.held_until > now {
                return Err(account.held_until - now);
            }
            account.requests = account.requests.less(self.rates.requests, units, now)?;
            account.unshared = account.unshared.saturating_add(units);
            Ok((account.unshared >= share_at).then(|| std::mem::take(&mut account.unshared)))
        });
        taken.map_err(millis)
    }

    /// Refuses the user's requests for so long. Answers of Redis may arrive out of order, so the
    /// latest time counts.
    #[cfg_attr(
        not(any(feature = "cluster", test)),
        expect(dead_code, reason = "only the shared buckets of a cluster use it")
    )]
    fn hold(&self, user: &UserId, ms: u64) {
        self.with(user, |account, now| {
            let until = now.saturating_add(ms.saturating_mul(1_000_000));
            account.held_until = account.held_until.max(until);
        });
    }
}

/// Rounded up, so that a client that waits exactly this long finds a token.
fn millis(nanos: u64) -> u64 {
    nanos.div_ceil(1_000_000).max(1)
}

impl SendBudget for LocalBuckets {
    fn take<'a>(&'a self, user: &'a UserId, cost: SendCost) -> Taking<'a> {
        Either::Left(ready(self.take_sends(user, cost)))
    }

    fn take_profile_change<'a>(&'a self, user: &'a UserId) -> Taking<'a> {
        Either::Left(ready(self.take_profile(user)))
    }
}

impl RequestBudget for LocalBuckets {
    fn take(&self, user: &UserId, units: u32) -> Result<(), u64> {
        self.take_units(user, units, u32::MAX).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const OFF: Rates =
        Rates { sends: Rate::NONE, send_bytes: Rate::NONE, requests: Rate::NONE, profile: Rate::NONE };

    fn sends(per_second: u32, burst: u32) -> LocalBuckets {
        LocalBuckets::new(Rates { sends: Rate::per_second(per_second, burst), ..OFF })
    }

    fn user(name: &str) -> UserId {
        UserId::new(name).unwrap()
    }

    async fn take(buckets: &LocalBuckets, user: &UserId, messages: u32, bytes: u32) -> Result<(), u64> {
        SendBudget::take(buckets, user, SendCost { messages, bytes }).await
    }

    #[tokio::test]
    async fn a_burst_passes_and_the_next_one_is_told_when() {
        let buckets = sends(10, 5);
        let (alice, bob) = (user("alice"), user("bob"));
        for _ in 0..5 {
            take(&buckets, &alice, 1, 0).await.unwrap();
        }
        let wait = take(&buckets, &alice, 1, 0).await.unwrap_err();
        assert!((1..=100).contains(&wait), "{wait}");
        assert!(take(&buckets, &bob, 1, 0).await.is_ok(), "everybody has their own");
        tokio::time::sleep(Duration::from_millis(wait)).await;
        assert!(take(&buckets, &alice, 1, 0).await.is_ok());
    }

    #[tokio::test]
    async fn several_are_taken_together_or_not_at_all() {
        let buckets = sends(1, 5);
        let (alice, bob) = (user("alice"), user("bob"));
        take(&buckets, &alice, 3, 0).await.unwrap();
        let wait = take(&buckets, &alice, 3, 0).await.unwrap_err();
        assert!((1..=1000).contains(&wait), "{wait}");
        take(&buckets, &alice, 2, 0).await.unwrap();
        take(&buckets, &bob, 100, 0).await.unwrap();
        assert!(take(&buckets, &bob, 1, 0).await.is_err(), "more than the bucket holds costs all of it");
        take(&buckets, &alice, 0, 0).await.unwrap();
    }

    #[tokio::test]
    async fn bytes_count_beside_messages_and_a_refusal_takes_of_neither() {
        let rates =
            Rates { sends: Rate::per_second(1, 10), send_bytes: Rate::per_second(10_000, 40_000), ..OFF };
        let buckets = LocalBuckets::new(rates);
        let alice = user("alice");
        take(&buckets, &alice, 1, 20_000).await.unwrap();
        take(&buckets, &alice, 1, 20_000).await.unwrap();
        let wait = take(&buckets, &alice, 1, 20_000).await.unwrap_err();
        assert!((1_900..=2_000).contains(&wait), "20,000 bytes at 10,000 a second: {wait}");
        for _ in 0..50 {
            assert!(take(&buckets, &alice, 1, 20_000).await.is_err());
        }
        for _ in 0..8 {
            take(&buckets, &alice, 1, 0).await.expect("what was refused took no message");
        }
        assert!(take(&buckets, &alice, 1, 0).await.is_err(), "ten messages");
    }

    #[tokio::test]
    async fn requests_have_one_budget_by_their_cost() {
        let buckets = LocalBuckets::new(Rates { requests: Rate::per_second(1_000, 500), ..OFF });
        let alice = user("alice");
        for _ in 0..4 {
            RequestBudget::take(&buckets, &alice, 100).unwrap();
        }
        let wait = RequestBudget::take(&buckets, &alice, 200).unwrap_err();
        assert!((1..=100).contains(&wait), "{wait}");
        RequestBudget::take(&buckets, &alice, 1).expect("a cheap one still passes");
        take(&buckets, &alice, 1, 1_000).await.expect("sends have their own");
        RequestBudget::take(&buckets, &user("bob"), 500).unwrap();
        buckets.hold(&user("carol"), 50);
        assert!(RequestBudget::take(&buckets, &user("carol"), 1).unwrap_err() <= 50);
        tokio::time::sleep(Duration::from_millis(60)).await;
        RequestBudget::take(&buckets, &user("carol"), 1).unwrap();
    }

    #[test]
    fn a_shorter_hold_does_not_end_a_longer_one() {
        let buckets = LocalBuckets::new(Rates { requests: Rate::per_second(1_000, 500), ..OFF });
        let carol = user("carol");
        buckets.hold(&carol, 60_000);
        buckets.hold(&carol, 1);
        assert!(RequestBudget::take(&buckets, &carol, 1).unwrap_err() > 30_000);
        buckets.hold(&carol, 120_000);
        assert!(RequestBudget::take(&buckets, &carol, 1).unwrap_err() > 60_000);
    }

    #[tokio::test]
    async fn a_profile_changes_ten_times_a_minute() {
        let buckets = LocalBuckets::new(Rates { profile: Rate::per_minute(10), ..OFF });
        let alice = user("alice");
        for _ in 0..10 {
            buckets.take_profile_change(&alice).await.unwrap();
        }
        let wait = buckets.take_profile_change(&alice).await.unwrap_err();
        assert!((5_000..=6_000).contains(&wait), "{wait}");
    }

    #[tokio::test]
    async fn who_does_nothing_takes_no_memory() {
        let buckets = LocalBuckets::new(Rates {
            sends: Rate::per_second(1000, 1),
            requests: Rate::per_second(1_000_000, 10),
            ..OFF
        });
        for n in 0..1000 {
            let _ = take(&buckets, &user(&format!("u{n}")), 1, 0).await;
            let _ = RequestBudget::take(&buckets, &user(&format!("r{n}")), 1);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        buckets.sweep();
        assert!(buckets.shards.iter().all(|shard| shard.lock().is_empty()));
        for _ in 0..1000 {
            take(&LocalBuckets::new(OFF), &user("alice"), 1_000, u32::MAX).await.expect("no rate, no limit");
        }
    }
}
