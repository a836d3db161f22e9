//! Rate limits across nodes: a user's buckets in Redis, behind those of this node.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bluetick_chat::{RequestBudget, SendBudget, SendCost, Taking};
use bluetick_protocol::UserId;
use bluetick_store::{Clock, Redis, StoreError, TokenBucket};
use futures_util::future::Either;

use super::{LocalBuckets, Rate, Rates};

/// A node charges Redis each time it has taken this fraction of a full bucket. A bucket can be
/// overdrawn by at most its size, so on up to this many nodes everything is charged.
const SHARES: u32 = 20;

/// Checks the node's own buckets first, which refuses without a round trip. While Redis is down,
/// the own buckets are the limit.
#[derive(Clone)]
pub struct SharedBuckets {
    own: Arc<LocalBuckets>,
    redis: Redis,
    clock: Arc<dyn Clock>,
    rates: Rates,
    warned_ms: Arc<AtomicU64>,
}

impl SharedBuckets {
    /// `rates` must be those of `own`.
    pub fn new(own: Arc<LocalBuckets>, redis: Redis, clock: Arc<dyn Clock>, rates: Rates) -> Self {
        SharedBuckets { own, redis, clock, rates, warned_ms: Default::default() }
    }

    /// True at most once a minute.
    fn may_warn(&self, now_ms: u64) -> bool {
        let due = |warned: u64| (warned == 0 || now_ms >= warned.saturating_add(60_000)).then_some(now_ms);
        self.warned_ms.fetch_update(Relaxed, Relaxed, due).is_ok()
    }

    /// Takes from the shared buckets: all of the tokens or none.
    async fn take_shared(&self, user: &UserId, buckets: &[TokenBucket]) -> Result<(), u64> {
        let now_ms = self.clock.now_ms();
        let taken = self.redis.take_tokens(user, buckets, now_ms).await;
        taken.unwrap_or_else(|error| {
            self.note_unshared(&error, now_ms);
            Ok(())
        })
    }

    /// Charges the shared bucket for units that passed here, and refuses the user here until it is
    /// no longer overdrawn. A bucket with too few tokens is charged too; otherwise a user would get
    /// the full rate on each node.
    async fn charge_units(&self, user: &UserId, units: u32) {
        let now_ms = self.clock.now_ms();
        let requests = bucket("requests", self.rates.requests, units);
        match self.redis.charge_tokens(user, requests, now_ms).await {
            Ok(0) => {}
            Ok(wait_ms) => self.own.hold(user, wait_ms),
            Err(error) => self.note_unshared(&error, now_ms),
        }
    }

    fn note_unshared(&self, error: &StoreError, now_ms: u64) {
        metrics::counter!("bluetick_rate_limits_unshared_total").increment(1);
        if self.may_warn(now_ms) {
            tracing::warn!(%error, "redis is unavailable: each node enforces its rate limits alone");
        }
    }
}

fn bucket(name: &'static str, rate: Rate, take: u32) -> TokenBucket {
    TokenBucket { name, tokens: rate.tokens, every_secs: rate.every_secs, burst: rate.burst, take }
}

impl SendBudget for SharedBuckets {
    fn take<'a>(&'a self, user: &'a UserId, cost: SendCost) -> Taking<'a> {
        if let Err(ms) = self.own.take_sends(user, cost) {
            return Either::Left(std::future::ready(Err(ms)));
        }
        Either::Right(Box::pin(async move {
            let sends = bucket("", self.rates.sends, cost.messages);
            let bytes = bucket("bytes", self.rates.send_bytes, cost.bytes);
            self.take_shared(user, &[sends, bytes]).await
        }))
    }

    fn take_profile_change<'a>(&'a self, user: &'a UserId) -> Taking<'a> {
        if let Err(ms) = self.own.take_profile(user) {
            return Either::Left(std::future::ready(Err(ms)));
        }
        Either::Right(Box::pin(async move {
            self.take_shared(user, &[bucket("profile", self.rates.profile, 1)]).await
        }))
    }
}

impl RequestBudget for SharedBuckets {
    /// No request waits for Redis: units are charged in portions, and a user over the shared limit
    /// is refused here until the bucket has refilled.
    fn take(&self, user: &UserId, units: u32) -> Result<(), u64> {
        let portion = (self.rates.requests.burst / SHARES).max(1);
        if let Some(taken) = self.own.take_units(user, units, portion)? {
            let (shared, user) = (self.clone(), user.clone());
            tokio::spawn(async move { shared.charge_units(&user, taken).await });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bluetick_store::{ManualClock, RedisConfig};

    use super::*;

    #[tokio::test]
    async fn without_redis_the_own_bucket_is_the_limit() {
        // Nobody listens at port 1.
        let redis = Redis::new(RedisConfig::new("redis://127.0.0.1:1")).unwrap();
        let clock = Arc::new(ManualClock::new(1_000));
        let rates = Rates {
            sends: Rate::per_second(1, 3),
            send_bytes: Rate::NONE,
            requests: Rate::per_second(1, 3),
            profile: Rate::NONE,
        };
        let own = Arc::new(LocalBuckets::new(rates));
        let shared = SharedBuckets::new(own, redis, clock.clone(), rates);
        let alice = UserId::new("alice").unwrap();
        let one = SendCost { messages: 1, bytes: 10 };
        for _ in 0..3 {
            SendBudget::take(&shared, &alice, one).await.unwrap();
            RequestBudget::take(&shared, &alice, 1).unwrap();
        }
        assert!(SendBudget::take(&shared, &alice, one).await.is_err());
        assert!(RequestBudget::take(&shared, &alice, 1).is_err());
        assert!(!shared.may_warn(2_000), "it was said");
        assert!(shared.may_warn(61_000), "and a minute later it is said again");
        assert!(!shared.may_warn(61_001));
    }
}
