//! Conditional writes, transactions, and batches for a migration. A failed condition is an answer
//! and returns the current row.

use std::collections::HashMap;

use aws_sdk_dynamodb::{
    operation::{
        delete_item::DeleteItemError,
        put_item::PutItemError,
        transact_write_items::TransactWriteItemsError,
        update_item::{UpdateItemError, UpdateItemOutput},
    },
    types::{
        AttributeValue, ConditionCheck, Delete, DeleteRequest, Put, PutRequest, ReturnConsumedCapacity,
        ReturnValue, ReturnValuesOnConditionCheckFailure as OnRefusal, TransactWriteItem, Update,
        WriteRequest,
    },
};
use parking_lot::Mutex;

use super::{
    client::{CallFailure, Dynamo, Units, failure, names_in},
    item::{Item, ItemKey},
    tables::Table,
};
use crate::{Result, StoreError};

/// A write of one row under a condition. In expressions `#name` stands for the attribute `name`.
#[derive(Clone)]
pub(super) struct Write {
    pub table: Table,
    pub key: ItemKey,
    pub what: WriteKind,
    pub condition: Option<String>,
    pub values: HashMap<String, AttributeValue>,
}

#[derive(Clone)]
pub(super) enum WriteKind {
    Put(Item),
    Update(String),
    Delete,
    /// Nothing is written; the condition must hold for the rest of the transaction.
    Check,
}

/// The outcome of a conditional write.
#[derive(Debug)]
pub(super) enum WriteOutcome {
    /// The row after the write; empty after a delete.
    Done(Item),
    /// The condition failed. The current row, if there is one.
    Refused(Option<Item>),
}

/// The outcome of a transaction.
pub(super) enum Transacted {
    Done,
    /// For each write: `None` if its condition held, or the current row that failed it.
    Refused(Vec<Option<Option<Item>>>),
}

impl Write {
    pub fn put(table: Table, item: Item) -> Write {
        Write {
            table,
            key: ItemKey::new(),
            what: WriteKind::Put(item),
            condition: None,
            values: HashMap::new(),
        }
    }

    pub fn update(table: Table, key: ItemKey, expression: impl Into<String>) -> Write {
        Write {
            table,
            key,
            what: WriteKind::Update(expression.into()),
            condition: None,
            values: HashMap::new(),
        }
    }

    pub fn delete(table: Table, key: ItemKey) -> Write {
        Write { table, key, what: WriteKind::Delete, condition: None, values: HashMap::new() }
    }

