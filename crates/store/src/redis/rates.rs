//! Rate limits across nodes: the token buckets `rate:{user}` and `rate:{user}:name`.

use bluetick_protocol::UserId;

use super::{
    Redis,
    scripts::{ScriptCall, TAKE_TOKENS},
};
use crate::Result;

/// A bucket, and how many tokens to take from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    /// Tells a user's buckets apart; empty for the one of sends.
    pub name: &'static str,
    /// Tokens added in `every_secs`; 0 means no limit.
    pub tokens: u32,
    pub every_secs: u32,
    /// Its capacity.
    pub burst: u32,
    pub take: u32,
}

/// What to do if a bucket holds too few tokens.
#[derive(Clone, Copy)]
enum Shortfall {
    /// Take nothing from any bucket.
    Refuse,
    /// Take them all the same, into debt.
    Overdraw,
}

impl Redis {
    /// Takes from all buckets, or from none and returns after how many milliseconds all will hold
    /// enough. A take beyond a bucket's capacity costs a full bucket.
    pub async fn take_tokens(
        &self,
        user: &UserId,
        buckets: &[TokenBucket],
        now_ms: u64,
    ) -> Result<Result<(), u64>> {
        Ok(match self.tokens(user, buckets, Shortfall::Refuse, now_ms).await? {
            0 => Ok(()),
            wait_ms => Err(wait_ms),
        })
    }

    /// Takes tokens that were already spent, into debt if need be. Returns after how many
    /// milliseconds the bucket is out of debt. Its debt is at most its capacity, so that is never
    /// longer than it takes to fill.
    pub async fn charge_tokens(&self, user: &UserId, bucket: TokenBucket, now_ms: u64) -> Result<u64> {
        self.tokens(user, &[bucket], Shortfall::Overdraw, now_ms).await
    }

    /// Returns after how many milliseconds all buckets hold enough.
    async fn tokens(
        &self,
        user: &UserId,
        buckets: &[TokenBucket],
        shortfall: Shortfall,
        now_ms: u64,
    ) -> Result<u64> {
        let limited: Vec<&TokenBucket> =
            buckets.iter().filter(|bucket| bucket.tokens > 0 && bucket.take > 0).collect();
        if limited.is_empty() {
            return Ok(0);
        }
        let base = self.key("rate", user.as_str());
        // The hash tag is the user's id, so all keys lie in one slot.
        let key = |bucket: &&TokenBucket| match bucket.name {
            "" => base.clone(),
            name => format!("{base}:{name}"),
        };
        let mode = match shortfall {
            Shortfall::Refuse => "take",
            Shortfall::Overdraw => "charge",
        };
        let mut call = ScriptCall::on(limited.iter().map(key).collect::<Vec<_>>()).arg(now_ms).arg(mode);
        for bucket in limited {
            call = call
                .arg(u64::from(bucket.every_secs) * 1_000)
                .arg(bucket.tokens)
                .arg(bucket.burst.max(1))
                .arg(bucket.take);
        }
        self.eval(&TAKE_TOKENS, call).await
    }
}
