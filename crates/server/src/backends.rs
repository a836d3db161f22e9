//! Opens the backends of a process according to its roles: a store for an app server; only the
//! session registry and the directory of processes for a gateway.

use std::sync::Arc;

use bluetick_store::{Clock, Directory, SessionStore, Store};
#[cfg(feature = "cluster")]
use bluetick_store::{Redis, Registry};

use crate::{
    config::{Backend, Config},
    serve::ServeError,
};

/// What a process has, whichever backends are behind it.
pub struct Backends {
    /// None for a gateway: it knows no database.
    pub store: Option<Store>,
    pub sessions: Arc<dyn SessionStore>,
    /// None for a process that is alone.
    pub directory: Option<Arc<dyn Directory>>,
    /// For limits that hold across processes.
    #[cfg(feature = "cluster")]
    pub redis: Option<Redis>,
}

pub async fn open(config: &Config, clock: Arc<dyn Clock>) -> Result<Backends, ServeError> {
    match (config.is_app(), config.store.backend) {
        (true, Backend::Embedded) => open_embedded(config, clock).await,
        (true, Backend::Dynamodb) => open_store(config, clock).await,
        (false, _) => open_registry(config, clock).await,
    }
}

/// Opening may replay a log, which is no work for a thread that others wait for.
async fn open_embedded(config: &Config, clock: Arc<dyn Clock>) -> Result<Backends, ServeError> {
    let embedded = config.embedded_store_with_objects()?;
    let store = tokio::task::spawn_blocking(move || Store::embedded(embedded, clock))
        .await
        .map_err(|error| ServeError::Start(error.to_string()))??;
    Ok(Backends {
        sessions: store.sessions.clone(),
        store: Some(store),
        directory: None,
        #[cfg(feature = "cluster")]
        redis: None,
    })
}

/// An app server's: DynamoDB and Redis.
#[cfg(feature = "cluster")]
async fn open_store(config: &Config, clock: Arc<dyn Clock>) -> Result<Backends, ServeError> {
    let (store, registry, _) = Store::distributed(config.distributed_store_with_objects()?, clock).await?;
    let Registry { sessions, directory, redis } = registry;
    Ok(Backends { store: Some(store), sessions, directory: Some(directory), redis: Some(redis) })
}

/// A gateway's: Redis.
#[cfg(feature = "cluster")]
async fn open_registry(config: &Config, clock: Arc<dyn Clock>) -> Result<Backends, ServeError> {
    let Registry { sessions, directory, redis } = Registry::redis(config.redis_server(), clock)?;
    Ok(Backends { store: None, sessions, directory: Some(directory), redis: Some(redis) })
}

// The check of the configuration refuses both in a build without; this is for whoever gets past it.
#[cfg(not(feature = "cluster"))]
async fn open_store(_: &Config, _: Arc<dyn Clock>) -> Result<Backends, ServeError> {
    Err(ServeError::Start("this build is for one process; build with --features cluster".into()))
}

#[cfg(not(feature = "cluster"))]
async fn open_registry(config: &Config, clock: Arc<dyn Clock>) -> Result<Backends, ServeError> {
    open_store(config, clock).await
}
