//! Opens connections: to one server, to the master that Sentinels name, or to a cluster. The result
//! is a [`RedisLink`], cheap to clone, that carries many calls at once.

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

/// Commands that may wait for the socket. Beyond that, callers wait.
const QUEUE: usize = 1024;
/// How often a cluster's client follows a moved slot before the call fails.
const CLUSTER_RETRIES: u32 = 3;

pub(super) enum Dialer {
    Single(ConnectionInfo),
    Sentinel { sentinels: Vec<ConnectionInfo>, master: String },
    Cluster(Box<ClusterClient>),
}

#[derive(Clone)]
pub(super) enum RedisLink {
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
                "several Redis addresses are given for a single server; give one, or set the mode to cluster or sentinel",
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

    /// Connects and sends a PING. `closed` is called when the connection ends.
    pub async fn dial(
        &self,
        timeout: Duration,
        closed: impl Fn() + Send + Sync + 'static,
    ) -> RedisResult<RedisLink> {
        match self {
            Dialer::Single(info) => connect(info.clone(), timeout, closed).await.map(RedisLink::One),
            Dialer::Sentinel { sentinels, master } => {
                let asked = sentinels.iter().map(|sentinel| Box::pin(ask(sentinel, master, timeout)));
                let (info, _) = select_ok(asked).await?;
                let mut connection = connect(info, timeout, closed).await?;
                // A Sentinel may not know of a failover yet.
                let role: Vec<Value> = cmd("ROLE").query_async(&mut connection).await?;
                match role.first() {
                    Some(Value::BulkString(name)) if name == b"master" => Ok(RedisLink::One(connection)),
                    _ => Err(refused("the server that the Sentinels name is not a master")),
                }
            }
            // The cluster's client replaces lost connections to nodes itself.
            Dialer::Cluster(client) => {
                let mut connection = client.get_async_connection().await?;
                let anywhere = RoutingInfo::SingleNode(SingleNodeRoutingInfo::RandomPrimary);
                connection.route_command(cmd("PING"), anywhere).await?;
                Ok(RedisLink::Cluster(connection))
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
    // No response timeout: every call has its own deadline.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeout))
        .set_response_timeout(None)
        .set_pipeline_buffer_size(QUEUE)
        .set_push_sender(listener);
    let mut connection = Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await?;
    cmd("PING").exec_async(&mut connection).await?;
    Ok(connection)
}

/// Asks one Sentinel for the master's address. The credentials in a Sentinel's address are those of
/// the servers behind it; they are sent to the Sentinel itself only if it requires some.
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

impl RedisLink {
    pub fn is_cluster(&self) -> bool {
        matches!(self, RedisLink::Cluster(_))
    }

    /// Sends commands together and returns each one's own result. One round trip, or one for each
    /// node of a cluster that holds some of the keys.
    pub async fn exchange(&mut self, commands: Vec<Cmd>) -> RedisResult<Vec<RedisResult<Value>>> {
        match self {
            RedisLink::One(connection) if commands.len() == 1 => {
                let mut results = Vec::with_capacity(1);
                for command in &commands {
                    results.push(command.query_async(connection).await);
                }
                Ok(results)
            }
            RedisLink::One(connection) => {
                let mut pipeline = Pipeline::with_capacity(commands.len());
                for command in commands {
                    pipeline.add_command(command);
                }
                pipeline.ignore_errors().query_async(connection).await
            }
            RedisLink::Cluster(connection) => {
                let each = commands.into_iter().map(|command| {
                    let mut connection = connection.clone();
                    async move { command.query_async(&mut connection).await }
                });
                Ok(join_all(each).await)
            }
        }
    }

    /// A slot of each of a cluster's masters; `None` for a single server.
    pub async fn masters(&mut self) -> RedisResult<Vec<Option<u16>>> {
        let RedisLink::Cluster(connection) = self else { return Ok(vec![None]) };
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

    /// Sends a command without a key to the master of a slot.
    pub async fn at(&mut self, slot: Option<u16>, command: Cmd) -> RedisResult<Value> {
        match (self, slot) {
            (RedisLink::Cluster(connection), Some(slot)) => {
                let route = Route::new(slot, SlotAddr::Master);
                let routing = RoutingInfo::SingleNode(SingleNodeRoutingInfo::SpecificNode(route));
                connection.route_command(command, routing).await
            }
            (RedisLink::Cluster(connection), None) => command.query_async(connection).await,
            (RedisLink::One(connection), _) => command.query_async(connection).await,
        }
    }
}
