//! Rate limits across nodes: a user's bucket of tokens, one for all of them.

use bluetick_protocol::UserId;

use super::{
    Redis,
    scripts::{Call, TAKE_TOKENS},
};
use crate::Result;

impl Redis {
    /// Takes `n` tokens from a bucket that holds `burst` and is filled with `per_second`; or says after how many
    /// milliseconds there will be enough. More than the bucket holds costs a full one. No rate means no limit.
    pub async fn take_tokens(
        &self,
        user: &UserId,
        per_second: u32,
        burst: u32,
        n: u32,
        now_ms: u64,
    ) -> Result<Result<(), u64>> {
        if per_second == 0 || n == 0 {
            return Ok(Ok(()));
        }
        let call =
            Call::on([self.key("rate", user.as_str())]).arg(now_ms).arg(per_second).arg(burst.max(1)).arg(n);
        Ok(match self.eval(&TAKE_TOKENS, call).await? {
            0 => Ok(()),
            wait_ms => Err(wait_ms),
        })
    }
}
