//! The limit across nodes: a user's bucket in Redis, behind the one of this node.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bluetick_chat::{SendBudget, Taking};
use bluetick_protocol::UserId;
use bluetick_store::{Clock, Redis};
use futures_util::future::Either;

use super::Buckets;

/// Asks the node's own bucket first: who sends too much to one node is told so without a round trip. While
/// Redis cannot be asked, each node's own bucket is the limit.
pub struct SharedBuckets {
    own: Arc<Buckets>,
    redis: Redis,
    clock: Arc<dyn Clock>,
    per_second: u32,
    burst: u32,
    warned_ms: AtomicU64,
}

impl SharedBuckets {
    /// With the same rate and burst as `own` was made with.
    pub fn new(own: Arc<Buckets>, redis: Redis, clock: Arc<dyn Clock>, per_second: u32, burst: u32) -> Self {
        SharedBuckets { own, redis, clock, per_second, burst, warned_ms: Default::default() }
    }

    /// Whether a minute is over since somebody was last told yes.
    fn may_warn(&self, now_ms: u64) -> bool {
        let due = |warned: u64| (warned == 0 || now_ms >= warned.saturating_add(60_000)).then_some(now_ms);
        self.warned_ms.fetch_update(Relaxed, Relaxed, due).is_ok()
    }
}

impl SendBudget for SharedBuckets {
    fn take<'a>(&'a self, user: &'a UserId, n: u32) -> Taking<'a> {
        Either::Right(Box::pin(self.take_everywhere(user, n)))
    }
}

impl SharedBuckets {
    async fn take_everywhere(&self, user: &UserId, n: u32) -> Result<(), u64> {
        self.own.take_now(user, n)?;
        let now_ms = self.clock.now_ms();
        match self.redis.take_tokens(user, self.per_second, self.burst, n, now_ms).await {
            Ok(taken) => taken,
            Err(error) => {
                metrics::counter!("bluetick_rate_limits_unshared_total").increment(1);
                if self.may_warn(now_ms) {
                    tracing::warn!(%error, "rate limits hold for each node by itself while redis cannot be asked");
                }
                Ok(())
            }
        }
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
        let own = Arc::new(Buckets::new(1, 3).unwrap());
        let shared = SharedBuckets::new(own, redis, clock.clone(), 1, 3);
        let alice = UserId::new("alice").unwrap();
        for _ in 0..3 {
            shared.take(&alice, 1).await.unwrap();
        }
        assert!(shared.take(&alice, 1).await.is_err());
        assert!(!shared.may_warn(2_000), "it was said");
        assert!(shared.may_warn(61_000), "and a minute later it is said again");
        assert!(!shared.may_warn(61_001));
    }
}
