//! How Redis is reached: one server, the master that Sentinels name, or a cluster. What comes out is a [`Link`],
//! cheap to clone, over which many calls go at once.

use std::{collections::BTreeMap, time::Duration};

use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline,
    ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, RedisError, RedisResult, Value,
    aio::{MultiplexedConnection, SendError},
    cluster::{ClusterClient, ClusterClientBuilder},
    cluster_async::ClusterConnection,
    cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr},
    cmd,
};
use futures_util::future::{join_all, select_ok};

use super::{RedisConfig, RedisMode};
use crate::{Result, StoreError};

/// Commands that may wait for the socket before callers wait for room.
const QUEUE: usize = 1024;
/// How often a cluster's client follows a slot that moved before the call fails.
const CLUSTER_RETRIES: u32 = 3;

pub(super) enum Dialer {
    Single(ConnectionInfo),
    Sentinel { sentinels: Vec<ConnectionInfo>, master: String },
    Cluster(Box<ClusterClient>),
}

#[derive(Clone)]
pub(super) enum Link {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Dialer {
    pub fn new(config: &RedisConfig) -> Result<Self> {
        let mut urls = Vec::with_capacity(config.urls.len());
        for url in &config.urls {
            let info = url.as_str().into_connection_info().map_err(|_| {
                unusable(
                    "a Redis address must look like redis://user:password@host:6379/0, or rediss:// for TLS",
                )
            })?;
            let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
            urls.push(info.set_redis_settings(settings));
        }
        if urls.is_empty() {
            return Err(unusable("no Redis address is given"));
        }
        match &config.mode {
            RedisMode::Single if urls.len() > 1 => Err(unusable(
                "several Redis addresses are given for a single server; give one, or say that it is a cluster or Sentinels",
            )),
            RedisMode::Single => Ok(Dialer::Single(urls.remove(0))),
            RedisMode::Sentinel { master } => {
                Ok(Dialer::Sentinel { sentinels: urls, master: master.clone() })
            }
            RedisMode::Cluster => {
                let client = ClusterClientBuilder::new(urls)
                    .use_protocol(ProtocolVersion::RESP3)
                    .retries(CLUSTER_RETRIES)
                    .min_retry_wait(10)
                    .max_retry_wait(100)
                    .connection_timeout(config.deadline)
                    .response_timeout(config.deadline)
                    .build();
                let client = client.map_err(|e| unusable(&format!("the Redis cluster: {e}")))?;
                Ok(Dialer::Cluster(Box::new(client)))
            }
        }
    }

