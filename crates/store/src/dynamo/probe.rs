//! Tests which of the operations that Bluetick needs an endpoint has. A server with DynamoDB's API
//! may lack some: ScyllaDB Alternator, for example, has no transactions, without which no message
//! can be sent.
//!
//! Each operation is tried as the server uses it, on rows of `sent_ids` that no send can have. They
//! are deleted afterwards, or expire within the hour. The other tables are only read.

use std::fmt;

use super::{
    client::{Dynamo, PartitionQuery, Scan},
    item::{Attributes as _, Item, ItemKey, key, n, s},
    tables::Table,
    write::{Transacted, Write, WriteOutcome},
};
use crate::{Clock as _, Result, SystemClock};

/// An operation that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    pub operation: &'static str,
    /// Why it does not work, and the consequence. `None` if it works.
    pub lacking: Option<String>,
    /// Whether a server can run without it.
    pub optional: bool,
}

impl fmt::Display for Probed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.lacking {
            None => write!(f, "{} works", self.operation),
            Some(why) => write!(f, "{} does not work as needed: {why}", self.operation),
        }
    }
}

/// The operations, and the consequence if one is missing.
const OPERATIONS: [(&str, &str); 9] = [
    ("PutItem", "nothing can be stored"),
    ("UpdateItem", "pending rows, receipts and unread counts cannot be kept"),
    ("DeleteItem", "pending rows cannot be removed, and nobody can be erased"),
    ("GetItem", "nothing can be read"),
    ("BatchGetItem", "inboxes cannot be read"),
    ("Query", "neither messages nor inboxes can be read"),
    ("Scan", "notifications that are owed are not found after a crash"),
    ("TransactWriteItems", "no message can be sent"),
    ("BatchWriteItem", "`bluetick migrate` does not work; a server does not need it"),
];

/// Tries every operation that the server and its commands use, on existing tables.
pub async fn probe_operations(dynamo: &Dynamo) -> Vec<Probed> {
    let probe = Probe::new(dynamo);
    let mut probed = Vec::with_capacity(OPERATIONS.len());
    for (operation, consequence) in OPERATIONS {
        let outcome = match operation {
            "PutItem" => probe.put().await,
            "UpdateItem" => probe.update().await,
            "DeleteItem" => probe.delete().await,
            "GetItem" => probe.get().await,
            "BatchGetItem" => probe.get_many().await,
            "Query" => probe.query().await,
            "Scan" => probe.scan().await,
            "TransactWriteItems" => probe.transact().await,
            _ => probe.batch().await,
        };
        let why = match outcome {
            Ok(None) => None,
            Ok(Some(why)) => Some(why.to_owned()),
            Err(error) => Some(error.to_string()),
        };
        probed.push(Probed {
            operation,
            lacking: why.map(|why| format!("{why}; {consequence}")),
            optional: operation == "BatchWriteItem",
        });
    }
    probe.clean_up().await;
    probed
}

/// What is wrong with an answer, if anything is.
type ProbeResult = Result<Option<&'static str>>;

const NOT_CHECKED: &str = "it does not hold to a condition";
const NOT_RETURNED: &str =
    "it does not return the row that was in the way of a condition (ReturnValuesOnConditionCheckFailure)";

struct Probe<'a> {
    dynamo: &'a Dynamo,
    /// Unique to this run, so that two concurrent runs do not meet.
    name: String,
    expires_at: u64,
}

