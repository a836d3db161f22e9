//! A cache of who blocks whom, which a send asks twice. Whoever changes a flag marks it as unknown before the table is
//! written, so that nobody fills in what was read before; both directions of a pair lie in one slot.

use std::time::Duration;

use ::redis::{Value, cmd};
use bluetick_protocol::{ConversationId, UserId};

use super::{
    Redis,
    scripts::{BLOCK_CHANGED, BLOCK_CHANGING, Call},
};
use crate::Result;

const KEPT: Duration = Duration::from_secs(300);
/// How long a change may take. Whoever dies in the middle of one leaves an unknown flag, and not for long.
const CHANGING: Duration = Duration::from_secs(10);

fn known(flag: Option<String>) -> Option<bool> {
    match flag.as_deref() {
        Some("1") => Some(true),
        Some("0") => Some(false),
        _ => None,
    }
}

fn flag(blocked: bool) -> &'static str {
    if blocked { "1" } else { "0" }
}

impl Redis {
    fn block(&self, user: &UserId, other: &UserId) -> String {
        let pair = ConversationId::between(user, other);
        let tag = pair.as_ref().map_or(user.as_str(), |pair| pair.as_str());
        format!("{}:{user}", self.key("block", tag))
    }

    /// Whether `user` blocks `other`, if that is known.
    pub async fn block_cached(&self, user: &UserId, other: &UserId) -> Result<Option<bool>> {
        Ok(known(self.query(cmd("GET").arg(self.block(user, other)).take()).await?))
    }

    /// Fills in what the table said, unless something is known or being changed.
    pub async fn block_fill(&self, user: &UserId, other: &UserId, blocked: bool) -> Result<()> {
        let mut command = cmd("SET");
        command.arg(self.block(user, other)).arg(flag(blocked));
        command.arg("NX").arg("PX").arg(KEPT.as_millis() as u64);
        self.query::<Value>(command).await.map(drop)
    }

    /// Must succeed before the table is written.
    pub async fn block_changing(&self, user: &UserId, other: &UserId) -> Result<()> {
        let call = Call::on([self.block(user, other)]).arg(CHANGING.as_millis() as u64);
        self.eval::<Value>(&BLOCK_CHANGING, call).await.map(drop)
    }

    /// After the table was written.
    pub async fn block_changed(&self, user: &UserId, other: &UserId, blocked: bool) -> Result<()> {
        let call = Call::on([self.block(user, other)])
            .arg(flag(blocked))
            .arg(KEPT.as_millis() as u64)
            .arg(CHANGING.as_millis() as u64);
        self.eval::<Value>(&BLOCK_CHANGED, call).await.map(drop)
    }
}