    /// Connects, and asks for a sign of life. `closed` is called when the connection ends.
    pub async fn dial(
        &self,
        timeout: Duration,
        closed: impl Fn() + Send + Sync + 'static,
    ) -> RedisResult<Link> {
        match self {
            Dialer::Single(info) => connect(info.clone(), timeout, closed).await.map(Link::One),
            Dialer::Sentinel { sentinels, master } => {
                let asked = sentinels.iter().map(|sentinel| Box::pin(ask(sentinel, master, timeout)));
                let (info, _) = select_ok(asked).await?;
                let mut connection = connect(info, timeout, closed).await?;
                // A Sentinel may not have heard of a failover yet.
                let role: Vec<Value> = cmd("ROLE").query_async(&mut connection).await?;
                match role.first() {
                    Some(Value::BulkString(name)) if name == b"master" => Ok(Link::One(connection)),
                    _ => Err(refused("the server that the Sentinels name is not a master")),
                }
            }
            // The cluster's client notices by itself that a node's connection ended.
            Dialer::Cluster(client) => {
                let mut connection = client.get_async_connection().await?;
                let anywhere = RoutingInfo::SingleNode(SingleNodeRoutingInfo::RandomPrimary);
                connection.route_command(cmd("PING"), anywhere).await?;
                Ok(Link::Cluster(connection))
            }
        }
    }
}

fn unusable(why: &str) -> StoreError {
    StoreError::Unusable(why.to_owned())
}

fn refused(why: &'static str) -> RedisError {
    RedisError::from((::redis::ErrorKind::Io, why))
}

async fn connect(
    info: ConnectionInfo,
    timeout: Duration,
    closed: impl Fn() + Send + Sync + 'static,
) -> RedisResult<MultiplexedConnection> {
    let listener = move |push: PushInfo| -> Result<(), SendError> {
        if push.kind == PushKind::Disconnection {
            closed();
        }
        Ok(())
    };
    // Every call has a deadline of its own.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeout))
        .set_response_timeout(None)
        .set_pipeline_buffer_size(QUEUE)
        .set_push_sender(listener);
    let mut connection = Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await?;
    cmd("PING").exec_async(&mut connection).await?;
    Ok(connection)
}

/// Asks one Sentinel where the master is. The name and password in a Sentinel's address are those of the servers
/// behind it; the Sentinel itself gets them only if it asks for some.
async fn ask(sentinel: &ConnectionInfo, master: &str, timeout: Duration) -> RedisResult<ConnectionInfo> {
    let settings = sentinel.redis_settings();
    let mut with_password = RedisConnectionInfo::default();
    if let Some(name) = settings.username() {
        with_password = with_password.set_username(name);
    }
    if let Some(password) = settings.password() {
        with_password = with_password.set_password(password);
    }
    let mut found = address_of(sentinel, RedisConnectionInfo::default(), master, timeout).await;
    if matches!(&found, Err(e) if e.code() == Some("NOAUTH")) {
        found = address_of(sentinel, with_password, master, timeout).await;
    }
    let (host, port) = found?.ok_or_else(|| refused("no Sentinel knows a master of this name"))?;
    let address = match sentinel.addr().clone() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    Ok(sentinel.clone().set_addr(address))
}

async fn address_of(
    sentinel: &ConnectionInfo,
    settings: RedisConnectionInfo,
    master: &str,
    timeout: Duration,
) -> RedisResult<Option<(String, u16)>> {
    let client = Client::open(sentinel.clone().set_redis_settings(settings))?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeout))
        .set_response_timeout(Some(timeout));
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(master).query_async(&mut connection).await
}

impl Link {
    pub fn is_cluster(&self) -> bool {
        matches!(self, Link::Cluster(_))
    }

    /// Sends commands together and gives each its own result: in one round trip, or in one for each of a cluster's
    /// nodes that has to do with them.
    pub async fn exchange(&mut self, commands: Vec<Cmd>) -> RedisResult<Vec<RedisResult<Value>>> {
        match self {
            Link::One(connection) if commands.len() == 1 => {
                let mut results = Vec::with_capacity(1);
                for command in &commands {
                    results.push(command.query_async(connection).await);
                }
                Ok(results)
            }
            Link::One(connection) => {
                let mut pipeline = Pipeline::with_capacity(commands.len());
                for command in commands {
                    pipeline.add_command(command);
                }
                pipeline.ignore_errors().query_async(connection).await
            }
            Link::Cluster(connection) => {
                let each = commands.into_iter().map(|command| {
                    let mut connection = connection.clone();
                    async move { command.query_async(&mut connection).await }
                });
                Ok(join_all(each).await)
            }
        }
    }

    /// A place on every server that holds keys: a slot of each of a cluster's masters, or the one server.
    pub async fn masters(&mut self) -> RedisResult<Vec<Option<u16>>> {
        let Link::Cluster(connection) = self else { return Ok(vec![None]) };
        let slots: Vec<Vec<Value>> = cmd("CLUSTER").arg("SLOTS").query_async(connection).await?;
        let mut masters = BTreeMap::new();
        for range in slots {
            if let [Value::Int(first), _, Value::Array(node), ..] = range.as_slice()
                && let [_, _, Value::BulkString(id), ..] = node.as_slice()
            {
                masters.entry(id.clone()).or_insert(*first as u16);
            }
        }
        Ok(masters.into_values().map(Some).collect())
    }

    /// Sends a command that has no key to one of the places.
    pub async fn at(&mut self, place: Option<u16>, command: Cmd) -> RedisResult<Value> {
        match (self, place) {
            (Link::Cluster(connection), Some(slot)) => {
                let route = Route::new(slot, SlotAddr::Master);
                let routing = RoutingInfo::SingleNode(SingleNodeRoutingInfo::SpecificNode(route));
                connection.route_command(command, routing).await
            }
            (Link::Cluster(connection), None) => command.query_async(connection).await,
            (Link::One(connection), _) => command.query_async(connection).await,
        }
    }
}
