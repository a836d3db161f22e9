//! Rate limits across nodes: a user's token buckets, one set for all of them.

use bluetick_protocol::UserId;

use super::{
    Redis,
    scripts::{Call, TAKE_TOKENS},
};
use crate::Result;

/// A bucket, and how much to take from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    /// Tells a user's buckets apart; empty for the one of sends.
    pub name: &'static str,
    /// How many tokens it gets in `every_secs`; 0 means no limit.
    pub tokens: u32,
    pub every_secs: u32,
    /// How many it holds.
    pub burst: u32,
    pub take: u32,
}

impl Redis {
    /// Takes from all of these buckets or from none, and then says after how many milliseconds there will be enough in
    /// each. More than a bucket holds costs a full one.
    pub async fn take_tokens(
        &self,
        user: &UserId,
        buckets: &[TokenBucket],
        now_ms: u64,
    ) -> Result<Result<(), u64>> {
        let limited: Vec<&TokenBucket> =
            buckets.iter().filter(|bucket| bucket.tokens > 0 && bucket.take > 0).collect();
        if limited.is_empty() {
            return Ok(Ok(()));
        }
        let base = self.key("rate", user.as_str());
        // The user's id is what the keys are placed by, so they lie together.
        let key = |bucket: &&TokenBucket| match bucket.name {
            "" => base.clone(),
            name => format!("{base}:{name}"),
        };
        let mut call = Call::on(limited.iter().map(key).collect::<Vec<_>>()).arg(now_ms);
        for bucket in limited {
            call = call
                .arg(u64::from(bucket.every_secs) * 1_000)
                .arg(bucket.tokens)
                .arg(bucket.burst.max(1))
                .arg(bucket.take);
        }
        Ok(match self.eval(&TAKE_TOKENS, call).await? {
            0 => Ok(()),
            wait_ms => Err(wait_ms),
        })
    }
}