    /// A condition on a row that the transaction does not change.
    pub fn check(table: Table, key: ItemKey, condition: impl Into<String>) -> Write {
        let check = Write { table, key, what: WriteKind::Check, condition: None, values: HashMap::new() };
        check.only_if(condition)
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
            WriteKind::Update(expression) => Some(expression),
            WriteKind::Put(_) | WriteKind::Delete | WriteKind::Check => None,
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

/// Sends a conditional call, charges it, and turns a failed condition into an answer. A macro,
/// because the SDK's three conditional calls share no type.
macro_rules! conditional {
    ($dynamo:ident, $write:ident, $request:expr, $refused:path, $row:expr) => {{
        let answer = $request
            .table_name($dynamo.name_of($write.table))
            .set_condition_expression($write.condition.clone())
            .set_expression_attribute_names($write.names_or_none())
            .set_expression_attribute_values($write.values_or_none())
            .return_values_on_condition_check_failure(OnRefusal::AllOld)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await;
        match answer {
            Ok(answer) => {
                $dynamo.charge(Units::Write, answer.consumed_capacity());
                Ok(WriteOutcome::Done($row(answer)))
            }
            Err(error) => match error.as_service_error() {
                Some($refused(refused)) => {
                    $dynamo.charge_refused($write.table);
                    Ok(WriteOutcome::Refused(refused.item.clone()))
                }
                _ => Err(failure(error)),
            },
        }
    }};
}

impl Dynamo {
    /// One conditional write. After a lost answer, the retry's condition may fail because of this
    /// call's own write: a caller for whom that matters checks the returned row.
    pub(super) async fn write(&self, write: &Write) -> Result<WriteOutcome> {
        use {
            DeleteItemError::ConditionalCheckFailedException as DeleteRefused,
            PutItemError::ConditionalCheckFailedException as PutRefused,
            UpdateItemError::ConditionalCheckFailedException as UpdateRefused,
        };
        let client = self.client();
        match &write.what {
            WriteKind::Put(item) => {
                self.call("PutItem", async || {
                    let request = client.put_item().set_item(Some(item.clone()));
                    conditional!(self, write, request, PutRefused, |_| item.clone())
                })
                .await
            }
            WriteKind::Update(update) => {
                self.call("UpdateItem", async || {
                    let request = client.update_item().set_key(Some(write.key.clone()));
                    let request = request.update_expression(update).return_values(ReturnValue::AllNew);
                    conditional!(self, write, request, UpdateRefused, |answer: UpdateItemOutput| {
                        answer.attributes.unwrap_or_default()
                    })
                })
                .await
            }
            WriteKind::Delete => {
                self.call("DeleteItem", async || {
                    let request = client.delete_item().set_key(Some(write.key.clone()));
                    conditional!(self, write, request, DeleteRefused, |_| Item::new())
                })
                .await
            }
            // A check alone would guarantee nothing about the time after it.
            WriteKind::Check => Err(StoreError::Unsupported("a check outside of a transaction".into())),
        }
    }

    /// Puts rows unconditionally: at most as many as one call takes, all with different keys.
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

    pub(super) async fn delete_batch(&self, table: Table, keys: Vec<ItemKey>) -> Result<()> {
        let mut writes = Vec::with_capacity(keys.len());
        for key in keys {
            let delete = DeleteRequest::builder().set_key(Some(key)).build();
            let delete = delete.map_err(|e| StoreError::Unusable(e.to_string()))?;
            writes.push(WriteRequest::builder().delete_request(delete).build());
        }
        self.write_batch(HashMap::from([(self.name_of(table), writes)])).await
    }

    /// Retries unprocessed rows like a throttled call.
    async fn write_batch(&self, writes: HashMap<String, Vec<WriteRequest>>) -> Result<()> {
        let left = Mutex::new(writes);
        self.call("BatchWriteItem", async || {
            let writes = left.lock().clone();
            let request = self.client().batch_write_item().set_request_items(Some(writes));
            let answer = request.return_consumed_capacity(ReturnConsumedCapacity::Total).send().await;
            let answer = answer.map_err(failure)?;
            self.charge(Units::Write, answer.consumed_capacity());
            match answer.unprocessed_items.filter(|unprocessed| !unprocessed.is_empty()) {
                Some(unprocessed) => {
                    *left.lock() = unprocessed;
                    Err(CallFailure::Throttled)
                }
                None => Ok(()),
            }
        })
        .await
    }

    /// All of the writes, or none.
    pub(super) async fn transact(&self, writes: &[Write]) -> Result<Transacted> {
        let items: Vec<TransactWriteItem> = writes.iter().map(|write| self.transact_item(write)).collect();
        self.call("TransactWriteItems", async || {
            let request = self.client().transact_write_items().set_transact_items(Some(items.clone()));
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
                    Some("TransactionConflict") => return Err(CallFailure::Conflict),
                    Some("ThrottlingError" | "ProvisionedThroughputExceeded") => {
                        return Err(CallFailure::Throttled);
                    }
                    Some(other) => {
                        let why = reason.message().unwrap_or("no reason given");
                        let error = format!("DynamoDB refused a transaction: {other}, {why}");
                        return Err(CallFailure::Fatal(StoreError::Unusable(error)));
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
            WriteKind::Put(put) => item.put(
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
            WriteKind::Update(update) => item.update(
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
            WriteKind::Delete => item.delete(
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
            WriteKind::Check => item.condition_check(
                ConditionCheck::builder()
                    .table_name(table)
                    .set_key(Some(write.key.clone()))
                    .set_condition_expression(write.condition.clone())
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(values)
                    .return_values_on_condition_check_failure(OnRefusal::AllOld)
                    .build()
                    .expect("a table, a key and a condition are given"),
            ),
        }
        .build()
    }
}