impl<'a> Probe<'a> {
    fn new(dynamo: &'a Dynamo) -> Probe<'a> {
        // No user id, and so no send, has this character.
        let name = format!("#probe {:016x}", rand::random::<u64>());
        Probe { dynamo, name, expires_at: SystemClock.now_ms() / 1000 + 3600 }
    }

    fn key(&self, row: &str) -> ItemKey {
        key([("sent_id", s(format!("{} {row}", self.name)))])
    }

    fn item(&self, row: &str, seq: u64) -> Item {
        let mut item = self.key(row);
        item.extend(key([("seq", n(seq)), ("expires_at", n(self.expires_at))]));
        item
    }

    /// A row that must not be there yet.
    fn new_row(&self, row: &str, seq: u64) -> Write {
        Write::put(Table::SentIds, self.item(row, seq)).only_if("attribute_not_exists(#sent_id)")
    }

    async fn row(&self, row: &str) -> Result<Option<Item>> {
        self.dynamo.get(Table::SentIds, self.key(row)).await
    }

    async fn put(&self) -> ProbeResult {
        if !matches!(self.dynamo.write(&self.new_row("put", 1)).await?, WriteOutcome::Done(_)) {
            return Ok(Some(NOT_CHECKED));
        }
        Ok(refused_with(&self.dynamo.write(&self.new_row("put", 2)).await?, 1))
    }

    async fn update(&self) -> ProbeResult {
        self.dynamo.write(&Write::put(Table::SentIds, self.item("update", 1))).await?;
        let raise = |to: u64| {
            Write::update(Table::SentIds, self.key("update"), "SET #seq = :seq")
                .only_if("#seq < :seq")
                .value(":seq", n(to))
        };
        match self.dynamo.write(&raise(2)).await? {
            WriteOutcome::Done(now) if now.number("seq") == Some(2) => {}
            WriteOutcome::Done(_) => return Ok(Some("it does not return the new row (ReturnValues)")),
            WriteOutcome::Refused(_) => return Ok(Some(NOT_CHECKED)),
        }
        Ok(refused_with(&self.dynamo.write(&raise(1)).await?, 2))
    }

    async fn delete(&self) -> ProbeResult {
        self.dynamo.write(&Write::put(Table::SentIds, self.item("delete", 1))).await?;
        let delete = |seq: u64| {
            Write::delete(Table::SentIds, self.key("delete")).only_if("#seq = :seq").value(":seq", n(seq))
        };
        if let Some(wrong) = refused_with(&self.dynamo.write(&delete(7)).await?, 1) {
            return Ok(Some(wrong));
        }
        self.dynamo.write(&delete(1)).await?;
        Ok(self.row("delete").await?.map(|_| "the row is still there"))
    }

    async fn get(&self) -> ProbeResult {
        self.dynamo.write(&Write::put(Table::SentIds, self.item("get", 1))).await?;
        match self.row("get").await? {
            Some(found) if found.number("seq") == Some(1) => Ok(None),
            _ => Ok(Some("a consistent read does not return what was written before it")),
        }
    }

    async fn get_many(&self) -> ProbeResult {
        self.dynamo.write(&Write::put(Table::SentIds, self.item("get", 1))).await?;
        let keys = vec![self.key("get"), self.key("absent")];
        let found = self.dynamo.get_many(Table::SentIds, keys).await?;
        Ok((found.len() != 1).then_some("it does not return the rows that are there"))
    }

    async fn query(&self) -> ProbeResult {
        let query = PartitionQuery { limit: Some(1), ..PartitionQuery::of(Table::Users, s(&self.name)) };
        let (found, _) = self.dynamo.query(&query).await?;
        Ok((!found.is_empty()).then_some("it returns rows of another key"))
    }

    async fn scan(&self) -> ProbeResult {
        let scan = Scan { limit: Some(1), ..Scan::of(Table::PushOutbox) };
        self.dynamo.scan(&scan).await.map(|_| None)
    }

    /// As a send does it: rows of two tables, and a row that is in the way of one keeps the other
    /// from being written.
    async fn transact(&self) -> ProbeResult {
        let untouched = key([("conversation_id", s(&self.name)), ("seq", n(1))]);
        let check = || Write::check(Table::Messages, untouched.clone(), "attribute_not_exists(#seq)");
        if !matches!(self.dynamo.transact(&[self.new_row("one", 1), check()]).await?, Transacted::Done) {
            return Ok(Some(NOT_CHECKED));
        }
        let again = [self.new_row("two", 1), self.new_row("one", 2), check()];
        let Transacted::Refused(reasons) = self.dynamo.transact(&again).await? else {
            return Ok(Some(NOT_CHECKED));
        };
        let in_the_way = reasons.get(1).and_then(|reason| reason.as_ref()).and_then(|row| row.as_ref());
        if in_the_way.and_then(|row| row.number("seq")) != Some(1) {
            return Ok(Some(NOT_RETURNED));
        }
        Ok(self.row("two").await?.map(|_| "a part of a transaction that was refused is written"))
    }

    async fn batch(&self) -> ProbeResult {
        self.dynamo.put_batch(vec![(Table::SentIds, self.item("batch", 1))]).await?;
        self.dynamo.delete_batch(Table::SentIds, vec![self.key("batch")]).await?;
        Ok(self.row("batch").await?.map(|_| "the row is still there"))
    }

    async fn clean_up(&self) {
        for row in ["put", "update", "delete", "get", "one", "two", "batch"] {
            let _ = self.dynamo.write(&Write::delete(Table::SentIds, self.key(row))).await;
        }
    }
}

/// What is wrong with a write that must be refused by a row with this number.
fn refused_with(written: &WriteOutcome, seq: u64) -> Option<&'static str> {
    match written {
        WriteOutcome::Done(_) => Some(NOT_CHECKED),
        WriteOutcome::Refused(Some(row)) if row.number("seq") == Some(seq) => None,
        WriteOutcome::Refused(_) => Some(NOT_RETURNED),
    }
}
