//! The one way to DynamoDB: every call goes through here, with its deadline, its retries and its bill.
//!
//! The SDK's own retries are off. What may pass by itself (a throttled table, a transaction in the way, a lost
//! connection) is tried again with jitter until the deadline; a condition that failed is an answer, not an error, and
//! comes back with the row that was in the way.

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
    operation::{
        delete_item::DeleteItemError, put_item::PutItemError, transact_write_items::TransactWriteItemsError,
        update_item::UpdateItemError,
    },
    types::{
        AttributeValue, ConsumedCapacity, Delete, DeleteRequest, KeysAndAttributes, Put, PutRequest,
        ReturnConsumedCapacity, ReturnValue, ReturnValuesOnConditionCheckFailure as OnRefusal,
        TransactWriteItem, Update, WriteRequest,
    },
};
use parking_lot::Mutex;
use rand::RngExt as _;

use super::{
    item::{Item, Key},
    tables::Table,
};
use crate::{Result, StoreError};

#[derive(Debug, Clone)]
pub struct DynamoConfig {
    /// Another address than AWS's own: DynamoDB Local, ScyllaDB Alternator.
    pub endpoint: Option<String>,
    /// Where the tables are; from the environment if it is not said.
    pub region: Option<String>,
    pub table_prefix: String,
    /// How long one call may take, all its tries together.
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
/// What one BatchGetItem takes.
const BATCH_GET_MAX: usize = 100;

/// Why a try did not succeed, by what can be done about it.
pub(super) enum Failure {
    /// More was asked of a table than it gives; it will give again soon.
    Throttled,
    /// Another transaction held one of the rows.
    Conflict,
    /// It may or may not have happened.
    Unreachable(String),
    /// Trying again would change nothing.
    Fatal(StoreError),
}

#[derive(Clone)]
pub struct Dynamo {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    config: DynamoConfig,
    units: Mutex<BTreeMap<(&'static str, Units), f64>>,
}

/// What a call is charged in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Units {
    Read,
    Write,
}

/// A row that is written if a condition holds. In expressions `#name` stands for the attribute `name`.
#[derive(Clone)]
pub(super) struct Write {
    pub table: Table,
    pub key: Key,
    pub what: What,
    pub condition: Option<String>,
    pub values: HashMap<String, AttributeValue>,
}

#[derive(Clone)]
pub(super) enum What {
    Put(Item),
    Update(String),
    Delete,
}

/// What became of a conditional write.
#[derive(Debug)]
pub(super) enum Written {
    /// The row as it is now; nothing of one that was deleted.
    Done(Item),
    /// The condition did not hold. The row that is there, if there is one.
    Refused(Option<Item>),
}

/// What became of a transaction.
pub(super) enum Transacted {
    Done,
    /// For each write: nothing if its condition held, or the row that was in the way.
    Refused(Vec<Option<Option<Item>>>),
}

impl Write {
    pub fn put(table: Table, item: Item) -> Write {
        Write { table, key: Key::new(), what: What::Put(item), condition: None, values: HashMap::new() }
    }

    pub fn update(table: Table, key: Key, expression: impl Into<String>) -> Write {
        Write { table, key, what: What::Update(expression.into()), condition: None, values: HashMap::new() }
    }

    pub fn delete(table: Table, key: Key) -> Write {
        Write { table, key, what: What::Delete, condition: None, values: HashMap::new() }
    }

    pub fn only_if(mut self, condition: impl Into<String>) -> Write {
        self.condition = Some(condition.into());
        self
    }

    pub fn value(mut self, name: &str, value: AttributeValue) -> Write {
        self.values.insert(name.to_owned(), value);
        self
    }

    /// The attributes that the expressions name.
    fn names(&self) -> HashMap<String, String> {
        let mut names = HashMap::new();
        let update = match &self.what {
            What::Update(expression) => Some(expression),
            What::Put(_) | What::Delete => None,
        };
        for expression in update.into_iter().chain(&self.condition) {
            names.extend(names_in(expression));
        }
        names
    }

