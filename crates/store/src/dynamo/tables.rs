//! The tables: their names and keys, how they are created, and how existing ones are checked.

use std::{fmt, time::Duration};

use aws_sdk_dynamodb::{
    error::ProvideErrorMetadata,
    types::{
        AttributeDefinition, BillingMode, ContinuousBackupsStatus, KeySchemaElement, KeyType,
        PointInTimeRecoverySpecification, PointInTimeRecoveryStatus, ProvisionedThroughput,
        ScalarAttributeType, TableDescription, TableStatus, Tag, TimeToLiveSpecification, TimeToLiveStatus,
    },
};

use super::client::{CallFailure, Dynamo, failure};
use crate::{Result, StoreError};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    Messages,
    PendingDeliveries,
    MessageStatus,
    Conversations,
    /// Idempotency records: which `client_msg_id` became which message (R9).
    SentIds,
    /// Profiles, blocks, mutes, revocations, stale inbox orders, and the progress of a migration.
    Users,
    /// Push registrations, and the owner of each token.
    Devices,
    /// The notifications that are still to be sent.
    PushOutbox,
    /// Who mints ids under which node number.
    NodeLeases,
    /// The objects of the cold tier.
    ColdRuns,
    /// When conversations are next checked for old messages, and the leases of those who check.
    ColdDue,
    /// Announced attachments, the conversations that refer to them, and the unclaimed ones.
    Attachments,
}

use ScalarAttributeType::{N, S};

impl Table {
    pub const ALL: [Table; 12] = [
        Table::Messages,
        Table::PendingDeliveries,
        Table::MessageStatus,
        Table::Conversations,
        Table::SentIds,
        Table::Users,
        Table::Devices,
        Table::PushOutbox,
        Table::NodeLeases,
        Table::ColdRuns,
        Table::ColdDue,
        Table::Attachments,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Table::Messages => "messages",
            Table::PendingDeliveries => "pending_deliveries",
            Table::MessageStatus => "message_status",
            Table::Conversations => "conversations",
            Table::SentIds => "sent_ids",
            Table::Users => "users",
            Table::Devices => "devices",
            Table::PushOutbox => "push_outbox",
            Table::NodeLeases => "node_leases",
            Table::ColdRuns => "cold_runs",
            Table::ColdDue => "cold_due",
            Table::Attachments => "attachments",
        }
    }

    /// Partition key and sort key.
    pub(super) fn key_names(self) -> (&'static str, Option<&'static str>) {
        match self {
            Table::Messages => ("conversation_id", Some("seq")),
            Table::PendingDeliveries => ("receiver_id", Some("conversation_id")),
            Table::MessageStatus | Table::Conversations | Table::PushOutbox => {
                ("user_id", Some("conversation_id"))
            }
            Table::SentIds => ("sent_id", None),
            Table::Users => ("user_id", Some("item")),
            Table::Devices => ("user_id", Some("device")),
            Table::NodeLeases => ("node", None),
            Table::ColdRuns => ("conversation_id", Some("last_seq")),
            Table::ColdDue => ("shard", Some("due")),
            Table::Attachments => ("s3_ref", Some("item")),
        }
    }

    fn key_types(self) -> Vec<(&'static str, KeyType, ScalarAttributeType)> {
        let (partition, sort) = self.key_names();
        let type_of = |name| if matches!(name, "seq" | "last_seq" | "node") { N } else { S };
        let mut keys = vec![(partition, KeyType::Hash, type_of(partition))];
        keys.extend(sort.map(|sort| (sort, KeyType::Range, type_of(sort))));
        keys
    }

    /// The TTL attribute, if the table has one.
    fn ttl(self) -> Option<&'static str> {
        (self == Table::SentIds).then_some("expires_at")
    }

    /// Whether the table holds data that cannot be rebuilt.
    fn is_precious(self) -> bool {
        !matches!(self, Table::SentIds | Table::PushOutbox | Table::NodeLeases | Table::ColdDue)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Billing {
    OnDemand,
    Provisioned { read_units: u32, write_units: u32 },
}

#[derive(Debug, Clone)]
pub struct CreateOptions {
    pub billing: Billing,
    pub tags: Vec<(String, String)>,
    pub point_in_time_recovery: bool,
    pub ttl: bool,
    pub deletion_protection: bool,
}

impl Default for CreateOptions {
    fn default() -> Self {
        CreateOptions {
            billing: Billing::OnDemand,
            tags: Vec::new(),
            point_in_time_recovery: true,
            ttl: true,
            deletion_protection: true,
        }
    }
}

/// One result of a check of a table or of the endpoint.
#[derive(Debug, Clone)]
pub struct Finding {
    pub table: String,
    pub text: String,
    pub wrong: bool,
}

impl Finding {
    /// In place of a table, where the endpoint itself is meant.
    pub const RECOVERY: &str = "point-in-time recovery";
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.table, self.text)
    }
}

