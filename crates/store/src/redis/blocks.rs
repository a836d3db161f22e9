//! A cache of who blocks whom, which every send reads twice. A change marks the flag as unknown
//! before it writes the table, so that no reader caches a value from before the change. Both
//! directions of a pair lie in one slot.

use std::time::Duration;

use ::redis::{Value, cmd};
use bluetick_protocol::{ConversationId, UserId};

use super::{
    Redis,
    scripts::{BLOCK_CHANGED, BLOCK_CHANGING, ScriptCall},
};
use crate::Result;

const KEPT: Duration = Duration::from_secs(300);
/// How long a change may take. A process that dies during one leaves the flag unknown for this
/// long.
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

    /// Whether `user` blocks `other`, if that is cached.
    pub async fn block_cached(&self, user: &UserId, other: &UserId) -> Result<Option<bool>> {
        Ok(known(self.query(cmd("GET").arg(self.block(user, other)).take()).await?))
    }

    /// Caches what the table said, unless the flag is cached already or being changed.
    pub async fn block_fill(&self, user: &UserId, other: &UserId, blocked: bool) -> Result<()> {
        let mut command = cmd("SET");
        command.arg(self.block(user, other)).arg(flag(blocked));
        command.arg("NX").arg("PX").arg(KEPT.as_millis() as u64);
        self.query::<Value>(command).await.map(drop)
    }

    /// Marks the flag as unknown. Must succeed before the table is written.
    pub async fn block_changing(&self, user: &UserId, other: &UserId) -> Result<()> {
        let call = ScriptCall::on([self.block(user, other)]).arg(CHANGING.as_millis() as u64);
        self.eval::<Value>(&BLOCK_CHANGING, call).await.map(drop)
    }

    /// Caches the new value, after the table was written.
    pub async fn block_changed(&self, user: &UserId, other: &UserId, blocked: bool) -> Result<()> {
        let call = ScriptCall::on([self.block(user, other)])
            .arg(flag(blocked))
            .arg(KEPT.as_millis() as u64)
            .arg(CHANGING.as_millis() as u64);
        self.eval::<Value>(&BLOCK_CHANGED, call).await.map(drop)
    }
}
