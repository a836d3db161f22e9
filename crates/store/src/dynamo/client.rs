//! Every call to DynamoDB: its deadline, its retries, and what it cost.
//!
//! The SDK's own retries are off. Transient failures (a throttled table, a conflicting transaction,
//! a lost connection) are retried with jitter until the deadline. A failed condition is an answer,
//! not an error, and returns the current row.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Debug,
    future::Future,
    sync::Arc,
    time::Duration,
};

use aws_sdk_dynamodb::{
    Client,
    config::{BehaviorVersion, Credentials, Region, retry::RetryConfig, timeout::TimeoutConfig},
    error::{ProvideErrorMetadata, SdkError},
    types::{AttributeValue, ConsumedCapacity, KeysAndAttributes, ReturnConsumedCapacity},
};
use parking_lot::Mutex;
use rand::RngExt as _;

use super::{
    item::{Item, ItemKey},
    tables::Table,
};
use crate::{Result, StoreError};

#[derive(Debug, Clone)]
pub struct DynamoConfig {
    /// An endpoint other than AWS's, such as DynamoDB Local.
    pub endpoint: Option<String>,
    /// The region; from the environment if `None`.
    pub region: Option<String>,
    pub table_prefix: String,
    /// The longest that one call may take, retries included.
    pub deadline: Duration,
}

impl Default for DynamoConfig {
    fn default() -> Self {
        DynamoConfig {
            endpoint: None,
            region: None,
            table_prefix: "bluetick-".into(),
            deadline: Duration::from_secs(4),
        }
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1_000);
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(2_000);
/// The limit of one BatchGetItem.
const BATCH_GET_MAX: usize = 100;

/// Why an attempt failed, by what can be done about it.
pub(super) enum CallFailure {
    /// The table's throughput was exceeded; a later attempt may succeed.
    Throttled,
    /// Another transaction held one of the rows.
    Conflict,
    /// The call may or may not have taken effect.
    Unreachable(String),
    /// A retry would fail again.
    Fatal(StoreError),
}

#[derive(Clone)]
pub struct Dynamo {
    inner: Arc<DynamoShared>,
}

struct DynamoShared {
    client: Client,
    config: DynamoConfig,
    units: Mutex<BTreeMap<(&'static str, Units), f64>>,
}

/// The units that a call is charged in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Units {
    Read,
    Write,
}

pub(super) fn names_in(expression: &str) -> impl Iterator<Item = (String, String)> + '_ {
    expression.split('#').skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        (format!("#{}", &rest[..end]), rest[..end].to_owned())
    })
}