const READY_WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Makes the tables that are missing and switches on what is to be on. Tables that are there are
/// left as they are, but for their TTL and recovery.
pub async fn create_tables(dynamo: &Dynamo, options: &CreateOptions) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for table in Table::ALL {
        let name = dynamo.name_of(table);
        let made = create(dynamo, table, options).await?;
        let text = if made { "made" } else { "was there already" };
        findings.push(Finding { table: name, text: text.into(), wrong: false });
    }
    let mut recovery = RecoveryNotes::default();
    for table in Table::ALL {
        wait_until_active(dynamo, table).await?;
        if let Some(attribute) = table.ttl().filter(|_| options.ttl) {
            switch_on_ttl(dynamo, table, attribute).await?;
        }
        if options.point_in_time_recovery && table.is_precious() && !recovery.is_unsupported {
            match switch_on_recovery(dynamo, table).await? {
                Ok(()) => {}
                Err(NoRecovery::Unsupported) => recovery.is_unsupported = true,
                Err(NoRecovery::Refused(why)) => recovery.refused(dynamo.name_of(table), why),
            }
        }
    }
    findings.extend(recovery.findings("could not be switched on"));
    Ok(findings)
}

/// Why a table has no point-in-time recovery, or does not say.
enum NoRecovery {
    /// The endpoint does not know the operation, as DynamoDB Local and Alternator do not.
    Unsupported,
    Refused(String),
}

impl NoRecovery {
    fn from_error(error: &impl ProvideErrorMetadata) -> NoRecovery {
        match error.code() {
            Some("UnknownOperationException") => NoRecovery::Unsupported,
            code => NoRecovery::Refused(error.message().or(code).unwrap_or("no reason was given").to_owned()),
        }
    }
}

/// What is to be told of recovery: once for the endpoint, and once for each reason, however many
/// tables there are.
#[derive(Default)]
struct RecoveryNotes {
    is_unsupported: bool,
    refused: Vec<(String, Vec<String>)>,
}

impl RecoveryNotes {
    fn refused(&mut self, table: String, why: String) {
        match self.refused.iter_mut().find(|(known, _)| *known == why) {
            Some((_, tables)) => tables.push(table),
            None => self.refused.push((why, vec![table])),
        }
    }

    fn findings(self, what: &str) -> Vec<Finding> {
        let note = |text| Finding { table: Finding::RECOVERY.into(), text, wrong: false };
        let unsupported = self.is_unsupported.then(|| {
            note(
                "this endpoint does not have it, and the tables work without; make copies in another way"
                    .into(),
            )
        });
        let refused = self
            .refused
            .into_iter()
            .map(|(why, tables)| note(format!("{what} ({why}) for {}", tables.join(", "))));
        unsupported.into_iter().chain(refused).collect()
    }
}

fn unusable(error: impl fmt::Display) -> CallFailure {
    CallFailure::Fatal(StoreError::Unusable(error.to_string()))
}

