//! The store for many machines: rows in DynamoDB, hints in Redis. A gateway needs Redis only.

use std::{sync::Arc, time::Duration};

use crate::{
    Clock, ColdObjects, ColdTier, Directory, Result, SessionStore, Store,
    dynamo::{Dynamo, DynamoConfig, DynamoStore},
    redis::{Redis, RedisConfig, RedisDirectory, RedisSessions},
};

#[derive(Debug, Clone)]
pub struct DistributedConfig {
    pub dynamo: DynamoConfig,
    pub redis: RedisConfig,
    /// For how long a `client_msg_id` is remembered (R9).
    pub idempotency_window: Duration,
    /// The objects of the cold tier.
    pub objects: Option<Arc<ColdObjects>>,
    /// The age at which messages become cold. Without it, or without objects, no conversation is
    /// listed for the cold tier.
    pub cold_after: Option<Duration>,
}

/// The session store and the directory: all the shared state that a gateway needs.
#[derive(Clone)]
pub struct Registry {
    pub sessions: Arc<dyn SessionStore>,
    pub directory: Arc<dyn Directory>,
    pub redis: Redis,
}

impl Registry {
    /// Connects on first use, so a Redis that is down is no error here.
    pub fn redis(config: RedisConfig, clock: Arc<dyn Clock>) -> Result<Registry> {
        let redis = Redis::new(config)?;
        Ok(Registry {
            sessions: Arc::new(RedisSessions::new(redis.clone(), clock.clone())),
            directory: Arc::new(RedisDirectory::new(redis.clone(), clock)),
            redis,
        })
    }
}

impl Store {
    /// Opens the store, the registry that it contains, and the client for maintenance.
    pub async fn distributed(
        config: DistributedConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<(Store, Registry, Dynamo)> {
        let registry = Registry::redis(config.redis, clock.clone())?;
        let dynamo = Dynamo::new(config.dynamo).await?;
        let window_ms = config.idempotency_window.as_millis() as u64;
        let objects = config.objects;
        let cold_after_ms = config.cold_after.map(|after| after.as_millis() as u64);
        let rows = DynamoStore::new(dynamo.clone(), registry.redis.clone(), clock, window_ms);
        let rows = Arc::new(rows.with_objects(objects.clone(), cold_after_ms));
        let cold = Arc::new(ColdTier::new(rows.clone(), rows.clone(), objects));
        let store = Store {
            messages: cold.clone(),
            cold,
            attachments: rows.clone(),
            pending: rows.clone(),
            status: rows.clone(),
            conversations: rows.clone(),
            users: rows.clone(),
            devices: rows.clone(),
            push_outbox: rows.clone(),
            sessions: registry.sessions.clone(),
            maintenance: rows,
        };
        Ok((store, registry, dynamo))
    }
}