    fn names_or_none(&self) -> Option<HashMap<String, String>> {
        Some(self.names()).filter(|names| !names.is_empty())
    }

    fn values_or_none(&self) -> Option<HashMap<String, AttributeValue>> {
        Some(self.values.clone()).filter(|values| !values.is_empty())
    }
}

pub(super) fn names_in(expression: &str) -> impl Iterator<Item = (String, String)> + '_ {
    expression.split('#').skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        (format!("#{}", &rest[..end]), rest[..end].to_owned())
    })
}

impl Dynamo {
    /// A client. It connects when it is first used, so this fails only for what no retry would mend.
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
            // An own server wants a signature and does not check it, unless somebody gave real keys.
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
        Ok(Dynamo { inner: Arc::new(Inner { client, config, units: Mutex::default() }) })
    }

    pub(super) fn client(&self) -> &Client {
        &self.inner.client
    }

    pub(super) fn name_of(&self, table: Table) -> String {
        format!("{}{}", self.inner.config.table_prefix, table.name())
    }

    /// What was consumed since the start, by table: DynamoDB's own figures.
    pub fn units(&self) -> BTreeMap<(&'static str, Units), f64> {
        self.inner.units.lock().clone()
    }

    fn charge<'a>(&self, kind: Units, consumed: impl IntoIterator<Item = &'a ConsumedCapacity>) {
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
            // Halves are counted: a read that need not be consistent costs one.
            metrics::counter!("bluetick_dynamodb_half_units_total", "table" => table.name(), "kind" => kind)
                .increment((units * 2.0) as u64);
        }
    }

    /// Tries until it succeeds, fails for good, or the deadline is near.
    pub(super) async fn call<T, F>(&self, what: &'static str, mut attempt: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let deadline = tokio::time::Instant::now() + self.inner.config.deadline;
        let mut pause = FIRST_PAUSE;
        loop {
            let (reason, why) = match attempt().await {
                Ok(done) => return Ok(done),
                Err(Failure::Fatal(error)) => {
                    metrics::counter!("bluetick_dynamodb_errors_total", "reason" => "fatal").increment(1);
                    return Err(error);
                }
                Err(Failure::Throttled) => ("throttled", "it is throttled".to_owned()),
                Err(Failure::Conflict) => ("conflict", "its rows are busy".to_owned()),
                Err(Failure::Unreachable(why)) => ("unreachable", why),
            };
            metrics::counter!("bluetick_dynamodb_errors_total", "reason" => reason).increment(1);
            let jittered = pause.mul_f64(rand::rng().random_range(0.3..1.0));
            if tokio::time::Instant::now() + jittered >= deadline {
                tracing::warn!(call = what, reason = why, "DynamoDB did not answer in time");
                let retry_after = Duration::from_millis(if reason == "throttled" { 2_000 } else { 1_000 });
                return Err(StoreError::Unavailable { what: format!("DynamoDB ({why})"), retry_after });
            }
            tokio::time::sleep(jittered).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// One row, as it is after every write that was answered.
    pub(super) async fn get(&self, table: Table, key: Key) -> Result<Option<Item>> {
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

    /// Rows of a table by their keys, in no order, as many calls side by side as it takes.
    pub(super) async fn get_many(&self, table: Table, keys: Vec<Key>) -> Result<Vec<Item>> {
        let batches = keys.chunks(BATCH_GET_MAX).map(|batch| self.get_batch(table, batch.to_vec()));
        Ok(futures_util::future::try_join_all(batches).await?.into_iter().flatten().collect())
    }

    async fn get_batch(&self, table: Table, keys: Vec<Key>) -> Result<Vec<Item>> {
        let (name, found) = (self.name_of(table), Mutex::new(Vec::new()));
        let left = Mutex::new(keys);
        self.call("BatchGetItem", async || {
            let keys = left.lock().clone();
            let wanted = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true).build();
            let wanted = wanted.map_err(|e| Failure::Fatal(StoreError::Unusable(e.to_string())))?;
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
                    Err(Failure::Throttled)
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
            let query = Query { start: start.take(), ..Query::of(table, partition.clone()) };
            let (page, next) = self.query(&query).await?;
            items.extend(page);
            match next {
                Some(next) => start = Some(next),
                None => return Ok(items),
            }
        }
    }

    /// One page of a query, and where the next begins.
    pub(super) async fn query(&self, query: &Query) -> Result<(Vec<Item>, Option<Key>)> {
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

    /// One page of a whole table, and where the next begins: for an operator's command, never for a user.
    pub(super) async fn scan(&self, scan: &Scan) -> Result<(Vec<Item>, Option<Key>)> {
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
                .consistent_read(true)
                .return_consumed_capacity(ReturnConsumedCapacity::Total);
            let answer = request.send().await.map_err(failure)?;
            self.charge(Units::Read, answer.consumed_capacity());
            Ok((answer.items.unwrap_or_default(), answer.last_evaluated_key.filter(|key| !key.is_empty())))
        })
        .await
    }

    /// Puts rows in place of whatever is there, at most as many as one call takes, none of them twice.
    pub(super) async fn put_batch(&self, rows: Vec<(Table, Item)>) -> Result<()> {
        let mut writes: HashMap<String, Vec<WriteRequest>> = HashMap::new();
        for (table, item) in rows {
            let put = PutRequest::builder().set_item(Some(item)).build();
            let put = put.map_err(|e| StoreError::Unusable(e.to_string()))?;
            let write = WriteRequest::builder().put_request(put).build();
            writes.entry(self.name_of(table)).or_default().push(write);
        }
        self.write_batch(writes).await
    }

    pub(super) async fn delete_batch(&self, table: Table, keys: Vec<Key>) -> Result<()> {
        let mut writes = Vec::with_capacity(keys.len());
        for key in keys {
            let delete = DeleteRequest::builder().set_key(Some(key)).build();
            let delete = delete.map_err(|e| StoreError::Unusable(e.to_string()))?;
            writes.push(WriteRequest::builder().delete_request(delete).build());
        }
        self.write_batch(HashMap::from([(self.name_of(table), writes)])).await
    }

    /// What was not processed is tried again like a call that was throttled.
    async fn write_batch(&self, writes: HashMap<String, Vec<WriteRequest>>) -> Result<()> {
        let left = Mutex::new(writes);
        self.call("BatchWriteItem", async || {
            let writes = left.lock().clone();
            let request = self.inner.client.batch_write_item().set_request_items(Some(writes));
            let answer = request.return_consumed_capacity(ReturnConsumedCapacity::Total).send().await;
            let answer = answer.map_err(failure)?;
            self.charge(Units::Write, answer.consumed_capacity());
            match answer.unprocessed_items.filter(|unprocessed| !unprocessed.is_empty()) {
                Some(unprocessed) => {
                    *left.lock() = unprocessed;
                    Err(Failure::Throttled)
                }
                None => Ok(()),
            }
        })
        .await
    }

    /// One conditional write. After an answer that got lost the condition may fail for what this very call wrote: who
    /// minds looks at the row that comes back.
    pub(super) async fn write(&self, write: &Write) -> Result<Written> {
        match &write.what {
            What::Put(item) => self.call("PutItem", || self.put_once(write, item)).await,
            What::Update(update) => self.call("UpdateItem", || self.update_once(write, update)).await,
            What::Delete => self.call("DeleteItem", || self.delete_once(write)).await,
        }
    }

    async fn put_once(&self, write: &Write, item: &Item) -> Result<Written, Failure> {
        let request = self.inner.client.put_item().table_name(self.name_of(write.table));
        let answer = request
            .set_item(Some(item.clone()))
            .set_condition_expression(write.condition.clone())
            .set_expression_attribute_names(write.names_or_none())
            .set_expression_attribute_values(write.values_or_none())
            .return_values_on_condition_check_failure(OnRefusal::AllOld)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await;
        match answer {
            Ok(answer) => {
                self.charge(Units::Write, answer.consumed_capacity());
                Ok(Written::Done(item.clone()))
            }
            Err(error) => match error.as_service_error() {
                Some(PutItemError::ConditionalCheckFailedException(refused)) => {
                    self.charge_refused(write.table);
                    Ok(Written::Refused(refused.item.clone()))
                }
                _ => Err(failure(error)),
            },
        }
    }

    async fn update_once(&self, write: &Write, update: &str) -> Result<Written, Failure> {
        let request = self.inner.client.update_item().table_name(self.name_of(write.table));
        let answer = request
            .set_key(Some(write.key.clone()))
            .update_expression(update)
            .set_condition_expression(write.condition.clone())
            .set_expression_attribute_names(write.names_or_none())
            .set_expression_attribute_values(write.values_or_none())
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(OnRefusal::AllOld)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await;
        match answer {
            Ok(answer) => {
                self.charge(Units::Write, answer.consumed_capacity());
                Ok(Written::Done(answer.attributes.unwrap_or_default()))
            }
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(refused)) => {
                    self.charge_refused(write.table);
                    Ok(Written::Refused(refused.item.clone()))
                }
                _ => Err(failure(error)),
            },
        }
    }

    async fn delete_once(&self, write: &Write) -> Result<Written, Failure> {
        let request = self.inner.client.delete_item().table_name(self.name_of(write.table));
        let answer = request
            .set_key(Some(write.key.clone()))
            .set_condition_expression(write.condition.clone())
            .set_expression_attribute_names(write.names_or_none())
            .set_expression_attribute_values(write.values_or_none())
            .return_values_on_condition_check_failure(OnRefusal::AllOld)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await;
        match answer {
            Ok(answer) => {
                self.charge(Units::Write, answer.consumed_capacity());
                Ok(Written::Done(Item::new()))
            }
            Err(error) => match error.as_service_error() {
                Some(DeleteItemError::ConditionalCheckFailedException(refused)) => {
                    self.charge_refused(write.table);
                    Ok(Written::Refused(refused.item.clone()))
                }
                _ => Err(failure(error)),
            },
        }
    }

    /// A condition that fails is charged like the write, and its answer does not say so. Every row that a condition
    /// stands on is shorter than a kilobyte.
    fn charge_refused(&self, table: Table) {
        *self.inner.units.lock().entry((table.name(), Units::Write)).or_default() += 1.0;
    }

    /// All of the writes, or none.
    pub(super) async fn transact(&self, writes: &[Write]) -> Result<Transacted> {
        let items: Vec<TransactWriteItem> = writes.iter().map(|write| self.transact_item(write)).collect();
        self.call("TransactWriteItems", async || {
            let request = self.inner.client.transact_write_items().set_transact_items(Some(items.clone()));
            let answer = request.return_consumed_capacity(ReturnConsumedCapacity::Total).send().await;
            let error = match answer {
                Ok(answer) => {
                    self.charge(Units::Write, answer.consumed_capacity());
                    return Ok(Transacted::Done);
                }
                Err(error) => error,
            };
            let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) =
                error.as_service_error()
            else {
                return Err(failure(error));
            };
            let mut refused = Vec::with_capacity(writes.len());
            for reason in cancelled.cancellation_reasons() {
                match reason.code() {
                    None | Some("None") => refused.push(None),
                    Some("ConditionalCheckFailed") => refused.push(Some(reason.item.clone())),
                    Some("TransactionConflict") => return Err(Failure::Conflict),
                    Some("ThrottlingError" | "ProvisionedThroughputExceeded") => {
                        return Err(Failure::Throttled);
                    }
                    Some(other) => {
                        let why = reason.message().unwrap_or("no reason given");
                        let error = format!("DynamoDB refused a transaction: {other}, {why}");
                        return Err(Failure::Fatal(StoreError::Unusable(error)));
                    }
                }
            }
            Ok(Transacted::Refused(refused))
        })
        .await
    }

    fn transact_item(&self, write: &Write) -> TransactWriteItem {
        let (table, names, values) =
            (self.name_of(write.table), write.names_or_none(), write.values_or_none());
        let item = TransactWriteItem::builder();
        match &write.what {
            What::Put(put) => item.put(
                Put::builder()
                    .table_name(table)
                    .set_item(Some(put.clone()))
                    .set_condition_expression(write.condition.clone())
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(values)
                    .return_values_on_condition_check_failure(OnRefusal::AllOld)
                    .build()
                    .expect("a table and an item are given"),
            ),
            What::Update(update) => item.update(
                Update::builder()
                    .table_name(table)
                    .set_key(Some(write.key.clone()))
                    .update_expression(update)
                    .set_condition_expression(write.condition.clone())
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(values)
                    .return_values_on_condition_check_failure(OnRefusal::AllOld)
                    .build()
                    .expect("a table, a key and an expression are given"),
            ),
            What::Delete => item.delete(
                Delete::builder()
                    .table_name(table)
                    .set_key(Some(write.key.clone()))
                    .set_condition_expression(write.condition.clone())
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(values)
                    .return_values_on_condition_check_failure(OnRefusal::AllOld)
                    .build()
                    .expect("a table and a key are given"),
            ),
        }
        .build()
    }
}