/// Whether it had to be made.
async fn create(dynamo: &Dynamo, table: Table, options: &CreateOptions) -> Result<bool> {
    dynamo
        .call("CreateTable", async || {
            let mut request = dynamo.client().create_table().table_name(dynamo.name_of(table));
            for (name, key_type, attribute_type) in table.key_types() {
                let attribute = AttributeDefinition::builder().attribute_name(name);
                let attribute = attribute.attribute_type(attribute_type).build().map_err(unusable)?;
                let element = KeySchemaElement::builder().attribute_name(name).key_type(key_type);
                request =
                    request.attribute_definitions(attribute).key_schema(element.build().map_err(unusable)?);
            }
            request = match options.billing {
                Billing::OnDemand => request.billing_mode(BillingMode::PayPerRequest),
                Billing::Provisioned { read_units, write_units } => {
                    let throughput = ProvisionedThroughput::builder()
                        .read_capacity_units(read_units.into())
                        .write_capacity_units(write_units.into());
                    let throughput = throughput.build().map_err(unusable)?;
                    request.billing_mode(BillingMode::Provisioned).provisioned_throughput(throughput)
                }
            };
            for (key, value) in &options.tags {
                request = request.tags(Tag::builder().key(key).value(value).build().map_err(unusable)?);
            }
            if options.deletion_protection && table.is_precious() {
                request = request.deletion_protection_enabled(true);
            }
            match request.send().await {
                Ok(_) => Ok(true),
                Err(error) if error.code() == Some("ResourceInUseException") => Ok(false),
                Err(error) => Err(failure(error)),
            }
        })
        .await
}

async fn describe(dynamo: &Dynamo, table: Table) -> Result<Option<TableDescription>> {
    dynamo
        .call("DescribeTable", async || {
            match dynamo.client().describe_table().table_name(dynamo.name_of(table)).send().await {
                Ok(answer) => Ok(answer.table),
                Err(error) if error.code() == Some("ResourceNotFoundException") => Ok(None),
                Err(error) => Err(failure(error)),
            }
        })
        .await
}

/// About how many rows a table has; DynamoDB counts every few hours.
pub(super) async fn rows_about(dynamo: &Dynamo, table: Table) -> Result<u64> {
    Ok(size_of(dynamo, table).await?.1)
}

/// About how many bytes a table holds, and how many rows, as DynamoDB counts them now and then.
pub async fn size_of(dynamo: &Dynamo, table: Table) -> Result<(u64, u64)> {
    let described = describe(dynamo, table).await?;
    let count = |n: Option<i64>| n.unwrap_or_default().unsigned_abs();
    Ok(described.map_or((0, 0), |table| (count(table.table_size_bytes), count(table.item_count))))
}