impl Dynamo {
    /// Creates a client. It connects on first use, so this fails only for errors that no retry
    /// would fix.
    pub async fn new(config: DynamoConfig) -> Result<Dynamo> {
        let http = aws_smithy_http_client::Builder::new()
            .tls_provider(aws_smithy_http_client::tls::Provider::Rustls(
                aws_smithy_http_client::tls::rustls_provider::CryptoMode::Ring,
            ))
            .build_https();
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .operation_attempt_timeout(ATTEMPT_TIMEOUT.min(config.deadline))
            .build();
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .http_client(http)
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts);
        if let Some(region) = &config.region {
            loader = loader.region(Region::new(region.clone()));
        }
        if let Some(endpoint) = &config.endpoint {
            loader = loader.endpoint_url(endpoint);
            // Other servers want a signature and do not check it, so any keys do where none are
            // given.
            if std::env::var_os("AWS_ACCESS_KEY_ID").is_none() {
                loader = loader.credentials_provider(Credentials::new("local", "local", None, None, "local"));
            }
            if config.region.is_none() && std::env::var_os("AWS_REGION").is_none() {
                loader = loader.region(Region::new("us-east-1"));
            }
        }
        let loaded = loader.load().await;
        if loaded.region().is_none() {
            return Err(StoreError::Unusable(
                "DynamoDB needs a region: set dynamodb.region, or AWS_REGION in the environment".into(),
            ));
        }
        let client = Client::new(&loaded);
        Ok(Dynamo { inner: Arc::new(DynamoShared { client, config, units: Mutex::default() }) })
    }

    pub(super) fn client(&self) -> &Client {
        &self.inner.client
    }

    pub(super) fn name_of(&self, table: Table) -> String {
        format!("{}{}", self.inner.config.table_prefix, table.name())
    }

    /// The units consumed since the start, by table, as DynamoDB reports them.
    pub fn units(&self) -> BTreeMap<(&'static str, Units), f64> {
        self.inner.units.lock().clone()
    }

    pub(super) fn charge<'a>(&self, kind: Units, consumed: impl IntoIterator<Item = &'a ConsumedCapacity>) {
        for consumed in consumed {
            let (Some(name), Some(units)) = (consumed.table_name(), consumed.capacity_units()) else {
                continue;
            };
            let Some(table) = Table::ALL.into_iter().find(|&table| self.name_of(table) == name) else {
                continue;
            };
            *self.inner.units.lock().entry((table.name(), kind)).or_default() += units;
            let kind = match kind {
                Units::Read => "read",
                Units::Write => "write",
            };
            // Counted in halves: an eventually consistent read costs half a unit.
            metrics::counter!("bluetick_dynamodb_half_units_total", "table" => table.name(), "kind" => kind)
                .increment((units * 2.0) as u64);
        }
    }

    /// A failed condition is charged like the write, but its answer does not report it. Every row
    /// with a condition is shorter than a kilobyte, so it costs one unit.
    pub(super) fn charge_refused(&self, table: Table) {
        *self.inner.units.lock().entry((table.name(), Units::Write)).or_default() += 1.0;
    }

    /// Retries until the call succeeds, fails permanently, or the deadline is near.
    pub(super) async fn call<T, F>(&self, what: &'static str, mut attempt: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T, CallFailure>>,
    {
        let deadline = tokio::time::Instant::now() + self.inner.config.deadline;
        let mut pause = FIRST_PAUSE;
        loop {
            let (reason, why) = match attempt().await {
                Ok(done) => return Ok(done),
                Err(CallFailure::Fatal(error)) => {
                    metrics::counter!("bluetick_dynamodb_errors_total", "reason" => "fatal").increment(1);
                    return Err(error);
                }
                Err(CallFailure::Throttled) => ("throttled", "it is throttled".to_owned()),
                Err(CallFailure::Conflict) => ("conflict", "its rows are busy".to_owned()),
                Err(CallFailure::Unreachable(why)) => ("unreachable", why),
            };
            metrics::counter!("bluetick_dynamodb_errors_total", "reason" => reason).increment(1);
            let jittered = pause.mul_f64(rand::rng().random_range(0.3..1.0));
            if tokio::time::Instant::now() + jittered >= deadline {
                tracing::warn!(
                    call = what,
                    reason = why,
                    "dynamodb call failed until its deadline; check the endpoint and the tables' throughput"
                );
                let retry_after = Duration::from_millis(if reason == "throttled" { 2_000 } else { 1_000 });
                return Err(StoreError::Unavailable { what: format!("DynamoDB ({why})"), retry_after });
            }
            tokio::time::sleep(jittered).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// One row, strongly consistent.
    pub(super) async fn get(&self, table: Table, key: ItemKey) -> Result<Option<Item>> {
        self.call("GetItem", async || {
            let request = self.inner.client.get_item().table_name(self.name_of(table));
            let request = request.set_key(Some(key.clone())).consistent_read(true);
            let answer = request.return_consumed_capacity(ReturnConsumedCapacity::Total).send().await;
            let answer = answer.map_err(failure)?;
            self.charge(Units::Read, answer.consumed_capacity());
            Ok(answer.item)
        })
        .await
    }

    /// Rows of a table by their keys, in no order, with concurrent calls.
    pub(super) async fn get_many(&self, table: Table, keys: Vec<ItemKey>) -> Result<Vec<Item>> {
        let batches = keys.chunks(BATCH_GET_MAX).map(|batch| self.get_batch(table, batch.to_vec()));
        Ok(futures_util::future::try_join_all(batches).await?.into_iter().flatten().collect())
    }

    async fn get_batch(&self, table: Table, keys: Vec<ItemKey>) -> Result<Vec<Item>> {
        let (name, found) = (self.name_of(table), Mutex::new(Vec::new()));
        let left = Mutex::new(keys);
        self.call("BatchGetItem", async || {
            let keys = left.lock().clone();
            let wanted = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true).build();
            let wanted = wanted.map_err(|e| CallFailure::Fatal(StoreError::Unusable(e.to_string())))?;
            let request = self.inner.client.batch_get_item().request_items(&name, wanted);
            let answer = request.return_consumed_capacity(ReturnConsumedCapacity::Total).send().await;
            let mut answer = answer.map_err(failure)?;
            self.charge(Units::Read, answer.consumed_capacity());
            let rows = answer.responses.as_mut().and_then(|tables| tables.remove(&name));
            found.lock().extend(rows.unwrap_or_default());
            let unread = answer.unprocessed_keys.as_mut().and_then(|tables| tables.remove(&name));
            match unread {
                Some(more) if !more.keys.is_empty() => {
                    *left.lock() = more.keys;
                    Err(CallFailure::Throttled)
                }
                _ => Ok(()),
            }
        })
        .await?;
        Ok(found.into_inner())
    }

    /// The rows under a partition key, in order of the sort key.
    pub(super) async fn query_all(&self, table: Table, partition: AttributeValue) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        let mut start = None;
        loop {
            let query =
                PartitionQuery { start: start.take(), ..PartitionQuery::of(table, partition.clone()) };
            let (page, next) = self.query(&query).await?;
            items.extend(page);
            match next {
                Some(next) => start = Some(next),
                None => return Ok(items),
            }
        }
    }

    /// One page of a query, and where the next begins.
    pub(super) async fn query(&self, query: &PartitionQuery) -> Result<(Vec<Item>, Option<ItemKey>)> {
        let (partition, sort) = query.table.key_names();
        let mut expression = format!("#{partition} = :partition");
        if let (Some(range), Some(sort)) = (&query.range, sort) {
            expression = format!("{expression} AND #{sort} {} :sort", range.0);
        }
        let names: HashMap<String, String> =
            names_in(&expression).chain(query.only.iter().flat_map(|only| names_in(only))).collect();
        self.call("Query", async || {
            let mut request = self
                .inner
                .client
                .query()
                .table_name(self.name_of(query.table))
                .key_condition_expression(&expression)
                .set_expression_attribute_names(Some(names.clone()))
                .expression_attribute_values(":partition", query.partition.clone())
                .scan_index_forward(!query.backwards)
                .set_limit(query.limit)
                .set_projection_expression(query.only.map(str::to_owned))
                .set_exclusive_start_key(query.start.clone())
                .consistent_read(true)
                .return_consumed_capacity(ReturnConsumedCapacity::Total);
            if let Some((_, bound)) = &query.range {
                request = request.expression_attribute_values(":sort", bound.clone());
            }
            let answer = request.send().await.map_err(failure)?;
            self.charge(Units::Read, answer.consumed_capacity());
            Ok((answer.items.unwrap_or_default(), answer.last_evaluated_key.filter(|key| !key.is_empty())))
        })
        .await
    }

    /// One page of a whole table, and where the next begins. For operators' commands and background
    /// work, never for a user's request.
    pub(super) async fn scan(&self, scan: &Scan) -> Result<(Vec<Item>, Option<ItemKey>)> {
        let (partition, sort) = scan.table.key_names();
        let keys = sort.map_or_else(|| format!("#{partition}"), |sort| format!("#{partition}, #{sort}"));
        let only = scan.keys_only.then_some(keys);
        let names: Option<HashMap<String, String>> = only.as_deref().map(|only| names_in(only).collect());
        self.call("Scan", async || {
            let request = self.inner.client.scan().table_name(self.name_of(scan.table));
            let request = request
                .set_limit(scan.limit)
                .set_segment(scan.segment.map(|(part, _)| part))
                .set_total_segments(scan.segment.map(|(_, of)| of))
                .set_projection_expression(only.clone())
                .set_expression_attribute_names(names.clone())
                .set_exclusive_start_key(scan.start.clone())
                .consistent_read(scan.consistent)
                .return_consumed_capacity(ReturnConsumedCapacity::Total);
            let answer = request.send().await.map_err(failure)?;
            self.charge(Units::Read, answer.consumed_capacity());
            Ok((answer.items.unwrap_or_default(), answer.last_evaluated_key.filter(|key| !key.is_empty())))
        })
        .await
    }
}

