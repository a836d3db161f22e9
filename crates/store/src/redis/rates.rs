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

/// What becomes of tokens that a bucket does not have.
#[derive(Clone, Copy)]
enum Beyond {
    /// Nothing is taken from any bucket.
    Refused,
    /// They are taken all the same.
    Owed,
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
        Ok(match self.tokens(user, buckets, Beyond::Refused, now_ms).await? {
            0 => Ok(()),
            wait_ms => Err(wait_ms),
        })
    }

    /// Takes tokens that were spent already, if need be into debt. Returns after how many
    /// milliseconds the bucket is out of debt. It owes at most as much as it holds, so that is
    /// never longer than it takes to fill.
    pub async fn charge_tokens(&self, user: &UserId, bucket: TokenBucket, now_ms: u64) -> Result<u64> {
        self.tokens(user, &[bucket], Beyond::Owed, now_ms).await
    }

    /// After how many milliseconds there is enough in all of the buckets.
    async fn tokens(
        &self,
        user: &UserId,
        buckets: &[TokenBucket],
        beyond: Beyond,
        now_ms: u64,
    ) -> Result<u64> {
        let limited: Vec<&TokenBucket> =
            buckets.iter().filter(|bucket| bucket.tokens > 0 && bucket.take > 0).collect();
        if limited.is_empty() {
            return Ok(0);
        }
        let base = self.key("rate", user.as_str());
        // The user's id is what the keys are placed by, so they lie together.
        let key = |bucket: &&TokenBucket| match bucket.name {
            "" => base.clone(),
            name => format!("{base}:{name}"),
        };
        let mode = match beyond {
            Beyond::Refused => "take",
            Beyond::Owed => "charge",
        };
        let mut call = Call::on(limited.iter().map(key).collect::<Vec<_>>()).arg(now_ms).arg(mode);
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