async fn wait_until_active(dynamo: &Dynamo, table: Table) -> Result<()> {
    let deadline = tokio::time::Instant::now() + READY_WITHIN;
    loop {
        let described = describe(dynamo, table).await?;
        if described.and_then(|table| table.table_status) == Some(TableStatus::Active) {
            return Ok(());
        }
        if tokio::time::Instant::now() > deadline {
            return Err(StoreError::unavailable(format!("the table {}", dynamo.name_of(table))));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn ttl_of(dynamo: &Dynamo, table: Table) -> Result<Option<String>> {
    dynamo
        .call("DescribeTimeToLive", async || {
            let request = dynamo.client().describe_time_to_live().table_name(dynamo.name_of(table));
            let answer = request.send().await.map_err(failure)?;
            let described = answer.time_to_live_description;
            let on = |status: Option<&TimeToLiveStatus>| {
                matches!(status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling))
            };
            Ok(described.filter(|ttl| on(ttl.time_to_live_status())).and_then(|ttl| ttl.attribute_name))
        })
        .await
}

async fn switch_on_ttl(dynamo: &Dynamo, table: Table, attribute: &str) -> Result<()> {
    if ttl_of(dynamo, table).await?.as_deref() == Some(attribute) {
        return Ok(());
    }
    dynamo
        .call("UpdateTimeToLive", async || {
            let ttl = TimeToLiveSpecification::builder().attribute_name(attribute).enabled(true);
            let ttl = ttl.build().map_err(unusable)?;
            let request = dynamo.client().update_time_to_live().table_name(dynamo.name_of(table));
            request.time_to_live_specification(ttl).send().await.map_err(failure)?;
            Ok(())
        })
        .await
}

async fn switch_on_recovery(dynamo: &Dynamo, table: Table) -> Result<std::result::Result<(), NoRecovery>> {
    dynamo
        .call("UpdateContinuousBackups", async || {
            let recovery = PointInTimeRecoverySpecification::builder().point_in_time_recovery_enabled(true);
            let recovery = recovery.build().map_err(unusable)?;
            let request = dynamo.client().update_continuous_backups().table_name(dynamo.name_of(table));
            match request.point_in_time_recovery_specification(recovery).send().await {
                Ok(_) => Ok(Ok(())),
                // Tables work without it, so it is no reason to fail.
                Err(error) => Ok(Err(NoRecovery::from_error(&error))),
            }
        })
        .await
}

async fn has_recovery(dynamo: &Dynamo, table: Table) -> std::result::Result<bool, NoRecovery> {
    let request = dynamo.client().describe_continuous_backups().table_name(dynamo.name_of(table));
    let answer = request.send().await.map_err(|error| NoRecovery::from_error(&error))?;
    let described = answer.continuous_backups_description;
    let is_on = described.as_ref().and_then(|described| {
        let recovery = described.point_in_time_recovery_description()?.point_in_time_recovery_status()?;
        let is_kept = *described.continuous_backups_status() == ContinuousBackupsStatus::Enabled;
        Some(is_kept && *recovery == PointInTimeRecoveryStatus::Enabled)
    });
    is_on.ok_or_else(|| NoRecovery::Refused("the answer does not say".to_owned()))
}

/// Says of every table whether it is as the server needs it.
pub async fn check_tables(dynamo: &Dynamo) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut recovery = RecoveryNotes::default();
    for table in Table::ALL {
        let name = dynamo.name_of(table);
        let mut say = |text: String, wrong| findings.push(Finding { table: name.clone(), text, wrong });
        let Some(described) = describe(dynamo, table).await? else {
            say("is missing; `bluetick tables create` makes it".into(), true);
            continue;
        };
        if described.table_status != Some(TableStatus::Active) {
            let status = described.table_status.as_ref().map_or("unknown", |status| status.as_str());
            say(format!("is not active yet ({status}); wait a moment"), true);
        }
        let wanted: Vec<_> = table.key_types().into_iter().map(|(n, k, t)| (n.to_owned(), k, t)).collect();
        let found: Vec<_> = described
            .key_schema()
            .iter()
            .filter_map(|element| {
                let name = element.attribute_name().to_owned();
                let mut types = described.attribute_definitions().iter();
                let attribute = types.find(|attribute| attribute.attribute_name() == name)?;
                Some((name, element.key_type().clone(), attribute.attribute_type().clone()))
            })
            .collect();
        if found != wanted {
            say(
                format!("has the key {}, and must have {}; make it anew", shown(&found), shown(&wanted)),
                true,
            );
        }
        if table == Table::Messages && !described.global_secondary_indexes().is_empty() {
            say("has a secondary index, which every message pays for and nothing reads".into(), true);
        }
        if let Some(attribute) = table.ttl() {
            match ttl_of(dynamo, table).await? {
                Some(on) if on == attribute => {}
                Some(on) => say(format!("expires rows by `{on}`, and must by `{attribute}`"), true),
                None => say(
                    format!("never forgets: switch on TTL by `{attribute}` (`bluetick tables create` does)"),
                    true,
                ),
            }
        }
        if table.is_precious() && !recovery.is_unsupported {
            match has_recovery(dynamo, table).await {
                Ok(true) => {}
                Ok(false) => say(
                    "has no point-in-time recovery, so there is no way back from a mistake (`bluetick tables create` \
                     switches it on)"
                        .into(),
                    false,
                ),
                Err(NoRecovery::Unsupported) => recovery.is_unsupported = true,
                Err(NoRecovery::Refused(why)) => recovery.refused(name.clone(), why),
            }
        }
    }
    findings.extend(recovery.findings("could not be looked at"));
    Ok(findings)
}

fn shown(keys: &[(String, KeyType, ScalarAttributeType)]) -> String {
    let parts: Vec<_> = keys.iter().map(|(name, _, kind)| format!("{name} ({})", kind.as_str())).collect();
    parts.join(", ")
}