/// A read of one partition.
pub(super) struct PartitionQuery {
    pub table: Table,
    pub partition: AttributeValue,
    /// An operator and a bound for the sort key.
    pub range: Option<(&'static str, AttributeValue)>,
    pub backwards: bool,
    pub limit: Option<i32>,
    /// The attributes to read; all if `None`.
    pub only: Option<&'static str>,
    pub start: Option<ItemKey>,
}

impl PartitionQuery {
    pub fn of(table: Table, partition: AttributeValue) -> PartitionQuery {
        PartitionQuery {
            table,
            partition,
            range: None,
            backwards: false,
            limit: None,
            only: None,
            start: None,
        }
    }
}

/// A read of a whole table.
pub(super) struct Scan {
    pub table: Table,
    pub limit: Option<i32>,
    /// One segment of a parallel scan, and how many there are.
    pub segment: Option<(i32, i32)>,
    pub keys_only: bool,
    pub start: Option<ItemKey>,
    /// Strongly consistent, at twice the price.
    pub consistent: bool,
}

impl Scan {
    pub fn of(table: Table) -> Scan {
        Scan { table, limit: None, segment: None, keys_only: false, start: None, consistent: true }
    }
}

/// Classifies an error as transient or permanent.
pub(super) fn failure<E, R>(error: SdkError<E, R>) -> CallFailure
where
    E: ProvideErrorMetadata + Debug,
    R: Debug,
{
    let code = error.code().unwrap_or_default().to_owned();
    let message = error.message().unwrap_or_default().to_owned();
    match (&error, code.as_str()) {
        (SdkError::TimeoutError(_), _) => CallFailure::Unreachable("no answer in time".into()),
        (SdkError::DispatchFailure(failed), _) if failed.is_user() => {
            CallFailure::Fatal(StoreError::Unusable(format!("DynamoDB cannot be called: {failed:?}")))
        }
        (SdkError::DispatchFailure(_), _) => CallFailure::Unreachable("it cannot be reached".into()),
        (SdkError::ResponseError(_), _) => CallFailure::Unreachable("its answer was cut off".into()),
        (
            _,
            "ProvisionedThroughputExceededException"
            | "ThrottlingException"
            | "RequestLimitExceeded"
            | "LimitExceededException",
        ) => CallFailure::Throttled,
        (_, "TransactionConflictException" | "TransactionInProgressException") => CallFailure::Conflict,
        (_, "InternalServerError" | "InternalFailure" | "ServiceUnavailable") => {
            CallFailure::Unreachable(code)
        }
        (_, "ResourceNotFoundException") => CallFailure::Fatal(StoreError::Unavailable {
            what: "DynamoDB (a table is missing: run `bluetick tables create`)".into(),
            retry_after: Duration::from_secs(5),
        }),
        (
            _,
            "AccessDeniedException"
            | "UnrecognizedClientException"
            | "InvalidSignatureException"
            | "MissingAuthenticationTokenException"
            | "ExpiredTokenException",
        ) => CallFailure::Fatal(StoreError::Unavailable {
            what: format!("DynamoDB (it refuses these credentials: {code}, {message})"),
            retry_after: Duration::from_secs(5),
        }),
        (SdkError::ServiceError(service), "") => {
            // No code: the answer is not DynamoDB's, but for example a proxy's.
            CallFailure::Unreachable(format!("an answer that is not understood: {:?}", service.err()))
        }
        (SdkError::ServiceError(_), _) => {
            CallFailure::Fatal(StoreError::Unusable(format!("DynamoDB refused a call: {code}, {message}")))
        }
        _ => CallFailure::Fatal(StoreError::Unusable(format!("DynamoDB cannot be called: {error:?}"))),
    }
}