/// What to read of one partition.
pub(super) struct Query {
    pub table: Table,
    pub partition: AttributeValue,
    /// An operator and a bound for the sort key.
    pub range: Option<(&'static str, AttributeValue)>,
    pub backwards: bool,
    pub limit: Option<i32>,
    /// The attributes wanted, if not all of them.
    pub only: Option<&'static str>,
    pub start: Option<Key>,
}

impl Query {
    pub fn of(table: Table, partition: AttributeValue) -> Query {
        Query { table, partition, range: None, backwards: false, limit: None, only: None, start: None }
    }
}

/// What to read of a whole table.
pub(super) struct Scan {
    pub table: Table,
    pub limit: Option<i32>,
    /// One of so many parts that are read side by side.
    pub segment: Option<(i32, i32)>,
    pub keys_only: bool,
    pub start: Option<Key>,
}

impl Scan {
    pub fn of(table: Table) -> Scan {
        Scan { table, limit: None, segment: None, keys_only: false, start: None }
    }
}

/// Tells apart what may pass by itself and what will not.
pub(super) fn failure<E, R>(error: SdkError<E, R>) -> Failure
where
    E: ProvideErrorMetadata + Debug,
    R: Debug,
{
    let code = error.code().unwrap_or_default().to_owned();
    let message = error.message().unwrap_or_default().to_owned();
    match (&error, code.as_str()) {
        (SdkError::TimeoutError(_), _) => Failure::Unreachable("no answer in time".into()),
        (SdkError::DispatchFailure(failed), _) if failed.is_user() => {
            Failure::Fatal(StoreError::Unusable(format!("DynamoDB cannot be called: {failed:?}")))
        }
        (SdkError::DispatchFailure(_), _) => Failure::Unreachable("it cannot be reached".into()),
        (SdkError::ResponseError(_), _) => Failure::Unreachable("its answer was cut off".into()),
        (
            _,
            "ProvisionedThroughputExceededException"
            | "ThrottlingException"
            | "RequestLimitExceeded"
            | "LimitExceededException",
        ) => Failure::Throttled,
        (_, "TransactionConflictException" | "TransactionInProgressException") => Failure::Conflict,
        (_, "InternalServerError" | "InternalFailure" | "ServiceUnavailable") => Failure::Unreachable(code),
        (_, "ResourceNotFoundException") => Failure::Fatal(StoreError::Unavailable {
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
        ) => Failure::Fatal(StoreError::Unavailable {
            what: format!("DynamoDB (it refuses these credentials: {code}, {message})"),
            retry_after: Duration::from_secs(5),
        }),
        (SdkError::ServiceError(service), "") => {
            // No code: an answer that did not come from DynamoDB itself, such as a proxy's.
            Failure::Unreachable(format!("an answer that is not understood: {:?}", service.err()))
        }
        (SdkError::ServiceError(_), _) => {
            Failure::Fatal(StoreError::Unusable(format!("DynamoDB refused a call: {code}, {message}")))
        }
        _ => Failure::Fatal(StoreError::Unusable(format!("DynamoDB cannot be called: {error:?}"))),
    }
}
