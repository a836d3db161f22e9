//! The directory in Redis: `nodes:{role}`, a sorted set of addresses by the time at which they
//! expire.

use std::{sync::Arc, time::Duration};

use ::redis::{Value, cmd};
use async_trait::async_trait;

use super::{
    Redis,
    scripts::{ANNOUNCE, ScriptCall},
};
use crate::{Clock, Directory, NodeRole, Result};

/// How long Redis keeps a set beyond the TTL of its last entry, to clean up.
const KEPT_BEYOND: Duration = Duration::from_secs(600);

pub struct RedisDirectory {
    redis: Redis,
    clock: Arc<dyn Clock>,
}

impl RedisDirectory {
    pub fn new(redis: Redis, clock: Arc<dyn Clock>) -> Self {
        RedisDirectory { redis, clock }
    }

    fn nodes(&self, role: NodeRole) -> String {
        self.redis.key("nodes", role.as_str())
    }
}

#[async_trait]
impl Directory for RedisDirectory {
    async fn announce(&self, role: NodeRole, address: &str, ttl: Duration) -> Result<()> {
        let now_ms = self.clock.now_ms();
        let call = ScriptCall::on([self.nodes(role)])
            .arg(now_ms)
            .arg(now_ms.saturating_add(ttl.as_millis() as u64))
            .arg(address)
            .arg(ttl.saturating_add(KEPT_BEYOND).as_millis() as u64);
        self.redis.eval::<Value>(&ANNOUNCE, call).await.map(drop)
    }

    async fn withdraw(&self, role: NodeRole, address: &str) -> Result<()> {
        self.redis.query::<Value>(cmd("ZREM").arg(self.nodes(role)).arg(address).take()).await.map(drop)
    }

    async fn members(&self, role: NodeRole) -> Result<Vec<String>> {
        let mut command = cmd("ZRANGE");
        command.arg(self.nodes(role)).arg(format!("({}", self.clock.now_ms())).arg("+inf").arg("BYSCORE");
        let mut members: Vec<String> = self.redis.query(command).await?;
        members.sort();
        Ok(members)
    }
}
